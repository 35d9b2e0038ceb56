//! The report as JUnit XML: one test suite, a test case for every line of the budget and for every finding.
//!
//! In: what the gate judged. Out: XML that test viewers of CI systems read. Errors are failures (an inconclusive trace is an error of the
//! test itself), accepted waits are skipped with their reason. No time of an emulated run, and none of the machine.

use std::fmt::Write as _;

use super::words::{self, finding_line, finding_place, plain, rule_of, site_of};
use crate::audit::plural;
use crate::gate::{Code, Finding, Judged, Severity};

/// The report as JUnit XML, ending with a newline. The same input gives the same bytes.
#[must_use]
pub fn junit(judged: &Judged) -> String {
    let cases: Vec<Case> = budget_cases(judged).into_iter().chain(finding_cases(judged)).collect();
    let count = |wanted: fn(&Outcome) -> bool| cases.iter().filter(|case| wanted(&case.outcome)).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
        cases.len(),
        count(|outcome| matches!(outcome, Outcome::Failure { .. })),
        count(|outcome| matches!(outcome, Outcome::Error { .. })),
        count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
    );
    let audit = &judged.audit;
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"syncaudit\" {counts}>\n  <testsuite \
         name=\"syncaudit\" {counts}>\n    <properties>\n"
    );
    for (name, value) in [
        ("verdict", audit.verdict.id().to_owned()),
        ("emulated", audit.source.emulated.to_string()),
        ("steps", words::steps_text(audit)),
    ] {
        let _ = writeln!(out, "      <property name=\"{name}\" value=\"{}\"/>", xml(&value));
    }
    out.push_str("    </properties>\n");
    for case in &cases {
        case.write(&mut out);
    }
    let said: Vec<&str> = audit.reasons.iter().chain(&audit.next).map(String::as_str).collect();
    let _ = write!(
        out,
        "    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>\n",
        xml_lines(&said.join("\n"))
    );
    out
}

enum Outcome {
    Passed,
    Failure { kind: &'static str, message: String, text: String },
    Error { kind: &'static str, message: String, text: String },
    Skipped { message: String },
}

struct Case {
    class: String,
    name: String,
    place: Option<(String, u32)>,
    outcome: Outcome,
    said: String,
}

impl Case {
    fn write(&self, out: &mut String) {
        let mut place = String::new();
        if let Some((file, line)) = &self.place {
            let _ = write!(place, " file=\"{}\" line=\"{line}\"", xml(file));
        }
        let _ = write!(
            out,
            "    <testcase classname=\"{}\" name=\"{}\"{place}",
            xml(&self.class),
            xml(&self.name)
        );
        let mut body = String::new();
        let mut problem = |tag: &str, kind: &str, message: &str, text: &str| {
            let _ = writeln!(
                body,
                "      <{tag} type=\"{kind}\" message=\"{}\">{}</{tag}>",
                xml(message),
                xml_lines(text)
            );
        };
        match &self.outcome {
            Outcome::Passed => {}
            Outcome::Failure { kind, message, text } => problem("failure", kind, message, text),
            Outcome::Error { kind, message, text } => problem("error", kind, message, text),
            Outcome::Skipped { message } => {
                let _ = writeln!(body, "      <skipped message=\"{}\"/>", xml(message));
            }
        }
        if !self.said.is_empty() {
            let _ = writeln!(body, "      <system-out>{}</system-out>", xml_lines(&self.said));
        }
        if body.is_empty() {
            out.push_str("/>\n");
        } else {
            let _ = write!(out, ">\n{body}    </testcase>\n");
        }
    }
}

/// One per line of the budget: it fails if a place that it judges is over.
fn budget_cases(judged: &Judged) -> Vec<Case> {
    let audit = &judged.audit;
    let over = |line: usize| -> Vec<String> {
        judged
            .findings
            .iter()
            .filter(|finding| finding.code == Code::OverBudget && finding.severity == Severity::Error)
            .filter_map(|finding| site_of(judged, finding))
            .filter(|site| audit.budget.line_of(site) == line)
            .map(|site| {
                format!(
                    "{} at {}: {} in ordinary steps, at most {} in one",
                    site.kind.id(),
                    words::place_text(site),
                    plural(site.ordinary_waits, "wait", "waits"),
                    site.most_per_step
                )
            })
            .collect()
    };
    audit
        .budget
        .lines()
        .into_iter()
        .enumerate()
        .map(|(index, (what, allowed))| {
            let over = over(index);
            let outcome = if over.is_empty() {
                Outcome::Passed
            } else {
                Outcome::Failure {
                    kind: Code::OverBudget.id(),
                    message: format!(
                        "{} over the budget of {allowed} per ordinary step",
                        plural(over.len() as u64, "place is", "places are")
                    ),
                    text: over.join("\n"),
                }
            };
            Case {
                class: "syncaudit.budget".to_owned(),
                name: format!("{what}: at most {allowed} per ordinary step"),
                place: None,
                outcome,
                said: String::new(),
            }
        })
        .collect()
}

fn finding_cases(judged: &Judged) -> Vec<Case> {
    judged.findings.iter().map(|finding| finding_case(judged, finding)).collect()
}

fn finding_case(judged: &Judged, finding: &Finding) -> Case {
    let kind = finding.code.id();
    let message = finding.message.clone();
    let mut text = finding.help.clone();
    if let Some(site) = site_of(judged, finding) {
        let rule = rule_of(site);
        text = format!(
            "{}\n{}\nHow to fix it: {}\n{}",
            rule.headline,
            words::facts(&judged.audit, site)
                .iter()
                .map(|(name, value)| format!("{name}: {value}"))
                .collect::<Vec<_>>()
                .join("\n"),
            rule.fix(site),
            finding.help
        );
    }
    let (outcome, said) = match finding.severity {
        Severity::Error if finding.code == Code::Inconclusive => {
            (Outcome::Error { kind, message, text }, String::new())
        }
        Severity::Error => (Outcome::Failure { kind, message, text }, String::new()),
        Severity::Warn => (Outcome::Passed, format!("{message}\n{text}")),
        Severity::Note => match &finding.justification {
            Some(reason) => {
                (Outcome::Skipped { message: format!("{message} Reason: {reason}") }, String::new())
            }
            None => (Outcome::Passed, message),
        },
    };
    let place = finding_place(judged, finding).unwrap_or_else(|| finding.message.clone());
    let id = finding.fingerprint.as_ref().map(|fingerprint| format!(" [{fingerprint}]")).unwrap_or_default();
    Case {
        class: format!("syncaudit.{kind}"),
        name: format!("{place}{id}"),
        place: finding_line(judged, finding),
        outcome,
        said: said.trim().to_owned(),
    }
}

/// XML allows hardly any control character, not even escaped.
fn xml(text: &str) -> String {
    let text: String = plain(text)
        .chars()
        .map(|c| if matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c })
        .collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&apos;")
}

fn xml_lines(text: &str) -> String {
    text.trim().split('\n').map(xml).collect::<Vec<_>>().join("\n")
}
