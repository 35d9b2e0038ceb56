//! How much room there is, and which rows of the lanes get it.

use super::{App, FIXED_ROWS, Part, Row};
use crate::view::lod::Intervals;
use crate::view::recording::LaneKind;

impl App {
    /// Columns that name the rows.
    #[must_use]
    pub fn label_width(&self) -> u16 {
        (self.screen.0 / 6).clamp(10, 24)
    }

    /// Columns of the picture.
    #[must_use]
    pub fn plot_width(&self) -> u16 {
        self.screen.0.saturating_sub(self.label_width()).max(8)
    }

    /// Lines of the pane below the picture.
    #[must_use]
    pub fn detail_height(&self) -> u16 {
        match self.screen.1 {
            0..20 => 5,
            20..30 => 7,
            30..45 => 10,
            _ => 14,
        }
    }

    /// Lines for the run-ahead of the steps, or, where there is room, for why it is not known.
    #[must_use]
    pub fn run_ahead_height(&self) -> u16 {
        u16::from(self.run_ahead_ns.is_ok() || self.screen.1 >= 24)
    }

    /// Lines for lanes.
    #[must_use]
    pub fn lane_height(&self) -> u16 {
        let fixed = 2 + FIXED_ROWS + self.run_ahead_height() + self.detail_height();
        self.screen.1.saturating_sub(fixed).max(1)
    }

    /// Lines of a list view.
    #[must_use]
    pub fn list_height(&self) -> u16 {
        self.screen.1.saturating_sub(4).max(1)
    }

    /// As many depths of ranges as fit; waits, calls and device work always have their rows. Where even that does not fit, lanes
    /// that do nothing in the window make room.
    pub(super) fn lay_out_rows(&mut self) {
        let height = usize::from(self.lane_height());
        let deepest = self.rec.lanes.iter().map(|lane| lane.ranges.len()).max().unwrap_or(0);
        let mut lanes: Vec<usize> = (0..self.rec.lanes.len()).collect();
        self.idle = 0;
        if self.rows_with(&lanes, deepest.min(1)).len() > height {
            let window = [(
                self.rec.axis.time_ns(self.window.start),
                self.rec.axis.time_ns(self.window.start + self.window.len),
            )];
            lanes.retain(|&lane| lane == self.row.lane || self.is_busy(lane, &window));
            self.idle = self.rec.lanes.len() - lanes.len();
        }
        let depth = (1..=deepest).rev().find(|&depth| self.rows_with(&lanes, depth).len() <= height);
        self.rows = self.rows_with(&lanes, depth.unwrap_or(deepest.min(1)));
        if !self.rows.contains(&self.row) {
            let same_lane = self.rows.iter().find(|row| row.lane == self.row.lane && row.part == Part::Waits);
            self.row = same_lane.or(self.rows.first()).copied().unwrap_or(self.row);
        }
        self.show_row();
    }

    /// Whether a lane does anything in a window.
    pub(super) fn is_busy(&self, lane: usize, window: &[(u64, u64)]) -> bool {
        self.rows_with(&[lane], 1)
            .into_iter()
            .any(|row| self.cells(row, window).first().is_some_and(|cell| cell.count > 0))
    }

    pub(super) fn rows_with(&self, lanes: &[usize], depth: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for &index in lanes {
            let lane = &self.rec.lanes[index];
            let mut add = |part| rows.push(Row { lane: index, part });
            match lane.kind {
                LaneKind::Thread(thread) => {
                    (0..lane.ranges.len().min(depth)).for_each(|depth| add(Part::Range(depth)));
                    let calls =
                        &self.rec.trace.processes[lane.process as usize].threads[thread as usize].calls;
                    if !calls.is_empty() {
                        add(Part::Calls);
                    }
                    if !lane.waits.is_empty() {
                        add(Part::Waits);
                    }
                }
                LaneKind::Stream(_) => add(Part::Ops),
            }
        }
        rows
    }

    /// Scrolls until the selected row is on the screen.
    pub(super) fn show_row(&mut self) {
        let height = usize::from(self.lane_height());
        let at = self.rows.iter().position(|&row| row == self.row).unwrap_or(0);
        self.top = self.top.min(at).max((at + 1).saturating_sub(height));
        self.top = self.top.min(self.rows.len().saturating_sub(height));
    }
}
