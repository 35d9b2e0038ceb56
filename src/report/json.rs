//! The JSON report, schema `syncaudit.report/1` (`docs/report.md`). Fields may be added, never change meaning.
//!
//! In: what the gate judged. Out: its bytes as JSON, the same for the same audit: fields in a fixed order, rows in the audit's order,
//! no time of day, no path of the machine.

use serde::Serialize;

use super::price;

use crate::Audit;
use crate::audit::{Budget, Frame, Site, Step};
use crate::gate::{Finding, Judged};

/// The report as JSON, pretty-printed, ending with a newline.
///
/// # Panics
/// Never: the report holds no map with keys that are no text and no number that JSON can't hold.
#[must_use]
pub fn json(judged: &Judged) -> String {
    let mut text = serde_json::to_string_pretty(&Report::of(judged)).expect("a report is always valid JSON");
    text.push('\n');
    text
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    source: SourceRow<'a>,
    verdict: &'static str,
    reasons: &'a [String],
    next: &'a [String],
    budget: BudgetRow,
    with_baseline: bool,
    findings: Vec<FindingRow<'a>>,
    steps: StepsRow,
    totals: TotalsRow,
    sites: Vec<SiteRow<'a>>,
    per_step: Vec<StepRow>,
    pricing: Option<price::PricingRow<'a>>,
    what_if: Option<Vec<price::WhatIfRow<'a>>>,
    run_ahead: Option<price::RunAheadRow>,
    processes: Vec<ProcessRow<'a>>,
    ranks: Vec<RankRow<'a>>,
}

#[derive(Serialize)]
struct SourceRow<'a> {
    kind: &'static str,
    program: &'a [String],
    emulated: bool,
    dropped_records: u64,
    warnings: Vec<WarningRow<'a>>,
    versions: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct WarningRow<'a> {
    kind: &'static str,
    count: u64,
    hides_waits: bool,
    text: &'a str,
}

#[derive(Serialize)]
struct BudgetRow {
    waits_per_step: u64,
    per_kind: serde_json::Map<String, serde_json::Value>,
    per_range: serde_json::Map<String, serde_json::Value>,
    exposed_ns_per_step: Option<u64>,
}

#[derive(Serialize)]
struct FindingRow<'a> {
    code: &'static str,
    severity: &'static str,
    message: &'a str,
    help: &'a str,
    fingerprint: Option<&'a str>,
    kind: Option<&'static str>,
    place: Option<FrameRow<'a>>,
    justification: Option<&'a str>,
    owner: Option<&'a str>,
    written: Option<WrittenRow>,
}

#[derive(Serialize)]
struct WrittenRow {
    file: String,
    line: usize,
}

#[derive(Serialize)]
struct StepsRow {
    total: usize,
    warmup: usize,
    log: usize,
    ordinary: usize,
    unfinished: usize,
    over_budget: usize,
    source: &'static str,
}

#[derive(Serialize)]
struct TotalsRow {
    waits: u64,
    calls: u64,
    recorded_calls: u64,
    device_to_host_copies: u64,
    device_to_host_bytes: u64,
    blocked_ns: Option<u64>,
    ordinary_waits: u64,
    ordinary_waits_per_step: f64,
    log_waits: u64,
    log_waits_outside_range: u64,
    warmup_waits: u64,
    unfinished_waits: u64,
    outside_steps_waits: u64,
}

#[derive(Serialize)]
struct SiteRow<'a> {
    fingerprint: &'a str,
    ordinal: u32,
    kind: &'static str,
    apis: &'a [String],
    op: Option<&'a str>,
    ops: &'a [String],
    range: &'a [String],
    place: Option<FrameRow<'a>>,
    call_site: Option<FrameRow<'a>>,
    python: Vec<FrameRow<'a>>,
    native: Vec<FrameRow<'a>>,
    thread: &'a str,
    waits: u64,
    calls: u64,
    bytes: u64,
    blocked_ns: Option<u64>,
    ordinary_waits: u64,
    log_waits: u64,
    log_waits_outside_range: u64,
    warmup_waits: u64,
    unfinished_waits: u64,
    outside_waits: u64,
    steps_with_waits: u64,
    most_per_step: u64,
    killed_here: bool,
    by_recorder: bool,
    per_rank: Vec<ShareRow>,
    ranks_disagree: bool,
    rule: &'static str,
    evidence: &'static str,
    status: &'static str,
    /// Code of the finding about it.
    finding: Option<&'static str>,
    price: Option<price::SitePriceRow<'a>>,
}

#[derive(Serialize)]
struct FrameRow<'a> {
    file: Option<&'a str>,
    line: Option<u32>,
    function: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    module: &'a str,
    user: bool,
}

#[derive(Serialize)]
struct ShareRow {
    rank: u32,
    waits: u64,
    ordinary_waits: u64,
}

#[derive(Serialize)]
struct RankRow<'a> {
    rank: Option<u32>,
    processes: &'a [u32],
    steps: usize,
    ordinary_steps: usize,
    waits: u64,
    ordinary_waits: u64,
    ordinary_waits_per_step: Option<f64>,
    blocked_ns: Option<u64>,
    ordinary_blocked_ns: Option<u64>,
    waits_longest: bool,
}

#[derive(Serialize)]
struct StepRow {
    index: usize,
    number: Option<i64>,
    process: u32,
    kind: &'static str,
    waits: u64,
    calls: u64,
    log_range_waits: u64,
    blocked_ns: Option<u64>,
    over_budget: bool,
}

#[derive(Serialize)]
struct ProcessRow<'a> {
    pid: u64,
    name: &'a str,
    rank: Option<u32>,
    steps: usize,
    waits: u64,
}

impl<'a> Report<'a> {
    fn of(judged: &'a Judged) -> Self {
        let audit = &judged.audit;
        let totals = &audit.totals;
        let counts = &audit.step_counts;
        Self {
            schema: "syncaudit.report/1",
            source: SourceRow {
                kind: audit.source.kind.id(),
                program: &audit.source.program,
                emulated: audit.source.emulated,
                dropped_records: audit.dropped_records,
                warnings: audit
                    .problems
                    .iter()
                    .map(|problem| WarningRow {
                        kind: problem.kind.id(),
                        count: problem.count,
                        hides_waits: problem.kind.hides_waits(),
                        text: &problem.text,
                    })
                    .collect(),
                versions: audit
                    .source
                    .versions
                    .iter()
                    .map(|(name, version)| (name.clone(), version.clone().into()))
                    .collect(),
            },
            verdict: audit.verdict.id(),
            reasons: &audit.reasons,
            next: &audit.next,
            budget: budget_row(&audit.budget),
            with_baseline: judged.with_baseline,
            findings: judged.findings.iter().map(finding_row).collect(),
            steps: StepsRow {
                total: counts.total,
                warmup: counts.warmup,
                log: counts.log,
                ordinary: counts.ordinary,
                unfinished: counts.unfinished,
                over_budget: audit.steps.iter().filter(|step| step.over_budget).count(),
                source: counts.source.id(),
            },
            totals: TotalsRow {
                waits: totals.waits,
                calls: totals.calls,
                recorded_calls: totals.recorded_calls,
                device_to_host_copies: totals.device_to_host_copies,
                device_to_host_bytes: totals.device_to_host_bytes,
                blocked_ns: totals.blocked_ns,
                ordinary_waits: totals.ordinary_waits,
                ordinary_waits_per_step: totals.ordinary_waits_per_step,
                log_waits: totals.log_waits,
                log_waits_outside_range: totals.log_waits_outside_range,
                warmup_waits: totals.warmup_waits,
                unfinished_waits: totals.unfinished_waits,
                outside_steps_waits: totals.outside_steps_waits,
            },
            sites: sites(judged),
            per_step: audit.steps.iter().map(step_row).collect(),
            pricing: price::pricing_row(audit),
            what_if: price::what_if_rows(audit),
            run_ahead: price::run_ahead_row(audit),
            processes: audit
                .processes
                .iter()
                .map(|process| ProcessRow {
                    pid: process.pid,
                    name: &process.name,
                    rank: process.rank,
                    steps: process.steps,
                    waits: process.waits,
                })
                .collect(),
            ranks: ranks(audit),
        }
    }
}

fn ranks(audit: &Audit) -> Vec<RankRow<'_>> {
    let longest = audit.longest_and_least().map(|(longest, _)| longest);
    let rows = audit.ranks.iter().map(|row| RankRow {
        rank: row.rank,
        processes: &row.processes,
        steps: row.steps,
        ordinary_steps: row.ordinary_steps,
        waits: row.waits,
        ordinary_waits: row.ordinary_waits,
        ordinary_waits_per_step: row.waits_per_step(),
        blocked_ns: row.blocked_ns,
        ordinary_blocked_ns: row.ordinary_blocked_ns,
        waits_longest: longest.is_some_and(|longest| std::ptr::eq(longest, row)),
    });
    rows.collect()
}

fn budget_row(budget: &Budget) -> BudgetRow {
    let kinds = budget.per_kind.iter().map(|(kind, &allowed)| (kind.id().to_owned(), allowed.into()));
    let ranges = budget.per_range.iter().map(|(range, allowed)| (range.to_string(), (*allowed).into()));
    BudgetRow {
        waits_per_step: budget.total,
        per_kind: kinds.collect(),
        per_range: ranges.collect(),
        exposed_ns_per_step: budget.exposed_ns,
    }
}

fn finding_row(finding: &Finding) -> FindingRow<'_> {
    FindingRow {
        code: finding.code.id(),
        severity: finding.severity.id(),
        message: &finding.message,
        help: &finding.help,
        fingerprint: finding.fingerprint.as_deref(),
        kind: finding.kind.map(crate::audit::WaitKind::id),
        place: finding.place.as_ref().map(frame_row),
        justification: finding.justification.as_deref(),
        owner: finding.owner.as_deref(),
        written: finding
            .written
            .as_ref()
            .map(|written| WrittenRow { file: written.path.display().to_string(), line: written.line }),
    }
}

fn sites(judged: &Judged) -> Vec<SiteRow<'_>> {
    let mut findings = vec![None; judged.audit.sites.len()];
    for finding in &judged.findings {
        if let Some(site) = finding.site {
            findings[site] = Some(finding.code.id());
        }
    }
    let audit = &judged.audit;
    audit.sites.iter().zip(findings).map(|(site, finding)| site_row(audit, site, finding)).collect()
}

fn site_row<'a>(audit: &'a Audit, site: &'a Site, finding: Option<&'static str>) -> SiteRow<'a> {
    SiteRow {
        fingerprint: &site.fingerprint,
        ordinal: site.ordinal,
        kind: site.kind.id(),
        apis: &site.apis,
        op: site.op.as_deref(),
        ops: &site.ops,
        range: &site.range,
        place: site.place().map(frame_row),
        call_site: site.call_site.as_ref().map(frame_row),
        python: site.python.iter().map(frame_row).collect(),
        native: site.native.iter().map(frame_row).collect(),
        thread: &site.thread,
        waits: site.waits,
        calls: site.calls,
        bytes: site.bytes,
        blocked_ns: site.blocked_ns,
        ordinary_waits: site.ordinary_waits,
        log_waits: site.log_waits,
        log_waits_outside_range: site.log_waits_outside_range,
        warmup_waits: site.warmup_waits,
        unfinished_waits: site.unfinished_waits,
        outside_waits: site.outside_waits,
        steps_with_waits: site.steps_with_waits,
        most_per_step: site.most_per_step,
        killed_here: site.killed_here,
        by_recorder: site.by_recorder,
        per_rank: shares(audit, site),
        ranks_disagree: audit.ranks_disagree(site),
        rule: site.rule,
        evidence: site.evidence.id(),
        status: site.status.id(),
        finding,
        price: price::site_row(audit, site),
    }
}

/// Of ranks that have any of its waits.
fn shares(audit: &Audit, site: &Site) -> Vec<ShareRow> {
    let shares = audit.shares(site);
    let rows = audit.ranks.iter().zip(&shares).filter(|(_, share)| share.waits > 0);
    rows.filter_map(|(row, share)| {
        Some(ShareRow { rank: row.rank?, waits: share.waits, ordinary_waits: share.ordinary_waits })
    })
    .collect()
}

fn frame_row(frame: &Frame) -> FrameRow<'_> {
    let known = |text: &'_ str| !text.is_empty();
    FrameRow {
        file: Some(frame.file.as_str()).filter(|file| known(file)),
        line: Some(frame.line).filter(|&line| line > 0),
        function: Some(frame.function.as_str()).filter(|function| known(function)),
        module: &frame.module,
        user: frame.user,
    }
}

fn step_row(step: &Step) -> StepRow {
    StepRow {
        index: step.index,
        number: step.number,
        process: step.process,
        kind: step.kind.id(),
        waits: step.waits,
        calls: step.calls,
        log_range_waits: step.log_range_waits,
        blocked_ns: step.blocked_ns,
        over_budget: step.over_budget,
    }
}
