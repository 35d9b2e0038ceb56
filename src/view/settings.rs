//! The user's own keys and looks: `view.toml`.
//!
//! In: a file. Out: a [`Keymap`] and a [`Theme`]. A mistake in it is named with its place, never passed over.
//!
//! ```toml
//! [keys]                      # the names are those of docs/tui.md
//! next-wait = ["w", "ctrl-n"]
//!
//! [theme]
//! colours = "16"              # full, 256, 16 or none
//! ascii = true
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::keys::Keymap;
use super::theme::{Palette, Theme};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    keys: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    theme: ThemeTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThemeTable {
    colours: Option<Colours>,
    ascii: Option<bool>,
}

#[derive(Clone, Copy, Deserialize)]
enum Colours {
    #[serde(rename = "full")]
    Full,
    #[serde(rename = "256")]
    Indexed,
    #[serde(rename = "16")]
    Sixteen,
    #[serde(rename = "none")]
    None,
}

/// Where the file is looked for when none is named.
#[must_use]
pub fn default_path(get: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let get = |name: &str| get(name).filter(|value| !value.is_empty());
    let folder = get("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&get("HOME")?).join(".config")))?;
    Some(folder.join("syncaudit/view.toml"))
}

/// Applies the text of a settings file to the defaults.
///
/// # Errors
/// What is wrong, with its place, as full sentences.
pub fn apply(text: &str, theme: Theme) -> Result<(Keymap, Theme), String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut keymap = Keymap::default();
    for (name, keys) in &file.keys {
        keymap.rebind(name, keys)?;
    }
    let palette = match file.theme.colours {
        // NO_COLOR goes before a file.
        _ if theme.palette == Palette::None => Palette::None,
        Some(Colours::Full) => Palette::Full,
        Some(Colours::Indexed) => Palette::Indexed,
        Some(Colours::Sixteen) => Palette::Sixteen,
        Some(Colours::None) => Palette::None,
        None => theme.palette,
    };
    Ok((keymap, Theme { palette, ascii: file.theme.ascii.unwrap_or(theme.ascii) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_sets_keys_and_looks_and_its_mistakes_are_named() {
        let (keymap, theme) =
            apply("[keys]\nquit = [\"x\"]\n[theme]\ncolours = \"16\"\nascii = true\n", Theme::default())
                .unwrap();
        assert_eq!(keymap.keys(super::super::keys::Action::Quit), "x");
        assert_eq!(theme, Theme { palette: Palette::Sixteen, ascii: true });
        assert!(apply("[keys]\nfly = [\"x\"]", theme).is_err());
        assert!(apply("[theme]\ncolors = \"16\"", theme).unwrap_err().contains("colors"));
        let none = Theme { palette: Palette::None, ascii: false };
        assert_eq!(apply("[theme]\ncolours = \"full\"", none).unwrap().1.palette, Palette::None);
    }

    #[test]
    fn the_file_is_looked_for_where_settings_are() {
        let home = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        assert_eq!(default_path(home), Some("/h/.config/syncaudit/view.toml".into()));
        assert_eq!(default_path(|_| None), None);
    }
}
