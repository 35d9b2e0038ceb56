//! Moving in the timeline: to steps and waits, by columns, by zooms and to bookmarks.

use super::{App, Part, Row, View};
use crate::view::axis::Window;
use crate::view::keys::Action;

impl App {
    /// Shows a step, with the cursor at its most expensive wait.
    pub fn go_to_step(&mut self, step: usize) {
        let (process, start_ns, end_ns) = {
            let step = &self.rec.judged.audit.steps[step];
            (step.process, step.start_ns, step.end_ns)
        };
        self.window = self.rec.axis.around(start_ns, end_ns).clamped(&self.rec.axis);
        self.cursor = self.rec.axis.position(start_ns).min(self.rec.axis.len() - 1);
        self.wait = self.rec.worst_wait(step);
        match self.wait {
            Some(wait) => self.put_cursor_on(wait),
            None if self.process() != process => {
                if let Some(lane) = self.rec.lanes.iter().position(|lane| lane.process == process) {
                    self.select(Row { lane, part: Part::Waits });
                }
            }
            None => {}
        }
        self.lay_out_rows();
        self.step_row = self.steps_shown.iter().position(|&shown| shown == step).unwrap_or(self.step_row);
    }

    pub(super) fn put_cursor_on(&mut self, wait: usize) {
        self.wait = Some(wait);
        self.cursor =
            self.rec.axis.position(self.rec.judged.audit.waits[wait].start_ns).min(self.rec.axis.len() - 1);
        if let Some(lane) = self.rec.lane_of_wait(wait) {
            self.select(Row { lane, part: Part::Waits });
        }
    }

    /// Selects a row; a lane that was left out comes back for it.
    pub(super) fn select(&mut self, row: Row) {
        self.row = row;
        if self.rows.contains(&row) {
            self.show_row();
        } else {
            self.lay_out_rows();
        }
    }

    /// Shows a wait: where the cursor is in the window already, only the cursor moves.
    pub fn go_to_wait(&mut self, wait: usize) {
        self.put_cursor_on(wait);
        if self.cursor_column().is_some() && self.window != self.rec.axis.whole() {
            return;
        }
        let found = &self.rec.judged.audit.waits[wait];
        let step = self.rec.step_at(found.process, found.start_ns);
        let window = match step.map(|step| &self.rec.judged.audit.steps[step]) {
            Some(step) => self.rec.axis.around(step.start_ns, step.end_ns),
            None => {
                let (start, end) = (found.start_ns, self.rec.wait_end_ns(wait));
                let around = self.rec.axis.around(start, end);
                // A wait alone says little: ten times its size.
                let len =
                    around.len.saturating_mul(10).max(u64::from(self.plot_width()).min(self.rec.axis.len()));
                Window { start: around.start.saturating_sub(len / 2), len }
            }
        };
        self.window = window.clamped(&self.rec.axis);
        self.lay_out_rows();
    }

    pub(super) fn neighbour_wait(&mut self, next: bool) {
        let waits = &self.rec.judged.audit.waits;
        let order = &self.rec.by_start;
        let current = self.selected_wait().and_then(|wait| {
            let start = waits[wait].start_ns;
            let from = order.partition_point(|&id| waits[id as usize].start_ns < start);
            order[from..].iter().position(|&id| id as usize == wait).map(|at| from + at)
        });
        let target = match (current, next) {
            (Some(at), true) => Some(at + 1),
            (Some(at), false) => at.checked_sub(1),
            (None, _) => {
                let now = self.rec.axis.time_ns(self.cursor);
                let at = order.partition_point(|&id| waits[id as usize].start_ns < now);
                if next { Some(at) } else { at.checked_sub(1) }
            }
        };
        match target.and_then(|at| order.get(at)) {
            Some(&wait) => self.go_to_wait(wait as usize),
            None if order.is_empty() => drop(self.say("there is no wait in this trace")),
            None => drop(self.say(if next { "this is the last wait" } else { "this is the first wait" })),
        }
    }

    pub(super) fn neighbour_step(&mut self, next: bool) {
        if self.view == View::Steps {
            self.move_by(if next { 1 } else { -1 });
            return;
        }
        let steps = self.rec.steps_of(self.process());
        if steps.is_empty() {
            self.say("no steps are known of this process");
            return;
        }
        let now = self.rec.axis.time_ns(self.cursor);
        let begun = steps.start
            + self.rec.judged.audit.steps[steps.clone()].partition_point(|step| step.start_ns <= now);
        let inside = begun > steps.start && self.rec.judged.audit.steps[begun - 1].end_ns > now;
        let target = match (next, inside) {
            (true, _) => Some(begun),
            (false, true) => begun.checked_sub(2),
            (false, false) => begun.checked_sub(1),
        };
        match target.filter(|target| steps.contains(target)) {
            Some(step) => self.go_to_step(step),
            None => drop(self.say(if next { "this is the last step" } else { "this is the first step" })),
        }
    }

    pub(super) fn zoom(&mut self, inwards: bool) {
        let least = if self.rec.axis.measured() { u64::from(self.plot_width()) } else { 8 };
        let len = if inwards {
            (self.window.len / 2).max(least.min(self.window.len))
        } else {
            self.window.len.saturating_mul(2)
        };
        let len = len.min(self.rec.axis.len());
        // The cursor stays in its column.
        let offset = self.cursor.saturating_sub(self.window.start).min(self.window.len);
        let offset = (u128::from(offset) * u128::from(len) / u128::from(self.window.len.max(1))) as u64;
        self.window = Window { start: self.cursor.saturating_sub(offset), len }.clamped(&self.rec.axis);
    }

    pub(super) fn pan(&mut self, right: bool) {
        let half = (self.window.len / 2).max(1);
        let start = if right { self.window.start + half } else { self.window.start.saturating_sub(half) };
        self.window = Window { start, ..self.window }.clamped(&self.rec.axis);
        self.cursor = self.cursor.clamp(self.window.start, self.window.start + self.window.len - 1);
        self.wait = None;
    }

    pub(super) fn move_cursor(&mut self, columns: i32) {
        self.wait = None;
        let width = self.plot_width();
        let column = self.cursor_column().map_or(0, i32::from) + columns;
        if column < 0 || column >= i32::from(width) {
            let step = (self.window.len / 4).max(1);
            let start =
                if column < 0 { self.window.start.saturating_sub(step) } else { self.window.start + step };
            let moved = Window { start, ..self.window }.clamped(&self.rec.axis);
            if moved == self.window {
                return;
            }
            let (from, to) = (self.window.start, self.window.start + self.window.len);
            self.window = moved;
            self.cursor = if column < 0 { from.saturating_sub(1) } else { to };
            self.cursor = self.cursor.clamp(moved.start, moved.start + moved.len - 1);
            return;
        }
        let before = self.cursor;
        // Zoomed in far, several columns show one position: go on to the next one.
        let mut column = column;
        while (0..i32::from(width)).contains(&column) {
            self.cursor = self.rec.axis.column(self.window, width, column as u16).0;
            if self.cursor != before {
                return;
            }
            column += columns;
        }
    }

    pub(super) fn bookmark(&mut self) {
        match self.bookmarks.binary_search(&self.cursor) {
            Ok(at) => {
                self.bookmarks.remove(at);
                self.say("bookmark removed");
            }
            Err(at) => {
                self.bookmarks.insert(at, self.cursor);
                let key = self.keymap.keys(Action::NextBookmark);
                self.message = Some(format!("bookmark {} set; {key} goes from one to the next", at + 1));
            }
        }
    }

    pub(super) fn next_bookmark(&mut self) {
        let at = self.bookmarks.partition_point(|&mark| mark <= self.cursor);
        let Some(&mark) = self.bookmarks.get(at).or(self.bookmarks.first()) else {
            self.say("no bookmark is set; b sets one at the cursor");
            return;
        };
        self.remember();
        self.cursor = mark;
        self.wait = None;
        if self.cursor_column().is_none() {
            let start = mark.saturating_sub(self.window.len / 2);
            self.window = Window { start, ..self.window }.clamped(&self.rec.axis);
        }
    }

    pub(super) fn next_pane(&mut self) {
        match self.view {
            View::Site => self.site_text_focus = !self.site_text_focus,
            View::Timeline => {
                let at = self.rows.iter().position(|&row| row == self.row).unwrap_or(0);
                let other = |row: &&Row| row.lane != self.row.lane;
                let next = self.rows[at.min(self.rows.len())..].iter().find(other).or(self.rows.first());
                if let Some(&next) = next {
                    // In a lane, the waits are what one comes for.
                    let waits = Row { part: Part::Waits, ..next };
                    self.row = if self.rows.contains(&waits) { waits } else { next };
                    self.wait = None;
                    self.show_row();
                }
            }
            View::Sites | View::Steps | View::Ranks | View::Report => {}
        }
    }

    pub(super) fn go_to_end(&mut self, last: bool) {
        if self.view != View::Timeline {
            self.move_by(if last { i64::from(u32::MAX) } else { -i64::from(u32::MAX) });
            return;
        }
        self.remember();
        self.cursor = if last { self.rec.axis.len() - 1 } else { 0 };
        self.wait = None;
        let start = if last { self.rec.axis.len() } else { 0 };
        self.window = Window { start, ..self.window }.clamped(&self.rec.axis);
    }
}
