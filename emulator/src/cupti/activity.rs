//! Activity records: a place in a buffer is reserved when a call is made (on the program's thread, where a tool is
//! asked for buffers) and completed when the operation has run (on the stream's worker).
//!
//! A buffer goes back to the tool once it is full or flushed and every record in it is complete; a forced flush gives
//! it back as it is. A record that was reserved in a buffer that is gone is dropped silently, like a record in
//! progress at a forced flush.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use cupti_sys::records::{Api, Kernel, Memcpy, Memset, Synchronization};
use cupti_sys::{BufferCompletedFn, BufferRequestedFn, CuptiResult, copy_kind, kind, overhead};

use super::{CORRELATION, DRIVER_IDS, RECORDS, now_ns, set_wanted};
use crate::handles::lock;
use crate::heap::{self, Kind};
use crate::op::{Copy3, Op};
use crate::worker::Stream;

/// Size of each kind's record in CUPTI 12.8, as measured on the real library; 0 for a kind that does not exist.
pub fn stride(kind: u32) -> usize {
    match kind {
        1 | 22 => 96,
        2 => 88,
        3 | 10 => 208,
        4 | 5 | 48 => 40,
        8 => 184,
        9 | 11 | 13 => 32,
        12 | 17 | 36 | 38 | 51 => 56,
        25 => 104,
        37 | 39 => 24,
        45 => 80,
        49 => 128,
        50 | 52 => 72,
        _ => 0,
    }
}

/// Kinds that the emulated device makes records of.
const MADE: [u32; 8] = [
    kind::MEMCPY,
    kind::MEMSET,
    kind::KERNEL,
    kind::DRIVER,
    kind::RUNTIME,
    kind::CONCURRENT_KERNEL,
    kind::OVERHEAD,
    kind::SYNCHRONIZATION,
];

static ENABLED: AtomicU64 = AtomicU64::new(0);
static DRIVER_CALLS: [AtomicBool; DRIVER_IDS] = [const { AtomicBool::new(false) }; DRIVER_IDS];
static DRIVER_CALL_COUNT: AtomicUsize = AtomicUsize::new(0);
static ALL_SYNC_RECORDS: AtomicBool = AtomicBool::new(false);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A buffer of the tool's that is being filled.
struct Buffer {
    number: u64,
    at: usize,
    size: usize,
    used: usize,
    records: usize,
    max_records: usize,
    incomplete: usize,
}

#[derive(Default)]
struct Store {
    callbacks: Option<(BufferRequestedFn, BufferCompletedFn)>,
    current: Option<Buffer>,
    /// Full or flushed, with records still to complete.
    waiting: Vec<Buffer>,
    /// Handed out by the tool to two threads at once; used next.
    spare: Vec<Buffer>,
    next_number: u64,
}

static STORE: Mutex<Store> = Mutex::new(Store {
    callbacks: None,
    current: None,
    waiting: Vec::new(),
    spare: Vec::new(),
    next_number: 1,
});

/// True while records of `kind` are made.
pub fn enabled(kind: u32) -> bool {
    ENABLED.load(Ordering::Relaxed) & (1 << kind) != 0
}

/// `cuptiActivityEnable` and `cuptiActivityDisable`. Kinds that exist but that nothing here makes (markers, unified
/// memory counters, ...) are refused.
pub fn enable(kind: u32, on: bool) -> Result<(), CuptiResult> {
    if !(1..64).contains(&kind) || stride(kind) == 0 {
        return Err(CuptiResult::INVALID_KIND);
    }
    // Peer copies are implied by MEMCPY in this version, and one device makes none.
    if !MADE.contains(&kind) && kind != kind::MEMCPY2 {
        return if on { Err(CuptiResult::NOT_COMPATIBLE) } else { Ok(()) };
    }
    if on {
        ENABLED.fetch_or(1 << kind, Ordering::SeqCst);
    } else {
        ENABLED.fetch_and(!(1 << kind), Ordering::SeqCst);
    }
    update();
    Ok(())
}

/// `cuptiActivityEnableDriverApi`: API records of single calls.
pub fn enable_driver_call(id: u32, on: bool) -> Result<(), CuptiResult> {
    let slot = DRIVER_CALLS.get(id as usize).filter(|_| super::driver_name(id).is_some());
    let slot = slot.ok_or(CuptiResult::INVALID_PARAMETER)?;
    if slot.swap(on, Ordering::Relaxed) != on {
        if on {
            DRIVER_CALL_COUNT.fetch_add(1, Ordering::Relaxed);
        } else {
            DRIVER_CALL_COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }
    update();
    Ok(())
}

fn update() {
    let any = ENABLED.load(Ordering::SeqCst) != 0 || DRIVER_CALL_COUNT.load(Ordering::SeqCst) != 0;
    set_wanted(RECORDS, any);
}

/// `cuptiActivityEnableAllSyncRecords`.
pub fn enable_all_sync_records(on: bool) {
    ALL_SYNC_RECORDS.store(on, Ordering::Relaxed);
}

/// `cuptiActivityRegisterCallbacks`: a later tool replaces an earlier one.
pub fn register(requested: BufferRequestedFn, completed: BufferCompletedFn) {
    lock(&STORE).callbacks = Some((requested, completed));
}

/// Records lost since the last question.
pub fn take_dropped() -> usize {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// Correlation id for a record: exists only while API records are made, as in the real library.
fn correlation() -> u32 {
    let api =
        enabled(kind::DRIVER) || enabled(kind::RUNTIME) || DRIVER_CALL_COUNT.load(Ordering::Relaxed) > 0;
    if api { CORRELATION.try_with(std::cell::Cell::get).unwrap_or(0) } else { 0 }
}

/// A reserved record whose times are still to come.
pub struct Slot {
    buffer: u64,
    offset: usize,
    kernel: bool,
    done: bool,
}

impl Slot {
    /// Completes the record.
    pub fn complete(mut self, start_ns: u64, end_ns: u64) {
        self.finish(Some((start_ns, end_ns)));
    }

    fn finish(&mut self, times: Option<(u64, u64)>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let mut store = lock(&STORE);
        let Store { current, waiting, .. } = &mut *store;
        let all = current.iter_mut().chain(waiting.iter_mut());
        let Some(buffer) = all.into_iter().find(|b| b.number == self.buffer) else { return };
        buffer.incomplete -= 1;
        if let Some((start, end)) = times {
            // The times lie at 16 and 24 in copies, memsets and kernels; a kernel's completion at 32.
            buffer.write(self.offset + 16, &start.to_ne_bytes());
            buffer.write(self.offset + 24, &end.to_ne_bytes());
            if self.kernel {
                buffer.write(self.offset + 32, &end.to_ne_bytes());
            }
        }
        let finished = waiting.iter().position(|b| b.incomplete == 0).map(|at| waiting.remove(at));
        let callbacks = store.callbacks;
        drop(store);
        give_back(callbacks, finished);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl Buffer {
    fn write(&self, offset: usize, bytes: &[u8]) {
        debug_assert!(offset + bytes.len() <= self.size);
        // SAFETY: the tool handed out `size` bytes at `at`, ours until the buffer is given back; offsets come from
        // `place`, which stays inside.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.at as *mut u8).add(offset), bytes.len())
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes <= self.size && (self.max_records == 0 || self.records < self.max_records)
    }
}

fn give_back(
    callbacks: Option<(BufferRequestedFn, BufferCompletedFn)>,
    buffers: impl IntoIterator<Item = Buffer>,
) {
    let Some((_, completed)) = callbacks else { return };
    for buffer in buffers {
        // SAFETY: the tool's own function gets back the buffer that the tool handed out.
        unsafe { completed(std::ptr::null_mut(), 0, buffer.at as *mut u8, buffer.size, buffer.used) }
    }
}

/// Writes a record into the tool's current buffer, asking for one if need be. `complete`: nothing is to follow.
fn place(record: &[u8], complete: bool) -> Option<(u64, usize)> {
    let mut finished = None;
    let mut asked = false;
    let (placed, callbacks) = loop {
        let mut store = lock(&STORE);
        let callbacks = store.callbacks;
        if store.current.as_ref().is_some_and(|b| !b.has_room(record.len())) {
            let full = store.current.take();
            match full {
                Some(full) if full.incomplete > 0 => store.waiting.push(full),
                full => finished = full,
            }
        }
        if store.current.is_none() {
            store.current = store.spare.pop();
        }
        if let Some(buffer) = &mut store.current {
            if !buffer.has_room(record.len()) {
                break (None, callbacks); // the tool's buffer is smaller than one record
            }
            let offset = buffer.used;
            buffer.write(offset, record);
            buffer.used += record.len();
            buffer.records += 1;
            buffer.incomplete += usize::from(!complete);
            break (Some((buffer.number, offset)), callbacks);
        }
        drop(store);
        let Some((requested, _)) = callbacks.filter(|_| !asked) else { break (None, callbacks) };
        asked = true;
        let (mut at, mut size, mut max_records) = (std::ptr::null_mut::<u8>(), 0usize, 0usize);
        // SAFETY: the tool's own function writes the three outputs; called on the program's thread, without a lock.
        unsafe { requested(&mut at, &mut size, &mut max_records) };
        if !at.is_null() && size > 0 {
            let mut store = lock(&STORE);
            let number = store.next_number;
            store.next_number += 1;
            let buffer =
                Buffer { number, at: at as usize, size, used: 0, records: 0, max_records, incomplete: 0 };
            store.spare.push(buffer);
        }
    };
    if placed.is_none() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
    give_back(callbacks, finished);
    placed
}

/// `cuptiActivityFlushAll`: gives back buffers with records. Forced: also those with records still to complete.
pub fn flush(forced: bool) {
    let mut store = lock(&STORE);
    if let Some(current) = store.current.take_if(|b| b.used > 0) {
        store.waiting.push(current);
    }
    let (ready, waiting) =
        std::mem::take(&mut store.waiting).into_iter().partition(|b: &Buffer| forced || b.incomplete == 0);
    store.waiting = waiting;
    let callbacks = store.callbacks;
    drop(store);
    give_back(callbacks, ready);
}

/// Gives back full buffers whose records are complete, and the current one if it has any: the periodic flush.
pub fn give_back_complete() {
    let mut store = lock(&STORE);
    let current = store.current.take_if(|b| b.used > 0 && b.incomplete == 0);
    let callbacks = store.callbacks;
    drop(store);
    give_back(callbacks, current);
}

/// A record: the prefix that this crate shares with its readers, filled up with zeros to the version's size.
fn record<T: Copy>(prefix: T, kind: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; stride(kind)];
    // SAFETY: the record types are plain integers without padding, so all their bytes are initialised.
    let raw = unsafe { std::slice::from_raw_parts((&raw const prefix).cast::<u8>(), size_of::<T>()) };
    let n = raw.len().min(bytes.len());
    bytes[..n].copy_from_slice(&raw[..n]);
    bytes
}

fn zeroed<T: Copy>() -> T {
    // SAFETY: the record types are plain integers and raw pointers: all zeros is a value.
    unsafe { std::mem::zeroed() }
}

/// Reserves the records of an operation that is about to be enqueued: one place per operation that a kind of record
/// exists for, in execution order. Empty while no tool wants any.
pub fn reserve(op: &Op, stream: &Stream) -> Vec<Option<Slot>> {
    let mut slots = Vec::new();
    if super::wanted() & RECORDS != 0 {
        reserve_into(&mut slots, op, stream, (0, 0));
    }
    slots
}

fn reserve_into(slots: &mut Vec<Option<Slot>>, op: &Op, stream: &Stream, (graph, node): (u32, u64)) {
    let bytes = match op {
        Op::Graph(run) => {
            for (node, op) in &run.nodes {
                reserve_into(slots, op, stream, (run.id, *node));
            }
            return;
        }
        Op::Copy(copy) | Op::Upload { copy, .. } => {
            enabled(kind::MEMCPY).then(|| (copy_record(copy, stream, graph, node), false))
        }
        Op::Set(set) => enabled(kind::MEMSET).then(|| {
            let memory = heap::find(set.addr).map_or(Kind::Device, |r| r.kind);
            let prefix = Memset {
                kind: kind::MEMSET,
                value: set.value,
                bytes: set.bytes() as u64,
                context_id: stream.context.uid,
                stream_id: stream.id,
                correlation_id: correlation(),
                memory_kind: memory as u16,
                graph_node_id: node,
                graph_id: graph,
                ..zeroed()
            };
            (record(prefix, kind::MEMSET), false)
        }),
        Op::Kernel(launch) => {
            kernel_record(stream, &launch.name, launch.grid, launch.block, launch.shared_bytes, (graph, node))
        }
        Op::Collective(collective) => {
            kernel_record(stream, &collective.name, [1, 1, 1], [512, 1, 1], 0, (graph, node))
        }
        _ => return,
    };
    slots.push(bytes.and_then(|(bytes, kernel)| {
        place(&bytes, false).map(|(buffer, offset)| Slot { buffer, offset, kernel, done: false })
    }));
}

fn kernel_record(
    stream: &Stream,
    name: &Arc<str>,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    (graph, node): (u32, u64),
) -> Option<(Vec<u8>, bool)> {
    let kind = [kind::CONCURRENT_KERNEL, kind::KERNEL].into_iter().find(|k| enabled(*k))?;
    let prefix = Kernel {
        kind,
        registers_per_thread: 32,
        context_id: stream.context.uid,
        stream_id: stream.id,
        grid,
        block,
        dynamic_shared_memory: shared_bytes,
        correlation_id: correlation(),
        name: lasting_name(name).as_ptr(),
        graph_node_id: node,
        graph_id: graph,
        ..zeroed()
    };
    Some((record(prefix, kind), true))
}

fn copy_record(copy: &Copy3, stream: &Stream, graph: u32, node: u64) -> Vec<u8> {
    let is_host = |kind| matches!(kind, Kind::Pageable | Kind::Pinned);
    let copy_kind = match (is_host(copy.src.kind), is_host(copy.dst.kind)) {
        (true, false) => copy_kind::HOST_TO_DEVICE,
        (false, true) => copy_kind::DEVICE_TO_HOST,
        (false, false) => copy_kind::DEVICE_TO_DEVICE,
        (true, true) => copy_kind::HOST_TO_HOST,
    };
    let prefix = Memcpy {
        kind: kind::MEMCPY,
        copy_kind,
        src_kind: copy.src.kind as u8,
        dst_kind: copy.dst.kind as u8,
        flags: u8::from(copy.asynchronous),
        bytes: copy.bytes() as u64,
        context_id: stream.context.uid,
        stream_id: stream.id,
        correlation_id: correlation(),
        graph_node_id: node,
        graph_id: graph,
        ..zeroed()
    };
    let mut bytes = record(prefix, kind::MEMCPY);
    bytes[88..96].copy_from_slice(&1u64.to_ne_bytes()); // copyCount, since 12.8
    bytes
}

/// A kernel's name for tools: lives as long as the library.
fn lasting_name(name: &Arc<str>) -> &'static CStr {
    static NAMES: LazyLock<Mutex<HashMap<Arc<str>, &'static CStr>>> = LazyLock::new(Mutex::default);
    let mut names = lock(&NAMES);
    names
        .entry(name.clone())
        .or_insert_with(|| Box::leak(CString::new(&**name).unwrap_or_default().into_boxed_c_str()))
}

/// The record of a synchronise call that took from `start_ns` to now.
pub fn synchronised(
    type_: u32,
    start_ns: u64,
    context: u32,
    stream: Option<u32>,
    event: Option<u32>,
    code: u32,
) {
    if !enabled(kind::SYNCHRONIZATION) || (code != 0 && !ALL_SYNC_RECORDS.load(Ordering::Relaxed)) {
        return;
    }
    let prefix = Synchronization {
        kind: kind::SYNCHRONIZATION,
        type_,
        start_ns,
        end_ns: now_ns(),
        correlation_id: correlation(),
        context_id: context,
        stream_id: stream.unwrap_or(u32::MAX),
        cuda_event_id: event.unwrap_or(u32::MAX),
    };
    let mut bytes = record(prefix, kind::SYNCHRONIZATION);
    bytes[48..52].copy_from_slice(&code.to_ne_bytes()); // returnValue, since 12.8
    place(&bytes, true);
}

/// When a synchronise call that may be recorded begins; 0 while none is.
pub fn sync_start_ns() -> u64 {
    if enabled(kind::SYNCHRONIZATION) { now_ns() } else { 0 }
}

/// The record of a launch that waited for space in its stream's queue.
pub fn queue_was_full(start_ns: u64) {
    if !enabled(kind::OVERHEAD) {
        return;
    }
    let mut bytes = record((kind::OVERHEAD, overhead::COMMAND_BUFFER_FULL, 2u32), kind::OVERHEAD);
    // objectKind 2: a thread, told by process and thread id.
    bytes[12..16].copy_from_slice(&std::process::id().to_ne_bytes());
    bytes[16..20].copy_from_slice(&thread_id().to_ne_bytes());
    bytes[24..32].copy_from_slice(&start_ns.to_ne_bytes());
    bytes[32..40].copy_from_slice(&now_ns().to_ne_bytes());
    bytes[40..44].copy_from_slice(&correlation().to_ne_bytes());
    place(&bytes, true);
}

fn thread_id() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The record of an API call that ends now.
pub fn api_call(id: u32, start_ns: u64, code: u32, correlation_id: u32) {
    let wanted = enabled(kind::DRIVER)
        || DRIVER_CALL_COUNT.load(Ordering::Relaxed) > 0
            && DRIVER_CALLS.get(id as usize).is_some_and(|c| c.load(Ordering::Relaxed));
    if !wanted || id == 0 {
        return;
    }
    let prefix = Api {
        kind: kind::DRIVER,
        cbid: id,
        start_ns,
        end_ns: now_ns(),
        process_id: std::process::id(),
        thread_id: thread_id(),
        correlation_id,
        return_value: code,
    };
    place(&record(prefix, kind::DRIVER), true);
}
