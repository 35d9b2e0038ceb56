//! The `syncaudit` command: from words on the command line to an exit status.
//!
//! Dispatch only. [`cli`] says what may be typed, [`run`] starts programs, [`judge`] turns traces into reports, [`commands`] holds those of the gate, [`doctor`]
//! looks at the machine; the audit itself is the library. Data goes to stdout, talk to stderr.

mod cli;
mod closed;
mod commands;
mod doctor;
mod judge;
mod live;
mod progress;
mod run;
mod show;
mod staged;
mod trouble;

use clap::Parser;
use cli::{Cli, Color, Command, OutputArgs, ReportArgs, RunArgs, Sink};
use judge::Outputs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use syncaudit::model::{ProblemKind, Source, Trace};
use syncaudit::price::Effort;
use syncaudit::{assess, exit, import, symbols};
use trouble::Trouble;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(words) => return help_or_usage(&words),
    };
    match cli.color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
    let result = match cli.command {
        Command::Run(args) => run_program(args),
        Command::Report(args) => report(args),
        Command::Check(args) => commands::check(&args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::DoctorProbe => doctor::probe::main(),
        Command::Baseline(args) => commands::baseline(&args),
        Command::Diff(args) => commands::diff(&args),
        Command::Init(args) => commands::init(&args),
        Command::Whatif(args) => commands::what_if(&args),
        Command::View(args) => show::view(args),
        Command::Export(args) => show::export(args),
        Command::Explain(args) => commands::explain(&args),
    };
    ExitCode::from(result.unwrap_or_else(|trouble| {
        say(&format!("error: {trouble}"));
        exit::INCONCLUSIVE
    }))
}

/// Help or the version, or why the words are no command.
fn help_or_usage(words: &clap::Error) -> ExitCode {
    let asked_for = !words.use_stderr();
    if asked_for && closed::stdout() {
        say(&format!("error: {}", judge::is_closed("stdout")));
        return ExitCode::from(exit::INCONCLUSIVE);
    }
    match words.print() {
        Err(error) if asked_for && error.kind() != std::io::ErrorKind::BrokenPipe => {
            say(&format!("error: cannot write the help: {error}"));
            ExitCode::from(exit::INCONCLUSIVE)
        }
        _ => ExitCode::from(if asked_for { exit::PASS } else { exit::INCONCLUSIVE }),
    }
}

/// One line of talk. Nobody may be listening (a closed terminal), and that is no reason to stop.
fn say(line: &str) {
    drop(writeln!(anstream::stderr(), "syncaudit: {line}"));
}

fn outputs(args: &OutputArgs, unasked: Sink) -> Result<Outputs, Trouble> {
    let reports = args
        .reports(unasked)
        .map_err(|found| Trouble::new("write the reports", found, "see `syncaudit report --help`"))?;
    Outputs::open(reports)
}

fn run_program(args: RunArgs) -> Result<u8, Trouble> {
    // Whatever can be wrong with what was typed is found before the program starts.
    let mut settings = judge::Settings::of(&args.audit)?;
    settings.against_configured()?;
    let options = settings.options(&args.audit, None);
    let settings = Arc::new(settings);
    let outputs = outputs(&args.output, Sink::Stderr)?;
    let looks = args.live.then(|| show::Looks::of(&args.looks)).transpose()?;
    let request = run::Request {
        program: &args.program,
        device: args.trace.device,
        kernel_time: args.trace.kernel_time.as_deref(),
        gpu_timeline: args.trace.gpu_timeline,
        trace: args.trace.trace.as_deref(),
        steps: run::record::StepOptions::of(&args.audit),
        cupti: None,
    };
    let recorded = match looks.filter(|_| show::is_terminal()) {
        None => {
            if args.live {
                say(&format!("note: {}; the program runs without it", show::NO_TERMINAL));
            }
            run::run(request, say)?
        }
        Some(looks) => {
            let mut prepared = run::prepare(request, say)?;
            let output = live::redirect(&mut prepared)?;
            let running = prepared.start()?;
            let live =
                live::Live::show(&running.prepared, output, looks, Arc::clone(&settings), options.clone());
            let recorded = running.wait(|line| live.say(line));
            live.close();
            recorded?
        }
    };
    if !recorded.end.succeeded() {
        say(&format!("the program {}; the report is about what it did until then", recorded.end.clause()));
    }
    let mut trace = trace_of(&recorded)?;
    keep_names(&recorded.trace, &mut trace);
    let judged = settings.judge(vec![assess(&trace, &options, Effort::Full)], &options)?;
    let written = outputs.write(|format, style| judge::render(&judged, format, style, false));
    let shown = run::shown(&recorded.trace);
    if !args.trace.no_trace {
        say(&format!("trace kept: syncaudit report {shown}"));
    } else if !recorded.survivors.is_empty() {
        // They have their driver in there.
        say(&format!(
            "note: the trace {shown} is left to the processes that still run; remove it when they have ended"
        ));
    } else if written.is_err() {
        say(&format!("trace kept, because the report could not be written: syncaudit report {shown}"));
    } else if let Err(error) = std::fs::remove_dir_all(&recorded.trace) {
        say(&format!("note: the trace {shown} could not be removed: {error}"));
    }
    let verdict = exit::status(judged.audit.verdict, args.audit.report_only);
    // The program's own failure says more than ours.
    match (recorded.end.failure(), written) {
        (Some(status), written) => {
            if let Err(trouble) = written {
                say(&format!("error: {trouble}"));
            }
            Ok(status)
        }
        (None, written) => written.map(|()| verdict),
    }
}

/// Writes the names of the trace's addresses into it, while the program's files are those that ran.
fn keep_names(directory: &Path, trace: &mut Trace) {
    symbols::name_all(trace);
    let Some(text) = import::names::text(directory, trace) else { return };
    let path = directory.join(import::names::FILE);
    if let Err(error) = staged::Staged::open(&path).and_then(|file| file.write(&text)) {
        say(&format!(
            "note: the names of functions could not be kept in the trace ({error}): a later report needs the program's files as they are now"
        ));
    }
}

/// The trace of a run. A run that left no log is a trace without processes: it must be reported, not refused.
fn trace_of(recorded: &run::Recorded) -> Result<Trace, Trouble> {
    let mut trace = match load(std::slice::from_ref(&recorded.trace)) {
        Ok(trace) => trace,
        Err(_) if recorded.handshakes.is_empty() => Trace::default(),
        Err(trouble) => return Err(trouble),
    };
    if trace.source.program.is_empty() {
        let emulated = recorded.record.device == "emulated";
        trace.source = Source { program: recorded.record.program.clone(), emulated, ..trace.source };
    }
    // What is known of this run says more than what is known of any.
    if recorded.handshakes.is_empty() {
        trace.problems.retain(|problem| problem.kind != ProblemKind::TracerNotLoaded);
    }
    trace.problems.extend(recorded.problems.iter().cloned());
    Ok(trace)
}

fn load(traces: &[PathBuf]) -> Result<Trace, Trouble> {
    let mut bar = progress::Bar::new();
    import::load_with(traces, &mut |progress| bar.show(progress)).map_err(|error| {
        Trouble::new(
            format!("read a trace from {}", error.path.display()),
            error.text,
            "name a trace directory that `syncaudit run` made, an event log (.salog) out of one, a trace of PyTorch's \
             profiler (.json, .json.gz, .json.zst) or a database of Nsight Systems (.sqlite); `-` is standard input",
        )
    })
}

fn report(args: ReportArgs) -> Result<u8, Trouble> {
    let mut settings = judge::Settings::of(&args.audit)?;
    settings.against_configured()?;
    let options = settings.options(&args.audit, judge::recorded_steps(&args.traces).as_ref());
    let outputs = outputs(&args.output, Sink::Stdout)?;
    let judged = settings.judge(vec![assess(&load(&args.traces)?, &options, Effort::Full)], &options)?;
    outputs.write(|format, style| judge::render(&judged, format, style, false))?;
    Ok(exit::status(judged.audit.verdict, args.audit.report_only))
}
