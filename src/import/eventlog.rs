//! Our own event logs: one file per process image, or a trace directory with many.
//!
//! In: `PID-N.salog` files and the handshake files beside them. Out: one process per log in the trace. Damage, losses and what the
//! tracer itself complained about become problems that name the process. A call that was entered and never left is kept:
//! the program ended inside of it. Must never let a damaged log count as a complete one.

use std::path::{Path, PathBuf};

use syncaudit_eventlog as log;
use syncaudit_eventlog::{EndReason, LogFile, LossReason, NoteLevel, OpenError, Record, Warning, meta};

use super::{ImportError, names};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::audit::plural;
use crate::model::{
    ApiId, CallData, CallEffect, CopyDirection, DeviceOp, DeviceOpKind, FreeRange, MemoryKind, ModuleId,
    NativeFrame, OPEN, Overhead, OverheadKind, Problem, ProblemKind, PythonFrame, StackId, StrId, StreamId,
    ThreadBuilder, TraceBuilder,
};

/// File name ending of a log.
const ENDING: &str = "salog";

/// What `run.json` says that matters here.
#[derive(serde::Deserialize)]
struct RunRecord {
    program: Vec<String>,
    device: Option<String>,
    end: Option<RunEnd>,
    /// `--kernel-time`.
    #[serde(default)]
    kernel_time: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum RunEnd {
    Exit(i32),
    Signal(i32),
}

impl RunRecord {
    /// Why there is less in the trace than the program was to do.
    fn ended_early(&self) -> Option<String> {
        let how = match self.end {
            Some(RunEnd::Exit(0)) => return None,
            Some(RunEnd::Exit(status)) => format!("the program ended with exit status {status}"),
            Some(RunEnd::Signal(signal)) => match signal_hook::low_level::signal_name(signal) {
                Some(name) => format!("the program was killed by {name}"),
                None => format!("the program was killed by signal {signal}"),
            },
            None => {
                "the program has not ended (or 'syncaudit run' was killed, and it is not known how it ended)"
                    .to_owned()
            }
        };
        Some(format!("{how}: what it did until then is what is judged"))
    }
}

/// Whether the path is one of ours: a log, or a directory that `run` made.
pub(super) fn is_mine(path: &Path) -> bool {
    if path.is_dir() {
        return path.join("run.json").is_file() || logs_in(path).is_ok_and(|logs| !logs.is_empty());
    }
    // What is read from a pipe to look at it is gone.
    has_ending(path) || (path.is_file() && starts_as_log(path))
}

fn has_ending(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

fn starts_as_log(path: &Path) -> bool {
    let mut start = [0; log::format::MAGIC.len()];
    std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start))
        .is_ok_and(|()| start == log::format::MAGIC)
}

/// Reads a log or a trace directory into the trace; answers how many ranks the job has, where a launcher said so.
///
/// # Errors
/// When a single log can't be read at all, or a directory can't be listed.
pub(super) fn load(
    path: &Path,
    trace: &mut TraceBuilder,
    seen: &mut Seen,
) -> Result<Option<u32>, ImportError> {
    let problems = trace.problems.len();
    if !path.is_dir() {
        if seen.again(path, trace) {
            return Ok(None);
        }
        let file = LogFile::open(path).map_err(|error| ImportError::new(path, error.to_string()))?;
        let world_size = read(&file, trace);
        let logs = [path.to_owned()];
        names::read(path.parent().unwrap_or(Path::new("")), &logs, trace);
        only_logs_tell(&mut trace.problems[problems..]);
        return Ok(world_size);
    }
    let logs = logs_in(path)
        .map_err(|error| ImportError::new(path, format!("the directory can't be listed: {error}")))?;
    let run = std::fs::read(path.join("run.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<RunRecord>(&text).ok());
    if let Some(run) = &run {
        trace.source.program.clone_from(&run.program);
        // Also where no process left a log that says so.
        trace.source.emulated |= run.device.as_deref() == Some("emulated");
        trace.source.time_model.clone_from(&run.kernel_time);
        if let Some(early) = run.ended_early() {
            trace.problem(Problem::new(ProblemKind::EndedEarly, early));
        }
    }
    let before = trace.process_count();
    let mut world_size = None;
    for log in &logs {
        if seen.again(log, trace) {
            continue;
        }
        match LogFile::open(log) {
            Ok(file) => world_size = world_size.max(read(&file, trace)),
            Err(error) => trace.problem(unreadable(log, &error)),
        }
    }
    if run.is_none() {
        only_logs_tell(&mut trace.problems[problems..]);
    }
    names::read(path, &logs, trace);
    complaints(path, trace);
    if trace.process_count() == before && logs.is_empty() {
        trace.problem(Problem::new(
            ProblemKind::TracerNotLoaded,
            "no process left an event log: the program made no CUDA or NVTX call, or can't be traced this way",
        ));
    }
    Ok(world_size)
}

/// The logs that were read for a job, by what tells a log from all others: one that is given twice (by itself and in its directory, or as a
/// copy) is one process, not two.
#[derive(Debug, Default)]
pub(super) struct Seen(HashSet<u64>);

impl Seen {
    fn again(&mut self, log: &Path, trace: &mut TraceBuilder) -> bool {
        let again = names::nonce(log).is_some_and(|nonce| !self.0.insert(nonce));
        if again {
            trace.problem(given_twice(log));
        }
        again
    }
}

/// Says that a recording is there twice.
pub(super) fn given_twice(path: &Path) -> Problem {
    Problem::new(
        ProblemKind::Note,
        format!(
            "{} was given twice and is counted once",
            path.file_name().unwrap_or_default().to_string_lossy()
        ),
    )
}

/// The logs of a directory, in the order in which process images began under each pid.
pub(super) fn logs_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut logs: Vec<(Vec<u64>, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if has_ending(&path) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            logs.push((stem.split('-').map(|part| part.parse().unwrap_or(u64::MAX)).collect(), path));
        }
    }
    logs.sort();
    Ok(logs.into_iter().map(|(_, path)| path).collect())
}

fn unreadable(path: &Path, error: &OpenError) -> Problem {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kind = match error {
        OpenError::Empty | OpenError::HeaderCutOff { .. } => ProblemKind::Truncated,
        _ => ProblemKind::Corrupt,
    };
    Problem::new(kind, format!("the event log {name} can't be read: {error}"))
}

/// Without a record of the run, a log that was not closed is all that tells how the program ended.
fn only_logs_tell(problems: &mut [Problem]) {
    for problem in problems.iter_mut().filter(|problem| problem.kind == ProblemKind::NotSealed) {
        problem.kind = ProblemKind::EndedEarly;
    }
}

/// What tracers said in their handshake files and could not (or did) say in a log as well.
fn complaints(directory: &Path, trace: &mut TraceBuilder) {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("alive-")))
        .collect();
    files.sort();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pid = name.split('-').nth(1).unwrap_or("?");
        for problem in text.lines().filter_map(|line| line.strip_prefix("problem=")) {
            if !trace.problems.iter().any(|known| known.text.contains(problem)) {
                trace.problem(Problem::new(complaint_kind(problem), format!("process {pid}: {problem}")));
            }
        }
    }
}

/// Which of the usual complaints it is; every kind keeps the verdict from being "pass".
fn complaint_kind(text: &str) -> ProblemKind {
    if text.contains("another") && text.contains("CUPTI") {
        ProblemKind::CuptiHeld
    } else if text.contains("CUDA calls are not recorded") {
        ProblemKind::CuptiMissing
    } else {
        ProblemKind::Tracer
    }
}

/// Adds one log as one process; answers the number of ranks that its launcher named.
fn read(file: &LogFile, trace: &mut TraceBuilder) -> Option<u32> {
    let header = file.header();
    let number =
        |key: &str| -> Option<u32> { std::str::from_utf8(file.meta(key)?).ok()?.trim().parse().ok() };
    let program: Vec<String> = file
        .meta(meta::PROGRAM)
        .unwrap_or_default()
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if trace.source.program.is_empty() {
        trace.source.program.clone_from(&program);
    }
    if !program.is_empty() {
        trace.source.commands.push(program.clone());
    }
    trace.source.emulated |= file.meta(meta::EMULATED) == Some(b"1");
    for (key, name) in [
        (meta::TRACER, "tracer"),
        (meta::CUDA_DRIVER, "cuda driver"),
        (meta::CUPTI, "cupti"),
        (meta::ARCH, "arch"),
    ] {
        if let Some(value) = file.meta(key) {
            let version = (name.to_owned(), String::from_utf8_lossy(value).into_owned());
            if !trace.source.versions.contains(&version) {
                trace.source.versions.push(version);
            }
        }
    }
    let name = program.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path));
    let name = trace.intern(name);
    let rank = number(meta::RANK);
    let pid = u64::from(header.pid);
    let who = match rank {
        Some(rank) => format!("process {pid} (rank {rank})"),
        None => format!("process {pid}"),
    };
    problems(file, &who, trace);

    let mut process = trace.process(pid);
    let index = process.index();
    let data = process.data();
    data.parent_pid = (header.ppid != 0).then_some(u64::from(header.ppid));
    data.name = name;
    data.rank = rank;
    let damaged = file.warnings().iter().any(|warning| !matches!(warning, Warning::UnknownKind { .. }));
    let mut reader = Reader {
        file,
        trace,
        process: index,
        modules: Vec::new(),
        clock_pairs: Vec::new(),
        strings: HashMap::default(),
        domains: HashMap::default(),
        apis: HashMap::default(),
        stacks: HashMap::default(),
        py_stacks: HashMap::default(),
        streams: HashMap::default(),
        ranges: HashMap::default(),
        device_ops: Vec::new(),
        overheads: Vec::new(),
        lost_exits: 0,
        lone_pops: 0,
        who,
    };
    reader.modules();
    for thread in file.threads() {
        reader.thread(&thread, damaged);
    }
    reader.finish();
    number(meta::WORLD_SIZE)
}

/// No process loses as many events: that is one every nanosecond for three days.
const MOST_EVENTS: u64 = 1 << 48;

/// Losses, damage and notes of a log as problems.
fn problems(file: &LogFile, who: &str, trace: &mut TraceBuilder) {
    for &(reason, count) in &file.header().losses {
        // A cut text leaves its event in place, and what comes after the end is in no step.
        let kind = match reason {
            LossReason::Truncated | LossReason::AfterSeal => ProblemKind::Note,
            _ => ProblemKind::LostRecords,
        };
        // The counters are outside of the header's check: one that can't be is no number to print.
        let (count, events) = match count {
            MOST_EVENTS.. => (1, "events (how many is not known, their counter is damaged)".to_owned()),
            _ => (count, plural(count, "event", "events")),
        };
        trace.problem(Problem::counted(
            kind,
            count,
            format!("{who}: {events} lost or cut: {}", reason.text()),
        ));
    }
    for warning in file.warnings() {
        let (kind, count) = match warning {
            Warning::CutOff { missing_chunks } => (ProblemKind::Truncated, u64::from(*missing_chunks)),
            Warning::UnusedEvents { events, .. } => (ProblemKind::LostRecords, *events),
            Warning::UnknownKind { records, .. } => (ProblemKind::LostRecords, *records),
            _ => (ProblemKind::Corrupt, 1),
        };
        trace.problem(Problem::counted(kind, count, format!("{who}: {warning}")));
    }
    if !file.header().sealed {
        trace.problem(Problem::new(
            ProblemKind::NotSealed,
            format!(
                "{who} did not close its log (killed, or still running); what it did until then is there"
            ),
        ));
    }
}

/// Converts CUPTI's clock into the monotonic one by the pairs in the log.
struct Clock {
    /// (CUPTI, monotonic) times of the same moments, by CUPTI time.
    pairs: Vec<(u64, u64)>,
}

impl Clock {
    /// Of the pairs in a log, which may be none.
    fn new(mut pairs: Vec<(u64, u64)>, header: &log::Header) -> Self {
        if pairs.is_empty() {
            // On Linux CUPTI's clock is CLOCK_REALTIME unless a program replaces it.
            pairs.push((header.created_realtime_ns, header.created_monotonic_ns));
        }
        pairs.sort_unstable();
        Self { pairs }
    }

    /// Between two pairs by interpolation, outside of them by the nearest.
    fn to_monotonic(&self, cupti_ns: u64) -> u64 {
        let after = self.pairs.partition_point(|pair| pair.0 <= cupti_ns);
        let offset = |pair: (u64, u64)| i128::from(pair.1) - i128::from(pair.0);
        let nearest = match (after.checked_sub(1).map(|at| self.pairs[at]), self.pairs.get(after).copied()) {
            (Some(before), Some(after)) => {
                let width = i128::from(after.0 - before.0).max(1);
                let into = i128::from(cupti_ns - before.0);
                offset(before) + (offset(after) - offset(before)) * into / width
            }
            (Some(pair), None) | (None, Some(pair)) => offset(pair),
            (None, None) => 0,
        };
        u64::try_from(i128::from(cupti_ns) + nearest).unwrap_or(0)
    }

    /// Start and end of a record; the end is never before the start.
    fn span(&self, start_ns: u64, end_ns: u64) -> (u64, u64) {
        let start_ns = self.to_monotonic(start_ns);
        (start_ns, self.to_monotonic(end_ns).max(start_ns))
    }
}

/// A module with the addresses that it is mapped at.
struct Mapped {
    base: u64,
    end: u64,
    bias: u64,
    id: ModuleId,
}

/// Walks one log.
struct Reader<'a> {
    file: &'a LogFile,
    trace: &'a mut TraceBuilder,
    process: usize,
    /// By base; what was loaded later comes later.
    modules: Vec<Mapped>,
    /// (CUPTI, monotonic) times of the same moments.
    clock_pairs: Vec<(u64, u64)>,
    strings: HashMap<log::StrId, StrId>,
    domains: HashMap<log::DomainId, StrId>,
    apis: HashMap<log::Api, ApiId>,
    stacks: HashMap<log::StackId, StackId>,
    py_stacks: HashMap<log::PyStackId, StackId>,
    streams: HashMap<u64, StreamId>,
    ranges: HashMap<u64, FreeRange>,
    /// In CUPTI's time until all clock pairs are known.
    device_ops: Vec<DeviceOp>,
    /// As above.
    overheads: Vec<Overhead>,
    lost_exits: u64,
    lone_pops: u64,
    who: String,
}

impl Reader<'_> {
    fn modules(&mut self) {
        for record in self.file.modules() {
            let Record::Module { base, end, bias, path, build_id, .. } = record else { continue };
            let path = String::from_utf8_lossy(self.file.str(path).unwrap_or_default()).into_owned();
            let id = self.trace.module(&path, build_id);
            self.modules.push(Mapped { base, end, bias, id });
        }
        self.modules.sort_by_key(|module| module.base);
    }

    fn thread(&mut self, thread: &log::Thread<'_>, damaged: bool) {
        let tid = thread.os_tid();
        let mut entered: Option<log::CallEnter> = None;
        let mut queries: HashMap<u32, log::QueryRun> = HashMap::default();
        for record in thread.records() {
            match record {
                Record::ThreadName { name } => {
                    let name = self.string(name);
                    self.builder(tid).name_id(name);
                }
                Record::Clock(clock) if clock.cupti_ns != 0 => {
                    self.clock_pairs.push((clock.cupti_ns, clock.monotonic_ns));
                }
                Record::RangePush { t_ns, attributes } => {
                    let (domain, name) = (self.domain(attributes.domain), self.string(attributes.name));
                    self.builder(tid).push_in(t_ns, domain, name, payload(attributes.payload));
                }
                Record::RangePop { t_ns, domain } => {
                    let domain = self.domain(domain);
                    if !self.builder(tid).pop_in(t_ns, domain) {
                        self.lone_pops += 1;
                    }
                }
                Record::RangeStart { t_ns, range, attributes } => {
                    let (domain, name) = (self.domain(attributes.domain), self.string(attributes.name));
                    let payload = payload(attributes.payload);
                    self.ranges.insert(
                        range,
                        FreeRange { start_ns: t_ns, end_ns: OPEN, payload, name, domain, tid },
                    );
                }
                Record::RangeEnd { t_ns, range, .. } => {
                    // It may have been started on a thread that is read later.
                    match self.ranges.get_mut(&range) {
                        Some(open) => open.end_ns = t_ns,
                        None => {
                            self.ranges.insert(
                                range,
                                FreeRange {
                                    start_ns: OPEN,
                                    end_ns: t_ns,
                                    payload: None,
                                    name: StrId::NONE,
                                    domain: StrId::NONE,
                                    tid: 0,
                                },
                            );
                        }
                    }
                }
                Record::Mark { t_ns, attributes } => {
                    let (domain, name) = (self.domain(attributes.domain), self.string(attributes.name));
                    self.builder(tid).mark_in(t_ns, domain, name);
                }
                Record::CallEnter(enter) => {
                    if let Some(before) = entered.replace(enter) {
                        self.lost_exits += 1;
                        self.call_without_exit(tid, &before, enter.enter_ns);
                    }
                }
                Record::Call(call) => {
                    match entered.take() {
                        Some(enter) if (enter.api, enter.enter_ns) == (call.api, call.enter_ns) => {}
                        Some(enter) => {
                            self.lost_exits += 1;
                            self.call_without_exit(tid, &enter, call.enter_ns);
                        }
                        None => {}
                    }
                    self.call(tid, &call);
                }
                Record::QueryRun(run) => {
                    let known = queries.entry(run.run).or_insert(run);
                    if run.count > known.count {
                        *known = run;
                    }
                }
                Record::Memcpy(copy) => self.copy(&copy),
                Record::Memset(set) => {
                    let op = DeviceOp {
                        kind: DeviceOpKind::Memset,
                        bytes: set.bytes,
                        to: MemoryKind::from_cupti(u32::from(set.memory_kind)),
                        graph_node: set.graph_node,
                        ..self.device_op(
                            set.correlation,
                            set.start_cupti_ns,
                            set.end_cupti_ns,
                            set.device,
                            set.stream,
                        )
                    };
                    self.device_ops.push(op);
                }
                Record::Synchronization(sync) => {
                    let kind =
                        if sync.sync_type == 2 { DeviceOpKind::StreamWait } else { DeviceOpKind::Sync };
                    let op = self.device_op(
                        sync.correlation,
                        sync.start_cupti_ns,
                        sync.end_cupti_ns,
                        0,
                        sync.stream,
                    );
                    self.device_ops.push(DeviceOp { kind, ..op });
                }
                Record::Kernel(kernel) => {
                    let name = self.string(kernel.name);
                    let op = DeviceOp {
                        kind: DeviceOpKind::Kernel,
                        name,
                        graph_node: kernel.graph_node,
                        ..self.device_op(
                            kernel.correlation,
                            kernel.start_cupti_ns,
                            kernel.end_cupti_ns,
                            kernel.device,
                            kernel.stream,
                        )
                    };
                    self.device_ops.push(op);
                }
                Record::Overhead(overhead) => self.overheads.push(Overhead {
                    start_ns: overhead.start_cupti_ns,
                    end_ns: overhead.end_cupti_ns,
                    tid: 0,
                    correlation: overhead.correlation,
                    kind: OverheadKind::from_cupti(overhead.overhead_kind),
                }),
                Record::Note { level, text, .. } => {
                    let text = String::from_utf8_lossy(text);
                    let kind = match level {
                        NoteLevel::Info => ProblemKind::Note,
                        NoteLevel::Warning | NoteLevel::Problem => complaint_kind(&text),
                    };
                    self.trace.problem(Problem::new(kind, format!("{}: {text}", self.who)));
                }
                Record::End { reason: EndReason::Disarmed, .. } => self.trace.problem(Problem::new(
                    ProblemKind::Tracer,
                    format!("{}: the tracer turned itself off before the end", self.who),
                )),
                _ => {}
            }
        }
        let mut runs: Vec<log::QueryRun> = queries.into_values().collect();
        runs.sort_by_key(|run| run.first_enter_ns);
        for run in runs {
            self.query_run(tid, &run);
        }
        // In a damaged log the exit may just be unreadable; the damage itself is a problem already.
        if let Some(enter) = entered.filter(|_| !damaged) {
            self.call_without_exit(tid, &enter, OPEN);
        }
    }

    fn builder(&mut self, tid: u64) -> ThreadBuilder<'_> {
        self.trace.thread_at(self.process, tid)
    }

    fn call(&mut self, tid: u64, call: &log::Call) {
        let api = self.api(call.api);
        let data = CallData {
            bytes: call.bytes,
            object: call.object,
            correlation: call.correlation,
            stream: self.stream(call.stream),
            native: self.stack(call.stack),
            python: self.py_stack(call.py_stack),
            effect: if call.result == 0 { CallEffect::Ok } else { CallEffect::Failed },
            direction: CopyDirection::from_cupti(u32::from(call.copy_kind)),
            ..CallData::default()
        };
        self.builder(tid).call_of(api, call.enter_ns, call.exit_ns, data);
    }

    fn call_without_exit(&mut self, tid: u64, enter: &log::CallEnter, end_ns: u64) {
        let api = self.api(enter.api);
        let data = CallData {
            correlation: enter.correlation,
            native: self.stack(enter.stack),
            python: self.py_stack(enter.py_stack),
            ..CallData::default()
        };
        self.builder(tid).call_of(api, enter.enter_ns, end_ns, data);
    }

    fn query_run(&mut self, tid: u64, run: &log::QueryRun) {
        let api = self.api(run.api);
        let data = CallData {
            object: run.object,
            count: run.count,
            not_ready: run.not_ready,
            native: self.stack(run.stack),
            python: self.py_stack(run.py_stack),
            ..CallData::default()
        };
        self.builder(tid).call_of(api, run.first_enter_ns, run.last_exit_ns, data);
    }

    fn copy(&mut self, copy: &log::Memcpy) {
        let op = DeviceOp {
            kind: DeviceOpKind::Copy,
            bytes: copy.bytes,
            direction: CopyDirection::from_cupti(u32::from(copy.copy_kind)),
            from: MemoryKind::from_cupti(u32::from(copy.src_kind)),
            to: MemoryKind::from_cupti(u32::from(copy.dst_kind)),
            graph_node: copy.graph_node,
            ..self.device_op(
                copy.correlation,
                copy.start_cupti_ns,
                copy.end_cupti_ns,
                copy.device,
                copy.stream,
            )
        };
        self.device_ops.push(op);
    }

    fn device_op(&mut self, correlation: u32, start: u64, end: u64, device: u32, stream: u32) -> DeviceOp {
        let stream = match stream {
            u32::MAX => StreamId::NONE,
            number => self.trace.process_at(self.process).stream(0, Some(number), device),
        };
        DeviceOp { start_ns: start, end_ns: end, correlation, device, stream, ..DeviceOp::default() }
    }

    fn string(&mut self, id: log::StrId) -> StrId {
        if id.is_none() {
            return StrId::NONE;
        }
        let (file, trace) = (self.file, &mut *self.trace);
        *self
            .strings
            .entry(id)
            .or_insert_with(|| trace.intern(&String::from_utf8_lossy(file.str(id).unwrap_or_default())))
    }

    fn domain(&mut self, id: log::DomainId) -> StrId {
        if id.is_none() {
            return StrId::NONE;
        }
        let (file, trace) = (self.file, &mut *self.trace);
        *self.domains.entry(id).or_insert_with(|| {
            // Their stacks must not mix, so one without a name gets its number.
            match file.domain(id).filter(|name| !name.is_empty()) {
                Some(name) => trace.intern(&String::from_utf8_lossy(name)),
                None => trace.intern(&format!("domain {}", id.0)),
            }
        })
    }

    fn api(&mut self, api: log::Api) -> ApiId {
        let (file, trace) = (self.file, &mut *self.trace);
        *self.apis.entry(api).or_insert_with(|| match file.api_name(api) {
            Some(name) => trace.api(&String::from_utf8_lossy(name)),
            None => {
                let domain = if api.domain == log::ApiDomain::Runtime { "runtime" } else { "driver" };
                trace.api(&format!("{domain} function {}", api.cbid))
            }
        })
    }

    fn stream(&mut self, handle: u64) -> StreamId {
        if let Some(&stream) = self.streams.get(&handle) {
            return stream;
        }
        let stream = self.trace.process_at(self.process).stream(handle, None, 0);
        self.streams.insert(handle, stream);
        stream
    }

    fn stack(&mut self, id: log::StackId) -> StackId {
        if id.is_none() {
            return StackId::NONE;
        }
        if let Some(&stack) = self.stacks.get(&id) {
            return stack;
        }
        let addresses = self.file.stack(id);
        let frames: Vec<NativeFrame> =
            addresses.iter().flat_map(|words| words.iter()).map(|address| self.frame(address)).collect();
        let stack = self.trace.native.intern(&frames);
        self.stacks.insert(id, stack);
        stack
    }

    fn frame(&self, address: u64) -> NativeFrame {
        let until = self.modules.partition_point(|module| module.base <= address);
        let module = self.modules[..until].iter().rev().take(16).find(|module| address <= module.end);
        let (module, address) = match module {
            Some(module) => (module.id, address.wrapping_sub(module.bias)),
            None => (ModuleId::NONE, address),
        };
        NativeFrame { module, address, is_return: true, name: StrId::NONE }
    }

    fn py_stack(&mut self, id: log::PyStackId) -> StackId {
        if id.is_none() {
            return StackId::NONE;
        }
        if let Some(&stack) = self.py_stacks.get(&id) {
            return stack;
        }
        let mut frames = Vec::new();
        for word in self.file.py_stack(id).iter().flat_map(|words| words.iter()) {
            let frame = log::PyFrame::unpack(word);
            if frame.code.is_none() {
                let function = self.trace.intern("(frames further out were not recorded)");
                frames.push(PythonFrame { file: StrId::NONE, function, line: 0 });
                continue;
            }
            let Some(Record::PyCode { python_minor, first_line, filename, qualname, line_table, .. }) =
                self.file.py_code(frame.code)
            else {
                continue;
            };
            let line = super::python_lines::line_of(python_minor, first_line, line_table, frame.offset);
            let (file, function) = (self.string(filename), self.string(qualname));
            frames.push(PythonFrame { file, function, line });
        }
        let stack = self.trace.python.intern(&frames);
        self.py_stacks.insert(id, stack);
        stack
    }

    fn finish(self) {
        let Self {
            file,
            trace,
            process,
            clock_pairs,
            ranges,
            device_ops,
            overheads,
            lost_exits,
            lone_pops,
            who,
            ..
        } = self;
        let clock = Clock::new(clock_pairs, file.header());
        if lost_exits > 0 {
            trace.problem(Problem::counted(
                ProblemKind::LostRecords,
                lost_exits,
                format!("{who}: the ends of {} are missing", plural(lost_exits, "call", "calls")),
            ));
        }
        if lone_pops > 0 {
            trace.problem(Problem::counted(
                ProblemKind::Note,
                lone_pops,
                format!(
                    "{who}: {} closed that had not been opened",
                    plural(lone_pops, "range was", "ranges were")
                ),
            ));
        }
        let mut process = trace.process_at(process);
        let mut ranges: Vec<(u64, FreeRange)> =
            ranges.into_iter().filter(|(_, range)| range.start_ns != OPEN).collect();
        ranges.sort_by_key(|(id, _)| *id);
        ranges.into_iter().for_each(|(_, range)| process.free_range(range));
        for mut op in device_ops {
            (op.start_ns, op.end_ns) = clock.span(op.start_ns, op.end_ns);
            process.device_op(op);
        }
        for mut overhead in overheads {
            (overhead.start_ns, overhead.end_ns) = clock.span(overhead.start_ns, overhead.end_ns);
            process.overhead(overhead);
        }
    }
}

/// Whole numbers only: that is what step numbers are.
fn payload(payload: log::Payload) -> Option<i64> {
    match payload {
        log::Payload::None => None,
        log::Payload::U64(value) => i64::try_from(value).ok(),
        log::Payload::I64(value) => Some(value),
        log::Payload::U32(value) => Some(i64::from(value)),
        log::Payload::I32(value) => Some(i64::from(value)),
        log::Payload::F64(value) => whole(value),
        log::Payload::F32(value) => whole(f64::from(value)),
    }
}

fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64)
}
