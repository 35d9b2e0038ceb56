//! How far the host is ahead of the device from one step to the next.
//!
//! In: a timeline. Out: per pair of steps the *launch lead*: when the device finished the one, minus when the host issued the first work of
//! the other. Positive: the device had not finished when its next work was there.

use super::habits::{quantile, signed};
use super::timeline::Timeline;
use crate::model::OPEN;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunAhead {
    /// (index of the step in the audit, lead before it), for steps with work behind a step with work.
    pub leads: Vec<(u32, i64)>,
}

impl RunAhead {
    pub(super) fn of(timeline: &Timeline<'_>) -> Self {
        let steps = &timeline.audit.steps;
        // Per step: the first issue and the last end of its work.
        let mut spans: Vec<Option<(u64, u64)>> = vec![None; steps.len()];
        for op in &timeline.ops {
            let (Some(call), Some(row)) =
                (timeline.calls.get(op.call as usize), timeline.streams.get(op.stream as usize))
            else {
                continue;
            };
            // Steps are in the order of process and time.
            let until =
                steps.partition_point(|step| (step.process, step.start_ns) <= (row.process, call.start_ns));
            let Some(at) = until.checked_sub(1) else { continue };
            let step = &steps[at];
            if step.process != row.process || (step.end_ns != OPEN && step.end_ns < call.start_ns) {
                continue;
            }
            let span = spans[at].get_or_insert((call.start_ns, op.end_ns));
            *span = (span.0.min(call.start_ns), span.1.max(op.end_ns));
        }
        let mut leads = Vec::new();
        for at in 1..steps.len() {
            if let (Some((_, done_ns)), Some((issued_ns, _)), true) =
                (spans[at - 1], spans[at], steps[at - 1].process == steps[at].process)
            {
                leads.push((super::timeline::index_u32(at), signed(done_ns, issued_ns)));
            }
        }
        Self { leads }
    }

    /// Pairs of steps with a lead.
    #[must_use]
    pub fn ahead(&self) -> usize {
        self.leads.iter().filter(|(_, lead_ns)| *lead_ns > 0).count()
    }

    /// Share of steps that the host reached before the device had finished the one before, in thousandths; `None` with fewer
    /// than two steps.
    #[must_use]
    pub fn permille(&self) -> Option<u64> {
        (!self.leads.is_empty()).then(|| (self.ahead() * 1000 / self.leads.len()) as u64)
    }

    /// The median lead.
    #[must_use]
    pub fn median_ns(&self) -> Option<i64> {
        (!self.leads.is_empty()).then(|| quantile(self.leads.iter().map(|(_, lead)| *lead).collect(), 1, 2))
    }
}
