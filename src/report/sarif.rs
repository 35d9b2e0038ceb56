//! The report as SARIF 2.1.0 (OASIS), for code scanning.
//!
//! In: what the gate judged. Out: one run. Every rule that there is is declared, also when it is silent: the idioms and kinds of waits
//! ([`crate::rules`]), and the gate's codes for what is about no wait of this run. A finding about a wait has that wait's rule; the gate's code is
//! in its properties. Paths are relative to `SRCROOT`, stacks are code flows, accepted waits are suppressed with their reason.

use serde_json::{Map, Value, json};

use super::words::{self, capital, finding_line, plain, rule_of, site_of};
use crate::audit::{Frame, Site, Verdict};
use crate::gate::{Code, Finding, Judged, Severity};
use crate::rules::{self, Rule};

/// Where the schema says that it is.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The report as SARIF, pretty-printed, ending with a newline. The same input gives the same bytes.
///
/// # Panics
/// Never: all keys are text.
#[must_use]
pub fn sarif(judged: &Judged) -> String {
    let audit = &judged.audit;
    let rules: Vec<Value> = rules::ALL
        .iter()
        .map(|rule| wait_rule(rule))
        .chain(Code::ALL.iter().map(|&code| gate_rule(code)))
        .collect();
    let results: Vec<Value> = judged.findings.iter().map(|finding| result(judged, finding)).collect();
    let notifications: Vec<Value> = audit
        .problems
        .iter()
        .map(|problem| {
            let level = if problem.kind.hides_waits() { "warning" } else { "note" };
            json!({ "level": level, "message": message(&problem.text) })
        })
        .collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "syncaudit",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "shortDescription": { "text": "Finds every place where a training step makes the host wait for the GPU" },
                "rules": rules,
            }},
            "invocations": [{
                "executionSuccessful": audit.verdict != Verdict::Inconclusive,
                "toolExecutionNotifications": notifications,
            }],
            "originalUriBaseIds": {
                "SRCROOT": { "description": { "text": "The root of the sources of the program under audit." } },
            },
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": {
                "verdict": audit.verdict.id(),
                "reasons": audit.reasons,
                "emulated": audit.source.emulated,
                "ordinarySteps": audit.step_counts.ordinary,
                "ordinaryWaitsPerStep": audit.totals.ordinary_waits_per_step,
            },
        }],
    });
    let mut text = serde_json::to_string_pretty(&log).expect("SARIF is always valid JSON");
    text.push('\n');
    text
}

fn wait_rule(rule: &Rule) -> Value {
    let help: Vec<(&str, &str)> = rule.parts().to_vec();
    let text: Vec<String> = help.iter().map(|(title, text)| format!("{title}: {text}")).collect();
    let markdown: Vec<String> = help.iter().map(|(title, text)| format!("**{title}.** {text}")).collect();
    json!({
        "id": rule.id,
        "name": pascal(rule.id),
        "shortDescription": { "text": capital(rule.headline) },
        "fullDescription": { "text": rule.waits },
        "help": { "text": text.join("\n\n"), "markdown": markdown.join("\n\n") },
        "defaultConfiguration": { "level": "error" },
        "properties": { "tags": ["performance", "cuda"], "kinds": rule.kinds.iter().map(|kind| kind.id()).collect::<Vec<_>>() },
    })
}

fn gate_rule(code: Code) -> Value {
    json!({
        "id": code.id(),
        "name": pascal(code.id()),
        "shortDescription": { "text": capital(code.title()) },
        "fullDescription": { "text": code.description() },
        "help": { "text": code.description() },
        "defaultConfiguration": { "level": "note" },
        "properties": { "tags": ["gate"] },
    })
}

fn result(judged: &Judged, finding: &Finding) -> Value {
    let site = site_of(judged, finding);
    let (rule_id, index) = match site.map(rule_of) {
        Some(rule) => (rule.id, rules::ALL.iter().position(|known| *known == rule)),
        None => {
            let index = Code::ALL.iter().position(|code| *code == finding.code);
            (finding.code.id(), index.map(|index| rules::ALL.len() + index))
        }
    };
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warn => "warning",
        Severity::Note => "note",
    };
    let mut result = Map::new();
    let mut put = |key: &str, value: Value| {
        result.insert(key.to_owned(), value);
    };
    put("ruleId", rule_id.into());
    if let Some(index) = index {
        put("ruleIndex", index.into());
    }
    put("level", level.into());
    let text = match site {
        Some(site) => {
            format!("{}. {} {}", capital(rule_of(site).headline), finding.message, rule_of(site).fix(site))
        }
        None => finding.message.clone(),
    };
    put("message", message(format!("{text} {}", finding.help).trim()));
    let place = place(judged, finding, site);
    if !place.is_empty() {
        put("locations", json!([place]));
    }
    if let Some(written) = finding.written.as_ref().filter(|_| site.is_some()) {
        let line = u32::try_from(written.line).unwrap_or(0);
        let mut related = physical(&written.path.to_string_lossy(), line);
        related.insert("message".to_owned(), json!({ "text": "the entry that this is about" }));
        put("relatedLocations", json!([related]));
    }
    if let Some(flow) = site.and_then(code_flow) {
        put("codeFlows", json!([flow]));
    }
    if let Some(fingerprint) = &finding.fingerprint {
        put("partialFingerprints", json!({ "syncauditSite/v1": fingerprint }));
    }
    if judged.with_baseline
        && let Some(state) = baseline_state(finding.code)
    {
        put("baselineState", state.into());
    }
    if let Some(reason) = &finding.justification {
        let suppression = json!({ "kind": "external", "status": "accepted", "justification": plain(reason) });
        put("suppressions", json!([suppression]));
    }
    let mut properties = Map::new();
    properties.insert("code".to_owned(), finding.code.id().into());
    if let Some(owner) = &finding.owner {
        properties.insert("owner".to_owned(), plain(owner).into());
    }
    if let Some(site) = site {
        properties.insert("kind".to_owned(), site.kind.id().into());
        properties.insert("evidence".to_owned(), site.evidence.id().into());
        for (name, value) in words::facts(&judged.audit, site) {
            properties.entry(name.replace(' ', "-")).or_insert_with(|| plain(&value).into());
        }
    }
    put("properties", properties.into());
    Value::Object(result)
}

/// What the baseline knows of it; codes that are not about one keep silent.
fn baseline_state(code: Code) -> Option<&'static str> {
    match code {
        Code::NewWait => Some("new"),
        Code::KnownWait => Some("unchanged"),
        Code::GrownWait | Code::ShrunkWait | Code::MovedWait => Some("updated"),
        Code::FixedWait => Some("absent"),
        _ => None,
    }
}

fn place(judged: &Judged, finding: &Finding, site: Option<&Site>) -> Map<String, Value> {
    let mut location =
        finding_line(judged, finding).map(|(file, line)| physical(&file, line)).unwrap_or_default();
    let frame = site.and_then(Site::place).or(finding.place.as_ref());
    if let Some(frame) = frame.filter(|frame| !frame.function.is_empty()) {
        location.insert("logicalLocations".to_owned(), json!([function(frame)]));
    }
    location
}

fn physical(file: &str, line: u32) -> Map<String, Value> {
    let mut place = json!({ "artifactLocation": artifact(file) });
    if line > 0 {
        place["region"] = json!({ "startLine": line });
    }
    Map::from_iter([("physicalLocation".to_owned(), place)])
}

fn function(frame: &Frame) -> Value {
    json!({ "fullyQualifiedName": plain(&frame.function), "kind": "function" })
}

/// A path below the root; one that leaves it (`..`, an absolute one) keeps its words but has no base.
fn artifact(file: &str) -> Value {
    let relative = !file.starts_with('/') && file.split('/').all(|part| part != "..");
    if relative { json!({ "uri": uri(file), "uriBaseId": "SRCROOT" }) } else { json!({ "uri": uri(file) }) }
}

/// The user's frames and those between, outermost first, then the call that waits.
fn code_flow(site: &Site) -> Option<Value> {
    let frames = if site.python.is_empty() { &site.native } else { &site.python };
    let mut steps: Vec<Value> = frames
        .iter()
        .rev()
        .filter(|frame| frame.line > 0 && !frame.file.is_empty())
        .map(|frame| {
            let mut location = physical(&frame.file, frame.line);
            location.insert("message".to_owned(), message(&frame.function));
            if !frame.function.is_empty() {
                location.insert("logicalLocations".to_owned(), json!([function(frame)]));
            }
            let importance = if frame.user { "essential" } else { "unimportant" };
            json!({ "location": location, "importance": importance })
        })
        .collect();
    let last = steps.last()?.clone();
    let mut call = last["location"].clone();
    call["message"] = message(&site.apis.join(", then "));
    steps.push(json!({ "location": call, "importance": "essential" }));
    Some(json!({ "threadFlows": [{ "locations": steps }] }))
}

fn message(text: &str) -> Value {
    // Braces are placeholders of SARIF's own: they are doubled to stand for themselves.
    let text = match text.trim() {
        "" => "(unknown)".to_owned(),
        text => {
            text.split('\n').map(plain).collect::<Vec<_>>().join("\n").replace('{', "{{").replace('}', "}}")
        }
    };
    json!({ "text": text })
}

/// Percent-encodes everything that may not stand in the path of a URI reference.
fn uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn pascal(id: &str) -> String {
    id.split('-').map(capital).collect()
}
