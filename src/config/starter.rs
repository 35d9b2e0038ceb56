//! The budget file that `syncaudit init` writes: commented, with what a trace shows filled in.
//!
//! In: an audit, or nothing. Out: text that [`super::parse`] accepts and that judges the trace as it was judged for the file. Waits are never
//! allowed by it: entries for them stand there as comments, without a reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::audit::{Audit, AuditOptions, Site, SiteStatus, StepKind, StepSource, WaitKind};
use crate::gate::judged_per_step;

/// Entries for waits over the budget that are written out; a baseline is the better place for more.
const MOST_ENTRIES: usize = 10;

/// The text of the file.
#[must_use]
pub fn starter(seen: Option<(&Audit, &AuditOptions)>) -> String {
    let mut out = String::from(
        "# What syncaudit judges by. Every key may be left out. All of them, and a JSON Schema\n\
         # for editors: docs/budget-file.md and docs/syncaudit.schema.json of syncaudit's repository.\n\n[steps]\n",
    );
    steps(&mut out, seen);
    out.push_str(
        "\n[budget]\n# Waits that one ordinary step may have, together.\nwaits-per-step = 0\n\n\
         # Kinds and ranges with an allowance of their own.\n",
    );
    if let Some((audit, _)) = seen {
        for (kind, most) in most_by_kind(audit) {
            let _ = writeln!(out, "# In this trace: {} up to {most} in a step.", kind.id());
        }
    }
    out.push_str(
        "# [budget.kinds]\n# event-sync = 1            # a limit on run-ahead\n\
         # [budget.ranges]\n# checkpoint = 4\n\n\
         # Log steps may wait as they like, unless they have a budget of their own.\n\
         # [budget.log-steps]\n# waits-per-step = 4\n\n",
    );
    out.push_str(
        "# error (the default), warn (said, fails nothing) or off (not judged).\n# [severity]\n\
         # memory-management = \"warn\"  # allocators differ from run to run\n\n",
    );
    out.push_str(
        "[check]\n# Waits that are there today and may stay for now; made with 'syncaudit baseline TRACE'. Uncomment it then.\n\
         # baseline = \"syncaudit.baseline\"\n# With several runs: in how many of them a wait must be to count (all or any).\n\
         runs = \"all\"\n\n# Folders that paths in reports start from, relative to this file.\n# [sources]\n# roots = [\".\"]\n\n",
    );
    out.push_str(
        "# Waits that are meant to be: a fingerprint (the 'id' in reports) or a pattern, and why.\n# [[allow]]\n\
         # function = \"save_checkpoint\"      # or range, op, kind, fingerprint; all that are given must fit\n\
         # reason = \"the checkpoint has to be on disk before the step ends\"\n\
         # expires = 2027-06-30              # its last day; after it the check fails and says so\n\
         # owner = \"training team\"\n# max-per-step = 1\n",
    );
    if let Some((audit, _)) = seen {
        entries(&mut out, audit);
    }
    out
}

fn steps(out: &mut String, seen: Option<(&Audit, &AuditOptions)>) {
    let Some((audit, options)) = seen else {
        out.push_str(
            "# Ranges that are steps: '|' separates alternatives, '*' stands for any text, a number at the end need not be written.\n\
             # pattern = \"train_step\"\n# First steps of each process, not judged.\nwarmup = 2\n\
             # Steps that may read metrics: number % 10 == 9; without it those with a log range inside.\n\
             # log-every = \"10+9\"\n# log-range = \"log\"\n",
        );
        return;
    };
    let counts = &audit.step_counts;
    let _ = writeln!(
        out,
        "# This trace has {}, found by {}: {} warm-up, {} log, {} ordinary, {} unfinished.",
        crate::audit::plural(counts.total as u64, "step", "steps"),
        counts.source.id(),
        counts.warmup,
        counts.log,
        counts.ordinary,
        counts.unfinished
    );
    let rules = &options.steps;
    match (&rules.pattern, counts.source) {
        (Some(pattern), _) => {
            let _ = writeln!(out, "pattern = {}", quoted(&pattern.to_string()));
        }
        (None, StepSource::None | StepSource::Inferred) => {
            out.push_str(
                "# No range of the program was recognised as a step. Name the one around a training step:\n",
            );
            let ranges: Vec<&str> = audit.seen.iter().map(String::as_str).take(8).collect();
            if !ranges.is_empty() {
                let _ = writeln!(out, "# (names in this trace: {})", one_line(&ranges.join(", ")));
            }
            out.push_str("# pattern = \"train_step\"\n");
        }
        (None, _) => {
            out.push_str("# pattern = \"train_step\"   # the usual names are recognised without it\n")
        }
    }
    let _ = writeln!(out, "# First steps of each process, not judged.\nwarmup = {}", rules.warmup);
    match (rules.log_every, log_period(audit)) {
        (Some(every), _) => {
            let _ = writeln!(out, "# Steps that may read metrics.\nlog-every = \"{every}\"");
        }
        (None, Some((every, offset))) => {
            let _ = writeln!(
                out,
                "# Steps with a log range are log steps. In this trace they are those of which number % {every} == {offset}; to hold\n\
                 # the program to that:\n# log-every = \"{every}+{offset}\""
            );
        }
        (None, None) => out.push_str(
            "# Steps that may read metrics: number % 10 == 9; without it those with a log range inside.\n# log-every = \"10+9\"\n",
        ),
    }
    match &rules.log_range {
        Some(range) => {
            let _ = writeln!(out, "log-range = {}", quoted(&range.to_string()));
        }
        None => out.push_str("# log-range = \"log\"\n"),
    }
}

/// Every how many steps the log steps come, if they come regularly.
fn log_period(audit: &Audit) -> Option<(i64, i64)> {
    let first = audit.steps.iter().map(|step| step.process).min()?;
    let of_first = || audit.steps.iter().filter(|step| step.process == first);
    let number = |step: &crate::audit::Step| step.number.or_else(|| i64::try_from(step.index).ok());
    let logs: Vec<i64> =
        of_first().filter(|step| step.kind == StepKind::Log).map(number).collect::<Option<_>>()?;
    let [a, b, ..] = logs[..] else { return None };
    let every = b.checked_sub(a).filter(|every| *every > 0)?;
    let offset = a.rem_euclid(every);
    let fits = |step: &crate::audit::Step| {
        let is_log = number(step).is_some_and(|number| number.rem_euclid(every) == offset);
        matches!(step.kind, StepKind::Warmup | StepKind::Unfinished) || is_log == (step.kind == StepKind::Log)
    };
    of_first().all(fits).then_some((every, offset))
}

fn most_by_kind(audit: &Audit) -> BTreeMap<WaitKind, u64> {
    let ordinary = |step: u32| audit.steps[step as usize].kind == StepKind::Ordinary;
    let mut in_steps: Vec<(u32, WaitKind)> =
        audit.waits.iter().filter_map(|wait| Some((wait.step?, wait.kind))).collect();
    in_steps.retain(|&(step, _)| ordinary(step));
    in_steps.sort_unstable();
    let mut most: BTreeMap<WaitKind, u64> = BTreeMap::new();
    for waits in in_steps.chunk_by(|a, b| a == b) {
        let most = most.entry(waits[0].1).or_default();
        *most = (*most).max(waits.len() as u64);
    }
    most
}

/// Entries for what is over the budget, as comments.
fn entries(out: &mut String, audit: &Audit) {
    let over: Vec<_> = audit
        .sites
        .iter()
        .zip(judged_per_step(audit))
        .filter(|(site, _)| site.status == SiteStatus::OverBudget)
        .collect();
    if over.is_empty() {
        return;
    }
    out.push_str(
        "\n# Over the budget in this trace. An entry needs a reason; a baseline takes them all at once.\n",
    );
    for (site, most) in over.iter().take(MOST_ENTRIES) {
        out.push_str("#\n");
        for line in allow_entry(site, *most).lines() {
            let comment = if line.starts_with('#') { "" } else { "# " };
            let _ = writeln!(out, "{comment}{line}");
        }
    }
    if over.len() > MOST_ENTRIES {
        let _ = writeln!(out, "#\n# ... and {} more.", over.len() - MOST_ENTRIES);
    }
}

/// An entry of the allow-list for a place that has up to `most` waits in a step. Its reason is for a person to fill in: the gate refuses an
/// empty one.
#[must_use]
pub fn allow_entry(site: &Site, most: u64) -> String {
    let place = site.place().map_or_else(String::new, |frame| match frame.line {
        0 => format!(" in {}", frame.function),
        line => format!(" at {}:{line}", frame.file),
    });
    let kind = site.kind.id();
    let mut entry =
        format!("# {kind}{}\n[[allow]]\nfingerprint = \"{}\"\n", one_line(&place), site.fingerprint);
    if most > 0 {
        let _ = writeln!(entry, "max-per-step = {most}");
    }
    entry.push_str("reason = \"\"\n");
    entry
}

/// A text as a TOML value.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Names of a program end no comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
