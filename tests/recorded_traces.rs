//! Every recorded profiler trace against a count made by a separate script (`NAME.truth.json` beside it).
//!
//! The traces are not in this repository: they are looked for at `../shared/traces`, or under `SYNCAUDIT_SHARED`, and the tests
//! say so and pass when they aren't there. Where the audit finds waits that the script doesn't count, `OURS_ONLY` states
//! exactly which, and `docs/import-kineto.md` says who is right and why.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use syncaudit::audit::{Calls, StepRules, StepSource, Wait};
use syncaudit::model::{ApiClass, Call, CopyDirection, MemoryKind, SpanKind, Thread, Trace};
use syncaudit::{Audit, AuditOptions, audit, load_path};

/// Waits that only the audit sees, by trace: call, rule, how many.
const OURS_ONLY: &[(&str, &str, &str, usize)] = &[
    // Allocating and freeing outside of PyTorch's cache held the host for 0.1 ms and more each; the script counts these apart.
    ("hta_alexnet", "cudaFree", "memory-management", 13),
    ("hta_alexnet", "cudaHostAlloc", "memory-management", 1),
    ("hta_alexnet", "cudaMalloc", "memory-management", 20),
    ("hta_simple_add", "cudaFree", "memory-management", 13),
    ("hta_simple_add", "cudaHostAlloc", "memory-management", 1),
    ("hta_simple_add", "cudaMalloc", "memory-management", 20),
    ("param_resnet", "cudaFree", "memory-management", 3),
    ("param_resnet", "cudaHostAlloc", "memory-management", 1),
    ("param_resnet", "cudaMalloc", "memory-management", 25),
];

/// Places where the script's operator is wrong: it goes by `External id`, which in traces of 2023 is the number of the call
/// itself and so names an operator by chance. No operator of the thread covers the time of these calls.
const WRONG_OP: &[(&str, &str, &str)] = &[
    ("hta_alexnet", "cudaDeviceSynchronize", "aten::add_"),
    ("hta_simple_add", "cudaDeviceSynchronize", "aten::add_"),
];

/// Host time inside of uploads from pageable memory that are waits or part of one, summed up from the trace by hand.
const UPLOADS: &[(&str, usize, u64)] = &[
    ("param_resnet", 61, 2_009_747_000),
    ("kineto_resnet50_nw0", 12, 12_047_000),
    ("kineto_resnet50_nw4", 12, 86_132_000),
    ("tracelens_h100_owlv2", 25, 2_368_935),
    ("tracelens_h100_timesformer", 1, 3_615_502),
    ("hta_alexnet", 16, 56_991_000),
    ("hta_simple_add", 16, 40_085_000),
];

fn traces() -> Option<PathBuf> {
    let shared = std::env::var_os("SYNCAUDIT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let traces = shared.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    println!("skipped: no recorded traces at {} (SYNCAUDIT_SHARED names another place)", traces.display());
    None
}

fn kineto_names(traces: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(traces)
        .expect("the folder of traces can be listed")
        .filter_map(|entry| {
            entry.ok()?.file_name().into_string().ok()?.strip_suffix(".json.gz").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 17, "only {names:?}");
    names
}

fn truth(traces: &Path, name: &str) -> Value {
    let text = std::fs::read(traces.join(format!("{name}.truth.json"))).expect("each trace has its truth");
    serde_json::from_slice(&text).expect("the truth is JSON")
}

/// What the script counts as a blocking call.
fn counted_by_script(trace: &Trace, call: &Call) -> bool {
    match trace.api(call.api).class {
        ApiClass::StreamSync
        | ApiClass::EventSync
        | ApiClass::DeviceSync
        | ApiClass::Copy
        | ApiClass::CopyAndSync => true,
        ApiClass::CopyAsync => {
            call.direction == CopyDirection::DeviceToHost && call.to == MemoryKind::Pageable
        }
        _ => false,
    }
}

fn thread<'a>(trace: &'a Trace, wait: &Wait) -> &'a Thread {
    &trace.processes[wait.process as usize].threads[wait.thread as usize]
}

fn calls<'a>(trace: &'a Trace, wait: &Wait) -> Vec<&'a Call> {
    let calls = &thread(trace, wait).calls;
    match wait.calls {
        Calls::None => Vec::new(),
        Calls::One(call) => vec![&calls[call as usize]],
        Calls::Pair(first, last) => vec![&calls[first as usize], &calls[last as usize]],
        Calls::Run { first, last, .. } => calls[first as usize..=last as usize].iter().collect(),
    }
}

/// Calls and host time of a group, as the script has them.
#[derive(Debug, Default)]
struct Count {
    calls: u64,
    host_ns: u64,
    by_name: BTreeMap<String, u64>,
}

impl Count {
    fn add(&mut self, trace: &Trace, call: &Call) {
        self.calls += 1;
        self.host_ns += call.host_ns().unwrap_or(0);
        *self.by_name.entry(trace.api(call.api).name.clone()).or_default() += 1;
    }

    /// The script takes ends minus starts as floating-point microseconds since 1970, which is good to a quarter of a
    /// nanosecond: our sums of exact durations may differ from its sums by that for each call.
    fn agrees(&self, other: &Self) -> bool {
        self.calls == other.calls
            && self.by_name == other.by_name
            && close(self.host_ns, other.host_ns, self.calls)
    }

    fn of_truth(value: &Value, calls: &str, micros: &str) -> Self {
        Self {
            calls: value[calls].as_u64().unwrap_or(0),
            host_ns: ns(&value[micros]),
            by_name: value["by_name"]
                .as_object()
                .map(|names| names.iter().map(|(name, n)| (name.clone(), n.as_u64().unwrap_or(0))).collect())
                .unwrap_or_default(),
        }
    }
}

fn close(a_ns: u64, b_ns: u64, calls: u64) -> bool {
    a_ns.abs_diff(b_ns) <= 1 + calls / 4
}

fn ns(micros: &Value) -> u64 {
    (micros.as_f64().unwrap_or(0.0) * 1000.0).round() as u64
}

struct Compared {
    name: String,
    trace: Trace,
    audit: Audit,
    truth: Value,
}

/// Every trace, read and audited once for all tests.
fn all() -> &'static [Compared] {
    static ALL: OnceLock<Vec<Compared>> = OnceLock::new();
    ALL.get_or_init(|| traces().map(|traces| read_all(&traces)).unwrap_or_default())
}

fn read_all(traces: &Path) -> Vec<Compared> {
    let read = |name: String| {
        let trace =
            load_path(&[traces.join(format!("{name}.json.gz"))]).unwrap_or_else(|error| panic!("{error}"));
        let options = AuditOptions {
            steps: StepRules { warmup: 0, ..StepRules::default() },
            ..AuditOptions::default()
        };
        let audit = audit::audit(&trace, &options);
        audit.reconcile().unwrap_or_else(|error| panic!("{name}: {error}"));
        let truth = truth(traces, &name);
        Compared { name, trace, audit, truth }
    };
    kineto_names(traces).into_iter().map(read).collect()
}

fn compare_all(check: impl Fn(&Compared) -> Vec<String>) {
    let failures: Vec<String> = all()
        .iter()
        .flat_map(|compared| check(compared).into_iter().map(|text| format!("{}: {text}", compared.name)))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn blocking_calls_and_their_host_time_are_those_of_the_separate_count() {
    compare_all(|Compared { trace, audit, truth, .. }| {
        let mut total = Count::default();
        let marked = audit.step_counts.source == StepSource::ProfilerStep;
        let mut per_step: BTreeMap<String, Count> = audit
            .steps
            .iter()
            .filter(|_| marked)
            .map(|step| (format!("ProfilerStep#{}", step.number.unwrap_or(-1)), Count::default()))
            .collect();
        let mut outside = Count::default();
        for wait in &audit.waits {
            for call in calls(trace, wait).into_iter().filter(|call| counted_by_script(trace, call)) {
                total.add(trace, call);
                // The script leaves the profiler's own synchronise in the step that it happens to lie in.
                let step = audit
                    .steps
                    .iter()
                    .filter(|_| marked)
                    .find(|step| step.start_ns <= wait.start_ns && wait.start_ns <= step.end_ns);
                assert!(wait.by_recorder || !marked || step.is_some() == wait.step.is_some(), "{wait:?}");
                match step.map(|step| step.number.unwrap_or(-1)) {
                    Some(number) => {
                        per_step.get_mut(&format!("ProfilerStep#{number}")).unwrap().add(trace, call);
                    }
                    None => outside.add(trace, call),
                }
            }
        }
        let mut failures = Vec::new();
        let mut check = |what: String, ours: &Count, theirs: &Count| {
            if !ours.agrees(theirs) {
                failures.push(format!("{what}: we have {ours:?}, the script {theirs:?}"));
            }
        };
        check("total".into(), &total, &Count::of_truth(&truth["totals"], "blocking_calls", "blocking_us"));
        check("outside of steps".into(), &outside, &Count::of_truth(&truth["outside_steps"], "n", "us"));
        let theirs = truth["per_step"].as_object().unwrap();
        for (step, value) in theirs {
            let ours = per_step.remove(step).unwrap_or_default();
            check(step.clone(), &ours, &Count::of_truth(value, "blocking_calls", "blocking_us"));
        }
        if !per_step.is_empty() {
            failures.push(format!("steps that the script doesn't have: {:?}", per_step.keys()));
        }
        failures
    });
}

#[test]
fn a_wait_is_one_operation_of_the_program_as_in_the_separate_count() {
    compare_all(|Compared { name, trace, audit, truth }| {
        let (theirs, ours): (Vec<&Wait>, Vec<&Wait>) = audit
            .waits
            .iter()
            .partition(|wait| calls(trace, wait).iter().any(|call| counted_by_script(trace, call)));
        let mut failures = Vec::new();
        if Some(theirs.len() as u64) != truth["totals"]["sync_points"].as_u64() {
            failures.push(format!(
                "{} operations, the script has {}",
                theirs.len(),
                truth["totals"]["sync_points"]
            ));
        }
        let mut ours_only: BTreeMap<(String, String), usize> = BTreeMap::new();
        for wait in ours {
            let api = calls(trace, wait).first().map_or("", |call| &trace.api(call.api).name).to_owned();
            *ours_only.entry((api, wait.evidence.id().to_owned())).or_default() += 1;
        }
        let expected: BTreeMap<(String, String), usize> = OURS_ONLY
            .iter()
            .filter(|(trace, ..)| trace == name)
            .map(|(_, api, rule, count)| (((*api).to_owned(), (*rule).to_owned()), *count))
            .collect();
        if ours_only != expected {
            failures.push(format!("only we have {ours_only:?}, expected {expected:?}"));
        }
        failures
    });
}

#[test]
fn each_blocking_call_is_in_the_operator_of_the_separate_count() {
    compare_all(|Compared { name, trace, audit, truth }| {
        let mut ours: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
        for wait in &audit.waits {
            let thread = thread(trace, wait);
            for call in calls(trace, wait).into_iter().filter(|call| counted_by_script(trace, call)) {
                let op = thread.spans_around(call).find(|span| span.kind == SpanKind::Op);
                let op = op.map_or(String::new(), |span| trace.str(span.name).to_owned());
                let row = ours.entry((trace.api(call.api).name.clone(), op)).or_default();
                row.0 += 1;
                row.1 += call.host_ns().unwrap_or(0);
            }
        }
        let mut theirs: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
        for row in truth["by_site"].as_array().unwrap() {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let (call, mut op) = (text("call"), text("op"));
            if WRONG_OP.contains(&(name.as_str(), call.as_str(), op.as_str())) {
                op.clear();
            }
            let sum = theirs.entry((call, op)).or_default();
            *sum = (sum.0 + row["n"].as_u64().unwrap_or(0), sum.1 + ns(&row["us"]));
        }
        let same = ours.len() == theirs.len()
            && ours.iter().all(|(place, &(calls, host_ns))| {
                theirs.get(place).is_some_and(|row| row.0 == calls && close(row.1, host_ns, calls))
            });
        if same { Vec::new() } else { vec![format!("we have {ours:?}\n   the script {theirs:?}")] }
    });
}

#[test]
fn the_profilers_own_synchronise_is_told_apart_and_in_no_step() {
    compare_all(|Compared { name, audit, truth, .. }| {
        let own: Vec<&Wait> = audit.waits.iter().filter(|wait| wait.by_recorder).collect();
        // The script wants it to be the very last call of all threads; in this trace NCCL's thread asks for events after it.
        let expected = match name.as_str() {
            "hta_nccl_data" => 1,
            _ => truth["totals"]["profiler_like"].as_u64().unwrap_or(0),
        };
        let mut failures = Vec::new();
        if own.len() as u64 != expected {
            failures.push(format!("{} instead of {expected}", own.len()));
        }
        if own.iter().any(|wait| wait.step.is_some()) {
            failures.push("it is in a step".to_owned());
        }
        let rows: u64 = audit.sites.iter().filter(|site| site.by_recorder).map(|site| site.waits).sum();
        if rows != expected {
            failures.push(format!("{rows} in rows of their own"));
        }
        failures
    });
}

#[test]
fn uploads_from_pageable_memory_are_waits_with_the_time_inside_of_the_copy() {
    compare_all(|Compared { name, trace, audit, .. }| {
        let uploads: Vec<&Call> = audit
            .waits
            .iter()
            .flat_map(|wait| calls(trace, wait))
            .filter(|call| call.from == MemoryKind::Pageable && call.direction == CopyDirection::HostToDevice)
            .collect();
        let host_ns: u64 = uploads.iter().filter_map(|call| call.host_ns()).sum();
        let expected = UPLOADS.iter().find(|row| row.0 == name).map_or((0, 0), |row| (row.1, row.2));
        if (uploads.len(), host_ns) == expected {
            Vec::new()
        } else {
            vec![format!("{} uploads with {host_ns} ns, expected {expected:?}", uploads.len())]
        }
    });
}

#[test]
fn steps_are_inferred_from_the_optimizer_only_where_none_are_marked() {
    compare_all(|Compared { name, audit, truth, .. }| {
        let (source, steps) = match name.as_str() {
            "param_resnet" => (StepSource::Inferred, 30),
            _ => match truth["n_steps"].as_u64().unwrap_or(0) as usize {
                0 => (StepSource::None, 0),
                steps => (StepSource::ProfilerStep, steps),
            },
        };
        let found = (audit.step_counts.source, audit.step_counts.total);
        if found == (source, steps) {
            Vec::new()
        } else {
            vec![format!("{found:?} instead of {:?}", (source, steps))]
        }
    });
}
