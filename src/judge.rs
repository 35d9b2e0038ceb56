//! From a trace to reports and an exit status: what `run`, `report` and `check` have in common.
//!
//! In: what was typed and a trace. Out: reports on their sinks and the status for the shell. Holds no rule of the audit.

use crate::cli::{AuditArgs, Format, Sink};
use crate::closed;
use crate::run::record::{Record, StepOptions};
use crate::staged::Staged;
use crate::trouble::Trouble;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use syncaudit::Audit;
use syncaudit::audit::AuditOptions;
use syncaudit::config::{self, Config};
use syncaudit::gate::{self, Against, Baseline, Date, Judged, Severity};
use syncaudit::report::TextStyle;

/// Taken where nobody names another and it is there.
const DEFAULT_CONFIG: &str = "syncaudit.toml";

/// What an audit goes by: what is typed now goes before what was typed for `run` (`recorded`), and that before the configuration
/// file.
pub struct Settings {
    config: Config,
    today: Date,
    baseline: Option<(PathBuf, Baseline)>,
}

impl Settings {
    /// Reads the configuration.
    pub fn of(args: &AuditArgs) -> Result<Settings, Trouble> {
        Ok(Settings {
            config: read_config(args)?,
            today: args.today.unwrap_or_else(Date::today),
            baseline: None,
        })
    }

    /// The baseline that the configuration names.
    pub fn baseline_path(&self) -> Option<&Path> {
        self.config.baseline.as_deref()
    }

    pub fn runs(&mut self, runs: gate::Runs) {
        self.config.rules.runs = runs;
    }

    /// Reads the baseline to judge against.
    pub fn against(&mut self, path: &Path) -> Result<(), Trouble> {
        self.baseline = Some((path.to_owned(), Baseline::load(path).map_err(bad_baseline)?));
        Ok(())
    }

    /// The baseline that the configuration names, if it is there yet: `run` makes the trace that it is made of.
    pub fn against_configured(&mut self) -> Result<(), Trouble> {
        match self.config.baseline.clone() {
            Some(path) if path.exists() => self.against(&path),
            Some(path) => {
                crate::say(&format!(
                    "note: the configuration names the baseline {}, which is not there yet; make it with `syncaudit baseline`",
                    path.display()
                ));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The options of the audit of a trace.
    pub fn options(&self, args: &AuditArgs, recorded: Option<&StepOptions>) -> AuditOptions {
        options(self.config.options.clone(), args, recorded)
    }

    /// Judges the runs by all of this; there is at least one.
    pub fn judge(&self, runs: Vec<Audit>, options: &AuditOptions) -> Result<Judged, Trouble> {
        if let Some((path, baseline)) = &self.baseline {
            for audit in &runs {
                baseline.fits(path, audit).map_err(bad_baseline)?;
            }
        }
        let against = self.baseline.as_ref().map(|(path, baseline)| Against { baseline, path });
        gate::judge_runs(runs, options, &self.config.rules, against, self.today)
            .ok_or_else(|| Trouble::new("judge", "there is no trace", "name one"))
    }
}

pub fn bad_baseline(error: gate::BaselineError) -> Trouble {
    let help = error.help.clone();
    Trouble::new("use the baseline", error.to_string(), help)
}

fn read_config(args: &AuditArgs) -> Result<Config, Trouble> {
    let path = match &args.config {
        Some(path) => Some(path.as_path()),
        None => Some(Path::new(DEFAULT_CONFIG)).filter(|path| path.is_file()),
    };
    path.map_or_else(
        || Ok(Config::default()),
        |path| {
            config::load(path).map_err(|error| {
                Trouble::new(
                    "use the configuration",
                    error.to_string(),
                    "correct the file, or name another one with --config FILE",
                )
            })
        },
    )
}

fn options(mut options: AuditOptions, args: &AuditArgs, recorded: Option<&StepOptions>) -> AuditOptions {
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
    options
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
    File(PathBuf, Staged),
}

impl Outputs {
    pub fn open(reports: Vec<(Format, Sink)>) -> Result<Outputs, Trouble> {
        let open = |(format, sink)| {
            let destination = match sink {
                Sink::Stdout if closed::stdout() => return Err(is_closed("stdout")),
                Sink::Stderr if closed::stderr() => return Err(is_closed("stderr")),
                Sink::Stdout => Destination::Stdout,
                Sink::Stderr => Destination::Stderr,
                Sink::File(path) => {
                    let file = Staged::open(&path).map_err(|error| not_written(&path, &error))?;
                    Destination::File(path, file)
                }
            };
            Ok((format, destination))
        };
        Ok(Outputs { reports: reports.into_iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Writes all reports; `render` makes one of them. One that can't be written does not keep the others from it; the first failure is told.
    pub fn write(self, render: impl Fn(Format, TextStyle) -> String) -> Result<(), Trouble> {
        let written = self.reports.into_iter().map(|(format, destination)| {
            let render = |style| render(format, style);
            match destination {
                Destination::Stdout => {
                    let style = style_of(&io::stdout(), anstream::AutoStream::choice(&io::stdout()));
                    to_stdout(&render(style))
                }
                Destination::Stderr => {
                    let style = style_of(&io::stderr(), anstream::AutoStream::choice(&io::stderr()));
                    to_stream(&mut io::stderr().lock(), &render(style))
                }
                Destination::File(path, file) => {
                    file.write(&render(TextStyle::default())).map_err(|error| not_written(&path, &error))
                }
            }
        });
        let written: Vec<Result<(), Trouble>> = written.collect();
        written.into_iter().collect()
    }
}

fn not_written(path: &Path, error: &io::Error) -> Trouble {
    Trouble::new(
        format!("write the report to {}", path.display()),
        error.to_string(),
        "name a place that can be written",
    )
}

pub fn is_closed(stream: &str) -> Trouble {
    Trouble::new(format!("write to {stream}"), "it is closed", "leave it open, or name a file with -o FILE")
}

/// Puts text on stdout.
pub fn to_stdout(text: &str) -> Result<(), Trouble> {
    if closed::stdout() {
        return Err(is_closed("stdout"));
    }
    to_stream(&mut io::stdout().lock(), text)
}

/// A reader that went away (`| head`) has seen what it wanted.
fn to_stream(stream: &mut dyn Write, text: &str) -> Result<(), Trouble> {
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

/// A report in the format asked for. `brief` makes the text the verdict and what it rests on.
pub fn render(judged: &Judged, format: Format, style: TextStyle, brief: bool) -> String {
    match format {
        Format::Text if brief => verdict_only(judged),
        format => format.render(judged, style),
    }
}

/// The answer of `check`: the verdict, why, and what there is to do, one finding a paragraph.
fn verdict_only(judged: &Judged) -> String {
    let mut text = format!("verdict: {}\n", judged.audit.verdict.id());
    for reason in &judged.audit.reasons {
        text += &format!("  {reason}\n");
    }
    for next in &judged.audit.next {
        text += &format!("  next: {next}\n");
    }
    let mut helped = Vec::new();
    for finding in judged.findings.iter().filter(|finding| finding.is_news()) {
        text += &format!("{}[{}]", finding.severity.id(), finding.code.id());
        if let Some(place) = finding.place_text() {
            text += &format!(" {place}");
        }
        text += &format!(": {}\n", finding.message);
        if let Some(site) = finding.site.map(|site| &judged.audit.sites[site]) {
            let range = if site.range.is_empty() {
                String::new()
            } else {
                format!(", range {}", site.range.join(" > "))
            };
            text += &format!("  id {}{range}\n", site.fingerprint);
        }
        if finding.severity > Severity::Note && !finding.help.is_empty() && !helped.contains(&finding.code) {
            helped.push(finding.code);
            text += &format!("  help: {}\n", finding.help);
        }
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
        let none = AuditOptions::default;
        let rules = options(none(), &audit_args(&["--steps", "now"]), Some(&recorded)).steps;
        assert_eq!(rules.pattern, Some("now".parse().unwrap()));
        assert_eq!(rules.warmup, 5);
        assert_eq!(rules.log_every, Some("10+9".parse().unwrap()));
        assert_eq!(options(none(), &audit_args(&[]), None), none());
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
