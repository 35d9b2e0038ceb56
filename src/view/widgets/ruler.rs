//! The axis: time since the start of the run, or, where no time means anything, the order of the events.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::put;
use crate::view::state::App;
use crate::view::theme::Theme;

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let label = app.label_width();
    let measured = app.rec.axis.measured();
    let name = match (measured, label) {
        (true, _) => "time",
        (false, 20..) => "call order, no time",
        (false, _) => "call order",
    };
    put(buf, area.x, area.y, label, name, if measured { theme.dim() } else { theme.mark() });
    let width = app.plot_width().min(area.width.saturating_sub(label));
    let window = app.window;
    let wanted = u64::from((width / 14).max(1));
    let step = nice(window.len.div_ceil(wanted));
    let mut next_free = 0;
    let mut position = window.start.div_ceil(step) * step;
    while position < window.start + window.len {
        if let Some(column) = window.column_of(position, width).filter(|&column| column >= next_free) {
            let text = if measured { moment(position, step) } else { format!("#{position}") };
            let text = format!("{}{text}", theme.edge());
            let room = width - column;
            if text.chars().count() <= usize::from(room) {
                next_free = column + put(buf, area.x + label + column, area.y, room, &text, theme.dim()) + 1;
            }
        }
        position += step;
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice(least: u64) -> u64 {
    let mut power = 1u64;
    loop {
        for factor in [1, 2, 5] {
            if let Some(step) = power.checked_mul(factor).filter(|&step| step >= least) {
                return step;
            }
        }
        match power.checked_mul(10) {
            Some(larger) => power = larger,
            None => return u64::MAX,
        }
    }
}

/// A moment since the start, with the digits that neighbours `step` apart differ in.
fn moment(ns: u64, step: u64) -> String {
    let (unit, name) = match ns.max(step) {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000u64, "s"),
    };
    let mut decimals = 0;
    let mut fraction = unit;
    while fraction > step && fraction > 1 {
        fraction /= 10;
        decimals += 1;
    }
    if decimals == 0 {
        return format!("{} {name}", ns / unit);
    }
    format!("{}.{:0decimals$} {name}", ns / unit, ns % unit / fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_the_axis_are_told_apart() {
        assert_eq!((nice(1), nice(3), nice(6), nice(1_001)), (1, 5, 10, 2_000));
        assert_eq!(moment(12_345_000, 5_000), "12.345 ms");
        assert_eq!(moment(12_000_000, 1_000_000), "12 ms");
        assert_eq!(moment(3_000_000_100, 100), "3.0000001 s");
        assert_eq!(moment(250, 50), "250 ns");
    }
}
