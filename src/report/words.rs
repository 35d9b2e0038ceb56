//! Words that all reports share: where a place is, what is known of it, numbers with units.
//!
//! In: parts of an audit. Out: plain text without markup, which every format escapes in its own way. Holds no rule.

use std::fmt::Write as _;

use super::Audit;
use crate::audit::{Frame, RankRow, Site, plural};
use crate::gate::{Finding, Judged};
use crate::model::runs;
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
    facts.extend(super::price::of_site(audit, site).map(|price| ("price", price)));
    if !site.thread.is_empty() && site.thread != "main" {
        facts.push(("thread", site.thread.clone()));
    }
    if audit.ranks.len() > 1 {
        facts.push(("ranks", per_rank(audit, site)));
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

/// What the ranks have of a site's waits: `2 per ordinary step on ranks 0, 2-7; none on rank 1`.
fn per_rank(audit: &Audit, site: &Site) -> String {
    let by_step = audit.ranks_by_step();
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    let shares = audit.shares(site);
    for (at, row) in audit.compared_ranks() {
        let share = shares[at];
        let rate = match (by_step, row.ordinary_steps) {
            (true, steps) if share.ordinary_waits > 0 => {
                format!("{} per ordinary step", number(share.ordinary_waits as f64 / steps as f64))
            }
            (false, _) if share.waits > 0 => plural(share.waits, "wait", "waits"),
            _ => "none".to_owned(),
        };
        match groups.iter_mut().find(|(known, _)| *known == rate) {
            Some((_, members)) => members.push(at),
            None => groups.push((rate, vec![at])),
        }
    }
    let parts: Vec<String> = match groups.as_slice() {
        [(rate, _)] => vec![format!("{rate} on each")],
        _ => {
            groups.iter().map(|(rate, members)| format!("{rate} on {}", rank_names(audit, members))).collect()
        }
    };
    parts.join("; ")
}

/// `rank 1`, `ranks 0, 2-7`, `process 4711`, for indices into the ranks of an audit.
fn rank_names(audit: &Audit, members: &[usize]) -> String {
    let rows = members.iter().filter_map(|&at| audit.ranks.get(at));
    let numbers: Vec<u32> = rows.clone().filter_map(|row| row.rank).collect();
    let mut names: Vec<String> = rows.filter(|row| row.rank.is_none()).map(RankRow::name).collect();
    match numbers.as_slice() {
        [] => {}
        [one] => names.insert(0, format!("rank {one}")),
        many => names.insert(0, format!("ranks {}", runs(many))),
    }
    names.join(", ")
}

/// The ranks of a job side by side; nothing for a job of one.
pub(crate) struct Ranks {
    /// What stands over the columns; all but the first hold numbers.
    pub head: Vec<&'static str>,
    /// A row for each rank that is shown.
    pub rows: Vec<Vec<String>>,
    /// Ranks beyond the most that are shown; they wait less.
    pub left_out: usize,
    /// Which waits longest, and whether they disagree; sentences without a full stop.
    pub sentences: Vec<String>,
    /// The places at which they disagree, and what each has there.
    pub places: Vec<String>,
}

/// Places at which ranks disagree that are named.
const MOST_DISAGREEMENTS: usize = 5;

/// The ranks of a job, at most so many of them: those that wait longest.
pub(crate) fn ranks(audit: &Audit, most: usize) -> Option<Ranks> {
    if audit.ranks.len() < 2 {
        return None;
    }
    let by_step = audit.ranks.iter().any(|row| row.ordinary_steps > 0);
    let mut head = vec!["rank", "steps", "waits"];
    if by_step {
        head.push("per ordinary step");
    }
    if audit.times_meaningful {
        head.push(if by_step { "blocked per ordinary step" } else { "blocked" });
    }
    let blocked = |row: &RankRow| match by_step {
        true => row.blocked_ns_per_step(),
        false => row.blocked_ns.map(|ns| ns as f64),
    };
    let mut shown: Vec<&RankRow> = audit.ranks.iter().collect();
    if shown.len() > most {
        let weight =
            |row: &RankRow| blocked(row).or_else(|| row.waits_per_step()).unwrap_or(row.waits as f64);
        shown.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        shown.truncate(most);
        shown.sort_by_key(|row| (row.rank.is_none(), row.rank));
    }
    let cells = |row: &&RankRow| {
        let name = row.rank.map_or_else(|| row.name(), |rank| rank.to_string());
        let mut cells = vec![name, row.steps.to_string(), row.waits.to_string()];
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        if by_step {
            cells.push(or_none(row.waits_per_step().map(number)));
        }
        if audit.times_meaningful {
            cells.push(or_none(blocked(row).map(|ns| duration(ns.round() as u64))));
        }
        cells
    };
    let (sentences, places) = rank_sentences(audit);
    Some(Ranks {
        rows: shown.iter().map(cells).collect(),
        head,
        left_out: audit.ranks.len() - shown.len(),
        sentences,
        places,
    })
}

fn rank_sentences(audit: &Audit) -> (Vec<String>, Vec<String>) {
    let mut sentences = Vec::new();
    let by_step = audit.ranks_by_step();
    let each = if by_step { " per ordinary step" } else { "" };
    if let Some((longest, least)) = audit.longest_and_least() {
        let (how, measure): (_, &dyn Fn(&RankRow) -> String) = match (audit.times_meaningful, by_step) {
            (true, true) => {
                ("longest", &|row| duration(row.blocked_ns_per_step().unwrap_or(0.0).round() as u64))
            }
            (true, false) => ("longest", &|row| duration(row.blocked_ns.unwrap_or(0))),
            (false, true) => ("most often", &|row| times(row.waits_per_step().unwrap_or(0.0))),
            (false, false) => ("most often", &|row| times(row.waits as f64)),
        };
        let (most, few) = (measure(longest), measure(least));
        sentences.push(if most == few {
            format!("all ranks wait about equally: {most}{each}")
        } else {
            format!("{} waits {how}: {most}{each}; {} least: {few}", longest.name(), least.name())
        });
    }
    let (compared, mut steps): (Vec<usize>, Vec<usize>) =
        audit.compared_ranks().map(|(at, row)| (at, row.steps)).unzip();
    let others: Vec<usize> = (0..audit.ranks.len()).filter(|at| !compared.contains(at)).collect();
    if !others.is_empty() {
        let (has, is) = if others.len() == 1 { ("has", "is") } else { ("have", "are") };
        sentences
            .push(format!("{} {has} no ordinary step and {is} not compared", rank_names(audit, &others)));
    }
    steps.sort_unstable();
    if let ([least, .., most], true) = (steps.as_slice(), steps.first() != steps.last()) {
        sentences.push(format!("ranks have different numbers of steps: {least} to {most}"));
    }
    let sites: Vec<&Site> = audit.sites.iter().filter(|site| audit.ranks_disagree(site)).collect();
    sentences.push(match sites.len() as u64 {
        0 if compared.len() < 2 => return (sentences, Vec::new()),
        0 => "all ranks wait at the same places, equally often".to_owned(),
        count => format!("ranks disagree at {}", plural(count, "place", "places")),
    });
    let place =
        |site: &&Site| format!("{} at {}: {}", site.kind.id(), place_text(site), per_rank(audit, site));
    let mut places: Vec<String> = sites.iter().take(MOST_DISAGREEMENTS).map(place).collect();
    if let more @ 1.. = sites.len().saturating_sub(MOST_DISAGREEMENTS) as u64 {
        places
            .push(format!("and {}; the JSON report has them all", plural(more, "more place", "more places")));
    }
    (sentences, places)
}

/// `once`, `3 times`.
fn times(count: f64) -> String {
    if count == 1.0 { "once".to_owned() } else { format!("{} times", number(count)) }
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
