//! Collectives of several ranks: nobody goes on before the last one has come.
//!
//! In: a timeline with several ranks. Out: which pieces of work are the same collective, and how long it went on after the last rank
//! had come. Pieces are paired by name, order and end; what does not pair keeps the duration it had.

use super::habits::signed;
use super::timeline::{NONE, Timeline, index_u32};

/// The ends of one collective on two ranks are no further apart.
const SAME_END_NS: u64 = 200_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    /// Per piece of work: the collective it is part of.
    pub of_op: Vec<u32>,
    /// Per collective: when the last rank came.
    pub met_ns: Vec<u64>,
    /// Pieces of collective work that were paired with no other rank's.
    pub alone: u64,
    pub paired: u64,
}

impl Meetings {
    pub fn find(timeline: &Timeline<'_>) -> Self {
        let mut meetings = Self { of_op: vec![NONE; timeline.ops.len()], ..Self::default() };
        let mut per_rank: Vec<Vec<u32>> = vec![Vec::new(); timeline.trace.processes.len()];
        for (at, op) in timeline.ops.iter().enumerate() {
            if is_collective(timeline.name(op)) {
                let process = timeline.streams[op.stream as usize].process;
                per_rank[process as usize].push(index_u32(at));
            }
        }
        per_rank.retain(|list| !list.is_empty());
        for list in &mut per_rank {
            list.sort_by_key(|&at| timeline.ops[at as usize].end_ns);
        }
        let Some((first, others)) = per_rank.split_first() else { return meetings };
        let mut next = vec![0; others.len()];
        for &at in first {
            let op = &timeline.ops[at as usize];
            let mut group = vec![at];
            for (other, next) in others.iter().zip(&mut next) {
                while other
                    .get(*next)
                    .is_some_and(|&theirs| timeline.ops[theirs as usize].end_ns + SAME_END_NS < op.end_ns)
                {
                    *next += 1;
                }
                let same = |&theirs: &u32| {
                    let theirs = &timeline.ops[theirs as usize];
                    theirs.end_ns.abs_diff(op.end_ns) <= SAME_END_NS
                        && theirs.start_ns < op.end_ns
                        && op.start_ns < theirs.end_ns
                        && timeline.name(theirs) == timeline.name(op)
                };
                if let Some(theirs) = other.get(*next).copied().filter(same) {
                    group.push(theirs);
                    *next += 1;
                }
            }
            if group.len() == 1 {
                continue;
            }
            let met_ns = group.iter().map(|&at| timeline.ops[at as usize].start_ns).max().unwrap_or(0);
            for at in group {
                meetings.of_op[at as usize] = index_u32(meetings.met_ns.len());
                meetings.paired += 1;
            }
            meetings.met_ns.push(met_ns);
        }
        meetings.alone = per_rank.iter().map(|list| list.len() as u64).sum::<u64>() - meetings.paired;
        meetings
    }

    /// The collective that a piece of work is part of, and how long the piece went on after the last rank had come.
    pub fn of(&self, timeline: &Timeline<'_>, op: usize) -> Option<(u32, i64)> {
        let group = self.of_op.get(op).copied().filter(|&group| group != NONE)?;
        Some((group, signed(timeline.ops[op].end_ns, self.met_ns[group as usize])))
    }
}

/// NCCL and RCCL name their kernels so.
fn is_collective(name: &str) -> bool {
    let name = name.strip_prefix("void ").unwrap_or(name);
    name.starts_with("nccl") || name.starts_with("rccl")
}
