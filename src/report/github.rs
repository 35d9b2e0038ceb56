//! The report as workflow commands of GitHub Actions: annotations on the lines, the rest as a group in the log.
//!
//! In: what the gate judged. Out: lines for the log of a step. GitHub shows at most ten annotations of each type per step, so findings on one
//! line share one, the first ones count, and the last one says how many more there are. Text of the program must never become a command:
//! it is escaped in the annotations, and in the log no line can be read as one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::words::{capital, finding_line, finding_place, plain, rule_of, site_of};
use crate::audit::{Verdict, plural};
use crate::gate::{Finding, Judged, Severity};

/// What GitHub shows of each type per step ("Workflow commands", limits of annotations).
const MOST_PER_TYPE: usize = 10;

/// The report as workflow commands, ending with a newline. The same input gives the same bytes.
#[must_use]
pub fn github(judged: &Judged) -> String {
    let audit = &judged.audit;
    let mut out = String::new();
    let next = audit.next.iter().map(|next| format!("Next: {next}"));
    let why = audit.reasons.iter().cloned().chain(next).collect::<Vec<_>>().join("\n");
    let verdict = format!("syncaudit: {}", audit.verdict.id());
    let (verdict_type, of_type) = match audit.verdict {
        Verdict::Pass => ("notice", Severity::Note),
        Verdict::Fail | Verdict::Inconclusive => ("error", Severity::Error),
    };
    command(&mut out, verdict_type, &[("title", &verdict)], &why);
    for (severity, name) in [(Severity::Error, "error"), (Severity::Warn, "warning")] {
        // The verdict takes one of its type.
        let room = MOST_PER_TYPE - usize::from(severity == of_type);
        annotate(&mut out, judged, severity, name, room);
    }
    log(&mut out, judged);
    out
}

/// Where, and what is said there.
type Group<'j> = (Option<(String, u32)>, Vec<&'j Finding>);

fn annotate(out: &mut String, judged: &Judged, severity: Severity, name: &str, room: usize) {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut at: BTreeMap<(String, u32), usize> = BTreeMap::new();
    for finding in judged.findings.iter().filter(|finding| finding.severity == severity) {
        let line = finding_line(judged, finding);
        let known = line.as_ref().and_then(|line| at.get(line)).copied();
        match known {
            Some(index) => groups[index].1.push(finding),
            None => {
                if let Some(line) = &line {
                    at.insert(line.clone(), groups.len());
                }
                groups.push((line, vec![finding]));
            }
        }
    }
    let shown = if groups.len() > room { room - 1 } else { groups.len() };
    for (line, findings) in &groups[..shown] {
        let title = match findings[..] {
            [finding] => format!("syncaudit: {}", finding.code.title()),
            _ => format!("syncaudit: {}", plural(findings.len() as u64, "finding", "findings")),
        };
        let text: Vec<String> = findings.iter().map(|finding| say(judged, finding)).collect();
        let number = line.as_ref().map(|(_, number)| number.to_string());
        let mut properties = Vec::new();
        if let (Some((file, _)), Some(number)) = (line, &number) {
            properties.extend([("file", file.as_str()), ("line", number.as_str())]);
        }
        properties.push(("title", &title));
        command(out, name, &properties, &text.join("\n\n"));
    }
    let rest: usize = groups[shown..].iter().map(|(_, findings)| findings.len()).sum();
    if rest > 0 {
        let more = format!(
            "{} in the log of this step",
            plural(rest as u64, "more finding is", "more findings are")
        );
        command(out, name, &[("title", "syncaudit: there are more")], &more);
    }
}

fn say(judged: &Judged, finding: &Finding) -> String {
    let mut text = finding.message.clone();
    if let Some(site) = site_of(judged, finding) {
        let rule = rule_of(site);
        text = format!(
            "{}. {text}\nHow to fix it: {}\nMore: syncaudit explain {} (id {})",
            capital(rule.headline),
            rule.fix(site),
            rule.id,
            site.fingerprint
        );
    }
    if !finding.help.is_empty() {
        let _ = write!(text, "\n{}", finding.help);
    }
    text
}

fn log(out: &mut String, judged: &Judged) {
    if judged.findings.is_empty() {
        return;
    }
    let count = plural(judged.findings.len() as u64, "finding", "findings");
    let _ = writeln!(out, "::group::syncaudit: {count}");
    for finding in &judged.findings {
        let place = finding_place(judged, finding).map(|place| format!(" at {place}")).unwrap_or_default();
        let reason =
            finding.justification.as_ref().map(|reason| format!(" (reason: {reason})")).unwrap_or_default();
        // The name in front keeps the line from being a command.
        let line =
            format!("{} {}{place}: {}{reason}", finding.severity.id(), finding.code.id(), finding.message);
        let _ = writeln!(out, "{}", plain(&line).replace("##[", "## ["));
    }
    let _ = writeln!(out, "::endgroup::");
}

fn command(out: &mut String, name: &str, properties: &[(&str, &str)], message: &str) {
    let properties: Vec<String> =
        properties.iter().map(|(key, value)| format!("{key}={}", property(value))).collect();
    let _ = writeln!(out, "::{name} {}::{}", properties.join(","), data(message));
}

/// As the toolkit of GitHub Actions escapes the text of a command.
fn data(text: &str) -> String {
    let text: String = text.split('\n').map(plain).collect::<Vec<_>>().join("\n");
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A").replace("##[", "## [")
}

/// As [`data`], for the values in front of the text.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
