//! The budget: how many waits an ordinary step may have.
//!
//! In: what the configuration allows. Out: whether one step is over it. A kind with an allowance of its own is judged
//! by that alone; all other kinds together are judged by the total.

use std::collections::BTreeMap;

use super::WaitKind;

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
