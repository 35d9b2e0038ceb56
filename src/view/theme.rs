//! How things look: colours, and the characters that stand for them.
//!
//! In: what the terminal can do and what the user set. Out: a style or a character per meaning. Colour never is the only sign:
//! every kind of wait has its letter, and what is selected is reversed. The eight colours are those of Okabe and Ito
//! ("Color Universal Design", 2008), which people with any colour vision tell apart.

use ratatui::style::{Color, Modifier, Style};

use crate::audit::{SiteStatus, StepKind, Verdict, WaitKind};

/// How many colours there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// 24 bits.
    #[default]
    Full,
    /// The fixed 256.
    Indexed,
    /// The terminal's own 16.
    Sixteen,
    /// Reversed and bold text only.
    None,
}

/// Colours and characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    pub palette: Palette,
    /// Nothing but ASCII.
    pub ascii: bool,
    /// The user's own colours, by [`Role::index`].
    pub own: [Option<Color>; Role::COUNT],
}

/// What has a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Wait(WaitKind),
    /// Several waits of whatever kinds in one column.
    Waits,
    OverBudget,
    /// Ordinary steps and waits that are allowed.
    WithinBudget,
    LogStep,
    Pass,
    Fail,
    Inconclusive,
    /// Ranges and calls.
    Range,
    Device,
    /// What the selected wait waited for.
    Cause,
    /// A marked line, a match, what was said.
    Mark,
    /// A key in the footer.
    Key,
    /// Labels, and what is not judged.
    Dim,
}

impl Role {
    const OTHERS: [Role; 13] = [
        Role::Waits,
        Role::OverBudget,
        Role::WithinBudget,
        Role::LogStep,
        Role::Pass,
        Role::Fail,
        Role::Inconclusive,
        Role::Range,
        Role::Device,
        Role::Cause,
        Role::Mark,
        Role::Key,
        Role::Dim,
    ];
    /// How many there are.
    pub const COUNT: usize = WaitKind::ALL.len() + Self::OTHERS.len();

    /// All of them.
    pub fn all() -> impl Iterator<Item = Role> {
        WaitKind::ALL.into_iter().map(Role::Wait).chain(Self::OTHERS)
    }

    fn index(self) -> usize {
        Self::all().position(|role| role == self).unwrap_or_default()
    }

    /// Name in the settings file.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Role::Wait(kind) => kind.id(),
            Role::Waits => "waits",
            Role::OverBudget => "over-budget",
            Role::WithinBudget => "within-budget",
            Role::LogStep => "log-step",
            Role::Pass => "pass",
            Role::Fail => "fail",
            Role::Inconclusive => "inconclusive",
            Role::Range => "range",
            Role::Device => "device",
            Role::Cause => "cause",
            Role::Mark => "mark",
            Role::Key => "key",
            Role::Dim => "dim",
        }
    }

    fn hue(self) -> Hue {
        match self {
            Role::Wait(WaitKind::DeviceToHostRead) | Role::Waits | Role::OverBudget | Role::Fail => {
                Hue::Vermilion
            }
            Role::Wait(WaitKind::HostToDeviceWrite) => Hue::Orange,
            Role::Wait(WaitKind::StreamSync) | Role::LogStep | Role::Key => Hue::Sky,
            Role::Wait(WaitKind::EventSync) | Role::Range => Hue::Blue,
            Role::Wait(WaitKind::DeviceSync) => Hue::Purple,
            Role::Wait(WaitKind::MemoryManagement) | Role::WithinBudget | Role::Pass | Role::Device => {
                Hue::Green
            }
            Role::Wait(WaitKind::ModuleLoad) | Role::Inconclusive | Role::Cause | Role::Mark => Hue::Yellow,
            Role::Wait(WaitKind::LaunchQueueFull | WaitKind::Polling | WaitKind::Unclassified)
            | Role::Dim => Hue::Grey,
        }
    }
}

#[derive(Clone, Copy)]
enum Hue {
    Orange,
    Sky,
    Green,
    Yellow,
    Blue,
    Vermilion,
    Purple,
    Grey,
}

impl Theme {
    /// What fits the environment (`NO_COLOR`, `COLORTERM`, `TERM`, the locale), read through `get`.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let term = get("TERM").unwrap_or_default();
        let palette = match get("COLORTERM").as_deref() {
            _ if get("NO_COLOR").is_some() || term == "dumb" => Palette::None,
            Some("truecolor" | "24bit") => Palette::Full,
            _ if term.contains("256color") => Palette::Indexed,
            _ => Palette::Sixteen,
        };
        let locale = get("LC_ALL").or_else(|| get("LC_CTYPE")).or_else(|| get("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let ascii = !(locale.contains("utf-8") || locale.contains("utf8"));
        Self { palette, ascii, ..Self::default() }
    }

    /// Gives something another colour. Where the terminal has no such colour, the usual one stays.
    pub fn set(&mut self, role: Role, colour: Color) {
        self.own[role.index()] = Some(colour);
    }

    fn colour(self, role: Role) -> Style {
        let has = |colour: &Color| match (self.palette, colour) {
            (Palette::None, _) => false,
            (Palette::Full, _) => true,
            (Palette::Indexed, colour) => !matches!(colour, Color::Rgb(..)),
            (Palette::Sixteen, colour) => !matches!(colour, Color::Rgb(..) | Color::Indexed(16..)),
        };
        if let Some(own) = self.own[role.index()].filter(has) {
            return Style::new().fg(own);
        }
        let (rgb, indexed, sixteen) = match role.hue() {
            Hue::Orange => ((0xe6, 0x9f, 0x00), 214, Color::Yellow),
            Hue::Sky => ((0x56, 0xb4, 0xe9), 74, Color::LightCyan),
            Hue::Green => ((0x00, 0x9e, 0x73), 36, Color::Green),
            Hue::Yellow => ((0xf0, 0xe4, 0x42), 227, Color::LightYellow),
            Hue::Blue => ((0x3d, 0x8f, 0xd1), 32, Color::LightBlue),
            Hue::Vermilion => ((0xe8, 0x6a, 0x1c), 202, Color::LightRed),
            Hue::Purple => ((0xcc, 0x79, 0xa7), 175, Color::LightMagenta),
            Hue::Grey => ((0x8a, 0x8a, 0x8a), 245, Color::DarkGray),
        };
        match self.palette {
            Palette::Full => Style::new().fg(Color::Rgb(rgb.0, rgb.1, rgb.2)),
            Palette::Indexed => Style::new().fg(Color::Indexed(indexed)),
            Palette::Sixteen => Style::new().fg(sixteen),
            Palette::None => Style::new(),
        }
    }

    /// A kind of wait.
    #[must_use]
    pub fn wait(self, kind: WaitKind) -> Style {
        self.colour(Role::Wait(kind)).add_modifier(Modifier::BOLD)
    }

    /// Several waits of whatever kinds.
    #[must_use]
    pub fn waits(self) -> Style {
        self.colour(Role::Waits).add_modifier(Modifier::BOLD)
    }

    /// A kind of step.
    #[must_use]
    pub fn step(self, kind: StepKind, over_budget: bool) -> Style {
        match kind {
            _ if over_budget => self.colour(Role::OverBudget),
            StepKind::Ordinary => self.colour(Role::WithinBudget),
            StepKind::Log => self.colour(Role::LogStep),
            StepKind::Warmup | StepKind::Unfinished => self.dim(),
        }
    }

    /// What a site means for the verdict.
    #[must_use]
    pub fn status(self, status: SiteStatus) -> Style {
        match status {
            SiteStatus::OverBudget => self.colour(Role::OverBudget).add_modifier(Modifier::BOLD),
            SiteStatus::Allowed => self.colour(Role::WithinBudget),
            SiteStatus::LogStep => self.colour(Role::LogStep),
            SiteStatus::Warmup | SiteStatus::Outside => self.dim(),
        }
    }

    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Style {
        let role = match verdict {
            Verdict::Pass => Role::Pass,
            Verdict::Fail => Role::Fail,
            Verdict::Inconclusive => Role::Inconclusive,
        };
        self.colour(role).add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    /// Ranges and calls: there, but not what is looked for.
    #[must_use]
    pub fn range(self) -> Style {
        self.colour(Role::Range)
    }

    /// Device work.
    #[must_use]
    pub fn device(self) -> Style {
        self.colour(Role::Device)
    }

    /// What the selected wait waited for.
    #[must_use]
    pub fn cause(self) -> Style {
        self.colour(Role::Cause).add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    #[must_use]
    pub fn dim(self) -> Style {
        match self.palette {
            Palette::None => Style::new().add_modifier(Modifier::DIM),
            _ => self.colour(Role::Dim),
        }
    }

    #[must_use]
    pub fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    #[must_use]
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A marked source line, a match.
    #[must_use]
    pub fn mark(self) -> Style {
        self.colour(Role::Mark).add_modifier(Modifier::BOLD)
    }

    /// A key in the footer.
    #[must_use]
    pub fn key(self) -> Style {
        self.colour(Role::Key).add_modifier(Modifier::BOLD)
    }

    /// A bar of eight heights; `level` 0 is nothing, more than 0 is never nothing.
    #[must_use]
    pub fn bar(self, level: u8) -> char {
        let bars = if self.ascii { " .:-=+*%#" } else { " ▁▂▃▄▅▆▇█" };
        bars.chars().nth(usize::from(level.min(8))).unwrap_or(' ')
    }

    /// How full a column is, from 1 to 4.
    #[must_use]
    pub fn shade(self, level: u8) -> char {
        let shades = if self.ascii { ".:=#" } else { "░▒▓█" };
        shades.chars().nth(usize::from(level.clamp(1, 4)) - 1).unwrap_or('#')
    }

    /// The body of a wait.
    #[must_use]
    pub fn wait_body(self) -> char {
        if self.ascii { '=' } else { '━' }
    }

    /// The body of a range or a call.
    #[must_use]
    pub fn body(self) -> char {
        if self.ascii { '-' } else { '─' }
    }

    /// Where something begins.
    #[must_use]
    pub fn edge(self) -> char {
        if self.ascii { '|' } else { '▏' }
    }

    /// A step boundary or the cursor, where nothing else is.
    #[must_use]
    pub fn line(self) -> char {
        if self.ascii { ':' } else { '┊' }
    }

    #[must_use]
    pub fn arrow(self) -> &'static str {
        if self.ascii { ">" } else { "▶" }
    }

    /// Stands for text that has no room.
    #[must_use]
    pub fn more(self) -> &'static str {
        if self.ascii { "~" } else { "…" }
    }
}

/// The letter of a kind of wait.
#[must_use]
pub fn letter(kind: WaitKind) -> char {
    match kind {
        WaitKind::DeviceToHostRead => 'R',
        WaitKind::HostToDeviceWrite => 'W',
        WaitKind::StreamSync => 'S',
        WaitKind::EventSync => 'E',
        WaitKind::DeviceSync => 'D',
        WaitKind::MemoryManagement => 'M',
        WaitKind::ModuleLoad => 'L',
        WaitKind::LaunchQueueFull => 'Q',
        WaitKind::Polling => 'P',
        WaitKind::Unclassified => 'U',
    }
}

/// Level from 0 to `most` for a count: doubles with each level, so that one is seen beside a thousand.
#[must_use]
pub fn log_level(count: u64, most: u8) -> u8 {
    let bits = u8::try_from(u64::BITS - count.leading_zeros()).unwrap_or(u8::MAX);
    bits.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn theme(pairs: &[(&str, &str)]) -> Theme {
        Theme::from_env(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_decides_about_colours_and_characters() {
        let utf8 = ("LANG", "de_DE.UTF-8");
        assert_eq!(theme(&[utf8, ("COLORTERM", "truecolor")]).palette, Palette::Full);
        assert_eq!(theme(&[utf8, ("COLORTERM", "truecolor"), ("NO_COLOR", "1")]).palette, Palette::None);
        assert_eq!(theme(&[utf8, ("NO_COLOR", ""), ("TERM", "xterm-256color")]).palette, Palette::Indexed);
        assert_eq!(
            theme(&[utf8, ("TERM", "linux")]),
            Theme { palette: Palette::Sixteen, ..Theme::default() }
        );
        assert!(theme(&[("LANG", "C")]).ascii && theme(&[]).ascii);
        assert!(!theme(&[("LC_ALL", "C.utf8"), ("LANG", "C")]).ascii);
    }

    #[test]
    fn every_kind_of_wait_has_a_letter_of_its_own() {
        let letters: HashSet<char> = WaitKind::ALL.into_iter().map(letter).collect();
        assert_eq!(letters.len(), WaitKind::ALL.len());
    }

    #[test]
    fn without_colours_no_colour_is_set_and_in_ascii_every_character_is() {
        let theme = Theme { palette: Palette::None, ascii: true, ..Theme::default() };
        for kind in WaitKind::ALL {
            assert_eq!(theme.wait(kind).fg, None);
        }
        let all = [theme.wait_body(), theme.body(), theme.edge(), theme.line(), theme.shade(1), theme.bar(1)];
        assert!(all.iter().all(char::is_ascii) && theme.arrow().is_ascii() && theme.more().is_ascii());
        assert_ne!(theme.bar(log_level(1, 8)), ' ');
    }
}
