//! The ranks of a job side by side: which of them waits longest, and at which places they disagree.
//!
//! In: an audit's steps, waits and sites with the processes they are of. Out: one [`RankRow`] for each rank, and for each process that has
//! steps and no rank; per site the [`Share`] of each. Ranks of one job run the same program: a place at which some wait more
//! often than others is either meant (rank 0 logs) or worth a look. Nothing here judges.

use std::cmp::Ordering;

use super::sites::Site;
use super::steps::{Step, StepKind};
use super::waits::Wait;
use super::{Audit, ProcessRow};

/// One rank, or one process of a job that tells no ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankRow {
    pub rank: Option<u32>,
    /// Of the first of its processes.
    pub pid: u64,
    /// Indices into [`Audit::processes`].
    pub processes: Vec<u32>,
    pub steps: usize,
    pub ordinary_steps: usize,
    pub waits: u64,
    pub ordinary_waits: u64,
    /// Host time inside of its waits; `None` where times mean nothing.
    pub blocked_ns: Option<u64>,
    /// The same, of ordinary steps.
    pub ordinary_blocked_ns: Option<u64>,
}

impl RankRow {
    /// `rank 3`, or `process 4711`.
    #[must_use]
    pub fn name(&self) -> String {
        ProcessRow::name_of(self.rank, self.pid)
    }

    /// Average over its ordinary steps.
    #[must_use]
    pub fn waits_per_step(&self) -> Option<f64> {
        self.per_step(self.ordinary_waits)
    }

    /// Average over its ordinary steps.
    #[must_use]
    pub fn blocked_ns_per_step(&self) -> Option<f64> {
        self.per_step(self.ordinary_blocked_ns?)
    }

    fn per_step(&self, sum: u64) -> Option<f64> {
        (self.ordinary_steps > 0).then(|| sum as f64 / self.ordinary_steps as f64)
    }
}

/// What one process has of a site's waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Index into [`Audit::processes`], or of [`Audit::shares`] into [`Audit::ranks`].
    pub of: u32,
    pub waits: u64,
    pub ordinary_waits: u64,
}

/// The rows, by rank, then in order of the processes.
pub(super) fn rows(
    processes: &[ProcessRow],
    steps: &[Step],
    waits: &[Wait],
    times_meaningful: bool,
) -> Vec<RankRow> {
    let mut rows: Vec<RankRow> = Vec::new();
    let mut row_of: Vec<Option<usize>> = Vec::with_capacity(processes.len());
    for (index, process) in (0u32..).zip(processes) {
        if process.rank.is_none() && process.steps == 0 {
            row_of.push(None);
            continue;
        }
        let same_rank = |row: &RankRow| row.rank.is_some() && row.rank == process.rank;
        let at = rows.iter().position(same_rank).unwrap_or_else(|| {
            let blocked_ns = times_meaningful.then_some(0);
            rows.push(RankRow {
                rank: process.rank,
                pid: process.pid,
                blocked_ns,
                ordinary_blocked_ns: blocked_ns,
                ..RankRow::default()
            });
            rows.len() - 1
        });
        rows[at].processes.push(index);
        rows[at].steps += process.steps;
        row_of.push(Some(at));
    }
    let of = |process: u32| row_of.get(process as usize).copied().flatten();
    let add = |sum: &mut Option<u64>, blocked_ns: Option<u64>| {
        if let (Some(sum), Some(blocked_ns)) = (sum, blocked_ns) {
            *sum = sum.saturating_add(blocked_ns);
        }
    };
    for step in steps.iter().filter(|step| step.kind == StepKind::Ordinary) {
        let Some(row) = of(step.process).map(|at| &mut rows[at]) else { continue };
        row.ordinary_steps += 1;
        row.ordinary_waits += step.waits;
        add(&mut row.ordinary_blocked_ns, step.blocked_ns);
    }
    for wait in waits {
        let Some(row) = of(wait.process).map(|at| &mut rows[at]) else { continue };
        row.waits += 1;
        add(&mut row.blocked_ns, wait.blocked_ns);
    }
    rows.sort_by_key(|row| (row.rank.is_none(), row.rank));
    rows
}

impl Audit {
    /// Whether ranks are compared by their ordinary steps: some have any.
    #[must_use]
    pub fn ranks_by_step(&self) -> bool {
        self.ranks.iter().any(|row| row.ordinary_steps > 0)
    }

    /// The ranks that do the same work, with their indices: those with ordinary steps, where some have any. A rank without, such as one
    /// that makes data for the others, has nothing to compare.
    pub fn compared_ranks(&self) -> impl DoubleEndedIterator<Item = (usize, &RankRow)> + Clone {
        let by_step = self.ranks_by_step();
        self.ranks.iter().enumerate().filter(move |(_, row)| !by_step || row.ordinary_steps > 0)
    }

    /// What each rank has of a site's waits, in the order of [`Audit::ranks`].
    #[must_use]
    pub fn shares(&self, site: &Site) -> Vec<Share> {
        let of_process = |process: u32| {
            let at = site.per_process.binary_search_by_key(&process, |share| share.of).ok()?;
            Some(site.per_process[at])
        };
        (0..)
            .zip(&self.ranks)
            .map(|(of, row)| {
                let mut sum = Share { of, ..Share::default() };
                for share in row.processes.iter().filter_map(|&process| of_process(process)) {
                    sum.waits += share.waits;
                    sum.ordinary_waits += share.ordinary_waits;
                }
                sum
            })
            .collect()
    }

    /// Whether ranks wait at a site unequally often: per ordinary step, else in all.
    #[must_use]
    pub fn ranks_disagree(&self, site: &Site) -> bool {
        let by_step = self.ranks_by_step();
        let shares = self.shares(site);
        let rate = |(at, row): (usize, &RankRow)| match by_step {
            true => (shares[at].ordinary_waits, row.ordinary_steps as u64),
            false => (shares[at].waits, 1),
        };
        let rates: Vec<(u64, u64)> = self.compared_ranks().map(rate).collect();
        // As fractions, because averages that are equal may not be so as floating-point numbers.
        let differ = |a: (u64, u64), b: (u64, u64)| {
            u128::from(a.0) * u128::from(b.1) != u128::from(b.0) * u128::from(a.1)
        };
        !site.by_recorder && rates.windows(2).any(|pair| differ(pair[0], pair[1]))
    }

    /// The rank that waits longest, and the one that waits least: by host time in waits where it is known, else by number, per ordinary
    /// step where there are any. `None` where all are the same, or there is only one.
    #[must_use]
    pub fn longest_and_least(&self) -> Option<(&RankRow, &RankRow)> {
        let by_step = self.ranks_by_step();
        let measure = |row: &RankRow| match (by_step, self.times_meaningful) {
            (true, true) => row.blocked_ns_per_step(),
            (true, false) => row.waits_per_step(),
            (false, true) => row.blocked_ns.map(|ns| ns as f64),
            (false, false) => Some(row.waits as f64),
        };
        let by_measure =
            |a: &&RankRow, b: &&RankRow| measure(a).partial_cmp(&measure(b)).unwrap_or(Ordering::Equal);
        let compared = self.compared_ranks().map(|(_, row)| row);
        let longest = compared.clone().rev().max_by(by_measure)?;
        let least = compared.min_by(by_measure)?;
        (measure(longest) > measure(least)).then_some((longest, least))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AuditOptions, audit};
    use super::*;
    use crate::model::{CallData, TraceBuilder};

    /// A job with a rank for each entry: the waits of each ordinary step at `a`, and at `b`, and how long each takes.
    fn job(ranks: &[(u64, u64, u64)], emulated: bool) -> Audit {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = emulated;
        for (rank, &(at_a, at_b, each_ns)) in (0u32..).zip(ranks) {
            let mut process = builder.process(100 + u64::from(rank));
            process.data().rank = Some(rank);
            let mut thread = process.thread(1);
            for step in 0..5u64 {
                let mut now = step * 1_000_000;
                thread.push(now, "step", None);
                for (place, count) in [("a", at_a), ("b", at_b)] {
                    for _ in 0..count {
                        thread.push(now + 1, place, None);
                        thread.call("cudaDeviceSynchronize", now + 2, now + 2 + each_ns, CallData::default());
                        now += each_ns + 10;
                        thread.pop(now);
                    }
                }
                thread.pop(step * 1_000_000 + 900_000);
            }
        }
        let audit = audit(&builder.finish(), &AuditOptions::default());
        audit.reconcile().unwrap();
        audit
    }

    fn names(audit: &Audit) -> Option<(String, String)> {
        audit.longest_and_least().map(|(longest, least)| (longest.name(), least.name()))
    }

    #[test]
    fn each_rank_has_a_row_of_its_ordinary_steps() {
        let audit = job(&[(1, 0, 1_000), (1, 2, 1_000)], false);
        let rows: Vec<_> = audit
            .ranks
            .iter()
            .map(|row| (row.rank, row.steps, row.ordinary_steps, row.ordinary_waits))
            .collect();
        assert_eq!(rows, [(Some(0), 5, 3, 3), (Some(1), 5, 3, 9)]);
        assert_eq!(audit.ranks[1].waits_per_step(), Some(3.0));
        assert_eq!(audit.ranks[1].blocked_ns_per_step(), Some(3_000.0));
    }

    #[test]
    fn ranks_disagree_only_at_places_that_some_reach_more_often() {
        let audit = job(&[(1, 1, 1_000), (1, 0, 1_000), (1, 2, 1_000)], false);
        let disagreed: Vec<(&str, bool)> =
            audit.sites.iter().map(|site| (site.range[1].as_str(), audit.ranks_disagree(site))).collect();
        assert!(disagreed.contains(&("a", false)) && disagreed.contains(&("b", true)), "{disagreed:?}");
        let b = audit.sites.iter().find(|site| site.range[1] == "b").unwrap();
        assert_eq!(audit.shares(b).iter().map(|share| share.ordinary_waits).collect::<Vec<_>>(), [3, 0, 6]);
    }

    #[test]
    fn a_rank_without_steps_is_not_compared_with_those_that_have_some() {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = true;
        for rank in 0..3u32 {
            let mut process = builder.process(100 + u64::from(rank));
            process.data().rank = Some(rank);
            let mut thread = process.thread(1);
            // The last one makes data for the others.
            for step in (0..5u64).filter(|_| rank < 2) {
                thread.push(step * 100, "step", None);
                thread.call("cudaDeviceSynchronize", step * 100 + 1, step * 100 + 2, CallData::default());
                thread.pop(step * 100 + 10);
            }
        }
        let audit = audit(&builder.finish(), &AuditOptions::default());
        assert_eq!(audit.ranks.len(), 3);
        assert_eq!(audit.compared_ranks().map(|(at, _)| at).collect::<Vec<_>>(), [0, 1]);
        assert!(!audit.ranks_disagree(&audit.sites[0]));
        assert_eq!(audit.longest_and_least(), None);
    }

    #[test]
    fn the_rank_that_waits_longest_is_told_by_time_and_without_times_by_number() {
        let ranks = [(3, 0, 100), (1, 0, 900), (2, 0, 100)];
        assert_eq!(names(&job(&ranks, false)), Some(("rank 1".into(), "rank 2".into())));
        assert_eq!(names(&job(&ranks, true)), Some(("rank 0".into(), "rank 1".into())));
        assert_eq!(job(&ranks, true).ranks[0].blocked_ns_per_step(), None);
        assert_eq!(names(&job(&[(1, 0, 100), (1, 0, 100)], false)), None);
        assert_eq!(names(&job(&[(1, 0, 100)], false)), None);
    }

    #[test]
    fn a_helper_without_rank_and_steps_has_no_row_and_processes_without_ranks_have_one_each() {
        let mut builder = TraceBuilder::default();
        for pid in [7, 8] {
            let mut process = builder.process(pid);
            let mut thread = process.thread(1);
            thread.push(0, "step", None);
            thread.pop(10);
        }
        builder.process(9).thread(1).call("cudaDeviceSynchronize", 1, 2, CallData::default());
        let audit = audit(&builder.finish(), &AuditOptions::default());
        let names: Vec<String> = audit.ranks.iter().map(RankRow::name).collect();
        assert_eq!(names, ["process 7", "process 8"]);
    }
}
