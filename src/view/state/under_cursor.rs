//! What is where: in each column, and under the cursor.

use super::{App, Item, Part, Row, View};
use crate::model::OPEN;
use crate::view::lod::{self, Cell};
use crate::view::recording::{Cause, Lane, LaneKind};

impl App {
    #[must_use]
    pub fn lane(&self) -> Option<&Lane> {
        self.rec.lanes.get(self.row.lane)
    }

    /// The process whose steps are shown: that of the selected row.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.lane().map_or(0, |lane| lane.process)
    }

    /// What each column of a row shows.
    #[must_use]
    pub fn cells(&self, row: Row, columns: &[(u64, u64)]) -> Vec<Cell> {
        let lane = &self.rec.lanes[row.lane];
        let process = &self.rec.trace.processes[lane.process as usize];
        match (row.part, lane.kind) {
            (Part::Waits, _) => lod::cells(&lane.waits, columns),
            (Part::Calls, LaneKind::Thread(thread)) => {
                lod::cells(&lod::Calls(&process.threads[thread as usize].calls), columns)
            }
            (Part::Range(depth), LaneKind::Thread(thread)) => {
                let all = &process.threads[thread as usize].spans;
                lod::cells(&lod::Spans { all, ids: &lane.ranges[depth] }, columns)
            }
            (Part::Ops, _) => {
                let row = lod::Ops { all: &process.device_ops, ids: &lane.ops, reach_ns: &lane.reach_ns };
                lod::cells(&row, columns)
            }
            (Part::Calls | Part::Range(_), LaneKind::Stream(_)) => Vec::new(),
        }
    }

    /// The item that a cell begins with.
    #[must_use]
    pub fn item(&self, row: Row, cell: Cell) -> Option<Item> {
        if cell.count == 0 {
            return None;
        }
        let lane = &self.rec.lanes[row.lane];
        Some(match row.part {
            Part::Waits => Item::Wait(lane.waits.ids[cell.first] as usize),
            Part::Calls => Item::Call(row.lane, cell.first),
            Part::Range(depth) => Item::Span(row.lane, lane.ranges[depth][cell.first] as usize),
            Part::Ops => Item::Op(row.lane, lane.ops[cell.first] as usize),
        })
    }

    /// The column of the cursor.
    #[must_use]
    pub fn cursor_column(&self) -> Option<u16> {
        self.window.column_of(self.cursor, self.plot_width())
    }

    /// What is under the cursor in the selected row.
    #[must_use]
    pub fn under_cursor(&self) -> Option<Item> {
        if self.rows.is_empty() {
            return None;
        }
        let (from, to) = self.rec.axis.column(self.window, self.plot_width(), self.cursor_column()?);
        let edges = [(self.rec.axis.time_ns(from), self.rec.axis.time_ns(to))];
        let cell = self.cells(self.row, &edges).first().copied()?;
        // A wait that was gone to stays the one, as long as it is in the cursor's column.
        if let (Some(wait), Part::Waits) = (self.wait, self.row.part) {
            let ids = &self.rec.lanes[self.row.lane].waits.ids;
            let here = ids.get(cell.first..(cell.first + cell.count).min(ids.len())).unwrap_or_default();
            if here.iter().any(|&id| id as usize == wait) {
                return Some(Item::Wait(wait));
            }
        }
        self.item(self.row, cell)
    }

    /// The wait under the cursor. A call that is part of one counts.
    #[must_use]
    pub fn selected_wait(&self) -> Option<usize> {
        match self.under_cursor()? {
            Item::Wait(wait) => Some(wait),
            Item::Call(lane, call) => {
                let lane = &self.rec.lanes[lane];
                let waits = &self.rec.judged.audit.waits;
                let LaneKind::Thread(thread) = lane.kind else { return None };
                let start_ns = self.rec.trace.processes[lane.process as usize].threads[thread as usize].calls
                    [call]
                    .start_ns;
                let at = lane.waits.ids.partition_point(|&id| waits[id as usize].start_ns <= start_ns);
                lane.waits.ids[..at].iter().rev().take(4).map(|&id| id as usize).find(|&id| {
                    let calls = waits[id].calls;
                    let (Some(first), Some(last)) = (calls.first(), calls.last()) else { return false };
                    (first as usize == call) || (last as usize == call)
                })
            }
            Item::Span(..) | Item::Op(..) => None,
        }
    }

    /// What the selected wait waited for.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.rec.cause(self.selected_wait()?)
    }

    /// The site that keys like `y` and `e` are about.
    #[must_use]
    pub fn current_site(&self) -> Option<usize> {
        match self.view {
            View::Timeline => {
                self.selected_wait().map(|wait| self.rec.judged.audit.waits[wait].site as usize)
            }
            View::Sites => self.sites_shown.get(self.site_row).copied(),
            View::Site => Some(self.site),
            View::Steps | View::Ranks | View::Report => None,
        }
        .filter(|&site| site < self.rec.judged.audit.sites.len())
    }

    /// Which ranks there are.
    #[must_use]
    pub fn has_ranks(&self) -> bool {
        self.rec.judged.audit.processes.iter().filter(|row| row.rank.is_some()).count() > 1
    }

    pub(super) fn bounds(&self, item: Item) -> Option<(u64, u64)> {
        let lane = |index: usize| {
            let lane = &self.rec.lanes[index];
            (lane, &self.rec.trace.processes[lane.process as usize])
        };
        Some(match item {
            Item::Wait(wait) => (self.rec.judged.audit.waits[wait].start_ns, self.rec.wait_end_ns(wait)),
            Item::Call(at, call) => {
                let (lane, process) = lane(at);
                let LaneKind::Thread(thread) = lane.kind else { return None };
                let call = process.threads[thread as usize].calls.get(call)?;
                (call.start_ns, call.end_ns)
            }
            Item::Span(at, span) => {
                let (lane, process) = lane(at);
                let LaneKind::Thread(thread) = lane.kind else { return None };
                let span = process.threads[thread as usize].spans.get(span)?;
                (span.start_ns, span.end_ns)
            }
            Item::Op(at, op) => {
                let op = lane(at).1.device_ops.get(op)?;
                (op.start_ns, op.end_ns)
            }
        })
    }

    /// The step in the middle of what is shown.
    #[must_use]
    pub fn current_step(&self) -> Option<usize> {
        self.rec.step_at(self.process(), self.rec.axis.time_ns(self.cursor).min(OPEN - 1))
    }
}
