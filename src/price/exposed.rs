//! When the device stood idle, and whose fault that was.
//!
//! In: a timeline, as recorded. Out: every idle moment of the device in exactly one row: a wait, host work, loading of data, the device's own
//! doing, or unknown; the rows add up to the whole idle time. A wait is charged with what followed because nothing was queued, and never with more than the
//! time that it held the host: what the host did slowly afterwards, it would have done slowly without the wait.

use rustc_hash::FxHashMap as HashMap;

use super::handover::Pause;
use super::timeline::{NONE, StepRow, Timeline, index_u32, merged};

/// Device idle time by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    pub total_ns: u64,
    /// Exposed by waits; the sum over all sites.
    pub waits_ns: u64,
    /// The host was late, and was not waiting.
    pub host_ns: u64,
    /// The host was late because it was loading data.
    pub data_ns: u64,
    /// The work was there in time: the device waited for other streams, or took a breath between two pieces of work.
    pub device_ns: u64,
    /// Work whose call is not in the trace.
    pub unknown_ns: u64,
}

/// An idle stretch of a device that a wait is charged with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// Index into the audit's waits.
    pub wait: u32,
    pub device: u32,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// Inside of what is counted: ordinary steps, else all steps, else the recording.
    pub idle: Idle,
    /// Per site of the audit, inside of what is counted.
    pub of_site: Vec<u64>,
    /// All of them, by start.
    pub exposed: Vec<Exposed>,
}

/// Who is to blame for an idle stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    Wait(u32),
    Host,
    Data,
    Device,
    Unknown,
}

/// Threads that hand work to each other, and what their waits have cost.
#[derive(Debug, Default)]
struct Group {
    /// (start, end, index into the audit's waits), by start.
    waits: Vec<(u64, u64, u32)>,
    next: usize,
    /// The wait that let the device run dry, and how much of the host's time is still to be charged.
    owner: Option<u32>,
    credit_ns: u64,
}

impl Charges {
    pub fn of(timeline: &Timeline<'_>) -> Self {
        let mut charges = Self { of_site: vec![0; timeline.audit.sites.len()], ..Self::default() };
        let group_of = groups(timeline);
        for process in 0..index_u32(timeline.trace.processes.len()) {
            let mut devices: Vec<u32> = timeline
                .streams
                .iter()
                .filter(|stream| stream.process == process)
                .map(|stream| stream.device)
                .collect();
            devices.sort_unstable();
            devices.dedup();
            for device in devices {
                charges.device(timeline, &group_of, process, device);
            }
        }
        charges.exposed.sort_by_key(|exposed| (exposed.start_ns, exposed.device, exposed.wait));
        charges
    }

    fn device(&mut self, timeline: &Timeline<'_>, group_of: &[usize], process: u32, device: u32) {
        let mut ops: Vec<(u64, u64, u32)> = timeline
            .ops
            .iter()
            .filter(|op| {
                timeline
                    .streams
                    .get(op.stream as usize)
                    .is_some_and(|s| (s.process, s.device) == (process, device))
            })
            .map(|op| (op.start_ns, op.end_ns, op.call))
            .collect();
        ops.sort_unstable();
        let Some(&(first_ns, ..)) = ops.first() else { return };
        let counted = counted(timeline, process);
        let (from_ns, until_ns) = match (counted.first(), counted.last()) {
            (Some(first), Some(last)) => (first.0.min(first_ns), last.1),
            _ => return,
        };
        let data = &timeline.data[process as usize];
        let mut groups: HashMap<usize, Group> = HashMap::default();
        for call in &timeline.calls {
            if call.wait != NONE && timeline.lanes[call.lane as usize].process == process {
                let group = groups.entry(group_of[call.lane as usize]).or_default();
                group.waits.push((call.start_ns, call.end_ns, call.wait));
            }
        }
        let step_group = group_of.get(timeline.step_lane[process as usize] as usize).copied().unwrap_or(0);
        let mut add = |blame: Blame, start_ns: u64, end_ns: u64| {
            if start_ns >= end_ns {
                return;
            }
            let inside = overlap(&counted, start_ns, end_ns);
            let idle = &mut self.idle;
            idle.total_ns += inside;
            match blame {
                Blame::Host => idle.host_ns += inside,
                Blame::Data => idle.data_ns += inside,
                Blame::Device => idle.device_ns += inside,
                Blame::Unknown => idle.unknown_ns += inside,
                Blame::Wait(wait) => {
                    idle.waits_ns += inside;
                    let site = timeline.audit.waits[wait as usize].site as usize;
                    self.of_site[site] += inside;
                    self.exposed.push(Exposed { wait, device, start_ns, end_ns });
                }
            }
        };
        let mut busy_until_ns = from_ns;
        // Behind the last work nothing was issued any more.
        let end = (until_ns, until_ns, NONE);
        for (at, &(start_ns, end_ns, call)) in ops.iter().chain([&end]).enumerate() {
            let gap = (busy_until_ns, start_ns);
            busy_until_ns = busy_until_ns.max(end_ns);
            if gap.0 >= gap.1 {
                continue;
            }
            let (issued_ns, lane_group) = match timeline.calls.get(call as usize) {
                Some(call) => (call.start_ns, group_of[call.lane as usize]),
                None if at == ops.len() => (until_ns, step_group),
                None => {
                    add(Blame::Unknown, gap.0, gap.1);
                    continue;
                }
            };
            if issued_ns <= gap.0 {
                add(Blame::Device, gap.0, gap.1);
                continue;
            }
            groups.entry(lane_group).or_default().charge(gap, issued_ns, data, &mut add);
        }
    }
}

impl Group {
    /// Charges a gap at whose end came the first work that was issued after it had begun.
    fn charge(
        &mut self,
        (gap_start_ns, gap_end_ns): (u64, u64),
        issued_ns: u64,
        data: &[(u64, u64)],
        add: &mut impl FnMut(Blame, u64, u64),
    ) {
        let mut at_ns = gap_start_ns;
        while let Some(&(start_ns, end_ns, wait)) =
            self.waits.get(self.next).filter(|(start_ns, ..)| *start_ns < issued_ns)
        {
            self.next += 1;
            if start_ns < gap_start_ns {
                // The device was busy when it began: from its end on, the host has lost so much of its lead.
                self.owner = Some(wait);
                self.credit_ns = end_ns.saturating_sub(start_ns);
            } else {
                self.rest((at_ns, start_ns.clamp(at_ns, gap_end_ns)), data, add);
                at_ns = at_ns.max(start_ns.min(gap_end_ns));
            }
            let end_ns = end_ns.clamp(at_ns, gap_end_ns);
            if start_ns < gap_start_ns {
                self.credit_ns = self.credit_ns.saturating_sub(end_ns - at_ns);
            }
            add(Blame::Wait(wait), at_ns, end_ns);
            at_ns = end_ns;
        }
        self.rest((at_ns, gap_end_ns), data, add);
    }

    /// Charges a stretch in which the host was not waiting: to the wait that had cost it its lead, as far as that goes.
    fn rest(
        &mut self,
        (start_ns, end_ns): (u64, u64),
        data: &[(u64, u64)],
        add: &mut impl FnMut(Blame, u64, u64),
    ) {
        let mut start_ns = start_ns;
        if let Some(owner) = self.owner {
            let charged_ns = self.credit_ns.min(end_ns.saturating_sub(start_ns));
            add(Blame::Wait(owner), start_ns, start_ns + charged_ns);
            self.credit_ns -= charged_ns;
            start_ns += charged_ns;
        }
        let first = data.partition_point(|range| range.1 <= start_ns);
        for &(from_ns, until_ns) in data[first..].iter().take_while(|range| range.0 < end_ns) {
            let (from_ns, until_ns) = (from_ns.max(start_ns), until_ns.min(end_ns));
            add(Blame::Host, start_ns, from_ns);
            add(Blame::Data, from_ns, until_ns);
            start_ns = until_ns;
        }
        add(Blame::Host, start_ns, end_ns);
    }
}

/// Per lane: the number of the group of threads that wait for each other.
fn groups(timeline: &Timeline<'_>) -> Vec<usize> {
    let mut group: Vec<usize> = (0..timeline.lanes.len()).collect();
    for (&call, pause) in &timeline.pauses {
        if let Pause::For { lane } = pause {
            let (a, b) = (group[timeline.calls[call as usize].lane as usize], group[*lane as usize]);
            let (low, high) = (a.min(b), a.max(b));
            group.iter_mut().filter(|group| **group == high).for_each(|group| *group = low);
        }
    }
    group
}

/// The stretches of time that count, in order and apart.
fn counted(timeline: &Timeline<'_>, process: u32) -> Vec<(u64, u64)> {
    let of_process = |step: &&StepRow| step.counted && (step.process == process || step.process == NONE);
    let mut list: Vec<(u64, u64)> =
        timeline.steps.iter().filter(of_process).map(|step| (step.start_ns, step.end_ns)).collect();
    list.sort_unstable();
    merged(list)
}

fn overlap(list: &[(u64, u64)], start_ns: u64, end_ns: u64) -> u64 {
    let first = list.partition_point(|range| range.1 <= start_ns);
    list[first..]
        .iter()
        .take_while(|range| range.0 < end_ns)
        .map(|range| range.1.min(end_ns) - range.0.max(start_ns))
        .sum()
}
