//! The command line: what a user may type, nothing of what it does.
//!
//! In: the arguments. Out: one [`Command`]. Never touches a file or starts anything: it can be tested with words alone.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use syncaudit::audit::{LogEvery, Pattern};
use syncaudit::gate::Date;
pub use syncaudit::report::Format;

/// Finds every place where a training step makes the host wait for the GPU, names the line, and keeps it out.
#[derive(Debug, Parser)]
#[command(
    name = "syncaudit",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "\
Start here:
  syncaudit run -- python train.py              trace the program, list every wait, judge it
  syncaudit doctor                              prove that tracing works on this machine

Exit status: 0 within budget, 1 over budget, 2 inconclusive or misused.
With `run`, a program that fails has its own exit status passed on (128+signal for signals), after the report.",
    after_long_help = "\
Start here:
  syncaudit run -- python train.py              trace the program, list every wait, judge it
  syncaudit run --device emulated -- ./trainer  the same without a GPU
  syncaudit report .syncaudit/<trace>           the report again, from the recorded trace
  syncaudit check TRACE --config syncaudit.toml the verdict alone, for CI
  syncaudit doctor                              prove that tracing works on this machine

Exit status: 0 within budget, 1 over budget, 2 inconclusive or misused.
With `run`, a program that fails has its own exit status passed on (128+signal for signals), after the report.

Data goes to stdout, talk to stderr. NO_COLOR is honoured."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Colour in text reports and messages.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    pub color: Color,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// on a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    Report(ReportArgs),
    Check(CheckArgs),
    Baseline(BaselineArgs),
    Diff(DiffArgs),
    Whatif(WhatIfArgs),
    Init(InitArgs),
    View(ViewArgs),
    Export(ExportArgs),
    Explain(ExplainArgs),
    Doctor(DoctorArgs),
    /// The program that `doctor` traces: one known wait.
    #[command(hide = true)]
    DoctorProbe,
}

/// Trace a program, report its waits, judge them
///
/// Starts PROGRAM with the tracer loaded into it, records every CUDA call that can hold the host, and reports when
/// it has ended. The program's code, its output and its exit status stay as they are.
#[derive(Debug, Args)]
#[command(override_usage = "syncaudit run [OPTIONS] -- PROGRAM [ARGS]...")]
#[command(after_help = "\
Examples:
  syncaudit run -- python train.py --epochs 1
  syncaudit run --log-every 50 -- torchrun --nproc-per-node 2 train.py
  syncaudit run --device emulated -- dflash-train --waits legacy --steps 20
  syncaudit run --live -- python train.py             with the timeline on the screen
  syncaudit run --format json -o audit.json -- ./trainer > trainer-output.bin

stdout belongs to the program. The report goes to stderr, or to the FILE of `-o` or `--format FORMAT=FILE`, or to
stdout after the program has ended when a format is asked for by name without a file (`--format json`, `-o -`).")]
pub struct RunArgs {
    /// Show the timeline while the program runs: its output is kept and printed when the view is left (q), its Ctrl-C works,
    /// and it has no input from the terminal
    #[arg(long)]
    pub live: bool,

    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub looks: LooksArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub output: OutputArgs,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required = true, num_args = 1..)]
    pub program: Vec<OsString>,
}

/// How the program is run and what is recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tracing")]
pub struct TraceArgs {
    /// Which device the program gets. `auto`: the GPU when there is a driver and a device, otherwise the emulated one
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: Device,

    /// How long kernels take on the emulated device at least: `200us` for all, or by name: `gemm=2ms,adam=300us,*=10us`.
    /// [default: as long as their host implementation takes]
    #[arg(long, value_name = "TIME", value_parser = kernel_time)]
    pub kernel_time: Option<String>,

    /// Record kernels and launches too (slower; for timelines and prices, not needed to find waits)
    #[arg(long)]
    pub gpu_timeline: bool,

    /// Where the trace goes: a directory that is not there yet, or an empty one of yours
    #[arg(long, value_name = "PATH", conflicts_with = "no_trace")]
    pub trace: Option<PathBuf>,

    /// Keep no trace after the report
    #[arg(long)]
    pub no_trace: bool,
}

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why these waits are accepted, for whoever reads it next year".to_owned()),
        reason => Ok(reason.to_owned()),
    }
}

/// Whether the emulated device will understand it: the program must not start with a time that is then ignored.
fn kernel_time(text: &str) -> Result<String, String> {
    let fits = |part: &str| {
        let time = part.trim().rsplit_once('=').map_or(part.trim(), |(_, time)| time);
        let number = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        number.parse::<f64>().is_ok_and(|number| number >= 0.0)
            && ["ns", "us", "ms", "s"].contains(&&time[number.len()..])
    };
    match text.split(',').find(|part| !fits(part)) {
        None => Ok(text.to_owned()),
        Some(part) => Err(format!(
            "`{part}` is no time: write a number and ns, us, ms or s, such as 200us, or NAME=200us"
        )),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Device {
    Auto,
    Cuda,
    Emulated,
}

/// Report on recorded traces
///
/// TRACE is a trace directory made by `run`, one event log (`.salog`) out of it, a trace of PyTorch's profiler or a database
/// of Nsight Systems (plain, gzip or zstd; `-` is standard input), or a directory of such. Several are read as the processes of
/// one job.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit report .syncaudit/python-4f0c2a91d7e86b35
  syncaudit report trace.json.gz                      a trace of torch.profiler
  syncaudit report run.sqlite                         from Nsight Systems: nsys export --type sqlite
  syncaudit report rank*.json                         one job of many ranks, also as a directory
  ssh node cat trace.json.gz | syncaudit report -     standard input
  syncaudit report --steps 'train_batch' trace.json   steps by an annotation or operator
  syncaudit report --format json .syncaudit/python-4f0c2a91d7e86b35 | jq .verdict
  syncaudit report --format text=- --format json=audit.json TRACE")]
pub struct ReportArgs {
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Trace directories or files
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
}

/// Judge recorded traces, for CI
///
/// Prints the verdict and what broke the budget or is not in the baseline; the exit status says the rest. Several traces are several
/// runs of one program (a run of several processes is one directory): a wait counts only if all of them have it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit check TRACE
  syncaudit check TRACE --baseline syncaudit.baseline
  syncaudit check RUN1 RUN2 RUN3                      what flickers fails nothing
  syncaudit check TRACE --config syncaudit.toml --format json -o verdict.json")]
pub struct CheckArgs {
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Accepted waits: whatever is not in there fails. [default: `baseline` of the configuration]
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// With several runs: whether a wait counts that only one of them has (`any`). [default: all]
    #[arg(long, value_name = "any|all")]
    pub runs: Option<RunsWord>,
    /// A trace directory or file; one per run
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunsWord {
    Any,
    All,
}

/// Accept today's waits, or tighten what was accepted
///
/// Writes the waits of ordinary steps to a file that belongs into the repository. Refuses a trace that is inconclusive.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit baseline TRACE -o syncaudit.baseline
  syncaudit baseline TRACE --update                                take out what is fixed
  syncaudit baseline TRACE --update --accept 'loss is read for early stopping'

Exit status: 0 when the file holds all waits of the trace, 1 when new ones were left out, 2 when nothing was written.")]
pub struct BaselineArgs {
    #[command(flatten)]
    pub audit: AuditArgs,
    /// The baseline. [default: `baseline` of the configuration, else syncaudit.baseline]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Tighten the file that is there: take out what is fixed, lower what has become less. New waits are left out
    #[arg(long)]
    pub update: bool,
    /// Take new waits in too, for this reason
    #[arg(long, value_name = "REASON", requires = "update", value_parser = reason)]
    pub accept: Option<String>,
    /// A trace directory or file
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
}

/// Timeline of a trace in the terminal
///
/// Opens on the worst ordinary step, with the cursor on its most expensive wait: its line, what it waited for, and how to fix
/// it. `?` lists the keys. Where stdout is no terminal, the report is printed instead.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit view .syncaudit/train-1a2b3c
  syncaudit view --follow .syncaudit/train-1a2b3c      while the program runs
  syncaudit view trace.json.gz")]
pub struct ViewArgs {
    /// Read the trace again whenever it has grown
    #[arg(long)]
    pub follow: bool,

    #[command(flatten)]
    pub looks: LooksArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    /// Trace directories or files
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
}

/// How the timeline looks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Timeline")]
pub struct LooksArgs {
    /// Draw with ASCII characters only. [default: when the locale is not UTF-8]
    #[arg(long)]
    pub ascii: bool,

    /// Keys and colours. [default: syncaudit/view.toml in $XDG_CONFIG_HOME or ~/.config, where there is one]
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
}

/// What appeared, went, changed and moved between two traces
///
/// The traces may come from different tools. Exit status: 0 nothing new, 1 new or more frequent waits in ordinary steps, 2 the traces can't tell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit diff .syncaudit/before .syncaudit/after
  syncaudit diff main.json.gz branch.json.gz --format json -o diff.json
  syncaudit diff OLD NEW --format text --format markdown=comment.md

Formats: text, json, markdown. The others are about one run: `syncaudit check NEW --baseline FILE` has them.")]
pub struct DiffArgs {
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// The trace before
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The trace after
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
}

/// What a step would be without some of its waits
///
/// Replays the trace, which must have a device timeline, without the waits that are named: a place by its id (or the first digits of
/// it), a kind, or the waits inside of a range. Without a question it lists what each place buys alone, and the best sets.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit whatif trace.json.gz                                   what each place buys, and the best sets
  syncaudit whatif trace.json.gz --all                             without all waits that can be removed
  syncaudit whatif run.sqlite --remove device-to-host-read         without a kind
  syncaudit whatif TRACE --remove 'read loss' --remove 140073c7    without a range and a place
  syncaudit whatif TRACE --all --keep event-sync --format json

Exit status: 0 when there is an answer, 2 when the trace can't tell; why is said.")]
pub struct WhatIfArgs {
    /// What to remove: a place by its id, a kind or the name of a range; repeatable
    #[arg(long, value_name = "SITE|KIND|RANGE")]
    pub remove: Vec<String>,
    /// What to keep of what is removed
    #[arg(long, value_name = "SITE|KIND|RANGE")]
    pub keep: Vec<String>,
    /// Remove all waits that can simply be left out
    #[arg(long, conflicts_with = "remove")]
    pub all: bool,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Trace directories or files
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
}

/// Write a commented syncaudit.toml, from what a trace shows
///
/// With a TRACE the steps, log steps and kinds of waits in it are filled in, and the waits that are over the budget are listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit init .syncaudit/python-4f0c2a91d7e86b35
  syncaudit init -o ci/syncaudit.toml trace.json.gz")]
pub struct InitArgs {
    #[command(flatten)]
    pub audit: AuditArgs,
    /// Where the file goes (`-` is stdout); one that is there stays as it is
    #[arg(short, long, value_name = "FILE", default_value = "syncaudit.toml", help_heading = "Output")]
    pub output: PathBuf,
    /// A trace directory or file
    #[arg(value_name = "TRACE")]
    pub trace: Option<PathBuf>,
}

/// Convert a trace for other tools
///
/// perfetto: a timeline for ui.perfetto.dev, with an arrow from what a wait waited for to the wait. csv: one line per wait.
/// speedscope: the waits as a call tree, weighted by the time they held the host.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit export TRACE --to perfetto -o trace.perfetto-trace
  syncaudit export TRACE --to csv | head
  syncaudit export trace.json.gz --to speedscope -o waits.speedscope.json")]
pub struct ExportArgs {
    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub to: ExportFormat,

    /// Where it goes; `-` is stdout. [default: stdout, unless it is a terminal and the format is not text]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub audit: AuditArgs,
    /// Trace directories or files
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Perfetto,
    Csv,
    Speedscope,
}

/// What works on this machine, proved by causing one wait and seeing it
///
/// Looks for the driver, CUPTI, our own libraries and anything in the environment that gets in the way, then runs a
/// small program under trace that waits for the device exactly once and checks that exactly that wait is found.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit doctor
  syncaudit doctor --device emulated
  syncaudit doctor --format json -o doctor.json

Exit status: 0 when everything that matters works, 2 otherwise.")]
pub struct DoctorArgs {
    /// The device on which the wait is caused
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: Device,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What a kind of wait, an idiom, a code of the gate or a place of a trace is about, and what helps
///
/// What happens in CUDA, why the host waits, how to see it, how to fix it in PyTorch and in Rust, when to leave it, and what the fix can break.
/// With the id of a place (its fingerprint, or the first digits of it) the place is shown too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  syncaudit explain                             all words
  syncaudit explain device-to-host-read         a kind of wait
  syncaudit explain mask-indexing               an idiom
  syncaudit explain new-wait                    a code of the gate
  syncaudit explain 140073c79f76b8ca            a place of the latest trace
  syncaudit explain 1400 trace.json.gz          a place of another trace")]
pub struct ExplainArgs {
    /// The kind, rule, code or fingerprint; without it all words are listed
    #[arg(value_name = "WORD")]
    pub word: Option<String>,
    /// The trace that the fingerprint is of. [default: the latest one in .syncaudit]
    #[arg(value_name = "TRACE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub audit: AuditArgs,
}

/// What is a step and what is allowed in it. Each of these overrules the configuration file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Steps and budget")]
pub struct AuditArgs {
    /// Configuration with the budget. [default: ./syncaudit.toml where there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Name of the NVTX range, annotation or operator that is a step: `*` stands for any text, `#` for a number, `|`
    /// separates alternatives. [default: step, step N, ProfilerStep#N, train_step, iteration N]
    #[arg(long, value_name = "PATTERN")]
    pub steps: Option<Pattern>,

    /// How many first steps are warm-up and not judged. [default: 2]
    #[arg(long, value_name = "N")]
    pub warmup: Option<usize>,

    /// Steps whose number is a multiple of N (or N times something plus OFFSET) may read metrics. [default: those with
    /// a log range in them]
    #[arg(long, value_name = "N[+OFFSET]")]
    pub log_every: Option<LogEvery>,

    /// Range inside a step in which reading metrics is allowed. [default: log]
    #[arg(long, value_name = "PATTERN")]
    pub log_range: Option<Pattern>,

    /// Judge the ranks that have a trace, even if other ranks of the job have none that can be read
    #[arg(long)]
    pub allow_missing_ranks: bool,

    /// Report, but let no verdict decide the exit status
    #[arg(long)]
    pub report_only: bool,

    /// The day on which entries of the allow-list are looked at, for reports that don't depend on it. [default: today]
    #[arg(long, value_name = "YYYY-MM-DD", hide_short_help = true)]
    pub today: Option<Date>,
}

/// Which reports are written, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Report format: text, json, markdown, github, sarif, junit or html; repeatable, each with its own file as FORMAT=FILE
    /// (`-` is stdout)
    #[arg(long, value_name = "FORMAT[=FILE]")]
    pub format: Vec<FormatRequest>,

    /// Where the report without a FILE of its own goes (`-` is stdout)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// One `--format`: which report, and its file if it has one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatRequest {
    pub format: Format,
    pub file: Option<PathBuf>,
}

impl FromStr for FormatRequest {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (name, file) = match word.split_once('=') {
            Some((_, "")) => return Err("there is no file name behind the `=`".to_owned()),
            Some((name, file)) => (name, Some(PathBuf::from(file))),
            None => (word, None),
        };
        let format = Format::ALL.into_iter().find(|format| format.id() == name).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|format| format.id()).collect();
            format!("`{name}` is no format; there are {}", names.join(", "))
        })?;
        Ok(FormatRequest { format, file })
    }
}

/// Where one report goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    Stdout,
    Stderr,
    File(PathBuf),
}

impl OutputArgs {
    /// The reports asked for, in the order asked. `unasked` is where the text report goes if nobody named a format or
    /// a file: stdout for commands that only read; stderr for `run`, whose stdout belongs to the program.
    pub fn reports(&self, unasked: Sink) -> Result<Vec<(Format, Sink)>, String> {
        let sink_of = |path: &PathBuf| {
            if path.as_os_str() == "-" { Sink::Stdout } else { Sink::File(path.clone()) }
        };
        let default = self.output.as_ref().map(sink_of);
        if self.format.is_empty() {
            return Ok(vec![(Format::Text, default.unwrap_or(unasked))]);
        }
        let reports: Vec<_> = self
            .format
            .iter()
            .map(|request| {
                let sink = match (&request.file, &default) {
                    (Some(file), _) => sink_of(file),
                    (None, Some(default)) => default.clone(),
                    (None, None) => Sink::Stdout,
                };
                (request.format, sink)
            })
            .collect();
        for (i, (_, sink)) in reports.iter().enumerate() {
            if reports[..i].iter().any(|(_, earlier)| earlier == sink) {
                let place = match sink {
                    Sink::File(path) => format!("`{}`", path.display()),
                    Sink::Stdout | Sink::Stderr => "stdout".to_owned(),
                };
                return Err(format!(
                    "two reports would go to {place}; give each its own with --format FORMAT=FILE"
                ));
            }
        }
        if self.output.is_some() && self.format.iter().all(|request| request.file.is_some()) {
            return Err(
                "-o names a file but every --format already has one; leave one of them out".to_owned()
            );
        }
        Ok(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("syncaudit").chain(words.iter().copied()))
    }

    fn program_of(words: &[&str]) -> Vec<OsString> {
        match parse(words).expect("accepted").command {
            Command::Run(run) => run.program,
            other => panic!("{other:?}"),
        }
    }

    fn output(words: &[&str]) -> OutputArgs {
        let mut all = vec!["report"];
        all.extend(words);
        all.push("trace");
        match parse(&all).expect("accepted").command {
            Command::Report(report) => report.output,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_behind_the_dashes_belongs_to_the_program() {
        assert_eq!(program_of(&["run", "--", "prog", "--steps", "3"]), ["prog", "--steps", "3"]);
        assert_eq!(program_of(&["run", "--steps", "s", "--", "prog", "--", "-x"]), ["prog", "--", "-x"]);
    }

    #[test]
    fn the_dashes_may_be_left_out_but_a_mistyped_option_is_no_program() {
        assert_eq!(program_of(&["run", "prog", "--steps", "3"]), ["prog", "--steps", "3"]);
        assert!(parse(&["run", "--devise", "cuda", "--", "prog"]).is_err());
    }

    #[test]
    fn no_program_is_an_error() {
        assert_eq!(parse(&["run"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["run", "--"]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_report_nobody_asked_for_stays_off_the_stdout_of_the_program() {
        assert_eq!(output(&[]).reports(Sink::Stderr), Ok(vec![(Format::Text, Sink::Stderr)]));
        assert_eq!(
            output(&["--format", "json"]).reports(Sink::Stderr),
            Ok(vec![(Format::Json, Sink::Stdout)])
        );
        assert_eq!(output(&["-o", "-"]).reports(Sink::Stderr), Ok(vec![(Format::Text, Sink::Stdout)]));
        assert_eq!(
            output(&["-o", "f"]).reports(Sink::Stderr),
            Ok(vec![(Format::Text, Sink::File("f".into()))])
        );
    }

    #[test]
    fn formats_repeat_with_files_of_their_own() {
        assert_eq!(
            output(&["--format", "text", "--format", "json=a=b.json"]).reports(Sink::Stdout),
            Ok(vec![(Format::Text, Sink::Stdout), (Format::Json, Sink::File("a=b.json".into()))])
        );
        assert!(output(&["--format", "text", "--format", "json"]).reports(Sink::Stdout).is_err());
        assert!(output(&["-o", "f", "--format", "json=g"]).reports(Sink::Stdout).is_err());
    }

    #[test]
    fn kernel_times_have_units() {
        for good in ["200us", "1.5ms", "0ns", "gemm=2ms,adam=300us,*=10us"] {
            assert!(kernel_time(good).is_ok(), "{good}");
        }
        for bad in ["", "200", "us", "fast", "gemm=", "gemm=2ms,", "-1us", "1us,x"] {
            assert!(kernel_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_format_is_known_and_others_are_refused_with_those_that_there_are() {
        for format in Format::ALL {
            let request = format!("{}=x", format.id()).parse();
            assert_eq!(request, Ok(FormatRequest { format, file: Some("x".into()) }));
        }
        let error = "yaml".parse::<FormatRequest>().unwrap_err();
        assert!(error.contains("sarif, junit, html"), "{error}");
        assert!("json=".parse::<FormatRequest>().is_err());
    }
}
