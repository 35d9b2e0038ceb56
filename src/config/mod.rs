//! The budget file `syncaudit.toml`: raw text becomes a [`Config`], or an error that points at line and column.
//!
//! In: text that a person wrote. Out: options and rules with every value valid. An unknown key is an error that names the closest known
//! one, never ignored: a misspelt budget would be a gate that doesn't shut. What may stand in it: `docs/budget-file.md`.

mod sections;
mod starter;
pub(crate) mod values;

pub use starter::{allow_entry, starter};

use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::audit::AuditOptions;
use crate::gate::Rules;
use values::Fault;

/// What a budget file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub options: AuditOptions,
    pub rules: Rules,
    /// The baseline to check against, relative paths starting from the folder of the file.
    pub baseline: Option<PathBuf>,
}

/// A budget file that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub path: PathBuf,
    /// Counted from 1; 0 when the file could not be read at all.
    pub line: usize,
    pub column: usize,
    /// What is wrong and what to do, as full sentences.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.text),
            line => write!(f, "{}:{line}:{}: {}", self.path.display(), self.column, self.text),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads a budget file.
///
/// # Errors
/// When it can't be read, is no TOML, or has an unknown key or an impossible value.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    parse(path, &text_of(path, "the budget file")?)
}

/// The text of a file; `what` it is begins the sentence that says why there is none.
pub(crate) fn text_of(path: &Path, what: &str) -> Result<String, ConfigError> {
    let fault = |why: String| ConfigError {
        path: path.to_owned(),
        line: 0,
        column: 0,
        text: format!("{what} can't be read: {why}"),
    };
    let bytes = crate::bounded::read(path).map_err(|error| fault(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| fault(format!("it is no text: {error}")))
}

/// Validates the text of a budget file; `path` is for messages, and relative paths in the text start from its folder.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut config = parse_with(path, text, |table, lines| sections::read(table, folder, lines))?;
    path.clone_into(&mut config.rules.allow_path);
    Ok(config)
}

/// Reads TOML by `read`, whose faults get the line and column where they stand.
pub(crate) fn parse_with<T>(
    path: &Path,
    text: &str,
    read: impl FnOnce(&DeTable<'_>, &Lines<'_>) -> Result<T, Fault>,
) -> Result<T, ConfigError> {
    let lines = Lines::new(text);
    let place = |(at, message): Fault| {
        let (line, column) = lines.of(at.start);
        ConfigError { path: path.to_owned(), line, column, text: message }
    };
    let table = DeTable::parse(text).map_err(|error| {
        place((error.span().unwrap_or(0..0), format!("this is no TOML: {}", error.message())))
    })?;
    read(table.get_ref(), &lines).map_err(place)
}

/// Where the lines of a text begin.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// Line and column of a position in bytes, both from 1; columns are characters.
    fn of(&self, at: usize) -> (usize, usize) {
        let at = at.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= at);
        let before = self.text.get(self.starts[line - 1]..at).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Level, WaitKind};
    use crate::gate::Runs;

    fn error(text: &str) -> (usize, usize, String) {
        let error = parse(Path::new("syncaudit.toml"), text).unwrap_err();
        (error.line, error.column, error.text)
    }

    #[test]
    fn a_full_file_is_understood() {
        let text = "[steps]\npattern = 'train|eval'\nwarmup = 3\nlog-every = \"10+9\"\nlog-range = 'metrics'\n\
                    [budget]\nwaits-per-step = 1\n[budget.kinds]\nevent-sync = 2\n";
        let options = parse(Path::new("x"), text).unwrap().options;
        assert_eq!(options.steps.pattern.unwrap().to_string(), "train|eval");
        assert_eq!((options.steps.warmup, options.budget.total), (3, 1));
        assert_eq!(options.steps.log_every.unwrap().to_string(), "10+9");
        assert_eq!(options.budget.per_kind[&WaitKind::EventSync], 2);
        assert_eq!(parse(Path::new("x"), "").unwrap().options, AuditOptions::default());
        assert_eq!(
            parse(Path::new("x"), "steps = {log-every = 5}")
                .unwrap()
                .options
                .steps
                .log_every
                .unwrap()
                .to_string(),
            "5"
        );
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_line_and_the_closest_known_one() {
        let (line, column, text) = error("[steps]\nwarmup = 2\n\n[budget]\n  wait-per-step = 3\n");
        assert_eq!((line, column), (5, 3));
        assert!(
            text.contains("'wait-per-step'") && text.contains("did you mean 'waits-per-step'?"),
            "{text}"
        );
        assert!(error("[budgets]\n").2.contains("did you mean 'budget'?"));
        assert!(error("[budget.kinds]\nevents-sync = 1").2.contains("did you mean 'event-sync'?"));
        assert!(error("frobnicate = 1").2.contains("known are: steps, budget, severity"));
    }

    #[test]
    fn impossible_values_are_refused_where_they_stand() {
        for (text, line, column, part) in [
            ("[steps]\nwarmup = -1", 2, 10, "whole number"),
            ("[steps]\nwarmup = \"two\"", 2, 10, "whole number"),
            ("[steps]\nlog-every = 0", 2, 13, "every 0 steps"),
            ("[steps]\npattern = 3", 2, 11, "text in quotes"),
            ("[steps]\npattern = ''", 2, 11, "no pattern"),
            ("steps = 4", 1, 9, "is a section"),
            ("[budget]\nwaits-per-step = 1.5", 2, 18, "whole number"),
            ("[steps\n", 1, 7, "no TOML"),
            ("[steps]\nwarmup = 1\nwarmup = 2\n", 3, 1, "no TOML"),
            ("[budget.ranges]\nforward = -1", 2, 11, "whole number"),
            ("[budget.ranges]\n'' = 1", 2, 1, "no pattern"),
            ("[budget.log-steps]\nwait-per-step = 1", 2, 1, "did you mean 'waits-per-step'?"),
            ("[budget.kinds]\nevent-sync = 1\n[severity]\nevent-sync = 'off'", 2, 1, "judges nothing"),
            ("[severity]\nevent-sync = 'wran'", 2, 14, "did you mean 'warn'?"),
            ("[severity]\nevents-sync = 'warn'", 2, 1, "did you mean 'event-sync'?"),
            ("[budget]\nevent-sync = 1", 2, 1, "stand under [budget.kinds]"),
            (
                "[budget.kinds]\nsync = 1",
                2,
                1,
                "did you mean one of 'stream-sync', 'event-sync', 'device-sync'?",
            ),
            ("[budget.kinds]\nDevice_To_Host_Read = 1", 2, 1, "did you mean 'device-to-host-read'?"),
            ("[budget.kinds]\nd2h = 1", 2, 1, "did you mean 'device-to-host-read'?"),
            ("[budget.kinds]\nmemory = 1", 2, 1, "did you mean 'memory-management'?"),
            ("[[allow]]\nid = '140073c79f76b8ca'\nreason = 'x'", 2, 1, "did you mean 'fingerprint'?"),
            (
                "[[allow]]\nkind = 'polling'\nreason = 'x'\nuntil = 2026-02-01",
                4,
                1,
                "did you mean 'expires'?",
            ),
            ("[check]\nbase-line = 'x'", 2, 1, "did you mean 'baseline'?"),
            ("[check]\nbaseline = ''", 2, 12, "is empty"),
            ("[check]\nruns = 2", 2, 8, "text in quotes"),
            ("[sources]\nroots = 'src'", 2, 9, "list of texts"),
            ("[sources]\nroots = ['src', 1]", 2, 17, "text in quotes"),
            ("[allow]\nkind = 'polling'", 1, 1, "[[allow]]"),
            ("\n[[allow]]\nkind = 'polling'", 2, 1, "no 'reason'"),
            ("[[allow]]\nkind = 'polling'\nreason = ' '", 3, 10, "is empty"),
            ("[[allow]]\nreason = 'x'", 1, 1, "names no wait"),
            ("[[allow]]\nkind = 'poling'\nreason = 'x'", 2, 8, "did you mean 'polling'?"),
            ("[[allow]]\nkind = 'polling'\nreason = 'x'\nexpires = 2026-02-30", 4, 11, "no TOML"),
            ("[[allow]]\nkind = 'polling'\nreason = 'x'\nexpires = '2026-02-30'", 4, 11, "no day"),
            (
                "[[allow]]\nkind = 'polling'\nreason = 'x'\nexpire = 2026-02-01",
                4,
                1,
                "did you mean 'expires'?",
            ),
            ("[[allow]]\nkind = 'polling'\nreason = 'x'\nmax_per_step = 0", 4, 16, "allows nothing"),
            ("[[allow]]\nfingerprint = '12'\nreason = 'x'", 2, 15, "16 hex digits"),
            ("# \u{e4}\u{e4}\n'\u{e4}' = {} # z\nsteps = { warmup = 'x' }", 2, 1, "not known"),
        ] {
            let (found_line, found_column, message) = error(text);
            assert_eq!((found_line, found_column), (line, column), "{text}: {message}");
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn every_section_reaches_its_place() {
        let text = "[budget]\nwaits-per-step = 1\n[budget.ranges]\nzeta = 2\nalpha = 3\n\
                    [budget.log-steps.kinds]\ndevice-to-host-read = 4\n\
                    [severity]\nmemory-management = 'warn'\npolling = 'off'\n\
                    [check]\nbaseline = 'ci/waits.baseline'\nruns = 'any'\n[sources]\nroots = ['/src', 'lib']\n\
                    [[allow]]\nfunction = 'save'\nreason = 'saves'\nexpires = 2030-01-31\nowner = 'me'\nmax_per_step = 2\n\
                    [[allow]]\nkind = 'polling'\nrange = 'a|b'\nreason = 'polls'\nexpires = \"2030-01-31\"\nmax-per-step = 3\n";
        let config = parse(Path::new("/team/syncaudit.toml"), text).unwrap();
        let options = &config.options;
        let ranges: Vec<String> =
            options.budget.per_range.iter().map(|(range, most)| format!("{range}={most}")).collect();
        assert_eq!(ranges, ["zeta=2", "alpha=3"], "in the order in which they are written");
        let log = options.log_budget.as_ref().unwrap();
        assert_eq!((log.total, log.per_kind[&WaitKind::DeviceToHostRead]), (u64::MAX, 4));
        assert_eq!(options.level(WaitKind::MemoryManagement), Level::Warn);
        assert_eq!(
            (options.level(WaitKind::Polling), options.level(WaitKind::EventSync)),
            (Level::Off, Level::Error)
        );
        assert_eq!(options.roots, [PathBuf::from("/src"), PathBuf::from("/team/lib")]);
        assert_eq!(config.baseline, Some(PathBuf::from("/team/ci/waits.baseline")));
        assert_eq!(config.rules.runs, Runs::Any);
        let [save, poll] = &config.rules.allow[..] else { panic!("{:?}", config.rules.allow) };
        assert_eq!((save.line, save.max_per_step, save.owner.as_deref()), (16, Some(2), Some("me")));
        assert_eq!((poll.line, poll.max_per_step, poll.kind), (22, Some(3), Some(WaitKind::Polling)));
        assert_eq!(save.expires, poll.expires);
    }
}
