//! The CUDA calls that syncaudit looks at: callback id, name, class and where the arguments lie.
//!
//! In: nothing. Out: [`driver`] and [`runtime`] (one constant per id, one `CALLS` table each), [`find`], and [`timeline`]: the calls that are
//! looked at only where a timeline was asked for.
//! [`all`] must never hold an id that stands for a kernel launch or for a call that is made all the time without
//! doing anything (`cuCtxGetDevice`): each id there costs every traced program a callback.
//!
//! Facts: ids and argument layouts from the headers that CUPTI ships, 12.1 to 13.5. No id changed its meaning
//! between those versions, so one table serves them all; `tests/headers.rs` compares every row with the headers.
//! Legacy entry points with 32-bit device addresses are left out: 64-bit programs can't call them.

use crate::call::{Call, Class::*, Direction::*, Params};
use crate::domain;

/// The row for an id, if syncaudit looks at it. Constant time: one array access, or two.
pub fn find(domain: u32, cbid: u32) -> Option<&'static Call> {
    let tables: [(&[u8; INDEX_LEN], &'static [Call]); 2] = match domain {
        domain::DRIVER_API => {
            [(&DRIVER_INDEX, driver::CALLS), (&DRIVER_TIMELINE_INDEX, timeline_driver::CALLS)]
        }
        domain::RUNTIME_API => {
            [(&RUNTIME_INDEX, runtime::CALLS), (&RUNTIME_TIMELINE_INDEX, timeline_runtime::CALLS)]
        }
        _ => return None,
    };
    tables.into_iter().find_map(|(index, calls)| match index.get(cbid as usize) {
        Some(&place) if place != NOT_LISTED => Some(&calls[place as usize]),
        _ => None,
    })
}

/// Rows that a timeline needs besides [`all`]: what puts work on a stream or orders streams, and never waits.
pub fn timeline() -> impl Iterator<Item = &'static Call> {
    timeline_driver::CALLS.iter().chain(timeline_runtime::CALLS)
}

/// Every row of both domains that is looked at in each run.
pub fn all() -> impl Iterator<Item = &'static Call> {
    driver::CALLS.iter().chain(runtime::CALLS)
}

/// Larger than any id listed here (13.5 knows 877 driver and 567 runtime ids).
const INDEX_LEN: usize = 1024;
const NOT_LISTED: u8 = u8::MAX;

static DRIVER_INDEX: [u8; INDEX_LEN] = index(driver::CALLS);
static RUNTIME_INDEX: [u8; INDEX_LEN] = index(runtime::CALLS);
static DRIVER_TIMELINE_INDEX: [u8; INDEX_LEN] = index(timeline_driver::CALLS);
static RUNTIME_TIMELINE_INDEX: [u8; INDEX_LEN] = index(timeline_runtime::CALLS);

/// Evaluated by the compiler, so a table that outgrows the index doesn't build.
const fn index(calls: &[Call]) -> [u8; INDEX_LEN] {
    assert!(calls.len() < NOT_LISTED as usize);
    let mut index = [NOT_LISTED; INDEX_LEN];
    let mut place = 0;
    while place < calls.len() {
        assert!(index[calls[place].cbid as usize] == NOT_LISTED, "an id is listed twice");
        index[calls[place].cbid as usize] = place as u8;
        place += 1;
    }
    index
}

macro_rules! calls {
    ($domain:ident: $($id:ident = $cbid:literal, $name:literal, $class:ident, $params:expr;)*) => {
        $(#[allow(dead_code)] pub const $id: u32 = $cbid;)*
        pub const CALLS: &[Call] = &[
            $(Call { domain: domain::$domain, cbid: $cbid, name: $name, class: $class, params: $params },)*
        ];
    };
}

#[rustfmt::skip]
pub mod driver {
    //! `cu*` entry points.
    use super::*;

    calls! { DRIVER_API:
        CU_CTX_DESTROY = 11, "cuCtxDestroy", ContextDestroy, Params::of(8);
        CU_CTX_SYNCHRONIZE = 17, "cuCtxSynchronize", DeviceSync, Params::of(0);
        CU_MODULE_LOAD = 18, "cuModuleLoad", ModuleLoad, Params::of(16);
        CU_MODULE_LOAD_DATA = 19, "cuModuleLoadData", ModuleLoad, Params::of(16);
        CU_MODULE_LOAD_DATA_EX = 20, "cuModuleLoadDataEx", ModuleLoad, Params::of(40);
        CU_MODULE_LOAD_FAT_BINARY = 21, "cuModuleLoadFatBinary", ModuleLoad, Params::of(16);
        CU_MODULE_UNLOAD = 22, "cuModuleUnload", ModuleUnload, Params::of(8);
        CU_MODULE_GET_FUNCTION = 23, "cuModuleGetFunction", ModuleLookup, Params::of(24);
        CU_MEM_FREE_HOST = 38, "cuMemFreeHost", HostFree, Params::of(8);
        CU_MEM_HOST_ALLOC = 39, "cuMemHostAlloc", HostAlloc, Params::of(24).bytes(8);
        CU_EVENT_RECORD = 119, "cuEventRecord", EventRecord, Params::of(16).stream(8).object(0);
        CU_EVENT_QUERY = 120, "cuEventQuery", EventQuery, Params::of(8).object(0);
        CU_EVENT_SYNCHRONIZE = 121, "cuEventSynchronize", EventSync, Params::of(8).object(0);
        CU_STREAM_QUERY = 125, "cuStreamQuery", StreamQuery, Params::of(8).stream(0);
        CU_STREAM_SYNCHRONIZE = 126, "cuStreamSynchronize", StreamSync, Params::of(8).stream(0);
        CU_MEM_ALLOC_V2 = 243, "cuMemAlloc_v2", DeviceAlloc, Params::of(16).bytes(8);
        CU_MEM_ALLOC_PITCH_V2 = 244, "cuMemAllocPitch_v2", DeviceAlloc, Params::of(40);
        CU_MEM_FREE_V2 = 245, "cuMemFree_v2", DeviceFree, Params::of(8);
        CU_MEMSETD8_V2 = 249, "cuMemsetD8_v2", Memset, Params::of(24).elements(16, 1);
        CU_MEMSETD16_V2 = 250, "cuMemsetD16_v2", Memset, Params::of(24).elements(16, 2);
        CU_MEMSETD32_V2 = 251, "cuMemsetD32_v2", Memset, Params::of(24).elements(16, 4);
        CU_MEMSETD2D8_V2 = 252, "cuMemsetD2D8_v2", Memset, Params::of(40).elements2d(24, 32, 1);
        CU_MEMSETD2D16_V2 = 253, "cuMemsetD2D16_v2", Memset, Params::of(40).elements2d(24, 32, 2);
        CU_MEMSETD2D32_V2 = 254, "cuMemsetD2D32_v2", Memset, Params::of(40).elements2d(24, 32, 4);
        CU_MEMCPY_HTOD_V2 = 276, "cuMemcpyHtoD_v2", Copy, Params::of(24).bytes(16).direction(HostToDevice);
        CU_MEMCPY_HTOD_ASYNC_V2 = 277, "cuMemcpyHtoDAsync_v2", CopyAsync, Params::of(32).stream(24).bytes(16).direction(HostToDevice);
        CU_MEMCPY_DTOH_V2 = 278, "cuMemcpyDtoH_v2", Copy, Params::of(24).bytes(16).direction(DeviceToHost);
        CU_MEMCPY_DTOH_ASYNC_V2 = 279, "cuMemcpyDtoHAsync_v2", CopyAsync, Params::of(32).stream(24).bytes(16).direction(DeviceToHost);
        CU_MEMCPY_DTOD_V2 = 280, "cuMemcpyDtoD_v2", Copy, Params::of(24).bytes(16).direction(DeviceToDevice);
        CU_MEMCPY_DTOD_ASYNC_V2 = 281, "cuMemcpyDtoDAsync_v2", CopyAsync, Params::of(32).stream(24).bytes(16).direction(DeviceToDevice);
        CU_MEMCPY_ATOH_V2 = 282, "cuMemcpyAtoH_v2", Copy, Params::of(32).bytes(24).direction(DeviceToHost);
        CU_MEMCPY_ATOH_ASYNC_V2 = 283, "cuMemcpyAtoHAsync_v2", CopyAsync, Params::of(40).stream(32).bytes(24).direction(DeviceToHost);
        CU_MEMCPY_ATOD_V2 = 284, "cuMemcpyAtoD_v2", Copy, Params::of(32).bytes(24).direction(DeviceToDevice);
        CU_MEMCPY_DTOA_V2 = 285, "cuMemcpyDtoA_v2", Copy, Params::of(32).bytes(24).direction(DeviceToDevice);
        CU_MEMCPY_ATOA_V2 = 286, "cuMemcpyAtoA_v2", Copy, Params::of(40).bytes(32).direction(DeviceToDevice);
        CU_MEMCPY2D_V2 = 287, "cuMemcpy2D_v2", Copy, Params::of(8).copy2d(0);
        CU_MEMCPY2D_UNALIGNED_V2 = 288, "cuMemcpy2DUnaligned_v2", Copy, Params::of(8).copy2d(0);
        CU_MEMCPY2D_ASYNC_V2 = 289, "cuMemcpy2DAsync_v2", CopyAsync, Params::of(16).stream(8).copy2d(0);
        CU_MEMCPY3D_V2 = 290, "cuMemcpy3D_v2", Copy, Params::of(8).copy3d(0);
        CU_MEMCPY3D_ASYNC_V2 = 291, "cuMemcpy3DAsync_v2", CopyAsync, Params::of(16).stream(8).copy3d(0);
        CU_MEMCPY_HTOA_V2 = 292, "cuMemcpyHtoA_v2", Copy, Params::of(32).bytes(24).direction(HostToDevice);
        CU_MEMCPY_HTOA_ASYNC_V2 = 293, "cuMemcpyHtoAAsync_v2", CopyAsync, Params::of(40).stream(32).bytes(24).direction(HostToDevice);
        CU_MEM_ALLOC_HOST_V2 = 294, "cuMemAllocHost_v2", HostAlloc, Params::of(16).bytes(8);
        CU_MEM_HOST_REGISTER = 301, "cuMemHostRegister", HostAlloc, Params::of(24).bytes(8);
        CU_MEM_HOST_UNREGISTER = 302, "cuMemHostUnregister", HostFree, Params::of(8);
        CU_MEMCPY = 305, "cuMemcpy", Copy, Params::of(24).bytes(16);
        CU_MEMCPY_ASYNC = 306, "cuMemcpyAsync", CopyAsync, Params::of(32).stream(24).bytes(16);
        CU_MEMCPY_PEER = 318, "cuMemcpyPeer", Copy, Params::of(40).bytes(32).direction(PeerToPeer);
        CU_MEMCPY_PEER_ASYNC = 319, "cuMemcpyPeerAsync", CopyAsync, Params::of(48).stream(40).bytes(32).direction(PeerToPeer);
        CU_MEMCPY3D_PEER = 320, "cuMemcpy3DPeer", Copy, Params::of(8).copy3d(0).direction(PeerToPeer);
        CU_MEMCPY3D_PEER_ASYNC = 321, "cuMemcpy3DPeerAsync", CopyAsync, Params::of(16).stream(8).copy3d(0).direction(PeerToPeer);
        CU_CTX_DESTROY_V2 = 322, "cuCtxDestroy_v2", ContextDestroy, Params::of(8);
        CU_STREAM_ADD_CALLBACK = 346, "cuStreamAddCallback", HostFunc, Params::of(32).stream(0);
        CU_MEM_ALLOC_MANAGED = 371, "cuMemAllocManaged", DeviceAlloc, Params::of(24).bytes(8);
        CU_MEM_HOST_REGISTER_V2 = 379, "cuMemHostRegister_v2", HostAlloc, Params::of(24).bytes(8);
        CU_DEVICE_PRIMARY_CTX_RELEASE = 387, "cuDevicePrimaryCtxRelease", ContextDestroy, Params::of(4);
        CU_DEVICE_PRIMARY_CTX_RESET = 389, "cuDevicePrimaryCtxReset", ContextDestroy, Params::of(4);
        CU_MEMCPY_HTOD_V2_PTDS = 397, "cuMemcpyHtoD_v2_ptds", Copy, Params::of(24).bytes(16).direction(HostToDevice);
        CU_MEMCPY_DTOH_V2_PTDS = 398, "cuMemcpyDtoH_v2_ptds", Copy, Params::of(24).bytes(16).direction(DeviceToHost);
        CU_MEMCPY_DTOD_V2_PTDS = 399, "cuMemcpyDtoD_v2_ptds", Copy, Params::of(24).bytes(16).direction(DeviceToDevice);
        CU_MEMCPY_DTOA_V2_PTDS = 400, "cuMemcpyDtoA_v2_ptds", Copy, Params::of(32).bytes(24).direction(DeviceToDevice);
        CU_MEMCPY_ATOD_V2_PTDS = 401, "cuMemcpyAtoD_v2_ptds", Copy, Params::of(32).bytes(24).direction(DeviceToDevice);
        CU_MEMCPY_HTOA_V2_PTDS = 402, "cuMemcpyHtoA_v2_ptds", Copy, Params::of(32).bytes(24).direction(HostToDevice);
        CU_MEMCPY_ATOH_V2_PTDS = 403, "cuMemcpyAtoH_v2_ptds", Copy, Params::of(32).bytes(24).direction(DeviceToHost);
        CU_MEMCPY_ATOA_V2_PTDS = 404, "cuMemcpyAtoA_v2_ptds", Copy, Params::of(40).bytes(32).direction(DeviceToDevice);
        CU_MEMCPY2D_V2_PTDS = 405, "cuMemcpy2D_v2_ptds", Copy, Params::of(8).copy2d(0);
        CU_MEMCPY2D_UNALIGNED_V2_PTDS = 406, "cuMemcpy2DUnaligned_v2_ptds", Copy, Params::of(8).copy2d(0);
        CU_MEMCPY3D_V2_PTDS = 407, "cuMemcpy3D_v2_ptds", Copy, Params::of(8).copy3d(0);
        CU_MEMCPY_PTDS = 408, "cuMemcpy_ptds", Copy, Params::of(24).bytes(16);
        CU_MEMCPY_PEER_PTDS = 409, "cuMemcpyPeer_ptds", Copy, Params::of(40).bytes(32).direction(PeerToPeer);
        CU_MEMCPY3D_PEER_PTDS = 410, "cuMemcpy3DPeer_ptds", Copy, Params::of(8).copy3d(0).direction(PeerToPeer);
        CU_MEMSETD8_V2_PTDS = 411, "cuMemsetD8_v2_ptds", Memset, Params::of(24).elements(16, 1);
        CU_MEMSETD16_V2_PTDS = 412, "cuMemsetD16_v2_ptds", Memset, Params::of(24).elements(16, 2);
        CU_MEMSETD32_V2_PTDS = 413, "cuMemsetD32_v2_ptds", Memset, Params::of(24).elements(16, 4);
        CU_MEMSETD2D8_V2_PTDS = 414, "cuMemsetD2D8_v2_ptds", Memset, Params::of(40).elements2d(24, 32, 1);
        CU_MEMSETD2D16_V2_PTDS = 415, "cuMemsetD2D16_v2_ptds", Memset, Params::of(40).elements2d(24, 32, 2);
        CU_MEMSETD2D32_V2_PTDS = 416, "cuMemsetD2D32_v2_ptds", Memset, Params::of(40).elements2d(24, 32, 4);
        CU_MEMCPY_ASYNC_PTSZ = 418, "cuMemcpyAsync_ptsz", CopyAsync, Params::of(32).stream(24).bytes(16);
        CU_MEMCPY_HTOA_ASYNC_V2_PTSZ = 419, "cuMemcpyHtoAAsync_v2_ptsz", CopyAsync, Params::of(40).stream(32).bytes(24).direction(HostToDevice);
        CU_MEMCPY_ATOH_ASYNC_V2_PTSZ = 420, "cuMemcpyAtoHAsync_v2_ptsz", CopyAsync, Params::of(40).stream(32).bytes(24).direction(DeviceToHost);
        CU_MEMCPY_HTOD_ASYNC_V2_PTSZ = 421, "cuMemcpyHtoDAsync_v2_ptsz", CopyAsync, Params::of(32).stream(24).bytes(16).direction(HostToDevice);
        CU_MEMCPY_DTOH_ASYNC_V2_PTSZ = 422, "cuMemcpyDtoHAsync_v2_ptsz", CopyAsync, Params::of(32).stream(24).bytes(16).direction(DeviceToHost);
        CU_MEMCPY_DTOD_ASYNC_V2_PTSZ = 423, "cuMemcpyDtoDAsync_v2_ptsz", CopyAsync, Params::of(32).stream(24).bytes(16).direction(DeviceToDevice);
        CU_MEMCPY2D_ASYNC_V2_PTSZ = 424, "cuMemcpy2DAsync_v2_ptsz", CopyAsync, Params::of(16).stream(8).copy2d(0);
        CU_MEMCPY3D_ASYNC_V2_PTSZ = 425, "cuMemcpy3DAsync_v2_ptsz", CopyAsync, Params::of(16).stream(8).copy3d(0);
        CU_MEMCPY_PEER_ASYNC_PTSZ = 426, "cuMemcpyPeerAsync_ptsz", CopyAsync, Params::of(48).stream(40).bytes(32).direction(PeerToPeer);
        CU_MEMCPY3D_PEER_ASYNC_PTSZ = 427, "cuMemcpy3DPeerAsync_ptsz", CopyAsync, Params::of(16).stream(8).copy3d(0).direction(PeerToPeer);
        CU_STREAM_ADD_CALLBACK_PTSZ = 437, "cuStreamAddCallback_ptsz", HostFunc, Params::of(32).stream(0);
        CU_STREAM_QUERY_PTSZ = 439, "cuStreamQuery_ptsz", StreamQuery, Params::of(8).stream(0);
        CU_STREAM_SYNCHRONIZE_PTSZ = 440, "cuStreamSynchronize_ptsz", StreamSync, Params::of(8).stream(0);
        CU_EVENT_RECORD_PTSZ = 441, "cuEventRecord_ptsz", EventRecord, Params::of(16).stream(8).object(0);
        CU_GRAPH_LAUNCH = 514, "cuGraphLaunch", GraphLaunch, Params::of(16).stream(8).object(0);
        CU_GRAPH_LAUNCH_PTSZ = 515, "cuGraphLaunch_ptsz", GraphLaunch, Params::of(16).stream(8).object(0);
        CU_LAUNCH_HOST_FUNC = 527, "cuLaunchHostFunc", HostFunc, Params::of(24).stream(0);
        CU_LAUNCH_HOST_FUNC_PTSZ = 528, "cuLaunchHostFunc_ptsz", HostFunc, Params::of(24).stream(0);
        CU_DEVICE_PRIMARY_CTX_RELEASE_V2 = 544, "cuDevicePrimaryCtxRelease_v2", ContextDestroy, Params::of(4);
        CU_DEVICE_PRIMARY_CTX_RESET_V2 = 545, "cuDevicePrimaryCtxReset_v2", ContextDestroy, Params::of(4);
        CU_MEM_CREATE = 549, "cuMemCreate", DeviceAlloc, Params::of(32).bytes(8);
        CU_MEM_RELEASE = 550, "cuMemRelease", DeviceFree, Params::of(8);
        CU_MEM_MAP = 551, "cuMemMap", DeviceAlloc, Params::of(40).bytes(8);
        CU_MEM_UNMAP = 552, "cuMemUnmap", DeviceFree, Params::of(16);
        CU_MEM_SET_ACCESS = 553, "cuMemSetAccess", DeviceAlloc, Params::of(32).bytes(24);
        CU_EVENT_RECORD_WITH_FLAGS = 587, "cuEventRecordWithFlags", EventRecord, Params::of(24).stream(8).object(0);
        CU_EVENT_RECORD_WITH_FLAGS_PTSZ = 588, "cuEventRecordWithFlags_ptsz", EventRecord, Params::of(24).stream(8).object(0);
        CU_MEM_ALLOC_ASYNC = 598, "cuMemAllocAsync", StreamAlloc, Params::of(24).stream(16).bytes(8);
        CU_MEM_ALLOC_ASYNC_PTSZ = 599, "cuMemAllocAsync_ptsz", StreamAlloc, Params::of(24).stream(16).bytes(8);
        CU_MEM_FREE_ASYNC = 600, "cuMemFreeAsync", StreamFree, Params::of(16).stream(8);
        CU_MEM_FREE_ASYNC_PTSZ = 601, "cuMemFreeAsync_ptsz", StreamFree, Params::of(16).stream(8);
        CU_MEM_POOL_TRIM_TO = 602, "cuMemPoolTrimTo", DeviceFree, Params::of(16);
        CU_MEM_POOL_DESTROY = 608, "cuMemPoolDestroy", DeviceFree, Params::of(8);
        CU_MEM_ALLOC_FROM_POOL_ASYNC = 611, "cuMemAllocFromPoolAsync", StreamAlloc, Params::of(32).stream(24).bytes(8);
        CU_MEM_ALLOC_FROM_POOL_ASYNC_PTSZ = 612, "cuMemAllocFromPoolAsync_ptsz", StreamAlloc, Params::of(32).stream(24).bytes(8);
        CU_LIBRARY_LOAD_DATA = 678, "cuLibraryLoadData", ModuleLoad, Params::of(64);
        CU_LIBRARY_LOAD_FROM_FILE = 679, "cuLibraryLoadFromFile", ModuleLoad, Params::of(64);
        CU_LIBRARY_UNLOAD = 680, "cuLibraryUnload", ModuleUnload, Params::of(8);
        CU_LIBRARY_GET_KERNEL = 681, "cuLibraryGetKernel", ModuleLookup, Params::of(24);
        CU_LIBRARY_GET_MODULE = 682, "cuLibraryGetModule", ModuleLookup, Params::of(16);
        CU_KERNEL_GET_FUNCTION = 683, "cuKernelGetFunction", ModuleLookup, Params::of(16);
        CU_GREEN_CTX_DESTROY = 744, "cuGreenCtxDestroy", ContextDestroy, Params::of(8);
        CU_MEMCPY_BATCH_ASYNC = 776, "cuMemcpyBatchAsync", CopyAsync, Params::of(72).stream(64).batch(16, 24);
        CU_MEMCPY_BATCH_ASYNC_PTSZ = 777, "cuMemcpyBatchAsync_ptsz", CopyAsync, Params::of(72).stream(64).batch(16, 24);
        CU_MEMCPY3D_BATCH_ASYNC = 778, "cuMemcpy3DBatchAsync", CopyAsync, Params::of(40).stream(32);
        CU_MEMCPY3D_BATCH_ASYNC_PTSZ = 779, "cuMemcpy3DBatchAsync_ptsz", CopyAsync, Params::of(40).stream(32);
        CU_MEMCPY_BATCH_ASYNC_V2 = 796, "cuMemcpyBatchAsync_v2", CopyAsync, Params::of(64).stream(56).batch(16, 24);
        CU_MEMCPY_BATCH_ASYNC_V2_PTSZ = 797, "cuMemcpyBatchAsync_v2_ptsz", CopyAsync, Params::of(64).stream(56).batch(16, 24);
        CU_MEMCPY3D_BATCH_ASYNC_V2 = 798, "cuMemcpy3DBatchAsync_v2", CopyAsync, Params::of(32).stream(24);
        CU_MEMCPY3D_BATCH_ASYNC_V2_PTSZ = 799, "cuMemcpy3DBatchAsync_v2_ptsz", CopyAsync, Params::of(32).stream(24);
        CU_CTX_SYNCHRONIZE_V2 = 800, "cuCtxSynchronize_v2", DeviceSync, Params::of(8);
        CU_LAUNCH_HOST_FUNC_V2 = 831, "cuLaunchHostFunc_v2", HostFunc, Params::of(32).stream(0);
        CU_LAUNCH_HOST_FUNC_V2_PTSZ = 832, "cuLaunchHostFunc_v2_ptsz", HostFunc, Params::of(32).stream(0);
        CU_MEMCPY_WITH_ATTRIBUTES_ASYNC = 837, "cuMemcpyWithAttributesAsync", CopyAsync, Params::of(40).stream(32).bytes(16);
        CU_MEMCPY_WITH_ATTRIBUTES_ASYNC_PTSZ = 838, "cuMemcpyWithAttributesAsync_ptsz", CopyAsync, Params::of(40).stream(32).bytes(16);
        CU_MEMCPY3D_WITH_ATTRIBUTES_ASYNC = 839, "cuMemcpy3DWithAttributesAsync", CopyAsync, Params::of(24).stream(16);
        CU_MEMCPY3D_WITH_ATTRIBUTES_ASYNC_PTSZ = 840, "cuMemcpy3DWithAttributesAsync_ptsz", CopyAsync, Params::of(24).stream(16);
    }
}

#[rustfmt::skip]
pub mod runtime {
    //! `cuda*` entry points.
    use super::*;

    calls! { RUNTIME_API:
        CUDA_MALLOC_V3020 = 20, "cudaMalloc", DeviceAlloc, Params::of(16).bytes(8);
        CUDA_MALLOC_PITCH_V3020 = 21, "cudaMallocPitch", DeviceAlloc, Params::of(32);
        CUDA_FREE_V3020 = 22, "cudaFree", DeviceFree, Params::of(8);
        CUDA_MALLOC_ARRAY_V3020 = 23, "cudaMallocArray", DeviceAlloc, Params::of(40);
        CUDA_FREE_ARRAY_V3020 = 24, "cudaFreeArray", DeviceFree, Params::of(8);
        CUDA_MALLOC_HOST_V3020 = 25, "cudaMallocHost", HostAlloc, Params::of(16).bytes(8);
        CUDA_FREE_HOST_V3020 = 26, "cudaFreeHost", HostFree, Params::of(8);
        CUDA_HOST_ALLOC_V3020 = 27, "cudaHostAlloc", HostAlloc, Params::of(24).bytes(8);
        CUDA_MEMCPY_V3020 = 31, "cudaMemcpy", Copy, Params::of(32).bytes(16).kind(24);
        CUDA_MEMCPY2D_V3020 = 32, "cudaMemcpy2D", Copy, Params::of(56).bytes2d(32, 40).kind(48);
        CUDA_MEMCPY_TO_ARRAY_V3020 = 33, "cudaMemcpyToArray", Copy, Params::of(48).bytes(32).kind(40);
        CUDA_MEMCPY2D_TO_ARRAY_V3020 = 34, "cudaMemcpy2DToArray", Copy, Params::of(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY_FROM_ARRAY_V3020 = 35, "cudaMemcpyFromArray", Copy, Params::of(48).bytes(32).kind(40);
        CUDA_MEMCPY2D_FROM_ARRAY_V3020 = 36, "cudaMemcpy2DFromArray", Copy, Params::of(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY_ARRAY_TO_ARRAY_V3020 = 37, "cudaMemcpyArrayToArray", Copy, Params::of(64).bytes(48).kind(56);
        CUDA_MEMCPY2D_ARRAY_TO_ARRAY_V3020 = 38, "cudaMemcpy2DArrayToArray", Copy, Params::of(72).bytes2d(48, 56).kind(64);
        CUDA_MEMCPY_TO_SYMBOL_V3020 = 39, "cudaMemcpyToSymbol", Copy, Params::of(40).bytes(16).kind(32);
        CUDA_MEMCPY_FROM_SYMBOL_V3020 = 40, "cudaMemcpyFromSymbol", Copy, Params::of(40).bytes(16).kind(32);
        CUDA_MEMCPY_ASYNC_V3020 = 41, "cudaMemcpyAsync", CopyAsync, Params::of(40).stream(32).bytes(16).kind(24);
        CUDA_MEMCPY_TO_ARRAY_ASYNC_V3020 = 42, "cudaMemcpyToArrayAsync", CopyAsync, Params::of(56).stream(48).bytes(32).kind(40);
        CUDA_MEMCPY_FROM_ARRAY_ASYNC_V3020 = 43, "cudaMemcpyFromArrayAsync", CopyAsync, Params::of(56).stream(48).bytes(32).kind(40);
        CUDA_MEMCPY2D_ASYNC_V3020 = 44, "cudaMemcpy2DAsync", CopyAsync, Params::of(64).stream(56).bytes2d(32, 40).kind(48);
        CUDA_MEMCPY2D_TO_ARRAY_ASYNC_V3020 = 45, "cudaMemcpy2DToArrayAsync", CopyAsync, Params::of(72).stream(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY2D_FROM_ARRAY_ASYNC_V3020 = 46, "cudaMemcpy2DFromArrayAsync", CopyAsync, Params::of(72).stream(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY_TO_SYMBOL_ASYNC_V3020 = 47, "cudaMemcpyToSymbolAsync", CopyAsync, Params::of(48).stream(40).bytes(16).kind(32);
        CUDA_MEMCPY_FROM_SYMBOL_ASYNC_V3020 = 48, "cudaMemcpyFromSymbolAsync", CopyAsync, Params::of(48).stream(40).bytes(16).kind(32);
        CUDA_MEMSET_V3020 = 49, "cudaMemset", Memset, Params::of(24).bytes(16);
        CUDA_MEMSET2D_V3020 = 50, "cudaMemset2D", Memset, Params::of(40).bytes2d(24, 32);
        CUDA_THREAD_SYNCHRONIZE_V3020 = 126, "cudaThreadSynchronize", DeviceSync, Params::of(0);
        CUDA_STREAM_SYNCHRONIZE_V3020 = 131, "cudaStreamSynchronize", StreamSync, Params::of(8).stream(0);
        CUDA_STREAM_QUERY_V3020 = 132, "cudaStreamQuery", StreamQuery, Params::of(8).stream(0);
        CUDA_EVENT_RECORD_V3020 = 135, "cudaEventRecord", EventRecord, Params::of(16).stream(8).object(0);
        CUDA_EVENT_SYNCHRONIZE_V3020 = 137, "cudaEventSynchronize", EventSync, Params::of(8).object(0);
        CUDA_EVENT_QUERY_V3020 = 138, "cudaEventQuery", EventQuery, Params::of(8).object(0);
        CUDA_MALLOC3D_V3020 = 140, "cudaMalloc3D", DeviceAlloc, Params::of(32);
        CUDA_MALLOC3D_ARRAY_V3020 = 141, "cudaMalloc3DArray", DeviceAlloc, Params::of(48);
        CUDA_MEMSET3D_V3020 = 142, "cudaMemset3D", Memset, Params::of(64);
        CUDA_MEMCPY3D_V3020 = 144, "cudaMemcpy3D", Copy, Params::of(8).runtime_copy3d(0);
        CUDA_MEMCPY3D_ASYNC_V3020 = 145, "cudaMemcpy3DAsync", CopyAsync, Params::of(16).stream(8).runtime_copy3d(0);
        CUDA_HOST_REGISTER_V4000 = 152, "cudaHostRegister", HostAlloc, Params::of(24).bytes(8);
        CUDA_HOST_UNREGISTER_V4000 = 153, "cudaHostUnregister", HostFree, Params::of(8);
        CUDA_MEMCPY_PEER_V4000 = 160, "cudaMemcpyPeer", Copy, Params::of(40).bytes(32).direction(PeerToPeer);
        CUDA_MEMCPY_PEER_ASYNC_V4000 = 161, "cudaMemcpyPeerAsync", CopyAsync, Params::of(48).stream(40).bytes(32).direction(PeerToPeer);
        CUDA_MEMCPY3D_PEER_V4000 = 162, "cudaMemcpy3DPeer", Copy, Params::of(8).direction(PeerToPeer);
        CUDA_MEMCPY3D_PEER_ASYNC_V4000 = 163, "cudaMemcpy3DPeerAsync", CopyAsync, Params::of(16).stream(8).direction(PeerToPeer);
        CUDA_DEVICE_RESET_V3020 = 164, "cudaDeviceReset", ContextDestroy, Params::of(0);
        CUDA_DEVICE_SYNCHRONIZE_V3020 = 165, "cudaDeviceSynchronize", DeviceSync, Params::of(0);
        CUDA_MALLOC_MIPMAPPED_ARRAY_V5000 = 192, "cudaMallocMipmappedArray", DeviceAlloc, Params::of(48);
        CUDA_FREE_MIPMAPPED_ARRAY_V5000 = 194, "cudaFreeMipmappedArray", DeviceFree, Params::of(8);
        CUDA_STREAM_ADD_CALLBACK_V5000 = 197, "cudaStreamAddCallback", HostFunc, Params::of(32).stream(0);
        CUDA_MALLOC_MANAGED_V6000 = 206, "cudaMallocManaged", DeviceAlloc, Params::of(24).bytes(8);
        CUDA_MEMCPY_PTDS_V7000 = 215, "cudaMemcpy_ptds", Copy, Params::of(32).bytes(16).kind(24);
        CUDA_MEMCPY2D_PTDS_V7000 = 216, "cudaMemcpy2D_ptds", Copy, Params::of(56).bytes2d(32, 40).kind(48);
        CUDA_MEMCPY_TO_ARRAY_PTDS_V7000 = 217, "cudaMemcpyToArray_ptds", Copy, Params::of(48).bytes(32).kind(40);
        CUDA_MEMCPY2D_TO_ARRAY_PTDS_V7000 = 218, "cudaMemcpy2DToArray_ptds", Copy, Params::of(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY_FROM_ARRAY_PTDS_V7000 = 219, "cudaMemcpyFromArray_ptds", Copy, Params::of(48).bytes(32).kind(40);
        CUDA_MEMCPY2D_FROM_ARRAY_PTDS_V7000 = 220, "cudaMemcpy2DFromArray_ptds", Copy, Params::of(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY_ARRAY_TO_ARRAY_PTDS_V7000 = 221, "cudaMemcpyArrayToArray_ptds", Copy, Params::of(64).bytes(48).kind(56);
        CUDA_MEMCPY2D_ARRAY_TO_ARRAY_PTDS_V7000 = 222, "cudaMemcpy2DArrayToArray_ptds", Copy, Params::of(72).bytes2d(48, 56).kind(64);
        CUDA_MEMCPY_TO_SYMBOL_PTDS_V7000 = 223, "cudaMemcpyToSymbol_ptds", Copy, Params::of(40).bytes(16).kind(32);
        CUDA_MEMCPY_FROM_SYMBOL_PTDS_V7000 = 224, "cudaMemcpyFromSymbol_ptds", Copy, Params::of(40).bytes(16).kind(32);
        CUDA_MEMCPY_ASYNC_PTSZ_V7000 = 225, "cudaMemcpyAsync_ptsz", CopyAsync, Params::of(40).stream(32).bytes(16).kind(24);
        CUDA_MEMCPY_TO_ARRAY_ASYNC_PTSZ_V7000 = 226, "cudaMemcpyToArrayAsync_ptsz", CopyAsync, Params::of(56).stream(48).bytes(32).kind(40);
        CUDA_MEMCPY_FROM_ARRAY_ASYNC_PTSZ_V7000 = 227, "cudaMemcpyFromArrayAsync_ptsz", CopyAsync, Params::of(56).stream(48).bytes(32).kind(40);
        CUDA_MEMCPY2D_ASYNC_PTSZ_V7000 = 228, "cudaMemcpy2DAsync_ptsz", CopyAsync, Params::of(64).stream(56).bytes2d(32, 40).kind(48);
        CUDA_MEMCPY2D_TO_ARRAY_ASYNC_PTSZ_V7000 = 229, "cudaMemcpy2DToArrayAsync_ptsz", CopyAsync, Params::of(72).stream(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY2D_FROM_ARRAY_ASYNC_PTSZ_V7000 = 230, "cudaMemcpy2DFromArrayAsync_ptsz", CopyAsync, Params::of(72).stream(64).bytes2d(40, 48).kind(56);
        CUDA_MEMCPY_TO_SYMBOL_ASYNC_PTSZ_V7000 = 231, "cudaMemcpyToSymbolAsync_ptsz", CopyAsync, Params::of(48).stream(40).bytes(16).kind(32);
        CUDA_MEMCPY_FROM_SYMBOL_ASYNC_PTSZ_V7000 = 232, "cudaMemcpyFromSymbolAsync_ptsz", CopyAsync, Params::of(48).stream(40).bytes(16).kind(32);
        CUDA_MEMSET_PTDS_V7000 = 233, "cudaMemset_ptds", Memset, Params::of(24).bytes(16);
        CUDA_MEMSET2D_PTDS_V7000 = 234, "cudaMemset2D_ptds", Memset, Params::of(40).bytes2d(24, 32);
        CUDA_STREAM_SYNCHRONIZE_PTSZ_V7000 = 239, "cudaStreamSynchronize_ptsz", StreamSync, Params::of(8).stream(0);
        CUDA_STREAM_QUERY_PTSZ_V7000 = 240, "cudaStreamQuery_ptsz", StreamQuery, Params::of(8).stream(0);
        CUDA_EVENT_RECORD_PTSZ_V7000 = 242, "cudaEventRecord_ptsz", EventRecord, Params::of(16).stream(8).object(0);
        CUDA_MEMSET3D_PTDS_V7000 = 243, "cudaMemset3D_ptds", Memset, Params::of(64);
        CUDA_MEMCPY3D_PTDS_V7000 = 245, "cudaMemcpy3D_ptds", Copy, Params::of(8).runtime_copy3d(0);
        CUDA_MEMCPY3D_ASYNC_PTSZ_V7000 = 246, "cudaMemcpy3DAsync_ptsz", CopyAsync, Params::of(16).stream(8).runtime_copy3d(0);
        CUDA_STREAM_ADD_CALLBACK_PTSZ_V7000 = 248, "cudaStreamAddCallback_ptsz", HostFunc, Params::of(32).stream(0);
        CUDA_MEMCPY3D_PEER_PTDS_V7000 = 249, "cudaMemcpy3DPeer_ptds", Copy, Params::of(8).direction(PeerToPeer);
        CUDA_MEMCPY3D_PEER_ASYNC_PTSZ_V7000 = 250, "cudaMemcpy3DPeerAsync_ptsz", CopyAsync, Params::of(16).stream(8).direction(PeerToPeer);
        CUDA_LAUNCH_HOST_FUNC_V10000 = 284, "cudaLaunchHostFunc", HostFunc, Params::of(24).stream(0);
        CUDA_LAUNCH_HOST_FUNC_PTSZ_V10000 = 285, "cudaLaunchHostFunc_ptsz", HostFunc, Params::of(24).stream(0);
        CUDA_GRAPH_LAUNCH_V10000 = 311, "cudaGraphLaunch", GraphLaunch, Params::of(16).stream(8).object(0);
        CUDA_GRAPH_LAUNCH_PTSZ_V10000 = 312, "cudaGraphLaunch_ptsz", GraphLaunch, Params::of(16).stream(8).object(0);
        CUDA_EVENT_RECORD_WITH_FLAGS_V11010 = 370, "cudaEventRecordWithFlags", EventRecord, Params::of(24).stream(8).object(0);
        CUDA_EVENT_RECORD_WITH_FLAGS_PTSZ_V11010 = 371, "cudaEventRecordWithFlags_ptsz", EventRecord, Params::of(24).stream(8).object(0);
        CUDA_MALLOC_ASYNC_V11020 = 373, "cudaMallocAsync", StreamAlloc, Params::of(24).stream(16).bytes(8);
        CUDA_MALLOC_ASYNC_PTSZ_V11020 = 374, "cudaMallocAsync_ptsz", StreamAlloc, Params::of(24).stream(16).bytes(8);
        CUDA_FREE_ASYNC_V11020 = 375, "cudaFreeAsync", StreamFree, Params::of(16).stream(8);
        CUDA_FREE_ASYNC_PTSZ_V11020 = 376, "cudaFreeAsync_ptsz", StreamFree, Params::of(16).stream(8);
        CUDA_MEM_POOL_TRIM_TO_V11020 = 377, "cudaMemPoolTrimTo", DeviceFree, Params::of(16);
        CUDA_MEM_POOL_DESTROY_V11020 = 384, "cudaMemPoolDestroy", DeviceFree, Params::of(8);
        CUDA_MALLOC_FROM_POOL_ASYNC_V11020 = 391, "cudaMallocFromPoolAsync", StreamAlloc, Params::of(32).stream(24).bytes(8);
        CUDA_MALLOC_FROM_POOL_ASYNC_PTSZ_V11020 = 392, "cudaMallocFromPoolAsync_ptsz", StreamAlloc, Params::of(32).stream(24).bytes(8);
        CUDA_LIBRARY_LOAD_DATA_V12060 = 470, "cudaLibraryLoadData", ModuleLoad, Params::of(64);
        CUDA_LIBRARY_LOAD_FROM_FILE_V12060 = 471, "cudaLibraryLoadFromFile", ModuleLoad, Params::of(64);
        CUDA_LIBRARY_UNLOAD_V12060 = 472, "cudaLibraryUnload", ModuleUnload, Params::of(8);
        CUDA_LIBRARY_GET_KERNEL_V12060 = 473, "cudaLibraryGetKernel", ModuleLookup, Params::of(24);
        CUDA_MEMCPY_BATCH_ASYNC_V12080 = 482, "cudaMemcpyBatchAsync", CopyAsync, Params::of(72).stream(64).batch(16, 24);
        CUDA_MEMCPY_BATCH_ASYNC_PTSZ_V12080 = 483, "cudaMemcpyBatchAsync_ptsz", CopyAsync, Params::of(72).stream(64).batch(16, 24);
        CUDA_MEMCPY3D_BATCH_ASYNC_V12080 = 484, "cudaMemcpy3DBatchAsync", CopyAsync, Params::of(40).stream(32);
        CUDA_MEMCPY3D_BATCH_ASYNC_PTSZ_V12080 = 485, "cudaMemcpy3DBatchAsync_ptsz", CopyAsync, Params::of(40).stream(32);
        CUDA_MEMCPY_BATCH_ASYNC_V13000 = 509, "cudaMemcpyBatchAsync", CopyAsync, Params::of(64).stream(56).batch(16, 24);
        CUDA_MEMCPY_BATCH_ASYNC_PTSZ_V13000 = 510, "cudaMemcpyBatchAsync_ptsz", CopyAsync, Params::of(64).stream(56).batch(16, 24);
        CUDA_MEMCPY3D_BATCH_ASYNC_V13000 = 511, "cudaMemcpy3DBatchAsync", CopyAsync, Params::of(32).stream(24);
        CUDA_MEMCPY3D_BATCH_ASYNC_PTSZ_V13000 = 512, "cudaMemcpy3DBatchAsync_ptsz", CopyAsync, Params::of(32).stream(24);
        CUDA_EXECUTION_CTX_DESTROY_V13010 = 527, "cudaExecutionCtxDestroy", ContextDestroy, Params::of(8);
        CUDA_EXECUTION_CTX_SYNCHRONIZE_V13010 = 534, "cudaExecutionCtxSynchronize", DeviceSync, Params::of(8);
        CUDA_LAUNCH_HOST_FUNC_V2_V13020 = 550, "cudaLaunchHostFunc_v2", HostFunc, Params::of(32).stream(0);
        CUDA_LAUNCH_HOST_FUNC_V2_PTSZ_V13020 = 551, "cudaLaunchHostFunc_v2_ptsz", HostFunc, Params::of(32).stream(0);
        CUDA_MEMCPY_WITH_ATTRIBUTES_ASYNC_V13020 = 554, "cudaMemcpyWithAttributesAsync", CopyAsync, Params::of(40).stream(32).bytes(16);
        CUDA_MEMCPY_WITH_ATTRIBUTES_ASYNC_PTSZ_V13020 = 555, "cudaMemcpyWithAttributesAsync_ptsz", CopyAsync, Params::of(40).stream(32).bytes(16);
        CUDA_MEMCPY3D_WITH_ATTRIBUTES_ASYNC_V13020 = 556, "cudaMemcpy3DWithAttributesAsync", CopyAsync, Params::of(24).stream(16);
        CUDA_MEMCPY3D_WITH_ATTRIBUTES_ASYNC_PTSZ_V13020 = 557, "cudaMemcpy3DWithAttributesAsync_ptsz", CopyAsync, Params::of(24).stream(16);
    }
}

#[rustfmt::skip]
mod timeline_driver {
    use super::*;

    calls! { DRIVER_API:
        CU_STREAM_WAIT_EVENT = 295, "cuStreamWaitEvent", StreamWaitEvent, Params::of(24).stream(0).object(8);
        CU_LAUNCH_KERNEL = 307, "cuLaunchKernel", Launch, Params::of(64).stream(40);
        CU_STREAM_WAIT_EVENT_PTSZ = 436, "cuStreamWaitEvent_ptsz", StreamWaitEvent, Params::of(24).stream(0).object(8);
        CU_LAUNCH_KERNEL_PTSZ = 442, "cuLaunchKernel_ptsz", Launch, Params::of(64).stream(40);
        CU_LAUNCH_COOPERATIVE_KERNEL = 477, "cuLaunchCooperativeKernel", Launch, Params::of(56).stream(40);
        CU_LAUNCH_COOPERATIVE_KERNEL_PTSZ = 478, "cuLaunchCooperativeKernel_ptsz", Launch, Params::of(56).stream(40);
        CU_MEMSETD8_ASYNC = 216, "cuMemsetD8Async", MemsetAsync, Params::of(32).stream(24).elements(16, 1);
        CU_MEMSETD16_ASYNC = 218, "cuMemsetD16Async", MemsetAsync, Params::of(32).stream(24).elements(16, 2);
        CU_MEMSETD32_ASYNC = 220, "cuMemsetD32Async", MemsetAsync, Params::of(32).stream(24).elements(16, 4);
        CU_MEMSETD2D8_ASYNC = 222, "cuMemsetD2D8Async", MemsetAsync, Params::of(48).stream(40).elements2d(24, 32, 1);
        CU_MEMSETD2D16_ASYNC = 224, "cuMemsetD2D16Async", MemsetAsync, Params::of(48).stream(40).elements2d(24, 32, 2);
        CU_MEMSETD2D32_ASYNC = 226, "cuMemsetD2D32Async", MemsetAsync, Params::of(48).stream(40).elements2d(24, 32, 4);
        CU_MEMSETD8_ASYNC_PTSZ = 428, "cuMemsetD8Async_ptsz", MemsetAsync, Params::of(32).stream(24).elements(16, 1);
        CU_MEMSETD16_ASYNC_PTSZ = 429, "cuMemsetD16Async_ptsz", MemsetAsync, Params::of(32).stream(24).elements(16, 2);
        CU_MEMSETD32_ASYNC_PTSZ = 430, "cuMemsetD32Async_ptsz", MemsetAsync, Params::of(32).stream(24).elements(16, 4);
        CU_MEMSETD2D8_ASYNC_PTSZ = 431, "cuMemsetD2D8Async_ptsz", MemsetAsync, Params::of(48).stream(40).elements2d(24, 32, 1);
        CU_MEMSETD2D16_ASYNC_PTSZ = 432, "cuMemsetD2D16Async_ptsz", MemsetAsync, Params::of(48).stream(40).elements2d(24, 32, 2);
        CU_MEMSETD2D32_ASYNC_PTSZ = 433, "cuMemsetD2D32Async_ptsz", MemsetAsync, Params::of(48).stream(40).elements2d(24, 32, 4);
        CU_LAUNCH_KERNEL_EX = 652, "cuLaunchKernelEx", Launch, Params::of(32);
        CU_LAUNCH_KERNEL_EX_PTSZ = 653, "cuLaunchKernelEx_ptsz", Launch, Params::of(32);
    }
}

#[rustfmt::skip]
mod timeline_runtime {
    use super::*;

    calls! { RUNTIME_API:
        CUDA_MEMSET_ASYNC_V3020 = 51, "cudaMemsetAsync", MemsetAsync, Params::of(32).stream(24).bytes(16);
        CUDA_MEMSET2D_ASYNC_V3020 = 52, "cudaMemset2DAsync", MemsetAsync, Params::of(48).stream(40).bytes2d(24, 32);
        CUDA_MEMSET3D_ASYNC_V3020 = 143, "cudaMemset3DAsync", MemsetAsync, Params::of(72).stream(64);
        CUDA_STREAM_WAIT_EVENT_V3020 = 147, "cudaStreamWaitEvent", StreamWaitEvent, Params::of(24).stream(0).object(8);
        CUDA_LAUNCH_KERNEL_V7000 = 211, "cudaLaunchKernel", Launch, Params::of(56).stream(48);
        CUDA_LAUNCH_KERNEL_PTSZ_V7000 = 214, "cudaLaunchKernel_ptsz", Launch, Params::of(56).stream(48);
        CUDA_MEMSET_ASYNC_PTSZ_V7000 = 235, "cudaMemsetAsync_ptsz", MemsetAsync, Params::of(32).stream(24).bytes(16);
        CUDA_MEMSET2D_ASYNC_PTSZ_V7000 = 236, "cudaMemset2DAsync_ptsz", MemsetAsync, Params::of(48).stream(40).bytes2d(24, 32);
        CUDA_MEMSET3D_ASYNC_PTSZ_V7000 = 244, "cudaMemset3DAsync_ptsz", MemsetAsync, Params::of(72).stream(64);
        CUDA_STREAM_WAIT_EVENT_PTSZ_V7000 = 247, "cudaStreamWaitEvent_ptsz", StreamWaitEvent, Params::of(24).stream(0).object(8);
        CUDA_LAUNCH_COOPERATIVE_KERNEL_V9000 = 269, "cudaLaunchCooperativeKernel", Launch, Params::of(56).stream(48);
        CUDA_LAUNCH_COOPERATIVE_KERNEL_PTSZ_V9000 = 270, "cudaLaunchCooperativeKernel_ptsz", Launch, Params::of(56).stream(48);
        CUDA_LAUNCH_KERNEL_EX_C_V11060 = 430, "cudaLaunchKernelExC", Launch, Params::of(24);
        CUDA_LAUNCH_KERNEL_EX_C_PTSZ_V11060 = 431, "cudaLaunchKernelExC_ptsz", Launch, Params::of(24);
        CUDA_LAUNCH_KERNEL_V13000 = 505, "__cudaLaunchKernel", Launch, Params::of(56).stream(48);
        CUDA_LAUNCH_KERNEL_PTSZ_V13000 = 506, "__cudaLaunchKernel_ptsz", Launch, Params::of(56).stream(48);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_id_and_nothing_else_is() {
        for call in all() {
            assert_eq!(find(call.domain, call.cbid).map(|found| found.name), Some(call.name));
        }
        for cbid in [0, 308, 1023, 1024, u32::MAX] {
            assert!(find(domain::DRIVER_API, cbid).is_none(), "driver id {cbid} is not ours");
        }
        for call in timeline() {
            assert_eq!(find(call.domain, call.cbid).map(|found| found.name), Some(call.name));
            assert!(
                !all().any(|other| (other.domain, other.cbid) == (call.domain, call.cbid)),
                "{}",
                call.name
            );
        }
        assert!(find(domain::RESOURCE, driver::CU_STREAM_SYNCHRONIZE).is_none());
    }

    #[test]
    fn argument_offsets_lie_inside_the_argument_block() {
        for call in all().chain(timeline()) {
            for (offset, size) in call.params.reads() {
                assert!(offset + size <= call.params.size(), "{}: {offset}+{size}", call.name);
            }
        }
    }

    #[test]
    fn stream_twins_of_one_call_share_its_class_and_layout() {
        for twin in all().chain(timeline()) {
            let plain = twin.name.replace("_ptsz", "").replace("_ptds", "");
            if plain != twin.name {
                let same = all().chain(timeline()).any(|call| {
                    call.domain == twin.domain
                        && call.name == plain
                        && call.class == twin.class
                        && call.params == twin.params
                });
                assert!(same, "{} differs from {plain}", twin.name);
            }
        }
    }
}
