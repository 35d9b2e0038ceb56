//! What is wrong with a trace, as typed items: the verdict decides on the kind, people read the text.

/// Kind of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Events that the tracer, CUPTI or the importer lost; `count` says how many.
    LostRecords,
    /// The file ends in the middle of an event.
    Truncated,
    /// Part of the file fails its checks; what came before was read.
    Corrupt,
    /// The log was not closed: the process was killed or ended without its exit handlers. All events are there.
    NotSealed,
    /// The program did not end by itself, or not well: what it had not come to is not in the trace.
    EndedEarly,
    /// No CUPTI could be loaded, so no CUDA call could be seen.
    CuptiMissing,
    /// Another tool holds CUPTI's callbacks.
    CuptiHeld,
    /// CUPTI answered with an error.
    CuptiFailed,
    /// The tracer never reported from a process that should have loaded it.
    TracerNotLoaded,
    /// The tracer itself said that something is missing.
    Tracer,
    /// A process of the job left no (readable) trace.
    MissingRank,
    /// A file that belongs to no known trace format was skipped.
    ForeignFile,
    /// Calls, ranges or device work without an end that makes sense: what lies inside of them, or was waited for, nobody knows.
    NoDuration,
    /// Clocks could not be brought together; record times may be off.
    ClockUnreliable,
    /// Native frames could not be given names or lines.
    Symbols,
    /// Something the tracer or an importer thought worth saying.
    Note,
}

impl ProblemKind {
    /// Whether waits may have gone unseen because of it, so that "pass" can't be said.
    #[must_use]
    pub fn hides_waits(self) -> bool {
        match self {
            Self::LostRecords
            | Self::Truncated
            | Self::Corrupt
            | Self::CuptiMissing
            | Self::CuptiHeld
            | Self::CuptiFailed
            | Self::TracerNotLoaded
            | Self::Tracer
            | Self::MissingRank
            | Self::NoDuration => true,
            Self::NotSealed
            | Self::EndedEarly
            | Self::ForeignFile
            | Self::ClockUnreliable
            | Self::Symbols
            | Self::Note => false,
        }
    }

    /// Stable name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::LostRecords => "lost-records",
            Self::Truncated => "truncated",
            Self::Corrupt => "corrupt",
            Self::NotSealed => "not-sealed",
            Self::EndedEarly => "ended-early",
            Self::CuptiMissing => "cupti-missing",
            Self::CuptiHeld => "cupti-held",
            Self::CuptiFailed => "cupti-failed",
            Self::TracerNotLoaded => "tracer-not-loaded",
            Self::Tracer => "tracer",
            Self::MissingRank => "missing-rank",
            Self::ForeignFile => "foreign-file",
            Self::NoDuration => "no-duration",
            Self::ClockUnreliable => "clock-unreliable",
            Self::Symbols => "symbols",
            Self::Note => "note",
        }
    }
}

/// One thing that is wrong with a trace or was noticed about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    /// How many events, records or files; 1 where counting makes no sense.
    pub count: u64,
    /// A full sentence for people: what was found and, where there is something to do, what to do.
    pub text: String,
}

impl Problem {
    /// A problem that is not about a number of things.
    #[must_use]
    pub fn new(kind: ProblemKind, text: impl Into<String>) -> Self {
        Self { kind, count: 1, text: text.into() }
    }

    /// A problem about `count` things.
    #[must_use]
    pub fn counted(kind: ProblemKind, count: u64, text: impl Into<String>) -> Self {
        Self { kind, count, text: text.into() }
    }
}

/// `0, 3-5, 9`: ascending numbers with neighbours taken together.
pub(crate) fn runs(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let texts: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(u32::to_string).collect(),
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn neighbouring_numbers_are_taken_together() {
        assert_eq!(runs(&[0, 3, 4, 5, 9]), "0, 3-5, 9");
        assert_eq!(
            (runs(&[]), runs(&[7]), runs(&[u32::MAX - 1, u32::MAX])),
            (String::new(), "7".into(), "4294967294-4294967295".into())
        );
    }
}
