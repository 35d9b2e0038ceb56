//! The screen: one file per part of it.
//!
//! In: the [`App`] and a [`Theme`]. Out: characters in a buffer. Widgets read; they never change the state and hold no rule.

mod detail;
mod footer;
mod header;
mod help;
mod lanes;
mod minimap;
mod ranks;
mod report;
mod ruler;
mod run_ahead;
mod site;
mod sites;
mod step_strip;
mod steps;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::state::{App, Mode, View};
use super::theme::Theme;
use crate::report::words::plain;

/// Draws the whole screen.
pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    if area.width < 20 || area.height < 6 {
        put(buf, area.x, area.y, area.width, "too small: 60x16 or more", Style::new());
        return;
    }
    header::draw(app, theme, line(area, 0), buf);
    let body = Rect { y: area.y + 1, height: area.height - 2, ..area };
    match app.view {
        View::Timeline => draw_timeline(app, theme, body, buf),
        View::Sites => sites::draw(app, theme, body, buf),
        View::Site => site::draw(app, theme, body, buf),
        View::Steps => steps::draw(app, theme, body, buf),
        View::Ranks => ranks::draw(app, theme, body, buf),
        View::Report => report::draw(app, theme, body, buf),
    }
    footer::draw(app, theme, line(area, area.height - 1), buf);
    if let Mode::Help { query, top } = &app.mode {
        help::draw(app, theme, (query, *top), body, buf);
    }
}

fn draw_timeline(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let detail = app.detail_height().min(area.height.saturating_sub(4));
    minimap::draw(app, theme, line(area, 0), buf);
    ruler::draw(app, theme, line(area, 1), buf);
    step_strip::draw(app, theme, line(area, 2), buf);
    let mut fixed = 3;
    if app.run_ahead_height() > 0 {
        run_ahead::draw(app, theme, line(area, fixed), buf);
        fixed += 1;
    }
    let height = area.height.saturating_sub(fixed + detail);
    lanes::draw(app, theme, Rect { y: area.y + fixed, height, ..area }, buf);
    detail::draw(app, theme, Rect { y: area.y + area.height - detail, height: detail, ..area }, buf);
}

fn line(area: Rect, at: u16) -> Rect {
    Rect { y: area.y + at, height: 1, ..area }
}

/// Writes text that a trace may have named, clipped to `width`; answers how many columns it took.
fn put(buf: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
    if width == 0 {
        return 0;
    }
    let (end, _) = buf.set_stringn(x, y, plain(text), usize::from(width), style);
    end - x
}

/// As [`put`], with a sign where text was cut off.
fn put_clipped(buf: &mut Buffer, theme: Theme, at: (u16, u16), width: u16, text: &str, style: Style) -> u16 {
    let clean = plain(text);
    if unicode_width::UnicodeWidthStr::width(clean.as_str()) <= usize::from(width) {
        return put(buf, at.0, at.1, width, &clean, style);
    }
    let used = put(buf, at.0, at.1, width.saturating_sub(1), &clean, style);
    used + put(buf, at.0 + used, at.1, width - used, theme.more(), style)
}

/// Writes styled lines from the top of the area.
fn put_lines(buf: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    for (y, line) in (area.y..area.y + area.height).zip(lines) {
        let mut x = area.x;
        for span in &line.spans {
            let room = (area.x + area.width).saturating_sub(x);
            x += put(buf, x, y, room, &span.content, span.style);
        }
    }
}

/// A label and text, wrapped so that following lines start where the text does.
fn paragraph(theme: Theme, label: &str, text: &str, width: u16, lines: &mut Vec<Line<'static>>) {
    let indent = label.chars().count();
    let room = usize::from(width).saturating_sub(indent).max(10);
    for (index, part) in crate::report::text::wrap(&plain(text), room).into_iter().enumerate() {
        let head = if index == 0 { label.to_owned() } else { " ".repeat(indent) };
        lines.push(Line::from(vec![Span::styled(head, theme.dim()), Span::raw(part)]));
    }
}

/// The first row of a list so that the selected one is on the screen, near the middle where possible.
fn list_top(selected: usize, len: usize, height: usize) -> usize {
    selected.saturating_sub(height / 2).min(len.saturating_sub(height))
}

/// A bar per step of how many waits a site (or all of them) had, the steps of one process put together to fit.
fn sparkline(theme: Theme, per_step: &[u64], width: usize) -> String {
    if per_step.is_empty() || width == 0 {
        return String::new();
    }
    let width = width.min(per_step.len());
    // The most of the steps that share a column: an outlier stays visible.
    let columns = (0..width).map(|column| {
        let from = column * per_step.len() / width;
        let to = ((column + 1) * per_step.len() / width).max(from + 1);
        per_step[from..to].iter().copied().max().unwrap_or(0)
    });
    let most = per_step.iter().copied().max().unwrap_or(0).max(1);
    columns
        .map(|count| {
            let level = (count * 8).div_ceil(most);
            if count == 0 {
                if theme.ascii { '_' } else { '·' }
            } else {
                theme.bar(u8::try_from(level).unwrap_or(8))
            }
        })
        .collect()
}

/// Where a site is, shortened from the left to fit: the line at the end says most.
fn short_place(theme: Theme, site: &crate::audit::Site, width: u16) -> String {
    let text = plain(&crate::report::words::place_text(site));
    let (length, width) = (text.chars().count(), usize::from(width));
    // The function goes first, then folders.
    let head = text.split(" in ").next().unwrap_or_default().to_owned();
    if length <= width {
        return text;
    }
    let name = head.rsplit('/').next().unwrap_or_default();
    let behind = &text[head.len()..];
    for candidate in
        [format!("{}/{name}{behind}", theme.more()), head.clone(), format!("{}/{name}", theme.more())]
    {
        if candidate.chars().count() <= width {
            return candidate;
        }
    }
    name.to_owned()
}

/// What a site is known as.
fn rule_of(site: &crate::audit::Site) -> &'static crate::rules::Rule {
    crate::rules::find(site.rule).unwrap_or_else(|| crate::rules::general(site.kind))
}
