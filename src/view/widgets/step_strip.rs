//! The steps of the selected row's process: where they begin, of what kind they are, how many waits they have.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::put;
use crate::audit::{Step, StepKind};
use crate::view::recording::Recording;
use crate::view::state::App;
use crate::view::theme::Theme;

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let label = app.label_width();
    put(buf, area.x, area.y, label - 1, "steps", theme.dim());
    let current = app.current_step();
    for (step, from, to) in visible(app) {
        let found = &app.rec.judged.audit.steps[step];
        let mut style = theme.step(found.kind, found.over_budget);
        if current == Some(step) {
            style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        }
        let x = area.x + label + from;
        let width = (to + 1).saturating_sub(from).min((area.x + area.width).saturating_sub(x));
        let name = Recording::step_name(found);
        let candidates = [words(found), format!("{name}: {}", found.waits), name];
        let fits = candidates.into_iter().find(|text| text.chars().count() < usize::from(width));
        let text = format!("{}{}", theme.edge(), fits.unwrap_or_default());
        put(buf, x, area.y, width, &text, style);
    }
}

/// The steps in the window, with their first and last column.
pub fn visible(app: &App) -> Vec<(usize, u16, u16)> {
    let axis = &app.rec.axis;
    let (window, width) = (app.window, app.plot_width());
    let steps = app.rec.steps_of(app.process());
    let (from_ns, to_ns) = (axis.time_ns(window.start), axis.time_ns(window.start + window.len));
    let all = &app.rec.judged.audit.steps;
    let first = steps.start + all[steps.clone()].partition_point(|step| step.end_ns <= from_ns);
    let last = steps.start + all[steps].partition_point(|step| step.start_ns < to_ns);
    let mut shown: Vec<(usize, u16, u16)> = Vec::new();
    let mut at = first;
    while at < last {
        let step = &all[at];
        let start = axis.position(step.start_ns).max(window.start);
        let end = axis.position(step.end_ns).max(start + 1).min(window.start + window.len);
        let from = window.column_of(start, width).unwrap_or(0);
        let to = window.column_of(end - 1, width).unwrap_or(width - 1);
        // Where many share a column, the one that matters most for the budget is shown.
        match shown.last_mut() {
            Some(last) if last.1 == from => {
                if (step.over_budget, step.waits) > (all[last.0].over_budget, all[last.0].waits) {
                    *last = (at, from, to);
                }
            }
            _ => shown.push((at, from, to)),
        }
        at += 1;
    }
    shown
}

/// `step 7 log: 2 waits`.
pub fn words(step: &Step) -> String {
    let name = Recording::step_name(step);
    let kind = match step.kind {
        StepKind::Ordinary => "",
        StepKind::Log => " log",
        StepKind::Warmup => " warm-up",
        StepKind::Unfinished => " unfinished",
    };
    let over = if step.over_budget { " (over)" } else { "" };
    format!("{name}{kind}: {}{over}", crate::audit::plural(step.waits, "wait", "waits"))
}
