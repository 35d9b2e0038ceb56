//! The training loop.
//!
//! In: settings, features, a device. Out: trained weights, one [`Metrics`] per step, acknowledged samples. With no historical
//! wait switched on, the training thread never waits for the device on an ordinary step: metrics arrive through
//! [`metrics`], batches through [`feed`], acknowledgements through [`acks`], checkpoints are saved between steps. The host
//! runs ahead of the device by as many steps as there are batch slots.

pub mod acks;
pub mod checkpoint;
pub mod feed;
pub mod ledger;
pub mod metrics;
pub mod replay;
pub mod step;

use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::model::{Config, Frozen, Model, Precision};
use crate::nvtx;
use crate::optim::{Curriculum, Metrics, Optimizer, OptimizerConfig};
use crate::rollout::target::Target;
use crate::rollout::worker::{self, InFlight};
use crate::waits::acks::ObjectGather;
use crate::waits::{Source, Waits, metrics as blocking_metrics};
use acks::AckThread;
use checkpoint::Position;
use feed::{BatchShape, Feed, Loaded};
use ledger::{Ledger, StepSamples};
use metrics::MetricsReader;
use replay::Replay;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use step::Compute;

/// What to train and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The draft model.
    pub config: Config,
    /// Sequences per micro-batch.
    pub batch: usize,
    /// Tokens per sequence.
    pub sequence: usize,
    /// Micro-batches per step.
    pub accumulate: usize,
    /// Steps in all, those before a resumed checkpoint included.
    pub steps: u32,
    /// A log step every so many; not 0.
    pub log_every: u32,
    /// Seed of weights, data order and anchors.
    pub seed: u64,
    /// Operands of matrix products.
    pub precision: Precision,
    /// Historical waits that are switched on.
    pub waits: Waits,
    /// AdamW and its schedule.
    pub optimizer: OptimizerConfig,
    /// Domino's weight of the base loss; other objectives have none.
    pub curriculum: Curriculum,
    /// Where checkpoints and the ledger live.
    pub checkpoint: Option<PathBuf>,
    /// Save every so many steps, besides at the end.
    pub checkpoint_every: Option<u32>,
    /// How many steps the host may be ahead of the device.
    pub run_ahead: usize,
    /// Replay the step as a CUDA graph instead of issuing it call by call.
    pub graph: bool,
}

impl Settings {
    fn batch_shape(&self) -> BatchShape {
        let width = self.config.num_context_features * self.config.hidden_size;
        BatchShape { batch: self.batch, sequence: self.sequence, width }
    }

    fn samples_per_step(&self) -> usize {
        self.batch * self.accumulate
    }

    /// Rows of the metrics ring: a log step reads all steps since the one before.
    fn ring_rows(&self) -> usize {
        self.log_every.min(self.steps).max(1) as usize
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Steps done, those before a resumed checkpoint included.
    pub steps: u32,
    /// The step that the run began behind: 0, or that of the checkpoint.
    pub resumed_from: u32,
    /// Whether `stop` ended it early.
    pub stopped: bool,
}

/// Model and optimiser on `device`, weights drawn from the seed, tables from `target`. Set-up only.
pub fn compute(device: &Arc<Device>, settings: &Settings, target: &Target) -> Result<Compute> {
    let frozen = Frozen {
        embed_tokens: Buffer::from_slice(device, target.embedding())?,
        lm_head: Buffer::from_slice(device, target.head())?,
    };
    let config = settings.config.clone();
    let mut model = Model::new(
        device,
        config,
        settings.batch,
        settings.sequence,
        frozen,
        settings.precision,
        settings.seed,
    )?;
    model.initialize(settings.seed)?;
    let optimizer = Optimizer::new(device, &model, settings.optimizer, settings.ring_rows())?;
    Ok(Compute::new(device, model, optimizer, settings.curriculum, settings.waits)?)
}

/// Trains until `settings.steps` steps are done or `stop` is set, whichever comes first. `report` gets every step's metrics in
/// order, late by up to a log interval.
pub fn run(
    device: &Arc<Device>,
    settings: &Settings,
    target: &Target,
    source: worker::Source,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&Metrics) -> Result<()>,
) -> Result<Outcome> {
    let mut compute = compute(device, settings, target)?;
    let start = match &settings.checkpoint {
        Some(directory) => checkpoint::restore(directory, &mut compute, settings.seed)?,
        None => None,
    };
    let start = start.unwrap_or(Position { step: 0, next_sample: 0, seed: settings.seed });

    let in_flight = Arc::new(InFlight::default());
    // One step's worth beside what the loader holds: enough to hide the target's jitter.
    let worker = worker::start(source, start.next_sample, settings.samples_per_step(), in_flight.clone())?;
    let mut feed = if settings.waits.has(Source::BatchCopy) {
        Feed::plain(device, &settings.config, settings.batch_shape(), worker.samples)?
    } else {
        let slots = (settings.run_ahead + 1) * settings.accumulate;
        Feed::staged(device, &settings.config, settings.batch_shape(), slots, worker.samples)?
    };
    let mut acks = Acks::start(device, settings, start.step, in_flight)?;
    let mut metrics = if settings.waits.has(Source::Metrics) {
        StepMetrics::Blocking
    } else {
        let reader = MetricsReader::new(device, &compute.optimizer, settings.run_ahead, start.step)?;
        StepMetrics::Deferred(reader)
    };

    let mut replay = settings.graph.then(Replay::default);
    let mut position = start;
    while position.step < settings.steps && !stop.load(Ordering::Relaxed) && !acks.failed() {
        let index = position.step;
        {
            let _step = nvtx::range_with_payload(c"step", i64::from(index) + 1);
            metrics.report_arrived(report)?;
            let used = match &mut replay {
                Some(replay) => replayed(replay, &mut compute, &mut feed, index, settings.accumulate)?,
                None => issue(&mut compute, &mut feed, index, settings.accumulate)?,
            };
            {
                let _ack = nvtx::range(c"ack");
                acks.acknowledge(&compute, &feed, &used, index + 1)?;
            }
            let log_step = (index + 1).is_multiple_of(settings.log_every);
            let _log = log_step.then(|| nvtx::range(c"log"));
            metrics.after_step(&compute, index, log_step, report)?;
        }
        position.step += 1;
        position.next_sample += settings.samples_per_step() as u64;
        if settings.checkpoint_every.is_some_and(|every| position.step.is_multiple_of(every)) {
            save(settings, &compute, position)?;
        }
    }

    {
        let _log = nvtx::range(c"log");
        metrics.finish(&compute, position.step, report)?;
        // From here on every host function has run, so that the threads below end.
        compute.stream.synchronize()?;
    }
    acks.finish()?;
    save(settings, &compute, position)?;
    feed.finish()?;
    worker.thread.join().map_err(|_| Error::new("the rollout thread panicked"))?;
    Ok(Outcome { steps: position.step, resumed_from: start.step, stopped: position.step < settings.steps })
}

/// Issues step `index` (from 0): every micro-batch, then the update.
fn issue(compute: &mut Compute, feed: &mut Feed, index: u32, accumulate: usize) -> Result<Vec<Loaded>> {
    compute.begin(index)?;
    let mut used = Vec::with_capacity(accumulate);
    for _ in 0..accumulate {
        let loaded = {
            let _data = nvtx::range(c"data");
            feed.next(&compute.stream)?
        };
        compute.micro_batch(feed.batch(&loaded), 1.0 / accumulate as f32)?;
        used.push(loaded);
    }
    compute.update()?;
    Ok(used)
}

/// The same by a graph: the compute stream gets behind the uploads of all micro-batches first, as a capture can't look outside.
fn replayed(
    replay: &mut Replay,
    compute: &mut Compute,
    feed: &mut Feed,
    index: u32,
    accumulate: usize,
) -> Result<Vec<Loaded>> {
    let used = {
        let _data = nvtx::range(c"data");
        (0..accumulate).map(|_| feed.next(&compute.stream)).collect::<Result<Vec<_>>>()?
    };
    replay.step(compute, feed, &used, index)?;
    Ok(used)
}

/// Saves between two steps, so that its waits belong to no step.
fn save(settings: &Settings, compute: &Compute, position: Position) -> Result<()> {
    let Some(directory) = &settings.checkpoint else { return Ok(()) };
    let _range = nvtx::range(c"checkpoint");
    checkpoint::save(directory, compute, position)
}

/// How a step's metrics reach the host.
enum StepMetrics {
    /// Through the ring, asynchronously.
    Deferred(MetricsReader),
    /// `--waits metrics`: one read each, on every step.
    Blocking,
}

impl StepMetrics {
    fn report_arrived(&mut self, report: &mut dyn FnMut(&Metrics) -> Result<()>) -> Result<()> {
        match self {
            StepMetrics::Deferred(reader) => reader.poll()?.iter().try_for_each(report),
            StepMetrics::Blocking => Ok(()),
        }
    }

    fn after_step(
        &mut self,
        compute: &Compute,
        index: u32,
        log_step: bool,
        report: &mut dyn FnMut(&Metrics) -> Result<()>,
    ) -> Result<()> {
        match self {
            StepMetrics::Deferred(reader) if log_step => {
                reader.request(&compute.stream, &compute.optimizer, index + 1)?.iter().try_for_each(report)
            }
            StepMetrics::Deferred(_) => Ok(()),
            StepMetrics::Blocking => {
                report(&blocking_metrics::read(&compute.stream, &compute.optimizer, index)?)
            }
        }
    }

    fn finish(
        &mut self,
        compute: &Compute,
        end: u32,
        report: &mut dyn FnMut(&Metrics) -> Result<()>,
    ) -> Result<()> {
        match self {
            StepMetrics::Deferred(reader) => {
                let mut rows = reader.request(&compute.stream, &compute.optimizer, end)?;
                rows.extend(reader.finish()?);
                rows.iter().try_for_each(report)
            }
            StepMetrics::Blocking => Ok(()),
        }
    }
}

/// How finished samples are acknowledged.
enum Acks {
    /// From another thread, once the device has passed the step.
    Thread(AckThread),
    /// `--waits acks`: gathered and committed before the next step starts.
    Blocking { gather: ObjectGather, ledger: Ledger, in_flight: Arc<InFlight> },
}

impl Acks {
    fn start(
        device: &Arc<Device>,
        settings: &Settings,
        last_step: u32,
        in_flight: Arc<InFlight>,
    ) -> Result<Self> {
        let ledger = match &settings.checkpoint {
            None => Ledger::none(),
            Some(directory) => {
                std::fs::create_dir_all(directory).map_err(|error| {
                    Error::new(format!(
                        "cannot make the checkpoint directory {}: {error}",
                        directory.display()
                    ))
                })?;
                Ledger::open(&directory.join("acks.ledger"), last_step)?
            }
        };
        if settings.waits.has(Source::Acks) {
            let gather = ObjectGather::new(device, settings.samples_per_step())?;
            return Ok(Acks::Blocking { gather, ledger, in_flight });
        }
        Ok(Acks::Thread(AckThread::start(ledger, in_flight)?))
    }

    /// Acknowledges the samples of step `step` (from 1), and gives its batch slots back once the device has passed it.
    fn acknowledge(&mut self, compute: &Compute, feed: &Feed, used: &[Loaded], step: u32) -> Result<()> {
        let samples: Vec<u64> = used.iter().flat_map(|loaded| loaded.samples.iter().copied()).collect();
        let release = feed.release(used);
        match self {
            Acks::Thread(thread) => {
                let (sender, done) = (thread.sender(), StepSamples { step, samples });
                compute.stream.host_function(move || {
                    if let Some(release) = release {
                        release();
                    }
                    // The receiver is gone only after a failed commit, which ends the loop.
                    sender.send(done).unwrap_or_default();
                })?;
                Ok(())
            }
            Acks::Blocking { gather, ledger, in_flight } => {
                if let Some(release) = release {
                    compute.stream.host_function(release)?;
                }
                let samples = gather.gather(&compute.stream, &samples)?;
                let entry = StepSamples { step, samples };
                ledger.commit(std::slice::from_ref(&entry))?;
                in_flight.acknowledge(&entry.samples);
                Ok(())
            }
        }
    }

    /// Whether a commit has failed on the other thread; [`Acks::finish`] says why.
    fn failed(&self) -> bool {
        matches!(self, Acks::Thread(thread) if thread.failed())
    }

    fn finish(self) -> Result<()> {
        match self {
            Acks::Thread(thread) => thread.finish(),
            Acks::Blocking { .. } => Ok(()),
        }
    }
}
