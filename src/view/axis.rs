//! Where a moment lies on the screen's axis.
//!
//! In: the times of a trace. Out: positions, evenly spread: nanoseconds from the start where times mean something, else the
//! order of the events. The axis of an emulated run must never stand for time, not even through the width of something.

use crate::model::{OPEN, Trace};

/// The axis of a trace: positions run from 0 to [`Axis::len`].
#[derive(Clone, Debug, Default)]
pub struct Axis {
    measured: bool,
    start_ns: u64,
    end_ns: u64,
    /// When each event began, sorted; only where times mean nothing.
    order: Vec<u64>,
}

/// A part of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub start: u64,
    pub len: u64,
}

impl Axis {
    /// The axis that fits all of the trace.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let measured = trace.times_meaningful();
        let mut bounds = (u64::MAX, 0);
        let mut order = Vec::new();
        let mut add = |start_ns: u64, end_ns: u64| {
            bounds.0 = bounds.0.min(start_ns);
            bounds.1 = bounds.1.max(if end_ns == OPEN { start_ns } else { end_ns });
        };
        for process in &trace.processes {
            for thread in &process.threads {
                let calls = thread.calls.iter().map(|call| (call.start_ns, call.end_ns));
                let spans = thread.spans.iter().map(|span| (span.start_ns, span.end_ns));
                if measured {
                    calls.chain(spans).for_each(|(start, end)| add(start, end));
                } else {
                    order.extend(calls.chain(spans).map(|(start, _)| start));
                }
            }
            process.free_ranges.iter().for_each(|range| add(range.start_ns, range.end_ns));
            process.device_ops.iter().for_each(|op| add(op.start_ns, op.end_ns));
        }
        order.sort_unstable();
        let start_ns = if bounds.0 == u64::MAX { 0 } else { bounds.0 };
        Self { measured, start_ns, end_ns: bounds.1.max(start_ns), order }
    }

    /// Whether positions are nanoseconds.
    #[must_use]
    pub fn measured(&self) -> bool {
        self.measured
    }

    /// Positions there are; at least 1.
    #[must_use]
    pub fn len(&self) -> u64 {
        if self.measured { self.end_ns - self.start_ns } else { self.order.len() as u64 }.max(1)
    }

    /// Never: an axis has at least one position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The position of a moment. What is open ends where the trace does.
    #[must_use]
    pub fn position(&self, time_ns: u64) -> u64 {
        if self.measured {
            return time_ns.min(self.end_ns).saturating_sub(self.start_ns);
        }
        self.order.partition_point(|&start| start < time_ns) as u64
    }

    /// The moment at a position; the position behind the last one is later than everything.
    #[must_use]
    pub fn time_ns(&self, position: u64) -> u64 {
        if self.measured {
            return if position > self.len() { OPEN } else { self.start_ns.saturating_add(position) };
        }
        usize::try_from(position).ok().and_then(|index| self.order.get(index)).copied().unwrap_or(OPEN)
    }

    /// The whole run.
    #[must_use]
    pub fn whole(&self) -> Window {
        Window { start: 0, len: self.len() }
    }

    /// The window around something, with a little room on both sides.
    #[must_use]
    pub fn around(&self, start_ns: u64, end_ns: u64) -> Window {
        let (start, end) = (self.position(start_ns), self.position(end_ns));
        let len = end.saturating_sub(start).max(1);
        let room = len / 40;
        Window { start: start.saturating_sub(room), len: len + 2 * room + u64::from(room == 0) }
    }

    /// From when to when each of `width` columns goes. A column is never empty: zoomed in far, neighbours show the same.
    #[must_use]
    pub fn columns(&self, window: Window, width: u16) -> Vec<(u64, u64)> {
        (0..width)
            .map(|column| {
                let (from, to) = self.column(window, width, column);
                (self.time_ns(from), self.time_ns(to))
            })
            .collect()
    }

    /// The positions that a column shows.
    #[must_use]
    pub fn column(&self, window: Window, width: u16, column: u16) -> (u64, u64) {
        let edge = |column: u16| {
            let along = u128::from(window.len) * u128::from(column) / u128::from(width.max(1));
            window.start + u64::try_from(along).unwrap_or(u64::MAX)
        };
        let from = edge(column);
        (from, edge(column + 1).max(from + 1))
    }
}

impl Window {
    /// The column of a position, if it is inside.
    #[must_use]
    pub fn column_of(self, position: u64, width: u16) -> Option<u16> {
        let offset = position.checked_sub(self.start).filter(|&offset| offset < self.len)?;
        // The last column whose left edge is not behind the position.
        let column = (u128::from(offset) * u128::from(width)).div_ceil(u128::from(self.len.max(1)));
        let exact = |column: u128| u128::from(self.len) * column / u128::from(width.max(1));
        let column = if exact(column) > u128::from(offset) { column - 1 } else { column };
        u16::try_from(column).ok().map(|column| column.min(width.saturating_sub(1)))
    }

    /// The part of `axis` nearest to this one.
    #[must_use]
    pub fn clamped(self, axis: &Axis) -> Self {
        let len = self.len.clamp(1, axis.len());
        Self { start: self.start.min(axis.len() - len), len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallData, TraceBuilder};

    fn trace(emulated: bool) -> Trace {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = emulated;
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        thread.push(1_000, "step", None);
        thread.call("cuStreamSynchronize", 2_000, 900_000, CallData::default());
        thread.call("cuStreamSynchronize", 900_100, 900_101, CallData::default());
        thread.pop(1_000_000);
        builder.finish()
    }

    #[test]
    fn a_measured_axis_is_time() {
        let axis = Axis::new(&trace(false));
        assert_eq!((axis.len(), axis.position(2_000), axis.time_ns(1_000)), (999_000, 1_000, 2_000));
    }

    #[test]
    fn an_emulated_axis_gives_each_event_the_same_room() {
        let axis = Axis::new(&trace(true));
        assert_eq!(axis.len(), 3);
        assert_eq!([1_000, 2_000, 900_100].map(|time| axis.position(time)), [0, 1, 2]);
        assert_eq!(axis.position(1_000_000), 3);
    }

    #[test]
    fn every_position_is_in_the_column_that_shows_it() {
        let axis = Axis::new(&trace(false));
        for (window, width) in [
            (Window { start: 7, len: 1_000 }, 30),
            (Window { start: 0, len: 3 }, 100),
            (Window { start: 5, len: 101 }, 100),
        ] {
            for position in window.start..window.start + window.len {
                let column = window.column_of(position, width).expect("inside");
                let (from, to) = axis.column(window, width, column);
                assert!((from..to).contains(&position), "{position} of {window:?} in {from}..{to}");
            }
        }
    }
}
