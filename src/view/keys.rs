//! Which key does what, and where: one table for the keyboard, the footer, the help and the configuration file.
//!
//! In: the table, and bindings of the user's file. Out: the action of a key. What is in the table works: an action that a
//! view doesn't know isn't offered there.

use std::fmt;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rustc_hash::FxHashMap as HashMap;

use super::state::View;

/// What a key can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Quit,
    Interrupt,
    Help,
    Enter,
    Back,
    Left,
    Right,
    Up,
    Down,
    PageUp,
    PageDown,
    PanLeft,
    PanRight,
    First,
    Last,
    ZoomIn,
    ZoomOut,
    ZoomAll,
    NextWait,
    PreviousWait,
    NextStep,
    PreviousStep,
    NextPane,
    Show(View),
    Search,
    NextHit,
    PreviousHit,
    Filter,
    Order,
    Bookmark,
    NextBookmark,
    Copy,
    Edit,
    Save,
    Mouse,
    Suspend,
}

/// A key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    ctrl: bool,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    pub action: Action,
    /// Name in the configuration file.
    pub name: &'static str,
    defaults: &'static [&'static str],
    /// A word for the footer; empty: not in the footer.
    pub short: &'static str,
    pub help: &'static str,
    works: fn(View) -> bool,
}

fn everywhere(_: View) -> bool {
    true
}

fn timeline(view: View) -> bool {
    view == View::Timeline
}

fn steps_move(view: View) -> bool {
    matches!(view, View::Timeline | View::Steps)
}

fn about_a_site(view: View) -> bool {
    matches!(view, View::Timeline | View::Sites | View::Site)
}

fn not_report(view: View) -> bool {
    view != View::Report
}

const fn row(
    action: Action,
    name: &'static str,
    defaults: &'static [&'static str],
    short: &'static str,
    help: &'static str,
    works: fn(View) -> bool,
) -> Binding {
    Binding { action, name, defaults, short, help, works }
}

/// All bindings, in the order in which help and footer show them.
pub const BINDINGS: &[Binding] = &[
    row(
        Action::NextWait,
        "next-wait",
        &["w"],
        "next wait",
        "go to the next wait, on whatever thread",
        timeline,
    ),
    row(Action::PreviousWait, "previous-wait", &["W"], "", "go to the previous wait", timeline),
    row(Action::PreviousStep, "previous-step", &["["], "step before", "show the previous step", steps_move),
    row(Action::NextStep, "next-step", &["]"], "step after", "show the next step", steps_move),
    row(
        Action::Enter,
        "enter",
        &["enter"],
        "open",
        "open what is selected: a wait's site, a step or occurrence in the timeline, a range as wide as the screen",
        not_report,
    ),
    row(
        Action::Back,
        "back",
        &["esc", "backspace"],
        "back",
        "go back to where you were, zoom and view alike",
        everywhere,
    ),
    row(
        Action::ZoomIn,
        "zoom-in",
        &["+", "="],
        "zoom in",
        "zoom in at the cursor (the mouse wheel does it too, after `m`)",
        timeline,
    ),
    row(Action::ZoomOut, "zoom-out", &["-"], "zoom out", "zoom out", timeline),
    row(Action::ZoomAll, "zoom-all", &["0"], "", "show the whole run", timeline),
    row(Action::Left, "left", &["left", "h"], "", "move the cursor a column to the left", timeline),
    row(Action::Right, "right", &["right", "l"], "", "move the cursor a column to the right", timeline),
    row(Action::PanLeft, "pan-left", &["H", "<"], "", "move the picture half a screen to the left", timeline),
    row(
        Action::PanRight,
        "pan-right",
        &["L", ">"],
        "",
        "move the picture half a screen to the right",
        timeline,
    ),
    row(Action::Up, "up", &["up", "k"], "", "up a row", everywhere),
    row(Action::Down, "down", &["down", "j"], "", "down a row", everywhere),
    row(Action::PageUp, "page-up", &["pageup", "ctrl-b"], "", "up a screen", everywhere),
    row(Action::PageDown, "page-down", &["pagedown", "ctrl-f"], "", "down a screen", everywhere),
    row(Action::First, "first", &["g", "home"], "", "to the first one, or the start of the run", everywhere),
    row(Action::Last, "last", &["G", "end"], "", "to the last one, or the end of the run", everywhere),
    row(
        Action::NextPane,
        "next-pane",
        &["tab"],
        "pane",
        "to the next pane: text and occurrences of a site, lanes of the timeline",
        |view| matches!(view, View::Timeline | View::Site),
    ),
    row(Action::Search, "search", &["/"], "search", "search functions, files, ranges and APIs", everywhere),
    row(Action::NextHit, "next-hit", &["n"], "", "next match", everywhere),
    row(Action::PreviousHit, "previous-hit", &["N"], "", "previous match", everywhere),
    row(
        Action::Filter,
        "filter",
        &["f"],
        "filter",
        "show only sites with a word in place, kind, status, range, operator or API",
        |view| view == View::Sites,
    ),
    row(
        Action::Order,
        "order",
        &["o"],
        "order",
        "next order: worst first, waits, host time, place (of sites); time, waits, host time (of steps)",
        |view| matches!(view, View::Sites | View::Steps),
    ),
    row(Action::Bookmark, "bookmark", &["b"], "", "set or remove a bookmark at the cursor", timeline),
    row(Action::NextBookmark, "next-bookmark", &["'"], "", "go to the next bookmark", timeline),
    row(
        Action::Copy,
        "copy",
        &["y"],
        "copy",
        "copy the site's fingerprint or an entry of the allow-list (through the terminal, OSC 52)",
        about_a_site,
    ),
    row(Action::Edit, "edit", &["e"], "edit", "open the source line in $VISUAL or $EDITOR", about_a_site),
    row(
        Action::Save,
        "save",
        &["s"],
        "save",
        "save what is visible as SVG, text or (of the timeline) for Perfetto",
        everywhere,
    ),
    row(
        Action::Mouse,
        "mouse",
        &["m"],
        "",
        "mouse on or off: the wheel zooms, a click sets the cursor",
        timeline,
    ),
    row(Action::Show(View::Timeline), "timeline", &["1"], "", "the timeline", everywhere),
    row(Action::Show(View::Sites), "sites", &["2"], "", "the sites: places that wait", everywhere),
    row(Action::Show(View::Steps), "steps", &["3"], "", "the steps", everywhere),
    row(Action::Show(View::Ranks), "ranks", &["4"], "", "the ranks, when there is more than one", everywhere),
    row(
        Action::Show(View::Report),
        "report",
        &["5"],
        "",
        "the report as text: verdict, why, what next, notes",
        everywhere,
    ),
    row(Action::Suspend, "suspend", &["ctrl-z"], "", "leave for the shell; `fg` comes back", everywhere),
    row(Action::Help, "help", &["?"], "help", "this list; type to search in it", everywhere),
    row(
        Action::Quit,
        "quit",
        &["q"],
        "quit",
        "leave; a program that runs with `run --live` goes on",
        everywhere,
    ),
    row(
        Action::Interrupt,
        "interrupt",
        &["ctrl-c"],
        "",
        "interrupt the program of `run --live`; leave where none runs",
        everywhere,
    ),
];

impl Binding {
    /// Whether this does something in the view.
    #[must_use]
    pub fn works_in(&self, view: View) -> bool {
        (self.works)(view)
    }
}

/// The bindings in force.
#[derive(Clone, Debug)]
pub struct Keymap {
    actions: HashMap<Key, Action>,
    keys: HashMap<Action, Vec<Key>>,
}

impl Default for Keymap {
    fn default() -> Self {
        let mut map = Self { actions: HashMap::default(), keys: HashMap::default() };
        for binding in BINDINGS {
            let keys = binding.defaults.iter().filter_map(|key| key.parse().ok()).collect();
            map.bind(binding.action, keys);
        }
        map
    }
}

impl Keymap {
    fn bind(&mut self, action: Action, keys: Vec<Key>) {
        for &key in &keys {
            self.actions.insert(key, action);
        }
        self.keys.insert(action, keys);
    }

    /// Gives an action other keys than it had. A key that is taken goes over to it.
    pub fn rebind(&mut self, action: Action, keys: Vec<Key>) {
        self.actions.retain(|_, owner| *owner != action);
        for owned in self.keys.values_mut() {
            owned.retain(|key| !keys.contains(key));
        }
        self.bind(action, keys);
    }

    /// What a key asks for in a view.
    #[must_use]
    pub fn action(&self, event: KeyEvent, view: View) -> Option<Action> {
        let action = *self.actions.get(&Key::of(event))?;
        BINDINGS.iter().any(|binding| binding.action == action && binding.works_in(view)).then_some(action)
    }

    /// The keys of an action.
    #[must_use]
    pub fn keys(&self, action: Action) -> String {
        let keys = self.keys.get(&action).map(Vec::as_slice).unwrap_or_default();
        keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    /// The first key of an action, if it has any.
    #[must_use]
    pub fn key(&self, action: Action) -> Option<String> {
        self.keys.get(&action)?.first().map(ToString::to_string)
    }
}

impl Key {
    fn of(event: KeyEvent) -> Self {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        let code = match event.code {
            KeyCode::Char(c) if ctrl => KeyCode::Char(c.to_ascii_lowercase()),
            code => code,
        };
        Self { code, ctrl }
    }
}

const NAMED: [(&str, KeyCode); 13] = [
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("backspace", KeyCode::Backspace),
    ("tab", KeyCode::Tab),
    ("space", KeyCode::Char(' ')),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
];

impl std::str::FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ctrl, name) = match text.strip_prefix("ctrl-") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let mut chars = name.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) => Some(KeyCode::Char(c)),
            _ => NAMED.iter().find(|(known, _)| *known == name).map(|&(_, code)| code),
        };
        code.map(|code| Self { code, ctrl }).ok_or_else(|| {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            format!(
                "'{text}' is no key; give a character or one of {}, with `ctrl-` in front if need be",
                names.join(", ")
            )
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("ctrl-")?;
        }
        match (NAMED.iter().find(|(_, code)| *code == self.code), self.code) {
            (Some((name, _)), _) => f.write_str(name),
            (None, KeyCode::Char(c)) => write!(f, "{c}"),
            (None, code) => write!(f, "{code:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_is_bound_twice_and_no_name_is_used_twice() {
        let mut keys = HashSet::new();
        let mut names = HashSet::new();
        for binding in BINDINGS {
            assert!(names.insert(binding.name), "{}", binding.name);
            assert!(!binding.defaults.is_empty() && !binding.help.is_empty());
            for text in binding.defaults {
                let key: Key = text.parse().unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(key.to_string(), *text);
                assert!(keys.insert(key), "{text} is bound twice");
            }
        }
    }

    #[test]
    fn a_rebound_action_has_its_new_keys_only() {
        let mut map = Keymap::default();
        map.rebind(Action::NextWait, ["ctrl-n", "q"].map(|key| key.parse().unwrap()).to_vec());
        let press = |c, modifiers| KeyEvent::new(KeyCode::Char(c), modifiers);
        let plain = KeyModifiers::NONE;
        assert_eq!(map.action(press('n', KeyModifiers::CONTROL), View::Timeline), Some(Action::NextWait));
        assert_eq!(map.action(press('w', plain), View::Timeline), None);
        assert_eq!(map.action(press('q', plain), View::Timeline), Some(Action::NextWait));
        assert_eq!(map.keys(Action::Quit), "");
    }
}
