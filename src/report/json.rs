//! The JSON report, schema `syncaudit.report/1` (`docs/report.md`).

use super::Audit;

/// The report as JSON, pretty-printed, ending with a newline. The same audit always gives the same bytes.
#[must_use]
pub fn json(audit: &Audit) -> String {
    let report = serde_json::json!({
        "schema": "syncaudit.report/1",
        "verdict": audit.verdict.id(),
        "reasons": audit.reasons,
    });
    format!("{report:#}\n")
}
