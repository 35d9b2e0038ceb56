//! What is recorded of each CUDA call, and when a stack is taken: one table ([`policy`]), and the state of a thread that
//! is inside of calls.
//!
//! In: ENTER and EXIT of the calls that CUPTI reports, nested as they come. Out: one `Call` record per call that the
//! program made; the driver calls inside of it are counted in it. Polling loops become `QueryRun` records. Must never
//! decide what a wait is: that is the audit's.

#![allow(unsafe_code)]

use cupti_sys::{Call as Function, CallArguments, CallbackData, Class, Direction, copy_kind, domain, site};
use syncaudit_eventlog::{Api, ApiDomain, Call, CallEnter, PyStackId, QueryRun, Record, StackId, ThreadLog};

use crate::clock;
use crate::thread::ThreadState;

/// When a call gets a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    /// Before the call, so that also a call that never returns has one.
    Always,
    /// As `Always` when host memory is or may be involved; else as `IfSlow`. The stack of a copy is needed even when the
    /// synchronise after it does the waiting: the two are one operation if they come from one place.
    HostCopy,
    /// After the call, if it held the host for [`SLOW_NS`]. The stack is the same then, and most calls are not slow.
    IfSlow,
    /// Queries: after the first "not ready" of a run.
    NotReady,
}

/// What is done with the calls of a class.
fn policy(class: Class) -> Stack {
    match class {
        Class::StreamSync | Class::EventSync | Class::DeviceSync => Stack::Always,
        Class::Copy | Class::Memset => Stack::Always,
        Class::CopyAsync => Stack::HostCopy,
        Class::HostAlloc | Class::HostFree | Class::DeviceAlloc | Class::DeviceFree => Stack::Always,
        Class::ModuleLoad | Class::ModuleUnload | Class::ContextDestroy => Stack::Always,
        // Made all the time and seldom slow; when they are (a full launch queue), it matters where.
        Class::StreamAlloc | Class::StreamFree | Class::ModuleLookup => Stack::IfSlow,
        Class::EventRecord | Class::GraphLaunch | Class::HostFunc => Stack::IfSlow,
        Class::Launch | Class::MemsetAsync | Class::StreamWaitEvent => Stack::IfSlow,
        Class::StreamQuery | Class::EventQuery => Stack::NotReady,
    }
}

/// Far above the cost of any call that does not wait (1-20 us), far below what a step would notice.
const SLOW_NS: u64 = 50_000;

/// `CUDA_ERROR_NOT_READY` and `cudaErrorNotReady`.
const NOT_READY: u32 = 600;

/// The call that a thread is in.
pub struct ApiState {
    /// Calls entered and not left, nested ones included.
    depth: u32,
    outer: Option<Outer>,
    /// The nested call that was entered last.
    nested: Option<&'static Function>,
    nested_enter_ns: u64,
}

#[derive(Clone, Copy)]
struct Outer {
    function: &'static Function,
    /// Where on the stack the callback ran.
    stack_address: usize,
    enter_ns: u64,
    arguments: CallArguments,
    stack: StackId,
    py_stack: PyStackId,
    nested_calls: u8,
    nested_cbid: u16,
    nested_longest_ns: u64,
}

/// More than the frames between an API function and the callbacks that it makes.
const DISPATCH_BYTES: usize = 16 * 1024;

impl Outer {
    /// Whether this call ended without telling (`longjmp`, a context that took CUPTI's hooks down with it): then the call
    /// that begins now is not nested in it. Without this, one lost EXIT would hide all later calls of the thread.
    fn was_left(&self, next: &Function, stack_address: usize) -> bool {
        // The driver never calls the runtime.
        let inside_out = self.function.domain == domain::DRIVER_API && next.domain == domain::RUNTIME_API;
        // Nested calls are made further down the stack than the function that makes them.
        let slack = if self.function.class == Class::ContextDestroy { 0 } else { DISPATCH_BYTES };
        inside_out || stack_address >= self.stack_address.saturating_add(slack)
    }
}

impl ApiState {
    pub const fn new() -> Self {
        Self { depth: 0, outer: None, nested: None, nested_enter_ns: 0 }
    }

    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Whether an EXIT of this function ends the outermost call. Also when the EXIT of a call nested in it got lost.
    fn leaves_outer(&self, function: &'static Function) -> bool {
        let is = |other: Option<&'static Function>| other.is_some_and(|other| std::ptr::eq(other, function));
        self.depth > 0
            && is(self.outer.as_ref().map(|outer| outer.function))
            && (self.depth == 1 || !is(self.nested))
    }
}

/// A run of queries of one object.
pub struct QueryState {
    current: Option<QueryRun>,
    /// Whether `current` as it stands is in the log.
    written: bool,
    runs: u32,
}

impl QueryState {
    pub const fn new() -> Self {
        Self { current: None, written: false, runs: 0 }
    }

    pub fn reset(&mut self) {
        *self = Self::new();
    }
}

/// A call of the driver or runtime API begins or ends on this thread. True when the program just came out of a call that
/// may have waited: a good moment for housekeeping.
///
/// # Safety
/// `data` is what CUPTI passed to the callback that is running.
pub unsafe fn callback(thread: &mut ThreadState, function: &'static Function, data: &CallbackData) -> bool {
    let stack_address = std::ptr::from_ref(&data).addr();
    match data.callback_site {
        site::ENTER => {
            let left = thread.api.outer.is_some_and(|outer| outer.was_left(function, stack_address));
            if thread.api.depth == 0 || left {
                thread.api.depth = 1;
                // SAFETY: the caller's promise covers the argument block.
                unsafe { enter(thread, function, data, stack_address) };
            } else {
                thread.api.depth += 1;
                // SAFETY: as above.
                unsafe { enter_nested(thread, function, data) };
            }
            false
        }
        site::EXIT if thread.api.leaves_outer(function) => {
            thread.api.depth = 0;
            // SAFETY: as above.
            unsafe { exit(thread, function, data) }
        }
        site::EXIT if thread.api.depth > 1 => {
            thread.api.depth -= 1;
            exit_nested(thread, function);
            false
        }
        // Subscribed while the call was under way.
        _ => false,
    }
}

unsafe fn enter(
    thread: &mut ThreadState,
    function: &'static Function,
    data: &CallbackData,
    stack_address: usize,
) {
    // SAFETY: the argument block belongs to this function, which CUPTI named by its id.
    let arguments = unsafe { function.params.read(data.function_params) };
    let stack_now = match policy(function.class) {
        Stack::Always => true,
        Stack::HostCopy => may_touch_host(arguments.direction),
        Stack::IfSlow | Stack::NotReady => false,
    };
    let (stack, py_stack) = if stack_now {
        (thread.native_stack(), thread.python_stack())
    } else {
        (StackId::NONE, PyStackId::NONE)
    };
    // Last, so that the time of the stack is not taken for the call's.
    let enter_ns = clock::monotonic_ns();
    if stack_now && let Some(log) = thread.log() {
        let api = name(log, function);
        log.write(&Record::CallEnter(CallEnter {
            enter_ns,
            api,
            correlation: data.correlation_id,
            stack,
            py_stack,
        }));
    }
    thread.api.nested = None;
    thread.api.outer = Some(Outer {
        function,
        stack_address,
        enter_ns,
        arguments,
        stack,
        py_stack,
        nested_calls: 0,
        nested_cbid: 0,
        nested_longest_ns: 0,
    });
}

unsafe fn enter_nested(thread: &mut ThreadState, function: &'static Function, data: &CallbackData) {
    if let Some(outer) = &mut thread.api.outer {
        // The driver call often knows what the runtime call left open (a copy of kind "default").
        // SAFETY: as in `enter`.
        let inner = unsafe { function.params.read(data.function_params) };
        let known = &mut outer.arguments;
        known.direction = known.direction.or(inner.direction);
        known.bytes = known.bytes.or(inner.bytes);
        known.stream = known.stream.or(inner.stream);
    }
    thread.api.nested = Some(function);
    thread.api.nested_enter_ns = clock::monotonic_ns();
}

fn exit_nested(thread: &mut ThreadState, function: &'static Function) {
    let elapsed_ns = clock::monotonic_ns().saturating_sub(thread.api.nested_enter_ns);
    if let Some(outer) = &mut thread.api.outer {
        outer.nested_calls = outer.nested_calls.saturating_add(1);
        if function.domain == domain::DRIVER_API && elapsed_ns >= outer.nested_longest_ns {
            outer.nested_longest_ns = elapsed_ns;
            outer.nested_cbid = function.cbid as u16;
        }
    }
}

unsafe fn exit(thread: &mut ThreadState, function: &'static Function, data: &CallbackData) -> bool {
    let exit_ns = clock::monotonic_ns();
    let Some(mut outer) = thread.api.outer.take() else { return false };
    let result = if data.function_return_value.is_null() {
        0
    } else {
        // SAFETY: at EXIT it points to the call's result, 4 bytes in both APIs.
        unsafe { *data.function_return_value }
    };
    let how = policy(function.class);
    if how == Stack::NotReady && matches!(result, 0 | NOT_READY) {
        thread.query(&outer, exit_ns, result == NOT_READY);
        return false;
    }
    thread.end_query_run();
    if outer.stack.is_none() && exit_ns.saturating_sub(outer.enter_ns) >= SLOW_NS {
        outer.stack = thread.native_stack();
        outer.py_stack = thread.python_stack();
    }
    let Some(log) = thread.log() else { return false };
    let api = name(log, function);
    if outer.nested_cbid != 0
        && let Some(inner) = cupti_sys::cbid::find(domain::DRIVER_API, u32::from(outer.nested_cbid))
    {
        name(log, inner);
    }
    log.write(&Record::Call(Call {
        enter_ns: outer.enter_ns,
        exit_ns,
        api,
        correlation: data.correlation_id,
        result: u16::try_from(result).unwrap_or(u16::MAX),
        copy_kind: outer.arguments.direction.map_or(0, copy_kind_of),
        stream: outer.arguments.stream.unwrap_or(0),
        bytes: outer.arguments.bytes.unwrap_or(0),
        object: outer.arguments.object.unwrap_or(0),
        stack: outer.stack,
        py_stack: outer.py_stack,
        nested_calls: outer.nested_calls,
        nested_cbid: outer.nested_cbid,
    }));
    how == Stack::Always
}

impl ThreadState {
    /// Adds a query to the run that is under way or begins another one.
    fn query(&mut self, outer: &Outer, exit_ns: u64, not_ready: bool) {
        let object = outer.arguments.object.or(outer.arguments.stream).unwrap_or(0);
        let api = api(outer.function);
        let goes_on = self.queries.current.as_ref().is_some_and(|run| run.api == api && run.object == object);
        if !goes_on {
            self.end_query_run();
            self.queries.runs = self.queries.runs.wrapping_add(1);
            self.queries.current = Some(QueryRun {
                first_enter_ns: outer.enter_ns,
                last_exit_ns: exit_ns,
                api,
                object,
                run: self.queries.runs,
                count: 0,
                not_ready: 0,
                stack: StackId::NONE,
                py_stack: PyStackId::NONE,
            });
        }
        let first_miss = not_ready && self.queries.current.as_ref().is_some_and(|run| run.not_ready == 0);
        let stack = if first_miss { Some((self.native_stack(), self.python_stack())) } else { None };
        let Some(run) = &mut self.queries.current else { return };
        if let Some((stack, py_stack)) = stack {
            (run.stack, run.py_stack) = (stack, py_stack);
        }
        run.last_exit_ns = exit_ns;
        run.count = run.count.saturating_add(1);
        run.not_ready = run.not_ready.saturating_add(u32::from(not_ready));
        self.queries.written = false;
        if !not_ready {
            self.end_query_run();
        } else if run.count.is_power_of_two() {
            // So that a loop cut off by a kill is in the log, at a cost that shrinks as it grows.
            self.write_query_run();
        }
    }

    /// The thread does something else: a run that was under way is complete.
    #[inline]
    pub fn end_query_run(&mut self) {
        if self.queries.current.is_some() {
            self.write_query_run();
            self.queries.current = None;
        }
    }

    fn write_query_run(&mut self) {
        let (Some(run), false) = (self.queries.current, self.queries.written) else { return };
        if let Some(log) = self.log() {
            if let Some(function) = cupti_sys::cbid::find(domain_of(run.api.domain), u32::from(run.api.cbid))
            {
                name(log, function);
            }
            log.write(&Record::QueryRun(run));
            self.queries.written = true;
        }
    }
}

/// Direction unknown: the addresses decide, and one of them may be the host's.
fn may_touch_host(direction: Option<Direction>) -> bool {
    !matches!(direction, Some(Direction::DeviceToDevice | Direction::PeerToPeer))
}

fn copy_kind_of(direction: Direction) -> u8 {
    match direction {
        Direction::HostToDevice => copy_kind::HOST_TO_DEVICE,
        Direction::DeviceToHost => copy_kind::DEVICE_TO_HOST,
        Direction::DeviceToDevice => copy_kind::DEVICE_TO_DEVICE,
        Direction::HostToHost => copy_kind::HOST_TO_HOST,
        Direction::PeerToPeer => copy_kind::PEER_TO_PEER,
    }
}

fn api(function: &Function) -> Api {
    let domain = match function.domain {
        domain::RUNTIME_API => ApiDomain::Runtime,
        _ => ApiDomain::Driver,
    };
    Api { domain, cbid: function.cbid as u16 }
}

fn domain_of(api: ApiDomain) -> u32 {
    match api {
        ApiDomain::Runtime => domain::RUNTIME_API,
        ApiDomain::Driver => domain::DRIVER_API,
    }
}

/// The function's number, named in the log on its first use.
#[inline]
fn name(log: &mut ThreadLog<'static>, function: &'static Function) -> Api {
    let api = api(function);
    log.api_name(api, || function.name.as_bytes());
    api
}
