//! From tables to the trace model.
//!
//! In: the tables of one database. Out: its processes in a [`TraceBuilder`], and what went wrong as counts. Device work comes
//! first: it knows the stream and the event of the calls that started it, which the calls themselves don't.

use rustc_hash::FxHashMap as HashMap;

use super::database::{Database, Row, Scan};
use super::links::Links;
use super::names::{self, Names, NvtxKind};
use crate::model::{
    ApiClass, ApiId, CallData, CallEffect, DeviceOp, DeviceOpKind, FreeRange, ModuleId, NativeFrame, OPEN,
    Overhead, OverheadKind, Span, SpanKind, StackId, StrId, StreamId, TraceBuilder, classify,
};

pub(super) const RUNTIME: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
const MEMCPY: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const MEMSET: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const KERNEL: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const SYNC: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
const EVENT: &str = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
const GRAPH: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
const NVTX: &str = "NVTX_EVENTS";
const CHAINS: &str = "CUDA_CALLCHAINS";
const STRINGS: &str = "StringIds";
/// Tables of which each row is an event, for progress.
pub(super) const EVENT_TABLES: [&str; 9] =
    [RUNTIME, MEMCPY, MEMSET, KERNEL, SYNC, EVENT, GRAPH, NVTX, CHAINS];
/// What a call is shown as whose name is not there.
const NAMELESS: &str = "unknown function";
/// So often progress is told.
const TELL_EVERY: u64 = 1 << 16;

/// What could not be used, by reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Unused {
    /// Rows without a start, a thread or a name.
    pub incomplete: u64,
    /// Rows that end before the recording began.
    pub negative_time: u64,
    /// Calls and device work without an end; used as if they took no time.
    pub no_end: u64,
    /// Device work that ends before it begins; used as if it took no time.
    pub backwards: u64,
    /// Calls whose function has no name, so that nobody can say whether it waits.
    pub nameless_calls: u64,
    /// Strings that are not there.
    pub missing_strings: u64,
    /// NVTX events of kinds that are not known.
    pub unknown_nvtx: u64,
    /// Device work started by a call between the first and the last that were recorded, which itself was not.
    pub without_call: u64,
    /// Frames of call chains that have no function name.
    pub unresolved_frames: u64,
}

/// A table that could not be read to its end.
pub(super) struct Damage {
    pub table: &'static str,
    pub rows: u64,
    pub lost: Option<u64>,
    pub error: String,
}

/// Times of a row that can be used.
struct Times {
    start_ns: u64,
    end_ns: u64,
}

/// What SQLite finds wrong with the tables that are used: by itself, because it takes as long as reading them.
pub(super) fn check(database: &Database) -> Vec<Damage> {
    let damage = |table: &'static str| {
        let error = database.check(table)?;
        Some(Damage { table, rows: database.row_count(table), lost: None, error })
    };
    EVENT_TABLES.into_iter().chain([STRINGS]).filter_map(damage).collect()
}

/// Builds one database's processes.
pub(super) struct Build<'a> {
    database: &'a Database,
    pub trace: &'a mut TraceBuilder,
    progress: &'a mut dyn FnMut(u64),
    rows: u64,
    first_process: usize,
    /// Position in the trace by serialized process.
    processes: HashMap<u64, usize>,
    /// Serialized processes in the order of `first_process..`.
    process_ids: Vec<u64>,
    strings: HashMap<i64, StrId>,
    texts: Texts,
    links: Links,
    /// Device of each process' contexts: records of synchronises and events say 0 whatever the device is.
    contexts: HashMap<(usize, i64), u32>,
    chains: HashMap<i64, StackId>,
    /// See [`Build::chain_offset`].
    chain_offset: i64,
    /// `eventClass` of rows that are the backtrace of a call.
    backtrace_class: i64,
    pub unused: Unused,
    pub damage: Vec<Damage>,
    pub calls: u64,
    pub device_events: u64,
    pub ranges: u64,
}

/// What texts of ranges mean, each distinct id once.
#[derive(Default)]
struct Texts {
    by_id: HashMap<i64, (StrId, SpanKind, Option<i64>)>,
    domains: HashMap<(usize, i64), StrId>,
}

impl<'a> Build<'a> {
    pub(super) fn new(
        database: &'a Database,
        trace: &'a mut TraceBuilder,
        progress: &'a mut dyn FnMut(u64),
    ) -> Self {
        let first_process = trace.process_count();
        Self {
            database,
            trace,
            progress,
            rows: 0,
            first_process,
            processes: HashMap::default(),
            process_ids: Vec::new(),
            strings: HashMap::default(),
            texts: Texts::default(),
            links: Links::default(),
            contexts: HashMap::default(),
            chains: HashMap::default(),
            chain_offset: 0,
            backtrace_class: 0,
            unused: Unused::default(),
            damage: Vec::new(),
            calls: 0,
            device_events: 0,
            ranges: 0,
        }
    }

    /// Positions of this database's processes in the trace.
    pub(super) fn processes(&self) -> std::ops::Range<usize> {
        self.first_process..self.trace.process_count()
    }

    /// Whether a serialized process is one of the trace's.
    pub(super) fn has_process(&self, process: u64) -> bool {
        self.processes.contains_key(&process)
    }

    pub(super) fn run(&mut self) {
        self.backtrace_class = self.enumeration("ENUM_NSYS_EVENT_CLASS").backtrace_class();
        let backtraces = self.find_processes();
        self.copies();
        self.memsets();
        self.kernels();
        self.synchronizations();
        self.event_records();
        self.graphs();
        self.links.settle();
        self.call_chains();
        self.runtime_calls(backtraces);
        self.nvtx();
        self.overheads();
        self.thread_names();
        self.process_names();
        self.unused.without_call = self.links.missing_calls();
    }

    /// Reads a table, keeping book of damage and progress.
    fn scan(
        &mut self,
        table: &'static str,
        columns: &[&str],
        condition: Option<&str>,
        mut each: impl FnMut(&mut Self, &Row<'_>),
    ) {
        let database = self.database;
        let scan = database.scan(table, columns, condition, &mut |row| {
            self.rows += 1;
            if self.rows.is_multiple_of(TELL_EVERY) {
                (self.progress)(self.rows);
            }
            each(self, row);
        });
        // What is read by a condition is read in full too, and then counted.
        if let Scan { rows, error: Some(error), lost } = scan
            && condition.is_none()
            && !self.damage.iter().any(|damage| damage.table == table)
        {
            self.damage.push(Damage { table, rows, lost, error });
        }
    }

    /// The processes that made calls, in the order of their ids (others are added as they come), and the backtraces among the
    /// calls.
    fn find_processes(&mut self) -> Vec<RawCall> {
        let backtrace = self.backtrace_class;
        let mut found: Vec<u64> = Vec::new();
        let mut backtraces = Vec::new();
        let mut last = None;
        // Nearly all rows are of the first row's process and no backtraces: SQLite passes over those by itself.
        let first = self.database.first(RUNTIME, "globalTid").map(names::process_of);
        found.extend(first);
        let of_others = first.map(|first| {
            let low = names::process_bits(first);
            let class = if self.database.has_column(RUNTIME, "eventClass") { "eventClass" } else { "NULL" };
            format!("{class} IS {backtrace} OR (globalTid >> 24) IS NOT {low}")
        });
        self.scan(RUNTIME, &CALL_COLUMNS, of_others.as_deref(), |_, row| {
            let process = row.int(2).map(names::process_of);
            // Nearly always the same as in the row before.
            if process != last {
                last = process;
                if let Some(process) = process.filter(|process| !found.contains(process)) {
                    found.push(process);
                }
            }
            if row.int(7) == Some(backtrace) {
                backtraces.push(RawCall::of(row));
            }
        });
        found.sort_unstable();
        for process in found {
            self.process(process);
        }
        backtraces
    }

    fn process(&mut self, process: u64) -> usize {
        if let Some(&index) = self.processes.get(&process) {
            return index;
        }
        let index = self.trace.process(names::pid_of(process)).index();
        self.processes.insert(process, index);
        self.process_ids.push(process);
        index
    }

    /// The process of device work. Where the row doesn't say, it is the first one that made calls.
    fn device_process(&mut self, global_pid: Option<i64>) -> usize {
        match (global_pid, self.process_ids.first()) {
            (Some(id), _) => self.process(names::process_of(id)),
            (None, Some(&first)) => self.process(first),
            (None, None) => self.process(0),
        }
    }

    fn string(&mut self, id: i64) -> StrId {
        if let Some(&known) = self.strings.get(&id) {
            return known;
        }
        let string = match self.database.text_at(STRINGS, "value", id) {
            Some(text) => self.trace.intern(&text),
            None => {
                self.unused.missing_strings += 1;
                StrId::NONE
            }
        };
        self.strings.insert(id, string);
        string
    }

    /// Start and end of a row in columns 0 and 1.
    fn times(&mut self, row: &Row<'_>) -> Option<Times> {
        let Some(start) = row.int(0) else {
            self.unused.incomplete += 1;
            return None;
        };
        let end = row.int(1).unwrap_or_else(|| {
            self.unused.no_end += 1;
            start
        });
        if start < 0 && end < 0 {
            self.unused.negative_time += 1;
            return None;
        }
        let start_ns = u64::try_from(start).unwrap_or(0);
        Some(Times { start_ns, end_ns: u64::try_from(end).unwrap_or(0) })
    }

    /// The device of a record: that of its context where work of it is known, else the one that it names.
    fn device(&self, process: usize, context: Option<i64>, device: Option<u64>) -> u32 {
        let of_context = context.and_then(|context| self.contexts.get(&(process, context)).copied());
        of_context.or_else(|| device.and_then(|device| u32::try_from(device).ok())).unwrap_or(0)
    }

    /// Reads one table of device work. The first columns are the same for all; `more` are the table's own, from number 8 on.
    fn device_table(
        &mut self,
        table: &'static str,
        more: &[&str],
        mut own: impl FnMut(&mut Self, &Row<'_>, &mut DeviceOp) -> u64,
    ) {
        let mut columns = vec![
            "start",
            "end",
            "globalPid",
            "deviceId",
            "streamId",
            "correlationId",
            "graphNodeId",
            "contextId",
        ];
        columns.extend(more);
        self.scan(table, &columns, None, |build, row| {
            let Some(Times { start_ns, end_ns }) = build.times(row) else { return };
            build.device_events += 1;
            build.unused.backwards += u64::from(end_ns < start_ns);
            let process = build.device_process(row.int(2));
            let (context, named) = (row.int(7), row.unsigned(3));
            if matches!(table, MEMCPY | MEMSET | KERNEL)
                && let Some((context, device)) =
                    context.zip(named.and_then(|device| u32::try_from(device).ok()))
            {
                build.contexts.entry((process, context)).or_insert(device);
            }
            let device = build.device(process, context, named);
            let correlation = correlation(row.int(5));
            let mut op = DeviceOp {
                start_ns,
                end_ns: end_ns.max(start_ns),
                correlation,
                device,
                stream: build.stream(process, device, row.int(4)),
                graph_node: row.int(6).map_or(0, i64::cast_unsigned),
                ..DeviceOp::default()
            };
            let object = own(build, row, &mut op);
            build.links.add(process, correlation, op.stream, object);
            build.trace.process_at(process).device_op(op);
        });
    }

    /// All ones, or nothing: on no stream.
    fn stream(&mut self, process: usize, device: u32, number: Option<i64>) -> StreamId {
        match number.and_then(|number| u32::try_from(number).ok()) {
            None | Some(u32::MAX) => StreamId::NONE,
            Some(number) => self.trace.process_at(process).stream(0, Some(number), device),
        }
    }

    fn enumeration(&mut self, table: &'static str) -> Names {
        let mut names = Names::default();
        self.scan(table, &["id", "name"], None, |_, row| {
            if let (Some(id), Some(name)) = (row.int(0), row.text(1)) {
                names.0.insert(id, name.into_owned());
            }
        });
        names
    }

    fn copies(&mut self) {
        let kinds = self.enumeration("ENUM_CUDA_MEMCPY_OPER");
        let memory = self.enumeration("ENUM_CUDA_MEM_KIND");
        self.device_table(MEMCPY, &["bytes", "copyKind", "srcKind", "dstKind"], |_, row, op| {
            op.kind = DeviceOpKind::Copy;
            op.bytes = row.unsigned(8).unwrap_or(0);
            op.direction = row.int(9).map(|kind| kinds.direction(kind)).unwrap_or_default();
            op.from = row.int(10).map(|kind| memory.memory(kind)).unwrap_or_default();
            op.to = row.int(11).map(|kind| memory.memory(kind)).unwrap_or_default();
            0
        });
    }

    fn memsets(&mut self) {
        let memory = self.enumeration("ENUM_CUDA_MEM_KIND");
        self.device_table(MEMSET, &["bytes", "memKind"], |_, row, op| {
            op.kind = DeviceOpKind::Memset;
            op.bytes = row.unsigned(8).unwrap_or(0);
            op.to = row.int(9).map(|kind| memory.memory(kind)).unwrap_or_default();
            0
        });
    }

    fn kernels(&mut self) {
        self.device_table(KERNEL, &["shortName|demangledName|mangledName"], |build, row, op| {
            op.kind = DeviceOpKind::Kernel;
            op.name = row.int(8).map_or(StrId::NONE, |id| build.string(id));
            0
        });
    }

    fn synchronizations(&mut self) {
        let kinds = self.enumeration("ENUM_CUPTI_SYNC_TYPE");
        self.device_table(SYNC, &["syncType|deprecatedSyncType", "eventId"], |_, row, op| {
            let kind = row.int(8).unwrap_or(0);
            op.kind = kinds.sync(kind);
            object(row.int(9))
        });
    }

    /// Records of events say on which stream and of which event a call was.
    fn event_records(&mut self) {
        self.scan(
            EVENT,
            &["globalPid", "deviceId", "streamId", "correlationId", "eventId", "contextId"],
            None,
            |build, row| {
                let process = build.device_process(row.int(0));
                let device = build.device(process, row.int(5), row.unsigned(1));
                let stream = build.stream(process, device, row.int(2));
                build.links.add(process, correlation(row.int(3)), stream, object(row.int(4)));
            },
        );
    }

    /// Whole graphs, as recorded with `--cuda-graph-trace=graph`.
    fn graphs(&mut self) {
        self.device_table(GRAPH, &[], |_, _, op| {
            op.kind = DeviceOpKind::Graph;
            0
        });
    }

    /// Stacks of calls. The source gives names of functions; addresses only tell places in one function apart.
    fn call_chains(&mut self) {
        let mut frames: Vec<(i64, NativeFrame)> = Vec::new();
        let mut current = None;
        let mut modules: HashMap<i64, ModuleId> = HashMap::default();
        self.scan(
            CHAINS,
            &["id", "symbol", "module", "unresolved", "originalIP", "stackDepth"],
            None,
            |build, row| {
                let Some(id) = row.int(0) else {
                    build.unused.incomplete += 1;
                    return;
                };
                if current != Some(id) {
                    build.end_chain(current, &mut frames);
                    current = Some(id);
                }
                if row.int(3).unwrap_or(0) != 0 {
                    build.unused.unresolved_frames += 1;
                    return;
                }
                let name = row.int(1).map_or(StrId::NONE, |symbol| build.string(symbol));
                if name == StrId::NONE {
                    build.unused.unresolved_frames += 1;
                    return;
                }
                let module = row.int(2).map_or(ModuleId::NONE, |module| {
                    *modules.entry(module).or_insert_with(|| {
                        let path = build.string(module);
                        let path = build.trace.strings.get(path).to_owned();
                        build.trace.module(&path, &[])
                    })
                });
                let address = row.int(4).map_or(0, i64::cast_unsigned);
                let depth = row.int(5).unwrap_or(i64::MAX);
                frames.push((depth, NativeFrame { module, address, is_return: true, name }));
            },
        );
        self.end_chain(current, &mut frames);
    }

    /// What to add to a call's reference to have the id of its chain. Exports of 2022 count references from 0 and ids from 1, so
    /// that each call would get the chain of the call before. The function itself is in its chain, which tells.
    fn chain_offset(&mut self) -> i64 {
        if self.chains.is_empty() {
            return 0;
        }
        let mut matches = [0u32; 2];
        let mut bases: HashMap<i64, StrId> = HashMap::default();
        self.scan(RUNTIME, &["nameId", "callchainId"], Some("callchainId IS NOT NULL"), |build, row| {
            let (Some(name), Some(chain)) = (row.int(0), row.int(1)) else { return };
            let base = match bases.get(&name) {
                Some(&base) => base,
                None => {
                    let text = build.string(name);
                    let base = classify(build.trace.strings.get(text)).base;
                    let base = build.trace.intern(&base);
                    bases.insert(name, base);
                    base
                }
            };
            for (offset, count) in (0..).zip(&mut matches) {
                let stack = build.chains.get(&(chain.saturating_add(offset))).copied().unwrap_or_default();
                *count += u32::from(build.trace.native.get(stack).iter().any(|frame| frame.name == base));
            }
        });
        i64::from(matches[1] > matches[0])
    }

    fn end_chain(&mut self, id: Option<i64>, frames: &mut Vec<(i64, NativeFrame)>) {
        frames.sort_by_key(|(depth, _)| *depth);
        let stack: Vec<NativeFrame> = frames.iter().map(|(_, frame)| *frame).collect();
        frames.clear();
        if let Some(id) = id {
            self.chains.insert(id, self.trace.native.intern(&stack));
        }
    }

    /// Calls of the runtime and the driver. A call whose backtrace was taken is there twice with one correlation id: as the
    /// call itself, and around it as an event of the class of backtraces that has the chain. It is one call, with the times
    /// of the call itself.
    fn runtime_calls(&mut self, backtraces: Vec<RawCall>) {
        let mut twins: HashMap<(i64, u32), RawCall> = HashMap::default();
        let mut alone: Vec<RawCall> = Vec::new();
        for backtrace in backtraces {
            match backtrace.tid {
                Some(tid) if backtrace.correlation != 0 => {
                    alone.extend(twins.insert((tid, backtrace.correlation), backtrace));
                }
                _ => alone.push(backtrace),
            }
        }
        let class = self.backtrace_class;
        self.chain_offset = self.chain_offset();
        let mut apis: HashMap<i64, KnownApi> = HashMap::default();
        self.scan(RUNTIME, &CALL_COLUMNS, None, |build, row| {
            if row.int(7) == Some(class) {
                return;
            }
            let mut call = RawCall::of(row);
            if let Some(tid) = call.tid
                && let Some(twin) = twins.get_mut(&(tid, call.correlation))
            {
                twin.used = true;
                call.chain = twin.chain.or(call.chain);
            }
            build.call(&call, &mut apis);
        });
        // The call itself was not recorded (it is of an API that is not traced): the backtrace stands for it.
        let mut unpaired: Vec<RawCall> = twins.into_values().filter(|twin| !twin.used).chain(alone).collect();
        unpaired.sort_by_key(|twin| (twin.tid, twin.start, twin.end));
        for twin in unpaired {
            self.call(&twin, &mut apis);
        }
    }

    fn call(&mut self, call: &RawCall, apis: &mut HashMap<i64, KnownApi>) {
        let (Some(start), Some(tid)) = (call.start, call.tid) else {
            self.unused.incomplete += 1;
            return;
        };
        let end = call.end.unwrap_or_else(|| {
            self.unused.no_end += 1;
            start
        });
        if start < 0 && end < 0 {
            self.unused.negative_time += 1;
            return;
        }
        let name = call.name.unwrap_or(-1);
        let api = match apis.get(&name) {
            Some(&api) => api,
            None => {
                let text = self.string(name);
                let text = self.trace.strings.get(text).to_owned();
                // A call without a name is a call all the same.
                let shown = if text.is_empty() { NAMELESS } else { text.as_str() };
                let query = matches!(classify(&text).class, ApiClass::EventQuery | ApiClass::StreamQuery);
                let api = KnownApi { id: self.trace.api(shown), query, nameless: text.is_empty() };
                apis.insert(name, api);
                api
            }
        };
        let process = self.process(names::process_of(tid));
        let (stream, object) = self.links.of_call(process, call.correlation);
        let failed = call.result != 0;
        let data = CallData {
            correlation: call.correlation,
            stream,
            object,
            native: self.chain_of(call),
            not_ready: u32::from(failed && api.query && is_not_ready(call.result)),
            effect: if failed && !(api.query && is_not_ready(call.result)) {
                CallEffect::Failed
            } else {
                CallEffect::Ok
            },
            ..CallData::default()
        };
        self.calls += 1;
        self.unused.nameless_calls += u64::from(api.nameless);
        let (start_ns, end_ns) = (u64::try_from(start).unwrap_or(0), u64::try_from(end).unwrap_or(0));
        self.trace.thread_at(process, names::tid_of(tid)).call_of(api.id, start_ns, end_ns, data);
    }

    fn chain_of(&self, call: &RawCall) -> StackId {
        let id = call.chain.map(|reference| reference.saturating_add(self.chain_offset));
        id.and_then(|id| self.chains.get(&id).copied()).unwrap_or_default()
    }

    fn nvtx(&mut self) {
        // Domains first: a range may come before the row that names its domain.
        let made = format!("eventType = {}", names::DOMAIN_CREATE);
        let made = self.database.has_column(NVTX, "eventType").then_some(made.as_str());
        self.scan(NVTX, &["globalTid", "domainId", "text", "textId", "eventType"], made, |build, row| {
            if row.int(4) != Some(names::DOMAIN_CREATE) {
                return;
            }
            let (Some(tid), Some(domain)) = (row.int(0), row.int(1)) else { return };
            let process = build.process(names::process_of(tid));
            let name = match row.text(2) {
                Some(text) => build.trace.intern(&text),
                None => row.int(3).map_or(StrId::NONE, |id| build.string(id)),
            };
            if name != StrId::NONE {
                build.texts.domains.insert((process, domain), name);
            }
        });
        let columns = [
            "start",
            "end",
            "eventType",
            "globalTid",
            "domainId",
            "text",
            "textId",
            "int64Value|uint64Value|int32Value|uint32Value",
        ];
        self.scan(NVTX, &columns, None, Self::nvtx_event);
    }

    fn nvtx_event(&mut self, row: &Row<'_>) {
        let kind = row.int(2).map_or(NvtxKind::Unknown, names::nvtx_kind);
        if kind == NvtxKind::Definition {
            return;
        }
        let Some(tid) = row.int(3) else {
            self.unused.incomplete += 1;
            return;
        };
        let process = self.process(names::process_of(tid));
        let (name, span_kind, sequence) = self.range_name(row);
        let thread = names::tid_of(tid);
        match kind {
            NvtxKind::Definition => return,
            NvtxKind::Unknown => {
                self.unused.unknown_nvtx += 1;
                return;
            }
            NvtxKind::Thread => {
                let text = self.trace.strings.get(name).to_owned();
                self.trace.thread_at(process, thread).name(&text);
                if let Some(rank) = names::rank_of_thread(&text) {
                    self.trace.process_at(process).data().rank = Some(rank);
                }
                return;
            }
            NvtxKind::Mark | NvtxKind::PushPop | NvtxKind::StartEnd => {}
        }
        let Some(start) = row.int(0) else {
            self.unused.incomplete += 1;
            return;
        };
        // A range without an end was open when the recording ended.
        let end = row.int(1);
        if start < 0 && end.is_some_and(|end| end < 0) {
            self.unused.negative_time += 1;
            return;
        }
        let start_ns = u64::try_from(start).unwrap_or(0);
        let end_ns = end.map_or(OPEN, |end| u64::try_from(end).unwrap_or(0));
        let domain = self.domain(process, row.int(4).unwrap_or(0));
        let payload = sequence.or_else(|| row.int(7)).filter(|_| kind != NvtxKind::Mark);
        self.ranges += 1;
        match kind {
            NvtxKind::Mark => self.trace.thread_at(process, thread).mark_in(start_ns, domain, name),
            NvtxKind::StartEnd => self.trace.process_at(process).free_range(FreeRange {
                start_ns,
                end_ns: end_ns.max(start_ns),
                payload,
                name,
                domain,
                tid: thread,
            }),
            _ => self.trace.thread_at(process, thread).span(Span {
                start_ns,
                end_ns,
                payload: payload.unwrap_or(0),
                has_payload: payload.is_some(),
                name,
                domain,
                kind: span_kind,
                ..Span::default()
            }),
        }
    }

    /// Name, kind and sequence number of an NVTX event: from its own text, else from the table of strings.
    fn range_name(&mut self, row: &Row<'_>) -> (StrId, SpanKind, Option<i64>) {
        if let Some(text) = row.text(5) {
            let parts = names::range_text(&text);
            return (self.trace.intern(parts.name), parts.kind, parts.sequence);
        }
        let Some(id) = row.int(6) else { return (StrId::NONE, SpanKind::Range, None) };
        if let Some(&known) = self.texts.by_id.get(&id) {
            return known;
        }
        let string = self.string(id);
        let text = self.trace.strings.get(string).to_owned();
        let parts = names::range_text(&text);
        let known = (self.trace.intern(parts.name), parts.kind, parts.sequence);
        self.texts.by_id.insert(id, known);
        known
    }

    /// Ranges of different domains nest on their own, so one without a name gets its number.
    fn domain(&mut self, process: usize, domain: i64) -> StrId {
        if domain == 0 {
            return StrId::NONE;
        }
        let trace = &mut *self.trace;
        *self
            .texts
            .domains
            .entry((process, domain))
            .or_insert_with(|| trace.intern(&format!("domain {domain}")))
    }

    fn overheads(&mut self) {
        let kinds = self.enumeration("ENUM_CUPTI_OVERHEAD_TYPE");
        for table in ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"] {
            let columns = ["start", "end", "globalTid", "overheadType", "correlationId"];
            self.scan(table, &columns, None, |build, row| {
                // Older tables say no type; all in them is work of the profiler itself.
                let kind = row.int(3).map_or(OverheadKind::Other, |kind| kinds.overhead(kind));
                let (Some(Times { start_ns, end_ns }), Some(tid)) = (build.times(row), row.int(2)) else {
                    return;
                };
                // Threads of the profiler in processes that make no calls are nobody's business.
                let Some(&process) = build.processes.get(&names::process_of(tid)) else { return };
                build.unused.backwards += u64::from(end_ns < start_ns);
                build.trace.process_at(process).overhead(Overhead {
                    start_ns,
                    end_ns: end_ns.max(start_ns),
                    tid: names::tid_of(tid),
                    correlation: correlation(row.int(4)),
                    kind,
                });
            });
        }
    }

    /// Names of threads. Of several names the one with the lowest priority number was given by the program itself.
    fn thread_names(&mut self) {
        let mut best: HashMap<i64, (i64, i64)> = HashMap::default();
        self.scan("ThreadNames", &["globalTid", "nameId", "priority"], None, |_, row| {
            let (Some(tid), Some(name)) = (row.int(0), row.int(1)) else { return };
            let priority = row.int(2).unwrap_or(0);
            let entry = best.entry(tid).or_insert((priority, name));
            if priority < entry.0 {
                *entry = (priority, name);
            }
        });
        let mut best: Vec<(i64, i64)> = best.into_iter().map(|(tid, (_, name))| (tid, name)).collect();
        best.sort_unstable();
        for (tid, name) in best {
            let Some(&process) = self.processes.get(&names::process_of(tid)) else { continue };
            let tid = names::tid_of(tid);
            let mut builder = self.trace.process_at(process);
            if !builder.data().threads.iter().any(|thread| thread.tid == tid && thread.name == StrId::NONE) {
                continue;
            }
            let name = self.string(name);
            let name = self.trace.strings.get(name).to_owned();
            self.trace.thread_at(process, tid).name(&name);
        }
    }

    fn process_names(&mut self) {
        self.scan("PROCESSES", &["globalPid", "name"], None, |build, row| {
            let (Some(pid), Some(name)) = (row.int(0), row.text(1)) else { return };
            if let Some(&process) = build.processes.get(&names::process_of(pid)) {
                let name = build.trace.intern(name.rsplit('/').next().unwrap_or(&name));
                build.trace.process_at(process).data().name = name;
            }
        });
    }
}

#[derive(Clone, Copy)]
struct KnownApi {
    id: ApiId,
    query: bool,
    nameless: bool,
}

const CALL_COLUMNS: [&str; 8] =
    ["start", "end", "globalTid", "correlationId", "nameId", "returnValue", "callchainId", "eventClass"];

/// A row of the table of calls: a call, or the backtrace around one.
struct RawCall {
    start: Option<i64>,
    end: Option<i64>,
    tid: Option<i64>,
    correlation: u32,
    name: Option<i64>,
    result: i64,
    chain: Option<i64>,
    used: bool,
}

impl RawCall {
    fn of(row: &Row<'_>) -> Self {
        Self {
            start: row.int(0),
            end: row.int(1),
            tid: row.int(2),
            correlation: correlation(row.int(3)),
            name: row.int(4),
            result: row.int(5).unwrap_or(0),
            chain: row.int(6),
            used: false,
        }
    }
}

fn correlation(id: Option<i64>) -> u32 {
    id.and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

/// The id of an event; all ones stand for none.
fn object(id: Option<i64>) -> u64 {
    id.map(i64::cast_unsigned).filter(|&id| id != u64::from(u32::MAX)).unwrap_or(0)
}

/// `cudaErrorNotReady` and `CUDA_ERROR_NOT_READY`, before CUDA 10.1 34 for the runtime.
fn is_not_ready(result: i64) -> bool {
    matches!(result, 600 | 34)
}
