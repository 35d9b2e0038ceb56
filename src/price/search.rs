//! Which set of waits is worth removing.
//!
//! In: something that answers how long a step is without a set of sites. Out: per size the best set found. Sets grow by one site at a time, each
//! time by the one that makes the step shortest; while no single one makes it shorter (the waits stand one behind the other), by the one that
//! holds the host longest. Then the largest is taken apart again: what was taken on the way and is of no use falls out first.

/// Answers how long a step is without some sites, and how long each site holds the host then.
pub(super) trait Oracle {
    fn step_ns(&mut self, removed: &[usize]) -> i64;
    /// By site.
    fn blocked_ns(&mut self, removed: &[usize]) -> Vec<i64>;
}

/// A thousandth of a step is no gain.
const NO_GAIN: i64 = 1000;

/// The best sets of one to `most` of the sites, as found, with how long a step is without them.
pub(super) fn best(oracle: &mut dyn Oracle, sites: &[usize], most: usize) -> Vec<(Vec<usize>, i64)> {
    let mut found = grown(oracle, sites, most);
    let Some((mut taken, _)) = found.last().cloned() else { return found };
    while taken.len() > 1 {
        let without = |at: usize| {
            let mut rest = taken.clone();
            rest.remove(at);
            rest
        };
        let least = (0..taken.len()).map(without).map(|rest| (oracle.step_ns(&rest), rest)).min();
        let Some((step_ns, rest)) = least else { break };
        taken = rest;
        let known = &mut found[taken.len() - 1];
        if step_ns < known.1 {
            *known = (taken.clone(), step_ns);
        }
    }
    found
}

fn grown(oracle: &mut dyn Oracle, sites: &[usize], most: usize) -> Vec<(Vec<usize>, i64)> {
    let mut found: Vec<(Vec<usize>, i64)> = Vec::new();
    let mut taken: Vec<usize> = Vec::new();
    let mut step_ns = oracle.step_ns(&taken);
    while taken.len() < most.min(sites.len()) {
        let mut best: Option<(usize, i64)> = None;
        for &site in sites {
            if taken.contains(&site) {
                continue;
            }
            taken.push(site);
            let without_ns = oracle.step_ns(&taken);
            taken.pop();
            if best.is_none_or(|(_, best_ns)| without_ns < best_ns) {
                best = Some((site, without_ns));
            }
        }
        let Some((mut site, mut without_ns)) = best else { break };
        if step_ns - without_ns <= step_ns / NO_GAIN {
            let blocked = oracle.blocked_ns(&taken);
            let rest = sites.iter().copied().filter(|site| !taken.contains(site));
            // The first of equals: sites are in the report's order.
            let payer = rest.max_by_key(|&site| (blocked[site], std::cmp::Reverse(site)));
            site = payer.unwrap_or(site);
            taken.push(site);
            without_ns = oracle.step_ns(&taken);
        } else {
            taken.push(site);
        }
        step_ns = without_ns;
        found.push((taken.clone(), step_ns));
    }
    found
}
