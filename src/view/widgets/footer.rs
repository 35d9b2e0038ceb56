//! Last line: what was just said, what is being asked, or the keys that work here.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{put, put_clipped};
use crate::view::keys::{Action, BINDINGS};
use crate::view::state::{App, Asks, Mode, View};
use crate::view::theme::Theme;

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let width = area.width;
    match &app.mode {
        Mode::Prompt { asks, text } => {
            let asks = match asks {
                Asks::Search => "search functions, files, ranges, APIs: ",
                Asks::Filter => "show only sites with: ",
            };
            let used = put(buf, area.x, area.y, width, asks, theme.key());
            let used = used + put(buf, area.x + used, area.y, width - used, text, theme.bold());
            put(buf, area.x + used, area.y, width - used, " ", theme.selected());
            return;
        }
        Mode::Save => {
            let perfetto = if app.view == View::Timeline { "   p Perfetto" } else { "" };
            let text = format!("save:  s SVG   t text{perfetto}   other keys: don't");
            put(buf, area.x, area.y, width, &text, theme.key());
            return;
        }
        Mode::Copy { .. } => {
            let text = "copy:  f fingerprint   a entry for the allow-list   other keys: don't";
            put(buf, area.x, area.y, width, text, theme.key());
            return;
        }
        Mode::Help { .. } => {
            put(buf, area.x, area.y, width, "type to search   up/down scroll   esc closes", theme.key());
            return;
        }
        Mode::Normal => {}
    }
    if let Some(message) = &app.message {
        put_clipped(buf, theme, (area.x, area.y), width, message, theme.mark());
        return;
    }
    let mut x = area.x;
    // Help and leaving must be there on the narrowest screen.
    let last: Vec<_> = [Action::Help, Action::Quit]
        .iter()
        .filter_map(|&action| {
            Some((app.keymap.key(action)?, BINDINGS.iter().find(|row| row.action == action)?.short))
        })
        .collect();
    let reserved: usize = last.iter().map(|(key, word)| key.len() + word.len() + 3).sum();
    let room = usize::from(width).saturating_sub(reserved);
    let mut used = 0;
    let mut shown = Vec::new();
    for row in BINDINGS.iter().filter(|row| !row.short.is_empty() && row.works_in(app.view)) {
        if matches!(row.action, Action::Help | Action::Quit) {
            continue;
        }
        let Some(key) = app.keymap.key(row.action) else { continue };
        used += key.len() + row.short.len() + 3;
        if used > room {
            break;
        }
        shown.push((key, row.short));
    }
    for (key, word) in shown.into_iter().chain(last) {
        let end = area.x + width;
        x += put(buf, x, area.y, end.saturating_sub(x), &key, theme.key());
        x += put(buf, x, area.y, end.saturating_sub(x), &format!(" {word}  "), theme.dim());
    }
}
