//! The waits of one step: in time where times mean something, else in call order.
//!
//! In: an audit. Out: an SVG with one row per thread and one box per wait of the step that is most worth looking at: over the budget, then
//! ordinary, then the one with the most waits.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::escape;
use crate::Audit;
use crate::audit::{Step, StepKind, Wait, plural};
use crate::model::OPEN;
use crate::price::Exposed;
use crate::report::words::{self, place_text};

const WIDTH: f64 = 1000.0;
const ROW: f64 = 34.0;
const BOX: f64 = 22.0;
const LEFT: f64 = 110.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 22.0;
/// More boxes than this can't be told apart, and make the page heavy.
const MOST_BOXES: usize = 2000;

pub(super) fn one_step(page: &mut String, audit: &Audit) {
    let Some((index, step)) = worth_looking_at(audit) else { return };
    let mut waits: Vec<&Wait> =
        audit.waits.iter().filter(|wait| wait.step.is_some_and(|of| of as usize == index)).collect();
    waits.sort_by_key(|wait| (wait.start_ns, wait.thread));
    let left_out = waits.len().saturating_sub(MOST_BOXES);
    waits.truncate(MOST_BOXES);
    let mut rows: BTreeMap<u32, usize> = step.thread.map(|thread| (thread, 0)).into_iter().collect();
    for wait in &waits {
        let next = rows.len();
        rows.entry(wait.thread).or_insert(next);
    }
    let number = step.number.unwrap_or(step.index as i64);
    let measured = audit.times_meaningful && step.end_ns != OPEN && step.end_ns > step.start_ns;
    let scale = if measured {
        let span_ns = (step.end_ns - step.start_ns) as f64;
        Scale::Time { start_ns: step.start_ns, span_ns }
    } else {
        Scale::Order { count: waits.len() }
    };
    let what = if measured { "in time" } else { "in the order of the calls; the widths mean nothing" };
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let _ = write!(
        page,
        "<section>\n<h2>Step {number}</h2>\n<p class=\"quiet\">{} of this {} step, {what}. A click opens the place.</p>\n<svg \
         class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"The waits of step {number}\">\n",
        plural(step.waits, "wait", "waits"),
        step.kind.id()
    );
    for (thread, row) in &rows {
        let y = TOP + ROW * *row as f64;
        let _ = writeln!(
            page,
            "<rect class=\"lane\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BOX}\"/><text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - LEFT,
            LEFT - 8.0,
            y + BOX / 2.0 + 4.0,
            escape(&words::clip(&lane_name(audit, step, *thread, &waits), 16))
        );
    }
    for (order, wait) in waits.iter().enumerate() {
        let Some(site) = audit.sites.get(wait.site as usize) else { continue };
        let (x, width) = scale.place(wait, order);
        let y = TOP + ROW * rows[&wait.thread] as f64;
        let blocked = match wait.blocked_ns.filter(|_| audit.times_meaningful) {
            Some(blocked_ns) => format!(", {}", words::duration(blocked_ns)),
            None => String::new(),
        };
        let _ = writeln!(
            page,
            "<rect class=\"wait {}\" data-site=\"{}\" tabindex=\"0\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{BOX}\" \
             rx=\"2\"><title>{} at {}{blocked}</title></rect>",
            site.kind.id(),
            wait.site,
            site.kind.id(),
            escape(&place_text(site))
        );
    }
    let idle = exposed(audit, &waits);
    for exposed in &idle {
        let Some(wait) = audit.waits.get(exposed.wait as usize) else { continue };
        let Some((x, width)) = scale.stretch(exposed.start_ns, exposed.end_ns) else { continue };
        let y = TOP + ROW * rows[&wait.thread] as f64 + BOX;
        let _ = writeln!(
            page,
            "<rect class=\"idle\" data-site=\"{}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"6\"><title>the device stood idle \
             behind this wait, {}</title></rect>",
            wait.site,
            words::duration(exposed.end_ns - exposed.start_ns)
        );
    }
    for (x, text, anchor) in scale.axis() {
        let _ = writeln!(
            page,
            "<text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
            height - 6.0
        );
    }
    page.push_str("</svg>\n");
    legend(page, audit, &waits, !idle.is_empty());
    if left_out > 0 {
        let _ = writeln!(
            page,
            "<p class=\"quiet\">{} not drawn.</p>",
            plural(left_out as u64, "more is", "more are")
        );
    }
    page.push_str("</section>\n");
}

fn worth_looking_at(audit: &Audit) -> Option<(usize, &Step)> {
    let ordinary = |step: &Step| matches!(step.kind, StepKind::Ordinary | StepKind::Unfinished);
    audit
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.waits > 0)
        .max_by_key(|(index, step)| (step.over_budget, ordinary(step), step.waits, Reverse(*index)))
}

fn lane_name(audit: &Audit, step: &Step, thread: u32, waits: &[&Wait]) -> String {
    let named = waits
        .iter()
        .filter(|wait| wait.thread == thread)
        .filter_map(|wait| audit.sites.get(wait.site as usize))
        .find(|site| !site.thread.is_empty());
    match named {
        Some(site) => site.thread.clone(),
        None if step.thread == Some(thread) => "step".to_owned(),
        None => format!("thread {thread}"),
    }
}

/// Idle time of the device that these waits are charged with, where times are those of a device.
fn exposed(audit: &Audit, waits: &[&Wait]) -> Vec<Exposed> {
    let prices =
        audit.pricing.as_ref().filter(|pricing| !pricing.modelled).and_then(|pricing| pricing.known());
    let Some(prices) = prices.filter(|_| audit.times_meaningful) else { return Vec::new() };
    let shown = |exposed: &&Exposed| {
        let wait = audit.waits.get(exposed.wait as usize);
        wait.is_some_and(|wait| waits.iter().any(|other| std::ptr::eq(*other, wait)))
    };
    prices.exposed.iter().filter(shown).take(MOST_BOXES).copied().collect()
}

fn legend(page: &mut String, audit: &Audit, waits: &[&Wait], idle: bool) {
    let kinds: std::collections::BTreeSet<_> =
        waits.iter().filter_map(|wait| Some(audit.sites.get(wait.site as usize)?.kind)).collect();
    page.push_str("<p class=\"legend\">");
    for kind in kinds {
        let _ = write!(page, "<span class=\"key {0}\"></span>{0} ", kind.id());
    }
    if idle {
        page.push_str("<span class=\"key idle\"></span>the device stood idle behind a wait");
    }
    page.push_str("</p>\n");
}

enum Scale {
    Time { start_ns: u64, span_ns: f64 },
    Order { count: usize },
}

impl Scale {
    /// Where a stretch of time is, as far as it is in the step.
    fn stretch(&self, from_ns: u64, until_ns: u64) -> Option<(f64, f64)> {
        let Self::Time { start_ns, span_ns } = *self else { return None };
        let at = |ns: u64| (ns.saturating_sub(start_ns) as f64 / span_ns).min(1.0);
        let (from, until) = (at(from_ns), at(until_ns));
        (until > from).then(|| (LEFT + (WIDTH - LEFT) * from, ((WIDTH - LEFT) * (until - from)).max(0.5)))
    }

    fn place(&self, wait: &Wait, order: usize) -> (f64, f64) {
        let room = WIDTH - LEFT;
        match *self {
            Self::Time { start_ns, span_ns } => {
                let at = wait.start_ns.saturating_sub(start_ns) as f64 / span_ns;
                let width = wait.blocked_ns.unwrap_or(0) as f64 / span_ns;
                let at = at.min(1.0);
                (LEFT + room * at, (room * width.min(1.0 - at)).max(1.5))
            }
            Self::Order { count } => {
                let pitch = (room / count.max(1) as f64).min(60.0);
                (LEFT + pitch * order as f64, (pitch * 0.85).max(0.5))
            }
        }
    }

    fn axis(&self) -> Vec<(f64, String, &'static str)> {
        match *self {
            Self::Time { span_ns, .. } => (0..=4)
                .map(|quarter| {
                    let part = f64::from(quarter) / 4.0;
                    let anchor = match quarter {
                        0 => "start",
                        4 => "end",
                        _ => "middle",
                    };
                    (LEFT + (WIDTH - LEFT) * part, words::duration((span_ns * part) as u64), anchor)
                })
                .collect(),
            Self::Order { .. } => vec![(LEFT, "first call".to_owned(), "start")],
        }
    }
}
