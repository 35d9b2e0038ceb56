//! The reports of `diff`: text for people, Markdown for a pull request, JSON (`syncaudit.diff/1`) for scripts.
//!
//! In: a [`Diff`]. Out: the same bytes for the same traces; no time of a run whose times mean nothing.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::markdown::{Page, clipped, code, icon};
use crate::audit::Frame;
use crate::gate::{Diff, Row, RowKind, Side};

/// The comparison as text, ending with a newline.
#[must_use]
pub fn diff_text(diff: &Diff) -> String {
    let mut out = format!("verdict: {}\n", diff.verdict.id());
    for reason in &diff.reasons {
        let _ = writeln!(out, "  {reason}");
    }
    for warning in &diff.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    let _ = writeln!(out, "\n{:<28}{:>14}{:>14}", "", "old", "new");
    for (name, old, new) in sides(diff) {
        let _ = writeln!(out, "{name:<28}{old:>14}{new:>14}");
    }
    for kind in KINDS {
        let rows: Vec<&Row> = diff.rows.iter().filter(|row| row.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        let note = if kind == RowKind::NotReached { NOT_REACHED } else { "" };
        let _ = writeln!(out, "\n{} {}{note}", rows.len(), kind.id());
        for row in rows {
            let _ = writeln!(out, "  {} {}: {}", row.fingerprint, place_text(row), change_text(row));
            if kind == RowKind::Moved
                && let (Some(old), Some(new)) = (&row.old_frame, &row.new_frame)
            {
                let _ = writeln!(out, "    from {} to {}", frame_text(old), frame_text(new));
            }
        }
    }
    out
}

/// In the order of the reports.
const KINDS: [RowKind; 7] = [
    RowKind::Appeared,
    RowKind::Grown,
    RowKind::Shrunk,
    RowKind::Moved,
    RowKind::Gone,
    RowKind::NotReached,
    RowKind::Same,
];

const NOT_REACHED: &str = " (the new run never got there, as far as its trace tells)";

/// What is known of both runs: name, old, new.
fn sides(diff: &Diff) -> [(&'static str, String, String); 3] {
    let row = |name, of: fn(&Side) -> String| (name, of(&diff.old), of(&diff.new));
    [
        row("ordinary steps", |side| side.ordinary_steps.to_string()),
        row("waits per ordinary step", |side| format!("{:.2}", side.waits_per_step)),
        row("blocked per ordinary step", |side| {
            side.blocked_ns_per_step.map_or_else(|| "-".to_owned(), |ns| format!("{:.3} ms", ns as f64 / 1e6))
        }),
    ]
}

fn change_text(row: &Row) -> String {
    let change = match (row.old_per_step, row.new_per_step) {
        (old, new) if old == new => format!("{new} per step"),
        (old, new) => format!("{old} -> {new} per step"),
    };
    let accepted = !row.fails && matches!(row.kind, RowKind::Appeared | RowKind::Grown);
    if accepted { change + ", accepted by the configuration" } else { change }
}

/// The comparison as a comment on a pull request, ending with a newline; below the same limit as the report.
#[must_use]
pub fn diff_markdown(diff: &Diff) -> String {
    let mut page = Page::new(0);
    let mut card = format!(
        "<!-- syncaudit diff -->\n### {} syncaudit diff: {}\n\n",
        icon(diff.verdict),
        diff.verdict.id()
    );
    for reason in &diff.reasons {
        let _ = writeln!(card, "- {}", clipped(reason));
    }
    for warning in &diff.warnings {
        let _ = writeln!(card, "- Warning: {}", clipped(warning));
    }
    card.push_str("\n| | Old | New |\n|---|---|---|\n");
    for (name, old, new) in sides(diff) {
        let _ = writeln!(card, "| {name} | {old} | {new} |");
    }
    page.add(&card);
    for kind in KINDS {
        let rows: Vec<&Row> = diff.rows.iter().filter(|row| row.kind == kind).collect();
        let note = if kind == RowKind::NotReached { NOT_REACHED } else { "" };
        // What is as it was is folded away.
        let (head, tail) = match kind {
            RowKind::Same | RowKind::NotReached => (
                format!("\n<details><summary>{} {}{note}</summary>\n\n", rows.len(), kind.id()),
                "\n</details>\n",
            ),
            _ => (format!("\n#### {} {}\n\n", rows.len(), kind.id()), ""),
        };
        let line = |row: &&Row| {
            let id = code(&row.fingerprint);
            format!("- {} {}: {}\n", id, code(&place_text(row)), change_text(row))
        };
        page.list(&head, rows.iter().map(line), tail);
    }
    page.finish()
}

fn place_text(row: &Row) -> String {
    match row.new_frame.as_ref().or(row.old_frame.as_ref()) {
        Some(frame) => format!("{} at {}", row.place.kind.id(), frame_text(frame)),
        None => row.place.to_string(),
    }
}

fn frame_text(frame: &Frame) -> String {
    match (frame.file.is_empty(), frame.line) {
        (true, _) => frame.function.clone(),
        (false, 0) => frame.file.clone(),
        (false, line) => format!("{}:{line}", frame.file),
    }
}

/// The comparison as JSON, ending with a newline.
#[must_use]
pub fn diff_json(diff: &Diff) -> String {
    let side = |side: &Side| {
        json!({
            "source": side.source.id(),
            "emulated": side.emulated,
            "program": side.program,
            "ordinary_steps": side.ordinary_steps,
            "waits_per_step": side.waits_per_step,
            "blocked_ns_per_step": side.blocked_ns_per_step,
        })
    };
    let frame = |frame: &Option<Frame>| {
        frame.as_ref().map_or(
            Value::Null,
            |frame| json!({ "file": frame.file, "line": frame.line, "function": frame.function }),
        )
    };
    let row = |row: &Row| {
        json!({
            "change": row.kind.id(),
            "fails": row.fails,
            "fingerprint": row.fingerprint,
            "kind": row.place.kind.id(),
            "op": row.place.op,
            "range": row.place.range,
            "functions": row.place.functions,
            "apis": row.place.calls,
            "old": { "per_step": row.old_per_step, "place": frame(&row.old_frame), "blocked_ns": row.old_blocked_ns },
            "new": { "per_step": row.new_per_step, "place": frame(&row.new_frame), "blocked_ns": row.new_blocked_ns },
        })
    };
    let all = json!({
        "schema": "syncaudit.diff/1",
        "verdict": diff.verdict.id(),
        "reasons": diff.reasons,
        "warnings": diff.warnings,
        "old": side(&diff.old),
        "new": side(&diff.new),
        "sites": diff.rows.iter().map(row).collect::<Vec<Value>>(),
    });
    format!("{all:#}\n")
}
