//! Keys and the mouse: which part of the state they change, and the questions that are being answered.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::{App, Asks, Effect, FIXED_ROWS, Live, Mode, SaveAs, View};
use crate::audit::Frame;
use crate::config::allow_entry;
use crate::gate::judged_per_step;
use crate::view::axis::Window;
use crate::view::keys::Action;
use crate::view::search::{Hits, Query};

impl App {
    /// A key was pressed.
    pub fn key(&mut self, event: KeyEvent) -> Option<Effect> {
        self.touched = true;
        match &mut self.mode {
            Mode::Normal => {
                self.message = None;
                let action = self.keymap.action(event, self.view)?;
                self.act(action)
            }
            Mode::Help { query, top } => {
                match event.code {
                    KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => {
                        return self.act(Action::Interrupt);
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
                    KeyCode::Char('p') if self.view == View::Timeline => Some(Effect::Save(SaveAs::Perfetto)),
                    _ => None,
                }
            }
            &mut Mode::Copy { site } => {
                self.mode = Mode::Normal;
                let audit = &self.rec.judged.audit;
                let found = audit.sites.get(site)?;
                let fingerprint = found.fingerprint.clone();
                match event.code {
                    KeyCode::Char('f' | 'y') => {
                        self.message = Some(format!("copied {fingerprint}"));
                        Some(Effect::Copy(fingerprint))
                    }
                    KeyCode::Char('a') => {
                        let most = judged_per_step(audit).get(site).copied().unwrap_or(0);
                        let entry = allow_entry(found, most);
                        self.message = Some(format!("copied an entry for {fingerprint}: fill in its reason"));
                        Some(Effect::Copy(entry))
                    }
                    _ => None,
                }
            }
        }
    }

    /// The mouse did something; only when it is on.
    pub fn mouse(&mut self, event: MouseEvent) {
        self.touched = true;
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
                let first = 1 + FIXED_ROWS + self.run_ahead_height();
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

    pub(super) fn answered(&mut self, asks: Asks, text: String) {
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

    pub(super) fn act_at_once(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Interrupt if self.live == Live::Runs => return Some(Effect::Interrupt),
            Action::Interrupt => return Some(Effect::Quit),
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
            Action::Copy => match self.current_site() {
                Some(site) => self.mode = Mode::Copy { site },
                None => return self.say("there is no site under the cursor"),
            },
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

    pub(super) fn edit(&mut self) -> Option<Effect> {
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
}
