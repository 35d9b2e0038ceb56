//! The steps, one a row: waits by kind, host time in them, outliers.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::{list_top, put, put_clipped};
use crate::audit::{Step, StepKind, WaitKind};
use crate::report::words::duration;
use crate::view::recording::Recording;
use crate::view::state::{App, StepOrder};
use crate::view::theme::{Theme, letter};

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let audit = &app.rec.judged.audit;
    let steps = &audit.steps;
    let order = match app.step_order {
        StepOrder::Time => "in order of time",
        StepOrder::Waits => "most waits first",
        StepOrder::Blocked => "most host time in waits first",
    };
    let title = format!(
        "{} steps, {order}; found by: {}; each letter is a wait of that kind (? lists them)",
        steps.len(),
        audit.step_counts.source.id()
    );
    put_clipped(buf, theme, (area.x, area.y), area.width, &title, theme.dim());
    let rank = if audit.processes.len() > 1 { 12 } else { 0 };
    let blocked = if audit.times_meaningful { 11 } else { 0 };
    let mut x = area.x;
    for (head, width) in [
        ("process", rank),
        ("step", 9),
        ("kind", 12),
        ("waits", 7),
        ("host time", blocked),
        ("waits by kind", 20),
    ] {
        put(buf, x, area.y + 1, width, if width > 0 { head } else { "" }, theme.dim());
        x += width;
    }
    let list = Rect { y: area.y + 2, height: area.height.saturating_sub(2), ..area };
    if steps.is_empty() {
        put(
            buf,
            list.x,
            list.y,
            list.width,
            "no steps are known: --steps NAME says which range is one",
            theme.dim(),
        );
        return;
    }
    let limits = outlier_limits(steps);
    let top = list_top(app.step_row, app.steps_shown.len(), usize::from(list.height));
    let shown: Vec<usize> =
        app.steps_shown.iter().copied().skip(top).take(usize::from(list.height)).collect();
    let mut kinds = vec![[0u64; WaitKind::ALL.len()]; shown.len()];
    for wait in &audit.waits {
        if let Some(row) = wait.step.and_then(|step| shown.iter().position(|&shown| shown == step as usize)) {
            kinds[row][wait.kind as usize] += 1;
        }
    }
    for (y, (row, &index)) in (list.y..).zip(shown.iter().enumerate()) {
        let step = &steps[index];
        let selected = top + row == app.step_row;
        let with = |style: Style| if selected { style.add_modifier(Modifier::REVERSED) } else { style };
        put(buf, area.x, y, area.width, &" ".repeat(usize::from(area.width)), with(Style::new()));
        let mut x = area.x;
        if rank > 0 {
            put(buf, x, y, rank - 1, &app.rec.process_name(step.process), with(theme.dim()));
            x += rank;
        }
        put(buf, x, y, 8, &Recording::step_name(step), with(Style::new()));
        x += 9;
        put(buf, x, y, 11, step.kind.id(), with(theme.step(step.kind, false)));
        x += 12;
        put(buf, x, y, 6, &format!("{:>5}", step.waits), with(theme.step(step.kind, step.over_budget)));
        x += 7;
        if blocked > 0 {
            let text = step.blocked_ns.map(duration).unwrap_or_default();
            put(buf, x, y, blocked - 1, &format!("{text:>9}"), with(Style::new()));
            x += blocked;
        }
        let end = area.x + area.width;
        let outlier = if is_outlier(step, limits) { "  outlier" } else { "" };
        let over = if step.over_budget { "  over budget" } else { "" };
        let note = format!("{over}{outlier}");
        let room = end.saturating_sub(x + u16::try_from(note.len()).unwrap_or(0));
        x += bar(theme, &kinds[row], step.waits, room, (x, y), selected, buf);
        put(buf, x, y, end.saturating_sub(x), &note, with(theme.mark()));
    }
}

/// A letter per wait where they fit; else letters in proportion, at least one per kind.
fn bar(
    theme: Theme,
    kinds: &[u64],
    waits: u64,
    room: u16,
    at: (u16, u16),
    selected: bool,
    buf: &mut Buffer,
) -> u16 {
    let mut used = 0;
    for kind in WaitKind::ALL {
        let count = kinds[kind as usize];
        if count == 0 {
            continue;
        }
        let fits = if waits <= u64::from(room) { count } else { (count * u64::from(room) / waits).max(1) };
        let text = letter(kind).to_string().repeat(usize::try_from(fits).unwrap_or(0));
        let mut style = theme.wait(kind);
        if selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        used += put(buf, at.0 + used, at.1, room.saturating_sub(used), &text, style);
    }
    used
}

/// Above which number of waits, and host time in them, an ordinary step stands out: the median and five times the median
/// distance from it. `None` with fewer than five steps.
fn outlier_limits(steps: &[Step]) -> Option<(u64, Option<u64>)> {
    let ordinary: Vec<&Step> = steps.iter().filter(|step| step.kind == StepKind::Ordinary).collect();
    if ordinary.len() < 5 {
        return None;
    }
    let waits = limit(ordinary.iter().map(|step| step.waits).collect());
    let blocked: Option<Vec<u64>> = ordinary.iter().map(|step| step.blocked_ns).collect();
    Some((waits, blocked.map(limit)))
}

fn limit(mut values: Vec<u64>) -> u64 {
    let median = |values: &mut Vec<u64>| {
        values.sort_unstable();
        values[values.len() / 2]
    };
    let middle = median(&mut values);
    let spread = median(&mut values.iter().map(|value| value.abs_diff(middle)).collect());
    // Where most steps are the same, a tenth more still is the same.
    middle + (5 * spread).max(middle / 10)
}

fn is_outlier(step: &Step, limits: Option<(u64, Option<u64>)>) -> bool {
    let Some((waits, blocked)) = limits else { return false };
    step.kind == StepKind::Ordinary
        && (step.waits > waits || matches!((step.blocked_ns, blocked), (Some(ns), Some(limit)) if ns > limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_out_is_far_from_what_is_usual() {
        assert_eq!(limit(vec![5, 5, 5, 5, 9]), 5);
        assert_eq!(limit(vec![100, 90, 110, 105, 95]), 125);
    }
}
