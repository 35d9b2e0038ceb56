//! The lists of sites and steps: their order, their filter, and moving in them.

use super::{App, SiteOrder, StepOrder, View};
use crate::audit::Site;

impl App {
    pub(super) fn move_by(&mut self, rows: i64) {
        let moved = |at: usize, len: usize| {
            let last = i64::try_from(len.saturating_sub(1)).unwrap_or(i64::MAX);
            usize::try_from((at as i64 + rows).clamp(0, last)).unwrap_or(0)
        };
        match self.view {
            View::Timeline => {
                let at = self.rows.iter().position(|&row| row == self.row).unwrap_or(0);
                if let Some(&row) = self.rows.get(moved(at, self.rows.len())) {
                    self.row = row;
                    self.show_row();
                }
            }
            View::Sites => self.site_row = moved(self.site_row, self.sites_shown.len()),
            View::Site if self.site_text_focus => self.scroll = moved(self.scroll, usize::MAX >> 1),
            View::Site => self.occurrence = moved(self.occurrence, self.rec.of_site[self.site].len()),
            View::Steps => self.step_row = moved(self.step_row, self.steps_shown.len()),
            View::Ranks => self.rank_row = moved(self.rank_row, self.rec.judged.audit.processes.len()),
            View::Report => {
                let last = self.report.len().saturating_sub(usize::from(self.list_height())) + 1;
                self.scroll = moved(self.scroll, last);
            }
        }
    }

    pub(super) fn next_order(&mut self) {
        let measured = self.rec.axis.measured();
        if self.view == View::Steps {
            self.step_order = match self.step_order {
                StepOrder::Time => StepOrder::Waits,
                StepOrder::Waits if measured => StepOrder::Blocked,
                StepOrder::Waits | StepOrder::Blocked => StepOrder::Time,
            };
            self.order_steps();
            self.step_row = 0;
        } else {
            self.site_order = match self.site_order {
                SiteOrder::Worst => SiteOrder::Waits,
                SiteOrder::Waits if measured => SiteOrder::Blocked,
                SiteOrder::Waits | SiteOrder::Blocked => SiteOrder::Place,
                SiteOrder::Place => SiteOrder::Worst,
            };
            self.order_sites();
            self.site_row = 0;
        }
    }

    pub(super) fn order_sites(&mut self) {
        let sites = &self.rec.judged.audit.sites;
        let word = self.filter.to_lowercase();
        self.sites_shown = (0..sites.len())
            .filter(|&site| word.is_empty() || describe(&sites[site]).to_lowercase().contains(&word))
            .collect();
        match self.site_order {
            SiteOrder::Worst => {}
            SiteOrder::Waits => self.sites_shown.sort_by_key(|&site| std::cmp::Reverse(sites[site].waits)),
            SiteOrder::Blocked => {
                self.sites_shown.sort_by_key(|&site| std::cmp::Reverse(sites[site].blocked_ns));
            }
            SiteOrder::Place => {
                self.sites_shown.sort_by_cached_key(|&site| crate::report::words::place_text(&sites[site]))
            }
        }
        self.site_row = self.site_row.min(self.sites_shown.len().saturating_sub(1));
    }

    pub(super) fn order_steps(&mut self) {
        let steps = &self.rec.judged.audit.steps;
        self.steps_shown = (0..steps.len()).collect();
        match self.step_order {
            StepOrder::Time => {}
            StepOrder::Waits => self.steps_shown.sort_by_key(|&step| std::cmp::Reverse(steps[step].waits)),
            StepOrder::Blocked => {
                self.steps_shown.sort_by_key(|&step| std::cmp::Reverse(steps[step].blocked_ns));
            }
        }
        self.step_row = self.step_row.min(self.steps_shown.len().saturating_sub(1));
    }
}

/// All that a filter looks at.
fn describe(site: &Site) -> String {
    let frames = site.python.iter().chain(&site.native).filter(|frame| frame.user);
    let frames: Vec<String> = frames.map(|frame| format!("{} {}", frame.file, frame.function)).collect();
    [
        crate::report::words::place_text(site),
        site.kind.id().to_owned(),
        site.status.id().to_owned(),
        site.range.join(" > "),
        site.ops.join(" > "),
        site.apis.join(" "),
        site.fingerprint.clone(),
        frames.join(" "),
    ]
    .join("\n")
}
