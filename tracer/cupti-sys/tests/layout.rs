//! Our record prefixes and argument layouts against two oracles: the tables measured from the headers of CUPTI
//! 12.1 to 13.5, and the bindings that `cudarc` generated from the 12.8 headers.

#![allow(unsafe_code)]

use std::mem::{offset_of, size_of};

use cudarc::cupti::sys as oracle;
use cupti_sys::{CallbackData, call::descriptor, records::*};

macro_rules! same {
    ($ours:ident as $theirs:ident: $($our:ident = $their:ident @ $offset:literal,)*) => {$(
        assert_eq!(offset_of!($ours, $our), $offset, concat!(stringify!($ours), "::", stringify!($our), " (header tables)"));
        assert_eq!(
            offset_of!($ours, $our),
            offset_of!(oracle::$theirs, $their),
            concat!(stringify!($ours), "::", stringify!($our), " (cudarc)")
        );
    )*};
}

#[test]
fn every_prefix_lies_as_in_the_headers() {
    same!(Memcpy as CUpti_ActivityMemcpy6:
        kind = kind @ 0, copy_kind = copyKind @ 4, src_kind = srcKind @ 5, dst_kind = dstKind @ 6, flags = flags @ 7,
        bytes = bytes @ 8, start_ns = start @ 16, end_ns = end @ 24, device_id = deviceId @ 32,
        context_id = contextId @ 36, stream_id = streamId @ 40, correlation_id = correlationId @ 44,
        runtime_correlation_id = runtimeCorrelationId @ 48, graph_node_id = graphNodeId @ 64, graph_id = graphId @ 72,
        channel_id = channelID @ 76, channel_type = channelType @ 80,);
    same!(MemcpyPeer as CUpti_ActivityMemcpyPtoP4:
        kind = kind @ 0, copy_kind = copyKind @ 4, src_kind = srcKind @ 5, dst_kind = dstKind @ 6, flags = flags @ 7,
        bytes = bytes @ 8, start_ns = start @ 16, end_ns = end @ 24, device_id = deviceId @ 32,
        context_id = contextId @ 36, stream_id = streamId @ 40, src_device_id = srcDeviceId @ 44,
        src_context_id = srcContextId @ 48, dst_device_id = dstDeviceId @ 52, dst_context_id = dstContextId @ 56,
        correlation_id = correlationId @ 60, graph_node_id = graphNodeId @ 72, graph_id = graphId @ 80,
        channel_id = channelID @ 84, channel_type = channelType @ 88,);
    same!(Memset as CUpti_ActivityMemset4:
        kind = kind @ 0, value = value @ 4, bytes = bytes @ 8, start_ns = start @ 16, end_ns = end @ 24,
        device_id = deviceId @ 32, context_id = contextId @ 36, stream_id = streamId @ 40,
        correlation_id = correlationId @ 44, flags = flags @ 48, memory_kind = memoryKind @ 50,
        graph_node_id = graphNodeId @ 64, graph_id = graphId @ 72, channel_id = channelID @ 76,
        channel_type = channelType @ 80,);
    same!(Synchronization as CUpti_ActivitySynchronization2:
        kind = kind @ 0, type_ = type_ @ 4, start_ns = start @ 8, end_ns = end @ 16, correlation_id = correlationId @ 24,
        context_id = contextId @ 28, stream_id = streamId @ 32, cuda_event_id = cudaEventId @ 36,);
    same!(Overhead as CUpti_ActivityOverhead3:
        kind = kind @ 0, overhead_kind = overheadKind @ 4, object_kind = objectKind @ 8, object_id = objectId @ 12,
        start_ns = start @ 24, end_ns = end @ 32,);
    assert_eq!(offset_of!(oracle::CUpti_ActivityOverhead3, correlationId), 40, "read by `Records`");
    same!(Api as CUpti_ActivityAPI:
        kind = kind @ 0, cbid = cbid @ 4, start_ns = start @ 8, end_ns = end @ 16, process_id = processId @ 24,
        thread_id = threadId @ 28, correlation_id = correlationId @ 32, return_value = returnValue @ 36,);
    same!(Kernel as CUpti_ActivityKernel9:
        kind = kind @ 0, registers_per_thread = registersPerThread @ 6,
        partitioned_global_cache_requested = partitionedGlobalCacheRequested @ 8,
        partitioned_global_cache_executed = partitionedGlobalCacheExecuted @ 12, start_ns = start @ 16, end_ns = end @ 24,
        completed_ns = completed @ 32, device_id = deviceId @ 40, context_id = contextId @ 44, stream_id = streamId @ 48,
        grid = gridX @ 52, block = blockX @ 64, static_shared_memory = staticSharedMemory @ 76,
        dynamic_shared_memory = dynamicSharedMemory @ 80, local_memory_per_thread = localMemoryPerThread @ 84,
        local_memory_total = localMemoryTotal @ 88, correlation_id = correlationId @ 92, grid_id = gridId @ 96,
        name = name @ 104, queued_ns = queued @ 120, submitted_ns = submitted @ 128,
        shared_memory_executed = sharedMemoryExecuted @ 140, graph_node_id = graphNodeId @ 144,
        shmem_limit_config = shmemLimitConfig @ 152, graph_id = graphId @ 156,);
    same!(CallbackData as CUpti_CallbackData:
        callback_site = callbackSite @ 0, function_name = functionName @ 8, function_params = functionParams @ 16,
        function_return_value = functionReturnValue @ 24, symbol_name = symbolName @ 32, context = context @ 40,
        context_uid = contextUid @ 48, correlation_data = correlationData @ 56, correlation_id = correlationId @ 64,);
}

/// (our size, the strides that CUPTI 12.1, 12.4, 12.6, 12.8, 12.9, 13.0, 13.1, 13.2, 13.5 step by).
#[test]
fn no_prefix_is_longer_than_the_shortest_record_of_any_version() {
    for (name, size, strides) in [
        ("Memcpy", size_of::<Memcpy>(), [88, 88, 88, 96, 96, 96, 96, 96, 112]),
        ("MemcpyPeer", size_of::<MemcpyPeer>(), [96; 9]),
        ("Memset", size_of::<Memset>(), [88, 88, 88, 88, 88, 88, 88, 88, 104]),
        ("Synchronization", size_of::<Synchronization>(), [40, 40, 40, 56, 56, 56, 56, 56, 56]),
        ("Overhead", size_of::<Overhead>(), [40, 56, 56, 56, 56, 56, 56, 56, 56]),
        ("Api", size_of::<Api>(), [40; 9]),
        ("Kernel", size_of::<Kernel>(), [208, 208, 208, 208, 208, 216, 224, 224, 248]),
    ] {
        for stride in strides {
            assert!(size <= stride, "{name}: {size} bytes read of a record of {stride}");
        }
    }
}

#[test]
fn copy_descriptors_lie_as_in_cuda_h() {
    use cudarc::driver::sys::{CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v2};
    use descriptor::{copy2d, copy3d};
    assert_eq!(offset_of!(CUDA_MEMCPY2D_v2, srcMemoryType), copy2d::SRC_MEMORY_TYPE);
    assert_eq!(offset_of!(CUDA_MEMCPY2D_v2, dstMemoryType), copy2d::DST_MEMORY_TYPE);
    assert_eq!(offset_of!(CUDA_MEMCPY2D_v2, WidthInBytes), copy2d::WIDTH);
    assert_eq!(offset_of!(CUDA_MEMCPY2D_v2, Height), copy2d::HEIGHT);
    macro_rules! copy3d {
        ($descriptor:ident) => {
            assert_eq!(offset_of!($descriptor, srcMemoryType), copy3d::SRC_MEMORY_TYPE);
            assert_eq!(offset_of!($descriptor, dstMemoryType), copy3d::DST_MEMORY_TYPE);
            assert_eq!(offset_of!($descriptor, WidthInBytes), copy3d::WIDTH);
            assert_eq!(offset_of!($descriptor, Height), copy3d::HEIGHT);
            assert_eq!(offset_of!($descriptor, Depth), copy3d::DEPTH);
        };
    }
    copy3d!(CUDA_MEMCPY3D_v2);
    copy3d!(CUDA_MEMCPY3D_PEER);
}
