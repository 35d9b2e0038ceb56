//! Memory: device, stream-ordered, managed, pinned and registered; pools; what a pointer is.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use crate::args::{In, Memory, Out};
use crate::blocking::{self, Call};
use crate::capture;
use crate::context::{current, current_any, stream};
use crate::error::{Error, Result};
use crate::handles::{self, Table, lock};
use crate::heap::{self, Kind, Origin, Region};
use crate::op::Op;
use crate::worker::{Role, Stream};
use crate::{device, graph};

entry_points! {
    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) => info(free, total);
    cuMemAlloc_v2(dptr: Out<u64>, bytesize: usize) [not_while_capturing] => alloc(dptr, bytesize, Origin::Alloc);
    cuMemAllocPitch_v2(dptr: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32)
        [not_while_capturing] => alloc_pitch(dptr, pitch, width, height, element);
    cuMemAllocManaged(dptr: Out<u64>, bytesize: usize, flags: u32) [not_while_capturing]
        => if matches!(flags, 1 | 2) { alloc(dptr, bytesize, Origin::Managed) } else { Err(Error::INVALID_VALUE) };
    cuMemFree_v2(dptr: u64) [not_while_capturing] => free(dptr);
    cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, dptr: u64) => address_range(base, size, dptr);

    cuMemAllocAsync(dptr: Out<u64>, bytesize: usize, hStream: usize)
        => alloc_async(dptr, bytesize, None, stream(hStream, Role::Legacy)?);
    cuMemAllocAsync_ptsz(dptr: Out<u64>, bytesize: usize, hStream: usize)
        => alloc_async(dptr, bytesize, None, stream(hStream, Role::PerThread)?);
    cuMemAllocFromPoolAsync(dptr: Out<u64>, bytesize: usize, pool: usize, hStream: usize)
        => alloc_async(dptr, bytesize, Some(pool), stream(hStream, Role::Legacy)?);
    cuMemAllocFromPoolAsync_ptsz(dptr: Out<u64>, bytesize: usize, pool: usize, hStream: usize)
        => alloc_async(dptr, bytesize, Some(pool), stream(hStream, Role::PerThread)?);
    cuMemFreeAsync(dptr: u64, hStream: usize) => free_async(dptr, stream(hStream, Role::Legacy)?);
    cuMemFreeAsync_ptsz(dptr: u64, hStream: usize) => free_async(dptr, stream(hStream, Role::PerThread)?);

    cuDeviceGetDefaultMemPool(pool: Out<usize>, dev: i32) => device::check(dev).and_then(|()| pool.set(default_pool()));
    cuDeviceGetMemPool(pool: Out<usize>, dev: i32) => device::check(dev).and_then(|()| pool.set(*lock(&CURRENT_POOL)));
    cuDeviceSetMemPool(dev: i32, pool: usize) => device::check(dev).and_then(|()| set_pool(pool));
    cuMemPoolCreate(pool: Out<usize>, props: In<PoolProperties>) => pool_create(pool, props);
    cuMemPoolDestroy(pool: usize) => pool_destroy(pool);
    cuMemPoolTrimTo(pool: usize, min: usize) => pool_trim(pool, min);
    cuMemPoolGetAttribute(pool: usize, attr: u32, value: Memory) => pool_get(pool, attr, value);
    cuMemPoolSetAttribute(pool: usize, attr: u32, value: Memory) => pool_set(pool, attr, value);
    cuMemPoolSetAccess(pool: usize, map: In<[i32; 3]>, count: usize) => pool_set_access(pool, map, count);
    cuMemPoolGetAccess(flags: Out<u32>, pool: usize, location: In<[i32; 2]>) => pool_get_access(flags, pool, location);

    cuMemHostAlloc(pp: Out<Memory>, bytesize: usize, flags: u32) [not_while_capturing] => host_alloc(pp, bytesize, flags);
    cuMemAllocHost_v2(pp: Out<Memory>, bytesize: usize) [not_while_capturing] => host_alloc(pp, bytesize, 0);
    cuMemFreeHost(p: Memory) [not_while_capturing] => host_free(p as u64);
    cuMemHostRegister_v2(p: Memory, bytesize: usize, flags: u32) [not_while_capturing] => host_register(p as u64, bytesize, flags);
    cuMemHostUnregister(p: Memory) [not_while_capturing] => host_unregister(p as u64);
    cuMemHostGetDevicePointer_v2(dptr: Out<u64>, p: Memory, flags: u32) => device_pointer(dptr, p as u64, flags);
    cuMemHostGetFlags(flags: Out<u32>, p: Memory) => host_flags(flags, p as u64);

    cuPointerGetAttribute(data: Memory, attribute: u32, ptr: u64) => pointer_attribute(data, attribute, ptr);
    cuPointerGetAttributes(n: u32, attributes: In<u32>, data: In<Memory>, ptr: u64)
        => pointer_attributes(n, attributes, data, ptr);
    cuPointerSetAttribute(value: In<u32>, attribute: u32, ptr: u64) => set_pointer_attribute(value, attribute, ptr);

    cuMemAdvise(ptr: u64, count: usize, advice: u32, dev: i32) => advise(ptr, count, advice, dev);
    cuMemAdvise_v2(ptr: u64, count: usize, advice: u32, location: u64) => advise(ptr, count, advice, (location >> 32) as i32);
    cuMemPrefetchAsync(ptr: u64, count: usize, dev: i32, hStream: usize) => prefetch(ptr, count, dev, stream(hStream, Role::Legacy)?);
    cuMemPrefetchAsync_ptsz(ptr: u64, count: usize, dev: i32, hStream: usize) => prefetch(ptr, count, dev, stream(hStream, Role::PerThread)?);
    cuMemPrefetchAsync_v2(ptr: u64, count: usize, location: u64, flags: u32, hStream: usize)
        => prefetch_v2(ptr, count, location, flags, stream(hStream, Role::Legacy)?);
    cuMemPrefetchAsync_v2_ptsz(ptr: u64, count: usize, location: u64, flags: u32, hStream: usize)
        => prefetch_v2(ptr, count, location, flags, stream(hStream, Role::PerThread)?);
    cuStreamAttachMemAsync(hStream: usize, dptr: u64, length: usize, flags: u32)
        => attach(stream(hStream, Role::Legacy)?, dptr, length, flags);
    cuStreamAttachMemAsync_ptsz(hStream: usize, dptr: u64, length: usize, flags: u32)
        => attach(stream(hStream, Role::PerThread)?, dptr, length, flags);
}

fn info(free: Out<usize>, total: Out<usize>) -> Result {
    current()?;
    free.check()?;
    total.set(heap::TOTAL_BYTES)?;
    free.set(heap::TOTAL_BYTES - heap::used_bytes())
}

fn alloc(dptr: Out<u64>, bytes: usize, origin: Origin) -> Result {
    dptr.check()?;
    let context = current()?;
    let region = heap::allocate(bytes, origin, context.uid)?;
    blocking::rule(Call::MemAlloc).wait(&context, None, None);
    dptr.set(region.base)
}

fn alloc_pitch(dptr: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> Result {
    dptr.check()?;
    pitch.check()?;
    if !matches!(element, 4 | 8 | 16) {
        return Err(Error::INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(512).ok_or(Error::INVALID_VALUE)?;
    alloc(dptr, row.checked_mul(height).ok_or(Error::INVALID_VALUE)?, Origin::Alloc)?;
    pitch.set(row)
}

/// The region that starts at `base`, if it came from one of the allocators that `accepts` names.
fn owned(base: u64, accepts: impl Fn(Origin) -> bool, otherwise: Error) -> Result<Arc<Region>> {
    heap::find(base).filter(|r| r.base == base && accepts(r.origin)).ok_or(otherwise)
}

fn free(dptr: u64) -> Result {
    let context = current()?;
    if dptr == 0 {
        return Ok(());
    }
    let accepts = |o| matches!(o, Origin::Alloc | Origin::Managed | Origin::Pool(_));
    let region = owned(dptr, accepts, Error::INVALID_VALUE)?;
    if region.freeing.swap(true, Ordering::AcqRel) {
        return Err(Error::INVALID_VALUE); // freed before, also by another thread or on a stream
    }
    let call = if matches!(region.origin, Origin::Pool(_)) { Call::MemFreeOfPool } else { Call::MemFree };
    blocking::rule(call).wait(&context, None, None);
    heap::free(dptr);
    context.check()
}

fn address_range(base: Out<u64>, size: Out<usize>, dptr: u64) -> Result {
    current()?;
    let region = heap::find(dptr).ok_or(Error::NOT_FOUND)?;
    base.set_if_wanted(region.base);
    size.set_if_wanted(region.bytes);
    Ok(())
}

// ---- stream-ordered allocation and pools

/// `CUmemPoolProps` as far as it is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolProperties {
    alloc_type: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
    win32: usize,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

/// A memory pool: policy only; freed memory goes straight back to the device.
struct Pool {
    handle: usize,
    /// Attributes 1 to 4 by number.
    settings: [AtomicU64; 5],
    high_water: AtomicU64,
    max_bytes: usize,
}

static POOLS: Table<Pool> = Table::new();
static DEFAULT_POOL: LazyLock<usize> = LazyLock::new(|| new_pool(0));
static CURRENT_POOL: LazyLock<Mutex<usize>> = LazyLock::new(|| Mutex::new(*DEFAULT_POOL));

fn new_pool(max_bytes: usize) -> usize {
    let handle = handles::fresh();
    let settings = [0, 1, 1, 1, 0].map(AtomicU64::new);
    POOLS.insert(handle, Arc::new(Pool { handle, settings, high_water: AtomicU64::new(0), max_bytes }));
    handle
}

fn default_pool() -> usize {
    *DEFAULT_POOL
}

fn pool(handle: usize) -> Result<Arc<Pool>> {
    LazyLock::force(&DEFAULT_POOL);
    POOLS.get(handle).ok_or(Error::INVALID_VALUE)
}

fn alloc_async(dptr: Out<u64>, bytes: usize, from: Option<usize>, stream: Arc<Stream>) -> Result {
    dptr.check()?;
    stream.context.check()?;
    let pool = pool(from.unwrap_or_else(|| *lock(&CURRENT_POOL)))?;
    if pool.max_bytes != 0 && heap::used_by_pool(pool.handle) + bytes > pool.max_bytes {
        return Err(Error::OUT_OF_MEMORY);
    }
    let region = heap::allocate(bytes, Origin::Pool(pool.handle), stream.context.uid)?;
    pool.high_water.fetch_max(heap::used_by_pool(pool.handle) as u64, Ordering::Relaxed);
    // The address is valid in stream order; nothing has to happen on the device.
    if let Err(error) = capture::submit_as(&stream, Op::Nothing, graph::NodeKind::MemAlloc) {
        heap::free(region.base);
        return Err(error);
    }
    blocking::rule(Call::MemAllocAsync).wait(&stream.context, Some(&stream), None);
    dptr.set(region.base)
}

fn free_async(dptr: u64, stream: Arc<Stream>) -> Result {
    stream.context.check()?;
    if dptr == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let region = owned(dptr, |o| matches!(o, Origin::Alloc | Origin::Pool(_)), Error::INVALID_VALUE)?;
    if capture::is_capturing(&stream) {
        // Memory of a graph stays until its context ends: the next replay uses it again.
        return capture::submit_as(&stream, Op::Nothing, graph::NodeKind::MemFree).map(drop);
    }
    if region.freeing.swap(true, Ordering::AcqRel) {
        return Err(Error::INVALID_VALUE);
    }
    let submitted = capture::submit_as(&stream, Op::Free(dptr), graph::NodeKind::MemFree);
    if submitted.is_err() {
        region.freeing.store(false, Ordering::Release);
    }
    blocking::rule(Call::MemFreeAsync).wait(&stream.context, Some(&stream), None);
    submitted.map(drop)
}

fn set_pool(handle: usize) -> Result {
    pool(handle)?;
    *lock(&CURRENT_POOL) = handle;
    Ok(())
}

fn pool_create(out: Out<usize>, props: In<PoolProperties>) -> Result {
    out.check()?;
    let props = props.get()?;
    if props.alloc_type != 1 || props.location_type != 1 || props.win32 != 0 {
        return Err(Error::INVALID_VALUE);
    }
    if props.handle_types != 0 {
        return Err(Error::NOT_SUPPORTED); // no sharing between processes
    }
    device::check(props.location_id)?;
    out.set(new_pool(props.max_size))
}

fn pool_destroy(handle: usize) -> Result {
    pool(handle)?;
    if handle == default_pool() {
        return Err(Error::INVALID_VALUE);
    }
    let mut current = lock(&CURRENT_POOL);
    if *current == handle {
        *current = default_pool();
    }
    POOLS.remove(handle);
    Ok(())
}

fn pool_trim(handle: usize, _min: usize) -> Result {
    pool(handle)?;
    blocking::rule(Call::MemPoolTrim).wait(&*current()?, None, None);
    Ok(())
}

fn pool_get(handle: usize, attr: u32, value: Memory) -> Result {
    let pool = pool(handle)?;
    let used = heap::used_by_pool(handle) as u64;
    match attr {
        1..=3 => Out(value.cast::<i32>()).set(pool.settings[attr as usize].load(Ordering::Relaxed) as i32),
        4 => Out(value.cast::<u64>()).set(pool.settings[4].load(Ordering::Relaxed)),
        5 | 7 => Out(value.cast::<u64>()).set(used),
        6 | 8 => Out(value.cast::<u64>()).set(pool.high_water.load(Ordering::Relaxed)),
        _ => Err(Error::INVALID_VALUE),
    }
}

fn pool_set(handle: usize, attr: u32, value: Memory) -> Result {
    let pool = pool(handle)?;
    match attr {
        1..=3 => {
            let value = In(value.cast_const().cast::<i32>()).get()?;
            pool.settings[attr as usize].store((value != 0).into(), Ordering::Relaxed);
        }
        4 => pool.settings[4].store(In(value.cast_const().cast::<u64>()).get()?, Ordering::Relaxed),
        6 | 8 if In(value.cast_const().cast::<u64>()).get()? == 0 => {
            pool.high_water.store(heap::used_by_pool(handle) as u64, Ordering::Relaxed);
        }
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

fn pool_set_access(handle: usize, map: In<[i32; 3]>, count: usize) -> Result {
    pool(handle)?;
    for [location_type, id, flags] in map.list(count)? {
        // The device's own access can't be taken away.
        if location_type != 1 || flags != 3 {
            return Err(Error::INVALID_VALUE);
        }
        device::check(id)?;
    }
    Ok(())
}

fn pool_get_access(flags: Out<u32>, handle: usize, location: In<[i32; 2]>) -> Result {
    pool(handle)?;
    let [location_type, id] = location.get()?;
    if location_type != 1 {
        return Err(Error::INVALID_VALUE);
    }
    device::check(id)?;
    flags.set(3)
}

// ---- host memory

fn host_alloc(out: Out<Memory>, bytes: usize, flags: u32) -> Result {
    out.check()?;
    let context = current()?;
    if flags & !7 != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let region = heap::allocate(bytes, Origin::Host(flags), context.uid)?;
    blocking::rule(Call::MemHostAlloc).wait(&context, None, None);
    out.set(region.base as *mut c_void)
}

fn host_free(p: u64) -> Result {
    let context = current()?;
    if p == 0 {
        return Ok(());
    }
    let region = owned(p, |o| matches!(o, Origin::Host(_)), Error::INVALID_VALUE)?;
    if region.freeing.swap(true, Ordering::AcqRel) {
        return Err(Error::INVALID_VALUE);
    }
    blocking::rule(Call::MemFreeHost).wait(&context, None, None);
    heap::free(p);
    context.check()
}

fn host_register(p: u64, bytes: usize, flags: u32) -> Result {
    let context = current()?;
    if bytes == 0 || flags & !0xf != 0 || !heap::host_range_is_mapped(p, bytes) {
        return Err(Error::INVALID_VALUE);
    }
    heap::register(p, bytes, flags, context.uid)?;
    blocking::rule(Call::MemHostRegister).wait(&context, None, None);
    Ok(())
}

fn host_unregister(p: u64) -> Result {
    let context = current()?;
    if p == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let region = owned(p, |o| matches!(o, Origin::Registered(_)), Error::HOST_MEMORY_NOT_REGISTERED)?;
    if region.freeing.swap(true, Ordering::AcqRel) {
        return Err(Error::HOST_MEMORY_NOT_REGISTERED);
    }
    blocking::rule(Call::MemHostUnregister).wait(&context, None, None);
    heap::free(p);
    context.check()
}

fn device_pointer(out: Out<u64>, p: u64, flags: u32) -> Result {
    current()?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    heap::find(p).filter(|r| r.kind == Kind::Pinned).ok_or(Error::INVALID_VALUE)?;
    out.set(p)
}

fn host_flags(out: Out<u32>, p: u64) -> Result {
    current()?;
    match heap::find(p).map(|r| r.origin) {
        // Unified addressing makes all pinned memory mapped (2).
        Some(Origin::Host(flags) | Origin::Registered(flags)) => out.set(flags | 2),
        _ => Err(Error::INVALID_VALUE),
    }
}

// ---- what a pointer is

fn pointer_attribute(data: Memory, attribute: u32, ptr: u64) -> Result {
    current_any()?;
    let region = heap::find(ptr).ok_or(Error::INVALID_VALUE)?;
    write_attribute(data, attribute, ptr, Some(&region))
}

fn pointer_attributes(n: u32, attributes: In<u32>, data: In<Memory>, ptr: u64) -> Result {
    current_any()?;
    let region = heap::find(ptr);
    let wanted = attributes.list(n as usize)?;
    for (attribute, data) in wanted.into_iter().zip(data.list(n as usize)?) {
        write_attribute(data, attribute, ptr, region.as_deref())?;
    }
    Ok(())
}

/// Writes one attribute; for a pointer the driver does not know, the neutral value.
fn write_attribute(data: Memory, attribute: u32, ptr: u64, region: Option<&Region>) -> Result {
    let number = |v: u64| Out(data.cast::<u64>()).set(v);
    let small = |v: u32| Out(data.cast::<u32>()).set(v);
    // These are C++ bools in the documentation: one byte.
    let flag = |v: bool| Out(data.cast::<u8>()).set(v.into());
    let host = region.is_some_and(|r| r.kind == Kind::Pinned);
    let managed = region.is_some_and(|r| r.kind == Kind::Managed);
    match attribute {
        1 => number(region.and_then(|r| context_of(r.context)).unwrap_or(0) as u64),
        2 => small(region.map_or(0, |_| if host { 1 } else { 2 })),
        3 => number(region.map_or(0, |_| ptr)),
        4 => number(if host || managed { ptr } else { 0 }),
        6 => small(region.is_some_and(|r| r.sync_memops.load(Ordering::Relaxed)).into()),
        7 => number(region.map_or(0, |r| r.id)),
        8 => flag(managed),
        9 => small(region.map_or(u32::MAX - 1, |_| 0)), // -2: no device
        10 => flag(false),
        11 | 19 => number(region.map_or(0, |r| r.base)),
        12 | 18 => number(region.map_or(0, |r| r.bytes as u64)),
        13 => flag(region.is_some()),
        14 | 16 => number(if attribute == 16 { region.map_or(0, |_| 3) } else { 0 }),
        15 | 21 => flag(false),
        17 => number(match region.map(|r| r.origin) {
            Some(Origin::Pool(pool)) => pool as u64,
            _ => 0,
        }),
        20 => number(region.map_or(0, |r| r.id)),
        5 => Err(Error::NOT_SUPPORTED),
        _ => Err(Error::INVALID_VALUE),
    }
}

fn context_of(uid: u32) -> Option<usize> {
    let current = current_any().ok()?;
    if current.uid == uid { Some(current.handle) } else { crate::context::CONTEXTS.find(|c| c.uid == uid) }
}

fn set_pointer_attribute(value: In<u32>, attribute: u32, ptr: u64) -> Result {
    let region = heap::find(ptr).ok_or(Error::INVALID_VALUE)?;
    if attribute != 6 {
        return Err(Error::INVALID_VALUE);
    }
    region.sync_memops.store(value.get()? != 0, Ordering::Relaxed);
    Ok(())
}

// ---- managed memory hints: there is one copy of everything, so they only check their arguments

fn managed(ptr: u64, count: usize) -> Result {
    let region = heap::find(ptr).filter(|r| r.kind == Kind::Managed).ok_or(Error::INVALID_VALUE)?;
    let inside = count > 0 && count <= region.bytes - (ptr - region.base) as usize;
    if inside { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// Device 0, or -1 for the host.
fn device_or_host(dev: i32) -> Result {
    if matches!(dev, -1 | 0) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

fn advise(ptr: u64, count: usize, advice: u32, dev: i32) -> Result {
    current()?;
    if !(1..=6).contains(&advice) {
        return Err(Error::INVALID_VALUE);
    }
    device_or_host(dev)?;
    managed(ptr, count)
}

fn prefetch(ptr: u64, count: usize, dev: i32, stream: Arc<Stream>) -> Result {
    device_or_host(dev)?;
    managed(ptr, count)?;
    capture::submit(&stream, Op::Nothing).map(drop)
}

fn prefetch_v2(ptr: u64, count: usize, location: u64, flags: u32, stream: Arc<Stream>) -> Result {
    // `CUmemLocation` {type, id} arrives in one register: device 1, host 2, host NUMA 3 and 4.
    let dev = if location as u32 == 1 { (location >> 32) as i32 } else { -1 };
    if flags != 0 || !(1..=4).contains(&(location as u32)) {
        return Err(Error::INVALID_VALUE);
    }
    prefetch(ptr, count, dev, stream)
}

fn attach(stream: Arc<Stream>, ptr: u64, length: usize, flags: u32) -> Result {
    if !matches!(flags, 1 | 2 | 4) {
        return Err(Error::INVALID_VALUE);
    }
    let region = heap::find(ptr).filter(|r| r.kind == Kind::Managed && r.base == ptr);
    let region = region.ok_or(Error::INVALID_VALUE)?;
    if length != 0 && length != region.bytes {
        return Err(Error::INVALID_VALUE);
    }
    capture::submit(&stream, Op::Nothing).map(drop)
}
