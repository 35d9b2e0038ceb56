//! What a stream executes: copies, memsets, kernels, host functions, events, graphs.
//!
//! Addresses are resolved again when an operation runs, because the program may have freed memory in the meantime:
//! then the context gets the sticky error that a device would report, and nothing is touched.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use crate::clock;
use crate::cupti;
use crate::cupti::activity::Slot;
use crate::error::{Error, Result};
use crate::event::{Event, Stamp};
use crate::heap::{self, Bytes, Kind, Region};
use crate::kernels::Launch;
use crate::nccl::Collective;
use crate::worker::{self, Stream};

/// One operation. Cloned when a graph is instantiated.
#[derive(Clone)]
pub enum Op {
    /// Only a point in the stream: empty graph nodes, waits for other streams.
    Nothing,
    Copy(Copy3),
    /// A copy whose source was staged when the call was made.
    Upload {
        staged: Arc<Vec<u8>>,
        copy: Copy3,
    },
    Set(Set2),
    Kernel(Arc<Launch>),
    /// One of NCCL's.
    Collective(Arc<Collective>),
    /// `cuLaunchHostFunc`: function and user data.
    HostFunction(extern "C" fn(*mut libc::c_void), usize),
    /// `cuStreamAddCallback`: function, stream handle as the program named it, user data.
    Callback(extern "C" fn(usize, u32, *mut libc::c_void), usize, usize),
    Record(Arc<Event>, Arc<Stamp>),
    /// `cuMemFreeAsync`.
    Free(u64),
    /// `cuStreamWriteValue*`: address, value, bytes.
    Write(u64, u64, usize),
    Graph(Arc<GraphRun>),
}

/// The nodes of one graph launch, in execution order.
pub struct GraphRun {
    /// Number of the executable graph in CUPTI records.
    pub id: u32,
    /// Each with its node's id.
    pub nodes: Vec<(u64, Op)>,
}

/// The records that were reserved for an operation's parts, in execution order.
pub type Slots = std::vec::IntoIter<Option<Slot>>;

/// Runs one recorded part of an operation and completes its record. The part takes `model_ns` where the clock is virtual.
fn timed(slots: &mut Slots, model_ns: u64, part: impl FnOnce() -> Result) -> Result {
    if clock::is_virtual() {
        let result = part();
        let (start_ns, end_ns) = clock::device_work(model_ns);
        if let Some(slot) = slots.next().flatten() {
            slot.complete(start_ns, end_ns);
        }
        return result;
    }
    let Some(slot) = slots.next().flatten() else { return part() };
    let start_ns = cupti::now_ns();
    let result = part();
    slot.complete(start_ns, cupti::now_ns());
    result
}

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub addr: u64,
    pub kind: Kind,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Bytes from slice to slice.
    pub slice: usize,
}

/// A copy of `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Copy3 {
    pub dst: Side,
    pub src: Side,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    /// The call's name said `Async`.
    pub asynchronous: bool,
}

/// A memset of `height` rows of `width` elements of `element` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Set2 {
    pub addr: u64,
    pub pitch: usize,
    pub value: u32,
    pub element: usize,
    pub width: usize,
    pub height: usize,
}

impl Op {
    /// Runs on the stream's worker. After a sticky error nothing runs any more, but points are still reached.
    pub fn run(&self, stream: &Arc<Stream>, slots: &mut Slots) {
        let context = &stream.context;
        let result = match self {
            Op::Nothing => Ok(()),
            // These happen whatever the state: the program waits for them or counts on them.
            Op::Record(event, stamp) => {
                event.happened(stamp);
                Ok(())
            }
            Op::Callback(function, handle, user) => {
                let status = context.sticky_code();
                worker::as_host_function(|| function(*handle, status, *user as *mut _));
                Ok(())
            }
            Op::Free(base) => {
                heap::free(*base);
                Ok(())
            }
            _ if context.check().is_err() => Ok(()), // dropping its slots completes their records
            Op::Copy(copy) => timed(slots, clock::copy_ns(copy.bytes()), || copy.run(None)),
            Op::Upload { staged, copy } => {
                timed(slots, clock::copy_ns(copy.bytes()), || copy.run(Some(staged)))
            }
            Op::Set(set) => timed(slots, clock::copy_ns(set.bytes()), || set.run()),
            Op::Kernel(launch) => {
                let model = crate::time_model::kernel_time(&launch.name).as_nanos() as u64;
                timed(slots, model, || run_kernel(launch))
            }
            Op::Collective(collective) => timed(slots, clock::copy_ns(0), || collective.run()),
            Op::HostFunction(function, user) => {
                worker::as_host_function(|| function(*user as *mut _));
                Ok(())
            }
            Op::Write(addr, value, bytes) => write_value(*addr, *value, *bytes),
            Op::Graph(graph) => {
                graph.nodes.iter().for_each(|(_, node)| node.run(stream, slots));
                Ok(())
            }
        };
        if let Err(error) = result {
            context.set_sticky(error);
        }
    }
}

impl Side {
    /// One row after another, without gaps.
    pub fn flat(addr: u64, kind: Kind, width: usize) -> Self {
        Self { addr, kind, pitch: width, slice: width }
    }

    /// Bytes from the first to the last touched.
    pub fn span(&self, width: usize, height: usize, depth: usize) -> Option<usize> {
        if width == 0 || height == 0 || depth == 0 {
            return Some(0);
        }
        let rows = self.pitch.checked_mul(height - 1)?;
        self.slice.checked_mul(depth - 1)?.checked_add(rows)?.checked_add(width)
    }

    /// Host memory of this side, checked against its region.
    fn resolve(&self, width: usize, height: usize, depth: usize) -> Result<Bytes> {
        let bytes = self.span(width, height, depth).ok_or(Error::ILLEGAL_ADDRESS)?;
        if self.kind == Kind::Pageable {
            if !heap::host_range_is_mapped(self.addr, bytes) {
                return Err(Error::ILLEGAL_ADDRESS);
            }
            return Ok(Bytes { at: self.addr as *mut u8, region: None });
        }
        heap::translate(self.addr, bytes).ok_or(Error::ILLEGAL_ADDRESS)
    }
}

impl Copy3 {
    /// Bytes moved.
    pub fn bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    /// Copies; the source is `staged` (packed) if given.
    pub fn run(&self, staged: Option<&[u8]>) -> Result {
        let (w, h, d) = (self.width, self.height, self.depth);
        if w == 0 || h == 0 || d == 0 {
            return Ok(());
        }
        let dst = self.dst.resolve(w, h, d)?;
        let (src, src_pitch, src_slice) = match staged {
            Some(bytes) => (Bytes { at: bytes.as_ptr().cast_mut(), region: None }, w, w * h),
            None => (self.src.resolve(w, h, d)?, self.src.pitch, self.src.slice),
        };
        if w == src_pitch
            && w == self.dst.pitch
            && (d == 1 || (w * h == src_slice && w * h == self.dst.slice))
        {
            // SAFETY: `resolve` (or `stage`) checked the whole span of both sides and `dst`, `src` keep them mapped.
            unsafe { std::ptr::copy(src.at, dst.at, w * h * d) };
            return Ok(());
        }
        for z in 0..d {
            for y in 0..h {
                // SAFETY: row (z, y) lies inside the span that was checked.
                unsafe {
                    let from = src.at.add(z * src_slice + y * src_pitch);
                    let to = dst.at.add(z * self.dst.slice + y * self.dst.pitch);
                    std::ptr::copy(from, to, w);
                }
            }
        }
        Ok(())
    }

    /// The source's bytes, packed into a buffer of our own.
    pub fn stage(&self) -> Result<Vec<u8>> {
        let mut buffer = vec![0u8; self.bytes()];
        let (w, h, d) = (self.width, self.height, self.depth);
        if buffer.is_empty() {
            return Ok(buffer);
        }
        let src = self.src.resolve(w, h, d).map_err(|_| Error::INVALID_VALUE)?;
        for (row, out) in buffer.chunks_exact_mut(w).enumerate() {
            let (z, y) = (row / h, row % h);
            // SAFETY: row (z, y) lies inside the span that `resolve` checked; `out` has `w` bytes.
            unsafe {
                std::ptr::copy(src.at.add(z * self.src.slice + y * self.src.pitch), out.as_mut_ptr(), w)
            };
        }
        Ok(buffer)
    }
}

impl Set2 {
    /// Bytes written.
    pub fn bytes(&self) -> usize {
        self.width * self.element * self.height
    }

    /// Bytes from the first to the last written.
    pub fn span(&self) -> Option<usize> {
        if self.width == 0 || self.height == 0 {
            return Some(0);
        }
        self.pitch.checked_mul(self.height - 1)?.checked_add(self.width.checked_mul(self.element)?)
    }

    fn run(&self) -> Result {
        let span = self.span().ok_or(Error::ILLEGAL_ADDRESS)?;
        if span == 0 {
            return Ok(());
        }
        let bytes = heap::translate(self.addr, span).ok_or(Error::ILLEGAL_ADDRESS)?;
        for y in 0..self.height {
            let row = bytes.at.wrapping_add(y * self.pitch);
            // SAFETY: the row lies inside the span that `translate` checked; alignment was checked at the call.
            unsafe {
                match self.element {
                    1 => row.write_bytes(self.value as u8, self.width),
                    2 => fill(row.cast::<u16>(), self.value as u16, self.width),
                    _ => fill(row.cast::<u32>(), self.value, self.width),
                }
            }
        }
        Ok(())
    }
}

/// # Safety
/// `at` must be valid for `n` writes.
unsafe fn fill<T: Copy>(at: *mut T, value: T, n: usize) {
    for i in 0..n {
        // SAFETY: `i` is below `n`.
        unsafe { at.add(i).write_unaligned(value) }
    }
}

fn write_value(addr: u64, value: u64, bytes: usize) -> Result {
    let target = heap::translate(addr, bytes).ok_or(Error::ILLEGAL_ADDRESS)?;
    // SAFETY: `bytes` (4 or 8) bytes at the target are inside one region, kept mapped by `target`.
    unsafe { std::ptr::copy_nonoverlapping(value.to_ne_bytes().as_ptr(), target.at, bytes) };
    Ok(())
}

thread_local! {
    /// Regions that the kernel running on this worker has asked for: they stay mapped until it returns.
    static PINNED: RefCell<Option<Vec<Arc<Region>>>> = const { RefCell::new(None) };
}

/// Keeps a region mapped until the kernel running on this thread returns. No effect elsewhere.
pub fn pin_for_kernel(region: Arc<Region>) {
    let _ = PINNED.try_with(|pinned| {
        if let Some(list) = pinned.borrow_mut().as_mut() {
            list.push(region);
        }
    });
}

fn run_kernel(launch: &Launch) -> Result {
    let started = Instant::now();
    PINNED.with(|p| *p.borrow_mut() = Some(Vec::new()));
    let code = worker::as_host_function(|| launch.call());
    PINNED.with(|p| *p.borrow_mut() = None);
    crate::time_model::occupy(&launch.name, started);
    if code == 0 { Ok(()) } else { Err(Error(code)) }
}
