//! `dflash-train bench`: what removing each set of historical waits buys.
//!
//! Trains a few steps with every source of waits, with each one removed alone, with all but one removed, and with none, and
//! prints throughput, how far the host is ahead, how long the device idles, and how much of the wait for data is hidden.
//!
//! On the emulated device times are modelled: each kernel takes an equal part of the step that was published for one H200. The
//! emulated device reads its model from the environment at the start, so the command starts itself again with it.

use super::train::{Plan, TrainArgs, plan};
use clap::{Args, ValueEnum};
use dflash_train::device::Device;
use dflash_train::error::{Error, Result};
use dflash_train::model::Batch;
use dflash_train::train::times::{Clock, StepTimes};
use dflash_train::train::{self, Settings, Team, compute};
use dflash_train::waits::{Source, Waits};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Steps before the first one that counts.
const WARMUP: usize = 2;
/// What was published for a step of batch 2 on one H200.
const PUBLISHED_STEP: Duration = Duration::from_millis(211);
/// How the emulated device is told how long kernels take.
const KERNEL_TIME: &str = "SYNCAUDIT_EMU_KERNEL_TIME";

/// Options of the benchmark: those of a training run, and these.
#[derive(Args)]
pub struct BenchArgs {
    /// Steps of each row that are measured, behind two that are not
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    measure: u32,

    /// How long the training thread waits for a batch in every step, as the published trainer did
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 40)]
    data_wait: u64,

    /// How the table is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    /// The emulated device was given the published step
    #[arg(long, hide = true)]
    published_step: bool,

    #[command(flatten)]
    train: TrainArgs,
}

/// A kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal
    Text,
    /// For a page
    Markdown,
}

/// One set of waits, and what came of it.
struct Row {
    name: String,
    waits: Waits,
    steps: Vec<StepTimes>,
}

/// Runs every row and prints the table.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    if args.train.trainers != 1 || args.train.rollouts != 0 {
        return Err(Error::new("bench measures one process; leave out --trainers and --rollouts"));
    }
    let device = Device::open(args.train.gpu.unwrap_or(0))?;
    if device.is_emulated() && std::env::var_os(KERNEL_TIME).is_none() {
        return with_model(&device, args);
    }
    let rows = rows()
        .into_iter()
        .map(|(name, waits)| {
            eprintln!("bench   {name}");
            Ok(Row { name, waits, steps: measure(&device, args, waits)? })
        })
        .collect::<Result<Vec<_>>>()?;
    print!("{}", table(&rows, args, &device)?);
    Ok(ExitCode::SUCCESS)
}

/// Runs this command again on an emulated device whose kernels take, together, the published step.
fn with_model(device: &Arc<Device>, args: &BenchArgs) -> Result<ExitCode> {
    let launches = launches_per_step(device, args)?;
    let each = PUBLISHED_STEP.as_nanos() / u128::from(launches.max(1));
    let program = std::env::current_exe()
        .map_err(|error| Error::new(format!("cannot find this program to start it again: {error}")))?;
    let status = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--published-step")
        .env(KERNEL_TIME, format!("{each}ns"))
        .status()
        .map_err(|error| Error::new(format!("cannot start this program again: {error}")))?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

/// How many kernels one step of the default mode launches.
fn launches_per_step(device: &Arc<Device>, args: &BenchArgs) -> Result<u64> {
    let Plan { settings, target, .. } = plan(&args.train)?;
    let mut compute = compute(device, &settings, &target, 0)?;
    let batch = Batch::zeros(device, &settings.config, settings.batch, settings.sequence)?;
    let before = device.launches();
    compute.begin(0)?;
    for _ in 0..settings.accumulate {
        compute.micro_batch(&batch, 1.0)?;
    }
    compute.update()?;
    compute.stream.synchronize()?;
    Ok(device.launches() - before)
}

/// Legacy, each source removed alone, all but one removed, none left.
fn rows() -> Vec<(String, Waits)> {
    let removed =
        Source::ALL.map(|source| (format!("without {}", source.name()), Waits::LEGACY.without(source)));
    let left = Source::ALL.map(|source| (format!("only {}", source.name()), Waits::NONE.with(source)));
    let legacy = ("legacy: all sources".to_owned(), Waits::LEGACY);
    let none = ("none left".to_owned(), Waits::NONE);
    std::iter::once(legacy).chain(removed).chain(left).chain([none]).collect()
}

fn measure(device: &Arc<Device>, args: &BenchArgs, waits: Waits) -> Result<Vec<StepTimes>> {
    let Plan { settings, target, source } = plan(&args.train)?;
    let clock = Arc::new(Clock::new(device));
    let steps = WARMUP as u32 + args.measure;
    let settings = Settings {
        waits,
        steps,
        log_every: steps + 1,
        checkpoint: None,
        checkpoint_every: None,
        data_wait: Duration::from_millis(args.data_wait),
        clock: Some(clock.clone()),
        ..settings
    };
    let stop = AtomicBool::new(false);
    train::run(device, &settings, &target, Team::Alone(Some(source)), &stop, &mut |_| Ok(()))?;
    Ok(clock.steps()?.split_off(WARMUP))
}

/// Which step of a row stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// The one in the middle.
    Median,
    /// The fastest: where times are modelled, what else the machine does is no part of the model, and only ever adds.
    Fastest,
}

/// What a row says: of one step behind another, from the end of the one on the device to the end of the other.
struct Figures {
    /// How long that takes, s.
    period: f64,
    /// How long a step is on the device from its first kernel to its last, s.
    on_device: f64,
    /// How far before the device is done with a step the host has issued the next; negative: after, s.
    ahead: f64,
    /// The part of the wait for data in which the device works.
    hidden: f64,
}

fn figures(steps: &[StepTimes], pick: Pick) -> Option<Figures> {
    let mut pairs: Vec<&[StepTimes]> = steps.windows(2).collect();
    let period = |pair: &[StepTimes]| pair[1].done - pair[0].done;
    pairs.sort_by(|a, b| period(a).total_cmp(&period(b)));
    let pair = pairs.get(if pick == Pick::Fastest { 0 } else { pairs.len() / 2 })?;
    let (before, step) = (&pair[0], &pair[1]);
    let waited = step.data_to - step.data_from;
    let under =
        |device: &StepTimes| (step.data_to.min(device.done) - step.data_from.max(device.begun)).max(0.0);
    let hidden = if waited > 0.0 { steps.iter().map(under).sum::<f64>() / waited } else { 1.0 };
    let on_device = steps.iter().map(|step| step.done - step.begun).fold(f64::INFINITY, f64::min);
    Some(Figures { period: period(pair), on_device, ahead: before.done - step.issued, hidden })
}

fn table(rows: &[Row], args: &BenchArgs, device: &Device) -> Result<String> {
    let settings = plan(&args.train)?.settings;
    let pick = if device.is_emulated() { Pick::Fastest } else { Pick::Median };
    let figures: Vec<Figures> = rows.iter().filter_map(|row| figures(&row.steps, pick)).collect();
    let (Some(legacy), true) = (figures.first(), figures.len() == rows.len()) else {
        return Err(Error::new("too few steps were measured"));
    };
    // What the device needs for a step when nothing is in its way.
    let needed = figures.iter().map(|row| row.on_device).fold(f64::INFINITY, f64::min);
    let (samples, domino) = (settings.samples_per_step() as f64, settings.config.domino.is_some());
    let head = [
        "waits of",
        "waits per step",
        "step, ms",
        "samples/s",
        "gain",
        "host ahead, ms",
        "device idle",
        "data wait hidden",
    ];
    let lines: Vec<[String; 8]> = rows
        .iter()
        .zip(&figures)
        .map(|(row, of)| {
            [
                row.name.clone(),
                row.waits.per_step(settings.accumulate, domino).to_string(),
                format!("{:.0}", of.period * 1e3),
                format!("{:.1}", samples / of.period),
                format!("{:+.0} %", (legacy.period / of.period - 1.0) * 100.0),
                format!("{:+.0}", of.ahead * 1e3),
                format!("{:.0} %", (1.0 - needed / of.period).max(0.0) * 100.0),
                format!("{:.0} %", of.hidden * 100.0),
            ]
        })
        .collect();
    let mut text = String::new();
    let times = match (device.is_emulated(), args.published_step) {
        (false, _) => "Times are measured on the GPU; the median step of a row stands for it.".to_owned(),
        (true, published) => format!(
            "Times are modelled, not measured on a GPU: the emulated device {}, and the fastest step of a row stands for it; what \
             waits for what is real.",
            if published {
                format!(
                    "gives every kernel of a step an equal part of the {} ms that were published for one H200",
                    PUBLISHED_STEP.as_millis()
                )
            } else {
                format!("gives kernels the times of {KERNEL_TIME}")
            }
        ),
    };
    let caption = format!(
        "{} steps each of {} x {} tokens, seed {}; the training thread waits {} ms for data in every step. {times}",
        args.measure,
        settings.samples_per_step(),
        settings.sequence,
        settings.seed,
        args.data_wait,
    );
    let notes = [
        "host ahead: how far before the device is done with a step the host has issued the next (negative: after)",
        "device idle: the part of a step in which the device does nothing, against its fastest row",
        "data wait hidden: the part of the wait for data in which the device works",
    ];
    match args.format {
        Format::Markdown => {
            text += &format!("{caption}\n\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
            lines.iter().for_each(|line| text += &format!("| {} |\n", line.join(" | ")));
            text += "\n";
            notes.iter().for_each(|note| text += &format!("- {note}\n"));
        }
        Format::Text => {
            let width = |at: usize| lines.iter().map(|line| line[at].len()).chain([head[at].len()]).max();
            let widths: Vec<usize> = (0..head.len()).filter_map(width).collect();
            let mut put = |line: &[&str]| {
                let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                });
                text += &format!("{}\n", cells.collect::<String>().trim_end());
            };
            put(&head);
            lines.iter().for_each(|line| put(&line.each_ref().map(String::as_str)));
            text += &format!("\n{caption}\n");
            notes.iter().for_each(|note| text += &format!("  {note}\n"));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 10 s on the device whose data take 2 s and whose launches take half a second. `lead`: how long the device is
    /// still busy when a step's data have come.
    fn steps(pace: f64, lead: f64) -> Vec<StepTimes> {
        (0..4)
            .map(|index| {
                let data_from = f64::from(index) * pace;
                let (data_to, begun) = (data_from + 2.0, data_from + 2.0 + lead);
                StepTimes { data_from, data_to, issued: data_to + 0.5, begun, done: begun + 10.0 }
            })
            .collect()
    }

    #[test]
    fn a_host_that_waits_for_each_step_hides_nothing() {
        // The next data are asked for when the device is done.
        let of = figures(&steps(12.0, 0.0), Pick::Median).unwrap();
        assert_eq!((of.period, of.on_device, of.ahead, of.hidden), (12.0, 10.0, -2.5, 0.0));
    }

    #[test]
    fn a_host_that_is_ahead_hides_the_wait_for_data() {
        // A step's data are asked for 8 s before the device is done with the one before.
        let of = figures(&steps(10.0, 6.0), Pick::Median).unwrap();
        assert_eq!((of.period, of.on_device, of.ahead, of.hidden), (10.0, 10.0, 5.5, 1.0));
    }

    #[test]
    fn where_times_are_modelled_a_slow_step_does_not_count() {
        let mut disturbed = steps(12.0, 0.0);
        for (index, step) in disturbed.iter_mut().enumerate() {
            step.done += [0.0, 0.0, 50.0, 100.0][index];
        }
        let period = |pick| figures(&disturbed, pick).unwrap().period;
        assert_eq!((period(Pick::Fastest), period(Pick::Median)), (12.0, 62.0));
    }

    #[test]
    fn every_set_that_the_question_names_is_a_row() {
        let rows = rows();
        let sets: std::collections::BTreeSet<String> =
            rows.iter().map(|(_, waits)| waits.to_string()).collect();
        assert_eq!((rows.len(), sets.len()), (12, 12));
    }
}
