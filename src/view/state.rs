//! What the user is looking at, and what a key changes about it.
//!
//! In: a [`Recording`], keys, the size of the screen. Out: the state that the widgets draw, and [`Effect`]s for what lies outside
//! (leaving, clipboard, editor, files). Nothing here draws or touches the terminal: all of it can be tested with keys alone.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::axis::Window;
use super::keys::{Action, Keymap};
use super::lod::{self, Cell, Intervals};
use super::recording::{Cause, Lane, LaneKind, Recording};
use super::search::{Hits, Query};
use super::sources::Sources;
use crate::audit::{Frame, Site, StepKind};
use crate::model::OPEN;

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
    Edit { path: String, line: u32 },
    Save(SaveAs),
    Mouse(bool),
}

/// How the visible part is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveAs {
    Svg,
    Text,
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
    pub run_ahead_ns: Vec<Option<u64>>,
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
    /// The program still runs.
    pub live: bool,
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
            live: false,
            before: Vec::new(),
            rec,
        };
        app.refresh();
        match app.rec.worst_step() {
            Some(step) => app.go_to_step(step),
            // Without steps: the most expensive wait of all.
            None => {
                let waits = &app.rec.judged.audit.waits;
                let worst = (0..waits.len())
                    .max_by_key(|&wait| (waits[wait].blocked_ns, std::cmp::Reverse(waits[wait].site)));
                if let Some(wait) = worst {
                    app.go_to_wait(wait);
                }
            }
        }
        app
    }

    /// Takes a newer recording of the same run; the user stays where they are, or at the end if they were there.
    pub fn update(&mut self, rec: Recording) {
        let at_start = self.rec.judged.audit.waits.is_empty() && self.rec.judged.audit.steps.is_empty();
        let whole = self.window == self.rec.axis.whole();
        let screen = self.screen;
        let keymap = self.keymap.clone();
        if at_start {
            let (live, message) = (self.live, self.message.take());
            *self = Self { live, message, ..Self::new(rec, keymap, screen) };
            return;
        }
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
        self.run_ahead_ns = rec.run_ahead_ns();
        self.rec = rec;
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
        if whole {
            self.window = self.rec.axis.whole();
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

    // ---- layout that keys depend on ----

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

    /// Whether any step's run-ahead is known.
    #[must_use]
    pub fn has_run_ahead(&self) -> bool {
        self.run_ahead_ns.iter().any(Option::is_some)
    }

    /// Lines for lanes.
    #[must_use]
    pub fn lane_height(&self) -> u16 {
        let fixed = 2 + FIXED_ROWS + u16::from(self.has_run_ahead()) + self.detail_height();
        self.screen.1.saturating_sub(fixed).max(1)
    }

    /// Lines of a list view.
    #[must_use]
    pub fn list_height(&self) -> u16 {
        self.screen.1.saturating_sub(4).max(1)
    }

    /// As many depths of ranges as fit; waits, calls and device work always have their rows. Where even that does not fit, lanes
    /// that do nothing in the window make room.
    fn lay_out_rows(&mut self) {
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
    fn is_busy(&self, lane: usize, window: &[(u64, u64)]) -> bool {
        self.rows_with(&[lane], 1)
            .into_iter()
            .any(|row| self.cells(row, window).first().is_some_and(|cell| cell.count > 0))
    }

    fn rows_with(&self, lanes: &[usize], depth: usize) -> Vec<Row> {
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
    fn show_row(&mut self) {
        let height = usize::from(self.lane_height());
        let at = self.rows.iter().position(|&row| row == self.row).unwrap_or(0);
        self.top = self.top.min(at).max((at + 1).saturating_sub(height));
        self.top = self.top.min(self.rows.len().saturating_sub(height));
    }

    // ---- what is where ----

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

    // ---- keys ----

    /// A key was pressed.
    pub fn key(&mut self, event: KeyEvent) -> Option<Effect> {
        match &mut self.mode {
            Mode::Normal => {
                self.message = None;
                let action = self.keymap.action(event, self.view)?;
                self.act(action)
            }
            Mode::Help { query, top } => {
                match event.code {
                    KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Some(Effect::Quit);
                    }
                    KeyCode::Esc | KeyCode::Enter => self.mode = Mode::Normal,
                    KeyCode::Char('?' | 'q') if query.is_empty() => self.mode = Mode::Normal,
                    KeyCode::Backspace => drop(query.pop()),
                    KeyCode::Down => *top += 1,
                    KeyCode::Up => *top = top.saturating_sub(1),
                    KeyCode::PageDown => *top += 10,
                    KeyCode::PageUp => *top = top.saturating_sub(10),
                    KeyCode::Char(c) => {
                        query.push(c);
                        *top = 0;
                    }
                    _ => {}
                }
                None
            }
            Mode::Prompt { asks, text } => {
                match event.code {
                    KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => {
                        self.mode = Mode::Normal
                    }
                    KeyCode::Esc => self.mode = Mode::Normal,
                    KeyCode::Backspace => drop(text.pop()),
                    KeyCode::Char(c) => text.push(c),
                    KeyCode::Enter => {
                        let (asks, text) = (*asks, std::mem::take(text));
                        self.mode = Mode::Normal;
                        self.answered(asks, text);
                    }
                    _ => {}
                }
                None
            }
            Mode::Save => {
                self.mode = Mode::Normal;
                match event.code {
                    KeyCode::Char('s') => Some(Effect::Save(SaveAs::Svg)),
                    KeyCode::Char('t') => Some(Effect::Save(SaveAs::Text)),
                    _ => None,
                }
            }
        }
    }

    /// The mouse did something; only when it is on.
    pub fn mouse(&mut self, event: MouseEvent) {
        if self.view != View::Timeline || self.mode != Mode::Normal {
            return;
        }
        let column =
            event.column.checked_sub(self.label_width()).filter(|&column| column < self.plot_width());
        match (event.kind, column) {
            (MouseEventKind::ScrollUp | MouseEventKind::ScrollDown, _) => {
                if let Some(column) = column {
                    self.cursor = self.rec.axis.column(self.window, self.plot_width(), column).0;
                }
                self.zoom(event.kind == MouseEventKind::ScrollUp);
            }
            (MouseEventKind::Down(MouseButton::Left), Some(column)) => {
                let first = 1 + FIXED_ROWS + u16::from(self.has_run_ahead());
                if event.row == 1 {
                    // On the minimap: go there.
                    let whole = self.rec.axis.whole();
                    let at = self.rec.axis.column(whole, self.plot_width(), column).0;
                    self.cursor = at;
                    let start = at.saturating_sub(self.window.len / 2);
                    self.window = Window { start, ..self.window }.clamped(&self.rec.axis);
                    return;
                }
                self.cursor = self.rec.axis.column(self.window, self.plot_width(), column).0;
                self.wait = None;
                let row = event.row.checked_sub(first).filter(|&row| row < self.lane_height());
                if let Some(&row) = row.and_then(|row| self.rows.get(self.top + usize::from(row))) {
                    self.row = row;
                }
            }
            _ => {}
        }
    }

    fn answered(&mut self, asks: Asks, text: String) {
        match asks {
            Asks::Filter => {
                self.filter = text;
                self.order_sites();
                self.site_row = 0;
                if self.sites_shown.is_empty() {
                    self.message = Some(format!("no site has '{}' in it", self.filter));
                }
            }
            Asks::Search if text.is_empty() => {
                self.query = None;
                self.hits = Hits::default();
            }
            Asks::Search => {
                let query = Query::new(&text, &self.rec);
                self.hits = query.count(&self.rec);
                self.query = Some(query);
                self.find(true);
            }
        }
    }

    /// Does what an action asks for.
    pub fn act(&mut self, action: Action) -> Option<Effect> {
        let window = self.window;
        let effect = self.act_at_once(action);
        if self.window != window {
            self.lay_out_rows();
        }
        effect
    }

    fn act_at_once(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Help => self.mode = Mode::Help { query: String::new(), top: 0 },
            Action::Show(view) => self.show(view),
            Action::Back => self.back(),
            Action::Search => self.mode = Mode::Prompt { asks: Asks::Search, text: String::new() },
            Action::Filter => {
                self.mode = Mode::Prompt { asks: Asks::Filter, text: self.filter.clone() };
            }
            Action::Save => self.mode = Mode::Save,
            Action::Mouse => {
                self.mouse = !self.mouse;
                self.message = Some(format!("mouse {}", if self.mouse { "on" } else { "off" }));
                return Some(Effect::Mouse(self.mouse));
            }
            Action::CopyFingerprint => {
                let Some(site) = self.current_site() else {
                    return self.say("there is no site under the cursor");
                };
                let fingerprint = self.rec.judged.audit.sites[site].fingerprint.clone();
                self.message = Some(format!("copied {fingerprint}"));
                return Some(Effect::Copy(fingerprint));
            }
            Action::Edit => return self.edit(),
            Action::NextHit => self.find(true),
            Action::PreviousHit => self.find(false),
            Action::Order => self.next_order(),
            Action::NextPane => self.next_pane(),
            Action::Enter => self.enter(),
            Action::NextStep => self.neighbour_step(true),
            Action::PreviousStep => self.neighbour_step(false),
            Action::NextWait => self.neighbour_wait(true),
            Action::PreviousWait => self.neighbour_wait(false),
            Action::ZoomIn => self.zoom(true),
            Action::ZoomOut => self.zoom(false),
            Action::ZoomAll => {
                self.remember();
                self.window = self.rec.axis.whole();
            }
            Action::Left => self.move_cursor(-1),
            Action::Right => self.move_cursor(1),
            Action::PanLeft => self.pan(false),
            Action::PanRight => self.pan(true),
            Action::Bookmark => self.bookmark(),
            Action::NextBookmark => self.next_bookmark(),
            Action::Up => self.move_by(-1),
            Action::Down => self.move_by(1),
            Action::PageUp => self.move_by(-i64::from(self.list_height())),
            Action::PageDown => self.move_by(i64::from(self.list_height())),
            Action::First => self.go_to_end(false),
            Action::Last => self.go_to_end(true),
        }
        None
    }

    fn say(&mut self, text: &str) -> Option<Effect> {
        self.message = Some(text.to_owned());
        None
    }

    fn show(&mut self, view: View) {
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

    fn remember(&mut self) {
        let now = (self.view, self.window, self.cursor, self.row, self.wait);
        if self.before.last() != Some(&now) {
            self.before.push(now);
            // Nobody goes back further.
            if self.before.len() > 200 {
                self.before.remove(0);
            }
        }
    }

    fn back(&mut self) {
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

    fn enter(&mut self) {
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

    fn enter_rank(&mut self) {
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

    fn open_site(&mut self, site: usize, wait: Option<usize>) {
        self.remember();
        self.site = site;
        self.scroll = 0;
        self.site_text_focus = false;
        let waits = &self.rec.of_site[site];
        self.occurrence = wait.and_then(|wait| waits.iter().position(|&id| id as usize == wait)).unwrap_or(0);
        self.view = View::Site;
    }

    fn bounds(&self, item: Item) -> Option<(u64, u64)> {
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

    // ---- moving in the timeline ----

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

    fn put_cursor_on(&mut self, wait: usize) {
        self.wait = Some(wait);
        self.cursor =
            self.rec.axis.position(self.rec.judged.audit.waits[wait].start_ns).min(self.rec.axis.len() - 1);
        if let Some(lane) = self.rec.lane_of_wait(wait) {
            self.select(Row { lane, part: Part::Waits });
        }
    }

    /// Selects a row; a lane that was left out comes back for it.
    fn select(&mut self, row: Row) {
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

    fn neighbour_wait(&mut self, next: bool) {
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

    fn neighbour_step(&mut self, next: bool) {
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

    fn zoom(&mut self, inwards: bool) {
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

    fn pan(&mut self, right: bool) {
        let half = (self.window.len / 2).max(1);
        let start = if right { self.window.start + half } else { self.window.start.saturating_sub(half) };
        self.window = Window { start, ..self.window }.clamped(&self.rec.axis);
        self.cursor = self.cursor.clamp(self.window.start, self.window.start + self.window.len - 1);
        self.wait = None;
    }

    fn move_cursor(&mut self, columns: i32) {
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

    fn bookmark(&mut self) {
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

    fn next_bookmark(&mut self) {
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

    fn next_pane(&mut self) {
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

    // ---- moving in lists ----

    fn move_by(&mut self, rows: i64) {
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

    fn go_to_end(&mut self, last: bool) {
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

    fn next_order(&mut self) {
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

    fn order_sites(&mut self) {
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

    fn order_steps(&mut self) {
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

    // ---- search, editor ----

    fn find(&mut self, next: bool) {
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

    fn find_in_timeline(&mut self, next: bool) {
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

    fn edit(&mut self) -> Option<Effect> {
        let Some(site) = self.current_site() else { return self.say("there is no site under the cursor") };
        let frame: Option<&Frame> = self.rec.judged.audit.sites[site].place();
        match frame.filter(|frame| frame.line > 0 && !frame.path.is_empty()) {
            Some(frame) if std::path::Path::new(&frame.path).is_file() => {
                Some(Effect::Edit { path: frame.path.clone(), line: frame.line })
            }
            Some(frame) => {
                self.message = Some(format!("{} is not on this machine", frame.file));
                None
            }
            None => self.say("the source line of this site is not known"),
        }
    }

    /// The step in the middle of what is shown.
    #[must_use]
    pub fn current_step(&self) -> Option<usize> {
        self.rec.step_at(self.process(), self.rec.axis.time_ns(self.cursor).min(OPEN - 1))
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
