//! What is a step, a log step, a warm-up step; and which step a wait belongs to.
//!
//! In: the ranges of a trace and [`StepRules`]. Out: [`Step`]s in order of process and time, and waits that know their step.
//! Each process has one source of steps: the thread (or the handle ranges) with the most matching ranges. A matching range
//! inside of a matching range is no step of its own. A wait belongs to the step of its process whose time covers the
//! wait's start, on whatever thread it is: autograd threads work for the step of the main thread.

use rustc_hash::FxHashMap as HashMap;

use super::ProcessRow;
use super::inferred;
use super::options::{Pattern, StepRules, stem, trailing_number};
use super::waits::Wait;
use crate::model::{FreeRange, OPEN, Problem, ProblemKind, Process, Span, SpanKind, StrId, Thread, Trace};

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    Warmup,
    Log,
    Ordinary,
    /// Had not ended when the trace did.
    Unfinished,
}

impl StepKind {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Log => "log",
            Self::Ordinary => "ordinary",
            Self::Unfinished => "unfinished",
        }
    }
}

/// How steps were recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepSource {
    Nvtx,
    ProfilerStep,
    /// Operators of the framework that the user named.
    Operator,
    OptimizerHook,
    Inferred,
    #[default]
    None,
}

impl StepSource {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Nvtx => "nvtx",
            Self::ProfilerStep => "profiler-step",
            Self::Operator => "operator",
            Self::OptimizerHook => "optimizer-hook",
            Self::Inferred => "inferred",
            Self::None => "none",
        }
    }
}

/// One step of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Position among the steps of its process, from 0.
    pub index: usize,
    /// The number that the program itself gave (NVTX payload, or the end of the range's name).
    pub number: Option<i64>,
    /// Index into the trace's processes.
    pub process: u32,
    /// Index into the process' threads; `None` for a range started and ended by handle.
    pub thread: Option<u32>,
    pub start_ns: u64,
    /// [`crate::model::OPEN`] for an unfinished step.
    pub end_ns: u64,
    pub kind: StepKind,
    pub waits: u64,
    pub calls: u64,
    /// Of `waits`, those inside of a log range.
    pub log_range_waits: u64,
    pub blocked_ns: Option<u64>,
    pub over_budget: bool,
}

/// Finds the steps of all processes.
pub(super) fn find(trace: &Trace, rules: &StepRules, problems: &mut Vec<Problem>) -> (Vec<Step>, StepSource) {
    let default_steps = Pattern::default_steps();
    let pattern = rules.pattern.as_ref().unwrap_or(&default_steps);
    let mut step_names = Names::new(trace, pattern);
    let default_log = Pattern::default_log();
    let mut log_names = Names::new(trace, rules.log_range.as_ref().unwrap_or(&default_log));
    let mut steps = Vec::new();
    let mut source = StepSource::None;
    let marked: Vec<Vec<Candidate>> = trace
        .processes
        .iter()
        .map(|process| of_process(process, &mut step_names, rules.pattern.is_some()))
        .collect();
    // A process without steps beside one that has some is a helper. Only a job that marks no step at all is looked at for
    // repetition.
    let infer = rules.pattern.is_none() && marked.iter().all(Vec::is_empty);
    for (process_index, (process, mut candidates)) in trace.processes.iter().zip(marked).enumerate() {
        let log_ranges = LogRanges::of(process, &mut log_names);
        if infer && let Some(inferred) = inferred::steps(trace, process) {
            source = StepSource::Inferred;
            problems.push(said_to_be_inferred(trace, process, &inferred));
            candidates =
                inferred.steps.iter().map(|&step| Candidate::inferred(step, inferred.thread)).collect();
        }
        for (index, candidate) in candidates.iter().enumerate() {
            if source == StepSource::None {
                source = match stem(trace.str(candidate.name)) {
                    _ if candidate.is_op => StepSource::Operator,
                    "ProfilerStep" => StepSource::ProfilerStep,
                    _ => StepSource::Nvtx,
                };
            }
            let number = candidate.payload.or_else(|| trailing_number(trace.str(candidate.name)));
            let kind = if candidate.end_ns == OPEN {
                StepKind::Unfinished
            } else if index < rules.warmup {
                StepKind::Warmup
            } else if is_log_step(candidate, index, number, rules, &log_ranges) {
                StepKind::Log
            } else {
                StepKind::Ordinary
            };
            steps.push(Step {
                index,
                number,
                process: u32::try_from(process_index).unwrap_or(u32::MAX),
                thread: candidate.thread,
                start_ns: candidate.start_ns,
                end_ns: candidate.end_ns,
                kind,
                waits: 0,
                calls: 0,
                log_range_waits: 0,
                blocked_ns: trace.times_meaningful().then_some(0),
                over_budget: false,
            });
        }
    }
    (steps, source)
}

/// Tells that steps are a guess, and how to have them for certain.
fn said_to_be_inferred(trace: &Trace, process: &Process, inferred: &inferred::Inferred) -> Problem {
    // One process alone needs no name, unless it is one of several ranks.
    let of = if trace.processes.len() > 1 || process.rank.is_some() {
        format!(" of {}", ProcessRow::name_of(process.rank, process.pid))
    } else {
        String::new()
    };
    Problem::new(
        ProblemKind::Note,
        format!(
            "no range is marked as a step: {}{of} inferred from {}. Name the range of one step with --steps to be \
             certain",
            super::plural(inferred.steps.len() as u64, "step", "steps"),
            inferred.by
        ),
    )
}

/// Whether names match a pattern, each distinct name looked at once.
struct Names<'a> {
    trace: &'a Trace,
    pattern: &'a Pattern,
    known: HashMap<StrId, bool>,
}

impl<'a> Names<'a> {
    fn new(trace: &'a Trace, pattern: &'a Pattern) -> Self {
        Self { trace, pattern, known: HashMap::default() }
    }

    fn matches(&mut self, name: StrId) -> bool {
        *self.known.entry(name).or_insert_with(|| self.pattern.matches(self.trace.str(name)))
    }
}

struct Candidate {
    start_ns: u64,
    end_ns: u64,
    payload: Option<i64>,
    name: StrId,
    is_op: bool,
    thread: Option<u32>,
}

impl Candidate {
    fn inferred((start_ns, end_ns): (u64, u64), thread: u32) -> Self {
        Self { start_ns, end_ns, payload: None, name: StrId::NONE, is_op: false, thread: Some(thread) }
    }
}

/// The steps of a process, by start. Operators count only when the user names them: a framework has many of its own that
/// happen to be called `step`.
fn of_process(process: &Process, names: &mut Names<'_>, named_by_user: bool) -> Vec<Candidate> {
    let mut best: Vec<Candidate> = Vec::new();
    for (index, thread) in process.threads.iter().enumerate() {
        let found = of_thread(thread, index, names, named_by_user);
        if found.len() > best.len() {
            best = found;
        }
    }
    let by_handle = of_handles(&process.free_ranges, names);
    if by_handle.len() > best.len() { by_handle } else { best }
}

fn of_thread(thread: &Thread, index: usize, names: &mut Names<'_>, named_by_user: bool) -> Vec<Candidate> {
    let is_step = |span: &Span, names: &mut Names<'_>| {
        (span.kind == SpanKind::Range || (named_by_user && span.kind == SpanKind::Op))
            && names.matches(span.name)
    };
    let mut found: Vec<Candidate> = Vec::new();
    for span in &thread.spans {
        if !is_step(span, names) {
            continue;
        }
        // Spans are in order of start, so an enclosing step is the one found last.
        if found.last().is_some_and(|last| span.start_ns < last.end_ns && span.end_ns <= last.end_ns) {
            continue;
        }
        found.push(Candidate {
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            payload: span.payload().filter(|_| span.kind == SpanKind::Range),
            name: span.name,
            is_op: span.kind == SpanKind::Op,
            thread: u32::try_from(index).ok(),
        });
    }
    found
}

fn of_handles(ranges: &[FreeRange], names: &mut Names<'_>) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for range in ranges.iter().filter(|range| names.matches(range.name)) {
        if found.last().is_some_and(|last| range.start_ns < last.end_ns && range.end_ns <= last.end_ns) {
            continue;
        }
        found.push(Candidate {
            start_ns: range.start_ns,
            end_ns: range.end_ns,
            payload: range.payload,
            name: range.name,
            is_op: false,
            thread: None,
        });
    }
    found
}

/// The log ranges of a process: few, so that asking whether one covers a time is cheap.
struct LogRanges {
    /// Per thread, and last those started and ended by handle; each by start.
    lanes: Vec<Vec<(u64, u64)>>,
}

impl LogRanges {
    fn of(process: &Process, names: &mut Names<'_>) -> Self {
        let mut lanes: Vec<Vec<(u64, u64)>> = process
            .threads
            .iter()
            .map(|thread| {
                thread
                    .spans
                    .iter()
                    .filter(|span| span.kind == SpanKind::Range && names.matches(span.name))
                    .map(|span| (span.start_ns, span.end_ns))
                    .collect()
            })
            .collect();
        lanes.push(
            process
                .free_ranges
                .iter()
                .filter(|range| names.matches(range.name))
                .map(|range| (range.start_ns, range.end_ns))
                .collect(),
        );
        Self { lanes }
    }

    /// Log ranges of a thread and those by handle that begin between the two times.
    fn begun_within(
        &self,
        thread: Option<u32>,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = (u64, u64)> {
        let by_handle = self.lanes.len().saturating_sub(1);
        let own = thread.map(|thread| thread as usize).filter(|&thread| thread < by_handle);
        own.into_iter().chain([by_handle]).filter_map(|lane| self.lanes.get(lane)).flat_map(move |lane| {
            let first = lane.partition_point(|range| range.0 < from_ns);
            lane[first..].iter().copied().take_while(move |range| range.0 <= to_ns)
        })
    }
}

/// By number if the user gave one; else a step with a log range in it, on the step's own thread.
fn is_log_step(
    step: &Candidate,
    index: usize,
    number: Option<i64>,
    rules: &StepRules,
    log_ranges: &LogRanges,
) -> bool {
    match rules.log_every {
        Some(every) => every.matches(number.unwrap_or(i64::try_from(index).unwrap_or(i64::MAX))),
        None => log_ranges.begun_within(step.thread, step.start_ns, step.end_ns).next().is_some(),
    }
}

/// Gives each wait its step, and each step its numbers.
pub(super) fn assign(trace: &Trace, rules: &StepRules, steps: &mut [Step], waits: &mut [Wait]) {
    let default_log = Pattern::default_log();
    let mut log_names = Names::new(trace, rules.log_range.as_ref().unwrap_or(&default_log));
    let log_ranges: Vec<LogRanges> =
        trace.processes.iter().map(|process| LogRanges::of(process, &mut log_names)).collect();
    for wait in waits.iter_mut().filter(|wait| !wait.by_recorder) {
        let first = steps.partition_point(|step| step.process < wait.process);
        let until = first
            + steps[first..]
                .partition_point(|step| step.process == wait.process && step.start_ns <= wait.start_ns);
        // Handle ranges may overlap: the step that began last has the wait. More than a few in flight are not seen in
        // practice.
        let step = (first..until).rev().take(8).find(|&index| wait.start_ns <= steps[index].end_ns);
        let Some(index) = step else { continue };
        let step = &mut steps[index];
        wait.step = u32::try_from(index).ok();
        // Inside of a log range of its own thread, or of the thread that the step is on.
        wait.in_log_range = log_ranges.get(wait.process as usize).is_some_and(|ranges| {
            let covered = |thread| {
                ranges
                    .begun_within(thread, step.start_ns, wait.start_ns)
                    .any(|(_, end_ns)| wait.start_ns <= end_ns)
            };
            covered(Some(wait.thread)) || covered(step.thread)
        });
        step.waits += 1;
        step.calls += wait.calls.count();
        step.log_range_waits += u64::from(wait.in_log_range);
        if let (Some(sum), Some(blocked_ns)) = (&mut step.blocked_ns, wait.blocked_ns) {
            *sum = sum.saturating_add(blocked_ns);
        }
    }
}
