//! Words that all reports share: where a place is, what is known of it, numbers with units.
//!
//! In: parts of an audit. Out: plain text without markup, which every format escapes in its own way. Holds no rule.

use std::fmt::Write as _;

use super::Audit;
use crate::audit::{Frame, Site, plural};
use crate::gate::{Finding, Judged};
pub(super) use crate::rules::capital;
use crate::rules::{self, Rule};

/// In which kinds of steps the waits of a site are.
pub(crate) fn spread(site: &Site) -> String {
    let mut parts: Vec<String> = [
        (site.ordinary_waits, "in ordinary steps, within the budget"),
        (site.log_waits, "on log steps"),
        (site.log_waits_outside_range, "of those outside of the log range"),
        (site.warmup_waits, "in warm-up"),
        (site.unfinished_waits, "in a step that did not end"),
        (site.outside_waits, "outside of steps"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if site.by_recorder {
        parts.push("made by the profiler itself, not by the program".to_owned());
    }
    parts.join(", ")
}

pub(crate) fn facts(audit: &Audit, site: &Site) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if !site.range.is_empty() {
        facts.push(("range", site.range.join(" > ")));
    }
    if !site.ops.is_empty() {
        facts.push(("op", site.ops.join(" > ")));
    }
    let mut calls = site.apis.join(", then ");
    if site.bytes > 0 && site.waits > 0 {
        let each = (site.bytes + site.waits / 2) / site.waits;
        let about = if site.bytes.is_multiple_of(site.waits) { "" } else { "about " };
        calls = format!("{calls} ({about}{} each)", bytes(each));
    }
    facts.push(("calls", calls));
    let ordinary = audit.step_counts.ordinary as u64;
    let mut waits = match ordinary {
        0 => plural(site.waits, "wait", "waits"),
        _ => format!(
            "{} per ordinary step ({} in {} of {}{})",
            number(site.ordinary_waits as f64 / ordinary as f64),
            site.ordinary_waits,
            site.steps_with_waits,
            plural(ordinary, "step", "steps"),
            if site.most_per_step > 1 {
                format!(", at most {} in one", site.most_per_step)
            } else {
                String::new()
            },
        ),
    };
    let beside: Vec<String> = [
        (site.log_waits, "on log steps"),
        (site.warmup_waits, "in warm-up"),
        (site.unfinished_waits, "in a step that did not end"),
        (site.outside_waits, "outside of steps"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if !beside.is_empty() {
        let _ = write!(waits, "; and {}", beside.join(", "));
    }
    facts.push(("waits", waits));
    if let Some(blocked_ns) = site.blocked_ns {
        facts.push(("blocked", duration(blocked_ns)));
    }
    if !site.thread.is_empty() && site.thread != "main" {
        facts.push(("thread", site.thread.clone()));
    }
    if site.per_rank.len() > 1 {
        let ranks: Vec<String> =
            site.per_rank.iter().map(|(rank, waits)| format!("{rank}: {waits}")).collect();
        facts.push(("ranks", ranks.join(", ")));
    }
    let callers = callers(site);
    if !callers.is_empty() {
        facts.push(("called from", callers));
    }
    facts.push(("id", site.fingerprint.clone()));
    facts
}

/// The user's functions from the place outwards, a few of them.
pub(crate) fn callers(site: &Site) -> String {
    let frames = if site.python.iter().any(|frame| frame.user) { &site.python } else { &site.native };
    let place = site.place();
    let from = frames.iter().position(|frame| Some(frame) == place).map_or(0, |at| at + 1);
    let mut names: Vec<String> = frames[from..]
        .iter()
        .filter(|frame| frame.user)
        .map(|frame| match frame.line {
            0 => frame.function.clone(),
            line => format!("{} ({}:{line})", frame.function, frame.file),
        })
        .collect();
    names.dedup();
    names.truncate(4);
    names.join(" < ")
}

pub(crate) fn place_text(site: &Site) -> String {
    let Some(frame) = site.place() else {
        return match (site.range.is_empty(), &site.op) {
            (false, _) => format!("range {}", site.range.join(" > ")),
            (true, Some(op)) => op.clone(),
            (true, None) => site.apis.last().cloned().unwrap_or_else(|| "an unknown place".to_owned()),
        };
    };
    if site.call_site.as_ref() == Some(frame) {
        return frame_text(&Frame { function: String::new(), ..frame.clone() });
    }
    frame_text(frame)
}

/// `src/train.rs:88 in train::step`, or what there is of it.
pub(crate) fn frame_text(frame: &Frame) -> String {
    let inside = if frame.function.is_empty() { String::new() } else { format!(" in {}", frame.function) };
    match (frame.file.is_empty(), frame.line) {
        (true, _) => format!(
            "{}{}",
            frame.function,
            if frame.module.is_empty() { String::new() } else { format!(" in {}", frame.module) }
        ),
        (false, 0) => format!("{}{inside}", frame.file),
        (false, line) => format!("{}:{line}{inside}", frame.file),
    }
}

/// Where a finding is: its site's place, else its own; `None` for what is about no place.
pub(crate) fn finding_place(judged: &Judged, finding: &Finding) -> Option<String> {
    match (site_of(judged, finding), &finding.place, &finding.written) {
        (Some(site), ..) => Some(place_text(site)),
        (None, Some(frame), _) => Some(frame_text(frame)),
        (None, None, Some(written)) => Some(format!("{}:{}", written.path.display(), written.line)),
        (None, None, None) => None,
    }
}

/// File and line to point at. A place without a line is none, nor is one whose path is not below the sources.
pub(crate) fn finding_line(judged: &Judged, finding: &Finding) -> Option<(String, u32)> {
    let frame = site_of(judged, finding).and_then(Site::place).or(finding.place.as_ref());
    let of_frame = frame
        .filter(|frame| frame.line > 0 && !frame.file.is_empty())
        .map(|frame| (frame.file.clone(), frame.line));
    of_frame.or_else(|| {
        let written = finding.written.as_ref()?;
        Some((written.path.to_string_lossy().into_owned(), u32::try_from(written.line).ok()?))
    })
}

/// The site that a finding is about.
pub(crate) fn site_of<'j>(judged: &'j Judged, finding: &Finding) -> Option<&'j Site> {
    judged.audit.sites.get(finding.site?)
}

/// The rule of a site.
pub(crate) fn rule_of(site: &Site) -> &'static Rule {
    rules::find(site.rule).unwrap_or_else(|| rules::general(site.kind))
}

/// `10 (7 ordinary, 2 warm-up, 1 log)`.
pub(crate) fn steps_text(audit: &Audit) -> String {
    let counts = &audit.step_counts;
    let parts: Vec<String> = [
        (counts.ordinary, "ordinary"),
        (counts.warmup, "warm-up"),
        (counts.log, "log"),
        (counts.unfinished, "unfinished"),
    ]
    .into_iter()
    .filter(|&(count, word)| count > 0 || word == "ordinary")
    .map(|(count, word)| format!("{count} {word}"))
    .collect();
    format!("{} ({})", counts.total, parts.join(", "))
}

/// The sums over all waits, as (name, value).
pub(crate) fn totals(audit: &Audit) -> Vec<(&'static str, String)> {
    let totals = &audit.totals;
    let mut rows = vec![
        ("waits", format!("{}, made of {}", totals.waits, plural(totals.calls, "call", "calls"))),
        (
            "per ordinary step",
            match audit.step_counts.ordinary {
                0 => "there was none".to_owned(),
                _ => {
                    let average = number(totals.ordinary_waits_per_step);
                    format!("{average} on average, {} in all", totals.ordinary_waits)
                }
            },
        ),
        (
            "elsewhere",
            format!(
                "{} on log steps, {} in warm-up, {} outside of steps",
                totals.log_waits, totals.warmup_waits, totals.outside_steps_waits
            ),
        ),
        (
            "copies to the host",
            format!(
                "{}, {} altogether, waiting or not",
                totals.device_to_host_copies,
                bytes(totals.device_to_host_bytes)
            ),
        ),
    ];
    if let Some(blocked_ns) = totals.blocked_ns {
        rows.push((
            "host time in waits",
            format!("{} (blocked, which is not the same as lost)", duration(blocked_ns)),
        ));
    }
    rows
}

/// What the reader of an emulated run must know.
pub(crate) const EMULATED: &str = "no GPU was there: no time is shown. Waits are recognised by the documented behaviour of each call; what \
     only a real driver does (allocations that happen to block, full launch queues, work done inside of \
     libraries that need a GPU) can't be seen";

/// Names in a trace are the program's, and a terminal obeys control characters: none of them gets through, nor those that
/// turn the direction of writing.
pub(crate) fn plain(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' => ' ',
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(harmless).collect()
}

pub(crate) fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut clipped: String = text.chars().take(width.saturating_sub(3)).collect();
    clipped.push_str("...");
    clipped
}

pub(crate) fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

pub(crate) fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_units_that_fit() {
        assert_eq!(
            (bytes(4), bytes(65536), bytes(3 << 30)),
            ("4 B".into(), "64.0 KiB".into(), "3.0 GiB".into())
        );
        assert_eq!(
            (duration(999), duration(1_500), duration(126_000_000)),
            ("999 ns".into(), "1.5 us".into(), "126.0 ms".into())
        );
        assert_eq!((number(5.0), number(0.5)), ("5".into(), "0.50".into()));
    }
}
