//! What is under the cursor: for a wait its line, what it waited for and the fix.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{paragraph, put_lines, rule_of};
use crate::model::{CallEffect, MemoryKind, OPEN};
use crate::report::words::{bytes, duration, place_text};
use crate::view::recording::{LaneKind, op_words};
use crate::view::state::{App, Item};
use crate::view::theme::{Theme, letter};

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let rule = if theme.ascii { "-" } else { "─" };
    super::put(buf, area.x, area.y, area.width, &rule.repeat(usize::from(area.width)), theme.dim());
    let inner = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let mut lines = Vec::new();
    match (app.selected_wait(), app.under_cursor()) {
        (Some(wait), _) => of_wait(app, theme, wait, inner, &mut lines),
        (None, Some(item)) => of_item(app, theme, item, inner.width, &mut lines),
        (None, None) => of_nothing(app, theme, inner.width, &mut lines),
    }
    put_lines(buf, inner, &lines);
}

fn of_wait(app: &App, theme: Theme, wait: usize, area: Rect, lines: &mut Vec<Line<'static>>) {
    let found = &app.rec.judged.audit.waits[wait];
    let site = &app.rec.judged.audit.sites[found.site as usize];
    let mut head = vec![
        Span::styled(format!("{} {}", letter(found.kind), found.kind.id()), theme.wait(found.kind)),
        Span::raw("  "),
    ];
    if let Some(blocked_ns) = found.blocked_ns {
        head.push(Span::styled(format!("held the host {}", duration(blocked_ns)), theme.bold()));
        head.push(Span::raw("  "));
    }
    if found.unfinished {
        head.push(Span::styled("the trace ends inside of it  ", theme.mark()));
    }
    let step = match found.step.map(|step| &app.rec.judged.audit.steps[step as usize]) {
        Some(step) => format!("step {}", super::step_strip::words(step)),
        None => "outside of steps".to_owned(),
    };
    head.push(Span::styled(format!("[{}]", site.status.id()), theme.status(site.status)));
    head.push(Span::styled(format!("  {step}"), theme.dim()));
    lines.push(Line::from(head));
    lines.push(Line::from(vec![
        Span::styled("at   ", theme.dim()),
        Span::styled(place_text(site), theme.bold()),
    ]));
    if let Some(frame) = site.place() {
        for (number, text) in app.sources.excerpt(frame, 0) {
            lines.push(Line::from(vec![
                Span::styled(format!("{number:>4} "), theme.mark()),
                Span::styled(text.trim_start().to_owned(), theme.mark()),
            ]));
        }
    }
    let rule = rule_of(site);
    // The fix is what one came for: where there is little room it goes before the facts.
    let mut fix = Vec::new();
    paragraph(theme, "fix  ", rule.fix(site), area.width, &mut fix);
    let room = usize::from(area.height).saturating_sub(lines.len());
    let facts = facts_of_wait(app, wait);
    let for_facts = room.saturating_sub(fix.len()).min(facts.len()).max(usize::from(room > 2));
    for (label, text) in facts.into_iter().take(for_facts) {
        lines.push(Line::from(vec![Span::styled(format!("{label:<5}"), theme.dim()), Span::raw(text)]));
    }
    lines.append(&mut fix);
}

/// Most telling first.
fn facts_of_wait(app: &App, wait: usize) -> Vec<(&'static str, String)> {
    let found = &app.rec.judged.audit.waits[wait];
    let site = &app.rec.judged.audit.sites[found.site as usize];
    let mut facts = Vec::new();
    if let Some(cause) = app.rec.cause(wait)
        && let Some(op) = app.rec.op(cause)
    {
        let mut text = op_words(&app.rec.trace, op);
        if op.bytes > 0 {
            text += &format!(" ({})", bytes(op.bytes));
        }
        if let Some(lane) = app.rec.lane_of_op(cause) {
            text += &format!(" on {}", app.rec.lanes[lane].name);
        }
        let end_ns = app.rec.wait_end_ns(wait);
        if app.rec.axis.measured() && end_ns != OPEN && op.end_ns <= end_ns {
            text += &format!("; the call returned {} after it was done", duration(end_ns - op.end_ns));
        }
        if !cause.own_copy {
            text += " (the last work to end before the call returned)";
        }
        facts.push(("for", text));
    }
    let prices = app.rec.judged.audit.pricing.as_ref().and_then(|pricing| pricing.known());
    if let Some(prices) = prices.filter(|_| app.rec.axis.measured()) {
        let behind = prices.exposed.iter().filter(|idle| idle.wait as usize == wait);
        let idle_ns: u64 = behind.map(|idle| idle.end_ns - idle.start_ns).sum();
        let alone = crate::report::price::of_site(&app.rec.judged.audit, site);
        facts.extend((idle_ns > 0).then(|| {
            (
                "idle",
                format!(
                    "the device stood idle for {} behind it{}",
                    duration(idle_ns),
                    alone.map_or_else(String::new, |price| format!("; {price}"))
                ),
            )
        }));
    }
    let mut path: Vec<&str> = site.range.iter().map(String::as_str).collect();
    path.extend(site.op.as_deref());
    if !path.is_empty() {
        facts.push(("in", path.join(" > ")));
    }
    let mut calls = site.apis.join(", then ");
    if found.bytes > 0 {
        calls += &format!(" ({})", bytes(found.bytes));
    }
    facts.push(("call", calls));
    facts.push((
        "site",
        format!(
            "{}: {} here, {} in ordinary steps; seen by {}",
            site.fingerprint,
            crate::audit::plural(site.waits, "wait", "waits"),
            site.ordinary_waits,
            found.evidence.id()
        ),
    ));
    facts
}

fn of_item(app: &App, theme: Theme, item: Item, width: u16, lines: &mut Vec<Line<'static>>) {
    let trace = &app.rec.trace;
    let measured = app.rec.axis.measured();
    let lane = |at: usize| {
        let lane = &app.rec.lanes[at];
        (lane, &trace.processes[lane.process as usize])
    };
    let time = |start_ns: u64, end_ns: u64| match (measured, end_ns) {
        (false, _) => String::new(),
        (true, OPEN) => "  had not ended when the trace did".to_owned(),
        (true, _) => format!("  {}", duration(end_ns.saturating_sub(start_ns))),
    };
    match item {
        Item::Wait(_) => {}
        Item::Call(at, call) => {
            let (lane, process) = lane(at);
            let LaneKind::Thread(thread) = lane.kind else { return };
            let thread = &process.threads[thread as usize];
            let call = &thread.calls[call];
            let failed = if call.effect == CallEffect::Failed { "  failed, so it did nothing" } else { "" };
            lines.push(Line::from(vec![
                Span::styled(trace.api(call.api).name.clone(), theme.bold()),
                Span::raw(format!("{}  not a wait{failed}", time(call.start_ns, call.end_ns))),
            ]));
            let path: Vec<&str> = thread.spans_around(call).map(|span| trace.str(span.name)).collect();
            if !path.is_empty() {
                let path: Vec<&str> = path.into_iter().rev().collect();
                paragraph(theme, "in   ", &path.join(" > "), width, lines);
            }
            if call.bytes > 0 {
                paragraph(theme, "size ", &bytes(call.bytes), width, lines);
            }
        }
        Item::Span(at, span) => {
            let (lane, process) = lane(at);
            let LaneKind::Thread(thread) = lane.kind else { return };
            let span = &process.threads[thread as usize].spans[span];
            lines.push(Line::from(vec![
                Span::styled(trace.str(span.name).to_owned(), theme.bold()),
                Span::raw(time(span.start_ns, span.end_ns)),
            ]));
            let waits = lane
                .waits
                .ids
                .iter()
                .filter(|&&id| span.contains(app.rec.judged.audit.waits[id as usize].start_ns));
            let text = crate::audit::plural(waits.count() as u64, "wait", "waits");
            lines.push(Line::from(format!(
                "{text} of this thread inside; enter makes it as wide as the screen"
            )));
        }
        Item::Op(at, op) => {
            let (lane, process) = lane(at);
            let op = &process.device_ops[op];
            lines.push(Line::from(vec![
                Span::styled(op_words(trace, op), theme.bold()),
                Span::raw(format!("{}  on {}", time(op.start_ns, op.end_ns), lane.name)),
            ]));
            if op.bytes > 0 {
                let memory = |kind: MemoryKind| format!("{kind:?}").to_lowercase();
                let text =
                    format!("{}, from {} to {} memory", bytes(op.bytes), memory(op.from), memory(op.to));
                paragraph(theme, "size ", &text, width, lines);
            }
        }
    }
}

fn of_nothing(app: &App, theme: Theme, width: u16, lines: &mut Vec<Line<'static>>) {
    let step = app.current_step().map(|step| &app.rec.judged.audit.steps[step]);
    match step {
        Some(step) => lines.push(Line::from(format!("step {}", super::step_strip::words(step)))),
        None => lines.push(Line::from("outside of steps")),
    }
    let waits = app.rec.judged.audit.waits.len() as u64;
    let text = match waits {
        0 => "no wait in this trace".to_owned(),
        _ => format!(
            "nothing under the cursor; {} goes to the next of {}",
            app.keymap.keys(crate::view::keys::Action::NextWait),
            crate::audit::plural(waits, "wait", "waits")
        ),
    };
    paragraph(theme, "", &text, width, lines);
}
