//! One answer: how long a step is without a set of sites.

use super::abstain::Abstention;
use super::prices::{Replay, is_removable};
use super::timeline::Timeline;

/// What removing a set of sites does, per unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// Fingerprints.
    pub removed: Vec<String>,
    /// Of those, the ones that can't simply be left out.
    pub not_simple: Vec<String>,
    pub step_ns: u64,
    pub gain_ns: i64,
    /// The gain, give or take what the replay misses.
    pub gain_range_ns: (i64, i64),
}

impl WhatIf {
    pub(super) fn new(replay: &Replay<'_, '_>, removed: &[usize], step_ns: i64) -> Self {
        let sites = &replay.timeline.audit.sites;
        let name = |site: usize| sites[site].fingerprint.clone();
        let gain_ns = replay.step_ns - step_ns;
        // A replay that misses a step by some part misses the difference of two by no less.
        let error_ns = replay.step_ns / 1000 * i64::try_from(replay.error_permille.max(1)).unwrap_or(20);
        let low = if gain_ns >= 0 { (gain_ns - error_ns).max(0) } else { gain_ns - error_ns };
        let high = (gain_ns + error_ns).min(replay.step_ns);
        Self {
            removed: removed.iter().map(|&site| name(site)).collect(),
            not_simple: removed
                .iter()
                .filter(|&&site| !is_removable(&sites[site]))
                .map(|&site| name(site))
                .collect(),
            step_ns: step_ns.max(0).unsigned_abs(),
            gain_ns,
            gain_range_ns: (low, high),
        }
    }

    /// The gain in thousandths of a step of that length: least, most likely, most.
    #[must_use]
    pub fn gain_permille(&self, step_ns: u64) -> (i64, i64, i64) {
        let step_ns = i64::try_from(step_ns.max(1)).unwrap_or(i64::MAX);
        let part = |ns: i64| ns.saturating_mul(1000) / step_ns;
        (part(self.gain_range_ns.0), part(self.gain_ns), part(self.gain_range_ns.1))
    }
}

/// Answers for each set.
pub(super) fn answer(timeline: &Timeline<'_>, sets: &[Vec<usize>]) -> Result<Vec<WhatIf>, Abstention> {
    let mut replay = Replay::checked(timeline)?;
    let repeated = timeline.repeated();
    if let Some(repeated) = &repeated {
        replay = Replay::of_repeated(repeated, replay.error_permille)?;
    }
    Ok(sets.iter().map(|set| replay.what_if(set)).collect())
}
