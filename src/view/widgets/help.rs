//! What the keys do here; typing searches in it. With the letters of the kinds of waits.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

use super::put_lines;
use crate::audit::WaitKind;
use crate::rules;
use crate::view::keys::BINDINGS;
use crate::view::state::App;
use crate::view::theme::{Theme, letter};

pub fn draw(app: &App, theme: Theme, (query, top): (&str, usize), area: Rect, buf: &mut Buffer) {
    let width = area.width.min(96);
    let popup = Rect { x: area.x + (area.width - width) / 2, width, ..area };
    Clear.render(popup, buf);
    let title =
        if query.is_empty() { " what works here ".to_owned() } else { format!(" what works here: {query} ") };
    let mut block = Block::bordered().title(title).border_style(theme.dim());
    if theme.ascii {
        block = block.border_set(ratatui::symbols::border::Set {
            top_left: "+",
            top_right: "+",
            bottom_left: "+",
            bottom_right: "+",
            vertical_left: "|",
            vertical_right: "|",
            horizontal_top: "-",
            horizontal_bottom: "-",
        });
    }
    let inner = block.inner(popup);
    block.render(popup, buf);
    let lines = lines(app, theme, query, inner.width);
    let top = top.min(lines.len().saturating_sub(usize::from(inner.height)));
    put_lines(buf, inner, &lines[top..]);
}

fn lines(app: &App, theme: Theme, query: &str, width: u16) -> Vec<Line<'static>> {
    let word = query.to_lowercase();
    let wanted = |text: &str| text.to_lowercase().contains(&word);
    let mut lines = Vec::new();
    let entry = |head: String, style, text: &str, lines: &mut Vec<Line<'static>>| {
        let room = usize::from(width).saturating_sub(18).max(10);
        for (index, part) in crate::report::text::wrap(text, room).into_iter().enumerate() {
            let head = if index == 0 { head.clone() } else { String::new() };
            lines.push(Line::from(vec![Span::styled(format!("{head:<17} "), style), Span::raw(part)]));
        }
    };
    for row in BINDINGS.iter().filter(|row| row.works_in(app.view)) {
        let keys = app.keymap.keys(row.action);
        if !keys.is_empty() && (wanted(&keys) || wanted(row.help) || wanted(row.name)) {
            entry(keys, theme.key(), row.help, &mut lines);
        }
    }
    let kinds =
        WaitKind::ALL.into_iter().filter(|kind| wanted(kind.id()) || wanted(rules::general(*kind).headline));
    for kind in kinds {
        let text = format!("{}: {}", kind.id(), rules::general(kind).headline);
        entry(letter(kind).to_string(), theme.wait(kind), &text, &mut lines);
    }
    if wanted("2-9 + several waits in one column") {
        entry(
            "2 to 9, +".to_owned(),
            theme.waits(),
            "several waits in one column: zoom in to see each",
            &mut lines,
        );
    }
    if lines.is_empty() {
        lines.push(Line::from(format!("no key does '{query}' here")));
    }
    lines
}
