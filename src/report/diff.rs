//! The reports of `diff`: text for people, JSON (`syncaudit.diff/1`) for scripts.
//!
//! In: a [`Diff`]. Out: the same bytes for the same traces; no time of a run whose times mean nothing.

use std::fmt::Write as _;

use serde_json::{Value, json};

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
    let mut row = |name: &str, of: &dyn Fn(&Side) -> String| {
        let _ = writeln!(out, "{name:<28}{:>14}{:>14}", of(&diff.old), of(&diff.new));
    };
    row("ordinary steps", &|side| side.ordinary_steps.to_string());
    row("waits per ordinary step", &|side| format!("{:.2}", side.waits_per_step));
    row("blocked per ordinary step", &|side| {
        side.blocked_ns_per_step.map_or_else(|| "-".to_owned(), |ns| format!("{:.3} ms", ns as f64 / 1e6))
    });
    for kind in [
        RowKind::Appeared,
        RowKind::Grown,
        RowKind::Shrunk,
        RowKind::Moved,
        RowKind::Gone,
        RowKind::NotReached,
        RowKind::Same,
    ] {
        let rows: Vec<&Row> = diff.rows.iter().filter(|row| row.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        let note = if kind == RowKind::NotReached {
            " (the new run never got there, as far as its trace tells)"
        } else {
            ""
        };
        let _ = writeln!(out, "\n{} {}{note}", rows.len(), kind.id());
        for row in rows {
            let change = match (row.old_per_step, row.new_per_step) {
                (old, new) if old == new => format!("{new} per step"),
                (old, new) => format!("{old} -> {new} per step"),
            };
            let accepted = if !row.fails && matches!(kind, RowKind::Appeared | RowKind::Grown) {
                ", accepted by the configuration"
            } else {
                ""
            };
            let _ = writeln!(out, "  {} {}: {change}{accepted}", row.fingerprint, place_text(row));
            if kind == RowKind::Moved
                && let (Some(old), Some(new)) = (&row.old_frame, &row.new_frame)
            {
                let _ = writeln!(out, "    from {} to {}", frame_text(old), frame_text(new));
            }
        }
    }
    out
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
