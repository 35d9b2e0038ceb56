//! The ranks of a job side by side.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::{list_top, put, put_clipped, sparkline};
use crate::audit::StepKind;
use crate::report::words::{duration, number};
use crate::view::state::App;
use crate::view::theme::Theme;

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let audit = &app.rec.judged.audit;
    let measured = audit.times_meaningful;
    put_clipped(buf, theme, (area.x, area.y), area.width, "enter shows a rank's worst step", theme.dim());
    let heads = [
        ("rank", 10),
        ("waits", 8),
        ("steps", 8),
        ("over", 7),
        ("per ordinary step", 19),
        (if measured { "host time" } else { "" }, 11),
        ("waits of each step", 20),
    ];
    let mut x = area.x;
    for (head, width) in heads {
        put(buf, x, area.y + 1, width, head, theme.dim());
        x += width;
    }
    let height = usize::from(area.height.saturating_sub(2));
    let top = list_top(app.rank_row, audit.processes.len(), height);
    for (y, (index, row)) in
        (area.y + 2..area.y + area.height).zip(audit.processes.iter().enumerate().skip(top))
    {
        let selected = index == app.rank_row;
        let with = |style: Style| if selected { style.add_modifier(Modifier::REVERSED) } else { style };
        let process = u32::try_from(index).unwrap_or(u32::MAX);
        let steps = &audit.steps[app.rec.steps_of(process)];
        let ordinary: Vec<_> = steps.iter().filter(|step| step.kind == StepKind::Ordinary).collect();
        let over = steps.iter().filter(|step| step.over_budget).count();
        let waits: u64 = ordinary.iter().map(|step| step.waits).sum();
        let average =
            if ordinary.is_empty() { String::new() } else { number(waits as f64 / ordinary.len() as f64) };
        let blocked: Option<u64> = measured.then(|| steps.iter().filter_map(|step| step.blocked_ns).sum());
        put(buf, area.x, y, area.width, &" ".repeat(usize::from(area.width)), with(Style::new()));
        let cells = [
            (app.rec.process_name(process), 10, Style::new()),
            (format!("{:>6}", row.waits), 8, Style::new()),
            (format!("{:>6}", row.steps), 8, Style::new()),
            (format!("{over:>5}"), 7, if over > 0 { theme.waits() } else { Style::new() }),
            (format!("{average:>17}"), 19, Style::new()),
            (blocked.map(duration).unwrap_or_default(), 11, Style::new()),
        ];
        let mut x = area.x;
        for (text, width, style) in cells {
            put(buf, x, y, width - 1, &text, with(style));
            x += width;
        }
        let per_step: Vec<u64> = steps.iter().map(|step| step.waits).collect();
        let room = (area.x + area.width).saturating_sub(x);
        put(buf, x, y, room, &sparkline(theme, &per_step, usize::from(room)), with(theme.waits()));
    }
}
