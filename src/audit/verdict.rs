//! Pass, fail or inconclusive, and why.
//!
//! In: steps, waits and sites with their numbers, and the problems of the trace. Out: the [`Audit`], and its verdict. What is proven is said:
//! a step over the budget is a fail also when records were lost, since more records could only add waits. A job of which a rank
//! is missing is the exception: nothing is said of a job as a whole by a part of it. A pass needs everything to be there: any doubt
//! that may hide a wait makes it inconclusive, with the reason. Never a silent zero.

use super::ranks::RankRow;
use std::collections::BTreeMap;

use super::sites::{Site, SiteStatus};
use super::steps::{Step, StepKind, StepSource};
use super::waits::{STAGED_UPLOAD_BYTES, Wait};
use super::{Audit, AuditOptions, ProcessRow, StepCounts, Totals, ranks, seen};
use crate::model::{
    ApiClass, CallEffect, CopyDirection, DeviceOpKind, MemoryKind, Problem, ProblemKind, SourceKind,
    SpanKind, StrId, Trace,
};
use rustc_hash::FxHashSet as HashSet;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every ordinary step is within the budget, and nothing hides waits.
    Pass,
    /// At least one step is proven to be over the budget.
    Fail,
    /// Neither can be said.
    Inconclusive,
}

impl Verdict {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// What the verdict is about.
pub(super) struct Findings {
    pub steps: Vec<Step>,
    pub source: StepSource,
    pub waits: Vec<Wait>,
    pub sites: Vec<Site>,
    /// Noticed during the audit itself.
    pub problems: Vec<Problem>,
}

/// Sums up; nothing is decided yet.
pub(super) fn sum_up(trace: &Trace, options: &AuditOptions, findings: Findings) -> Audit {
    let Findings { steps, source, waits, sites, problems: noticed } = findings;
    let mut problems = trace.problems.clone();
    problems.extend(noticed);
    problems.extend(processes_without_steps(trace, &steps));
    let step_counts = count_steps(&steps, source);
    let totals = totals_of(trace, &steps, &waits, &step_counts);
    let dropped_records = problems
        .iter()
        .filter(|problem| problem.kind == ProblemKind::LostRecords)
        .fold(0u64, |sum, problem| sum.saturating_add(problem.count));
    let processes = process_rows(trace, &steps, &waits);
    let ranks = ranks::rows(&processes, &steps, &waits, trace.times_meaningful());
    let mut doubts = doubts(trace, options, &step_counts, &problems);
    doubts.extend(ranks_without_steps(trace, &ranks));
    doubts.extend(copies_without_records(trace, &steps, &waits, &problems));
    Audit {
        source: trace.source.clone(),
        times_meaningful: trace.times_meaningful(),
        dropped_records,
        problems,
        verdict: Verdict::Inconclusive,
        reasons: Vec::new(),
        next: Vec::new(),
        budget: options.budget.clone(),
        doubts,
        cut_short: killed(trace, &waits, &sites),
        seen: seen::names(trace, &sites),
        step_counts,
        totals,
        sites,
        steps,
        waits,
        processes,
        ranks,
        pricing: None,
    }
}

/// Decides, by the steps that are over the budget.
pub(super) fn conclude(audit: &mut Audit) {
    let over = audit.steps.iter().any(|step| step.over_budget);
    let incomplete = audit.doubts.iter().any(|doubt| doubt.of_part);
    let exposed = audit.exposed_over_budget();
    let (verdict, mut reasons) = if (over || exposed.is_some()) && !incomplete {
        (Verdict::Fail, over.then(|| why_fail(audit)).into_iter().chain(exposed).collect())
    } else if audit.doubts.is_empty() {
        (Verdict::Pass, vec![why_pass(&audit.steps, &audit.step_counts)])
    } else {
        (Verdict::Inconclusive, Vec::new())
    };
    let early = audit.problems.iter().filter(|problem| problem.kind == ProblemKind::EndedEarly);
    reasons.extend(early.map(|problem| problem.text.clone()));
    reasons.extend(audit.cut_short.clone());
    reasons.extend(audit.doubts.iter().map(|doubt| doubt.reason.clone()));
    if over && incomplete {
        reasons.push(format!("of what is there, {}", why_fail(audit)));
    }
    audit.next = what_next(verdict, &audit.doubts);
    audit.verdict = verdict;
    audit.reasons = reasons;
}

fn count_steps(steps: &[Step], source: StepSource) -> StepCounts {
    let of = |kind| steps.iter().filter(|step| step.kind == kind).count();
    StepCounts {
        total: steps.len(),
        warmup: of(StepKind::Warmup),
        log: of(StepKind::Log),
        ordinary: of(StepKind::Ordinary),
        unfinished: of(StepKind::Unfinished),
        source,
    }
}

fn totals_of(trace: &Trace, steps: &[Step], waits: &[Wait], step_counts: &StepCounts) -> Totals {
    let mut totals = Totals { blocked_ns: trace.times_meaningful().then_some(0), ..Totals::default() };
    for wait in waits {
        totals.waits += 1;
        totals.calls += wait.calls.count();
        if let (Some(sum), Some(blocked_ns)) = (&mut totals.blocked_ns, wait.blocked_ns) {
            *sum = sum.saturating_add(blocked_ns);
        }
        match wait.step.and_then(|step| steps.get(step as usize)).map(|step| step.kind) {
            None => totals.outside_steps_waits += 1,
            Some(StepKind::Ordinary) => totals.ordinary_waits += 1,
            Some(StepKind::Warmup) => totals.warmup_waits += 1,
            Some(StepKind::Unfinished) => totals.unfinished_waits += 1,
            Some(StepKind::Log) => {
                totals.log_waits += 1;
                totals.log_waits_outside_range += u64::from(!wait.in_log_range);
            }
        }
    }
    if step_counts.ordinary > 0 {
        totals.ordinary_waits_per_step = totals.ordinary_waits as f64 / step_counts.ordinary as f64;
    }
    for process in &trace.processes {
        for call in process.threads.iter().flat_map(|thread| &thread.calls) {
            totals.recorded_calls += u64::from(call.count);
            let copies = matches!(
                trace.api(call.api).class,
                ApiClass::Copy | ApiClass::CopyAsync | ApiClass::CopyAndSync
            );
            if copies && call.direction == CopyDirection::DeviceToHost && call.effect != CallEffect::Failed {
                totals.device_to_host_copies += 1;
                totals.device_to_host_bytes = totals.device_to_host_bytes.saturating_add(call.bytes);
            }
        }
        // Copies inside of a graph have no call of their own.
        for op in process.device_ops.iter().filter(|op| op.kind == DeviceOpKind::Copy && op.graph_node != 0) {
            if op.direction == CopyDirection::DeviceToHost {
                totals.device_to_host_copies += 1;
                totals.device_to_host_bytes = totals.device_to_host_bytes.saturating_add(op.bytes);
            }
        }
    }
    totals
}

fn process_rows(trace: &Trace, steps: &[Step], waits: &[Wait]) -> Vec<ProcessRow> {
    let mut rows: Vec<ProcessRow> = trace
        .processes
        .iter()
        .map(|process| ProcessRow {
            pid: process.pid,
            name: trace.str(process.name).to_owned(),
            rank: process.rank,
            steps: 0,
            waits: 0,
        })
        .collect();
    for step in steps {
        rows[step.process as usize].steps += 1;
    }
    for wait in waits {
        rows[wait.process as usize].waits += 1;
    }
    rows
}

/// A reason why "pass" can't be said, and what to do about it; full sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    pub reason: String,
    pub next: Option<String>,
    /// Only a part of the job is there: not even a fail can be said of the whole.
    pub of_part: bool,
}

fn doubts(trace: &Trace, options: &AuditOptions, counts: &StepCounts, problems: &[Problem]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let counts_here = |problem: &&Problem| {
        problem.kind.hides_waits()
            && !(options.allow_missing_ranks && problem.kind == ProblemKind::MissingRank)
    };
    for problem in problems.iter().filter(counts_here) {
        let of_part = problem.kind == ProblemKind::MissingRank;
        let next = of_part.then(|| {
            "give the traces of all ranks, or have those that are there judged with --allow-missing-ranks"
                .to_owned()
        });
        doubts.push(Doubt { reason: problem.text.clone(), next, of_part });
    }
    let mut doubt = |reason: String, next: Option<&str>| {
        doubts.push(Doubt { reason, next: next.map(str::to_owned), of_part: false });
    };
    let cuda_seen = trace.processes.iter().any(|process| {
        !process.device_ops.is_empty() || process.threads.iter().any(|thread| !thread.calls.is_empty())
    });
    if trace.processes.is_empty() {
        let next = "trace a program that uses the device with 'syncaudit run -- PROGRAM'; 'syncaudit doctor' says what works on this \
                    machine";
        // Where the reason is known, that nothing is there is no second one.
        match doubts.last_mut() {
            Some(known) => known.next = Some(next.to_owned()),
            None => doubts.push(Doubt {
                reason: "the trace holds no process".to_owned(),
                next: Some(next.to_owned()),
                of_part: false,
            }),
        }
    } else if !cuda_seen {
        doubt(
            format!(
                "no CUDA call was seen in {}",
                plural(trace.processes.len() as u64, "process", "processes")
            ),
            Some(
                "check that the program really used the device (a CPU fall-back looks like this); 'syncaudit doctor' \
                 tells whether calls can be seen on this machine",
            ),
        );
    } else if counts.total == 0 {
        let pattern = options.steps.pattern.clone().unwrap_or_else(super::Pattern::default_steps);
        doubt(
            format!("no step was found: {}", ranges_seen(trace, &pattern.to_string())),
            Some(if has_names(trace) {
                "name the range, annotation or operator of one step with --steps, or put an NVTX range called 'step' around the \
                 body of the training loop; --report-only lists the waits without judging them"
            } else {
                "put an NVTX range called 'step' around the body of the training loop; until then --report-only lists the waits without \
                 judging them"
            }),
        );
    } else if counts.ordinary == 0 {
        doubt(
            format!(
                "there is no ordinary step to judge: {} ({} warm-up, {} log, {} unfinished)",
                plural(counts.total as u64, "step", "steps"),
                counts.warmup,
                counts.log,
                counts.unfinished
            ),
            Some("run more steps, or lower --warmup, or log less often"),
        );
    }
    doubts
}

/// Whether there is a range or an operator that --steps could name.
fn has_names(trace: &Trace) -> bool {
    trace.processes.iter().any(|process| {
        !process.free_ranges.is_empty()
            || process
                .threads
                .iter()
                .flat_map(|thread| &thread.spans)
                .any(|span| span.kind != SpanKind::PythonFrame)
    })
}

/// Copies in ordinary steps of which nobody knows whether they waited: what memory they go to stands in a record that comes later, and that a
/// program which is killed never wrote.
fn copies_without_records(
    trace: &Trace,
    steps: &[Step],
    waits: &[Wait],
    problems: &[Problem],
) -> Option<Doubt> {
    let killed = problems.iter().any(|p| matches!(p.kind, ProblemKind::EndedEarly | ProblemKind::NotSealed));
    if trace.source.kind != SourceKind::Live || !killed {
        return None;
    }
    let known: HashSet<(u32, u32, u32)> = waits
        .iter()
        .flat_map(|wait| {
            [wait.calls.first(), wait.calls.last()].map(|call| Some((wait.process, wait.thread, call?)))
        })
        .flatten()
        .collect();
    let mut count = 0u64;
    for (process, of_process) in (0u32..).zip(&trace.processes) {
        let ordinary: Vec<&Step> =
            steps.iter().filter(|step| step.process == process && step.kind == StepKind::Ordinary).collect();
        for (thread, of_thread) in (0u32..).zip(&of_process.threads) {
            for (index, call) in (0u32..).zip(&of_thread.calls) {
                let may_wait = match call.direction {
                    CopyDirection::DeviceToHost | CopyDirection::Unknown => true,
                    CopyDirection::HostToDevice => {
                        trace.times_meaningful() || call.bytes > STAGED_UPLOAD_BYTES
                    }
                    CopyDirection::DeviceToDevice | CopyDirection::HostToHost => false,
                };
                let unrecorded = trace.api(call.api).class == ApiClass::CopyAsync
                    && (call.from, call.to) == (MemoryKind::Unknown, MemoryKind::Unknown)
                    && call.effect != CallEffect::Failed;
                if !unrecorded || !may_wait || known.contains(&(process, thread, index)) {
                    continue;
                }
                let after = ordinary.partition_point(|step| step.start_ns <= call.start_ns);
                count += u64::from(after > 0 && call.start_ns <= ordinary[after - 1].end_ns);
            }
        }
    }
    (count > 0).then(|| Doubt {
        reason: format!(
            "{} in ordinary steps left no record of the memory copied to, because the program did not end by itself: whether the host waited \
             there is not known",
            plural(count, "copy", "copies")
        ),
        next: Some("let the program end by itself, with fewer steps".to_owned()),
        of_part: false,
    })
}

/// Which ranges there were, for a user whose pattern matched none.
fn ranges_seen(trace: &Trace, pattern: &str) -> String {
    let mut ranges: BTreeMap<&str, u64> = BTreeMap::new();
    let mut ops: BTreeMap<&str, u64> = BTreeMap::new();
    let add = |names: &mut BTreeMap<_, u64>, name: StrId| {
        *names.entry(super::options::stem(trace.str(name))).or_default() += 1;
    };
    for process in &trace.processes {
        process.free_ranges.iter().for_each(|range| add(&mut ranges, range.name));
        for span in process.threads.iter().flat_map(|thread| &thread.spans) {
            match span.kind {
                SpanKind::Range => add(&mut ranges, span.name),
                SpanKind::Op => add(&mut ops, span.name),
                SpanKind::PythonFrame => {}
            }
        }
    }
    let of_ops = || format!("operators: {}", most_frequent(&ops));
    match (ranges.is_empty(), ops.is_empty()) {
        (true, true) => "the program opened no range".to_owned(),
        (true, false) => format!("the program opened no range; {}", of_ops()),
        (false, true) => {
            format!("no range matches '{pattern}'; ranges in the trace: {}", most_frequent(&ranges))
        }
        (false, false) => {
            format!(
                "no range matches '{pattern}'; ranges in the trace: {}; {}",
                most_frequent(&ranges),
                of_ops()
            )
        }
    }
}

/// Some of the names, the most frequent first.
fn most_frequent(names: &BTreeMap<&str, u64>) -> String {
    let mut by_count: Vec<(&str, u64)> = names.iter().map(|(&name, &count)| (name, count)).collect();
    by_count.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    let shown: Vec<String> =
        by_count.iter().take(8).map(|(name, count)| format!("'{name}' ({count})")).collect();
    let more = if by_count.len() > shown.len() { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Processes that call CUDA but have no steps, beside others that have.
fn processes_without_steps(trace: &Trace, steps: &[Step]) -> Option<Problem> {
    if steps.is_empty() {
        return None;
    }
    let without: Vec<String> = trace
        .processes
        .iter()
        .enumerate()
        .filter(|(index, process)| {
            process.threads.iter().any(|thread| !thread.calls.is_empty())
                && !steps.iter().any(|step| step.process as usize == *index)
        })
        .map(|(_, process)| ProcessRow::name_of(process.rank, process.pid))
        .collect();
    (!without.is_empty()).then(|| {
        Problem::counted(
            ProblemKind::Note,
            without.len() as u64,
            format!(
                "{} called CUDA but opened no step range; its waits are counted outside of steps",
                without.join(", ")
            ),
        )
    })
}

/// Ranks that call CUDA and have no step, beside others that have some: what they do in a step nobody knows.
fn ranks_without_steps(trace: &Trace, ranks: &[RankRow]) -> Option<Doubt> {
    if ranks.iter().all(|row| row.steps == 0) {
        return None;
    }
    let calls = |&process: &u32| {
        trace.processes[process as usize].threads.iter().any(|thread| !thread.calls.is_empty())
    };
    let without: Vec<String> = ranks
        .iter()
        .filter(|row| row.steps == 0 && row.processes.iter().any(calls))
        .map(RankRow::name)
        .collect();
    (!without.is_empty()).then(|| Doubt {
        reason: format!(
            "no step was found in the trace of {}, unlike in those of other ranks: its waits can't be judged",
            without.join(", ")
        ),
        next: Some("mark the steps on every rank, or name their range with --steps".to_owned()),
        of_part: false,
    })
}

fn why_fail(audit: &Audit) -> String {
    let over: Vec<&Step> = audit.steps.iter().filter(|step| step.over_budget).collect();
    let most = over.iter().map(|step| step.waits).max().unwrap_or(0);
    let places = audit.sites.iter().filter(|site| site.status == SiteStatus::OverBudget).count() as u64;
    let counts = &audit.step_counts;
    let of = |kind: StepKind, all: usize, one: &str, many: &str| {
        let over = over.iter().filter(|step| step.kind == kind).count();
        (over > 0).then(|| format!("{over} of {}", plural(all as u64, one, many)))
    };
    let parts: Vec<String> = [
        of(StepKind::Ordinary, counts.ordinary, "ordinary step", "ordinary steps"),
        of(StepKind::Unfinished, counts.unfinished, "step that did not end", "steps that did not end"),
        of(StepKind::Log, counts.log, "log step", "log steps"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let steps = parts.join(" and ");
    let wait = if over.len() == 1 { "waits" } else { "wait" };
    let allowed = match (audit.budget.total, audit.budget.per_kind.len() + audit.budget.per_range.len()) {
        (total, 0) => format!("budget: {total}"),
        (total, _) => format!("budget: {total}, and allowances of their own for kinds or ranges"),
    };
    format!(
        "{steps} {wait} for the device more often than allowed, up to {} in one step, at {} ({allowed})",
        plural(most, "time", "times"),
        plural(places, "place", "places"),
    )
}

fn why_pass(steps: &[Step], counts: &StepCounts) -> String {
    let most =
        steps.iter().filter(|step| step.kind == StepKind::Ordinary).map(|step| step.waits).max().unwrap_or(0);
    let steps = plural(counts.ordinary as u64, "ordinary step", "ordinary steps");
    if most == 0 {
        format!("no wait in {steps}")
    } else {
        format!("{steps} within the budget; at most {} in one step", plural(most, "wait", "waits"))
    }
}

fn killed(trace: &Trace, waits: &[Wait], sites: &[Site]) -> Option<String> {
    let wait = waits.iter().find(|wait| wait.unfinished)?;
    let site = sites.get(wait.site as usize)?;
    let thread = trace.processes.get(wait.process as usize)?.threads.get(wait.thread as usize)?;
    let api = &trace.api(thread.calls.get(wait.calls.last()? as usize)?.api).name;
    let place = site.place().map(|frame| match frame.line {
        0 => format!(" in {}", frame.function),
        line => format!(" at {}:{line}", frame.file),
    });
    Some(format!("the trace ends while the program was inside {api}{}", place.unwrap_or_default()))
}

fn what_next(verdict: Verdict, doubts: &[Doubt]) -> Vec<String> {
    let mut next: Vec<String> = Vec::new();
    if verdict == Verdict::Fail {
        next.push("fix the places below, worst first, or allow them in syncaudit.toml ([budget])".to_owned());
    }
    for text in doubts.iter().filter_map(|doubt| doubt.next.clone()) {
        if !next.contains(&text) {
            next.push(text);
        }
    }
    next
}

/// `1 step`, `2 steps`.
pub(crate) fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
