//! The budget: how many waits an ordinary step may have.
//!
//! In: what the configuration allows. Out: whether one step is over it. A kind with an allowance of its own is judged
//! by that alone; all other kinds together are judged by the total.

use std::collections::BTreeMap;

use super::WaitKind;
use super::steps::{Step, StepKind};
use super::waits::Wait;

/// Waits allowed per ordinary step; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// For all kinds that have no allowance of their own, together.
    pub total: u64,
    /// Kinds with an allowance of their own.
    pub per_kind: BTreeMap<WaitKind, u64>,
}

/// Waits of one step by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    by_kind: [u64; WaitKind::ALL.len()],
}

impl Count {
    pub(super) fn add(&mut self, kind: WaitKind) {
        self.by_kind[kind as usize] += 1;
    }

    pub(super) fn of(&self, kind: WaitKind) -> u64 {
        self.by_kind[kind as usize]
    }
}

/// The kinds by which one step is over the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exceeded(u16);

impl Exceeded {
    pub(super) fn has(self, kind: WaitKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    pub(super) fn any(self) -> bool {
        self.0 != 0
    }
}

const _: () = assert!(WaitKind::ALL.len() <= u16::BITS as usize);

/// By which kinds each step is over the budget. Warm-up and log steps never are; a step that had not ended is, as soon
/// as it has more waits than a whole step may have.
pub(super) fn judge(budget: &Budget, steps: &mut [Step], waits: &[Wait]) -> Vec<Exceeded> {
    let mut counts: Vec<Count> = vec![Count::default(); steps.len()];
    for wait in waits {
        if let Some(count) = wait.step.and_then(|step| counts.get_mut(step as usize)) {
            count.add(wait.kind);
        }
    }
    steps
        .iter_mut()
        .zip(counts)
        .map(|(step, count)| {
            let judged = matches!(step.kind, StepKind::Ordinary | StepKind::Unfinished);
            let kinds = if judged { budget.exceeded_by(&count) } else { Vec::new() };
            let exceeded = Exceeded(kinds.iter().fold(0, |bits, &kind| bits | 1 << kind as u16));
            step.over_budget = exceeded.any();
            exceeded
        })
        .collect()
}

impl Budget {
    /// The kinds by which a step with these waits is over the budget; empty when it is within.
    pub(super) fn exceeded_by(&self, count: &Count) -> Vec<WaitKind> {
        let shared = || WaitKind::ALL.into_iter().filter(|kind| !self.per_kind.contains_key(kind));
        let shared_over = shared().map(|kind| count.of(kind)).sum::<u64>() > self.total;
        WaitKind::ALL
            .into_iter()
            .filter(|kind| match self.per_kind.get(kind) {
                Some(&allowed) => count.of(*kind) > allowed,
                None => shared_over && count.of(*kind) > 0,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_with_its_own_allowance_is_judged_by_that_alone() {
        let budget = Budget { total: 1, per_kind: BTreeMap::from([(WaitKind::ModuleLoad, 2)]) };
        let mut count = Count::default();
        count.add(WaitKind::ModuleLoad);
        count.add(WaitKind::ModuleLoad);
        count.add(WaitKind::StreamSync);
        assert_eq!(budget.exceeded_by(&count), []);
        count.add(WaitKind::DeviceToHostRead);
        assert_eq!(budget.exceeded_by(&count), [WaitKind::DeviceToHostRead, WaitKind::StreamSync]);
        count.add(WaitKind::ModuleLoad);
        assert_eq!(budget.exceeded_by(&count).len(), 3);
        assert_eq!(Budget::default().exceeded_by(&Count::default()), []);
    }
}
