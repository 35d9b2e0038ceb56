//! What a user may set about an audit: step rules, budget, where the sources are.
//!
//! In: the command line and `syncaudit.toml` ([`crate::config`]). Out: [`AuditOptions`] with all values valid.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Budget, Level, WaitKind};

/// Options of an audit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditOptions {
    pub steps: StepRules,
    /// For ordinary steps.
    pub budget: Budget,
    /// For log steps; `None`: they may wait as they like.
    pub log_budget: Option<Budget>,
    /// Kinds that matter less than usual.
    pub severity: BTreeMap<WaitKind, Level>,
    /// Directories that source paths are shown relative to, the first that fits; paths outside of them are shortened to their
    /// crate or file. Empty: the current directory.
    pub roots: Vec<PathBuf>,
    /// Ranks without a (readable) trace are said, but leave the verdict to the others.
    pub allow_missing_ranks: bool,
}

impl AuditOptions {
    /// How much waits of a kind matter.
    #[must_use]
    pub fn level(&self, kind: WaitKind) -> Level {
        self.severity.get(&kind).copied().unwrap_or_default()
    }
}

/// Which ranges are steps, and of what kind.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRules {
    /// Range names that are steps. `None`: the usual ones (`step`, `step N`, `ProfilerStep#N`, `train_step`,
    /// `iteration N`).
    pub pattern: Option<Pattern>,
    /// How many steps at the start of each process are warm-up.
    pub warmup: usize,
    /// Which steps are log steps by their number. `None`: those with a log range in them.
    pub log_every: Option<LogEvery>,
    /// Ranges inside of a step in which reading metrics is allowed. `None`: `log`.
    pub log_range: Option<Pattern>,
}

impl Default for StepRules {
    fn default() -> Self {
        Self { pattern: None, warmup: 2, log_every: None, log_range: None }
    }
}

/// `N` or `N+OFFSET`: step numbers of which `number % N == OFFSET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEvery {
    every: u64,
    offset: u64,
}

impl LogEvery {
    /// Every `every`-th step, counted from `offset`.
    ///
    /// # Errors
    /// If `every` is 0.
    pub fn new(every: u64, offset: u64) -> Result<Self, PatternError> {
        if every == 0 {
            return Err(PatternError("every 0 steps makes no sense; give 1 or more".to_owned()));
        }
        Ok(Self { every, offset: offset % every })
    }

    /// Whether the step of that number is a log step.
    #[must_use]
    pub fn matches(self, number: i64) -> bool {
        let every = i128::from(self.every);
        i128::from(number).rem_euclid(every) == i128::from(self.offset)
    }
}

impl FromStr for LogEvery {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (every, offset) = text.split_once('+').unwrap_or((text, "0"));
        let number = |part: &str| {
            part.trim().parse::<u64>().map_err(|_| {
                PatternError(format!(
                    "'{text}' is not N or N+OFFSET with whole numbers (for example 10 or 10+9)"
                ))
            })
        };
        Self::new(number(every)?, number(offset)?)
    }
}

impl fmt::Display for LogEvery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset == 0 {
            write!(f, "{}", self.every)
        } else {
            write!(f, "{}+{}", self.every, self.offset)
        }
    }
}

/// A pattern for range names. `|` separates alternatives, `*` stands for any text. A number at the end of a range's
/// name and a call site (` @ file:line`) need not be written: `step` matches `step`, `step 12` and `step @ a.rs:7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
}

/// A pattern or number that can't be used; the text says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(pub(crate) String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.split('|').any(|part| part.trim().is_empty()) {
            return Err(PatternError(format!(
                "'{text}' is no pattern: give the name of a range; '*' stands for any text, '|' separates \
                 alternatives, a number at the end of the range's name need not be written (for example \
                 'train_step' or 'epoch * batch|step')"
            )));
        }
        Ok(Self { text: text.to_owned() })
    }
}

impl Pattern {
    /// The pattern for steps when the user gives none.
    #[must_use]
    pub fn default_steps() -> Self {
        Self { text: "step|ProfilerStep|train_step|iteration".to_owned() }
    }

    /// The pattern for log ranges when the user gives none.
    #[must_use]
    pub fn default_log() -> Self {
        Self { text: "log".to_owned() }
    }

    /// Whether exactly that text is meant, with nothing left out of it but what `*` stands for: for names of functions and operators, whose numbers
    /// are part of them.
    #[must_use]
    pub fn matches_whole(&self, name: &str) -> bool {
        self.text.split('|').map(str::trim).any(|part| glob(part, name))
    }

    /// The one name that it matches, if it has neither `*` nor `|`.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        (!self.text.contains(['*', '|'])).then(|| self.text.trim())
    }

    /// Whether a range of that name is meant.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (written, stem) = (without_call_site(name), stem(name));
        self.text.split('|').map(str::trim).any(|part| glob(part, written) || glob(part, stem))
    }
}

/// `load @ src/data.rs:12` -> `load`.
pub(crate) fn without_call_site(name: &str) -> &str {
    name.split_once(" @ ").map_or(name, |(head, _)| head).trim()
}

/// The name without call site and without a number at its end: `ProfilerStep#12` -> `ProfilerStep`, `step 3` -> `step`.
/// A name that is nothing but a number stays.
pub(crate) fn stem(name: &str) -> &str {
    let name = without_call_site(name);
    let body = name.trim_end_matches([')', ']']);
    let head = body.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = head.trim_end_matches([' ', '#', ':', '_', '-', '/', '=', '[', '(', '.']);
    if head.len() == body.len() || stem.is_empty() { name } else { stem }
}

/// The number at the end of a name, if there is one.
pub(crate) fn trailing_number(name: &str) -> Option<i64> {
    let body = without_call_site(name).trim_end_matches([')', ']']);
    let head = body.trim_end_matches(|c: char| c.is_ascii_digit());
    body[head.len()..].parse().ok()
}

/// `*` matches any text, everything else itself.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_step_names_match_and_their_look_alikes_do_not() {
        let steps = Pattern::default_steps();
        for name in [
            "step",
            "step 12",
            "ProfilerStep#3",
            "train_step",
            "iteration 7",
            "step @ src/train.rs:10",
            "step[4]",
        ] {
            assert!(steps.matches(name), "{name}");
        }
        for name in ["Optimizer.step#Adam.step", "stepping", "sub step", "optimizer_step", "", "12"] {
            assert!(!steps.matches(name), "{name}");
        }
    }

    #[test]
    fn stars_stand_for_any_text_and_bars_for_alternatives() {
        let pattern: Pattern = "epoch * batch *|train".parse().unwrap();
        for (name, expected) in
            [("epoch 1 batch 2", true), ("train 9", true), ("epoch 1", false), ("retrain", false)]
        {
            assert_eq!(pattern.matches(name), expected, "{name}");
        }
        assert!("a||b".parse::<Pattern>().is_err());
        assert!("".parse::<Pattern>().is_err());
    }

    #[test]
    fn numbers_and_call_sites_are_not_part_of_the_stem() {
        for (name, expected, number) in [
            ("step 3", "step", Some(3)),
            ("ProfilerStep#12", "ProfilerStep", Some(12)),
            ("layer.7", "layer", Some(7)),
            ("metrics @ src/train.rs:88", "metrics", None),
            ("batch[5]", "batch", Some(5)),
            ("99999999999999999999", "99999999999999999999", None),
            ("42", "42", Some(42)),
            ("f(x)", "f(x)", None),
        ] {
            assert_eq!((stem(name), trailing_number(name)), (expected, number), "{name}");
        }
    }

    #[test]
    fn log_every_takes_an_offset_and_refuses_zero() {
        let every: LogEvery = "10+9".parse().unwrap();
        assert!(every.matches(9) && every.matches(19) && every.matches(-1) && !every.matches(10));
        assert_eq!(every.to_string(), "10+9");
        for text in ["0", "x", "3+", "-1", ""] {
            assert!(text.parse::<LogEvery>().is_err(), "{text}");
        }
    }
}
