//! How importers and tests make a [`Trace`].
//!
//! In: spans, calls and device work of a source, in any order (or pushed and popped in program order). Out: a finished
//! trace in which everything is sorted, spans know their parents, calls their innermost span, and nested calls are
//! folded into the call that encloses them. It must never drop anything without a [`Problem`] that counts it.
//!
//! ```
//! use syncaudit::model::{CallData, TraceBuilder};
//!
//! let mut trace = TraceBuilder::default();
//! let mut process = trace.process(42);
//! let mut thread = process.thread(42);
//! thread.push(1_000, "step", Some(0));
//! thread.call("cuStreamSynchronize", 1_100, 1_900, CallData::default());
//! thread.pop(2_000);
//! let trace = trace.finish();
//! assert_eq!(trace.processes[0].threads[0].calls.len(), 1);
//! ```

use rustc_hash::FxHashMap as HashMap;

use super::{
    Api, ApiId, Call, CallEffect, CopyDirection, DeviceOp, FrameNames, FreeRange, Mark, MemoryKind, Module,
    ModuleId, NativeFrame, OPEN, Overhead, Problem, ProblemKind, Process, PythonFrame, Source, Span, SpanId,
    SpanKind, StackId, StackTable, StrId, Stream, StreamId, Strings, Thread, Trace, classify,
};

/// Builds a [`Trace`].
#[derive(Debug, Default)]
pub struct TraceBuilder {
    pub source: Source,
    pub strings: Strings,
    pub native: StackTable<NativeFrame>,
    pub names: FrameNames,
    pub python: StackTable<PythonFrame>,
    pub problems: Vec<Problem>,
    apis: Vec<Api>,
    api_ids: HashMap<StrId, ApiId>,
    modules: Vec<Module>,
    module_ids: HashMap<Module, ModuleId>,
    processes: Vec<ProcessState>,
}

#[derive(Debug, Default)]
struct ProcessState {
    process: Process,
    threads: HashMap<u64, usize>,
    streams: HashMap<(u64, Option<u32>, u32), StreamId>,
    /// Open spans per thread, as the program pushed them: per domain, innermost last.
    open: HashMap<(usize, StrId), Vec<usize>>,
}

/// What is known of a call besides its name and times.
#[derive(Clone, Debug)]
pub struct CallData {
    pub bytes: u64,
    /// Event or other object the call is about, 0 for none.
    pub object: u64,
    pub correlation: u32,
    pub stream: StreamId,
    /// See [`Call::count`].
    pub count: u32,
    pub not_ready: u32,
    pub native: StackId,
    pub python: StackId,
    pub effect: CallEffect,
    /// Left unknown, the direction in the function's name is taken.
    pub direction: CopyDirection,
    pub from: MemoryKind,
    pub to: MemoryKind,
}

impl Default for CallData {
    fn default() -> Self {
        Self {
            bytes: 0,
            object: 0,
            correlation: 0,
            stream: StreamId::NONE,
            count: 1,
            not_ready: 0,
            native: StackId::NONE,
            python: StackId::NONE,
            effect: CallEffect::Ok,
            direction: CopyDirection::Unknown,
            from: MemoryKind::Unknown,
            to: MemoryKind::Unknown,
        }
    }
}

impl TraceBuilder {
    /// Interns a text.
    pub fn intern(&mut self, text: &str) -> StrId {
        self.strings.intern(text)
    }

    /// Notes a problem.
    pub fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The API function of that name.
    pub fn api(&mut self, name: &str) -> ApiId {
        let key = self.strings.intern(name);
        if let Some(&id) = self.api_ids.get(&key) {
            return id;
        }
        let api = classify(name);
        let known = self.apis.iter().position(|other| *other == api);
        let index = known.unwrap_or_else(|| {
            self.apis.push(api);
            self.apis.len() - 1
        });
        let id = u32::try_from(index).map_or(ApiId::NONE, ApiId);
        self.api_ids.insert(key, id);
        id
    }

    /// The name of an API function that was looked up before.
    #[must_use]
    pub fn api_name(&self, id: ApiId) -> &str {
        id.get().and_then(|index| self.apis.get(index)).map_or("", |api| &api.name)
    }

    /// The module with that path and build id.
    pub fn module(&mut self, path: &str, build_id: &[u8]) -> ModuleId {
        let module = Module { path: self.strings.intern(path), build_id: build_id.to_vec() };
        if let Some(&id) = self.module_ids.get(&module) {
            return id;
        }
        let id = u32::try_from(self.modules.len()).map_or(ModuleId::NONE, ModuleId);
        self.modules.push(module.clone());
        self.module_ids.insert(module, id);
        id
    }

    /// Adds a process image. Each call makes a new one, also for a pid that was there before (exec, reuse).
    pub fn process(&mut self, pid: u64) -> ProcessBuilder<'_> {
        self.processes
            .push(ProcessState { process: Process { pid, ..Process::default() }, ..ProcessState::default() });
        let index = self.processes.len() - 1;
        ProcessBuilder { trace: self, index }
    }

    /// Goes on with the process that was added as the `index`-th one.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn process_at(&mut self, index: usize) -> ProcessBuilder<'_> {
        assert!(index < self.processes.len(), "process {index} of {}", self.processes.len());
        ProcessBuilder { trace: self, index }
    }

    /// The thread with that id of the `index`-th process, added if new.
    ///
    /// # Panics
    /// If there are not that many processes.
    pub fn thread_at(&mut self, index: usize, tid: u64) -> ThreadBuilder<'_> {
        let state = &mut self.processes[index];
        let next = state.process.threads.len();
        let thread = *state.threads.entry(tid).or_insert(next);
        if thread == next {
            state.process.threads.push(Thread { tid, ..Thread::default() });
        }
        ThreadBuilder { trace: self, process: index, thread }
    }

    /// Number of processes added so far.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// Sorts, nests, folds and links everything.
    #[must_use]
    pub fn finish(mut self) -> Trace {
        let mut processes = Vec::with_capacity(self.processes.len());
        let mut backwards = 0;
        for state in std::mem::take(&mut self.processes) {
            let mut process = state.process;
            for thread in &mut process.threads {
                backwards += repair_times(thread);
                nest(thread);
            }
            process.threads.sort_by_key(|thread| thread.tid);
            process.device_ops.sort_by_key(|op| (op.start_ns, op.end_ns));
            process.free_ranges.sort_by_key(|range| (range.start_ns, range.end_ns));
            process.overheads.sort_by_key(|overhead| (overhead.start_ns, overhead.end_ns));
            link_device_work(&mut process);
            processes.push(process);
        }
        if backwards > 0 {
            self.problems.push(Problem::counted(
                ProblemKind::NoDuration,
                backwards,
                format!(
                    "{backwards} {} with an end before the beginning, shown without a duration",
                    if backwards == 1 { "event" } else { "events" }
                ),
            ));
        }
        Trace {
            source: self.source,
            strings: self.strings,
            apis: self.apis,
            modules: self.modules,
            native: self.native.finish(),
            names: self.names,
            python: self.python.finish(),
            processes,
            problems: self.problems,
        }
    }
}

/// Adds to one process of a [`TraceBuilder`].
#[derive(Debug)]
pub struct ProcessBuilder<'a> {
    trace: &'a mut TraceBuilder,
    index: usize,
}

impl ProcessBuilder<'_> {
    /// The builder of the whole trace, to intern texts and stacks.
    pub fn trace(&mut self) -> &mut TraceBuilder {
        self.trace
    }

    /// Position of this process in the trace.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    fn state(&mut self) -> &mut ProcessState {
        &mut self.trace.processes[self.index]
    }

    /// The process itself: name, rank and so on may be set freely.
    pub fn data(&mut self) -> &mut Process {
        &mut self.state().process
    }

    /// The thread with that id, added if new.
    pub fn thread(&mut self, tid: u64) -> ThreadBuilder<'_> {
        self.trace.thread_at(self.index, tid)
    }

    /// The stream with that handle, number and device, added if new.
    pub fn stream(&mut self, handle: u64, number: Option<u32>, device: u32) -> StreamId {
        let state = self.state();
        let next = u32::try_from(state.process.streams.len()).map_or(StreamId::NONE, StreamId);
        let id = *state.streams.entry((handle, number, device)).or_insert(next);
        if id == next && next != StreamId::NONE {
            state.process.streams.push(Stream { handle, number, device, name: StrId::NONE });
        }
        id
    }

    /// Adds work of a device.
    pub fn device_op(&mut self, op: DeviceOp) {
        self.data().device_ops.push(op);
    }

    /// Adds host time that the driver reported as its own.
    pub fn overhead(&mut self, overhead: Overhead) {
        self.data().overheads.push(overhead);
    }

    /// Adds a range that was started and ended by handle.
    pub fn free_range(&mut self, range: FreeRange) {
        self.data().free_ranges.push(range);
    }
}

/// Adds to one thread of a [`TraceBuilder`].
#[derive(Debug)]
pub struct ThreadBuilder<'a> {
    trace: &'a mut TraceBuilder,
    process: usize,
    thread: usize,
}

impl ThreadBuilder<'_> {
    /// The builder of the whole trace, to intern texts and stacks.
    pub fn trace(&mut self) -> &mut TraceBuilder {
        self.trace
    }

    fn data(&mut self) -> &mut Thread {
        &mut self.trace.processes[self.process].process.threads[self.thread]
    }

    /// Names the thread.
    pub fn name(&mut self, name: &str) {
        let name = self.trace.intern(name);
        self.data().name = name;
    }

    /// Names the thread by an interned name.
    pub fn name_id(&mut self, name: StrId) {
        self.data().name = name;
    }

    /// Adds a span whose start and end are known.
    pub fn span(&mut self, span: Span) {
        self.data().spans.push(span);
    }

    /// Adds a complete span of that kind in the default domain.
    pub fn named_span(&mut self, kind: SpanKind, name: &str, start_ns: u64, end_ns: u64) {
        let name = self.trace.intern(name);
        self.span(Span { start_ns, end_ns, name, kind, ..Span::default() });
    }

    /// Opens a range in the default domain.
    pub fn push(&mut self, time_ns: u64, name: &str, payload: Option<i64>) {
        let name = self.trace.intern(name);
        self.push_in(time_ns, StrId::NONE, name, payload);
    }

    /// Opens a range in a domain.
    pub fn push_in(&mut self, time_ns: u64, domain: StrId, name: StrId, payload: Option<i64>) {
        let index = self.data().spans.len();
        self.span(Span {
            start_ns: time_ns,
            end_ns: OPEN,
            payload: payload.unwrap_or(0),
            has_payload: payload.is_some(),
            name,
            domain,
            ..Span::default()
        });
        self.trace.processes[self.process].open.entry((self.thread, domain)).or_default().push(index);
    }

    /// Closes the innermost open range of the default domain; false if none was open (a pop without a push).
    pub fn pop(&mut self, time_ns: u64) -> bool {
        self.pop_in(time_ns, StrId::NONE)
    }

    /// Closes the innermost open range of a domain; false if none was open.
    pub fn pop_in(&mut self, time_ns: u64, domain: StrId) -> bool {
        let open = self.trace.processes[self.process].open.get_mut(&(self.thread, domain)).and_then(Vec::pop);
        match open {
            Some(index) => {
                self.data().spans[index].end_ns = time_ns;
                true
            }
            None => false,
        }
    }

    /// Adds a mark in the default domain.
    pub fn mark(&mut self, time_ns: u64, name: &str) {
        let name = self.trace.intern(name);
        self.mark_in(time_ns, StrId::NONE, name);
    }

    /// Adds a mark in a domain.
    pub fn mark_in(&mut self, time_ns: u64, domain: StrId, name: StrId) {
        self.data().marks.push(Mark { time_ns, name, domain });
    }

    /// Adds a call. `end_ns` is [`OPEN`] for one that never returned.
    pub fn call(&mut self, api: &str, start_ns: u64, end_ns: u64, data: CallData) {
        let api = self.trace.api(api);
        self.call_of(api, start_ns, end_ns, data);
    }

    /// Adds a call of an API function that was looked up before.
    pub fn call_of(&mut self, api: ApiId, start_ns: u64, end_ns: u64, data: CallData) {
        let named = api.get().and_then(|index| self.trace.apis.get(index)).map(|api| api.direction);
        let direction = match data.direction {
            CopyDirection::Unknown => named.unwrap_or_default(),
            known => known,
        };
        let effect = if end_ns == OPEN { CallEffect::Unfinished } else { data.effect };
        self.data().calls.push(Call {
            start_ns,
            end_ns,
            bytes: data.bytes,
            object: data.object,
            api,
            inner: ApiId::NONE,
            correlation: data.correlation,
            stream: data.stream,
            count: data.count,
            not_ready: data.not_ready,
            span: SpanId::NONE,
            native: data.native,
            python: data.python,
            effect,
            direction,
            from: data.from,
            to: data.to,
        });
    }
}

/// Gives events that end before they start no duration; answers how many there were.
fn repair_times(thread: &mut Thread) -> u64 {
    let mut repaired = 0;
    let times = thread
        .spans
        .iter_mut()
        .map(|span| (span.start_ns, &mut span.end_ns))
        .chain(thread.calls.iter_mut().map(|call| (call.start_ns, &mut call.end_ns)));
    for (start_ns, end_ns) in times {
        if *end_ns < start_ns {
            *end_ns = start_ns;
            repaired += 1;
        }
    }
    repaired
}

/// Sorts a thread, finds the parent of each span and the innermost span of each call, folds nested calls.
fn nest(thread: &mut Thread) {
    // The sort is stable: of two spans with the same times, the one added first is the outer one.
    thread.spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
    thread.marks.sort_by_key(|mark| mark.time_ns);
    thread.calls.sort_by_key(|call| (call.start_ns, std::cmp::Reverse(call.end_ns)));
    fold_nested_calls(&mut thread.calls);

    let mut open: Vec<usize> = Vec::new();
    let mut calls = thread.calls.iter_mut().peekable();
    for index in 0..=thread.spans.len() {
        let now_ns = thread.spans.get(index).map_or(OPEN, |span| span.start_ns);
        // Calls that start before this span does belong to what is open until then. A call that starts with a span
        // is inside of it.
        while let Some(call) = calls.peek() {
            if index < thread.spans.len() && call.start_ns >= now_ns {
                break;
            }
            let Some(call) = calls.next() else { break };
            close_until(&mut open, &thread.spans, call.start_ns);
            call.span = innermost(&open);
        }
        if index < thread.spans.len() {
            close_until(&mut open, &thread.spans, now_ns);
            thread.spans[index].parent = innermost(&open);
            open.push(index);
        }
    }
}

fn innermost(open: &[usize]) -> SpanId {
    open.last().and_then(|&index| u32::try_from(index).ok()).map_or(SpanId::NONE, SpanId)
}

/// Forgets the spans that ended before `now_ns`. Spans of several domains may overlap without nesting, but closing
/// from the innermost outwards is enough: [`Thread::spans_around`] leaves out an outer span that ended early.
fn close_until(open: &mut Vec<usize>, spans: &[Span], now_ns: u64) {
    while let Some(&index) = open.last() {
        // A span of no length still holds what starts with it, one that has a length ends before its end time.
        let span = &spans[index];
        let ended = if span.start_ns == span.end_ns { span.end_ns < now_ns } else { span.end_ns <= now_ns };
        if !ended {
            break;
        }
        open.pop();
    }
}

/// Folds calls nested in another call of the same thread (the driver's half of a runtime call) into it.
fn fold_nested_calls(calls: &mut Vec<Call>) {
    let mut kept = 0;
    for index in 0..calls.len() {
        if kept > 0 {
            let outer = &calls[kept - 1];
            let inner = &calls[index];
            // A call that never returned only encloses others that didn't either: a finished call after it shows
            // that its own end was lost.
            let inside = inner.start_ns < outer.end_ns
                && inner.end_ns <= outer.end_ns
                && (outer.end_ns == OPEN) == (inner.end_ns == OPEN);
            if inside {
                let inner = inner.clone();
                absorb(&mut calls[kept - 1], &inner);
                continue;
            }
        }
        calls.swap(kept, index);
        kept += 1;
    }
    calls.truncate(kept);
}

/// Takes from a nested call what the enclosing one doesn't know itself.
fn absorb(outer: &mut Call, inner: &Call) {
    if outer.inner == ApiId::NONE {
        outer.inner = inner.api;
    }
    if outer.bytes == 0 {
        outer.bytes = inner.bytes;
    }
    if outer.correlation == 0 {
        outer.correlation = inner.correlation;
    }
    if outer.stream == StreamId::NONE {
        outer.stream = inner.stream;
    }
    if outer.native == StackId::NONE {
        outer.native = inner.native;
    }
    if outer.python == StackId::NONE {
        outer.python = inner.python;
    }
    if outer.direction == CopyDirection::Unknown {
        outer.direction = inner.direction;
    }
}

/// Gives calls what the device's record of their work shows: the stream, and for copies direction, bytes and memory
/// kinds. Profilers record calls without their arguments.
fn link_device_work(process: &mut Process) {
    use super::DeviceOpKind::{Copy, StreamWait};
    let mut works: HashMap<u32, usize> = HashMap::default();
    for (index, op) in process.device_ops.iter().enumerate() {
        if op.correlation == 0 || op.graph_node != 0 || op.kind == StreamWait {
            continue;
        }
        // A batched copy has several records; the first stands for its direction. A copy says more than anything else.
        let known = works.entry(op.correlation).or_insert(index);
        if op.kind == Copy && process.device_ops[*known].kind != Copy {
            *known = index;
        }
    }
    if works.is_empty() {
        return;
    }
    for call in process.threads.iter_mut().flat_map(|thread| &mut thread.calls) {
        let Some(op) = works.get(&call.correlation).map(|&index| &process.device_ops[index]) else {
            continue;
        };
        if call.stream == StreamId::NONE {
            call.stream = op.stream;
        }
        if op.kind != Copy {
            continue;
        }
        if call.direction == CopyDirection::Unknown {
            call.direction = op.direction;
        }
        if call.bytes == 0 {
            call.bytes = op.bytes;
        }
        if call.from == MemoryKind::Unknown {
            call.from = op.from;
        }
        if call.to == MemoryKind::Unknown {
            call.to = op.to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'a>(trace: &'a Trace, thread: &'a Thread, call: &'a Call) -> Vec<&'a str> {
        thread.spans_around(call).map(|span| trace.str(span.name)).collect()
    }

    #[test]
    fn spans_and_calls_nest_by_time_whatever_the_order_they_came_in() {
        let mut builder = TraceBuilder::default();
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        thread.call("cuStreamSynchronize", 120, 130, CallData::default());
        thread.named_span(SpanKind::Op, "aten::item", 110, 140);
        thread.named_span(SpanKind::Range, "step", 100, 200);
        thread.call("cuStreamSynchronize", 150, 160, CallData::default());
        thread.call("cuStreamSynchronize", 300, 310, CallData::default());
        let trace = builder.finish();
        let thread = &trace.processes[0].threads[0];
        assert_eq!(names(&trace, thread, &thread.calls[0]), ["aten::item", "step"]);
        assert_eq!(names(&trace, thread, &thread.calls[1]), ["step"]);
        assert_eq!(names(&trace, thread, &thread.calls[2]), [""; 0]);
    }

    #[test]
    fn ranges_of_two_domains_may_overlap_without_nesting() {
        let mut builder = TraceBuilder::default();
        let (a, b) = (builder.intern("A"), builder.intern("B"));
        let (outer, inner) = (builder.intern("outer"), builder.intern("inner"));
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        thread.push_in(10, a, outer, None);
        thread.push_in(20, b, inner, None);
        assert!(thread.pop_in(30, a));
        thread.call("cuStreamSynchronize", 40, 50, CallData::default());
        assert!(thread.pop_in(60, b));
        assert!(!thread.pop_in(70, b), "nothing is open any more");
        let trace = builder.finish();
        let thread = &trace.processes[0].threads[0];
        assert_eq!(names(&trace, thread, &thread.calls[0]), ["inner"]);
    }

    #[test]
    fn a_driver_call_inside_a_runtime_call_is_part_of_it() {
        let mut builder = TraceBuilder::default();
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        thread.call("cuMemcpyDtoHAsync_v2", 12, 18, CallData { bytes: 4, ..CallData::default() });
        thread.call("cudaMemcpyAsync", 10, 20, CallData::default());
        thread.call("cudaStreamSynchronize", 20, 30, CallData::default());
        let trace = builder.finish();
        let calls = &trace.processes[0].threads[0].calls;
        assert_eq!(calls.len(), 2);
        assert_eq!(trace.api(calls[0].api).name, "cudaMemcpyAsync");
        assert_eq!(trace.api(calls[0].inner).name, "cuMemcpyDtoHAsync_v2");
        assert_eq!((calls[0].bytes, calls[0].direction), (4, CopyDirection::DeviceToHost));
    }

    #[test]
    fn an_event_that_ends_before_it_starts_is_kept_and_counted() {
        let mut builder = TraceBuilder::default();
        builder.process(1).thread(1).call("cuStreamSynchronize", 50, 40, CallData::default());
        let trace = builder.finish();
        assert_eq!(trace.processes[0].threads[0].calls[0].host_ns(), Some(0));
        assert_eq!((trace.problems[0].kind, trace.problems[0].count), (ProblemKind::NoDuration, 1));
    }
}
