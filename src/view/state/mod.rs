//! What the user is looking at, and what a key changes about it.
//!
//! In: a [`Recording`], keys, the size of the screen. Out: the state that the widgets draw, and [`Effect`]s for what lies outside
//! (leaving, clipboard, editor, files). Nothing here draws or touches the terminal: all of it can be tested with keys alone.
//!
//! [`input`] keys and mouse, [`moving`] in the timeline, [`lists`] of sites and steps, [`drilling`] in and out, [`find`] matches,
//! [`under_cursor`] what is where, [`layout`] how much room there is.

mod drilling;
mod find;
mod input;
mod layout;
mod lists;
mod moving;
mod under_cursor;

use super::axis::Window;
use super::keys::Keymap;
use super::recording::Recording;
use super::search::{Hits, Query};
use super::sources::Sources;

/// The views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    Timeline,
    Sites,
    /// One site, opened.
    Site,
    Steps,
    Ranks,
    Report,
}

/// What lies outside of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    Suspend,
    Copy(String),
    Edit {
        path: String,
        line: u32,
    },
    Save(SaveAs),
    Mouse(bool),
    /// What the terminal's Ctrl-C would do to the program that runs.
    Interrupt,
}

/// What becomes of what is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// Nothing more: the program has ended, or is not looked at while it runs.
    Over,
    /// The trace grows.
    Grows,
    /// The trace grows, and the program runs in our terminal.
    Runs,
}

/// How the visible part is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveAs {
    Svg,
    Text,
    /// What reaches into the timeline's window.
    Perfetto,
}

/// What has the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    Normal,
    Help {
        query: String,
        top: usize,
    },
    Prompt {
        asks: Asks,
        text: String,
    },
    /// Which format to save in.
    Save,
    /// What of a site to copy.
    Copy {
        site: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    Search,
    Filter,
}

/// A row of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index into the recording's lanes.
    pub lane: usize,
    pub part: Part,
}

/// Which row of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Range(usize),
    Calls,
    Waits,
    Ops,
}

/// What is under the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    Wait(usize),
    Call(usize, usize),
    Span(usize, usize),
    Op(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteOrder {
    Worst,
    Waits,
    Blocked,
    Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOrder {
    Time,
    Waits,
    Blocked,
}

/// The rows of the screen that the timeline's fixed parts take: minimap, axis, steps.
const FIXED_ROWS: u16 = 3;

/// What the user is looking at.
#[derive(Debug)]
pub struct App {
    pub rec: Recording,
    pub keymap: Keymap,
    pub view: View,
    pub mode: Mode,
    /// Said once, in place of the footer.
    pub message: Option<String>,
    pub screen: (u16, u16),
    pub window: Window,
    /// Position of the cursor.
    pub cursor: u64,
    pub row: Row,
    /// The wait that was gone to, as several may be in the cursor's column.
    pub wait: Option<usize>,
    pub rows: Vec<Row>,
    /// Lanes left out of `rows`, as they do nothing in the window and there is no room.
    pub idle: usize,
    /// The first row on the screen.
    pub top: usize,
    pub run_ahead_ns: Result<Vec<Option<u64>>, &'static str>,
    pub bookmarks: Vec<u64>,
    /// Index into `sites_shown`.
    pub site_row: usize,
    pub sites_shown: Vec<usize>,
    pub site_order: SiteOrder,
    pub filter: String,
    /// The opened site.
    pub site: usize,
    pub occurrence: usize,
    /// The keyboard is with the text of the site, not with its occurrences.
    pub site_text_focus: bool,
    pub scroll: usize,
    pub steps_shown: Vec<usize>,
    pub step_row: usize,
    pub step_order: StepOrder,
    pub rank_row: usize,
    pub report: Vec<String>,
    pub query: Option<Query>,
    pub hits: Hits,
    pub sources: Sources,
    pub mouse: bool,
    pub live: Live,
    /// A key was pressed: from now on the user says what is shown, newer recordings don't.
    touched: bool,
    before: Vec<(View, Window, u64, Row, Option<usize>)>,
}

impl App {
    /// Begins with the worst ordinary step and its most expensive wait, at a screen of that size.
    #[must_use]
    pub fn new(rec: Recording, keymap: Keymap, screen: (u16, u16)) -> Self {
        let window = rec.axis.whole();
        let mut app = Self {
            keymap,
            view: View::Timeline,
            mode: Mode::Normal,
            message: None,
            screen,
            window,
            cursor: 0,
            row: Row { lane: 0, part: Part::Waits },
            wait: None,
            rows: Vec::new(),
            idle: 0,
            top: 0,
            run_ahead_ns: rec.run_ahead_ns(),
            bookmarks: Vec::new(),
            site_row: 0,
            sites_shown: Vec::new(),
            site_order: SiteOrder::Worst,
            filter: String::new(),
            site: 0,
            occurrence: 0,
            site_text_focus: false,
            scroll: 0,
            steps_shown: Vec::new(),
            step_row: 0,
            step_order: StepOrder::Time,
            rank_row: 0,
            report: Vec::new(),
            query: None,
            hits: Hits::default(),
            sources: Sources::default(),
            mouse: false,
            live: Live::Over,
            touched: false,
            before: Vec::new(),
            rec,
        };
        app.refresh();
        app.begin();
        app
    }

    /// Shows the worst ordinary step; without steps, the most expensive wait of all.
    fn begin(&mut self) {
        let waits = &self.rec.judged.audit.waits;
        let worst = (0..waits.len())
            .max_by_key(|&wait| (waits[wait].blocked_ns, std::cmp::Reverse(waits[wait].site)));
        match (self.rec.worst_step(), worst) {
            (Some(step), _) => self.go_to_step(step),
            (None, Some(wait)) => self.go_to_wait(wait),
            (None, None) => {}
        }
    }

    /// Takes a newer recording of the same run. Whoever has pressed no key yet gets the worst step so far; others stay where they are, or
    /// at the end if they were there.
    pub fn update(&mut self, rec: Recording) {
        let nothing_yet = self.rec.judged.audit.waits.is_empty() && self.rec.judged.audit.steps.is_empty();
        let (old_len, window) = (self.rec.axis.len(), self.window);
        let whole = window == self.rec.axis.whole();
        let at_end = window.start + window.len == old_len;
        // Numbers of waits and sites may have changed: find the opened site by its name, the wait by its place in time.
        let fingerprint = self.rec.judged.audit.sites.get(self.site).map(|site| site.fingerprint.clone());
        let selected = self
            .sites_shown
            .get(self.site_row)
            .map(|&site| self.rec.judged.audit.sites[site].fingerprint.clone());
        let wait = self.wait.map(|wait| {
            let wait = &self.rec.judged.audit.waits[wait];
            (wait.process, wait.thread, wait.start_ns)
        });
        let lane = self.lane().map(|lane| (lane.process, lane.kind));
        self.run_ahead_ns = rec.run_ahead_ns();
        self.rec = rec;
        let same = self.rec.lanes.iter().position(|now| Some((now.process, now.kind)) == lane);
        self.row.lane = same.unwrap_or(0);
        let named = |name: Option<String>| {
            self.rec.judged.audit.sites.iter().position(|site| Some(&site.fingerprint) == name.as_ref())
        };
        let (site, selected) = (named(fingerprint), named(selected));
        self.site = site.unwrap_or(0);
        if self.view == View::Site && site.is_none() {
            self.view = View::Sites;
        }
        self.wait = wait.and_then(|place| {
            self.rec
                .judged
                .audit
                .waits
                .iter()
                .position(|wait| (wait.process, wait.thread, wait.start_ns) == place)
        });
        self.before.clear();
        self.refresh();
        self.site_row =
            self.sites_shown.iter().position(|&site| Some(site) == selected).unwrap_or(self.site_row);
        let len = self.rec.axis.len();
        if whole {
            self.window = self.rec.axis.whole();
        } else if at_end {
            self.window = Window { start: len, ..window }.clamped(&self.rec.axis);
        }
        if at_end && self.cursor + 1 == old_len {
            self.cursor = len - 1;
        }
        if nothing_yet || !self.touched {
            self.begin();
        }
        if self.window != window {
            self.lay_out_rows();
        }
        self.hits = Hits::default();
        if let Some(query) = &self.query {
            self.hits = query.count(&self.rec);
        }
    }

    /// Recomputes what is listed.
    fn refresh(&mut self) {
        self.order_sites();
        self.order_steps();
        self.lay_out_rows();
        let width = usize::from(self.screen.0.max(20)) - 2;
        let style = crate::report::TextStyle { color: false, width };
        let text = crate::report::text(&self.rec.judged, style);
        self.report = text.lines().map(str::to_owned).collect();
    }

    /// The screen has another size now.
    pub fn resize(&mut self, width: u16, height: u16) {
        if self.screen != (width, height) {
            self.screen = (width, height);
            self.refresh();
            self.show_row();
        }
    }

    fn say(&mut self, text: &str) -> Option<Effect> {
        self.message = Some(text.to_owned());
        None
    }
}
