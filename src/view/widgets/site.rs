//! One site: where it is, what it does, how to fix it, and each time it happened.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::{list_top, paragraph, put, put_clipped, put_lines, rule_of, sites, sparkline};
use crate::audit::{Frame, plural};
use crate::report::words::{bytes, duration, place_text};
use crate::view::state::App;
use crate::view::theme::{Theme, letter};

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let times = app.rec.of_site[app.site].len();
    // The occurrences get a third, but no more than they need.
    let wanted = u16::try_from(times + 1).unwrap_or(u16::MAX);
    let below = wanted.min(area.height / 3).max(3.min(area.height / 2));
    let text = Rect { height: area.height - below, ..area };
    let lines = lines(app, theme, area.width);
    let most = lines.len().saturating_sub(usize::from(text.height));
    let top = app.scroll.min(most);
    put_lines(buf, text, &lines[top..]);
    if top < most {
        let hint = format!(
            " {} more lines{} ",
            most - top,
            if app.site_text_focus { "" } else { ": tab, then down" }
        );
        let width = u16::try_from(hint.len()).unwrap_or(0).min(area.width);
        put(buf, area.x + area.width - width, text.y + text.height - 1, width, &hint, theme.mark());
    }
    occurrences(app, theme, Rect { y: area.y + text.height, height: below, ..area }, buf);
}

fn lines(app: &App, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let site = &app.rec.judged.audit.sites[app.site];
    let rule = rule_of(site);
    let mut lines = vec![
        Line::from(vec![
            Span::styled(format!("{} {}", letter(site.kind), site.kind.id()), theme.wait(site.kind)),
            Span::raw("  "),
            Span::styled(format!("[{}]", site.status.id()), theme.status(site.status)),
            Span::raw(format!("  {}", rule.headline)),
        ]),
        Line::from(vec![Span::styled("at     ", theme.dim()), Span::styled(place_text(site), theme.bold())]),
    ];
    if let Some(frame) = site.place() {
        let excerpt = app.sources.excerpt(frame, 3);
        if excerpt.is_empty() && frame.line > 0 {
            lines.push(Line::styled("       (the source file is not on this machine)", theme.dim()));
        }
        for (number, text) in excerpt {
            let here = number == frame.line as usize;
            let (sign, style) = if here { (theme.arrow(), theme.mark()) } else { (" ", theme.dim()) };
            lines.push(Line::styled(format!("{sign}{number:>5} {text}"), style));
        }
    }
    paragraph(theme, "fix    ", rule.fix(site), width, &mut lines);
    paragraph(theme, "why    ", rule.waits, width, &mut lines);
    paragraph(theme, "keep   ", rule.leave, width, &mut lines);
    paragraph(theme, "breaks ", rule.breaks, width, &mut lines);
    let audit = &app.rec.judged.audit;
    let mut counts = vec![format!("{} in ordinary steps", site.ordinary_waits)];
    for (count, what) in [
        (site.log_waits, "on log steps"),
        (site.warmup_waits, "in warm-up"),
        (site.unfinished_waits, "in a step that did not end"),
        (site.outside_waits, "outside of steps"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let counts = format!("{}: {}", plural(site.waits, "wait", "waits"), counts.join(", "));
    paragraph(theme, "count  ", &counts, width, &mut lines);
    let per_step = sites::per_step_of(app, app.site);
    if !per_step.is_empty() {
        let room = usize::from(width).saturating_sub(30);
        lines.push(Line::from(vec![
            Span::styled("steps  ", theme.dim()),
            Span::styled(sparkline(theme, &per_step, room), theme.waits()),
            Span::styled(format!("  at most {} in one", site.most_per_step), theme.dim()),
        ]));
    }
    let allowed = audit.budget.per_kind.get(&site.kind).copied().unwrap_or(audit.budget.total);
    paragraph(
        theme,
        "budget ",
        &format!(
            "{allowed} per ordinary step{}",
            if audit.budget.per_kind.contains_key(&site.kind) { " of this kind" } else { "" }
        ),
        width,
        &mut lines,
    );
    if let Some(blocked_ns) = site.blocked_ns {
        let text = format!("{} blocked altogether, which is not the same as lost", duration(blocked_ns));
        paragraph(theme, "time   ", &text, width, &mut lines);
    }
    let mut calls = site.apis.join(", then ");
    if site.bytes > 0 {
        calls += &format!(" ({} altogether)", bytes(site.bytes));
    }
    paragraph(theme, "calls  ", &calls, width, &mut lines);
    if !site.range.is_empty() {
        paragraph(theme, "range  ", &site.range.join(" > "), width, &mut lines);
    }
    if !site.ops.is_empty() {
        paragraph(theme, "op     ", &site.ops.join(" > "), width, &mut lines);
    }
    let evidence = format!("{}; seen by {} (syncaudit explain {})", rule.id, site.evidence.id(), rule.id);
    paragraph(theme, "rule   ", &evidence, width, &mut lines);
    paragraph(theme, "id     ", &site.fingerprint, width, &mut lines);
    for (title, frames) in
        [("Python frames, innermost first", &site.python), ("native frames, innermost first", &site.native)]
    {
        if !frames.is_empty() {
            lines.push(Line::styled(title, theme.dim()));
            lines.extend(frames.iter().map(|frame| frame_line(theme, frame)));
        }
    }
    lines
}

fn frame_line(theme: Theme, frame: &Frame) -> Line<'static> {
    let place = match (frame.file.is_empty(), frame.line) {
        (true, _) => frame.module.clone(),
        (false, 0) => frame.file.clone(),
        (false, line) => format!("{}:{line}", frame.file),
    };
    let (sign, style) = if frame.user { ("* ", theme.bold()) } else { ("  ", theme.dim()) };
    Line::from(vec![
        Span::styled(format!("{sign}{}", frame.function), style),
        Span::styled(format!("  {place}"), theme.dim()),
    ])
}

fn occurrences(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let waits = &app.rec.of_site[app.site];
    let title = format!(
        "{}: enter shows it in the timeline",
        plural(waits.len() as u64, "occurrence", "occurrences")
    );
    let style = if app.site_text_focus { theme.dim() } else { theme.bold() };
    let rule = if theme.ascii { "-" } else { "─" };
    put(buf, area.x, area.y, area.width, &rule.repeat(usize::from(area.width)), theme.dim());
    put_clipped(buf, theme, (area.x + 2, area.y), area.width.saturating_sub(4), &format!(" {title} "), style);
    let height = usize::from(area.height.saturating_sub(1));
    let top = list_top(app.occurrence, waits.len(), height);
    let measured = app.rec.axis.measured();
    for (y, (at, &id)) in (area.y + 1..area.y + area.height).zip(waits.iter().enumerate().skip(top)) {
        let wait = &app.rec.judged.audit.waits[id as usize];
        let mut text = match wait.step.map(|step| &app.rec.judged.audit.steps[step as usize]) {
            Some(step) => format!("{:>6}  step {}", at + 1, super::step_strip::words(step)),
            None => format!("{:>6}  outside of steps", at + 1),
        };
        if app.rec.trace.processes.len() > 1 {
            text += &format!("  {}", app.rec.process_name(wait.process));
        }
        if measured {
            let position = app.rec.axis.position(wait.start_ns);
            text += &format!("  at {}", duration(position));
        } else {
            text += &format!("  event #{}", app.rec.axis.position(wait.start_ns));
        }
        if let Some(blocked_ns) = wait.blocked_ns {
            text += &format!("  held the host {}", duration(blocked_ns));
        }
        if wait.bytes > 0 {
            text += &format!("  {}", bytes(wait.bytes));
        }
        let mut style = ratatui::style::Style::new();
        if at == app.occurrence {
            style = if app.site_text_focus { theme.bold() } else { style.add_modifier(Modifier::REVERSED) };
        }
        put_clipped(buf, theme, (area.x, y), area.width, &text, style);
    }
}
