//! The text report, to scroll in.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::put;
use crate::view::state::App;
use crate::view::theme::Theme;

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let word = app.query.as_ref().map(|query| query.text.to_lowercase());
    for (y, line) in (area.y..area.y + area.height).zip(app.report.iter().skip(app.scroll)) {
        let found = word.as_ref().is_some_and(|word| line.to_lowercase().contains(word));
        put(buf, area.x, y, area.width, line, if found { theme.mark() } else { Style::new() });
    }
}
