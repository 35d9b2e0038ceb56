//! The picture: host threads (ranges, calls, waits) and device streams under one axis.
//!
//! A wait always has a character: its letter, and a body as wide as it is. Several in one column are a number.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::{put, put_clipped, step_strip};
use crate::view::lod::Cell;
use crate::view::recording::{LaneKind, op_words};
use crate::view::state::{App, Item, Part, Row};
use crate::view::theme::{Theme, letter, log_level};

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let label = app.label_width();
    let plot =
        Rect { x: area.x + label, width: app.plot_width().min(area.width.saturating_sub(label)), ..area };
    if app.rows.is_empty() {
        put(buf, plot.x, area.y, plot.width, "nothing was recorded that could be shown here", theme.dim());
        return;
    }
    let columns = app.rec.axis.columns(app.window, app.plot_width());
    let rows = app.rows.iter().skip(app.top).take(usize::from(area.height));
    let mut previous = None;
    for (y, &row) in (area.y..).zip(rows) {
        label_of(app, theme, row, previous != Some(row.lane), (area.x, y), buf);
        previous = Some(row.lane);
        let cells = app.cells(row, &columns);
        let cells = &cells[..cells.len().min(usize::from(plot.width))];
        draw_row(app, theme, row, cells, (plot.x, y), buf);
    }
    let below = app.rows.len().saturating_sub(app.top + usize::from(area.height));
    let text = match (below, app.idle) {
        (0, 0) => String::new(),
        (0, idle) => {
            format!("{} without work here left out", crate::audit::plural(idle as u64, "lane", "lanes"))
        }
        (below, _) => format!("{} below", crate::audit::plural(below as u64, "row", "rows")),
    };
    let width = u16::try_from(text.chars().count()).unwrap_or(0).min(plot.width);
    put(buf, plot.x + plot.width - width, area.y + area.height.saturating_sub(1), width, &text, theme.mark());
    draw_idle(app, theme, plot, buf);
    draw_cause(app, theme, plot, buf);
    draw_lines(app, theme, plot, buf);
}

fn label_of(app: &App, theme: Theme, row: Row, first: bool, at: (u16, u16), buf: &mut Buffer) {
    let lane = &app.rec.lanes[row.lane];
    let width = app.label_width() - 1;
    let part = match row.part {
        Part::Range(0) => "ranges",
        Part::Range(_) => "",
        Part::Calls => "calls",
        Part::Waits => "waits",
        Part::Ops => "device",
    };
    let style = if app.row == row { theme.selected() } else { theme.dim() };
    if app.row == row {
        put(buf, at.0, at.1, width, &" ".repeat(usize::from(width)), style);
    }
    let mut part_width = u16::try_from(part.len()).unwrap_or(0);
    if first {
        let name =
            match (app.rec.trace.processes.len(), app.rec.judged.audit.processes[lane.process as usize].rank)
            {
                (0 | 1, _) => lane.name.clone(),
                (_, Some(rank)) => format!("{rank}:{}", lane.name),
                (_, None) => {
                    format!("{}:{}", app.rec.judged.audit.processes[lane.process as usize].pid, lane.name)
                }
            };
        let name_style = if app.row == row { style } else { theme.bold() };
        // Where there is no room for both, the name says more.
        if u16::try_from(name.chars().count()).unwrap_or(u16::MAX) + 1 + part_width > width {
            part_width = 0;
        }
        put_clipped(buf, theme, at, width.saturating_sub(part_width), &name, name_style);
    }
    put(buf, at.0 + width.saturating_sub(part_width), at.1, part_width, part, style);
}

fn draw_row(app: &App, theme: Theme, row: Row, cells: &[Cell], at: (u16, u16), buf: &mut Buffer) {
    let selected = app.selected_wait();
    let mut column = 0;
    while column < cells.len() {
        let cell = cells[column];
        let mut end = column + 1;
        if cell.count == 1 {
            while end < cells.len() && cells[end].count == 1 && cells[end].first == cell.first {
                end += 1;
            }
        }
        let (x, width) =
            (at.0 + u16::try_from(column).unwrap_or(0), u16::try_from(end - column).unwrap_or(1));
        if cell.count == 1 {
            // An item that goes on to the left of a crowded column is no new one.
            let begins = column == 0 || cells[column - 1].count == 0 || cells[column - 1].first != cell.first;
            let (text, mut style) = words(app, theme, row, cell, begins);
            if let (Some(Item::Wait(wait)), true) = (app.item(row, cell), row.part == Part::Waits)
                && selected == Some(wait)
            {
                style = style.add_modifier(Modifier::REVERSED);
            }
            let body = if row.part == Part::Waits { theme.wait_body() } else { theme.body() };
            put(buf, x, at.1, width, &body.to_string().repeat(usize::from(width)), style);
            // A single column has no room for a name, but for a wait's letter.
            if row.part == Part::Waits || width > 2 {
                let room = if row.part == Part::Waits { width } else { width - 1 };
                let used = put_clipped(buf, theme, (x, at.1), room, &text, style);
                if row.part != Part::Waits && width == used + 1 {
                    put(buf, x + used, at.1, 1, " ", style);
                }
            } else {
                put(buf, x, at.1, 1, &theme.edge().to_string(), style);
            }
        } else if cell.count > 1 {
            let (sign, style) = match row.part {
                Part::Waits => {
                    let sign = u32::try_from(cell.count).ok().and_then(|count| char::from_digit(count, 10));
                    let inside = selected.is_some_and(|wait| {
                        let ids = &app.rec.lanes[row.lane].waits.ids;
                        ids[cell.first..(cell.first + cell.count).min(ids.len())].contains(&(wait as u32))
                    });
                    let style =
                        if inside { theme.waits().add_modifier(Modifier::REVERSED) } else { theme.waits() };
                    (sign.unwrap_or('+'), style)
                }
                Part::Ops => (theme.shade(log_level(cell.count as u64, 8) / 2), theme.device()),
                Part::Calls => (theme.shade(log_level(cell.count as u64, 8) / 2), theme.dim()),
                Part::Range(_) => (theme.shade(log_level(cell.count as u64, 8) / 2), theme.range()),
            };
            put(buf, x, at.1, 1, &sign.to_string(), style);
        }
        column = end;
    }
}

/// What a single item says of itself.
fn words(app: &App, theme: Theme, row: Row, cell: Cell, begins: bool) -> (String, Style) {
    let lane = &app.rec.lanes[row.lane];
    let trace = &app.rec.trace;
    let process = &trace.processes[lane.process as usize];
    let edge = |name: &str| if begins { format!("{}{name}", theme.edge()) } else { name.to_owned() };
    match (row.part, lane.kind) {
        (Part::Waits, _) => {
            let kind = app.rec.judged.audit.waits[lane.waits.ids[cell.first] as usize].kind;
            let text = if begins { letter(kind) } else { theme.wait_body() };
            (text.to_string(), theme.wait(kind))
        }
        (Part::Calls, LaneKind::Thread(thread)) => {
            let call = &process.threads[thread as usize].calls[cell.first];
            let name = &trace.api(call.api).name;
            let short = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu")).unwrap_or(name);
            (edge(short), theme.dim())
        }
        (Part::Range(depth), LaneKind::Thread(thread)) => {
            let span = &process.threads[thread as usize].spans[lane.ranges[depth][cell.first] as usize];
            let name = trace.str(span.name);
            (edge(name.split_once(" @ ").map_or(name, |(head, _)| head)), theme.range())
        }
        (Part::Ops, _) => {
            (edge(&op_words(trace, &process.device_ops[lane.ops[cell.first] as usize])), theme.device())
        }
        _ => (String::new(), theme.dim()),
    }
}

/// Marks what the selected wait waited for, and joins the two.
fn draw_cause(app: &App, theme: Theme, plot: Rect, buf: &mut Buffer) {
    let Some(cause) = app.cause() else { return };
    let (Some(op), Some(lane)) = (app.rec.op(cause), app.rec.lane_of_op(cause)) else { return };
    let y_of = |row: Row| {
        let at = app.rows.iter().position(|&shown| shown == row)?.checked_sub(app.top)?;
        u16::try_from(at).ok().filter(|&at| at < plot.height).map(|at| plot.y + at)
    };
    let axis = &app.rec.axis;
    let start = axis.position(op.start_ns);
    let end = axis.position(op.end_ns).max(start + 1) - 1;
    let window_end = app.window.start + app.window.len - 1;
    if end < app.window.start || start > window_end {
        return;
    }
    let column = |position: u64| {
        app.window.column_of(position.clamp(app.window.start, window_end), app.plot_width()).unwrap_or(0)
    };
    let (from, to) = (column(start), column(end).min(plot.width.saturating_sub(1)));
    let op_y = y_of(Row { lane, part: Part::Ops });
    if let Some(y) = op_y {
        for x in from..=to {
            if let Some(cell) = buf.cell_mut((plot.x + x, y)) {
                cell.set_style(theme.cause());
            }
        }
    }
    let (Some(op_y), Some(wait_y)) = (op_y, y_of(app.row)) else { return };
    let joint = if theme.ascii { "|" } else { "│" };
    for y in op_y.min(wait_y) + 1..op_y.max(wait_y) {
        if let Some(cell) = buf.cell_mut((plot.x + to, y)).filter(|cell| cell.symbol() == " ") {
            cell.set_symbol(joint).set_style(theme.mark());
        }
    }
}

/// How long the device stood idle behind each wait, in the wait's row where nothing else is.
fn draw_idle(app: &App, theme: Theme, plot: Rect, buf: &mut Buffer) {
    let audit = &app.rec.judged.audit;
    let axis = &app.rec.axis;
    let prices = audit.pricing.as_ref().and_then(|pricing| pricing.known());
    let Some(prices) = prices.filter(|_| axis.measured()) else { return };
    let window = app.window;
    let last = window.start + window.len.max(1) - 1;
    let (from_ns, until_ns) = (axis.time_ns(window.start), axis.time_ns(last));
    // One that began before the window may reach into it.
    let first = prices.exposed.partition_point(|idle| idle.start_ns < from_ns).saturating_sub(64);
    let shown = prices.exposed[first..].iter().take_while(|idle| idle.start_ns <= until_ns);
    let shown: Vec<_> = shown.filter(|idle| idle.end_ns > from_ns).collect();
    let rows = app.rows.iter().skip(app.top).take(usize::from(plot.height));
    for (y, row) in (plot.y..).zip(rows).filter(|(_, row)| row.part == Part::Waits) {
        let lane = &app.rec.lanes[row.lane];
        for idle in &shown {
            let of_lane = audit.waits.get(idle.wait as usize).is_some_and(|wait| {
                wait.process == lane.process && lane.kind == LaneKind::Thread(wait.thread)
            });
            let column = |ns: u64| {
                window.column_of(axis.position(ns).clamp(window.start, last), app.plot_width()).unwrap_or(0)
            };
            if !of_lane {
                continue;
            }
            for x in column(idle.start_ns)..=column(idle.end_ns - 1).min(plot.width.saturating_sub(1)) {
                if let Some(cell) = buf.cell_mut((plot.x + x, y)).filter(|cell| cell.symbol() == " ") {
                    cell.set_symbol(&theme.shade(1).to_string()).set_style(theme.device());
                }
            }
        }
    }
}

/// The cursor and the beginnings of steps, where nothing else is.
fn draw_lines(app: &App, theme: Theme, plot: Rect, buf: &mut Buffer) {
    let starts: Vec<_> =
        step_strip::visible(app).into_iter().map(|(_, from, _)| (from, theme.dim())).collect();
    // Bounds that fill the screen would be no bounds.
    let crowded = starts.len() > usize::from(plot.width) / 4;
    let cursor = app.cursor_column().map(|column| (column, theme.bold()));
    for (column, style) in cursor.into_iter().chain(starts.into_iter().filter(|_| !crowded)) {
        if column >= plot.width {
            continue;
        }
        for y in plot.y..plot.y + plot.height {
            if let Some(cell) = buf.cell_mut((plot.x + column, y)).filter(|cell| cell.symbol() == " ") {
                cell.set_char(theme.line()).set_style(style);
            }
        }
    }
    let Some(column) = app.cursor_column().filter(|&column| column < plot.width) else { return };
    let at = app.rows.iter().position(|&row| row == app.row).and_then(|at| at.checked_sub(app.top));
    if let Some(y) = at.and_then(|at| u16::try_from(at).ok()).filter(|&y| y < plot.height)
        && let Some(cell) = buf.cell_mut((plot.x + column, plot.y + y))
    {
        cell.modifier.insert(Modifier::REVERSED);
    }
}
