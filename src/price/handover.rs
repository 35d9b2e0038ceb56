//! Threads that hand work to each other: a backward pass on a thread of the framework's own, a thread that loads data.
//!
//! In: a timeline. Out: for calls after a pause of their thread, what the pause was. A pause is work of the thread, unless the thread
//! waited for another one; nothing in a trace says so, but two patterns do. Where neither fits, a pause is work.
//!
//! * While one thread pauses, another one that was idle before and is idle after does all of its calls: the first waited for it.
//! * A thread beside the one with the steps pauses outside of any operator or range: it waits until the step gets there.

use rustc_hash::FxHashMap as HashMap;

use super::timeline::{NONE, Timeline, index_u32};
use crate::model::{Span, SpanKind};

/// A shorter pause is a pause for breath.
const PAUSE_NS: u64 = 20_000;
/// Of a thread beside the steps.
const IDLE_NS: u64 = 100_000;

/// What a thread did between two of its calls, where it is not (only) work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// It ended when the lane got as far as it was then, and not before the thread had done so much work of its own since
    /// its last call.
    Until { lane: u32, since_ns: u64, own_work_ns: u64 },
    /// It went on when the last call of the other lane had ended.
    For { lane: u32 },
}

impl Pause {
    /// The same so much later.
    pub fn later(self, shift_ns: u64) -> Self {
        match self {
            Self::Until { lane, since_ns, own_work_ns } => {
                Self::Until { lane, since_ns: since_ns + shift_ns, own_work_ns }
            }
            Self::For { lane } => Self::For { lane },
        }
    }
}

/// Pauses by the call that ends them.
pub(super) fn find(timeline: &Timeline<'_>) -> HashMap<u32, Pause> {
    let mut pauses = HashMap::default();
    // (lane, from, until): when a lane did the work that the thread of the steps waited for.
    let mut turns: Vec<(u32, u64, u64)> = Vec::new();
    for (index, lane) in timeline.lanes.iter().enumerate() {
        let step_lane = timeline.step_lane[lane.process as usize];
        if step_lane as usize == index {
            hand_backs(timeline, index, &mut pauses, &mut turns);
        }
    }
    for (index, lane) in timeline.lanes.iter().enumerate() {
        let step_lane = timeline.step_lane[lane.process as usize];
        if step_lane != NONE && step_lane as usize != index {
            let own: Vec<(u64, u64)> =
                turns.iter().filter(|turn| turn.0 == index_u32(index)).map(|turn| (turn.1, turn.2)).collect();
            idle(timeline, index, step_lane, &own, &mut pauses);
        }
    }
    pauses
}

/// Where the thread of the steps waited for another one.
fn hand_backs(
    timeline: &Timeline<'_>,
    index: usize,
    pauses: &mut HashMap<u32, Pause>,
    turns: &mut Vec<(u32, u64, u64)>,
) {
    let lane = &timeline.lanes[index];
    for pair in lane.calls.windows(2) {
        let (before, after) = (&timeline.calls[pair[0] as usize], &timeline.calls[pair[1] as usize]);
        if after.start_ns.saturating_sub(before.end_ns) < PAUSE_NS || pair[1] - pair[0] <= 1 {
            continue;
        }
        // Calls of other lanes that began between the two: first, last of each lane. Few lanes are ever active at once.
        let mut others: Vec<(u32, u32, u32)> = Vec::new();
        for at in pair[0] + 1..pair[1] {
            let call = &timeline.calls[at as usize];
            if timeline.lanes[call.lane as usize].process != lane.process || call.lane as usize == index {
                continue;
            }
            match others.iter_mut().find(|(lane, ..)| *lane == call.lane) {
                Some((.., last)) => *last = at,
                None => others.push((call.lane, at, at)),
            }
        }
        let alternates = |&(other, first, last): &(u32, u32, u32)| {
            let calls = &timeline.lanes[other as usize].calls;
            let place = calls.partition_point(|&call| call < first);
            let was_idle =
                place == 0 || { timeline.calls[calls[place - 1] as usize].end_ns <= before.start_ns };
            let next = calls.get(calls.partition_point(|&call| call <= last));
            let stays_idle = next.is_none_or(|&next| timeline.calls[next as usize].start_ns >= after.end_ns);
            let (first, last) = (&timeline.calls[first as usize], &timeline.calls[last as usize]);
            was_idle && stays_idle && first.start_ns >= before.end_ns && last.end_ns <= after.start_ns
        };
        let latest = others
            .iter()
            .filter(|other| alternates(other))
            .max_by_key(|(.., last)| timeline.calls[*last as usize].end_ns);
        if let Some(&(other, ..)) = latest {
            pauses.insert(pair[1], Pause::For { lane: other });
            turns.push((other, before.end_ns, after.start_ns));
        }
    }
}

/// Where a thread beside the steps waited for them.
fn idle(
    timeline: &Timeline<'_>,
    index: usize,
    step_lane: u32,
    turns: &[(u64, u64)],
    pauses: &mut HashMap<u32, Pause>,
) {
    let lane = &timeline.lanes[index];
    let thread = &timeline.trace.processes[lane.process as usize].threads[lane.thread as usize];
    let mut spans = thread.spans.iter().filter(|span| span.kind != SpanKind::PythonFrame).peekable();
    let mut busy_until_ns = 0;
    let mut before_ns = timeline.from_ns;
    for &at in &lane.calls {
        let call = &timeline.calls[at as usize];
        let pause_ns = call.start_ns.saturating_sub(before_ns);
        let own_work_ns = covered(&mut spans, &mut busy_until_ns, before_ns, call.start_ns);
        // While the steps wait for this thread, it waits for nobody.
        let turn = turns[..turns.partition_point(|turn| turn.0 <= before_ns)].last();
        let in_turn = turn.is_some_and(|turn| call.start_ns <= turn.1);
        if !in_turn && pause_ns >= IDLE_NS && own_work_ns < pause_ns - pause_ns / 10 {
            pauses.insert(at, Pause::Until { lane: step_lane, since_ns: before_ns, own_work_ns });
        }
        before_ns = before_ns.max(call.end_ns);
    }
}

/// How much of the time between the two is inside of spans. Asked in the order of time.
fn covered<'a>(
    spans: &mut std::iter::Peekable<impl Iterator<Item = &'a Span>>,
    busy_until_ns: &mut u64,
    from_ns: u64,
    until_ns: u64,
) -> u64 {
    let mut covered = 0;
    let mut cursor = from_ns;
    loop {
        let end_ns = (*busy_until_ns).min(until_ns);
        if end_ns > cursor {
            covered += end_ns - cursor;
            cursor = end_ns;
        }
        let Some(span) = spans.next_if(|span| span.start_ns < until_ns) else { return covered };
        cursor = cursor.max(span.start_ns);
        *busy_until_ns = (*busy_until_ns).max(span.end_ns);
    }
}
