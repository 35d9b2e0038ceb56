//! The whole run in one line: how many waits are where, which part is shown, bookmarks.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::put;
use crate::view::state::App;
use crate::view::theme::{Theme, log_level};

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let label = app.label_width();
    put(buf, area.x, area.y, label - 1, "whole run", theme.dim());
    let axis = &app.rec.axis;
    let whole = axis.whole();
    let width = app.plot_width().min(area.width.saturating_sub(label));
    let waits = &app.rec.judged.audit.waits;
    let order = &app.rec.by_start;
    let mut from = 0;
    let columns = axis.columns(whole, width);
    for (column, &(_, to_ns)) in (0..width).zip(&columns) {
        let last = column + 1 == width;
        let to = if last {
            order.len()
        } else {
            from + order[from..].partition_point(|&id| waits[id as usize].start_ns < to_ns)
        };
        let (start, end) = axis.column(whole, width, column);
        let count = (to - from) as u64;
        let bookmarked = app.bookmarks.iter().any(|mark| (start..end).contains(mark));
        let (sign, mut style) = match count {
            _ if bookmarked => ('B', theme.mark()),
            0 => (theme.bar(0), theme.dim()),
            _ => (theme.bar(log_level(count, 8)), theme.waits()),
        };
        if start < app.window.start + app.window.len && end > app.window.start {
            style = style.add_modifier(Modifier::REVERSED);
        }
        put(buf, area.x + label + column, area.y, 1, &sign.to_string(), style);
        from = to;
    }
}
