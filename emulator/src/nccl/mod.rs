//! NCCL for processes on the emulated device: stands in for `libnccl.so.2`.
//!
//! In: calls of NCCL's public functions, from one process (or thread) per rank. Out: the documented results. A collective is an
//! operation of its stream like a kernel: the call returns at once, the stream's worker does the work when it gets there, and
//! the kernel record that a tool sees has the name that NCCL's kernels have. Ranks meet and exchange data over Unix sockets,
//! so all of them are on one host. Sums are made in the order of the ranks, on one of them: the same inputs give the same
//! bits on every rank in every run.
//!
//! A rank that is gone is an error, not a hang: the collective fails, the communicator's asynchronous error is
//! `ncclRemoteError`, and the context has the sticky error `CUDA_ERROR_LAUNCH_FAILED`.
//!
//! What it must never do: hold the calling thread for another rank outside of `ncclCommInitRank`.
//!
//! Not here: point to point, splitting, registered buffers, own reduction operators, reductions of 16- and 8-bit floats other than
//! bfloat16, several ranks per thread in `ncclGroupStart`. A program that needs one does not find the symbol, or gets
//! `ncclInvalidUsage` with the reason in `ncclGetLastError`.

mod collective;
mod communicator;
mod number;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

pub use collective::Collective;
use collective::{Kind, Operator};
use communicator::{Communicator, UniqueId};
use number::Number;

use crate::args::Out;
use crate::context;
use crate::handles::{Table, lock};
use crate::op::Op;
use crate::worker::Role;
use crate::{capture, process};

/// NCCL 2.25.1, which came with CUDA 12.8.
const VERSION: i32 = 22501;

/// `ncclResult_t`, with what `ncclGetLastError` says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub why: String,
}

/// Codes of `ncclResult_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // named as in nccl.h
pub enum Code {
    UnhandledCudaError = 1,
    SystemError = 2,
    InvalidArgument = 4,
    InvalidUsage = 5,
    RemoteError = 6,
}

pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(code: Code, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }
}

impl From<crate::error::Error> for Failure {
    fn from(error: crate::error::Error) -> Self {
        Failure::new(Code::UnhandledCudaError, format!("the driver answered with error {}", error.0))
    }
}

static COMMUNICATORS: Table<Communicator> = Table::new();
static LAST_ERROR: Mutex<Option<CString>> = Mutex::new(None);

thread_local! {
    /// Open `ncclGroupStart` calls of this thread, and the first failure inside.
    static GROUP: (Cell<u32>, RefCell<Option<Failure>>) = const { (Cell::new(0), RefCell::new(None)) };
}

/// Runs one call: checks, body. No panic leaves it.
fn answer(name: &'static str, body: impl FnOnce() -> Result) -> u32 {
    if process::check_alive().is_err() {
        return Code::UnhandledCudaError as u32; // no lock after fork
    }
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Failure::new(Code::SystemError, "a fault inside the emulated NCCL")));
    let Err(failure) = result else { return 0 };
    *lock(&LAST_ERROR) = CString::new(format!("{name}: {}", failure.why)).ok();
    GROUP.with(|(depth, first)| {
        if depth.get() > 0 {
            first.borrow_mut().get_or_insert_with(|| failure.clone());
        }
    });
    failure.code as u32
}

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of NCCL.")]
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub extern "C" fn $name($($arg: $ty),*) -> u32 {
                answer(stringify!($name), || $body)
            }
        )*
    };
}

functions! {
    ncclGetVersion(version: Out<i32>) => out(version, VERSION);
    ncclGetUniqueId(id: Out<UniqueId>) => out(id, UniqueId::new()?);
    ncclCommInitRank(comm: Out<usize>, nranks: i32, id: UniqueId, rank: i32) => init(comm, nranks, &id, rank);
    ncclCommInitRankConfig(comm: Out<usize>, nranks: i32, id: UniqueId, rank: i32, config: *const c_void)
        => { let _ = config; init(comm, nranks, &id, rank) };
    ncclCommFinalize(comm: usize) => find(comm).map(drop);
    ncclCommDestroy(comm: usize) => COMMUNICATORS.remove(comm).map(drop).ok_or_else(unknown);
    ncclCommAbort(comm: usize) => { COMMUNICATORS.remove(comm).ok_or_else(unknown)?.abort(); Ok(()) };
    ncclCommGetAsyncError(comm: usize, error: Out<u32>) => out(error, find(comm)?.asynchronous_error());
    ncclCommCount(comm: usize, count: Out<i32>) => out(count, find(comm)?.ranks as i32);
    ncclCommUserRank(comm: usize, rank: Out<i32>) => out(rank, find(comm)?.rank as i32);
    ncclCommCuDevice(comm: usize, device: Out<i32>) => { find(comm)?; out(device, 0) };
    ncclAllReduce(send: u64, recv: u64, count: usize, number: u32, operator: u32, comm: usize, stream: usize)
        => issue(Kind::AllReduce, send, recv, count, number, operator, 0, comm, stream);
    ncclReduce(send: u64, recv: u64, count: usize, number: u32, operator: u32, root: i32, comm: usize, stream: usize)
        => issue(Kind::Reduce, send, recv, count, number, operator, root, comm, stream);
    ncclBroadcast(send: u64, recv: u64, count: usize, number: u32, root: i32, comm: usize, stream: usize)
        => issue(Kind::Broadcast, send, recv, count, number, 0, root, comm, stream);
    ncclBcast(buffer: u64, count: usize, number: u32, root: i32, comm: usize, stream: usize)
        => issue(Kind::Broadcast, buffer, buffer, count, number, 0, root, comm, stream);
    ncclAllGather(send: u64, recv: u64, count: usize, number: u32, comm: usize, stream: usize)
        => issue(Kind::AllGather, send, recv, count, number, 0, 0, comm, stream);
    ncclReduceScatter(send: u64, recv: u64, count: usize, number: u32, operator: u32, comm: usize, stream: usize)
        => issue(Kind::ReduceScatter, send, recv, count, number, operator, 0, comm, stream);
    ncclGroupStart() => { GROUP.with(|(depth, _)| depth.set(depth.get() + 1)); Ok(()) };
    ncclGroupEnd() => end_group();
}

/// `ncclGetErrorString` of NCCL.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn ncclGetErrorString(code: u32) -> *const c_char {
    let text: &CStr = match code {
        0 => c"no error",
        1 => c"unhandled cuda error",
        2 => c"unhandled system error",
        3 => c"internal error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// `ncclGetLastError` of NCCL: why the last call that failed did. Valid until the next one fails.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn ncclGetLastError(comm: usize) -> *const c_char {
    let _ = comm;
    if process::forked() {
        return c"".as_ptr(); // no lock after fork
    }
    lock(&LAST_ERROR).as_ref().map_or(c"".as_ptr(), |text| text.as_ptr())
}

fn unknown() -> Failure {
    Failure::new(Code::InvalidArgument, "there is no such communicator (destroyed?)")
}

fn find(comm: usize) -> Result<Arc<Communicator>> {
    COMMUNICATORS.get(comm).ok_or_else(unknown)
}

fn out<T>(place: Out<T>, value: T) -> Result {
    place.set(value).map_err(|_| Failure::new(Code::InvalidArgument, "a pointer for the answer is null"))
}

fn init(place: Out<usize>, ranks: i32, id: &UniqueId, rank: i32) -> Result {
    let invalid = |why: String| Failure::new(Code::InvalidArgument, why);
    place.check().map_err(|_| invalid("the pointer for the communicator is null".to_owned()))?;
    let (Ok(size), Ok(number)) = (usize::try_from(ranks), usize::try_from(rank)) else {
        return Err(invalid(format!("rank {rank} of {ranks}")));
    };
    if number >= size {
        return Err(invalid(format!("rank {rank} of {ranks}")));
    }
    if GROUP.with(|(depth, _)| depth.get()) > 0 {
        return Err(Failure::new(
            Code::InvalidUsage,
            "the emulated NCCL joins one rank per thread, outside of ncclGroupStart",
        ));
    }
    context::current()?;
    let joined = Communicator::join(id, number, size)?;
    let handle = joined.handle;
    COMMUNICATORS.insert(handle, joined);
    out(place, handle)
}

#[allow(clippy::too_many_arguments)]
fn issue(
    kind: Kind,
    send: u64,
    recv: u64,
    count: usize,
    number: u32,
    operator: u32,
    root: i32,
    comm: usize,
    stream: usize,
) -> Result {
    let communicator = find(comm)?;
    let root = usize::try_from(root).ok().filter(|&root| root < communicator.ranks);
    let root = root.ok_or_else(|| Failure::new(Code::InvalidArgument, "the root is no rank"))?;
    let number = Number::of(number)?;
    let operator = Operator::of(operator)?;
    let stream = context::stream(stream, Role::Legacy)?;
    stream.context.check()?;
    let collective = Collective::new(kind, send, recv, count, number, operator, root, communicator.clone())?;
    // One communicator does one thing at a time, whatever the streams.
    let mut last = lock(&communicator.last);
    let after = last.iter().cloned().collect();
    if let Some(ticket) = capture::submit_after(&stream, Op::Collective(Arc::new(collective)), after)? {
        *last = Some(ticket);
    }
    Ok(())
}

fn end_group() -> Result {
    GROUP.with(|(depth, first)| {
        let Some(rest) = depth.get().checked_sub(1) else {
            return Err(Failure::new(Code::InvalidUsage, "ncclGroupEnd without ncclGroupStart"));
        };
        depth.set(rest);
        if rest > 0 {
            return Ok(());
        }
        first.borrow_mut().take().map_or(Ok(()), Err)
    })
}

#[cfg(test)]
mod tests;
