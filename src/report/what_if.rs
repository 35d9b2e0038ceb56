//! The answer to a question: what a step would be without some waits.
//!
//! In: an audit with its pricing, and the answer. Out: text for people, or JSON (`docs/pricing.md`). Holds no rule.

use std::fmt::Write as _;

use serde::Serialize;

use super::Audit;
use super::price::{self, WhatIfRow, what_if_row};
use super::text::wrap;
use super::words::{duration, place_text, plain};
use crate::audit::{Site, plural};
use crate::price::{Abstention, Prices, WhatIf};

/// The answer as text, ending with a newline.
#[must_use]
pub fn what_if_text(audit: &Audit, answer: &WhatIf, width: usize) -> String {
    let mut out = String::new();
    let pricing = audit.pricing.as_ref();
    let Some(prices) = pricing.and_then(|pricing| pricing.known()) else { return out };
    let modelled = if pricing.is_some_and(|pricing| pricing.modelled) { "modelled " } else { "" };
    let what = prices.unit.words();
    let (low, gain, high) = answer.gain_permille(prices.step_ns);
    let _ = writeln!(
        out,
        "without {}:",
        plural(answer.removed.len() as u64, "place that waits", "places that wait")
    );
    for fingerprint in &answer.removed {
        let _ = writeln!(out, "  {}", one(audit, prices, fingerprint, modelled));
    }
    let percent = |permille: i64| {
        format!("{}{}.{}", if permille < 0 { "-" } else { "" }, permille.abs() / 10, permille.abs() % 10)
    };
    let _ = writeln!(
        out,
        "\n{what}: {modelled}{} now, {modelled}{} then; {} % shorter ({} to {} %)",
        duration(prices.step_ns),
        duration(answer.step_ns),
        percent(gain),
        percent(low),
        percent(high)
    );
    let _ = writeln!(
        out,
        "bound: {modelled}{}, because of the {} (host work {}, busiest stream {}, longest chain of device work {})",
        duration(prices.bound.ns()),
        prices.bound.limit().id(),
        duration(prices.bound.host_ns),
        duration(prices.bound.stream_ns),
        duration(prices.bound.device_ns)
    );
    for fingerprint in &answer.not_simple {
        let note = prices.of_site(fingerprint).map_or("", |price| price.note.as_str());
        let _ = writeln!(out, "note: {fingerprint}: {note}");
    }
    for note in price::notes(audit) {
        for (at, line) in wrap(&plain(&note), width.max(40) - 6).iter().enumerate() {
            let _ = writeln!(out, "{}{line}", if at == 0 { "note: " } else { "      " });
        }
    }
    out
}

/// All sites alone, and the best sets, as text.
#[must_use]
pub fn what_if_overview(audit: &Audit, width: usize) -> String {
    let mut out = String::new();
    let pricing = audit.pricing.as_ref();
    let Some(prices) = pricing.and_then(|pricing| pricing.known()) else { return out };
    let modelled = if pricing.is_some_and(|pricing| pricing.modelled) { "modelled " } else { "" };
    if let Some(sentence) = price::sentence(audit) {
        let _ = writeln!(out, "{sentence}\n");
    }
    let _ = writeln!(out, "one at a time:");
    let mut sites: Vec<&Site> =
        audit.sites.iter().filter(|site| prices.of_site(&site.fingerprint).is_some()).collect();
    sites.sort_by_key(|site| {
        let price = prices.of_site(&site.fingerprint);
        std::cmp::Reverse(price.map_or((None, 0), |price| (price.alone_ns, price.blocked_ns)))
    });
    for site in sites {
        let _ = writeln!(out, "  {}", one(audit, prices, &site.fingerprint, modelled));
    }
    let _ = writeln!(out, "\ntogether, the best sets found:");
    for set in prices
        .best
        .iter()
        .chain((prices.together.removed.len() > prices.best.len()).then_some(&prices.together))
    {
        let (_, gain, _) = set.gain_permille(prices.step_ns);
        let names = if std::ptr::eq(set, &prices.together) {
            "all that can be removed".to_owned()
        } else {
            set.removed.join(" ")
        };
        let _ = writeln!(
            out,
            "  {:>3}: {} {modelled}{}, {}.{} % shorter: {names}",
            set.removed.len(),
            prices.unit.words(),
            duration(set.step_ns),
            gain / 10,
            (gain % 10).abs()
        );
    }
    out.push('\n');
    for (name, value) in price::totals(audit) {
        for (at, line) in wrap(&plain(&value), width.max(60) - 14).iter().enumerate() {
            let _ = writeln!(out, "{:<12}  {line}", if at == 0 { name } else { "" });
        }
    }
    for note in price::notes(audit) {
        for (at, line) in wrap(&plain(&note), width.max(40) - 6).iter().enumerate() {
            let _ = writeln!(out, "{}{line}", if at == 0 { "note: " } else { "      " });
        }
    }
    out
}

fn one(audit: &Audit, prices: &Prices, fingerprint: &str, modelled: &str) -> String {
    let site = audit.sites.iter().find(|site| site.fingerprint == fingerprint);
    let place =
        site.map_or_else(String::new, |site| format!("{} at {}", site.kind.id(), plain(&place_text(site))));
    let Some(price) = prices.of_site(fingerprint) else { return format!("{fingerprint} {place}") };
    let alone = price.alone_ns.map_or_else(
        || "not asked".to_owned(),
        |ns| format!("{modelled}{}", duration(u64::try_from(ns).unwrap_or(0))),
    );
    format!(
        "{fingerprint} {place}: blocked {modelled}{}, idle behind it {modelled}{}, buys alone {alone}",
        duration(price.blocked_ns),
        duration(price.exposed_ns)
    )
}

#[derive(Serialize)]
struct Answer<'a> {
    schema: &'static str,
    modelled: bool,
    unit: Option<&'static str>,
    step_ns: Option<u64>,
    bound_ns: Option<u64>,
    what_if: Option<Vec<WhatIfRow<'a>>>,
    reason: Option<String>,
    notes: Vec<String>,
}

/// Answers as JSON, ending with a newline.
///
/// # Panics
/// Never: nothing in it can't be written as JSON.
#[must_use]
pub fn what_if_json(audit: &Audit, answers: &Result<Vec<WhatIf>, Abstention>) -> String {
    let pricing = audit.pricing.as_ref();
    let prices = pricing.and_then(|pricing| pricing.known());
    let answer = Answer {
        schema: "syncaudit.whatif/1",
        modelled: pricing.is_some_and(|pricing| pricing.modelled),
        unit: prices.map(|prices| prices.unit.id()),
        step_ns: prices.map(|prices| prices.step_ns),
        bound_ns: prices.map(|prices| prices.bound.ns()),
        what_if: answers.as_ref().ok().map(|answers| answers.iter().map(what_if_row).collect()),
        reason: answers.as_ref().err().map(Abstention::text),
        notes: price::notes(audit),
    };
    let mut text = serde_json::to_string_pretty(&answer).expect("an answer is always valid JSON");
    text.push('\n');
    text
}
