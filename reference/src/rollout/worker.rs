//! The rollout worker of a run of one process: a thread that turns sample numbers into features, in order, into a bounded queue.
//!
//! In: a source and a window of sample numbers. Out: a receiver of samples. A full queue and a full window hold the worker
//! up, never the consumer. A rollout that is a process of its own is `job::rollout`.

use super::features::FeatureFiles;
use super::target::Target;
use super::window::Window;
use super::{Features, Sample};
use crate::data::Dataset;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Where features come from.
pub enum Source {
    /// Text, and the target that reads it.
    Rollout(Dataset, Arc<Target>),
    /// Recorded features.
    Files(FeatureFiles),
}

impl Source {
    /// The features of sample `index` of the endless series.
    pub fn sample(&self, index: u64) -> Result<Features> {
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

/// A running worker. It ends when the receiver is gone or the window closed, or behind the first error, which it sends.
pub struct Worker {
    /// Samples in order.
    pub samples: Receiver<Result<Sample>>,
    /// Ends soon after `samples` was dropped and the window closed.
    pub thread: JoinHandle<()>,
}

/// Starts a worker with a queue of `capacity` samples.
pub fn start(source: Source, capacity: usize, window: Arc<Window>) -> Result<Worker> {
    let (sender, samples) = sync_channel(capacity);
    let thread = std::thread::Builder::new()
        .name("rollout".to_owned())
        .spawn(move || run(&source, &sender, &window))
        .map_err(|error| Error::new(format!("cannot start the rollout thread: {error}")))?;
    Ok(Worker { samples, thread })
}

fn run(source: &Source, sender: &SyncSender<Result<Sample>>, window: &Window) {
    while let Some(claim) = window.claim() {
        let sample = source.sample(claim.sample).map(|features| Sample { features, last: claim.last });
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
    fn samples_come_in_order_and_no_further_than_the_window() {
        let window = Arc::new(Window::new(5, 1, 5, 4));
        let worker = start(source(), 100, window.clone()).unwrap();
        let take =
            |count| worker.samples.iter().take(count).map(|s| s.unwrap().features.sample).collect::<Vec<_>>();
        assert_eq!(take(4), [5, 6, 7, 8]);
        assert!(worker.samples.try_recv().is_err(), "beyond the window");
        window.committed(7);
        assert_eq!(take(2), [9, 10]);
        window.close();
        worker.thread.join().unwrap();
    }
}
