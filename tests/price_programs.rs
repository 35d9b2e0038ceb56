//! Predictions against what happens: random programs run on the emulated device under its time model, their trace is priced, and then they are really run
//! without a random set of their waits.
//!
//! The clock is the emulated device's virtual one: streams, events, the default stream and blocking copies are the device's own doing, and the times are
//! the same in each run on each machine. One test, because the device is the process'.

#![allow(unsafe_code)] // CUDA and CUPTI are C interfaces

use std::ffi::{CString, c_char, c_void};
use std::sync::Mutex;

use cupti_sys::records::{Api, Kernel, Memcpy};
use cupti_sys::{copy_kind, kind};
use syncaudit::AuditOptions;
use syncaudit::audit::audit;
use syncaudit::model::{
    CallData, CopyDirection, DeviceOp, DeviceOpKind, MemoryKind, SpanKind, Trace, TraceBuilder,
};
use syncaudit::price::{Effort, price, what_if};
use syncaudit_emulator::{clock, time_model};

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuModuleLoadData(module: *mut usize, image: *const c_void) -> u32;
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuEventSynchronize(event: usize) -> u32;
    fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> u32;
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: u32) -> u32;
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: usize) -> u32;
    fn cuLaunchKernel(
        function: usize,
        gx: u32,
        gy: u32,
        gz: u32,
        bx: u32,
        by: u32,
        bz: u32,
        shared: u32,
        stream: usize,
        parameters: *const *const c_void,
        extra: *const *const c_void,
    ) -> u32;
    fn cuptiActivityRegisterCallbacks(
        requested: unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize),
        completed: unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize),
    ) -> u32;
    fn cuptiActivityEnable(kind: u32) -> u32;
    fn cuptiActivityFlushAll(flags: u32) -> u32;
}

/// How long the kernels take.
const KERNELS_US: [u64; 8] = [20, 50, 100, 200, 400, 800, 1500, 3000];
const BYTES: usize = 64 * 1024;
/// The legacy default stream, a blocking stream, two that are not, and the one of the thread that loads.
const STREAMS: usize = 5;
const LOADER: usize = 4;
const EVENTS: usize = 3;

/// What a thread does.
#[derive(Clone, Debug)]
enum Action {
    Work(u64),
    Launch {
        stream: usize,
        kernel: usize,
    },
    Record {
        stream: usize,
        event: usize,
    },
    StreamWait {
        stream: usize,
        event: usize,
    },
    /// A wait, by its place in the program.
    Wait {
        place: usize,
        what: What,
    },
    /// Another thread does this, and the first one waits for it.
    HandOver(Vec<Action>),
}

#[derive(Clone, Copy, Debug)]
enum What {
    Stream(usize),
    Event(usize),
    Device,
    /// An asynchronous copy into page-locked memory and a synchronise.
    Read(usize),
    /// A copy that returns when it is done, on the default stream.
    BlockingRead,
}

#[derive(Debug)]
struct Program {
    actions: Vec<Action>,
    places: usize,
    with_loader: bool,
}

/// A small generator, so that the same programs run everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }

    fn program(&mut self) -> Program {
        let mut places = 0;
        let count = 6 + self.below(14);
        let mut actions = Vec::new();
        for at in 0..count {
            let action = match self.below(20) {
                0 if at > 1 => {
                    let inner = (0..2 + self.below(4)).map(|_| self.action(&mut places)).collect();
                    Action::HandOver(inner)
                }
                _ => self.action(&mut places),
            };
            actions.push(action);
        }
        // A step without work or without a wait says nothing.
        actions.insert(0, Action::Launch { stream: 1, kernel: self.below(KERNELS_US.len()) });
        let what = if self.below(2) == 0 { What::Device } else { What::Read(1) };
        actions.push(Action::Wait { place: places, what });
        Program { actions, places: places + 1, with_loader: self.below(3) == 0 }
    }

    fn action(&mut self, places: &mut usize) -> Action {
        // Stream 0 now and then: what it does concerns the blocking one.
        let stream = if self.below(8) == 0 { 0 } else { 1 + self.below(3) };
        let event = self.below(EVENTS);
        match self.below(12) {
            0..=2 => Action::Work(10_000 + self.below(900_000) as u64),
            3..=6 => Action::Launch { stream, kernel: self.below(KERNELS_US.len()) },
            7 => Action::Record { stream, event },
            8 => Action::StreamWait { stream, event },
            _ => {
                *places += 1;
                let what = match self.below(6) {
                    0 => What::Event(event),
                    1 => What::Device,
                    2 => What::BlockingRead,
                    3 => What::Stream(stream),
                    _ => What::Read(stream),
                };
                Action::Wait { place: *places - 1, what }
            }
        }
    }
}

/// Letters, because numbers at the end of a range's name are no part of a place.
fn place_name(place: usize) -> String {
    let letter = |at: usize| char::from(b'a' + u8::try_from(at % 26).unwrap());
    format!("place {}{}", letter(place / 26), letter(place))
}

/// A call as the program made it; its times come from the device's records.
struct Made {
    tid: u64,
    api: &'static str,
    stream: usize,
    event: usize,
}

struct Machine {
    streams: [usize; STREAMS],
    events: [usize; EVENTS + 1],
    kernels: Vec<usize>,
    device: u64,
    pinned: *mut c_void,
    pageable: Vec<u8>,
    calls: Vec<Made>,
    /// (thread, name, from, until)
    ranges: Vec<(u64, String, u64, u64)>,
    tid: u64,
}

static BUFFERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// Buffers that were read.
static USED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
const BUFFER_WORDS: usize = 1 << 17;

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let used = USED.lock().unwrap().pop();
    let memory = used.unwrap_or_else(|| vec![0u64; BUFFER_WORDS].leak().as_mut_ptr().addr());
    // SAFETY: CUPTI passes three places to write to.
    unsafe {
        *buffer = memory as *mut u8;
        *size = BUFFER_WORDS * 8;
        *most = 0;
    }
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    BUFFERS.lock().unwrap().push((buffer as usize, valid));
}

/// What is in the buffers is not needed any more.
fn give_back() {
    USED.lock().unwrap().extend(BUFFERS.lock().unwrap().drain(..).map(|(at, _)| at));
}

/// The output of a call that must succeed.
fn get<T: Default>(call: impl FnOnce(*mut T) -> u32) -> T {
    let mut value = T::default();
    assert_eq!(call(&mut value), 0);
    value
}

impl Machine {
    fn new() -> Self {
        clock::make_virtual();
        let model: Vec<String> = KERNELS_US.iter().map(|us| format!("k{us}={us}us")).collect();
        assert!(time_model::set(&model.join(",")));
        // SAFETY: plain integers, valid outputs and texts that live long enough, here and below.
        unsafe {
            assert_eq!(cuInit(0), 0);
            get::<usize>(|out| cuCtxCreate_v2(out, 0, 0));
            let module: usize = get(|out| cuModuleLoadData(out, c"a binary image".as_ptr().cast()));
            let kernels = KERNELS_US.iter().map(|us| {
                let name = CString::new(format!("k{us}")).unwrap();
                get(|out| cuModuleGetFunction(out, module, name.as_ptr()))
            });
            let kernels = kernels.collect();
            let machine = Self {
                streams: [0, 0, 1, 1, 1].map(|flags| get(|out| cuStreamCreate(out, flags))),
                events: [(); EVENTS + 1].map(|()| get(|out| cuEventCreate(out, 0))),
                kernels,
                device: get(|out| cuMemAlloc_v2(out, BYTES)),
                pinned: {
                    let mut pointer = std::ptr::null_mut();
                    assert_eq!(cuMemHostAlloc(&mut pointer, BYTES, 0), 0);
                    pointer
                },
                pageable: vec![0; BYTES],
                calls: Vec::new(),
                ranges: Vec::new(),
                tid: 1,
            };
            let mut machine = machine;
            machine.streams[0] = 0;
            assert_eq!(cuptiActivityRegisterCallbacks(requested, completed), 0);
            for kind in [kind::DRIVER, kind::MEMCPY, kind::CONCURRENT_KERNEL] {
                assert_eq!(cuptiActivityEnable(kind), 0);
            }
            machine
        }
    }

    fn call(&mut self, api: &'static str, stream: usize, event: usize, call: impl FnOnce(&mut Self) -> u32) {
        self.calls.push(Made { tid: self.tid, api, stream, event });
        assert_eq!(call(self), 0, "{api}");
    }

    fn read(&mut self, stream: usize) {
        let handle = self.streams[stream];
        // SAFETY: 8 bytes of memory that lives as long as the machine.
        self.call("cuMemcpyDtoHAsync_v2", handle, 0, |machine| unsafe {
            cuMemcpyDtoHAsync_v2(machine.pinned, machine.device, 8, handle)
        });
    }

    fn sync(&mut self, stream: usize) {
        let handle = self.streams[stream];
        // SAFETY: a live stream.
        self.call("cuStreamSynchronize", handle, 0, |_| unsafe { cuStreamSynchronize(handle) });
    }

    fn range(&mut self, name: String, body: impl FnOnce(&mut Self)) {
        let from_ns = clock::host_ns();
        body(self);
        self.ranges.push((self.tid, name, from_ns, clock::host_ns()));
    }

    fn act(&mut self, action: &Action, removed: &[bool]) {
        match action {
            Action::Work(ns) => clock::work(*ns),
            Action::Launch { stream, kernel } => {
                let (handle, function) = (self.streams[*stream], self.kernels[*kernel]);
                let none = std::ptr::null();
                // SAFETY: a kernel without parameters on a live stream.
                self.call("cuLaunchKernel", handle, 0, |_| unsafe {
                    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, handle, none, none)
                });
            }
            Action::Record { stream, event } => {
                let (handle, event) = (self.streams[*stream], self.events[*event]);
                // SAFETY: live handles.
                self.call("cuEventRecord", handle, event, |_| unsafe { cuEventRecord(event, handle) });
            }
            Action::StreamWait { stream, event } => {
                let (handle, event) = (self.streams[*stream], self.events[*event]);
                // SAFETY: as above.
                self.call("cuStreamWaitEvent", handle, event, |_| unsafe {
                    cuStreamWaitEvent(handle, event, 0)
                });
            }
            Action::Wait { place, what } => {
                let removed = removed[*place];
                self.range(place_name(*place), |machine| machine.wait(*what, removed));
            }
            Action::HandOver(actions) => {
                // The other thread is told, works, and tells that it is done.
                clock::work(10_000);
                self.tid = 2;
                actions.iter().for_each(|action| self.act(action, removed));
                self.tid = 1;
                clock::work(20_000);
            }
        }
    }

    fn wait(&mut self, what: What, removed: bool) {
        match (what, removed) {
            (What::Stream(_) | What::Event(_) | What::Device, true) => {}
            (What::Stream(stream), false) => self.sync(stream),
            (What::Event(event), false) => {
                let event = self.events[event];
                // SAFETY: a live event.
                self.call("cuEventSynchronize", 0, event, |_| unsafe { cuEventSynchronize(event) });
            }
            // SAFETY: no arguments.
            (What::Device, false) => self.call("cuCtxSynchronize", 0, 0, |_| unsafe { cuCtxSynchronize() }),
            (What::Read(stream), removed) => {
                self.read(stream);
                if !removed {
                    self.sync(stream);
                }
            }
            (What::BlockingRead, true) => self.read(0),
            (What::BlockingRead, false) => {
                // SAFETY: 8 bytes of memory that lives as long as the machine.
                self.call("cuMemcpyDtoH_v2", 0, 0, |machine| unsafe {
                    cuMemcpyDtoH_v2(machine.pageable.as_mut_ptr().cast(), machine.device, 8)
                });
            }
        }
    }

    /// A thread that uploads the data of a step when the step begins.
    fn load(&mut self) {
        let begun_ns = clock::host_ns();
        clock::work(30_000);
        self.tid = 3;
        let (handle, event) = (self.streams[LOADER], self.events[EVENTS]);
        // SAFETY: memory that lives as long as the machine.
        self.call("cuMemcpyHtoDAsync_v2", handle, 0, |machine| unsafe {
            cuMemcpyHtoDAsync_v2(machine.device, machine.pinned, BYTES, handle)
        });
        // SAFETY: live handles.
        self.call("cuEventRecord", handle, event, |_| unsafe { cuEventRecord(event, handle) });
        self.tid = 1;
        clock::set_host_ns(begun_ns);
    }

    /// Runs steps and answers what was recorded of them.
    fn run(&mut self, program: &Program, steps: usize, removed: &[bool]) -> Trace {
        // SAFETY: no arguments.
        assert_eq!(unsafe { cuCtxSynchronize() }, 0);
        // SAFETY: a plain integer.
        assert_eq!(unsafe { cuptiActivityFlushAll(1) }, 0);
        give_back();
        self.calls.clear();
        self.ranges.clear();
        clock::work(50_000_000);
        for event in 0..EVENTS {
            self.act(&Action::Record { stream: 1, event }, removed);
        }
        for step in 0..steps {
            self.range(format!("step {step}"), |machine| {
                if program.with_loader {
                    machine.load();
                }
                for (at, action) in program.actions.iter().enumerate() {
                    if program.with_loader && at == 1 {
                        machine.act(&Action::StreamWait { stream: 1, event: EVENTS }, removed);
                    }
                    machine.act(action, removed);
                }
            });
        }
        // What is still under way belongs to the recording.
        let end_ns = clock::host_ns();
        // SAFETY: no arguments, and a plain integer.
        unsafe {
            assert_eq!(cuCtxSynchronize(), 0);
            assert_eq!(cuptiActivityFlushAll(1), 0);
        }
        self.trace(end_ns)
    }

    fn trace(&self, end_ns: u64) -> Trace {
        let mut builder = TraceBuilder::default();
        builder.process(1);
        let mut calls = self.calls.iter();
        let mut work = Vec::new();
        for &(at, valid) in BUFFERS.lock().unwrap().iter() {
            let mut offset = 0;
            while offset < valid {
                let record = (at + offset) as *const u8;
                // SAFETY: the device filled `valid` bytes of a leaked, aligned buffer with records of these types, one behind the other.
                unsafe {
                    let kind = record.cast::<u32>().read();
                    match kind {
                        kind::DRIVER => {
                            let api = record.cast::<Api>().read();
                            let Some(made) = calls.next().filter(|_| api.start_ns < end_ns) else {
                                offset += syncaudit_emulator::cupti::activity::stride(kind);
                                continue;
                            };
                            let stream = builder.process_at(0).stream(made.stream as u64, None, 0);
                            let data = CallData {
                                stream,
                                object: made.event as u64,
                                correlation: api.correlation_id,
                                ..CallData::default()
                            };
                            builder.thread_at(0, made.tid).call(made.api, api.start_ns, api.end_ns, data);
                        }
                        kind::MEMCPY => {
                            let copy = record.cast::<Memcpy>().read();
                            let down = copy.copy_kind == copy_kind::DEVICE_TO_HOST;
                            work.push((
                                copy.stream_id,
                                DeviceOp {
                                    start_ns: copy.start_ns,
                                    end_ns: copy.end_ns,
                                    bytes: copy.bytes,
                                    correlation: copy.correlation_id,
                                    kind: DeviceOpKind::Copy,
                                    direction: if down {
                                        CopyDirection::DeviceToHost
                                    } else {
                                        CopyDirection::HostToDevice
                                    },
                                    from: MemoryKind::from_cupti(u32::from(copy.src_kind)),
                                    to: MemoryKind::from_cupti(u32::from(copy.dst_kind)),
                                    ..DeviceOp::default()
                                },
                            ));
                        }
                        _ => {
                            let kernel = record.cast::<Kernel>().read();
                            work.push((
                                kernel.stream_id,
                                DeviceOp {
                                    start_ns: kernel.start_ns,
                                    end_ns: kernel.end_ns,
                                    correlation: kernel.correlation_id,
                                    kind: DeviceOpKind::Kernel,
                                    ..DeviceOp::default()
                                },
                            ));
                        }
                    }
                    offset += syncaudit_emulator::cupti::activity::stride(kind);
                }
            }
        }
        for (stream, op) in work {
            let stream = builder.process_at(0).stream(0, Some(stream), 0);
            builder.process_at(0).device_op(DeviceOp { stream, ..op });
        }
        for (tid, name, from_ns, until_ns) in &self.ranges {
            builder.thread_at(0, *tid).named_span(SpanKind::Range, name, *from_ns, *until_ns);
        }
        builder.finish()
    }
}

/// The mean time of a step in the long run: from when everything of one step is done to when everything of a later one is.
fn step_ns(trace: &Trace) -> f64 {
    let steps: Vec<(u64, u64)> = trace.processes[0]
        .threads
        .iter()
        .flat_map(|thread| &thread.spans)
        .filter(|span| trace.str(span.name).starts_with("step "))
        .map(|span| (span.start_ns, span.end_ns))
        .collect();
    let mut issued: Vec<(u64, u64)> = Vec::new();
    for call in trace.processes[0].threads.iter().flat_map(|thread| &thread.calls) {
        let ops = trace.processes[0].device_ops.iter().filter(|op| op.correlation == call.correlation);
        issued.extend(ops.map(|op| (call.start_ns, op.end_ns)));
    }
    let done = |step: usize| {
        let (_, end_ns) = steps[step];
        let work = issued.iter().filter(|(at, _)| *at < end_ns).map(|(_, end_ns)| *end_ns).max();
        end_ns.max(work.unwrap_or(0)) as f64
    };
    let (first, last) = (steps.len() / 3, steps.len() - 1);
    (done(last) - done(first)) / (last - first) as f64
}

#[test]
fn predictions_for_random_programs_come_true() {
    let mut machine = Machine::new();
    let mut dice = Dice(0x5bd1_e995_9d1c_a3f1);
    let mut errors = Vec::new();
    let mut worst = (0.0, String::new());
    let mut gains = 0;
    let mut abstained = 0;
    for number in 0..300 {
        let program = dice.program();
        let trace = machine.run(&program, 8, &vec![false; program.places]);
        let found = audit(&trace, &AuditOptions::default());
        found.reconcile().unwrap();
        if let Err(why) = price(&trace, &found, Effort::Glance).prices {
            eprintln!("program {number}: {}", why.text());
            abstained += 1;
            continue;
        }
        let removed: Vec<bool> = (0..program.places).map(|_| dice.below(2) == 0).collect();
        let names: Vec<String> =
            (0..program.places).filter(|&place| removed[place]).map(place_name).collect();
        let is_removed = |site: &&usize| found.sites[**site].range.iter().any(|range| names.contains(range));
        let sites =
            (0..found.sites.len()).collect::<Vec<usize>>().iter().filter(is_removed).copied().collect();
        let predicted = what_if(&trace, &found, &[sites]).unwrap()[0].step_ns as f64;
        let without = machine.run(&program, 24, &removed);
        let real = step_ns(&without);
        let error = (predicted - real).abs() / real;
        if real < step_ns(&trace) * 0.95 {
            gains += 1;
        }
        if error > worst.0 {
            worst = (
                error,
                format!(
                    "program {number}: predicted {predicted} ns, really {real} ns, without {removed:?} of {program:#?}"
                ),
            );
        }
        errors.push(error);
    }
    errors.sort_by(f64::total_cmp);
    let (median, high) = (errors[errors.len() / 2], errors[errors.len() * 95 / 100]);
    eprintln!(
        "{} programs, {gains} of them at least 5 % faster: median error {:.2} %, 95th percentile {:.2} %, worst {:.1} %; {abstained} without a price",
        errors.len(),
        median * 100.0,
        high * 100.0,
        worst.0 * 100.0
    );
    assert!(median <= 0.03 && high <= 0.10, "median {median}, 95th percentile {high}; {}", worst.1);
    assert!(abstained <= 3 && gains >= 60, "{} priced, {gains} with a gain", errors.len());
}
