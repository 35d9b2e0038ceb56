//! The budget file `syncaudit.toml`: raw text becomes [`AuditOptions`], or an error that points at line and column.
//!
//! In: text that a person wrote. Out: options with every value valid. An unknown key is an error that names the closest known
//! one, never ignored: a misspelt budget would be a gate that doesn't shut.
//!
//! ```toml
//! [steps]
//! pattern = "train_step"    # which NVTX ranges are steps
//! warmup = 2                # first steps of each process, not judged
//! log-every = "10+9"        # which steps may read metrics
//! log-range = "log"         # where in such a step
//!
//! [budget]
//! waits-per-step = 0        # for all kinds without a line of their own, together
//! [budget.kinds]
//! event-sync = 1
//! ```

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::audit::{AuditOptions, WaitKind};

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
pub fn load(path: &Path) -> Result<AuditOptions, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
        path: path.to_owned(),
        line: 0,
        column: 0,
        text: format!("the budget file can't be read: {error}"),
    })?;
    parse(path, &text)
}

/// Validates the text of a budget file; `path` is for messages only.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str) -> Result<AuditOptions, ConfigError> {
    let place = |(at, message): Fault| {
        let before = text.get(..at.start.min(text.len())).unwrap_or(text);
        ConfigError {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.chars().rev().take_while(|&c| c != '\n').count() + 1,
            text: message,
        }
    };
    let table = DeTable::parse(text).map_err(|error| {
        place((error.span().unwrap_or(0..0), format!("this is no TOML: {}", error.message())))
    })?;
    options(table.get_ref()).map_err(place)
}

/// Where in the text, and what is wrong there.
type Fault = (Range<usize>, String);

fn options(root: &DeTable<'_>) -> Result<AuditOptions, Fault> {
    let mut options = AuditOptions::default();
    for (key, value) in root {
        match key.get_ref().as_ref() {
            "steps" => steps(table(key, value)?, &mut options)?,
            "budget" => budget(table(key, value)?, &mut options)?,
            _ => return Err(unknown(key, "in a budget file", &["steps", "budget"])),
        }
    }
    Ok(options)
}

fn steps(section: &DeTable<'_>, options: &mut AuditOptions) -> Result<(), Fault> {
    let rules = &mut options.steps;
    for (key, value) in section {
        match key.get_ref().as_ref() {
            "pattern" => rules.pattern = Some(parsed(key, value)?),
            "warmup" => rules.warmup = usize::try_from(count(key, value)?).unwrap_or(usize::MAX),
            "log-every" => rules.log_every = Some(parsed(key, value)?),
            "log-range" => rules.log_range = Some(parsed(key, value)?),
            _ => return Err(unknown(key, "in [steps]", &["pattern", "warmup", "log-every", "log-range"])),
        }
    }
    Ok(())
}

fn budget(section: &DeTable<'_>, options: &mut AuditOptions) -> Result<(), Fault> {
    for (key, value) in section {
        match key.get_ref().as_ref() {
            "waits-per-step" => options.budget.total = count(key, value)?,
            "kinds" => {
                for (key, value) in table(key, value)? {
                    let kinds: Vec<&str> = WaitKind::ALL.iter().map(|kind| kind.id()).collect();
                    let kind = WaitKind::from_id(key.get_ref())
                        .ok_or_else(|| unknown(key, "as a kind of wait", &kinds))?;
                    options.budget.per_kind.insert(kind, count(key, value)?);
                }
            }
            _ => return Err(unknown(key, "in [budget]", &["waits-per-step", "kinds"])),
        }
    }
    Ok(())
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

fn table<'v, 'a>(key: &Key<'_>, value: &'v Spanned<DeValue<'a>>) -> Result<&'v DeTable<'a>, Fault> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        other => Err((
            value.span(),
            format!(
                "'{0}' is a section: write [{0}] and its keys below, not {1}",
                key.get_ref(),
                other.type_str()
            ),
        )),
    }
}

fn count(key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<u64, Fault> {
    let fault = |found: &str| {
        (value.span(), format!("'{}' must be a whole number from 0 up, not {found}", key.get_ref()))
    };
    match value.get_ref() {
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| fault(number.as_str()))
        }
        other => Err(fault(other.type_str())),
    }
}

/// A text, or a whole number where that is the same thing (`log-every = 10`).
fn parsed<T: FromStr<Err: fmt::Display>>(key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<T, Fault> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(number) if key.get_ref() == "log-every" => number.as_str(),
        other => {
            return Err((
                value.span(),
                format!("'{}' must be a text in quotes, not {}", key.get_ref(), other.type_str()),
            ));
        }
    };
    text.parse().map_err(|error| (value.span(), format!("'{}': {error}", key.get_ref())))
}

fn unknown(key: &Key<'_>, place: &str, known: &[&str]) -> Fault {
    let found = key.get_ref();
    let closest = known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(found, word), word))
        .filter(|(distance, word)| *distance <= word.len().div_ceil(2))
        .min();
    let advice = match closest {
        Some((_, word)) => format!("did you mean '{word}'?"),
        None => format!("known are: {}", known.join(", ")),
    };
    (key.span(), format!("'{found}' is not known {place}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (usize, usize, String) {
        let error = parse(Path::new("syncaudit.toml"), text).unwrap_err();
        (error.line, error.column, error.text)
    }

    #[test]
    fn a_full_file_is_understood() {
        let text = "[steps]\npattern = 'train|eval'\nwarmup = 3\nlog-every = \"10+9\"\nlog-range = 'metrics'\n\
                    [budget]\nwaits-per-step = 1\n[budget.kinds]\nevent-sync = 2\n";
        let options = parse(Path::new("x"), text).unwrap();
        assert_eq!(options.steps.pattern.unwrap().to_string(), "train|eval");
        assert_eq!((options.steps.warmup, options.budget.total), (3, 1));
        assert_eq!(options.steps.log_every.unwrap().to_string(), "10+9");
        assert_eq!(options.budget.per_kind[&WaitKind::EventSync], 2);
        assert_eq!(parse(Path::new("x"), "").unwrap(), AuditOptions::default());
        assert_eq!(
            parse(Path::new("x"), "steps = {log-every = 5}").unwrap().steps.log_every.unwrap().to_string(),
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
        assert!(error("frobnicate = 1").2.contains("known are: steps, budget"));
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
        ] {
            let (found_line, found_column, message) = error(text);
            assert_eq!((found_line, found_column), (line, column), "{text}: {message}");
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
