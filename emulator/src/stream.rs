//! Streams as the API shows them. How they execute is in `worker`.

use std::sync::Arc;

use cupti_sys::synchronization;

use crate::args::{Memory, Out};
use crate::blocking::{self, Call};
use crate::capture;
use crate::context::{current, stream};
use crate::cupti::activity;
use crate::error::{self, Error, Result};
use crate::graph::NodeKind;
use crate::handles::Table;
use crate::heap;
use crate::op::Op;
use crate::worker::{Role, Stream};

use Role::{Legacy, PerThread};

/// Streams that programs made.
pub static STREAMS: Table<Stream> = Table::new();

type HostFunction = Option<extern "C" fn(Memory)>;
type Callback = Option<extern "C" fn(usize, u32, Memory)>;

entry_points! {
    cuStreamCreate(out: Out<usize>, flags: u32) => create(out, flags, 0);
    cuStreamCreateWithPriority(out: Out<usize>, flags: u32, priority: i32) => create(out, flags, priority);
    cuStreamDestroy_v2(hStream: usize) => destroy(hStream);
    cuStreamQuery(hStream: usize) => query(stream(hStream, Legacy)?);
    cuStreamQuery_ptsz(hStream: usize) => query(stream(hStream, PerThread)?);
    cuStreamSynchronize(hStream: usize) => synchronize(stream(hStream, Legacy)?);
    cuStreamSynchronize_ptsz(hStream: usize) => synchronize(stream(hStream, PerThread)?);
    cuStreamGetPriority(hStream: usize, out: Out<i32>) => out.set(stream(hStream, Legacy)?.priority);
    cuStreamGetPriority_ptsz(hStream: usize, out: Out<i32>) => out.set(stream(hStream, PerThread)?.priority);
    cuStreamGetFlags(hStream: usize, out: Out<u32>) => out.set(stream(hStream, Legacy)?.flags);
    cuStreamGetFlags_ptsz(hStream: usize, out: Out<u32>) => out.set(stream(hStream, PerThread)?.flags);
    cuStreamGetId(hStream: usize, out: Out<u64>) => out.set(stream(hStream, Legacy)?.id.into());
    cuStreamGetId_ptsz(hStream: usize, out: Out<u64>) => out.set(stream(hStream, PerThread)?.id.into());
    cuStreamGetCtx(hStream: usize, out: Out<usize>) => out.set(stream(hStream, Legacy)?.context.handle);
    cuStreamGetCtx_ptsz(hStream: usize, out: Out<usize>) => out.set(stream(hStream, PerThread)?.context.handle);
    cuStreamGetDevice(hStream: usize, out: Out<i32>) => stream(hStream, Legacy).and_then(|_| out.set(0));
    cuStreamGetDevice_ptsz(hStream: usize, out: Out<i32>) => stream(hStream, PerThread).and_then(|_| out.set(0));
    cuStreamCopyAttributes(dst: usize, src: usize) => stream(dst, Legacy).and(stream(src, Legacy)).map(drop);
    cuStreamCopyAttributes_ptsz(dst: usize, src: usize) => stream(dst, PerThread).and(stream(src, PerThread)).map(drop);
    cuLaunchHostFunc(hStream: usize, function: HostFunction, user: Memory) => host_function(stream(hStream, Legacy)?, function, user);
    cuLaunchHostFunc_ptsz(hStream: usize, function: HostFunction, user: Memory) => host_function(stream(hStream, PerThread)?, function, user);
    cuStreamAddCallback(hStream: usize, callback: Callback, user: Memory, flags: u32)
        => add_callback(hStream, stream(hStream, Legacy)?, callback, user, flags);
    cuStreamAddCallback_ptsz(hStream: usize, callback: Callback, user: Memory, flags: u32)
        => add_callback(hStream, stream(hStream, PerThread)?, callback, user, flags);
    cuStreamWriteValue32_v2(hStream: usize, addr: u64, value: u32, flags: u32) => write(stream(hStream, Legacy)?, addr, value.into(), 4, flags);
    cuStreamWriteValue32_v2_ptsz(hStream: usize, addr: u64, value: u32, flags: u32) => write(stream(hStream, PerThread)?, addr, value.into(), 4, flags);
    cuStreamWriteValue64_v2(hStream: usize, addr: u64, value: u64, flags: u32) => write(stream(hStream, Legacy)?, addr, value, 8, flags);
    cuStreamWriteValue64_v2_ptsz(hStream: usize, addr: u64, value: u64, flags: u32) => write(stream(hStream, PerThread)?, addr, value, 8, flags);
}

fn create(out: Out<usize>, flags: u32, priority: i32) -> Result {
    out.check()?;
    let context = current()?;
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    // Out of range priorities are clamped, as documented.
    let made = Stream::new(&context, Role::Created, flags, priority.clamp(-5, 0));
    STREAMS.insert(made.handle, made.clone());
    out.set(made.handle)
}

fn destroy(handle: usize) -> Result {
    if handle <= 2 {
        return Err(Error::INVALID_HANDLE); // default streams can't be destroyed
    }
    let ended = STREAMS.remove(handle).ok_or(Error::INVALID_HANDLE)?;
    capture::abandon(&ended);
    ended.retire();
    blocking::rule(Call::StreamDestroy).wait(&ended.context, Some(&ended), None);
    Ok(())
}

fn query(stream: Arc<Stream>) -> Result {
    capture::check_stream_call(&stream)?;
    stream.context.check()?;
    blocking::rule(Call::Query).wait(&stream.context, Some(&stream), None);
    let idle = stream.is_idle() && stream.context.implicit_order(&stream).iter().all(|t| t.is_complete());
    if idle { stream.context.check() } else { Err(Error::NOT_READY) }
}

fn synchronize(stream: Arc<Stream>) -> Result {
    capture::check_stream_call(&stream)?;
    stream.context.check()?;
    let start_ns = activity::sync_start_ns();
    // The legacy default stream also stands for every blocking stream.
    if stream.role == Role::Legacy {
        for ticket in stream.context.implicit_order(&stream) {
            ticket.wait();
        }
    }
    blocking::rule(Call::StreamSynchronize).wait(&stream.context, Some(&stream), None);
    let result = stream.context.check();
    let (context, code) = (stream.context.uid, error::code(result));
    activity::synchronised(
        synchronization::STREAM_SYNCHRONIZE,
        start_ns,
        context,
        Some(stream.id),
        None,
        code,
    );
    result
}

fn host_function(stream: Arc<Stream>, function: HostFunction, user: Memory) -> Result {
    let function = function.ok_or(Error::INVALID_VALUE)?;
    capture::submit_as(&stream, Op::HostFunction(function, user as usize), NodeKind::Host)?;
    blocking::rule(Call::HostFunction).wait(&stream.context, Some(&stream), None);
    Ok(())
}

fn add_callback(named: usize, stream: Arc<Stream>, callback: Callback, user: Memory, flags: u32) -> Result {
    let callback = callback.ok_or(Error::INVALID_VALUE)?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    if capture::is_capturing(&stream) {
        capture::invalidate(&stream);
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    capture::submit(&stream, Op::Callback(callback, named, user as usize)).map(drop)
}

fn write(stream: Arc<Stream>, addr: u64, value: u64, bytes: usize, flags: u32) -> Result {
    if flags & !1 != 0 || !addr.is_multiple_of(bytes as u64) || heap::translate(addr, bytes).is_none() {
        return Err(Error::INVALID_VALUE);
    }
    if capture::is_capturing(&stream) {
        return Err(Error::NOT_SUPPORTED);
    }
    capture::submit(&stream, Op::Write(addr, value, bytes)).map(drop)
}
