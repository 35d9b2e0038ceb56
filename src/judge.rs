//! From a trace to reports and an exit status: what `run`, `report` and `check` have in common.
//!
//! In: what was typed and a trace. Out: reports on their sinks and the status for the shell. Holds no rule of the audit.

use crate::cli::{AuditArgs, Format, Sink};
use crate::run::record::{Record, StepOptions};
use crate::trouble::Trouble;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use syncaudit::audit::{Audit, AuditOptions, SiteStatus};
use syncaudit::config;
use syncaudit::report::{self, TextStyle};

/// Taken where nobody names another and it is there.
const DEFAULT_CONFIG: &str = "syncaudit.toml";

/// The options of an audit: what is typed now goes before what was typed for `run` (`recorded`), and that before the
/// configuration file.
pub fn options(args: &AuditArgs, recorded: Option<&StepOptions>) -> Result<AuditOptions, Trouble> {
    let path = match &args.config {
        Some(path) => Some(path.as_path()),
        None => Some(Path::new(DEFAULT_CONFIG)).filter(|path| path.is_file()),
    };
    let mut options = match path {
        Some(path) => config::load(path).map_err(|error| {
            Trouble::new(
                "use the configuration",
                error.to_string(),
                "correct the file, or name another one with --config FILE",
            )
        })?,
        None => AuditOptions::default(),
    };
    options.allow_missing_ranks |= args.allow_missing_ranks;
    // What `run` wrote down was valid then; text that no longer parses is as good as absent.
    let parsed = |text: Option<&String>| text.and_then(|text| text.parse().ok());
    let rules = &mut options.steps;
    if let Some(pattern) =
        args.steps.clone().or_else(|| parsed(recorded.and_then(|steps| steps.pattern.as_ref())))
    {
        rules.pattern = Some(pattern);
    }
    if let Some(warmup) = args.warmup.or_else(|| recorded.and_then(|steps| steps.warmup)) {
        rules.warmup = warmup;
    }
    let log_every = recorded.and_then(|steps| steps.log_every.as_ref()).and_then(|text| text.parse().ok());
    if let Some(every) = args.log_every.or(log_every) {
        rules.log_every = Some(every);
    }
    if let Some(range) =
        args.log_range.clone().or_else(|| parsed(recorded.and_then(|steps| steps.log_range.as_ref())))
    {
        rules.log_range = Some(range);
    }
    Ok(options)
}

/// What was typed for the run whose trace this is, if it is the trace of one run.
pub fn recorded_steps(traces: &[PathBuf]) -> Option<StepOptions> {
    match traces {
        [trace] => Record::read(trace).map(|record| record.steps),
        _ => None,
    }
}

/// Reports with their destinations, all of them opened: a report that can't be written must not be found out after
/// hours of training.
pub struct Outputs {
    reports: Vec<(Format, Destination)>,
}

enum Destination {
    Stdout,
    Stderr,
    File(PathBuf, File),
}

impl Outputs {
    pub fn open(reports: Vec<(Format, Sink)>) -> Result<Outputs, Trouble> {
        let open = |(format, sink)| {
            let destination = match sink {
                Sink::Stdout => Destination::Stdout,
                Sink::Stderr => Destination::Stderr,
                Sink::File(path) => {
                    // What is in it stays until there is something to put in its place.
                    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
                    Destination::File(path.clone(), file.map_err(|error| not_written(&path, &error))?)
                }
            };
            Ok((format, destination))
        };
        Ok(Outputs { reports: reports.into_iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Writes all reports; `render` makes one of them.
    pub fn write(self, render: impl Fn(Format, TextStyle) -> String) -> Result<(), Trouble> {
        for (format, destination) in self.reports {
            let render = |style| render(format, style);
            match destination {
                Destination::Stdout => {
                    let style = style_of(&io::stdout(), anstream::AutoStream::choice(&io::stdout()));
                    to_stream(&mut io::stdout().lock(), &render(style))?;
                }
                Destination::Stderr => {
                    let style = style_of(&io::stderr(), anstream::AutoStream::choice(&io::stderr()));
                    to_stream(&mut io::stderr().lock(), &render(style))?;
                }
                Destination::File(path, mut file) => {
                    // A pipe or a device has no length to set.
                    drop(file.set_len(0));
                    file.write_all(render(TextStyle::default()).as_bytes())
                        .map_err(|error| not_written(&path, &error))?;
                }
            }
        }
        Ok(())
    }
}

fn not_written(path: &Path, error: &io::Error) -> Trouble {
    Trouble::new(
        format!("write the report to {}", path.display()),
        error.to_string(),
        "name a place that can be written",
    )
}

/// A reader that went away (`| head`) has seen what it wanted.
pub fn to_stream(stream: &mut dyn Write, text: &str) -> Result<(), Trouble> {
    match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Trouble::new("write the report", error.to_string(), "name a file for it with -o FILE"))
        }
        _ => Ok(()),
    }
}

fn style_of(stream: &(impl IsTerminal + std::os::fd::AsFd), choice: anstream::ColorChoice) -> TextStyle {
    let default = TextStyle::default();
    let width = match rustix::termios::tcgetwinsize(stream) {
        Ok(size) if stream.is_terminal() && size.ws_col > 0 => usize::from(size.ws_col),
        _ => default.width,
    };
    TextStyle { color: choice != anstream::ColorChoice::Never, width }
}

/// A report of an audit in the format asked for. `brief` makes the text the verdict alone.
pub fn render(audit: &Audit, format: Format, style: TextStyle, brief: bool) -> String {
    match format {
        Format::Text if brief => verdict_only(audit),
        Format::Text => report::text(audit, style),
        Format::Json => report::json(audit),
    }
}

/// The answer of `check`: the verdict, why, and the sites that broke the budget, one a line.
fn verdict_only(audit: &Audit) -> String {
    let mut text = format!("verdict: {}\n", audit.verdict.id());
    for reason in &audit.reasons {
        text += &format!("  {reason}\n");
    }
    for site in audit.sites.iter().filter(|site| site.status == SiteStatus::OverBudget) {
        let place = site.place().map_or_else(
            || site.range.join(" > "),
            |frame| match frame.line {
                0 => frame.function.clone(),
                line => format!("{}:{line}", frame.file),
            },
        );
        text += &format!(
            "  {} {} at {place}: {} waits in ordinary steps\n",
            site.fingerprint,
            site.kind.id(),
            site.ordinary_waits
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn audit_args(words: &[&str]) -> AuditArgs {
        let words = ["syncaudit", "report"].iter().chain(words).chain(&["trace"]);
        match Cli::try_parse_from(words).expect("accepted").command {
            Command::Report(report) => report.audit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_typed_now_goes_before_what_was_typed_then() {
        let recorded = StepOptions {
            pattern: Some("then".into()),
            warmup: Some(5),
            log_every: Some("10+9".into()),
            log_range: None,
        };
        let rules = options(&audit_args(&["--steps", "now"]), Some(&recorded)).unwrap().steps;
        assert_eq!(rules.pattern, Some("now".parse().unwrap()));
        assert_eq!(rules.warmup, 5);
        assert_eq!(rules.log_every, Some("10+9".parse().unwrap()));
        assert_eq!(options(&audit_args(&[]), None).unwrap(), AuditOptions::default());
    }

    #[test]
    fn a_report_that_cannot_be_written_is_found_out_at_once() {
        let gone = PathBuf::from("/no/such/folder/report.json");
        assert!(Outputs::open(vec![(Format::Json, Sink::File(gone))]).is_err());
    }

    #[test]
    fn opening_leaves_the_old_report_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        std::fs::write(&path, "old").unwrap();
        drop(Outputs::open(vec![(Format::Text, Sink::File(path.clone()))]).unwrap());
        assert_eq!(std::fs::read_to_string(path).unwrap(), "old");
    }
}
