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
pub mod times;

use crate::data::random::SplitMix;
use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::job::trainer::Trainer;
use crate::model::{Config, Frozen, Model, Precision};
use crate::nvtx;
use crate::optim::{Curriculum, Metrics, Optimizer, OptimizerConfig};
use crate::rollout::Sample;
use crate::rollout::target::Target;
use crate::rollout::window::Window;
use crate::rollout::worker::{self, Worker};
use crate::waits::acks::ObjectGather;
use crate::waits::{Source, Waits, metrics as blocking_metrics};
use acks::{AckThread, Keeper};
use checkpoint::Position;
use feed::{BatchShape, Feed, Loaded};
use ledger::{Ledger, StepSamples};
use metrics::MetricsReader;
use replay::Replay;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use step::Compute;
use times::Clock;

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
    /// How many steps' samples may be handed out and not be in the ledger; not 0.
    pub ack_lag: u32,
    /// How long the training thread waits for each micro-batch before it takes it: what a store that is far away costs. For the
    /// benchmark; zero otherwise.
    pub data_wait: Duration,
    /// Who wants to know when what was done.
    pub clock: Option<Arc<Clock>>,
}

impl Settings {
    fn batch_shape(&self) -> BatchShape {
        let width = self.config.num_context_features * self.config.hidden_size;
        BatchShape { batch: self.batch, sequence: self.sequence, width }
    }

    /// Samples that one trainer takes in one step.
    pub fn samples_per_step(&self) -> usize {
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

/// Who makes the samples, and who else trains.
pub enum Team {
    /// A thread of this process (this is what it makes them from; taken by the run), and nobody.
    Alone(Option<worker::Source>),
    /// The other processes of a job.
    Job(Box<Trainer>),
}

impl Team {
    fn rank(&self) -> usize {
        match self {
            Team::Alone(_) => 0,
            Team::Job(trainer) => trainer.rank,
        }
    }

    fn trainers(&self) -> usize {
        match self {
            Team::Alone(_) => 1,
            Team::Job(trainer) => trainer.shares.trainers,
        }
    }
}

/// Model and optimiser of trainer `rank` on `device`, weights drawn from the seed, tables from `target`. Set-up only.
pub fn compute(device: &Arc<Device>, settings: &Settings, target: &Target, rank: usize) -> Result<Compute> {
    let frozen = Frozen {
        embed_tokens: Buffer::from_slice(device, target.embedding())?,
        lm_head: Buffer::from_slice(device, target.head())?,
    };
    let config = settings.config.clone();
    // Every trainer draws anchors of its own; the first one as a run of one process does.
    let draws = match rank {
        0 => settings.seed,
        rank => SplitMix::of(&[settings.seed, rank as u64]).next_u64(),
    };
    let mut model =
        Model::new(device, config, settings.batch, settings.sequence, frozen, settings.precision, draws)?;
    model.initialize(settings.seed)?;
    let optimizer = Optimizer::new(device, &model, settings.optimizer, settings.ring_rows())?;
    Ok(Compute::new(device, model, optimizer, settings.curriculum, settings.waits)?)
}

/// Trains until `settings.steps` steps are done, the samples end, or `stop` is set, whichever comes first. `report` gets every
/// step's metrics in order, late by up to a log interval. Of several trainers, rank 0 writes checkpoints and the ledger.
pub fn run(
    device: &Arc<Device>,
    settings: &Settings,
    target: &Target,
    mut team: Team,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&Metrics) -> Result<()>,
) -> Result<Outcome> {
    let (rank, trainers) = (team.rank(), team.trainers());
    let directory = settings.checkpoint.as_deref().filter(|_| rank == 0);
    let _claim = match (&team, directory) {
        // A job claims it before its processes meet.
        (Team::Alone(_), Some(directory)) => Some(checkpoint::claim(directory)?),
        _ => None,
    };
    let mut compute = compute(device, settings, target, rank)?;
    let restored =
        directory.map(|kept| checkpoint::restore(kept, &mut compute, settings.seed)).transpose()?;
    let mut start = restored.flatten().unwrap_or(Position { step: 0, next_sample: 0, seed: settings.seed });
    if let Team::Job(trainer) = &mut team {
        start = Position { step: trainer.step, next_sample: trainer.shares.first, seed: settings.seed };
        if let Some(group) = trainer.group.take() {
            compute.join(group)?;
        }
    }

    let samples_per_step = (settings.samples_per_step() * trainers) as u64;
    let supply = Supply::open(&mut team, settings, start.next_sample)?;
    let Supply { samples, thread, window } = supply;
    let mut feed = if settings.waits.has(Source::BatchCopy) {
        Feed::plain(device, &settings.config, settings.batch_shape(), samples)?
    } else {
        let slots = (settings.run_ahead + 1) * settings.accumulate;
        Feed::staged(device, &settings.config, settings.batch_shape(), slots, samples)?
    };
    let mut acks = Acks::start(device, settings, start, &mut team, window.clone())?;
    let mut metrics = if settings.waits.has(Source::Metrics) {
        StepMetrics::Blocking
    } else {
        let reader = MetricsReader::new(device, &compute.optimizer, settings.run_ahead, start.step)?;
        StepMetrics::Deferred(reader)
    };

    if let Some(clock) = &settings.clock {
        clock.start(&compute.stream)?;
    }
    let mut replay = settings.graph.then(Replay::default);
    let (mut position, mut last) = (start, false);
    while position.step < settings.steps && !last && !stop.load(Ordering::Relaxed) && !acks.failed() {
        let index = position.step;
        {
            let _step = nvtx::range_with_payload(c"step", i64::from(index) + 1);
            metrics.report_arrived(report)?;
            let used = match &mut replay {
                Some(replay) => replayed(replay, &mut compute, &mut feed, index, settings)?,
                None => issue(&mut compute, &mut feed, index, settings)?,
            };
            last = used.iter().any(|loaded| loaded.last);
            {
                let _ack = nvtx::range(c"ack");
                acks.acknowledge(&compute, &feed, &used, index + 1)?;
            }
            let log_step = (index + 1).is_multiple_of(settings.log_every);
            let _log = log_step.then(|| nvtx::range(c"log"));
            metrics.after_step(&compute, index, log_step, report)?;
            if let Some(clock) = &settings.clock {
                clock.issued();
            }
        }
        position.step += 1;
        position.next_sample += samples_per_step;
        if settings.checkpoint_every.is_some_and(|every| position.step.is_multiple_of(every)) {
            save(directory, &compute, &acks, position)?;
        }
    }

    {
        let _log = nvtx::range(c"log");
        metrics.finish(&compute, position.step, report)?;
        // From here on every host function has run, so that the threads below end.
        compute.stream.synchronize()?;
    }
    save(directory, &compute, &acks, position)?;
    acks.finish(position.step)?;
    let stopped = position.step < settings.steps;
    if let Some(window) = window {
        window.close();
    }
    feed.finish()?;
    if let Some(thread) = thread {
        thread.join().map_err(|_| Error::new("the rollout thread panicked"))?;
    }
    if let Team::Job(trainer) = team {
        trainer.finish(stopped)?;
    }
    Ok(Outcome { steps: position.step, resumed_from: start.step, stopped })
}

/// Where samples come from.
struct Supply {
    samples: Receiver<Result<Sample>>,
    /// The rollout, where it is a thread of this process.
    thread: Option<JoinHandle<()>>,
    window: Option<Arc<Window>>,
}

impl Supply {
    fn open(team: &mut Team, settings: &Settings, first: u64) -> Result<Self> {
        match team {
            Team::Job(trainer) => {
                let samples = trainer.samples.take();
                let samples = samples.ok_or_else(|| Error::new("a job's samples are taken once"))?;
                Ok(Supply { samples, thread: None, window: None })
            }
            Team::Alone(source) => {
                let source = source.take().ok_or_else(|| Error::new("a run's source is taken once"))?;
                let per_step = settings.samples_per_step();
                let bound = u64::from(settings.ack_lag) * per_step as u64;
                let window = Arc::new(Window::new(first, 1, first, bound));
                // One step's worth beside what the loader holds: enough to hide the target's jitter.
                let Worker { samples, thread } = worker::start(source, per_step, window.clone())?;
                Ok(Supply { samples, thread: Some(thread), window: Some(window) })
            }
        }
    }
}

/// Issues step `step` (from 0): every micro-batch, then the update.
fn issue(compute: &mut Compute, feed: &mut Feed, step: u32, settings: &Settings) -> Result<Vec<Loaded>> {
    let mut used = Vec::with_capacity(settings.accumulate);
    for index in 0..settings.accumulate {
        let loaded = fetch(compute, feed, settings, index == 0)?;
        if index == 0 {
            compute.begin(step)?;
        }
        compute.micro_batch(feed.batch(&loaded), 1.0 / settings.accumulate as f32)?;
        used.push(loaded);
    }
    compute.update()?;
    if let Some(clock) = &settings.clock {
        clock.end(&compute.stream)?;
    }
    Ok(used)
}

/// The same by a graph: the compute stream gets behind the uploads of all micro-batches first, as a capture can't look outside.
fn replayed(
    replay: &mut Replay,
    compute: &mut Compute,
    feed: &mut Feed,
    step: u32,
    settings: &Settings,
) -> Result<Vec<Loaded>> {
    let used = (0..settings.accumulate)
        .map(|index| fetch(compute, feed, settings, index == 0))
        .collect::<Result<Vec<_>>>()?;
    replay.step(compute, feed, &used, step)?;
    if let Some(clock) = &settings.clock {
        clock.end(&compute.stream)?;
    }
    Ok(used)
}

/// The next micro-batch, the `first` of its step or not.
fn fetch(compute: &Compute, feed: &mut Feed, settings: &Settings, first: bool) -> Result<Loaded> {
    let from = Instant::now();
    let loaded = {
        let _data = nvtx::range(c"data");
        if !settings.data_wait.is_zero() {
            std::thread::sleep(settings.data_wait);
        }
        feed.next(&compute.stream)?
    };
    if let Some(clock) = settings.clock.as_ref().filter(|_| first) {
        clock.begin(&compute.stream, from, Instant::now())?;
    }
    Ok(loaded)
}

/// Saves between two steps, so that its waits belong to no step, and behind the ledger: what a checkpoint was trained on is in it.
fn save(directory: Option<&Path>, compute: &Compute, acks: &Acks, position: Position) -> Result<()> {
    let Some(directory) = directory else { return Ok(()) };
    let _range = nvtx::range(c"checkpoint");
    acks.flush(position.step);
    if acks.failed() {
        return Ok(()); // the run ends with the reason
    }
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
                rows.extend(reader.finish(&compute.stream)?);
                rows.iter().try_for_each(report)
            }
            StepMetrics::Blocking => Ok(()),
        }
    }
}

/// How finished samples are acknowledged.
enum Acks {
    /// From another thread, once the device has passed the step.
    Thread { thread: AckThread, rank: usize },
    /// `--waits acks`: gathered and committed before the next step starts.
    Blocking { gather: Box<ObjectGather>, ledger: Ledger, below: u64, announce: Box<dyn FnMut(u64) + Send> },
}

impl Acks {
    fn start(
        device: &Arc<Device>,
        settings: &Settings,
        start: Position,
        team: &mut Team,
        window: Option<Arc<Window>>,
    ) -> Result<Self> {
        let (rank, trainers) = (team.rank(), team.trainers());
        let ledger = match &settings.checkpoint {
            Some(directory) if rank == 0 => Ledger::open(directory, start.step, start.next_sample)?,
            _ => Ledger::none(),
        };
        let (channel, control) = match team {
            Team::Alone(_) => (None, None),
            Team::Job(trainer) => (trainer.acks.take(), Some(trainer.control.clone())),
        };
        let told = control.clone();
        let announce = Box::new(move |below| {
            if let Some(window) = &window {
                window.committed(below);
            }
            if let Some(control) = &told {
                control.committed(below);
            }
        });
        if settings.waits.has(Source::Acks) {
            let gather = Box::new(ObjectGather::new(device, settings.samples_per_step(), trainers)?);
            return Ok(Acks::Blocking { gather, ledger, below: start.next_sample, announce });
        }
        let keeper = match control.filter(|_| rank > 0) {
            Some(control) => Keeper::Remote(Box::new(move |part| control.trained(part))),
            None => Keeper::Ledger { ledger, trainers, from: (start.step, start.next_sample), announce },
        };
        let thread = AckThread::start(keeper, channel.unwrap_or_else(acks::channel))?;
        Ok(Acks::Thread { thread, rank })
    }

    /// Acknowledges the samples of step `step` (from 1), and gives its batch slots back once the device has passed it.
    fn acknowledge(&mut self, compute: &Compute, feed: &Feed, used: &[Loaded], step: u32) -> Result<()> {
        let samples: Vec<u64> = used.iter().flat_map(|loaded| loaded.samples.iter().copied()).collect();
        let release = feed.release(used);
        match self {
            Acks::Thread { thread, rank } => {
                let (sender, done) = (thread.sender(), StepSamples { step, rank: *rank, samples });
                compute.stream.host_function(move || {
                    if let Some(release) = release {
                        release();
                    }
                    sender.send(done);
                })?;
                Ok(())
            }
            Acks::Blocking { gather, ledger, below, announce } => {
                if let Some(release) = release {
                    compute.stream.host_function(release)?;
                }
                let (stream, group) = (&compute.stream, compute.group.as_ref());
                let gathered = gather.gather(stream, group, &samples)?;
                let count: usize = gathered.iter().map(Vec::len).sum();
                let parts: Vec<StepSamples> = gathered
                    .into_iter()
                    .enumerate()
                    .map(|(rank, samples)| StepSamples { step, rank, samples })
                    .collect();
                // Only rank 0 has a ledger that keeps anything, and somebody to tell.
                ledger.commit(&parts)?;
                *below += count as u64;
                announce(*below);
                if let Some(group) = group {
                    let told = gather.tell(stream, group, step)?;
                    if told != step {
                        return Err(Error::new(format!(
                            "rank 0 committed step {told}, this trainer did {step}"
                        )));
                    }
                }
                Ok(())
            }
        }
    }

    /// Whether a commit has failed on the other thread; [`Acks::finish`] says why.
    fn failed(&self) -> bool {
        matches!(self, Acks::Thread { thread, .. } if thread.failed())
    }

    /// **Waits** until every step up to `step` is in the ledger. For rank 0, outside of steps.
    fn flush(&self, step: u32) {
        match self {
            Acks::Thread { thread, .. } => thread.flush(step),
            Acks::Blocking { .. } => {}
        }
    }

    /// Ends the thread behind step `step`: the ledger has it, or rank 0 was told.
    fn finish(self, step: u32) -> Result<()> {
        match self {
            Acks::Thread { thread, rank } => {
                if rank == 0 {
                    thread.flush(step); // the other trainers' parts may still be on their way
                }
                thread.finish()
            }
            Acks::Blocking { .. } => Ok(()),
        }
    }
}
