//! `syncaudit view` and `syncaudit export`: from what was typed to the view of the library (or to the report where there is no
//! terminal), and to the files of other tools.
//!
//! In: traces, settings. Out: a screen; the exit status says whether it could be shown, not what the verdict is.

use crate::cli::{ExportArgs, ExportFormat, LooksArgs, ViewArgs};
use crate::trouble::Trouble;
use crate::{closed, judge, load, run, say};
use std::env;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use syncaudit::audit::AuditOptions;
use syncaudit::model::Trace;
use syncaudit::price::Effort;
use syncaudit::report::{self, TextStyle};
use syncaudit::view::follow::Follower;
use syncaudit::view::keys::Keymap;
use syncaudit::view::state::Live;
use syncaudit::view::{App, Recording, Theme, settings, terminal};
use syncaudit::{assess, exit, export};

/// How the view looks, and which keys it knows.
pub struct Looks {
    pub keymap: Keymap,
    pub theme: Theme,
}

/// Why there is no timeline, as a clause.
pub const NO_TERMINAL: &str = "stdout is no terminal that the timeline could be drawn on";

pub fn is_terminal() -> bool {
    let term = env::var("TERM").unwrap_or_default();
    io::stdout().is_terminal() && !term.is_empty() && term != "dumb"
}

pub fn view(args: ViewArgs) -> Result<u8, Trouble> {
    let mut rules = judge::Settings::of(&args.audit)?;
    rules.against_configured()?;
    let options = rules.options(&args.audit, judge::recorded_steps(&args.traces).as_ref());
    let looks = Looks::of(&args.looks)?;
    let trace = load(&args.traces)?;
    let judged = rules.judge(vec![assess(&trace, &options, Effort::Glance)], &options)?;
    if !is_terminal() {
        say(&format!("{NO_TERMINAL}; here is the report instead"));
        judge::to_stdout(&report::text(&judged, TextStyle::default()))?;
        return Ok(exit::PASS);
    }
    let screen = terminal::screen().map_err(|error| no_terminal(&error))?;
    let mut app = App::new(Recording::new(trace, judged), looks.keymap, screen);
    let (tell, news) = channel();
    let follower = args.follow.then(|| {
        app.live = Live::Grows;
        let traces = args.traces.clone();
        let ended = move || match &traces[..] {
            [trace] => Some(format!("{}; this is all of it", how_it_ended(trace)?)),
            _ => None,
        };
        Follower::start(tell, args.traces.clone(), reader(args.traces, Arc::new(rules), options), ended)
    });
    let ended = terminal::run(app, looks.theme, Some(news));
    drop(follower);
    match ended.map_err(|error| no_terminal(&error))? {
        terminal::End::Quit => Ok(exit::PASS),
        terminal::End::Signal(number) => {
            // The terminal is as it was: die of the signal, as whoever sent it expects.
            drop(signal_hook::low_level::emulate_default_handler(number));
            Ok(exit::of_program(None, Some(number)).unwrap_or(exit::PASS))
        }
    }
}

/// Reads traces as far as they are written.
pub fn reader(
    traces: Vec<PathBuf>,
    rules: Arc<judge::Settings>,
    options: AuditOptions,
) -> impl Fn() -> Result<Recording, String> {
    move || {
        let trace = syncaudit::load_path(&traces).map_err(|error| error.to_string())?;
        judged(trace, &rules, &options)
    }
}

pub fn judged(trace: Trace, rules: &judge::Settings, options: &AuditOptions) -> Result<Recording, String> {
    let audit = assess(&trace, options, Effort::Glance);
    let judged = rules.judge(vec![audit], options).map_err(|trouble| trouble.to_string())?;
    Ok(Recording::new(trace, judged))
}

/// How the program of a trace directory has ended, as a clause; `None` while it runs.
pub fn how_it_ended(trace: &Path) -> Option<String> {
    let ended = run::record::Record::read(trace)?.end?;
    Some(format!("the program {}", run::process::End::from(ended).clause()))
}

impl Looks {
    /// What the user's settings and the environment ask for.
    pub fn of(args: &LooksArgs) -> Result<Looks, Trouble> {
        let variable = |name: &str| env::var(name).ok();
        let mut looks = Looks { keymap: Keymap::default(), theme: Theme::from_env(variable) };
        let path =
            args.settings.clone().or_else(|| settings::default_path(variable).filter(|path| path.is_file()));
        if let Some(path) = path {
            (looks.keymap, looks.theme) = settings::load(&path, looks.theme).map_err(|error| {
                Trouble::new(
                    "use the settings of the view",
                    error.to_string(),
                    "correct the file, or name another one with --settings FILE",
                )
            })?;
        }
        looks.theme.ascii |= args.ascii;
        Ok(looks)
    }
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
    if to_stdout && closed::stdout() {
        return Err(judge::is_closed("stdout"));
    }
    let trace = load(&args.traces)?;
    let judged = rules.judge(vec![assess(&trace, &options, Effort::Glance)], &options)?;
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
