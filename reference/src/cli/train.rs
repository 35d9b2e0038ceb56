//! `dflash-train [OPTIONS]`: options of a training run, what it prints while it runs, and Ctrl-C.

use clap::{Args, ValueEnum};
use dflash_train::data::Dataset;
use dflash_train::data::tokenizer::Tokenizer;
use dflash_train::device::Device;
use dflash_train::error::{Error, Result};
use dflash_train::job::channel::{SampleShape, Transport};
use dflash_train::job::control::{self, Entry};
use dflash_train::job::link::Hello;
use dflash_train::job::place::RoleOption;
use dflash_train::job::trainer::{Control, Opening, Trainer, features_listener};
use dflash_train::job::{Layout, Place, Role, rollout, supervisor};
use dflash_train::model::{Config, DPACE_ALPHA, DominoHead, LayerType, LossType, Precision};
use dflash_train::optim::{Curriculum, DominoMetrics, Metrics, OptimizerConfig, Schedule};
use dflash_train::preset::{Preset, Sizes, estimate};
use dflash_train::rollout::features::FeatureFiles;
use dflash_train::rollout::target::{Target, taps};
use dflash_train::rollout::worker::Source;
use dflash_train::train::checkpoint::{self, Position};
use dflash_train::train::{self, Outcome, Settings, Team};
use dflash_train::waits::Waits;
use serde::Serialize;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Exit status after Ctrl-C, as shells count it: 128 and the signal's number.
const STOPPED: u8 = 130;

/// Options of a training run.
#[derive(Args, Clone)]
pub struct TrainArgs {
    /// Sizes of model, batch and run; the options below override single numbers
    #[arg(long, value_enum, default_value = "tiny")]
    pub preset: Preset,

    /// Training objective: dflash, or domino, which adds a causal correction and a second, falling loss
    #[arg(long, value_enum, default_value = "dflash")]
    pub algorithm: Algorithm,

    /// Historical waits to bring back: none, legacy (all), or a list of metrics, anchors, scalars, acks, batch-copy
    #[arg(long, value_name = "LIST", default_value = "none")]
    pub waits: Waits,

    /// Optimiser steps in all, those before a resumed checkpoint included [default: the preset's; tiny 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: Option<u32>,

    /// Read and print metrics every N steps [default: the preset's; tiny 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub log_every: Option<u32>,

    /// Seed of weights, data order and anchors: equal seeds give equal losses, bit for bit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Text to train on: UTF-8 text, or .jsonl of {"prompt", "answer"}, {"messages"} or {"text"} [default: built-in text]
    #[arg(long, value_name = "PATH", help_heading = "Data")]
    pub data: Option<PathBuf>,

    /// A tokenizer.json [default: a token per byte]
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub tokenizer: Option<PathBuf>,

    /// Weights of the frozen target: a safetensors file, or a directory of them, with a config.json [default: seeded]
    #[arg(long, value_name = "PATH", help_heading = "Data")]
    pub target: Option<PathBuf>,

    /// Recorded features (input_ids, hidden_states, loss_mask) instead of running the target: a safetensors file or directory
    #[arg(long, value_name = "PATH", help_heading = "Data", conflicts_with = "data")]
    pub features: Option<PathBuf>,

    /// Sequences per micro-batch
    #[arg(long, value_name = "N", help_heading = "Sizes", value_parser = positive)]
    pub batch: Option<usize>,

    /// Micro-batches per step
    #[arg(long, value_name = "N", help_heading = "Sizes", default_value = "1", value_parser = positive)]
    pub accumulate: usize,

    /// Tokens per sequence
    #[arg(long, value_name = "N", help_heading = "Sizes", value_parser = positive)]
    pub sequence: Option<usize>,

    /// Slot weights of the DFlash objective
    #[arg(long, value_enum, help_heading = "Objective", default_value = "dflash")]
    pub loss_type: LossType,

    /// D-PACE: how much of the draft's confidence is replaced by certainty, 0 to 1 [default: 0.5]
    #[arg(long, value_name = "X", help_heading = "Objective", value_parser = fraction)]
    pub dpace_alpha: Option<f32>,

    /// Domino: slot k predicts the token at anchor + k, as in DFlash, instead of anchor + 1 + k
    #[arg(long, help_heading = "Objective")]
    pub no_shift_label: bool,

    /// Domino: scored slots at a block's start that are left uncorrected [default: 1]
    #[arg(long, value_name = "N", help_heading = "Objective")]
    pub pure_draft_prefix_len: Option<usize>,

    /// Domino: weight of the base loss in the first step [default: 1]
    #[arg(long, value_name = "X", help_heading = "Objective", value_parser = fraction)]
    pub lambda_start: Option<f32>,

    /// Domino: the part of the schedule over which that weight falls to 0 [default: 0.5]
    #[arg(long, value_name = "X", help_heading = "Objective", value_parser = fraction)]
    pub lambda_decay_ratio: Option<f32>,

    /// All layers but the last see only the N last positions [default: every layer sees all]
    #[arg(long, value_name = "N", help_heading = "Sizes", value_parser = positive)]
    pub sliding_window: Option<usize>,

    /// Peak learning rate
    #[arg(long, value_name = "X", help_heading = "Optimiser", value_parser = not_negative)]
    pub lr: Option<f32>,

    /// Steps of linear warm-up [default: a tenth of the schedule]
    #[arg(long, value_name = "N", help_heading = "Optimiser")]
    pub warmup_steps: Option<u32>,

    /// Step at which the cosine reaches zero; set it to train one schedule in several runs [default: --steps]
    #[arg(long, value_name = "N", help_heading = "Optimiser", value_parser = clap::value_parser!(u32).range(1..))]
    pub schedule_steps: Option<u32>,

    /// Decoupled weight decay
    #[arg(long, value_name = "X", help_heading = "Optimiser", default_value = "0", value_parser = not_negative)]
    pub weight_decay: f32,

    /// Gradients are clipped to this global norm
    #[arg(long, value_name = "X", help_heading = "Optimiser", default_value = "1", value_parser = not_negative)]
    pub max_grad_norm: f32,

    /// Save the state here at the end, and resume from it when there is one
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub checkpoint: Option<PathBuf>,

    /// Save every N steps too (between two steps; the save itself waits for the device)
    #[arg(long, value_name = "N", help_heading = "Output", requires = "checkpoint",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub checkpoint_every: Option<u32>,

    /// Write every step's metrics here, one JSON object a line; a run that resumes a checkpoint appends
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub metrics: Option<PathBuf>,

    /// Which GPU [default: 0; in a job LOCAL_RANK]
    #[arg(long, value_name = "N", help_heading = "Device")]
    pub gpu: Option<i32>,

    /// How many steps the host may be ahead of the device
    #[arg(long, value_name = "N", help_heading = "Device", default_value = "2", value_parser = positive)]
    pub run_ahead: usize,

    /// Operands of matrix products; sums and master weights stay 32-bit [default: the preset's; tiny f32]
    #[arg(long, value_enum, help_heading = "Device")]
    pub precision: Option<Precision>,

    /// Capture the step as a CUDA graph and replay it; only a step with --waits none can be captured
    #[arg(long, help_heading = "Device")]
    pub graph: bool,

    /// How many steps' samples may be handed out and not be in the ledger yet; a rollout is held there, never a step
    #[arg(long, value_name = "N", help_heading = "Job", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub ack_lag: u32,

    /// How many processes train, each on its own GPU
    #[arg(long, value_name = "N", help_heading = "Job", default_value = "1", value_parser = positive)]
    pub trainers: usize,

    /// How many processes run the target; with 0 it is a thread of the only trainer
    #[arg(long, value_name = "N", help_heading = "Job", default_value_t = 0)]
    pub rollouts: usize,

    /// This process is one of the job, started by a launcher that sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
    #[arg(long, value_enum, value_name = "ROLE", help_heading = "Job", requires = "rollouts")]
    pub role: Option<RoleOption>,

    /// How features travel between processes
    #[arg(long, value_enum, help_heading = "Job", default_value = "auto")]
    pub transport: Transport,

    /// How long the processes of a job wait for each other at the start
    #[arg(long, value_name = "SECONDS", help_heading = "Job", default_value_t = 300)]
    pub join_timeout: u64,

    /// The process that started this one, and that it must not outlive
    #[arg(long, value_name = "PID", hide = true, requires = "role")]
    pub supervised_by: Option<u32>,

    /// Start even where the preset is known not to fit the device
    #[arg(long, help_heading = "Device")]
    pub force: bool,
}

/// Training objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// Predict a block at once
    Dflash,
    /// DFlash, corrected by a GRU over the block's previous tokens
    Domino,
}

fn fraction(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|x: &f32| (0.0..=1.0).contains(x))
        .ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|x: &f32| x.is_finite() && *x >= 0.0)
        .ok_or_else(|| "expected a number, 0 or more".to_owned())
}

/// A run that is ready to start.
pub struct Plan {
    /// What to train.
    pub settings: Settings,
    /// The frozen target.
    pub target: Arc<Target>,
    /// Where features come from.
    pub source: Source,
}

/// Turns options into a plan, reading the files that they name.
pub fn plan(args: &TrainArgs) -> Result<Plan> {
    let tokenizer = args.tokenizer.as_deref().map_or(Ok(Tokenizer::Bytes), Tokenizer::open)?;
    let vocabulary = tokenizer.vocabulary().max(args.preset.published_vocabulary());
    let mut sizes = args.preset.sizes(vocabulary, tokenizer.mask_id());
    sizes.batch = args.batch.unwrap_or(sizes.batch);
    sizes.sequence = args.sequence.unwrap_or(sizes.sequence);
    set_objective(args, &mut sizes.draft)?;
    let target = Arc::new(open_target(args, &mut sizes)?);
    let source = match &args.features {
        Some(path) => {
            let width = sizes.draft.num_context_features * sizes.draft.hidden_size;
            Source::Files(FeatureFiles::open(path, sizes.sequence, width, sizes.draft.vocab_size)?)
        }
        None => {
            let data = Dataset::open(args.data.as_deref(), &tokenizer, sizes.sequence, args.seed)?;
            Source::Rollout(data, target.clone())
        }
    };
    let steps = args.steps.unwrap_or(sizes.steps);
    let total_steps = args.schedule_steps.unwrap_or(steps);
    let optimizer = OptimizerConfig {
        schedule: Schedule {
            peak: args.lr.unwrap_or(sizes.learning_rate),
            warmup_steps: args.warmup_steps.unwrap_or(total_steps / 10),
            total_steps,
        },
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: args.weight_decay,
        max_grad_norm: args.max_grad_norm,
    };
    let settings = Settings {
        config: sizes.draft,
        batch: sizes.batch,
        sequence: sizes.sequence,
        accumulate: args.accumulate,
        steps,
        log_every: args.log_every.unwrap_or(sizes.log_every),
        seed: args.seed,
        precision: precision(args),
        waits: args.waits,
        optimizer,
        curriculum: Curriculum::new(
            args.lambda_start.unwrap_or(1.0),
            total_steps,
            args.lambda_decay_ratio.unwrap_or(0.5),
        ),
        checkpoint: args.checkpoint.clone(),
        checkpoint_every: args.checkpoint_every,
        run_ahead: args.run_ahead,
        graph: args.graph,
        ack_lag: args.ack_lag,
        data_wait: Duration::ZERO,
        clock: None,
    };
    Ok(Plan { settings, target, source })
}

fn precision(args: &TrainArgs) -> Precision {
    args.precision.unwrap_or(args.preset.precision())
}

/// Head, loss and attention of the draft as the options say.
fn set_objective(args: &TrainArgs, draft: &mut Config) -> Result<()> {
    let domino = args.algorithm == Algorithm::Domino;
    for (given, option) in [
        (args.no_shift_label, "--no-shift-label"),
        (args.pure_draft_prefix_len.is_some(), "--pure-draft-prefix-len"),
        (args.lambda_start.is_some(), "--lambda-start"),
        (args.lambda_decay_ratio.is_some(), "--lambda-decay-ratio"),
    ] {
        if given && !domino {
            return Err(Error::new(format!("{option} is an option of --algorithm domino")));
        }
    }
    if args.dpace_alpha.is_some() && args.loss_type == LossType::Dflash {
        return Err(Error::new("--dpace-alpha is an option of --loss-type dpace and its variants"));
    }
    draft.loss_type = args.loss_type;
    draft.dpace_alpha = args.dpace_alpha.unwrap_or(DPACE_ALPHA);
    if domino {
        let head = args.preset.domino_head();
        draft.domino = Some(DominoHead {
            shift_label: !args.no_shift_label,
            pure_draft_prefix_len: args.pure_draft_prefix_len.unwrap_or(head.pure_draft_prefix_len),
            ..head
        });
    }
    if let Some(window) = args.sliding_window {
        draft.layer_types = vec![LayerType::SlidingAttention; draft.num_hidden_layers];
        if let Some(last) = draft.layer_types.last_mut() {
            *last = LayerType::FullAttention;
        }
        draft.sliding_window = Some(window);
    }
    draft.validate().map_err(|error| Error::new(error.to_string()))
}

/// The target of the options. A target from files decides the vocabulary, and must be as wide as the preset's draft.
fn open_target(args: &TrainArgs, sizes: &mut Sizes) -> Result<Target> {
    let Some(path) = &args.target else {
        let taps = taps(sizes.target.layers, sizes.draft.num_context_features);
        return Ok(Target::seeded(sizes.target.clone(), taps, args.seed));
    };
    let target = Target::open(path, sizes.draft.num_context_features)?;
    let shape = target.shape();
    if shape.hidden != sizes.draft.hidden_size {
        return Err(Error::new(format!(
            "the target {} is {} wide, but the draft of preset {:?} is {}; choose the preset that fits",
            path.display(),
            shape.hidden,
            args.preset,
            sizes.draft.hidden_size
        )));
    }
    if shape.vocabulary <= sizes.draft.mask_token_id as usize {
        return Err(Error::new(format!(
            "the target {} has {} tokens, the tokenizer needs the mask token {}; pass the target's own --tokenizer",
            path.display(),
            shape.vocabulary,
            sizes.draft.mask_token_id
        )));
    }
    sizes.draft.vocab_size = shape.vocabulary;
    Ok(target)
}

/// Trains as the options say: alone, as one process of a job, or as the parent of all of them.
pub fn run(args: &TrainArgs) -> Result<ExitCode> {
    if args.graph && args.waits != Waits::NONE {
        return Err(Error::new(format!(
            "--graph replays a step, and one with waits: {} can't be captured; leave one of the two out",
            args.waits
        )));
    }
    let layout = Layout { trainers: args.trainers, rollouts: args.rollouts };
    match (args.role, layout.rollouts) {
        (None, 0) if layout.trainers == 1 => run_alone(args),
        (_, 0) => Err(Error::new(format!(
            "--trainers {} and no rollout: trainers of a job take their features from rollouts; add --rollouts 1",
            layout.trainers
        ))),
        (None, _) => {
            let status = supervisor::run(layout, std::env::args_os().skip(1).collect())?;
            Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
        }
        (Some(role), _) => {
            if let Some(parent) = args.supervised_by {
                supervisor::stay_with(parent)?;
            }
            let place = Place::from_environment(layout, role)?;
            match place.role() {
                Role::Trainer => run_trainer(args, &place),
                Role::Rollout => run_rollout(args, &place),
            }
        }
    }
}

fn run_alone(args: &TrainArgs) -> Result<ExitCode> {
    let device = Device::open(args.gpu.unwrap_or(0))?;
    check_fit(args, &device)?;
    let Plan { settings, target, source } = plan(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    // The first Ctrl-C sets `stop`; the second finds it set and ends the process at once.
    signal_hook::flag::register_conditional_shutdown(SIGINT, i32::from(STOPPED), stop.clone())
        .and_then(|_| signal_hook::flag::register(SIGINT, stop.clone()))
        .map_err(|error| Error::new(format!("cannot listen for Ctrl-C: {error}")))?;

    let mut reporter = Reporter::open(args, &settings)?;
    reporter.start(&device, &settings, Layout { trainers: 1, rollouts: 0 });
    let team = Team::Alone(Some(source));
    let outcome = train::run(&device, &settings, &target, team, &stop, &mut |row| reporter.step(row));
    Ok(say_end(reporter.finish(outcome)?, &settings))
}

fn run_trainer(args: &TrainArgs, place: &Place) -> Result<ExitCode> {
    let device = match args.gpu {
        Some(gpu) => Device::open(gpu)?,
        None => Device::of_local_rank(place.local_rank)?,
    };
    check_fit(args, &device)?;
    let Plan { settings, target, .. } = plan(args)?;
    let leads = place.rank == 0;
    let directory = settings.checkpoint.as_deref().filter(|_| leads);
    let _claim = directory.map(checkpoint::claim).transpose()?;
    let restored =
        directory.map(|kept| checkpoint::position(kept, &settings.config, settings.seed)).transpose()?;
    let start = restored.flatten().unwrap_or(Position { step: 0, next_sample: 0, seed: settings.seed });
    let listener = if leads { Some(control::listener(&place.master.0, place.master.1)?) } else { None };
    let mut reporter = if leads { Some(Reporter::open(args, &settings)?) } else { None };
    if let (Some(listener), 0) = (&listener, place.master.1) {
        let port = listener.local_addr().map(|address| address.port());
        let port = port.map_err(|error| Error::new(format!("cannot tell the port: {error}")))?;
        println!("{}{port}", supervisor::PORT_LINE);
    }
    let features = features_listener(place)?;
    let port = features.local_addr().map(|address| address.port());
    let port = port.map_err(|error| Error::new(format!("cannot tell the port for features: {error}")))?;
    let trainer = Trainer::join(
        place,
        entry(args, place, &settings, port),
        Opening {
            device: &device,
            listener: listener.as_ref(),
            features,
            shape: sample_shape(&settings),
            transport: args.transport,
            per_trainer: settings.samples_per_step(),
            steps: settings.steps,
            start,
        },
    )?;
    let control = trainer.control.clone();
    on_interrupt(Box::new(move || Control::stop(&control)))?;
    if let Some(reporter) = &reporter {
        reporter.start(&device, &settings, place.layout);
    }
    let stop = AtomicBool::new(false);
    let team = Team::Job(Box::new(trainer));
    let outcome = train::run(&device, &settings, &target, team, &stop, &mut |row| match &mut reporter {
        Some(reporter) => reporter.step(row),
        None => Ok(()),
    });
    match reporter {
        Some(mut reporter) => Ok(say_end(reporter.finish(outcome)?, &settings)),
        None => Ok(exit_code(outcome?.stopped)),
    }
}

fn run_rollout(args: &TrainArgs, place: &Place) -> Result<ExitCode> {
    let Plan { settings, source, .. } = plan(args)?;
    let shape = sample_shape(&settings);
    let entry = entry(args, place, &settings, 0);
    let stopped = rollout::run(place, entry, &source, shape, args.ack_lag, on_interrupt)?;
    Ok(exit_code(stopped))
}

/// What this process hands in when it joins its job.
fn entry(args: &TrainArgs, place: &Place, settings: &Settings, features_port: u16) -> Entry {
    let show = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let options: [(&str, String); 13] = [
        ("number of trainers and rollouts", show(&place.layout)),
        ("model", show(&settings.config)),
        ("batch, micro-batches, sequence", show(&(settings.batch, settings.accumulate, settings.sequence))),
        ("--steps", show(&settings.steps)),
        ("--log-every", show(&settings.log_every)),
        ("--seed", show(&settings.seed)),
        ("--waits", settings.waits.to_string()),
        ("optimiser", show(&settings.optimizer)),
        ("curriculum (--lambda-start, --lambda-decay-ratio, --schedule-steps)", show(&settings.curriculum)),
        ("--data", show(&args.data)),
        ("--tokenizer", show(&args.tokenizer)),
        ("--target", show(&args.target)),
        ("--features", show(&args.features)),
    ];
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        rank: place.rank,
        options: options.map(|(name, value)| (name.to_owned(), value)).into(),
        features_port,
    };
    let patience = Duration::from_secs(args.join_timeout);
    Entry { hello, patience, supervised: args.supervised_by.is_some() }
}

fn sample_shape(settings: &Settings) -> SampleShape {
    let width = settings.config.num_context_features * settings.config.hidden_size;
    SampleShape { sequence: settings.sequence, width }
}

/// Calls `first` at the first Ctrl-C; the second ends the process at once.
fn on_interrupt(first: Box<dyn Fn() + Send>) -> Result<()> {
    let fail = |error: std::io::Error| Error::new(format!("cannot listen for Ctrl-C: {error}"));
    let mut signals = Signals::new([SIGINT]).map_err(fail)?;
    let listen = move || {
        for (index, _) in signals.forever().enumerate() {
            if index > 0 {
                std::process::exit(i32::from(STOPPED));
            }
            first();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(fail)?;
    Ok(())
}

fn exit_code(stopped: bool) -> ExitCode {
    if stopped { ExitCode::from(STOPPED) } else { ExitCode::SUCCESS }
}

/// Says how the run ended, where there is something to say.
fn say_end(outcome: Outcome, settings: &Settings) -> ExitCode {
    if outcome.resumed_from >= settings.steps {
        eprintln!(
            "nothing to do: the checkpoint stands at step {}; ask for more --steps to go on",
            outcome.resumed_from
        );
    }
    if outcome.stopped {
        eprintln!("stopped behind step {} of {}", outcome.steps, settings.steps);
    }
    exit_code(outcome.stopped)
}

/// Says what the preset needs, and refuses one that would take days on the emulated device.
fn check_fit(args: &TrainArgs, device: &Device) -> Result<()> {
    if args.preset != Preset::Qwen3Eight {
        return Ok(());
    }
    let mut sizes = args.preset.sizes(args.preset.published_vocabulary(), 0);
    set_objective(args, &mut sizes.draft)?;
    let batch = args.batch.unwrap_or(sizes.batch);
    let sequence = args.sequence.unwrap_or(sizes.sequence);
    let slots = (args.run_ahead + 1) * args.accumulate;
    let estimate = estimate(&sizes.draft, precision(args), batch, sequence, slots);
    eprintln!("{estimate}");
    if device.is_emulated() && !args.force {
        return Err(Error::new(format!(
            "preset qwen3-8b is made for a GPU: on the emulated device it needs {:.0} GiB of host memory, and one host \
             thread computes the {:.0} TFLOP of every micro-batch; use --preset tiny or small, or --force if you mean it",
            estimate.total_gib(),
            estimate.step_tflop
        )));
    }
    Ok(())
}

/// What a run prints and writes while it runs.
struct Reporter {
    metrics: Option<(PathBuf, BufWriter<File>)>,
    log_every: u32,
    steps: u32,
    /// A line that is rewritten in place, when somebody watches.
    progress: bool,
}

/// A line of the metrics file.
#[derive(Serialize)]
struct MetricsLine {
    step: u32,
    loss: f32,
    accuracy: f32,
    accuracy_denom: f32,
    grad_norm: f32,
    lr: f32,
    #[serde(flatten)]
    domino: Option<DominoMetrics>,
}

impl Reporter {
    fn open(args: &TrainArgs, settings: &Settings) -> Result<Self> {
        let metrics = match &args.metrics {
            None => None,
            Some(path) => {
                // A resumed run goes on in the file of the run that it resumes.
                let resumes =
                    settings.checkpoint.as_deref().is_some_and(|kept| checkpoint::path(kept).exists());
                let mut options = File::options();
                let options = if resumes { options.append(true) } else { options.write(true).truncate(true) };
                let file = options.create(true).open(path).map_err(|error| {
                    Error::new(format!("cannot write the metrics to {}: {error}", path.display()))
                })?;
                Some((path.clone(), BufWriter::new(file)))
            }
        };
        Ok(Reporter {
            metrics,
            log_every: settings.log_every,
            steps: settings.steps,
            progress: std::io::stderr().is_terminal(),
        })
    }

    fn start(&self, device: &Device, settings: &Settings, layout: Layout) {
        let kind = if device.is_emulated() { ", emulated: losses are real, times are not" } else { "" };
        let operands = match settings.precision {
            Precision::F32 => "fp32",
            Precision::Bf16 => "bf16 operands",
        };
        eprintln!(
            "device  {}{kind}; matrix products by {}, {operands}",
            device.name(),
            device.gemm_provider()
        );
        let job = match layout.rollouts {
            0 => String::new(),
            rollouts => format!(" by {} trainers and {rollouts} rollouts", layout.trainers),
        };
        eprintln!(
            "train   {} steps of {} x {} tokens{job}, objective: {}, waits: {}, seed {}",
            settings.steps,
            settings.samples_per_step() * layout.trainers,
            settings.sequence,
            if settings.config.domino.is_some() { "domino" } else { settings.config.loss_type.name() },
            settings.waits,
            settings.seed
        );
    }

    fn step(&mut self, row: &Metrics) -> Result<()> {
        let step = row.step + 1;
        if let Some((path, file)) = &mut self.metrics {
            let line = MetricsLine {
                step,
                loss: row.loss,
                accuracy: row.accuracy,
                accuracy_denom: row.accuracy_denom,
                grad_norm: row.grad_norm,
                lr: row.lr,
                domino: row.domino,
            };
            serde_json::to_writer(&mut *file, &line)
                .map_err(std::io::Error::from)
                .and_then(|()| file.write_all(b"\n"))
                .map_err(|error| {
                    Error::new(format!("cannot write the metrics to {}: {error}", path.display()))
                })?;
        }
        if step.is_multiple_of(self.log_every) {
            if self.progress {
                eprint!("\r\x1b[K");
            }
            let domino = row.domino.map_or(String::new(), |d| {
                format!(
                    "  base_loss {:<8.4} accept_len {:<5.2} base {:<5.2} lambda {:.3}",
                    d.base_loss, d.accept_len, d.base_accept_len, d.lambda_base
                )
            });
            eprintln!(
                "step {step:>6}  loss {:<8.4} accuracy {:<6.3} grad_norm {:<8.3} lr {:.2e}{domino}",
                row.loss, row.accuracy, row.grad_norm, row.lr
            );
        } else if self.progress {
            eprint!("\r\x1b[Kstep {step:>6} of {}  loss {:.4}", self.steps, row.loss);
        }
        Ok(())
    }

    /// Puts the metrics on disk and the cursor on a new line, however the run ended.
    fn finish<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if self.progress {
            eprint!("\r\x1b[K");
        }
        if let Some((path, file)) = &mut self.metrics {
            file.flush().map_err(|error| {
                Error::new(format!("cannot write the metrics to {}: {error}", path.display()))
            })?;
        }
        outcome
    }
}
