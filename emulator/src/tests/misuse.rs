//! Bad pointers, bad handles, double frees, calls from where none are allowed: an error each time, never a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Device, Gate, function, get, launch, pointer};
use crate::args::{In, Out, Text};
use crate::context::*;
use crate::copy::*;
use crate::device::*;
use crate::event::*;
use crate::graph::*;
use crate::heap::DEVICE_BASE;
use crate::launch::cuLaunchKernel;
use crate::memory::*;
use crate::module::*;
use crate::stream::*;

/// Addresses that are nobody's: null, small, in the device's range, past an allocation, not canonical.
fn bad_addresses(device: &Device) -> Vec<u64> {
    let freed = device.alloc(64);
    assert_eq!(cuMemFree_v2(freed), 0);
    vec![0, 8, DEVICE_BASE - 8, freed, freed + 63, device.alloc(64) + 64, 0xdead_beef_dead_beef, u64::MAX]
}

#[test]
fn copies_and_memsets_refuse_every_bad_address() {
    let device = Device::new();
    let good = device.alloc(64);
    let stream = device.stream(1);
    let mut word = [0u8; 64];
    let host = word.as_mut_ptr().cast::<libc::c_void>();
    for bad in bad_addresses(&device) {
        let as_host = bad as *mut libc::c_void;
        let codes = [
            cuMemcpyHtoD_v2(bad, host, 8),
            cuMemcpyHtoD_v2(good, as_host, 8),
            cuMemcpyDtoH_v2(host, bad, 8),
            cuMemcpyDtoH_v2(as_host, good, 8),
            cuMemcpyDtoD_v2(bad, good, 8),
            cuMemcpyDtoD_v2(good, bad, 8),
            cuMemcpy(bad, good, 8),
            cuMemcpyHtoDAsync_v2(bad, host, 8, stream),
            cuMemcpyDtoHAsync_v2(as_host, good, 8, stream),
            cuMemcpyAsync(good, bad, 8, stream),
            cuMemsetD8_v2(bad, 1, 8),
            cuMemsetD32Async(bad & !3, 1, 2, stream),
            cuMemsetD2D8_v2(bad, 8, 1, 4, 2),
            cuMemFree_v2(if bad == 0 { 1 } else { bad }),
            cuMemFreeAsync(bad, stream),
            cuMemFreeHost(if bad == 0 { std::ptr::dangling_mut() } else { as_host }),
        ];
        assert_eq!(codes, [1; 16], "{bad:#x}");
        assert_eq!(cuMemHostUnregister(as_host), if bad == 0 { 1 } else { 713 });
        assert_eq!(cuMemHostRegister_v2(as_host, 64, 0), if bad == good + 64 { 712 } else { 1 }, "{bad:#x}");
        assert_eq!(cuPointerGetAttribute(host, 2, bad), 1);
        assert_eq!(cuMemGetAddressRange_v2(Out(&mut 0), Out(&mut 0), bad), 500);
    }
    for (bytes, offset) in [(65, 0), (64, 1), (usize::MAX, 0), (usize::MAX - 8, 8)] {
        assert_eq!(cuMemcpyDtoD_v2(good + offset, good, bytes), 1, "{bytes}+{offset}");
        assert_eq!(cuMemsetD8_v2(good + offset, 0, bytes), 1);
    }
    assert_eq!((cuMemsetD16_v2(good + 1, 0, 1), cuMemsetD32_v2(good + 2, 0, 1)), (1, 1), "misaligned");
    assert_eq!(cuCtxSynchronize(), 0, "none of it reached the device");
    assert_eq!(word, [0; 64]);
}

#[test]
fn every_kind_of_memory_is_freed_once_and_by_its_own_function() {
    let device = Device::new();
    let (alloc, pool) = (device.alloc(64), get::<u64>(|o| cuMemAllocAsync(o, 64, 0)));
    let managed: u64 = get(|o| cuMemAllocManaged(o, 64, 1));
    let pinned = device.pinned(64) as u64;
    let mut own = vec![0u8; 64];
    let registered = own.as_mut_ptr() as u64;
    assert_eq!(cuMemHostRegister_v2(registered as *mut _, 64, 0), 0);
    for not_freeable in [pinned, registered, alloc + 1] {
        assert_eq!(cuMemFree_v2(not_freeable), 1);
    }
    for not_pinned in [alloc, managed, registered, pinned + 8] {
        assert_eq!(cuMemFreeHost(not_pinned as *mut _), 1);
    }
    for not_registered in [alloc, managed, pinned] {
        assert_eq!(cuMemHostUnregister(not_registered as *mut _), 713);
    }
    assert_eq!((cuMemFree_v2(alloc), cuMemFree_v2(managed)), (0, 0));
    assert_eq!((cuMemFree_v2(alloc), cuMemFree_v2(managed)), (1, 1));
    assert_eq!((cuMemFreeAsync(pool, 0), cuMemFreeAsync(pool, 0), cuMemFree_v2(pool)), (0, 1, 1));
    assert_eq!((cuMemFreeHost(pinned as *mut _), cuMemFreeHost(pinned as *mut _)), (0, 1));
    assert_eq!(
        (cuMemHostUnregister(registered as *mut _), cuMemHostUnregister(registered as *mut _)),
        (0, 713)
    );
    assert_eq!(cuMemAlloc_v2(Out(&mut 0), 81 << 30), 2, "more than the device has");
    assert_eq!((cuMemAlloc_v2(Out(&mut 0), 0), cuMemAlloc_v2(Out(std::ptr::null_mut()), 8)), (1, 1));
}

#[test]
fn unknown_and_destroyed_handles_are_refused() {
    let device = Device::new();
    let (stream, event) = (device.stream(0), get::<usize>(|o| cuEventCreate(o, 0)));
    assert_eq!((cuStreamDestroy_v2(stream), cuEventDestroy_v2(event)), (0, 0));
    let live = device.stream(0);
    for bad in [3, stream, usize::MAX, 0xdead_beef] {
        let codes = [
            cuStreamSynchronize(bad),
            cuStreamQuery(bad),
            cuStreamDestroy_v2(bad),
            cuStreamWaitEvent(bad, event, 0),
            cuMemsetD8Async(device.alloc(8), 0, 8, bad),
            cuEventRecord(bad, live),
            cuEventSynchronize(bad),
            cuEventQuery(bad),
            cuEventDestroy_v2(event),
            cuStreamWaitEvent(live, bad, 0),
            cuEventElapsedTime(Out(&mut 0.0), bad, bad),
            cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, 0, In(std::ptr::null()), In(std::ptr::null())),
            cuModuleUnload(bad),
            cuModuleGetFunction(Out(&mut 0), bad, Text(c"f".as_ptr())),
            cuFuncGetAttribute(Out(&mut 0), 0, bad),
        ];
        assert_eq!(codes, [400; 15], "{bad:#x}");
        let codes = [
            cuGraphLaunch(bad, live),
            cuGraphDestroy(bad),
            cuGraphExecDestroy(bad),
            cuGraphDestroyNode(bad),
            cuMemPoolDestroy(bad),
            cuDeviceSetMemPool(0, bad),
        ];
        assert_eq!(codes, [1; 6], "{bad:#x}");
        assert_eq!((cuCtxSetCurrent(bad), cuCtxDestroy_v2(bad), cuCtxPushCurrent_v2(bad)), (201, 201, 201));
    }
    assert_eq!((cuStreamDestroy_v2(0), cuStreamDestroy_v2(1), cuStreamDestroy_v2(2)), (400, 400, 400));
    assert_eq!((cuDeviceGet(Out(&mut 0), 1), cuDeviceGet(Out(&mut 0), -1)), (101, 101));
    assert_eq!(cuDeviceGetAttribute(Out(&mut 0), 100_000, 0), 1);
    assert_eq!(cuModuleLoadData(Out(&mut 0), std::ptr::null_mut()), 1);
    assert_eq!(cuModuleLoad(Out(&mut 0), Text(c"/no/such/file".as_ptr())), 301);
}

#[test]
fn launches_outside_the_devices_limits_are_refused() {
    let device = Device::new();
    let kernel = device.kernel(&[8], |_| Ok(()));
    let none = || In(std::ptr::null());
    let value = 0u64;
    let params = [pointer(&value)];
    let go = |grid: [u32; 3], block: [u32; 3], shared: u32| {
        let (g, b) = (grid, block);
        cuLaunchKernel(kernel, g[0], g[1], g[2], b[0], b[1], b[2], shared, 0, In(params.as_ptr()), none())
    };
    assert_eq!(go([1, 1, 1], [1024, 1, 1], 0), 0);
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 65_536, 1], [1, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [0, 1, 1]),
        ([1, 1, 1], [1, 1, 65]),
        ([1, 1, 1], [u32::MAX, u32::MAX, 1]),
    ] {
        assert_eq!(go(grid, block, 0), 1, "{grid:?} {block:?}");
    }
    assert_eq!(go([1, 1, 1], [1, 1, 1], 49_153), 1, "more shared memory than without opting in");
    assert_eq!(cuFuncSetAttribute(kernel, 8, 100_000), 0);
    assert_eq!(go([1, 1, 1], [1, 1, 1], 49_153), 0);
    assert_eq!(launch(kernel, 0, &[]), 1, "no parameters for a kernel that has one");
    assert_eq!(launch(kernel, 0, &[std::ptr::null()]), 1);
}

#[test]
fn parameters_may_come_in_one_packed_buffer() {
    let device = Device::new();
    let memory = device.alloc(4);
    let kernel = device.kernel(&[4, 8, 2], |l| {
        l.slice_mut::<u32>(l.param(1)?, 1)?[0] = l.param::<u32>(0)? + u32::from(l.param::<u16>(2)?);
        Ok(())
    });
    let mut buffer = [0u8; 18];
    buffer[..4].copy_from_slice(&40u32.to_ne_bytes());
    buffer[8..16].copy_from_slice(&memory.to_ne_bytes());
    buffer[16..].copy_from_slice(&2u16.to_ne_bytes());
    let mut result = 0u32;
    for (size, expected) in [(18usize, 0), (17, 1)] {
        let extra =
            [std::ptr::dangling(), buffer.as_ptr().cast(), 2 as *const _, pointer(&size), std::ptr::null()];
        let code = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, In(std::ptr::null()), In(extra.as_ptr()));
        assert_eq!(code, expected, "{size} bytes");
    }
    assert_eq!(cuMemcpyDtoH_v2((&raw mut result).cast(), memory, 4), 0);
    assert_eq!(result, 42);
}

#[test]
fn a_kernel_that_leaves_its_memory_poisons_the_context_and_no_other() {
    let bystander = Device::new();
    let device = Device::new();
    let memory = device.alloc(4);
    let kernel = device.kernel(&[8], |l| l.slice::<u32>(l.param(0)?, 2).map(drop));
    let stream = device.stream(1);
    assert_eq!(launch(kernel, stream, &[pointer(&memory)]), 0, "errors of kernels come later");
    assert_eq!(cuStreamSynchronize(stream), 700);
    let mut word = 0u32;
    let codes = [
        cuCtxSynchronize(),
        cuMemAlloc_v2(Out(&mut 0), 4),
        cuMemcpyDtoH_v2((&raw mut word).cast(), memory, 4),
        launch(kernel, stream, &[pointer(&memory)]),
        cuStreamQuery(stream),
        cuMemFree_v2(memory),
    ];
    assert_eq!(codes, [700; 6], "sticky");
    assert_eq!(cuStreamDestroy_v2(stream), 0, "cleaning up still works");
    bystander.make_current();
    assert_eq!(cuCtxSynchronize(), 0);
}

#[test]
fn memory_freed_before_an_operation_runs_is_an_error_of_the_device() {
    let device = Device::new();
    let (a, b) = (device.stream(1), device.stream(1));
    let (from, to) = (get::<u64>(|o| cuMemAllocAsync(o, 64, b)), device.alloc(64));
    let gate = Gate::new(&device);
    gate.hold(a);
    assert_eq!(cuMemcpyDtoDAsync_v2(to, from, 64, a), 0);
    assert_eq!(cuMemFreeAsync(from, b), 0);
    assert_eq!(cuStreamSynchronize(b), 0);
    gate.open();
    assert_eq!(cuStreamSynchronize(a), 700);
}

#[test]
fn a_panicking_kernel_is_a_failed_launch() {
    let device = Device::new();
    let kernel = device.kernel(&[], |_| panic!("on purpose"));
    assert_eq!(launch(kernel, 0, &[]), 0);
    assert_eq!(cuCtxSynchronize(), 719);
}

#[test]
fn host_functions_run_in_order_and_may_not_call_cuda() {
    static CODE: AtomicU32 = AtomicU32::new(u32::MAX);
    static STATUS: AtomicU32 = AtomicU32::new(u32::MAX);
    extern "C" fn calls_cuda(_: *mut libc::c_void) {
        CODE.store(cuMemAlloc_v2(Out(&mut 0), 4), Ordering::SeqCst);
    }
    extern "C" fn called_back(_: usize, status: u32, user: *mut libc::c_void) {
        STATUS.store(status + user as u32, Ordering::SeqCst);
    }
    let device = Device::new();
    let stream = device.stream(0);
    assert_eq!(cuLaunchHostFunc(stream, None, std::ptr::null_mut()), 1);
    assert_eq!(cuLaunchHostFunc(stream, Some(calls_cuda), std::ptr::null_mut()), 0);
    assert_eq!(cuStreamAddCallback(stream, Some(called_back), 7 as *mut _, 0), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!((CODE.load(Ordering::SeqCst), STATUS.load(Ordering::SeqCst)), (800, 7));
}

#[test]
fn contexts_stack_and_end_with_everything_in_them() {
    let device = Device::new();
    let second: usize = get(|o| cuCtxCreate_v2(o, 0, 0));
    let (stream, memory) = (device.stream(0), device.alloc(64));
    assert_eq!(get::<usize>(|o| cuCtxGetCurrent(o)), second);
    assert_eq!(cuCtxDestroy_v2(second), 0);
    assert_eq!(get::<usize>(|o| cuCtxGetCurrent(o)), device.context, "popped");
    assert_eq!(cuStreamSynchronize(stream), 400);
    assert_eq!(cuMemFree_v2(memory), 1, "freed with its context");
    assert_eq!(get::<usize>(|o| cuCtxPopCurrent_v2(o)), device.context);
    assert_eq!(get::<usize>(|o| cuCtxGetCurrent(o)), 0);
    let without = [
        cuMemAlloc_v2(Out(&mut 0), 4),
        cuCtxSynchronize(),
        cuStreamCreate(Out(&mut 0), 0),
        cuStreamSynchronize(0),
    ];
    assert_eq!(without, [201; 4], "no current context");
    device.make_current();
}

#[test]
fn the_primary_context_comes_back_under_its_old_handle() {
    let _turn = Device::new();
    let first: usize = get(|o| cuDevicePrimaryCtxRetain(o, 0));
    let again: usize = get(|o| cuDevicePrimaryCtxRetain(o, 0));
    assert_eq!(first, again);
    assert_eq!((cuDevicePrimaryCtxRelease_v2(0), cuDevicePrimaryCtxRelease_v2(0)), (0, 0));
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
    assert_eq!(cuCtxSetCurrent(first), 201);
    assert_eq!(get::<usize>(|o| cuDevicePrimaryCtxRetain(o, 0)), first);
    assert_eq!((cuCtxSetCurrent(first), cuCtxSynchronize()), (0, 0));
    assert_eq!(cuCtxDestroy_v2(first), 201, "only its device may end it");
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 0);
}

#[test]
fn a_kernel_keeps_its_memory_mapped_even_if_another_stream_frees_it() {
    let device = Device::new();
    let (a, b) = (device.stream(1), device.stream(1));
    let memory: u64 = get(|o| cuMemAllocAsync(o, 1 << 20, b));
    assert_eq!(cuStreamSynchronize(b), 0);
    let gate = Arc::new((std::sync::Mutex::new(0), std::sync::Condvar::new()));
    let inside = gate.clone();
    let kernel = device.kernel(&[8], move |l| {
        let bytes = l.slice_mut::<u8>(l.param(0)?, 1 << 20)?;
        let mut stage = inside.0.lock().unwrap();
        *stage = 1; // holds a slice now
        inside.1.notify_all();
        while *stage < 2 {
            stage = inside.1.wait(stage).unwrap();
        }
        bytes.fill(1); // after the free
        Ok(())
    });
    assert_eq!(launch(kernel, a, &[pointer(&memory)]), 0);
    let mut stage = gate.0.lock().unwrap();
    while *stage < 1 {
        stage = gate.1.wait(stage).unwrap();
    }
    assert_eq!((cuMemFreeAsync(memory, b), cuStreamSynchronize(b)), (0, 0));
    *stage = 2;
    gate.1.notify_all();
    drop(stage);
    assert_eq!(cuStreamSynchronize(a), 0);
    let _ = function("unused");
}
