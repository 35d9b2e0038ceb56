//! The rollout worker: a thread that turns sample numbers into features, in order, into a bounded queue.
//!
//! In: a source and the number of the first sample. Out: a receiver of samples. A full queue holds the worker up, never the
//! consumer. Samples stay in [`InFlight`] until they are acknowledged, so that the producer could hand them out again.

use super::Features;
use super::features::FeatureFiles;
use super::target::Target;
use crate::data::Dataset;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Where features come from.
pub enum Source {
    /// Text, and the target that reads it.
    Rollout(Dataset, Arc<Target>),
    /// Recorded features.
    Files(FeatureFiles),
}

impl Source {
    fn sample(&self, index: u64) -> Result<Features> {
        match self {
            Source::Files(files) => files.sample(index),
            Source::Rollout(data, target) => {
                let sequence = data.sequence(index);
                Ok(Features {
                    sample: index,
                    hidden_states: target.hidden_states(&sequence.input_ids)?,
                    input_ids: sequence.input_ids.clone(),
                    loss_mask: sequence.loss_mask.clone(),
                })
            }
        }
    }
}

/// Samples handed out and not yet acknowledged.
#[derive(Default)]
pub struct InFlight {
    samples: Mutex<BTreeMap<u64, Arc<Features>>>,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Features>>> {
        // Insertion and removal leave the map whole whatever happens around them.
        self.samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Frees samples that a step has been trained on.
    pub fn acknowledge(&self, samples: &[u64]) {
        let mut map = self.lock();
        samples.iter().for_each(|sample| {
            map.remove(sample);
        });
    }

    /// The numbers of the samples that are not acknowledged, ascending.
    pub fn pending(&self) -> Vec<u64> {
        self.lock().keys().copied().collect()
    }
}

/// A running worker. It ends when the receiver is gone, or behind the first error, which it sends.
pub struct Worker {
    /// Samples in order.
    pub samples: Receiver<Result<Arc<Features>>>,
    /// Ends soon after `samples` was dropped.
    pub thread: JoinHandle<()>,
}

/// Starts a worker at sample number `first` with a queue of `capacity` samples.
pub fn start(source: Source, first: u64, capacity: usize, in_flight: Arc<InFlight>) -> Result<Worker> {
    let (sender, samples) = sync_channel(capacity);
    let thread = std::thread::Builder::new()
        .name("rollout".to_owned())
        .spawn(move || run(&source, first, &sender, &in_flight))
        .map_err(|error| Error::new(format!("cannot start the rollout thread: {error}")))?;
    Ok(Worker { samples, thread })
}

fn run(source: &Source, first: u64, sender: &SyncSender<Result<Arc<Features>>>, in_flight: &InFlight) {
    for index in first.. {
        let sample = source.sample(index).map(Arc::new);
        if let Ok(features) = &sample {
            in_flight.lock().insert(index, features.clone());
        }
        let failed = sample.is_err();
        // A send fails when the training has ended.
        if sender.send(sample).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::Tokenizer;
    use crate::rollout::target::TargetShape;

    fn source() -> Source {
        let shape = TargetShape {
            vocabulary: 264,
            hidden: 8,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            mlp: 8,
            rope_theta: 1e4,
            norm_epsilon: 1e-6,
        };
        let target = Arc::new(Target::seeded(shape, vec![0], 0));
        Source::Rollout(Dataset::open(None, &Tokenizer::Bytes, 16, 0).unwrap(), target)
    }

    #[test]
    fn samples_come_in_order_from_the_first_asked_for_and_stay_until_acknowledged() {
        let in_flight = Arc::new(InFlight::default());
        let worker = start(source(), 5, 2, in_flight.clone()).unwrap();
        let samples: Vec<_> = worker.samples.iter().take(4).map(|sample| sample.unwrap().sample).collect();
        assert_eq!(samples, [5, 6, 7, 8]);
        in_flight.acknowledge(&[5, 7]);
        drop(worker.samples);
        worker.thread.join().unwrap();
        let pending = in_flight.pending();
        assert!(pending.starts_with(&[6, 8]), "{pending:?}");
        // The queue is bounded: the worker got no further than the queue and the sample in its hand.
        assert!(pending.iter().all(|&sample| sample <= 8 + 2 + 1), "{pending:?}");
    }
}
