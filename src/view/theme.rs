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
        Self { palette, ascii: !(locale.contains("utf-8") || locale.contains("utf8")) }
    }

    fn hue(self, hue: Hue) -> Style {
        let (rgb, indexed, sixteen) = match hue {
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
        let hue = match kind {
            WaitKind::DeviceToHostRead => Hue::Vermilion,
            WaitKind::HostToDeviceWrite => Hue::Orange,
            WaitKind::StreamSync => Hue::Sky,
            WaitKind::EventSync => Hue::Blue,
            WaitKind::DeviceSync => Hue::Purple,
            WaitKind::MemoryManagement => Hue::Green,
            WaitKind::ModuleLoad => Hue::Yellow,
            WaitKind::LaunchQueueFull | WaitKind::Polling | WaitKind::Unclassified => Hue::Grey,
        };
        self.hue(hue).add_modifier(Modifier::BOLD)
    }

    /// Several waits of whatever kinds.
    #[must_use]
    pub fn waits(self) -> Style {
        self.hue(Hue::Vermilion).add_modifier(Modifier::BOLD)
    }

    /// A kind of step.
    #[must_use]
    pub fn step(self, kind: StepKind, over_budget: bool) -> Style {
        match kind {
            _ if over_budget => self.hue(Hue::Vermilion),
            StepKind::Ordinary => self.hue(Hue::Green),
            StepKind::Log => self.hue(Hue::Sky),
            StepKind::Warmup | StepKind::Unfinished => self.dim(),
        }
    }

    /// What a site means for the verdict.
    #[must_use]
    pub fn status(self, status: SiteStatus) -> Style {
        match status {
            SiteStatus::OverBudget => self.hue(Hue::Vermilion).add_modifier(Modifier::BOLD),
            SiteStatus::Allowed => self.hue(Hue::Green),
            SiteStatus::LogStep => self.hue(Hue::Sky),
            SiteStatus::Warmup | SiteStatus::Outside => self.dim(),
        }
    }

    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Style {
        let hue = match verdict {
            Verdict::Pass => Hue::Green,
            Verdict::Fail => Hue::Vermilion,
            Verdict::Inconclusive => Hue::Yellow,
        };
        self.hue(hue).add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    /// Ranges and calls: there, but not what is looked for.
    #[must_use]
    pub fn range(self) -> Style {
        self.hue(Hue::Blue)
    }

    /// Device work.
    #[must_use]
    pub fn device(self) -> Style {
        self.hue(Hue::Green)
    }

    /// What the selected wait waited for.
    #[must_use]
    pub fn cause(self) -> Style {
        self.hue(Hue::Yellow).add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    #[must_use]
    pub fn dim(self) -> Style {
        match self.palette {
            Palette::None => Style::new().add_modifier(Modifier::DIM),
            _ => self.hue(Hue::Grey),
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
        self.hue(Hue::Yellow).add_modifier(Modifier::BOLD)
    }

    /// A key in the footer.
    #[must_use]
    pub fn key(self) -> Style {
        self.hue(Hue::Sky).add_modifier(Modifier::BOLD)
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
        assert_eq!(theme(&[utf8, ("TERM", "linux")]), Theme { palette: Palette::Sixteen, ascii: false });
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
        let theme = Theme { palette: Palette::None, ascii: true };
        for kind in WaitKind::ALL {
            assert_eq!(theme.wait(kind).fg, None);
        }
        let all = [theme.wait_body(), theme.body(), theme.edge(), theme.line(), theme.shade(1), theme.bar(1)];
        assert!(all.iter().all(char::is_ascii) && theme.arrow().is_ascii() && theme.more().is_ascii());
        assert_ne!(theme.bar(log_level(1, 8)), ' ');
    }
}
