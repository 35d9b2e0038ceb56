//! Drilling in and out: the views, what Enter opens, and the way back.

use super::{App, Part, Row, View};
use crate::audit::StepKind;

impl App {
    pub(super) fn show(&mut self, view: View) {
        if view == View::Ranks && !self.has_ranks() {
            self.say("there is one process only, so no ranks to compare");
            return;
        }
        if view != self.view {
            self.remember();
            self.view = view;
            self.scroll = 0;
        }
        if view == View::Steps
            && let Some(step) = self.rec.step_at(self.process(), self.rec.axis.time_ns(self.cursor))
        {
            self.step_row = self.steps_shown.iter().position(|&shown| shown == step).unwrap_or(self.step_row);
        }
    }

    pub(super) fn remember(&mut self) {
        let now = (self.view, self.window, self.cursor, self.row, self.wait);
        if self.before.last() != Some(&now) {
            self.before.push(now);
            // Nobody goes back further.
            if self.before.len() > 200 {
                self.before.remove(0);
            }
        }
    }

    pub(super) fn back(&mut self) {
        match self.before.pop() {
            Some((view, window, cursor, row, wait)) => {
                (self.view, self.window, self.cursor, self.row, self.wait) =
                    (view, window, cursor, row, wait);
                self.lay_out_rows();
            }
            None if self.view != View::Timeline => self.view = View::Timeline,
            None => drop(self.say("this is where you began; q leaves")),
        }
    }

    pub(super) fn enter(&mut self) {
        match self.view {
            View::Timeline => match (self.selected_wait(), self.under_cursor()) {
                (Some(wait), _) => {
                    self.open_site(self.rec.judged.audit.waits[wait].site as usize, Some(wait))
                }
                (None, Some(item)) => {
                    if let Some((start, end)) = self.bounds(item) {
                        self.remember();
                        self.window = self.rec.axis.around(start, end).clamped(&self.rec.axis);
                        self.cursor =
                            self.cursor.clamp(self.window.start, self.window.start + self.window.len - 1);
                    }
                }
                (None, None) => drop(self.say("nothing is under the cursor here; w goes to the next wait")),
            },
            View::Sites => {
                if let Some(&site) = self.sites_shown.get(self.site_row) {
                    self.open_site(site, None);
                }
            }
            View::Site => {
                if let Some(&wait) = self.rec.of_site[self.site].get(self.occurrence) {
                    self.remember();
                    self.view = View::Timeline;
                    self.go_to_wait(wait as usize);
                }
            }
            View::Steps => {
                if let Some(&step) = self.steps_shown.get(self.step_row) {
                    self.remember();
                    self.view = View::Timeline;
                    self.go_to_step(step);
                }
            }
            View::Ranks => self.enter_rank(),
            View::Report => {}
        }
    }

    pub(super) fn enter_rank(&mut self) {
        let Some(lane) = self.rec.lanes.iter().position(|lane| lane.process as usize == self.rank_row) else {
            self.say("this rank did nothing that was recorded");
            return;
        };
        self.remember();
        self.view = View::Timeline;
        let process = self.rec.lanes[lane].process;
        let worst = self.rec.steps_of(process).max_by_key(|&step| {
            let step = &self.rec.judged.audit.steps[step];
            (step.kind == StepKind::Ordinary, step.over_budget, step.waits, std::cmp::Reverse(step.index))
        });
        match worst {
            Some(step) => self.go_to_step(step),
            None => {
                self.window = self.rec.axis.whole();
                self.select(Row { lane, part: Part::Waits });
            }
        }
    }

    pub(super) fn open_site(&mut self, site: usize, wait: Option<usize>) {
        self.remember();
        self.site = site;
        self.scroll = 0;
        self.site_text_focus = false;
        let waits = &self.rec.of_site[site];
        self.occurrence = wait.and_then(|wait| waits.iter().position(|&id| id as usize == wait)).unwrap_or(0);
        self.view = View::Site;
    }
}
