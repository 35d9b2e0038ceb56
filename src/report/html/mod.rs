//! The report as one self-contained page: no network, readable without scripts, sortable and foldable with them.
//!
//! In: what the gate judged. Out: HTML with style, script and charts inside; its policy forbids the page to load anything. Text of the program
//! is escaped everywhere. No time of an emulated run: its timeline is in call order. The same input gives the same bytes.

mod chart;
mod timeline;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::price;
use super::words::{self, capital, finding_place, number, place_text, plain, rule_of, site_of};
use crate::Audit;
use crate::audit::{Frame, Site, Verdict, plural};
use crate::gate::{Finding, Judged, Severity};
use crate::price::Prices;
use crate::rules;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The report as HTML, ending with a newline.
#[must_use]
pub fn html(judged: &Judged) -> String {
    let audit = &judged.audit;
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action \
         'none'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" \
         content=\"light dark\">\n<title>syncaudit: {}</title>\n<style>\n{STYLE}</style>\n<noscript><style>tr.detail[hidden] {{ \
         display: table-row }} .script {{ display: none }}</style></noscript>\n</head>\n<body>\n",
        audit.verdict.id()
    );
    head(&mut page, judged);
    page.push_str("<main>\n");
    card(&mut page, judged);
    findings(&mut page, judged);
    sites(&mut page, judged);
    ranks(&mut page, audit);
    chart::steps(&mut page, audit);
    timeline::one_step(&mut page, audit);
    explanations(&mut page, judged);
    notes(&mut page, judged);
    let _ = write!(page, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

fn head(page: &mut String, judged: &Judged) {
    let source = &judged.audit.source;
    let _ = write!(
        page,
        "<header>\n<strong class=\"name\">syncaudit</strong>\n<code class=\"program\">{}</code>\n<span class=\"chip\">{}{}</span>\n\
         <button id=\"theme\" class=\"script\" type=\"button\" aria-label=\"Switch between dark and light\" title=\"Dark or \
         light\">&#9681;</button>\n</header>\n",
        escape(&words::clip(&source.program.join(" "), 160)),
        source.kind.id(),
        if source.emulated { ", emulated" } else { "" }
    );
}

fn card(page: &mut String, judged: &Judged) {
    let audit = &judged.audit;
    let verdict = audit.verdict.id();
    let mark = match audit.verdict {
        Verdict::Pass => "&#10003;",
        Verdict::Fail => "&#10007;",
        Verdict::Inconclusive => "?",
    };
    let _ = write!(
        page,
        "<section id=\"verdict\" class=\"card {verdict}\">\n<h1><span class=\"mark\" aria-hidden=\"true\">{mark}</span> {}</h1>\n<div>\n",
        capital(verdict)
    );
    for reason in &audit.reasons {
        let _ = writeln!(page, "<p>{}</p>", escape(reason));
    }
    for next in &audit.next {
        let _ = writeln!(page, "<p class=\"next\"><b>Next:</b> {}</p>", escape(next));
    }
    if let Some(price) = price::sentence(audit) {
        let _ = writeln!(page, "<p><b>Price:</b> {}</p>", escape(&price));
    }
    if audit.source.emulated {
        page.push_str("<p class=\"quiet\">Emulated device: counts and places are real, times are not.</p>\n");
    }
    page.push_str("</div>\n</section>\n<dl class=\"figures\">\n");
    let errors = judged.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let mut figures = vec![
        ("waits per ordinary step", number(audit.totals.ordinary_waits_per_step)),
        ("places that wait", audit.sites.len().to_string()),
        ("errors", errors.to_string()),
        ("steps", audit.step_counts.total.to_string()),
    ];
    if let Some(blocked_ns) = audit.totals.blocked_ns {
        figures.push(("host time in waits", words::duration(blocked_ns)));
    }
    for (name, value) in figures {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    page.push_str("</dl>\n");
}

fn findings(page: &mut String, judged: &Judged) {
    if judged.findings.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Findings</h2>\n");
    let mut helped = BTreeSet::new();
    for (severity, one, many) in [
        (Severity::Error, "error", "errors"),
        (Severity::Warn, "warning", "warnings"),
        (Severity::Note, "note", "notes"),
    ] {
        let of: Vec<&Finding> =
            judged.findings.iter().filter(|finding| finding.severity == severity).collect();
        if of.is_empty() {
            continue;
        }
        let open = if severity == Severity::Note { "" } else { " open" };
        let _ = writeln!(
            page,
            "<details{open}><summary>{}</summary>\n<ul class=\"findings\">",
            plural(of.len() as u64, one, many)
        );
        for finding in of {
            // What to do is said once per code.
            item(page, judged, finding, helped.insert(finding.code));
        }
        page.push_str("</ul>\n</details>\n");
    }
    page.push_str("</section>\n");
}

fn item(page: &mut String, judged: &Judged, finding: &Finding, with_help: bool) {
    let place = finding_place(judged, finding).map(|place| format!("<code>{}</code>", escape(&place)));
    let place = match (place, finding.site) {
        (Some(place), Some(site)) => format!(" <a href=\"#site-{site}\" data-site=\"{site}\">{place}</a>"),
        (Some(place), None) => format!(" {place}"),
        (None, _) => String::new(),
    };
    let headline = site_of(judged, finding)
        .map(|site| format!("{}. ", capital(rule_of(site).headline)))
        .unwrap_or_default();
    let _ = write!(
        page,
        "<li class=\"{0}\"><span class=\"chip {0}\" title=\"{1}\">{2}</span>{place}<p>{3}{4}</p>",
        finding.severity.id(),
        escape(finding.code.description()),
        finding.code.id(),
        escape(&headline),
        escape(&finding.message)
    );
    if let Some(reason) = &finding.justification {
        let owner = finding.owner.as_ref().map(|owner| format!(" ({})", escape(owner))).unwrap_or_default();
        let _ = write!(page, "<p class=\"quiet\">Accepted: {}{owner}</p>", escape(reason));
    }
    if with_help && !finding.help.is_empty() {
        let _ = write!(page, "<p class=\"quiet\">{}</p>", escape(&finding.help));
    }
    page.push_str("</li>\n");
}

fn sites(page: &mut String, judged: &Judged) {
    let audit = &judged.audit;
    page.push_str("<section>\n<h2>Places that wait</h2>\n");
    if audit.sites.is_empty() {
        page.push_str("<p class=\"quiet\">None.</p>\n</section>\n");
        return;
    }
    page.push_str(
        "<input id=\"filter\" class=\"script\" type=\"search\" placeholder=\"Filter: file, function, kind, rule\" aria-label=\"Filter the \
         places\">\n<div class=\"scroll\">\n<table id=\"sites\">\n<thead><tr>",
    );
    let mut columns = vec![
        ("status", false),
        ("place", false),
        ("rule", false),
        ("per step", true),
        ("waits", true),
        ("bytes", true),
    ];
    if audit.times_meaningful {
        columns.push(("blocked", true));
    }
    if priced(audit).is_some() {
        columns.push(("idle behind it, per step", true));
    }
    for (name, is_number) in &columns {
        let class = if *is_number { " class=\"number\"" } else { "" };
        let _ = write!(
            page,
            "<th{class} aria-sort=\"none\"><button type=\"button\" data-sort=\"{}\">{name}</button></th>",
            if *is_number { "number" } else { "text" }
        );
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (index, site) in audit.sites.iter().enumerate() {
        row(page, judged, index, site, columns.len());
    }
    page.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

fn row(page: &mut String, judged: &Judged, index: usize, site: &Site, columns: usize) {
    let audit = &judged.audit;
    let per_step = match audit.step_counts.ordinary {
        0 => 0.0,
        ordinary => site.ordinary_waits as f64 / ordinary as f64,
    };
    let _ = write!(
        page,
        "<tr class=\"site\" id=\"site-{index}\" data-index=\"{index}\"><td data-key=\"{status:?}\"><span class=\"chip {id}\">{id}</span></td><td \
         data-key=\"{place}\"><button type=\"button\" class=\"open\" aria-expanded=\"false\" aria-controls=\"detail-{index}\"><code>{place}</code></button>{range}</td><td \
         data-key=\"{rule}\"><a href=\"#rule-{rule}\">{rule}</a></td><td class=\"number\" data-key=\"{per_step}\">{}</td><td class=\"number\" \
         data-key=\"{}\">{}</td><td class=\"number\" data-key=\"{}\">{}</td>",
        number(per_step),
        site.waits,
        site.waits,
        site.bytes,
        if site.bytes == 0 { "-".to_owned() } else { words::bytes(site.bytes) },
        status = site.status as u8,
        id = site.status.id(),
        place = escape(&place_text(site)),
        rule = site.rule,
        range = if site.range.is_empty() || site.place().is_none() {
            String::new()
        } else {
            format!("<div class=\"quiet range\">{}</div>", escape(&site.range.join(" > ")))
        },
    );
    if audit.times_meaningful {
        let blocked_ns = site.blocked_ns.unwrap_or(0);
        let _ = write!(
            page,
            "<td class=\"number\" data-key=\"{blocked_ns}\">{}</td>",
            escape(&words::duration(blocked_ns))
        );
    }
    if let Some(prices) = priced(audit) {
        let exposed_ns = prices.of_site(&site.fingerprint).map(|price| price.exposed_ns);
        let _ = write!(
            page,
            "<td class=\"number\" data-key=\"{}\">{}</td>",
            exposed_ns.unwrap_or(0),
            exposed_ns.map_or_else(|| "-".to_owned(), |ns| escape(&words::duration(ns)))
        );
    }
    let _ = write!(
        page,
        "</tr>\n<tr class=\"detail\" id=\"detail-{index}\" hidden><td colspan=\"{columns}\">\n<p><b>{}.</b> {}</p>\n<dl class=\"facts\">",
        escape(&capital(rule_of(site).headline)),
        escape(rule_of(site).waits)
    );
    let _ = write!(page, "<dt>kind</dt><dd>{} ({})</dd>", site.kind.id(), site.evidence.id());
    for (name, value) in words::facts(audit, site) {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    let _ = writeln!(page, "</dl>\n<p><b>How to fix it.</b> {}</p>", escape(rule_of(site).fix(site)));
    stack(page, "Python", &site.python);
    stack(page, "Native", &site.native);
    page.push_str("</td></tr>\n");
}

/// Prices whose times may stand in a table without a word about them.
fn priced(audit: &Audit) -> Option<&Prices> {
    audit.pricing.as_ref().filter(|pricing| !pricing.modelled)?.known()
}

fn stack(page: &mut String, name: &str, frames: &[Frame]) {
    if frames.is_empty() {
        return;
    }
    let _ = write!(page, "<details><summary>{name} stack, innermost first</summary>\n<ol class=\"stack\">");
    for frame in frames {
        let class = if frame.user { "user" } else { "library" };
        let _ = write!(page, "<li class=\"{class}\"><code>{}</code></li>", escape(&words::frame_text(frame)));
    }
    page.push_str("</ol></details>\n");
}

/// The ranks of a job side by side: all of them.
fn ranks(page: &mut String, audit: &Audit) {
    let Some(ranks) = words::ranks(audit, usize::MAX) else { return };
    page.push_str("<section>\n<h2>Ranks</h2>\n<div class=\"scroll\">\n<table class=\"ranks\">\n<thead><tr>");
    let class = |column: usize| if column == 0 { "" } else { " class=\"number\"" };
    for (column, name) in ranks.head.iter().enumerate() {
        let _ = write!(page, "<th{}>{name}</th>", class(column));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &ranks.rows {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(page, "<td{}>{}</td>", class(column), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n<ul>\n");
    for sentence in &ranks.sentences {
        let _ = writeln!(page, "<li>{}</li>", escape(sentence));
    }
    page.push_str("</ul>\n");
    if !ranks.places.is_empty() {
        page.push_str("<ul>\n");
        for place in &ranks.places {
            let _ = writeln!(page, "<li><code>{}</code></li>", escape(place));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</section>\n");
}

/// What the rules of this report's places say, each once.
fn explanations(page: &mut String, judged: &Judged) {
    let used: BTreeSet<&str> = judged.audit.sites.iter().map(|site| rule_of(site).id).collect();
    if used.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Why these wait, and what helps</h2>\n");
    for rule in rules::ALL.iter().filter(|rule| used.contains(rule.id)) {
        let _ = write!(
            page,
            "<details id=\"rule-{0}\" class=\"rule\"><summary><code>{0}</code> {1}</summary>\n<dl>",
            rule.id,
            escape(rule.headline)
        );
        for (title, text) in rule.parts() {
            let _ = write!(page, "<dt>{title}</dt><dd>{}</dd>", escape(text));
        }
        page.push_str("</dl></details>\n");
    }
    page.push_str("</section>\n");
}

fn notes(page: &mut String, judged: &Judged) {
    let audit = &judged.audit;
    page.push_str("<section>\n<h2>Totals</h2>\n<dl class=\"facts\">");
    for (name, value) in words::totals(audit).into_iter().chain(price::totals(audit)) {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    let _ = write!(
        page,
        "<dt>steps</dt><dd>{}, found by: {}</dd>",
        escape(&words::steps_text(audit)),
        audit.step_counts.source.id()
    );
    if audit.processes.len() > 1 {
        let _ = write!(
            page,
            "<dt>processes</dt><dd>{}</dd>",
            plural(audit.processes.len() as u64, "process", "processes")
        );
    }
    for (name, version) in &audit.source.versions {
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(version));
    }
    page.push_str("</dl>\n");
    let emulated = audit.source.emulated.then_some(words::EMULATED);
    for note in audit.problems.iter().map(|problem| problem.text.as_str()).chain(emulated) {
        let _ = writeln!(page, "<p class=\"quiet\">Note: {}</p>", escape(note));
    }
    page.push_str("</section>\n");
}

/// Text, for elements and for attributes in double quotes.
fn escape(text: &str) -> String {
    plain(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
