//! How far the host was ahead of the device at the end of each step, or why that is not known.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{put, put_clipped, step_strip};
use crate::report::words::duration;
use crate::view::state::App;
use crate::view::theme::Theme;

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let label = app.label_width();
    put(buf, area.x, area.y, label - 1, "run-ahead", theme.dim());
    let all = match &app.run_ahead_ns {
        Ok(all) => all,
        Err(why) => {
            let room = area.width.saturating_sub(label);
            put_clipped(buf, theme, (area.x + label, area.y), room, why, theme.dim());
            return;
        }
    };
    let most = all.iter().flatten().copied().max().unwrap_or(0).max(1);
    for (step, from, to) in step_strip::visible(app) {
        let x = area.x + label + from;
        let width = (to + 1).saturating_sub(from).min((area.x + area.width).saturating_sub(x));
        let Some(ahead_ns) = all[step] else {
            let text = if width < 30 { "?" } else { "not known: no kernel of it" };
            put(buf, x, area.y, width, text, theme.dim());
            continue;
        };
        let level = u8::try_from((u128::from(ahead_ns) * 8).div_ceil(u128::from(most))).unwrap_or(8);
        let text = match width {
            24.. if ahead_ns == 0 => "no work was left for the device at the end".to_owned(),
            0..10 => theme.bar(level).to_string(),
            10..24 => format!("{} {}", theme.bar(level), duration(ahead_ns)),
            _ => format!("{} host {} ahead at the end", theme.bar(level), duration(ahead_ns)),
        };
        put(buf, x, area.y, width, &text, theme.device());
    }
}
