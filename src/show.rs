//! `syncaudit view` and `syncaudit export`: from what was typed to the view of the library (or to the report where there is no
//! terminal), and to the files of other tools.
//!
//! In: traces, settings. Out: a screen; the exit status says whether it could be shown, not what the verdict is.

use crate::cli::{ExportArgs, ExportFormat, ViewArgs};
use crate::trouble::Trouble;
use crate::{judge, load, run, say};
use std::env;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use syncaudit::audit::AuditOptions;
use syncaudit::report::{self, TextStyle};
use syncaudit::view::follow::Follower;
use syncaudit::view::keys::Keymap;
use syncaudit::view::{App, Recording, Theme, settings, terminal};
use syncaudit::{audit, exit, export};

pub fn view(args: ViewArgs) -> Result<u8, Trouble> {
    let mut rules = judge::Settings::of(&args.audit)?;
    rules.against_configured()?;
    let options = rules.options(&args.audit, judge::recorded_steps(&args.traces).as_ref());
    let (keymap, theme) = settings(&args)?;
    let trace = load(&args.traces)?;
    let judged = rules.judge(vec![audit::audit(&trace, &options)], &options)?;
    let variable = |name: &str| env::var(name).ok();
    if !io::stdout().is_terminal() || variable("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        say("stdout is no terminal that the timeline could be drawn on; here is the report instead");
        judge::to_stream(&mut io::stdout().lock(), &report::text(&judged, TextStyle::default()))?;
        return Ok(exit::PASS);
    }
    let screen = terminal::screen().map_err(|error| no_terminal(&error))?;
    let mut app = App::new(Recording::new(trace, judged), keymap, screen);
    let follower = args.follow.then(|| follow(args.traces.clone(), rules, options));
    app.live = args.follow;
    let ended = terminal::run(&mut app, theme, follower.as_ref().map(|follower| &follower.news));
    match ended.map_err(|error| no_terminal(&error))? {
        terminal::End::Quit => Ok(exit::PASS),
        terminal::End::Signal(number) => {
            // The terminal is as it was: die of the signal, as whoever sent it expects.
            drop(signal_hook::low_level::emulate_default_handler(number));
            Ok(exit::of_program(None, Some(number)).unwrap_or(exit::PASS))
        }
    }
}

fn follow(traces: Vec<PathBuf>, rules: judge::Settings, options: AuditOptions) -> Follower {
    let paths = traces.clone();
    let ended = {
        let traces = traces.clone();
        move || matches!(&traces[..], [trace] if run::record::Record::read(trace).is_some_and(|run| run.end.is_some()))
    };
    let read = move || {
        let trace = syncaudit::load_path(&traces).map_err(|error| error.to_string())?;
        let audit = audit::audit(&trace, &options);
        let judged = rules.judge(vec![audit], &options).map_err(|trouble| trouble.to_string())?;
        Ok(Recording::new(trace, judged))
    };
    Follower::start(paths, read, ended)
}

fn settings(args: &ViewArgs) -> Result<(Keymap, Theme), Trouble> {
    let variable = |name: &str| env::var(name).ok();
    let mut theme = Theme::from_env(variable);
    let path = match &args.settings {
        Some(path) => Some(path.clone()),
        None => settings::default_path(variable).filter(|path| path.is_file()),
    };
    let Some(path) = path else {
        theme.ascii |= args.ascii;
        return Ok((Keymap::default(), theme));
    };
    let wrong = |found: String| {
        Trouble::new(
            format!("use the settings in {}", path.display()),
            found,
            "correct the file, or name another one with --settings FILE",
        )
    };
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let (keymap, mut theme) = settings::apply(&text, theme).map_err(wrong)?;
    theme.ascii |= args.ascii;
    Ok((keymap, theme))
}

fn no_terminal(error: &io::Error) -> Trouble {
    Trouble::new(
        "draw on the terminal",
        error.to_string(),
        "run it in a terminal, or print the report with `syncaudit report TRACE`",
    )
}

/// Writes the trace in another tool's format.
pub fn export(args: ExportArgs) -> Result<u8, Trouble> {
    let mut rules = judge::Settings::of(&args.audit)?;
    rules.against_configured()?;
    let options = rules.options(&args.audit, judge::recorded_steps(&args.traces).as_ref());
    let to_stdout = args.output.as_deref().is_none_or(|path| path.as_os_str() == "-");
    if to_stdout && args.to == ExportFormat::Perfetto && io::stdout().is_terminal() {
        return Err(Trouble::new(
            "write a Perfetto trace to the terminal",
            "it is not text",
            "name a file with -o FILE",
        ));
    }
    let trace = load(&args.traces)?;
    let judged = rules.judge(vec![audit::audit(&trace, &options)], &options)?;
    let rec = Recording::new(trace, judged);
    let name = args.output.as_deref().map_or("stdout".to_owned(), |path| path.display().to_string());
    let not_written = |error: io::Error| {
        Trouble::new(
            format!("write to {name}"),
            error.to_string(),
            "name a place that can be written with -o FILE",
        )
    };
    let write = |out: &mut dyn Write| {
        match args.to {
            ExportFormat::Perfetto => export::perfetto(&rec, rec.axis.whole(), out),
            ExportFormat::Csv => export::csv(&rec, out),
            ExportFormat::Speedscope => export::speedscope(&rec, out),
        }?;
        out.flush()
    };
    let written = match args.output.as_deref().filter(|_| !to_stdout) {
        Some(path) => write(&mut BufWriter::new(File::create(path).map_err(not_written)?)),
        None => write(&mut BufWriter::new(io::stdout().lock())),
    };
    match written {
        // A reader that went away (`| head`) has seen what it wanted.
        Err(error) if to_stdout && error.kind() == io::ErrorKind::BrokenPipe => Ok(exit::PASS),
        Err(error) => Err(not_written(error)),
        Ok(()) => Ok(exit::PASS),
    }
}
