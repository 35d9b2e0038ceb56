//! Going from match to match.

use super::{App, Row, View};
use crate::view::axis::Window;

impl App {
    pub(super) fn find(&mut self, next: bool) {
        let Some(query) = &self.query else {
            self.say("nothing was searched for yet; / asks for a word");
            return;
        };
        if self.hits.total() == 0 {
            self.message =
                Some(format!("'{}' is in no function, file, range or API of this trace", query.text));
            return;
        }
        match self.view {
            View::Sites => {
                let at = |row: usize| query.has_site(self.sites_shown[row]);
                let len = self.sites_shown.len();
                let found = (1..=len)
                    .map(
                        |by| if next { (self.site_row + by) % len } else { (self.site_row + len - by) % len },
                    )
                    .find(|&row| at(row));
                match found {
                    Some(row) => self.site_row = row,
                    None => self.message = Some(format!("'{}' is at no site that is shown", query.text)),
                }
            }
            View::Report => {
                let word = query.text.to_lowercase();
                let len = self.report.len();
                let found = (1..=len)
                    .map(|by| if next { (self.scroll + by) % len } else { (self.scroll + len - by) % len })
                    .find(|&line| self.report[line].to_lowercase().contains(&word));
                if let Some(line) = found {
                    self.scroll = line;
                }
            }
            View::Timeline | View::Site | View::Steps | View::Ranks => self.find_in_timeline(next),
        }
    }

    pub(super) fn find_in_timeline(&mut self, next: bool) {
        let Some(query) = &self.query else { return };
        let from = self.rec.axis.time_ns(self.cursor);
        let visible: Vec<usize> = (0..self.rec.lanes.len()).collect();
        let Some(hit) = query.next(&self.rec, &visible, from, next) else {
            let end = if next { "last" } else { "first" };
            self.message =
                Some(format!("this is the {end} match of '{}' ({} in all)", query.text, self.hits.total()));
            return;
        };
        let (text, total) = (query.text.clone(), self.hits.total());
        self.remember();
        self.view = View::Timeline;
        self.wait = None;
        self.cursor = self.rec.axis.position(hit.start_ns).min(self.rec.axis.len() - 1);
        if self.cursor_column().is_none() {
            let start = self.cursor.saturating_sub(self.window.len / 2);
            self.window = Window { start, ..self.window }.clamped(&self.rec.axis);
        }
        self.select(Row { lane: hit.lane, part: hit.part });
        self.message = Some(format!("{}: '{text}', {total} in all", hit.name));
    }
}
