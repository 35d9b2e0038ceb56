//! Which idiom each site is: sums up what its waits have in common and asks [`crate::rules`].
//!
//! In: the trace, its waits and their sites. Out: the `rule` of every site, and whether it is in a framework's program. What differs between the waits of one site is unknown
//! to the rules, so that a rule never speaks for waits that it doesn't fit.

use super::sites::Site;
use super::waits::Wait;
use crate::model::{Call, MemoryKind, SpanKind, Trace};
use crate::rules::{self, Facts};

/// What the copies of a site have in common.
#[derive(Clone, Copy)]
struct Copies {
    least_bytes: u64,
    most_bytes: u64,
    from: Seen,
    to: Seen,
}

/// The memory on one side of all copies, as far as their records tell. A program that is killed leaves its last copies without records; they are
/// taken to be like the others of their place.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Nothing,
    Only(MemoryKind),
    Several,
}

impl Seen {
    fn of(kind: MemoryKind) -> Self {
        if kind == MemoryKind::Unknown { Self::Nothing } else { Self::Only(kind) }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (known, Self::Nothing) | (Self::Nothing, known) => known,
            (a, b) if a == b => a,
            _ => Self::Several,
        }
    }

    fn kind(self) -> MemoryKind {
        if let Self::Only(kind) = self { kind } else { MemoryKind::Unknown }
    }
}

/// Gives every site its rule.
pub(super) fn name(trace: &Trace, waits: &[Wait], sites: &mut [Site]) {
    let framework = works_with_framework(trace, sites);
    let mut copies: Vec<Option<Copies>> = vec![None; sites.len()];
    // A call that never returned did not say what it copied: the others of its site speak for it.
    for wait in waits.iter().filter(|wait| !(wait.unfinished && wait.bytes == 0)) {
        let Some(known) = copies.get_mut(wait.site as usize) else { continue };
        let call = first_call(trace, wait);
        let (from, to) =
            call.map_or((Seen::Nothing, Seen::Nothing), |call| (Seen::of(call.from), Seen::of(call.to)));
        *known = Some(match *known {
            None => Copies { least_bytes: wait.bytes, most_bytes: wait.bytes, from, to },
            Some(copies) => Copies {
                least_bytes: copies.least_bytes.min(wait.bytes),
                most_bytes: copies.most_bytes.max(wait.bytes),
                from: copies.from.and(from),
                to: copies.to.and(to),
            },
        });
    }
    for (site, copies) in sites.iter_mut().zip(copies) {
        site.framework = framework;
        let unknown = Copies { least_bytes: 0, most_bytes: 0, from: Seen::Nothing, to: Seen::Nothing };
        let Copies { least_bytes, most_bytes, from, to } = copies.unwrap_or(unknown);
        let (from, to) = (from.kind(), to.kind());
        site.rule = rules::of(&Facts { site, least_bytes, most_bytes, from, to }).id;
    }
}

/// Ranges that stand for operators (`emit_nvtx`) count where a wait is in one.
fn works_with_framework(trace: &Trace, sites: &[Site]) -> bool {
    let framework = |kind: SpanKind| matches!(kind, SpanKind::Op | SpanKind::PythonFrame);
    !trace.python.is_empty()
        || sites.iter().any(|site| !site.ops.is_empty())
        || trace
            .processes
            .iter()
            .flat_map(|process| &process.threads)
            .any(|thread| thread.spans.iter().any(|span| framework(span.kind)))
}

/// The copy, where there is one: it is the first call of its operation.
fn first_call<'a>(trace: &'a Trace, wait: &Wait) -> Option<&'a Call> {
    let process = trace.processes.get(wait.process as usize)?;
    process.threads.get(wait.thread as usize)?.calls.get(wait.calls.first()? as usize)
}
