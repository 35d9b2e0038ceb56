//! Which idiom each site is: sums up what its waits have in common and asks [`crate::rules`].
//!
//! In: the trace, its waits and their sites. Out: the `rule` of every site. What differs between the waits of one site is unknown
//! to the rules, so that a rule never speaks for waits that it doesn't fit.

use super::sites::Site;
use super::waits::Wait;
use crate::model::{Call, MemoryKind, Trace};
use crate::rules::{self, Facts};

/// What the copies of a site have in common.
#[derive(Clone, Copy)]
struct Copies {
    least_bytes: u64,
    most_bytes: u64,
    from: MemoryKind,
    to: MemoryKind,
}

/// Gives every site its rule.
pub(super) fn name(trace: &Trace, waits: &[Wait], sites: &mut [Site]) {
    let mut copies: Vec<Option<Copies>> = vec![None; sites.len()];
    for wait in waits {
        let Some(known) = copies.get_mut(wait.site as usize) else { continue };
        let call = first_call(trace, wait);
        let (from, to) = call.map_or((MemoryKind::Unknown, MemoryKind::Unknown), |call| (call.from, call.to));
        let agreed = |a: MemoryKind, b: MemoryKind| if a == b { a } else { MemoryKind::Unknown };
        *known = Some(match *known {
            None => Copies { least_bytes: wait.bytes, most_bytes: wait.bytes, from, to },
            Some(copies) => Copies {
                least_bytes: copies.least_bytes.min(wait.bytes),
                most_bytes: copies.most_bytes.max(wait.bytes),
                from: agreed(copies.from, from),
                to: agreed(copies.to, to),
            },
        });
    }
    for (site, copies) in sites.iter_mut().zip(copies) {
        let Some(Copies { least_bytes, most_bytes, from, to }) = copies else { continue };
        site.rule = rules::of(&Facts { site, least_bytes, most_bytes, from, to }).id;
    }
}

/// The copy, where there is one: it is the first call of its operation.
fn first_call<'a>(trace: &'a Trace, wait: &Wait) -> Option<&'a Call> {
    let process = trace.processes.get(wait.process as usize)?;
    process.threads.get(wait.thread as usize)?.calls.get(wait.calls.first()? as usize)
}
