//! What the gate can find: a closed list of codes, each with its meaning, and one finding as all formats show it.
//!
//! In: nothing. Out: words that people's scripts and suppressions rely on. A code, once published, keeps its meaning.

use std::path::PathBuf;

use crate::audit::{Frame, WaitKind};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Note,
    /// Should be looked at; fails nothing.
    Warn,
    /// Fails the check (or, for [`Code::Inconclusive`], leaves it without an answer).
    Error,
}

impl Severity {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $title:literal, $description:literal;)*) => {
        /// What was found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// All codes, in the order in which they are documented.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable name in kebab-case.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// A few words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// What it means and what to do, as full sentences.
            #[must_use]
            pub fn description(self) -> &'static str {
                match self { $(Self::$name => $description,)* }
            }
        }
    };
}

codes! {
    OverBudget = "over-budget", "more waits than the budget allows",
        "Ordinary steps wait at this place and are over the budget. Remove the wait, or allow it in syncaudit.toml with a reason.";
    LogStepOverBudget = "log-step-over-budget", "more waits on log steps than the budget allows",
        "Log steps have a budget of their own ([budget.log-steps]) and are over it with the waits of this place.";
    ExposedOverBudget = "exposed-over-budget", "waits let the device stand idle for longer than the budget allows",
        "The device stands idle behind the waits of an ordinary step for longer than exposed-ms-per-step in syncaudit.toml. \
         'syncaudit whatif TRACE' says which waits have to go.";
    NewWait = "new-wait", "a wait that the baseline does not have",
        "Ordinary steps wait at a place that did not wait when the baseline was made. Remove the wait, allow it in syncaudit.toml with a \
         reason, or accept it with 'syncaudit baseline TRACE --update --accept REASON'.";
    GrownWait = "grown-wait", "more waits in a step than the baseline has",
        "The baseline knows this place, but one ordinary step waits here more often than any did then.";
    AllowExpired = "allow-expired", "the entry that allowed this wait has expired",
        "An entry of the allow-list covers this wait, but its date is past. Remove the wait, or renew the entry with its owner.";
    AllowExceeded = "allow-exceeded", "more waits than the entry allows",
        "An entry of the allow-list covers this wait, but one ordinary step waits here more often than its max-per-step.";
    MovedWait = "moved-wait", "a known wait at another place",
        "The same operation waits somewhere else than the baseline says, and no longer there: it was moved, not added. \
         'syncaudit baseline TRACE --update' writes down the new place.";
    FixedWait = "fixed-wait", "a wait of the baseline is gone",
        "The run came by this place and did not wait there any more. 'syncaudit baseline TRACE --update' takes it out of the baseline, \
         so that it can't come back.";
    ShrunkWait = "shrunk-wait", "fewer waits in a step than the baseline has",
        "Steps wait here less often than when the baseline was made. 'syncaudit baseline TRACE --update' writes down the lower number.";
    BaselineNotReached = "baseline-not-reached", "this run never got to a place of the baseline",
        "The baseline has a wait at a place that this run, as far as the trace tells, never reached: it is neither confirmed nor fixed.";
    AllowGone = "allow-gone", "an entry of the allow-list covers nothing",
        "The run came by the place that the entry names and found no wait of its kind there: the entry can be taken out.";
    AllowNotReached = "allow-not-reached", "an entry of the allow-list was not put to the test",
        "The entry covers nothing in this run, and the trace does not tell that the run came by its place: it may still be needed.";
    FlickeringWait = "flickering-wait", "a wait that only some of the runs have",
        "With several runs, a wait counts as new only if it is there in all of them (--runs all): this one is not.";
    KnownWait = "known-wait", "a wait that the baseline has",
        "Accepted when the baseline was made, and no more frequent since.";
    AllowedWait = "allowed-wait", "a wait that an entry of the allow-list covers",
        "Allowed in syncaudit.toml, with the reason that stands there.";
    Inconclusive = "inconclusive", "the trace can't tell",
        "Something is missing that may hide waits, so that the check can't say 'pass'.";
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    pub severity: Severity,
    /// Index into the audit's sites; `None` for what is not in this run, or not about one place.
    pub site: Option<usize>,
    /// Of the site, or of the baseline's or allow-list's entry.
    pub fingerprint: Option<String>,
    pub kind: Option<WaitKind>,
    /// One full sentence, without the place.
    pub message: String,
    /// What to do; empty where there is nothing to do.
    pub help: String,
    /// Why it is accepted: the reason of the allow-list's or baseline's entry.
    pub justification: Option<String>,
    /// Who answers for the entry of the allow-list.
    pub owner: Option<String>,
    /// The frame to point at, where known.
    pub place: Option<Frame>,
    /// The line of the configuration or baseline that this is about.
    pub written: Option<Written>,
}

impl Finding {
    /// Whether a reader who knows the baseline and the allow-list wants to hear of it: what fails, what warns, and what has changed.
    #[must_use]
    pub fn is_news(&self) -> bool {
        match self.code {
            Code::KnownWait | Code::AllowedWait => false,
            // The verdict's reasons say it already.
            Code::Inconclusive => false,
            _ => true,
        }
    }

    /// Where it is, for one line of text: the frame, else the line of the file that it is about.
    #[must_use]
    pub fn place_text(&self) -> Option<String> {
        match (&self.place, &self.written) {
            (Some(frame), _) => {
                let inside =
                    if frame.function.is_empty() { String::new() } else { format!(" in {}", frame.function) };
                Some(match (frame.file.is_empty(), frame.line) {
                    (true, _) => frame.function.clone(),
                    (false, 0) => format!("{}{inside}", frame.file),
                    (false, line) => format!("{}:{line}{inside}", frame.file),
                })
            }
            (None, Some(written)) => Some(format!("{}:{}", written.path.display(), written.line)),
            (None, None) => None,
        }
    }
}

/// A line of a file that people write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// As named on the command line or in the configuration.
    pub path: PathBuf,
    /// Counted from 1.
    pub line: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_kebab_case_and_described_in_full_sentences() {
        let ids: BTreeSet<&str> = Code::ALL.iter().map(|code| code.id()).collect();
        assert_eq!(ids.len(), Code::ALL.len());
        let titles: BTreeSet<&str> = Code::ALL.iter().map(|code| code.title()).collect();
        assert_eq!(titles.len(), Code::ALL.len());
        for code in Code::ALL {
            let id = code.id();
            let kebab = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(id.chars().all(kebab) && !id.starts_with('-') && !id.ends_with('-'), "{id}");
            let text = code.description();
            assert!(text.ends_with('.') && text.starts_with(char::is_uppercase), "{id}: {text}");
            assert!(!text.contains("  "), "{id}: {text}");
        }
    }
}
