//! Level of detail: what each column of a row shows, whatever the zoom.
//!
//! In: a row of intervals sorted by start, and the columns' edges. Out: for each column which interval is in it and how many
//! more. The arrays of the trace are searched directly, from one column on to the next: the work is columns times the logarithm
//! of the events, and nothing is stored per event. An interval that touches a column is counted in it, however
//! short it is: that is what keeps a wait from vanishing when zoomed out.

use crate::model::{Call, DeviceOp, OPEN, Span};

/// A row of intervals, sorted by start.
pub trait Intervals {
    /// How many there are.
    fn len(&self) -> usize;
    /// When the `index`-th begins.
    fn start_ns(&self, index: usize) -> u64;
    /// When the `index`-th ends.
    fn end_ns(&self, index: usize) -> u64;
    /// The latest end of the first `index + 1`. Where intervals don't overlap it is the end itself.
    fn reach_ns(&self, index: usize) -> u64 {
        self.end_ns(index)
    }
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What one column shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The first interval in the column, if `count` is not 0.
    pub first: usize,
    /// How many intervals are in the column.
    pub count: usize,
}

/// What each of the columns shows; `columns` are ascending.
#[must_use]
pub fn cells(row: &impl Intervals, columns: &[(u64, u64)]) -> Vec<Cell> {
    let (mut over, mut begun, mut next) = (0, 0, 0);
    columns
        .iter()
        .map(|&(from, to)| {
            over = advance(row.len(), over, |i| row.reach_ns(i) <= from && row.start_ns(i) < from);
            begun = advance(row.len(), begun.max(over), |i| row.start_ns(i) < from);
            // What begins at the very end of the trace is in the last column.
            next = advance(row.len(), next.max(begun), |i| row.start_ns(i) < to || to == OPEN);
            let mut cell = Cell { first: begun, count: next - begun };
            for index in (over..begun).rev().filter(|&index| row.end_ns(index) > from) {
                cell = Cell { first: index, count: cell.count + 1 };
            }
            cell
        })
        .collect()
}

/// The first index from `from` on for which `is_before` no longer holds: steps that double, then a binary search.
fn advance(len: usize, from: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let mut low = from;
    let mut step = 1;
    let mut high = low;
    while high < len && is_before(high) {
        low = high + 1;
        high = low + step;
        step *= 2;
    }
    let mut high = high.min(len);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// All calls of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a>(pub &'a [Call]);

impl Intervals for Calls<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn start_ns(&self, index: usize) -> u64 {
        self.0[index].start_ns
    }
    fn end_ns(&self, index: usize) -> u64 {
        self.0[index].end_ns
    }
}

/// Some of the spans of a thread, by their indices.
#[derive(Clone, Copy, Debug)]
pub struct Spans<'a> {
    pub all: &'a [Span],
    pub ids: &'a [u32],
}

impl Intervals for Spans<'_> {
    fn len(&self) -> usize {
        self.ids.len()
    }
    fn start_ns(&self, index: usize) -> u64 {
        self.all[self.ids[index] as usize].start_ns
    }
    fn end_ns(&self, index: usize) -> u64 {
        self.all[self.ids[index] as usize].end_ns
    }
}

/// Some of the device work of a process, by its indices, and the latest end so far.
#[derive(Clone, Copy, Debug)]
pub struct Ops<'a> {
    pub all: &'a [DeviceOp],
    pub ids: &'a [u32],
    pub reach_ns: &'a [u64],
}

impl Intervals for Ops<'_> {
    fn len(&self) -> usize {
        self.ids.len()
    }
    fn start_ns(&self, index: usize) -> u64 {
        self.all[self.ids[index] as usize].start_ns
    }
    fn end_ns(&self, index: usize) -> u64 {
        self.all[self.ids[index] as usize].end_ns
    }
    fn reach_ns(&self, index: usize) -> u64 {
        self.reach_ns[index]
    }
}

/// Waits, which may lie within each other (a full launch queue inside of a copy), by start and end.
#[derive(Clone, Debug, Default)]
pub struct WaitRow {
    /// Index into the audit's waits.
    pub ids: Vec<u32>,
    start_ns: Vec<u64>,
    end_ns: Vec<u64>,
    reach_ns: Vec<u64>,
}

impl WaitRow {
    /// Adds a wait; they come in order of their start.
    pub fn push(&mut self, id: u32, start_ns: u64, end_ns: u64) {
        let reach = self.reach_ns.last().map_or(end_ns, |&reach| reach.max(end_ns));
        self.ids.push(id);
        self.start_ns.push(start_ns);
        self.end_ns.push(end_ns);
        self.reach_ns.push(reach);
    }
}

impl Intervals for WaitRow {
    fn len(&self) -> usize {
        self.ids.len()
    }
    fn start_ns(&self, index: usize) -> u64 {
        self.start_ns[index]
    }
    fn end_ns(&self, index: usize) -> u64 {
        self.end_ns[index]
    }
    fn reach_ns(&self, index: usize) -> u64 {
        self.reach_ns[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(intervals: &[(u64, u64)]) -> WaitRow {
        let mut sorted = intervals.to_vec();
        sorted.sort_unstable();
        let mut row = WaitRow::default();
        for (id, &(start, len)) in sorted.iter().enumerate() {
            row.push(u32::try_from(id).unwrap(), start, start + len);
        }
        row
    }

    proptest! {
        /// Whatever the zoom: a wait is counted in exactly the columns that it touches.
        #[test]
        fn every_interval_is_in_each_column_it_touches_and_in_no_other(
            intervals in prop::collection::vec((0u64..500, 0u64..60), 0..80),
            start in 0u64..300,
            widths in prop::collection::vec(1u64..40, 1..30),
        ) {
            let row = row(&intervals);
            let mut at = start;
            let columns: Vec<(u64, u64)> = widths.iter().map(|width| { let from = at; at += width; (from, at) }).collect();
            for (&(from, to), cell) in columns.iter().zip(cells(&row, &columns)) {
                let inside: Vec<usize> = (0..row.len())
                    .filter(|&i| row.start_ns(i) < to && (row.end_ns(i) > from || row.start_ns(i) >= from))
                    .collect();
                prop_assert_eq!(cell.count, inside.len());
                if let Some(&first) = inside.first() {
                    prop_assert_eq!(cell.first, first);
                }
            }
        }
    }

    #[test]
    fn one_wait_among_a_million_is_still_there_in_a_single_column() {
        let row = row(&[(777_777, 1)]);
        let cell = cells(&row, &[(0, 500_000), (500_000, OPEN)]);
        assert_eq!(cell.iter().map(|cell| cell.count).collect::<Vec<_>>(), [0, 1]);
    }
}
