//! First line: the verdict, the views, the first reason.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{put, put_clipped};
use crate::view::keys::Action;
use crate::view::state::{App, Live, View};
use crate::view::theme::Theme;

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let audit = &app.rec.judged.audit;
    let end = area.x + area.width;
    let mut x = area.x;
    let verdict = format!(" {} ", audit.verdict.id().to_uppercase());
    x += put(buf, x, area.y, end - x, &verdict, theme.verdict(audit.verdict));
    if app.live != Live::Over {
        x += put(buf, x, area.y, end - x, " live", theme.mark());
    }
    if audit.source.emulated {
        x += put(buf, x, area.y, end.saturating_sub(x), " emulated", theme.mark());
    }
    for (view, name) in [
        (View::Timeline, "timeline"),
        (View::Sites, "sites"),
        (View::Steps, "steps"),
        (View::Ranks, "ranks"),
        (View::Report, "report"),
    ] {
        if view == View::Ranks && !app.has_ranks() {
            continue;
        }
        let here = app.view == view || (view == View::Sites && app.view == View::Site);
        let style = if here { theme.selected() } else { theme.dim() };
        let key = app.keymap.key(Action::Show(view)).unwrap_or_default();
        x += put(buf, x, area.y, end.saturating_sub(x), " ", theme.dim());
        x += put(buf, x, area.y, end.saturating_sub(x), &format!("{key} {name}"), style);
    }
    let reason = audit.reasons.first().map_or("", String::as_str);
    let room = end.saturating_sub(x + 2);
    if room > 20 {
        put_clipped(buf, theme, (x + 2, area.y), room, reason, theme.bold());
    }
}
