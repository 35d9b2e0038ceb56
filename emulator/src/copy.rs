//! Copies and memsets: what the caller meant, whether its pointers are good, and whether the host waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::{Memcpy2D, Memcpy3D, MemcpyPeer};
use crate::args::{In, Memory as Untyped};
use crate::blocking::{self, Blocks, Call, Direction, Memory};
use crate::capture;
use crate::context::{CONTEXTS, current, stream};
use crate::error::{Error, Result};
use crate::heap::{self, Kind};
use crate::op::{Copy3, Op, Set2, Side};
use crate::worker::{Role, Stream};

use Role::{Legacy, PerThread};

/// Where a caller says that an address lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    Host,
    Device,
    Unified,
}
use Claim::{Device as OnDevice, Host as OnHost, Unified};

entry_points! {
    cuMemcpy(dst: u64, src: u64, n: usize) [not_while_capturing] => sync((dst, Unified), (src, Unified), n, Legacy);
    cuMemcpy_ptds(dst: u64, src: u64, n: usize) [not_while_capturing] => sync((dst, Unified), (src, Unified), n, PerThread);
    cuMemcpyHtoD_v2(dst: u64, src: Untyped, n: usize) [not_while_capturing] => sync((dst, OnDevice), (src as u64, OnHost), n, Legacy);
    cuMemcpyHtoD_v2_ptds(dst: u64, src: Untyped, n: usize) [not_while_capturing] => sync((dst, OnDevice), (src as u64, OnHost), n, PerThread);
    cuMemcpyDtoH_v2(dst: Untyped, src: u64, n: usize) [not_while_capturing] => sync((dst as u64, OnHost), (src, OnDevice), n, Legacy);
    cuMemcpyDtoH_v2_ptds(dst: Untyped, src: u64, n: usize) [not_while_capturing] => sync((dst as u64, OnHost), (src, OnDevice), n, PerThread);
    cuMemcpyDtoD_v2(dst: u64, src: u64, n: usize) [not_while_capturing] => sync((dst, OnDevice), (src, OnDevice), n, Legacy);
    cuMemcpyDtoD_v2_ptds(dst: u64, src: u64, n: usize) [not_while_capturing] => sync((dst, OnDevice), (src, OnDevice), n, PerThread);
    cuMemcpyPeer(dst: u64, dstContext: usize, src: u64, srcContext: usize, n: usize) [not_while_capturing]
        => peers(dstContext, srcContext).and_then(|()| sync((dst, OnDevice), (src, OnDevice), n, Legacy));
    cuMemcpyPeer_ptds(dst: u64, dstContext: usize, src: u64, srcContext: usize, n: usize) [not_while_capturing]
        => peers(dstContext, srcContext).and_then(|()| sync((dst, OnDevice), (src, OnDevice), n, PerThread));

    cuMemcpyAsync(dst: u64, src: u64, n: usize, hStream: usize) => asynchronous((dst, Unified), (src, Unified), n, stream(hStream, Legacy)?);
    cuMemcpyAsync_ptsz(dst: u64, src: u64, n: usize, hStream: usize) => asynchronous((dst, Unified), (src, Unified), n, stream(hStream, PerThread)?);
    cuMemcpyHtoDAsync_v2(dst: u64, src: Untyped, n: usize, hStream: usize) => asynchronous((dst, OnDevice), (src as u64, OnHost), n, stream(hStream, Legacy)?);
    cuMemcpyHtoDAsync_v2_ptsz(dst: u64, src: Untyped, n: usize, hStream: usize) => asynchronous((dst, OnDevice), (src as u64, OnHost), n, stream(hStream, PerThread)?);
    cuMemcpyDtoHAsync_v2(dst: Untyped, src: u64, n: usize, hStream: usize) => asynchronous((dst as u64, OnHost), (src, OnDevice), n, stream(hStream, Legacy)?);
    cuMemcpyDtoHAsync_v2_ptsz(dst: Untyped, src: u64, n: usize, hStream: usize) => asynchronous((dst as u64, OnHost), (src, OnDevice), n, stream(hStream, PerThread)?);
    cuMemcpyDtoDAsync_v2(dst: u64, src: u64, n: usize, hStream: usize) => asynchronous((dst, OnDevice), (src, OnDevice), n, stream(hStream, Legacy)?);
    cuMemcpyDtoDAsync_v2_ptsz(dst: u64, src: u64, n: usize, hStream: usize) => asynchronous((dst, OnDevice), (src, OnDevice), n, stream(hStream, PerThread)?);
    cuMemcpyPeerAsync(dst: u64, dstContext: usize, src: u64, srcContext: usize, n: usize, hStream: usize)
        => peers(dstContext, srcContext).and_then(|()| asynchronous((dst, OnDevice), (src, OnDevice), n, stream(hStream, Legacy)?));
    cuMemcpyPeerAsync_ptsz(dst: u64, dstContext: usize, src: u64, srcContext: usize, n: usize, hStream: usize)
        => peers(dstContext, srcContext).and_then(|()| asynchronous((dst, OnDevice), (src, OnDevice), n, stream(hStream, PerThread)?));

    cuMemcpy2D_v2(copy: In<Memcpy2D>) [not_while_capturing] => shaped(copy.get()?.into(), Call::CopySync, stream(0, Legacy)?);
    cuMemcpy2D_v2_ptds(copy: In<Memcpy2D>) [not_while_capturing] => shaped(copy.get()?.into(), Call::CopySync, stream(0, PerThread)?);
    cuMemcpy2DUnaligned_v2(copy: In<Memcpy2D>) [not_while_capturing] => shaped(copy.get()?.into(), Call::CopySync, stream(0, Legacy)?);
    cuMemcpy2DUnaligned_v2_ptds(copy: In<Memcpy2D>) [not_while_capturing] => shaped(copy.get()?.into(), Call::CopySync, stream(0, PerThread)?);
    cuMemcpy2DAsync_v2(copy: In<Memcpy2D>, hStream: usize) => shaped(copy.get()?.into(), Call::CopyAsync, stream(hStream, Legacy)?);
    cuMemcpy2DAsync_v2_ptsz(copy: In<Memcpy2D>, hStream: usize) => shaped(copy.get()?.into(), Call::CopyAsync, stream(hStream, PerThread)?);
    cuMemcpy3D_v2(copy: In<Memcpy3D>) [not_while_capturing] => shaped(copy.get()?, Call::CopySync, stream(0, Legacy)?);
    cuMemcpy3D_v2_ptds(copy: In<Memcpy3D>) [not_while_capturing] => shaped(copy.get()?, Call::CopySync, stream(0, PerThread)?);
    cuMemcpy3DAsync_v2(copy: In<Memcpy3D>, hStream: usize) => shaped(copy.get()?, Call::CopyAsync, stream(hStream, Legacy)?);
    cuMemcpy3DAsync_v2_ptsz(copy: In<Memcpy3D>, hStream: usize) => shaped(copy.get()?, Call::CopyAsync, stream(hStream, PerThread)?);
    cuMemcpy3DPeer(copy: In<MemcpyPeer>) [not_while_capturing] => shaped(copy.get()?.checked()?, Call::CopySync, stream(0, Legacy)?);
    cuMemcpy3DPeer_ptds(copy: In<MemcpyPeer>) [not_while_capturing] => shaped(copy.get()?.checked()?, Call::CopySync, stream(0, PerThread)?);
    cuMemcpy3DPeerAsync(copy: In<MemcpyPeer>, hStream: usize) => shaped(copy.get()?.checked()?, Call::CopyAsync, stream(hStream, Legacy)?);
    cuMemcpy3DPeerAsync_ptsz(copy: In<MemcpyPeer>, hStream: usize) => shaped(copy.get()?.checked()?, Call::CopyAsync, stream(hStream, PerThread)?);

    cuMemsetD8_v2(dst: u64, value: u8, n: usize) [not_while_capturing] => set_flat(dst, value.into(), 1, n, Call::MemsetSync, stream(0, Legacy)?);
    cuMemsetD8_v2_ptds(dst: u64, value: u8, n: usize) [not_while_capturing] => set_flat(dst, value.into(), 1, n, Call::MemsetSync, stream(0, PerThread)?);
    cuMemsetD16_v2(dst: u64, value: u16, n: usize) [not_while_capturing] => set_flat(dst, value.into(), 2, n, Call::MemsetSync, stream(0, Legacy)?);
    cuMemsetD16_v2_ptds(dst: u64, value: u16, n: usize) [not_while_capturing] => set_flat(dst, value.into(), 2, n, Call::MemsetSync, stream(0, PerThread)?);
    cuMemsetD32_v2(dst: u64, value: u32, n: usize) [not_while_capturing] => set_flat(dst, value, 4, n, Call::MemsetSync, stream(0, Legacy)?);
    cuMemsetD32_v2_ptds(dst: u64, value: u32, n: usize) [not_while_capturing] => set_flat(dst, value, 4, n, Call::MemsetSync, stream(0, PerThread)?);
    cuMemsetD8Async(dst: u64, value: u8, n: usize, hStream: usize) => set_flat(dst, value.into(), 1, n, Call::MemsetAsync, stream(hStream, Legacy)?);
    cuMemsetD8Async_ptsz(dst: u64, value: u8, n: usize, hStream: usize) => set_flat(dst, value.into(), 1, n, Call::MemsetAsync, stream(hStream, PerThread)?);
    cuMemsetD16Async(dst: u64, value: u16, n: usize, hStream: usize) => set_flat(dst, value.into(), 2, n, Call::MemsetAsync, stream(hStream, Legacy)?);
    cuMemsetD16Async_ptsz(dst: u64, value: u16, n: usize, hStream: usize) => set_flat(dst, value.into(), 2, n, Call::MemsetAsync, stream(hStream, PerThread)?);
    cuMemsetD32Async(dst: u64, value: u32, n: usize, hStream: usize) => set_flat(dst, value, 4, n, Call::MemsetAsync, stream(hStream, Legacy)?);
    cuMemsetD32Async_ptsz(dst: u64, value: u32, n: usize, hStream: usize) => set_flat(dst, value, 4, n, Call::MemsetAsync, stream(hStream, PerThread)?);
    cuMemsetD2D8_v2(dst: u64, pitch: usize, value: u8, w: usize, h: usize) [not_while_capturing] => set(dst, pitch, value.into(), 1, (w, h), Call::MemsetSync, stream(0, Legacy)?);
    cuMemsetD2D8_v2_ptds(dst: u64, pitch: usize, value: u8, w: usize, h: usize) [not_while_capturing] => set(dst, pitch, value.into(), 1, (w, h), Call::MemsetSync, stream(0, PerThread)?);
    cuMemsetD2D16_v2(dst: u64, pitch: usize, value: u16, w: usize, h: usize) [not_while_capturing] => set(dst, pitch, value.into(), 2, (w, h), Call::MemsetSync, stream(0, Legacy)?);
    cuMemsetD2D16_v2_ptds(dst: u64, pitch: usize, value: u16, w: usize, h: usize) [not_while_capturing] => set(dst, pitch, value.into(), 2, (w, h), Call::MemsetSync, stream(0, PerThread)?);
    cuMemsetD2D32_v2(dst: u64, pitch: usize, value: u32, w: usize, h: usize) [not_while_capturing] => set(dst, pitch, value, 4, (w, h), Call::MemsetSync, stream(0, Legacy)?);
    cuMemsetD2D32_v2_ptds(dst: u64, pitch: usize, value: u32, w: usize, h: usize) [not_while_capturing] => set(dst, pitch, value, 4, (w, h), Call::MemsetSync, stream(0, PerThread)?);
    cuMemsetD2D8Async(dst: u64, pitch: usize, value: u8, w: usize, h: usize, hStream: usize) => set(dst, pitch, value.into(), 1, (w, h), Call::MemsetAsync, stream(hStream, Legacy)?);
    cuMemsetD2D8Async_ptsz(dst: u64, pitch: usize, value: u8, w: usize, h: usize, hStream: usize) => set(dst, pitch, value.into(), 1, (w, h), Call::MemsetAsync, stream(hStream, PerThread)?);
    cuMemsetD2D16Async(dst: u64, pitch: usize, value: u16, w: usize, h: usize, hStream: usize) => set(dst, pitch, value.into(), 2, (w, h), Call::MemsetAsync, stream(hStream, Legacy)?);
    cuMemsetD2D16Async_ptsz(dst: u64, pitch: usize, value: u16, w: usize, h: usize, hStream: usize) => set(dst, pitch, value.into(), 2, (w, h), Call::MemsetAsync, stream(hStream, PerThread)?);
    cuMemsetD2D32Async(dst: u64, pitch: usize, value: u32, w: usize, h: usize, hStream: usize) => set(dst, pitch, value, 4, (w, h), Call::MemsetAsync, stream(hStream, Legacy)?);
    cuMemsetD2D32Async_ptsz(dst: u64, pitch: usize, value: u32, w: usize, h: usize, hStream: usize) => set(dst, pitch, value, 4, (w, h), Call::MemsetAsync, stream(hStream, PerThread)?);
}

fn peers(a: usize, b: usize) -> Result {
    if CONTEXTS.get(a).is_some() && CONTEXTS.get(b).is_some() { Ok(()) } else { Err(Error::INVALID_CONTEXT) }
}

fn sync(dst: (u64, Claim), src: (u64, Claim), n: usize, default: Role) -> Result {
    flat(dst, src, n, Call::CopySync, stream(0, default)?)
}

fn asynchronous(dst: (u64, Claim), src: (u64, Claim), n: usize, stream: Arc<Stream>) -> Result {
    flat(dst, src, n, Call::CopyAsync, stream)
}

fn flat(dst: (u64, Claim), src: (u64, Claim), n: usize, call: Call, stream: Arc<Stream>) -> Result {
    current()?;
    if n == 0 {
        return Ok(());
    }
    let side = |(addr, claim)| Ok(Side::flat(addr, kind_of(addr, claim)?, n));
    let copy = Copy3 {
        dst: side(dst)?,
        src: side(src)?,
        width: n,
        height: 1,
        depth: 1,
        asynchronous: call == Call::CopyAsync,
    };
    self::copy(copy, call, &stream)
}

/// What lies at an address, if it can be what the caller claims.
fn kind_of(addr: u64, claim: Claim) -> Result<Kind> {
    let known = heap::find(addr).map(|r| r.kind);
    match (known, claim) {
        (Some(Kind::Device), OnHost) | (None, OnDevice) => Err(Error::INVALID_VALUE),
        (Some(kind), _) => Ok(kind),
        (None, _) if addr == 0 || heap::is_device_address(addr) => Err(Error::INVALID_VALUE),
        (None, _) => Ok(Kind::Pageable),
    }
}

/// A copy as `CUDA_MEMCPY3D` describes it.
pub fn from_descriptor(c: &Memcpy3D) -> Result<Copy3> {
    let (w, h, d) = (c.width, c.height, c.depth);
    let side = |s: &crate::abi::Side3| {
        if s.array != 0 || s.memory_type == 3 {
            return Err(Error::NOT_SUPPORTED); // no arrays here
        }
        let (base, claim) = match s.memory_type {
            1 => (s.host, OnHost),
            2 => (s.device, OnDevice),
            4 => (s.device, Unified),
            _ => return Err(Error::INVALID_VALUE),
        };
        let pitch = if s.pitch == 0 { s.x.checked_add(w).ok_or(Error::INVALID_VALUE)? } else { s.pitch };
        if h > 1 && s.x.checked_add(w).is_none_or(|end| end > pitch) {
            return Err(Error::INVALID_VALUE);
        }
        let rows = if s.height == 0 { s.y.saturating_add(h) } else { s.height };
        if d > 1 && s.y.saturating_add(h) > rows {
            return Err(Error::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(rows).ok_or(Error::INVALID_VALUE)?;
        let offset = s.z.checked_mul(slice).and_then(|z| Some(z + s.y.checked_mul(pitch)? + s.x));
        let addr = offset.and_then(|o| base.checked_add(o as u64)).ok_or(Error::INVALID_VALUE)?;
        Ok(Side { addr, kind: kind_of(addr, claim)?, pitch, slice })
    };
    let copy =
        Copy3 { dst: side(&c.dst)?, src: side(&c.src)?, width: w, height: h, depth: d, asynchronous: true };
    check_span(&copy.dst, &copy)?;
    check_span(&copy.src, &copy)?;
    Ok(copy)
}

fn shaped(c: Memcpy3D, call: Call, stream: Arc<Stream>) -> Result {
    current()?;
    if c.width == 0 || c.height == 0 || c.depth == 0 {
        return Ok(());
    }
    let described = Copy3 { asynchronous: call == Call::CopyAsync, ..from_descriptor(&c)? };
    copy(described, call, &stream)
}

/// Checks that every byte of a side is memory: a bad pointer is an error of the call.
fn check_span(side: &Side, copy: &Copy3) -> Result {
    let span = side.span(copy.width, copy.height, copy.depth).ok_or(Error::INVALID_VALUE)?;
    let good = match side.kind {
        Kind::Pageable => heap::host_range_is_mapped(side.addr, span),
        _ => heap::translate(side.addr, span).is_some(),
    };
    if good { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

fn is_host(kind: Kind) -> bool {
    matches!(kind, Kind::Pageable | Kind::Pinned)
}

/// Direction and deciding memory, as the blocking table asks for them.
fn classify(copy: &Copy3, stream: &Stream) -> (Direction, Memory) {
    let (src, dst) = (copy.src.kind, copy.dst.kind);
    let direction = match (is_host(src), is_host(dst)) {
        (true, false) => Direction::HostToDevice,
        (false, true) => Direction::DeviceToHost,
        (false, false) => Direction::DeviceToDevice,
        (true, true) => Direction::HostToHost,
    };
    let sync_memops = |addr| heap::find(addr).is_some_and(|r| r.sync_memops.load(Ordering::Relaxed));
    let memory = if stream.context.flags.load(Ordering::Relaxed) & 0x80 != 0
        || sync_memops(copy.src.addr)
        || sync_memops(copy.dst.addr)
    {
        Memory::SyncMemops
    } else if src == Kind::Managed || dst == Kind::Managed {
        Memory::Managed
    } else if src == Kind::Pageable || dst == Kind::Pageable {
        Memory::Pageable
    } else if src == Kind::Pinned || dst == Kind::Pinned {
        Memory::Pinned
    } else {
        Memory::Device
    };
    (direction, memory)
}

fn copy(copy: Copy3, call: Call, stream: &Arc<Stream>) -> Result {
    check_span(&copy.dst, &copy)?;
    check_span(&copy.src, &copy)?;
    if capture::is_capturing(stream) {
        return capture::submit(stream, Op::Copy(copy)).map(drop); // a graph node; it reads its source at replay
    }
    let (direction, memory) = classify(&copy, stream);
    let blocks = blocking::copy_rule(call, direction, memory, copy.bytes());
    let pageable_upload = copy.src.kind == Kind::Pageable && direction == Direction::HostToDevice;
    match blocks {
        Blocks::Staging => {
            blocks.wait(&stream.context, Some(stream), None);
            capture::submit(stream, Op::Upload { staged: Arc::new(copy.stage()?), copy })?;
        }
        // The program may change its buffer as soon as the call is back.
        Blocks::No if pageable_upload => {
            capture::submit(stream, Op::Upload { staged: Arc::new(copy.stage()?), copy })?;
        }
        _ => {
            let ticket = capture::submit(stream, Op::Copy(copy))?;
            blocks.wait(&stream.context, Some(stream), ticket.as_ref());
        }
    }
    if blocks == Blocks::No { Ok(()) } else { stream.context.check() }
}

fn set_flat(dst: u64, value: u32, element: usize, n: usize, call: Call, stream: Arc<Stream>) -> Result {
    let pitch = n.checked_mul(element).ok_or(Error::INVALID_VALUE)?;
    set(dst, pitch, value, element, (n, 1), call, stream)
}

/// Checks a memset's arguments.
pub fn checked_set(set: Set2) -> Result<Set2> {
    let align = set.element as u64;
    if !matches!(set.element, 1 | 2 | 4) || !set.addr.is_multiple_of(align) {
        return Err(Error::INVALID_VALUE);
    }
    let row = set.width.checked_mul(set.element).ok_or(Error::INVALID_VALUE)?;
    if set.height > 1 && (set.pitch < row || !(set.pitch as u64).is_multiple_of(align)) {
        return Err(Error::INVALID_VALUE);
    }
    let span = set.span().ok_or(Error::INVALID_VALUE)?;
    if span > 0 && heap::translate(set.addr, span).is_none() {
        return Err(Error::INVALID_VALUE);
    }
    Ok(set)
}

fn set(
    addr: u64,
    pitch: usize,
    value: u32,
    element: usize,
    (width, height): (usize, usize),
    call: Call,
    stream: Arc<Stream>,
) -> Result {
    current()?;
    let set = checked_set(Set2 { addr, pitch, value, element, width, height })?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let memory = match heap::find(addr).map(|r| r.kind) {
        Some(Kind::Pinned) => Memory::Pinned,
        Some(Kind::Managed) => Memory::Managed,
        _ => Memory::Device,
    };
    let blocks = blocking::memset_rule(call, memory);
    let ticket = capture::submit(&stream, Op::Set(set))?;
    if blocks != Blocks::No {
        blocks.wait(&stream.context, Some(&stream), ticket.as_ref());
        return stream.context.check();
    }
    Ok(())
}
