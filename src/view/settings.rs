//! The user's own keys and looks: `view.toml`.
//!
//! In: a file. Out: a [`Keymap`] and a [`Theme`]. A mistake in it is named with its place and the closest thing that is known, never
//! passed over.
//!
//! ```toml
//! [keys]                      # the names are those of docs/tui.md
//! next-wait = ["w", "ctrl-n"]
//!
//! [theme]
//! colours = "16"              # full, 256, 16 or none
//! ascii = true
//!
//! [colours]                   # instead of the usual ones
//! stream-sync = "#56b4e9"
//! ```

use std::path::{Path, PathBuf};

use ratatui::style::Color;
use rustc_hash::FxHashMap as HashMap;
use toml::de::{DeTable, DeValue};

use super::keys::{BINDINGS, Key, Keymap};
use super::theme::{Palette, Role, Theme};
use crate::config::values::{Fault, Value, advice, choice, flag, in_order, items, table, text, unknown};
use crate::config::{ConfigError, parse_with, text_of};

const TOP: &[&str] = &["keys", "theme", "colours"];
const THEME: &[&str] = &["colours", "ascii"];
const PALETTES: &[(&str, Palette)] =
    &[("full", Palette::Full), ("256", Palette::Indexed), ("16", Palette::Sixteen), ("none", Palette::None)];

/// The terminal's own colours, by name.
pub const COLOURS: &[(&str, Color)] = &[
    ("black", Color::Black),
    ("red", Color::Red),
    ("green", Color::Green),
    ("yellow", Color::Yellow),
    ("blue", Color::Blue),
    ("magenta", Color::Magenta),
    ("cyan", Color::Cyan),
    ("gray", Color::Gray),
    ("dark-gray", Color::DarkGray),
    ("light-red", Color::LightRed),
    ("light-green", Color::LightGreen),
    ("light-yellow", Color::LightYellow),
    ("light-blue", Color::LightBlue),
    ("light-magenta", Color::LightMagenta),
    ("light-cyan", Color::LightCyan),
    ("white", Color::White),
];

/// Where the file is looked for when none is named.
#[must_use]
pub fn default_path(get: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let get = |name: &str| get(name).filter(|value| !value.is_empty());
    let folder = get("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&get("HOME")?).join(".config")))?;
    Some(folder.join("syncaudit/view.toml"))
}

/// Applies a settings file to the defaults.
///
/// # Errors
/// When it can't be read, and as [`apply`].
pub fn load(path: &Path, theme: Theme) -> Result<(Keymap, Theme), ConfigError> {
    apply(path, &text_of(path, "the settings file")?, theme)
}

/// Applies the text of a settings file to the defaults; `path` is for messages.
///
/// # Errors
/// What is wrong, with its place, as full sentences.
pub fn apply(path: &Path, text: &str, theme: Theme) -> Result<(Keymap, Theme), ConfigError> {
    parse_with(path, text, |root, _| read(root, theme))
}

fn read(root: &DeTable<'_>, mut theme: Theme) -> Result<(Keymap, Theme), Fault> {
    let mut keymap = Keymap::default();
    for (key, value) in in_order(root) {
        match key.get_ref().as_ref() {
            "keys" => keys(table(key, value)?, &mut keymap)?,
            "theme" => {
                for (key, value) in in_order(table(key, value)?) {
                    match key.get_ref().as_ref() {
                        "colours" => {
                            let palette = choice(key, value, PALETTES)?;
                            // NO_COLOR goes before a file.
                            if theme.palette != Palette::None {
                                theme.palette = palette;
                            }
                        }
                        "ascii" => theme.ascii = flag(key, value)?,
                        _ => return Err(unknown(key, "in [theme]", THEME)),
                    }
                }
            }
            "colours" => {
                for (key, value) in in_order(table(key, value)?) {
                    let Some(role) = Role::all().find(|role| role.id() == key.get_ref()) else {
                        let known: Vec<&str> = Role::all().map(Role::id).collect();
                        return Err(unknown(key, "in [colours]", &known));
                    };
                    theme.set(role, colour(value)?);
                }
            }
            _ => return Err(unknown(key, "in a settings file of the view", TOP)),
        }
    }
    Ok((keymap, theme))
}

fn keys(section: &DeTable<'_>, keymap: &mut Keymap) -> Result<(), Fault> {
    let mut given: HashMap<Key, &str> = HashMap::default();
    for (name, value) in in_order(section) {
        let Some(binding) = BINDINGS.iter().find(|binding| binding.name == name.get_ref()) else {
            let known: Vec<&str> = BINDINGS.iter().map(|binding| binding.name).collect();
            return Err(unknown(name, "as an action", &known));
        };
        let mut keys = Vec::new();
        for item in items(name, value, "[\"w\", \"ctrl-n\"]")? {
            let written = text(name, item)?;
            let key: Key = written.parse().map_err(|message| (item.span(), message))?;
            if let Some(other) = given.insert(key, binding.name) {
                return Err((item.span(), format!("'{written}' is a key of '{other}' already")));
            }
            keys.push(key);
        }
        keymap.rebind(binding.action, keys);
    }
    Ok(())
}

/// `"#56b4e9"`, `"light-blue"`, or the number of one of the fixed 256.
fn colour(value: &Value<'_>) -> Result<Color, Fault> {
    let fault = |found: &str, more: &str| {
        (
            value.span(),
            format!(
                "{found} is no colour: give #rrggbb, a number from 0 to 255, or the name of one of the terminal's own 16{more}"
            ),
        )
    };
    match value.get_ref() {
        DeValue::Integer(number) => match u8::from_str_radix(number.as_str(), number.radix()) {
            Ok(index) => Ok(Color::Indexed(index)),
            Err(_) => Err(fault(number.as_str(), "")),
        },
        DeValue::String(text) => {
            let named = COLOURS.iter().find(|(name, _)| name == text).map(|&(_, colour)| colour);
            let hex = text
                .strip_prefix('#')
                .filter(|hex| hex.len() == 6 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
            let rgb = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).map(Color::from_u32);
            named.or(rgb).ok_or_else(|| {
                let names: Vec<&str> = COLOURS.iter().map(|(name, _)| *name).collect();
                fault(&format!("'{text}'"), &format!("; {}", advice(text, &names)))
            })
        }
        other => Err(fault(other.type_str(), "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::WaitKind;
    use crate::view::keys::Action;

    fn applied(text: &str, theme: Theme) -> Result<(Keymap, Theme), ConfigError> {
        apply(Path::new("view.toml"), text, theme)
    }

    #[test]
    fn a_file_sets_keys_and_looks() {
        let text = "[keys]\nquit = [\"x\"]\nmouse = []\n[theme]\ncolours = \"16\"\nascii = true\n";
        let (keymap, theme) = applied(text, Theme::default()).unwrap();
        assert_eq!((keymap.keys(Action::Quit), keymap.key(Action::Mouse)), ("x".to_owned(), None));
        assert_eq!((theme.palette, theme.ascii), (Palette::Sixteen, true));
        let none = Theme { palette: Palette::None, ..Theme::default() };
        assert_eq!(applied("[theme]\ncolours = \"full\"", none).unwrap().1.palette, Palette::None);
    }

    #[test]
    fn a_colour_of_the_users_takes_the_place_of_the_usual_one_where_the_terminal_has_it() {
        let text = "[colours]\nstream-sync = '#010203'\nevent-sync = 200\ndim = 'light-cyan'\n";
        let theme = applied(text, Theme::default()).unwrap().1;
        let [stream, event] = [WaitKind::StreamSync, WaitKind::EventSync];
        assert_eq!(theme.wait(stream).fg, Some(Color::Rgb(1, 2, 3)));
        assert_eq!(theme.wait(event).fg, Some(Color::Indexed(200)));
        assert_eq!(theme.dim().fg, Some(Color::LightCyan));
        let usual = |palette| Theme { palette, ..Theme::default() };
        let fewer = |palette| {
            let mut fewer = theme;
            fewer.palette = palette;
            fewer
        };
        let sixteen = fewer(Palette::Sixteen);
        assert_eq!(sixteen.wait(stream), usual(Palette::Sixteen).wait(stream));
        assert_eq!(sixteen.wait(event), usual(Palette::Sixteen).wait(event));
        assert_eq!(sixteen.dim().fg, Some(Color::LightCyan));
        assert_eq!(fewer(Palette::Indexed).wait(event).fg, Some(Color::Indexed(200)));
        assert_eq!(fewer(Palette::None).dim(), usual(Palette::None).dim());
    }

    #[test]
    fn mistakes_are_named_where_they_stand_with_the_closest_thing_that_is_known() {
        for (text, line, column, part) in [
            ("[key]\n", 1, 2, "did you mean 'keys'?"),
            ("[keys]\nnext-wiat = ['w']", 2, 1, "did you mean 'next-wait'?"),
            ("[keys]\nquit = 'x'", 2, 8, "list of texts, for example [\"w\""),
            ("[keys]\nquit = ['x', 'hyper-y']", 2, 14, "'hyper-y' is no key"),
            ("[keys]\nquit = ['x']\nhelp = ['F1', 'x']", 3, 9, "'F1' is no key"),
            ("[keys]\nquit = ['x']\nhelp = ['x']", 3, 9, "'x' is a key of 'quit' already"),
            ("[theme]\ncolors = '16'", 2, 1, "did you mean 'colours'?"),
            ("[theme]\ncolours = '8'", 2, 11, "known are: full, 256, 16, none"),
            ("[theme]\nascii = 'yes'", 2, 9, "true or false"),
            ("[colours]\nstream-synk = 'red'", 2, 1, "did you mean 'stream-sync'?"),
            ("[colours]\ndim = 'lihgt-blue'", 2, 7, "did you mean 'light-blue'?"),
            ("[colours]\ndim = '#12345'", 2, 7, "is no colour"),
            ("[colours]\ndim = '#+12345'", 2, 7, "is no colour"),
            ("[colours]\ndim = 256", 2, 7, "256 is no colour"),
            ("[colours]\ndim = true", 2, 7, "is no colour"),
            ("colours = 'red'", 1, 11, "is a section"),
            ("[theme\n", 1, 7, "no TOML"),
        ] {
            let error = applied(text, Theme::default()).map(|_| ()).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            assert!(error.text.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_file_is_looked_for_where_settings_are() {
        let home = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        assert_eq!(default_path(home), Some("/h/.config/syncaudit/view.toml".into()));
        assert_eq!(default_path(|_| None), None);
    }
}
