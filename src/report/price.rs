//! Prices in the words and rows of reports.
//!
//! In: an audit with its pricing. Out: text without markup, and rows for JSON. Times of an emulated device are said to be modelled wherever they stand.
//! Holds no rule.

use serde::Serialize;

use super::Audit;
use super::words::{duration, place_text};
use crate::audit::Site;
use crate::price::{NextPayer, Prices, SitePrice, Unit, WhatIf, verdict};

/// The sentence of the verdict card: what removing waits buys; or why that can't be said, where a reader may expect it.
pub(crate) fn sentence(audit: &Audit) -> Option<String> {
    let pricing = audit.pricing.as_ref()?;
    match &pricing.prices {
        Ok(prices) => {
            Some(format!("{}{}", verdict(prices), if pricing.modelled { " (modelled)" } else { "" }))
        }
        Err(abstention) => (pricing.has_kernels && !audit.waits.is_empty()).then(|| abstention.text()),
    }
}

/// What is known of a site's price, in one line.
pub(crate) fn of_site(audit: &Audit, site: &Site) -> Option<String> {
    let pricing = audit.pricing.as_ref()?;
    let prices = pricing.known()?;
    let price = prices.of_site(&site.fingerprint)?;
    let modelled = if pricing.modelled { "modelled " } else { "" };
    let mut text = format!(
        "per {}: blocks the host for {modelled}{}, lets the device stand idle for {modelled}{}",
        unit(prices),
        duration(price.blocked_ns),
        duration(price.exposed_ns)
    );
    if let Some(alone_ns) = price.alone_ns {
        text += &format!("; removing it alone buys {}", percent(alone_ns, prices.step_ns));
    }
    if let Some(next) = next_payer(audit, price) {
        text += &format!(", the next to pay is {next}");
    }
    if !price.removable && !price.note.is_empty() {
        text += &format!(" ({})", price.note);
    }
    Some(text)
}

fn unit(prices: &Prices) -> &'static str {
    match prices.unit {
        Unit::OrdinarySteps(_) => "ordinary step",
        Unit::Steps(_) | Unit::RepeatedStep => "step",
        Unit::Recording => "recording",
    }
}

fn next_payer(audit: &Audit, price: &SitePrice) -> Option<String> {
    match price.next_payer? {
        NextPayer::Host => Some("the host's own work".to_owned()),
        NextPayer::Device => Some("the device".to_owned()),
        NextPayer::Site(_) => {
            let fingerprint = price.next_site.as_deref()?;
            let site = audit.sites.iter().find(|site| site.fingerprint == fingerprint)?;
            Some(format!("{} at {}", site.kind.id(), place_text(site)))
        }
    }
}

/// A part of a step in percent.
fn percent(ns: i64, step_ns: u64) -> String {
    let permille = i128::from(ns) * 1000 / i128::from(step_ns.max(1));
    if permille <= 0 { "nothing".to_owned() } else { format!("{}.{} %", permille / 10, permille % 10) }
}

/// Sums and what they rest on, as (name, value).
pub(crate) fn totals(audit: &Audit) -> Vec<(&'static str, String)> {
    let Some(pricing) = &audit.pricing else { return Vec::new() };
    let Some(prices) = pricing.known() else { return Vec::new() };
    let modelled = if pricing.modelled { "modelled " } else { "" };
    let (idle, bound) = (&prices.idle, &prices.bound);
    let mut rows = vec![
        (
            "step time",
            format!(
                "{modelled}{} (a replay of the trace gives {}, {}.{} % off); no shorter than {} whatever is removed, because of the {}",
                duration(prices.recorded_ns),
                duration(prices.step_ns),
                prices.error_permille / 10,
                prices.error_permille % 10,
                duration(bound.ns()),
                bound.limit().id()
            ),
        ),
        (
            "device idle",
            format!(
                "{modelled}{} per {}: waits {}, host work {}, loading data {}, between pieces of work {}, unknown {}",
                duration(idle.total_ns),
                unit(prices),
                duration(idle.waits_ns),
                duration(idle.host_ns),
                duration(idle.data_ns),
                duration(idle.device_ns),
                duration(idle.unknown_ns)
            ),
        ),
    ];
    if let Some(permille) = prices.run_ahead.permille() {
        rows.push((
            "run-ahead",
            format!("the host was ahead of the device at {}.{} % of the steps", permille / 10, permille % 10),
        ));
    }
    rows
}

/// What to know about the prices, as full sentences.
pub(crate) fn notes(audit: &Audit) -> Vec<String> {
    let prices = audit.pricing.as_ref().and_then(|pricing| pricing.known());
    let mut notes: Vec<String> = prices
        .map_or_else(Vec::new, |prices| prices.notes.iter().map(|note| format!("prices: {note}")).collect());
    if prices.is_some() && audit.pricing.as_ref().is_some_and(|pricing| pricing.modelled) {
        notes.insert(
            0,
            "prices: all times are those of the emulated device's time model, not of a GPU".to_owned(),
        );
    }
    notes
}

#[derive(Serialize)]
pub(super) struct PricingRow<'a> {
    /// Whether there are prices.
    status: &'static str,
    reason: Option<ReasonRow>,
    modelled: bool,
    unit: Option<&'static str>,
    recorded_step_ns: Option<u64>,
    step_ns: Option<u64>,
    replay_error: Option<f64>,
    confidence: Option<&'static str>,
    bound: Option<BoundRow>,
    idle: Option<IdleRow>,
    verdict: Option<String>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ReasonRow {
    code: &'static str,
    text: String,
}

#[derive(Serialize)]
struct BoundRow {
    ns: u64,
    limit: &'static str,
    host_ns: u64,
    stream_ns: u64,
    device_ns: u64,
}

#[derive(Serialize)]
struct IdleRow {
    total_ns: u64,
    waits_ns: u64,
    host_ns: u64,
    data_ns: u64,
    device_ns: u64,
    unknown_ns: u64,
}

#[derive(Serialize)]
pub(super) struct SitePriceRow<'a> {
    blocked_ns: u64,
    exposed_ns: u64,
    alone_ns: Option<i64>,
    bound_ns: u64,
    next_payer: Option<NextPayerRow<'a>>,
    removable: bool,
    confidence: &'static str,
    note: &'a str,
}

#[derive(Serialize)]
struct NextPayerRow<'a> {
    what: &'static str,
    fingerprint: Option<&'a str>,
}

#[derive(Serialize)]
pub(crate) struct WhatIfRow<'a> {
    removed: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    not_simple: &'a [String],
    step_ns: u64,
    gain_ns: i64,
    gain_range_ns: (i64, i64),
}

#[derive(Serialize)]
pub(super) struct RunAheadRow {
    /// Share of steps with a positive lead.
    fraction: Option<f64>,
    ahead: usize,
    of: usize,
    median_lead_ns: Option<i64>,
    leads: Vec<LeadRow>,
}

#[derive(Serialize)]
struct LeadRow {
    /// Position in `per_step`.
    step: u32,
    lead_ns: i64,
}

pub(super) fn pricing_row(audit: &Audit) -> Option<PricingRow<'_>> {
    let pricing = audit.pricing.as_ref()?;
    let prices = pricing.known();
    Some(PricingRow {
        status: if prices.is_some() { "priced" } else { "abstained" },
        reason: pricing
            .prices
            .as_ref()
            .err()
            .map(|abstention| ReasonRow { code: abstention.id(), text: abstention.text() }),
        modelled: pricing.modelled,
        unit: prices.map(|prices| prices.unit.id()),
        recorded_step_ns: prices.map(|prices| prices.recorded_ns),
        step_ns: prices.map(|prices| prices.step_ns),
        replay_error: prices.map(|prices| prices.error_permille as f64 / 1000.0),
        confidence: prices.map(|prices| prices.confidence.id()),
        bound: prices.map(|prices| BoundRow {
            ns: prices.bound.ns(),
            limit: prices.bound.limit().id(),
            host_ns: prices.bound.host_ns,
            stream_ns: prices.bound.stream_ns,
            device_ns: prices.bound.device_ns,
        }),
        idle: prices.map(|prices| IdleRow {
            total_ns: prices.idle.total_ns,
            waits_ns: prices.idle.waits_ns,
            host_ns: prices.idle.host_ns,
            data_ns: prices.idle.data_ns,
            device_ns: prices.idle.device_ns,
            unknown_ns: prices.idle.unknown_ns,
        }),
        verdict: prices.map(verdict),
        notes: prices.map_or(&[], |prices| &prices.notes),
    })
}

pub(super) fn site_row<'a>(audit: &'a Audit, site: &Site) -> Option<SitePriceRow<'a>> {
    let prices = audit.pricing.as_ref()?.known()?;
    let price = prices.of_site(&site.fingerprint)?;
    Some(SitePriceRow {
        blocked_ns: price.blocked_ns,
        exposed_ns: price.exposed_ns,
        alone_ns: price.alone_ns,
        bound_ns: prices.bound.ns(),
        next_payer: price.next_payer.map(|next| NextPayerRow {
            what: match next {
                NextPayer::Site(_) => "wait",
                NextPayer::Host => "host",
                NextPayer::Device => "device",
            },
            fingerprint: price.next_site.as_deref(),
        }),
        removable: price.removable,
        confidence: price.confidence.id(),
        note: &price.note,
    })
}

pub(crate) fn what_if_row(answer: &WhatIf) -> WhatIfRow<'_> {
    WhatIfRow {
        removed: &answer.removed,
        not_simple: &answer.not_simple,
        step_ns: answer.step_ns,
        gain_ns: answer.gain_ns,
        gain_range_ns: answer.gain_range_ns,
    }
}

/// Without all sites, then the best sets by size.
pub(super) fn what_if_rows(audit: &Audit) -> Option<Vec<WhatIfRow<'_>>> {
    let prices = audit.pricing.as_ref()?.known()?;
    Some(std::iter::once(&prices.together).chain(&prices.best).map(what_if_row).collect())
}

pub(super) fn run_ahead_row(audit: &Audit) -> Option<RunAheadRow> {
    let lead = &audit.pricing.as_ref()?.known()?.run_ahead;
    Some(RunAheadRow {
        fraction: lead.permille().map(|permille| permille as f64 / 1000.0),
        ahead: lead.ahead(),
        of: lead.leads.len(),
        median_lead_ns: lead.median_ns(),
        leads: lead.leads.iter().map(|&(step, lead_ns)| LeadRow { step, lead_ns }).collect(),
    })
}
