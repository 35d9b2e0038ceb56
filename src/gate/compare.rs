//! Which waits are new, grown, moved, gone: two lists of places held against each other.
//!
//! In: what was accepted, or an older run, and the current run. Out: one [`Change`] per current place, and what is gone. Places of the same functions differ
//! only in their lines, which neither side has; they are matched in their order, so that one more wait in a function is exactly one new
//! wait. A place counts as moved only where the words leave no doubt: a new wait must not hide behind a fixed one.

use rustc_hash::FxHashMap as HashMap;

use super::place::{Entry, Place};
use crate::Audit;

/// What became of a current place; with an index into the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Known(usize),
    /// Fewer in a step.
    Shrunk(usize),
    /// More in a step, there or where it was moved to.
    Grown(usize),
    /// The same operation elsewhere, not more often.
    Moved(usize),
    New,
}

impl Change {
    /// The old place it stands for.
    #[must_use]
    pub fn old(self) -> Option<usize> {
        match self {
            Self::Known(old) | Self::Shrunk(old) | Self::Grown(old) | Self::Moved(old) => Some(old),
            Self::New => None,
        }
    }
}

/// An old place that is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Index into the old places.
    pub old: usize,
    /// The current run came by, as far as its trace tells. Otherwise it says nothing about this wait.
    pub reached: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Per current place.
    pub changes: Vec<Change>,
    /// In the order of the old places.
    pub gone: Vec<Gone>,
}

/// Compares; `audit` is of the current run and tells where it got to.
#[must_use]
pub fn compare(old: &[Entry], new: &[Entry], audit: &Audit) -> Comparison {
    let mut changes = vec![Change::New; new.len()];
    let mut gone: Vec<usize> = Vec::new();
    let mut old_groups = groups(old);
    for (place, new_members) in groups(new) {
        let Some(old_members) = old_groups.remove(place) else { continue };
        let counts = |entries: &[Entry], members: &[usize]| -> Vec<u64> {
            members.iter().map(|&member| entries[member].per_step).collect()
        };
        let pairs = align(&counts(old, &old_members), &counts(new, &new_members));
        for &(of_old, of_new) in &pairs {
            let (of_old, of_new) = (old_members[of_old], new_members[of_new]);
            changes[of_new] = match new[of_new].per_step.cmp(&old[of_old].per_step) {
                std::cmp::Ordering::Less => Change::Shrunk(of_old),
                std::cmp::Ordering::Equal => Change::Known(of_old),
                std::cmp::Ordering::Greater => Change::Grown(of_old),
            };
        }
        let matched: Vec<usize> = pairs.iter().map(|pair| pair.0).collect();
        let unmatched = old_members.iter().enumerate().filter(|(at, _)| !matched.contains(at));
        gone.extend(unmatched.map(|(_, &member)| member));
    }
    gone.extend(old_groups.into_values().flatten());
    gone.sort_unstable();
    find_moved(old, new, &mut changes, &mut gone);
    let gone = gone.into_iter().map(|index| Gone { old: index, reached: reached(&old[index], audit) });
    Comparison { changes, gone: gone.collect() }
}

/// Indices by place, in the order of their ordinals.
fn groups(entries: &[Entry]) -> HashMap<&Place, Vec<usize>> {
    let mut groups: HashMap<&Place, Vec<usize>> = HashMap::default();
    for (index, entry) in entries.iter().enumerate() {
        groups.entry(&entry.place).or_default().push(index);
    }
    for members in groups.values_mut() {
        members.sort_by_key(|&member| entries[member].ordinal);
    }
    groups
}

/// Above this, places of one group are matched one by one from the start: comparing all with all would take too long.
const MOST_TO_ALIGN: usize = 512;

/// Pairs as many as there can be, in order, with counts that differ the least. Of several ways the one that leaves the last ones over.
fn align(old: &[u64], new: &[u64]) -> Vec<(usize, usize)> {
    let (m, n) = (old.len(), new.len());
    if m == n || m.max(n) > MOST_TO_ALIGN {
        return (0..m.min(n)).map(|at| (at, at)).collect();
    }
    // cost[i][j]: the least for old[i..] and new[j..] with all of the shorter side paired.
    let swap = m > n;
    let (short, long) = if swap { (new, old) } else { (old, new) };
    let slack = long.len() - short.len();
    let mut cost = vec![vec![0u64; slack + 1]; short.len() + 1];
    for i in (0..short.len()).rev() {
        for skipped in (0..=slack).rev() {
            let pair = short[i].abs_diff(long[i + skipped]).saturating_add(cost[i + 1][skipped]);
            cost[i][skipped] = if skipped < slack { pair.min(cost[i][skipped + 1]) } else { pair };
        }
    }
    let mut pairs = Vec::with_capacity(short.len());
    let mut skipped = 0;
    for i in 0..short.len() {
        while skipped < slack
            && short[i].abs_diff(long[i + skipped]).saturating_add(cost[i + 1][skipped]) > cost[i][skipped]
        {
            skipped += 1;
        }
        pairs.push(if swap { (i + skipped, i) } else { (i, i + skipped) });
    }
    pairs
}

/// What stays the same wherever an operation is moved: kind, calls, operator.
type Operation<'e> = (crate::audit::WaitKind, &'e [String], Option<&'e str>);

/// Pairs what is gone with what is new, where it is plainly the same operation.
fn find_moved(old: &[Entry], new: &[Entry], changes: &mut [Change], gone: &mut Vec<usize>) {
    let mut by_call: HashMap<Operation<'_>, Vec<usize>> = HashMap::default();
    for &index in gone.iter() {
        let place = &old[index].place;
        by_call.entry((place.kind, &place.calls, place.op.as_deref())).or_default().push(index);
    }
    let mut taken: Vec<usize> = Vec::new();
    for (now, change) in new.iter().zip(changes.iter_mut()).filter(|(_, change)| **change == Change::New) {
        let place = &now.place;
        let Some(candidates) = by_call.get_mut(&(place.kind, place.calls.as_slice(), place.op.as_deref()))
        else {
            continue;
        };
        let Some(at) = candidates.iter().position(|&index| is_moved(&old[index].place, place)) else {
            continue;
        };
        let index = candidates.remove(at);
        taken.push(index);
        *change =
            if now.per_step > old[index].per_step { Change::Grown(index) } else { Change::Moved(index) };
    }
    taken.sort_unstable();
    gone.retain(|index| taken.binary_search(index).is_err());
}

/// Whether one and the same operation is at both: the same functions in a range that was opened around or taken from around
/// them, or in the same range with one caller more or less in between. A renamed function is not told from another function, and so is no move.
fn is_moved(old: &Place, new: &Place) -> bool {
    if old.functions.is_empty() || new.functions.is_empty() {
        return false;
    }
    if old.functions == new.functions {
        return old.range.last() == new.range.last()
            || is_within(&old.range, &new.range)
            || is_within(&new.range, &old.range);
    }
    let (short, long) = if old.functions.len() < new.functions.len() {
        (&old.functions, &new.functions)
    } else {
        (&new.functions, &old.functions)
    };
    // The innermost function stays: with it gone there is nothing left by which to know the operation.
    old.range == new.range
        && long.len() == short.len() + 1
        && short.len() >= 2
        && short[0] == long[0]
        && (1..long.len()).any(|left_out| {
            long[..left_out] == short[..left_out] && long[left_out + 1..] == short[left_out..]
        })
}

/// Whether all words of `short` are in `long`, in order.
fn is_within(short: &[String], long: &[String]) -> bool {
    let mut rest = long.iter();
    short.iter().all(|word| rest.any(|other| other == word))
}

/// Whether the run came by a place, as far as its trace tells: all of its ranges were opened, or where it has none, its operator or
/// innermost function was seen. A place that waited in every ordinary step is come by in every ordinary step: its innermost ranges may
/// have been taken out together with the wait.
#[must_use]
pub fn reached(entry: &Entry, audit: &Audit) -> bool {
    let place = &entry.place;
    let seen = |name: &String| audit.seen.contains(name);
    if audit.step_counts.ordinary == 0 {
        return false;
    }
    if entry.every_step && place.range.first().is_none_or(seen) {
        return true;
    }
    match (&place.range[..], &place.op, place.functions.first()) {
        ([], Some(op), _) => seen(op),
        ([], None, Some(function)) => seen(function),
        ([], None, None) => false,
        (range, _, _) => range.iter().all(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_one_group_are_paired_in_order_with_counts_that_fit() {
        assert_eq!(align(&[1, 1], &[1, 1, 1]), [(0, 0), (1, 1)]);
        assert_eq!(align(&[3, 1], &[1, 3, 1]), [(0, 1), (1, 2)]);
        assert_eq!(align(&[1, 3, 1], &[3]), [(1, 0)]);
        assert_eq!(align(&[1, 2, 3], &[1, 3]), [(0, 0), (2, 1)]);
        assert_eq!(align(&[], &[1]), []);
        assert_eq!(align(&[5], &[7]), [(0, 0)]);
    }

    fn place(range: &[&str], functions: &[&str]) -> Place {
        let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Place {
            kind: crate::audit::WaitKind::StreamSync,
            range: texts(range),
            functions: texts(functions),
            op: None,
            calls: texts(&["cuStreamSynchronize"]),
        }
    }

    #[test]
    fn a_wait_is_moved_only_where_its_own_function_came_along() {
        let old = place(&["step"], &["read", "loss", "main"]);
        for (moved, now) in [
            (true, place(&["step", "forward"], &["read", "loss", "main"])),
            (false, place(&["forward"], &["read", "loss", "main"])),
            (true, place(&["step"], &["read", "loss", "train", "main"])),
            (true, place(&["step"], &["read", "main"])),
            (false, place(&["step"], &["read", "anchors", "main"])),
            (false, place(&["step"], &["fetch", "read", "loss", "main"])),
            (false, place(&["step", "forward"], &["read", "main"])),
            (false, place(&["step"], &[])),
        ] {
            assert_eq!(is_moved(&old, &now), moved, "{now}");
        }
    }
}
