//! The CUPTI surface, used as a tool uses the real library: looked up in the shared object, its callbacks and buffers
//! in this process, the calls made through cudarc.

#![allow(unsafe_code)] // CUPTI is a C interface

mod common;

use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::thread::ThreadId;

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg, result, sys};
use cudarc::nvrtc::Ptx;
use cupti_sys::records::{Record, Records};
use cupti_sys::{
    CallbackData, CuptiResult, Library, Subscriber, cbid, copy_kind, domain, kind, memory_kind, site,
    synchronization,
};
use syncaudit_emulator_api::Emulator;

/// What the subscriber was told, per callback.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    cbid: u32,
    site: u32,
    name: String,
    symbol: Option<String>,
    result: Option<u32>,
    correlation: u32,
    carried: u64,
    context_uid: u32,
    bytes: u64,
    thread: ThreadId,
}
static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_call(user: *mut c_void, in_domain: u32, id: u32, data: *const CallbackData) {
    assert_eq!((user as usize, in_domain), (42, domain::DRIVER_API));
    // SAFETY: the callback's contract; all pointers are valid for this call.
    unsafe {
        let data = &*data;
        let text =
            |p: *const i8| (!p.is_null()).then(|| CStr::from_ptr(p.cast()).to_str().unwrap().to_owned());
        if data.callback_site == site::ENTER {
            *data.correlation_data = u64::from(data.correlation_id) * 3;
        }
        let bytes = if id == cbid::driver::CU_MEMCPY_HTOD_V2 {
            data.function_params.cast::<u64>().add(2).read() // {dstDevice, srcHost, ByteCount}
        } else {
            0
        };
        TOLD.lock().unwrap().push(Told {
            cbid: id,
            site: data.callback_site,
            name: text(data.function_name.cast()).unwrap(),
            symbol: text(data.symbol_name.cast()),
            result: (!data.function_return_value.is_null()).then(|| *data.function_return_value),
            correlation: data.correlation_id,
            carried: *data.correlation_data,
            context_uid: data.context_uid,
            bytes,
            thread: std::thread::current().id(),
        });
    }
}

/// Buffers given back, with the thread that gave each back; and the thread that asked for each.
static BUFFERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
static ASKED: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
const BUFFER_BYTES: usize = 1024;

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    ASKED.lock().unwrap().push(std::thread::current().id());
    let memory = vec![0u64; BUFFER_BYTES / 8].leak();
    // SAFETY: the callback's contract: three valid outputs.
    unsafe {
        *buffer = memory.as_mut_ptr().cast();
        *size = BUFFER_BYTES;
        *max_records = 0;
    }
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    assert_eq!(size, BUFFER_BYTES);
    BUFFERS.lock().unwrap().push((buffer as usize, valid));
}

fn cupti() -> Library {
    assert!(Emulator::load().is_some());
    Library::find(Some(&common::shared_object())).expect("the emulated device exports what the tracer needs")
}

/// Runs `f` on every record given back so far.
fn each_record(library: &Library, mut f: impl FnMut(Record<'_>)) {
    for (at, valid) in BUFFERS.lock().unwrap().drain(..) {
        // SAFETY: the buffer was leaked, and `valid` bytes of it were filled.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, valid) };
        let mut records = Records::new(library, bytes);
        records.by_ref().for_each(&mut f);
        assert_eq!(records.ended_with(), Some(CuptiResult::MAX_LIMIT_REACHED));
    }
}

fn subscribe(library: &Library) -> Subscriber {
    let mut subscriber: Subscriber = std::ptr::null_mut();
    // SAFETY: a valid output and a function that lives as long as the process.
    let result = unsafe { (library.subscribe)(&mut subscriber, on_call, 42 as *mut c_void) };
    assert_eq!(result, CuptiResult::SUCCESS);
    subscriber
}

#[test]
fn callbacks_enclose_the_call_on_its_own_thread_with_its_arguments_and_result() {
    common::on_the_emulated_device(
        "callbacks_enclose_the_call_on_its_own_thread_with_its_arguments_and_result",
        || {
            let library = cupti();
            let context = CudaContext::new(0).unwrap();
            let subscriber = subscribe(&library);
            let mut second: Subscriber = std::ptr::null_mut();
            // SAFETY: plain integers and valid outputs, here and below.
            unsafe {
                let refused = (library.subscribe)(&mut second, on_call, std::ptr::null_mut());
                assert_eq!(refused, CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
                for id in [cbid::driver::CU_MEMCPY_HTOD_V2, cbid::driver::CU_STREAM_SYNCHRONIZE] {
                    assert!((library.enable_callback)(1, subscriber, domain::DRIVER_API, id).is_ok());
                }
                let unknown = (library.enable_callback)(1, subscriber, domain::DRIVER_API, 99_999);
                assert_eq!(unknown, CuptiResult::INVALID_PARAMETER);
            }
            // SAFETY: the allocation is 1000 bytes, as is the source; the stream exists.
            unsafe {
                let memory = result::malloc_sync(1000).unwrap();
                result::memcpy_htod_sync(memory, &[1u8; 1000]).unwrap();
                result::stream::synchronize(context.default_stream().cu_stream()).unwrap();
                assert!(result::memcpy_htod_sync(0x10, &[1u8; 8]).is_err());
                result::free_sync(memory).unwrap();
            }
            let told = std::mem::take(&mut *TOLD.lock().unwrap());
            let names: Vec<_> = told.iter().map(|t| (t.name.as_str(), t.site, t.result)).collect();
            let (copy, sync) = ("cuMemcpyHtoD_v2", "cuStreamSynchronize");
            let expected = [
                (copy, site::ENTER, None),
                (copy, site::EXIT, Some(0)),
                (sync, site::ENTER, None),
                (sync, site::EXIT, Some(0)),
                (copy, site::ENTER, None),
                (copy, site::EXIT, Some(1)),
            ];
            assert_eq!(names, expected);
            for pair in told.chunks(2) {
                assert_eq!(pair[0].correlation, pair[1].correlation);
                assert_eq!(pair[1].carried, u64::from(pair[0].correlation) * 3, "carried from ENTER to EXIT");
                assert_eq!(pair[0].thread, std::thread::current().id());
                assert_ne!(pair[0].context_uid, 0);
            }
            assert_eq!((told[0].bytes, told[4].bytes), (1000, 8));
            assert!(told[2].correlation > told[0].correlation);
            // SAFETY: the subscription made above.
            unsafe { assert!((library.unsubscribe)(subscriber).is_ok()) };
            context.default_stream().synchronize().unwrap();
            assert!(TOLD.lock().unwrap().is_empty(), "nothing after unsubscribing");
            self::subscribe(&library); // free again
        },
    );
}

#[test]
fn records_carry_the_calls_correlation_ids_memory_kinds_and_times() {
    common::on_the_emulated_device("records_carry_the_calls_correlation_ids_memory_kinds_and_times", || {
        let library = cupti();
        let context = CudaContext::new(0).unwrap();
        let emulator = Emulator::find().unwrap();
        emulator.register("work", &[4], |_| Ok(())).unwrap();
        let module =
            context.load_module(Ptx::from_src(".version 8.0\n.entry work(.param .u32 x) {}")).unwrap();
        let work = module.load_function("work").unwrap();
        let stream = context.new_stream().unwrap();
        let subscriber = subscribe(&library);
        let mut stream_id = 0u64;
        // SAFETY: plain integers and valid outputs.
        unsafe {
            assert!((library.activity_register_callbacks)(requested, completed).is_ok());
            for kind in [
                kind::DRIVER,
                kind::MEMCPY,
                kind::MEMSET,
                kind::SYNCHRONIZATION,
                kind::CONCURRENT_KERNEL,
                kind::OVERHEAD,
            ] {
                assert!((library.activity_enable)(kind).is_ok(), "{kind}");
            }
            assert_eq!((library.activity_enable)(999), CuptiResult::INVALID_KIND);
            assert!(
                (library.enable_callback)(1, subscriber, domain::DRIVER_API, cbid::driver::CU_MEMCPY_HTOD_V2)
                    .is_ok()
            );
            assert_eq!(sys::cuStreamGetId(stream.cu_stream(), &mut stream_id) as u32, 0);
        }
        let before_ns = library.timestamp_ns().unwrap();
        // SAFETY: sizes and pointers belong together.
        unsafe {
            let device = result::malloc_sync(4096).unwrap();
            let pinned = result::malloc_host(4096, 0).unwrap().cast::<u8>();
            let pinned_slice = std::slice::from_raw_parts_mut(pinned, 4096);
            let mut pageable = vec![0u8; 4096];
            result::memcpy_htod_sync(device, &pageable).unwrap();
            result::memset_d8_async(device, 7, 4096, stream.cu_stream()).unwrap();
            result::memcpy_dtoh_async(pinned_slice, device, stream.cu_stream()).unwrap();
            result::memcpy_dtoh_async(&mut pageable, device, stream.cu_stream()).unwrap();
            assert_eq!(pageable, [7; 4096]);
            let mut launch = stream.launch_builder(&work);
            launch.arg(&5u32);
            launch
                .launch(LaunchConfig { grid_dim: (3, 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 16 })
                .unwrap();
            stream.synchronize().unwrap();
            let event = context.new_event(None).unwrap();
            event.record(&stream).unwrap();
            event.synchronize().unwrap();
            context.synchronize().unwrap();
            assert!((library.activity_flush_all)(0).is_ok());
        }
        let after_ns = library.timestamp_ns().unwrap();
        let (mut copies, mut syncs, mut kernels, mut memsets) = (Vec::new(), Vec::new(), 0, 0);
        let mut calls = std::collections::HashMap::new();
        let in_time = |start: u64, end: u64| before_ns <= start && start <= end && end <= after_ns;
        each_record(&library, |record| match record {
            Record::Memcpy(r) => {
                assert!(in_time(r.start_ns, r.end_ns));
                copies.push((r.copy_kind, r.src_kind, r.dst_kind, r.flags, r.bytes, r.correlation_id));
            }
            Record::Memset(r) => {
                assert!(in_time(r.start_ns, r.end_ns));
                assert_eq!((r.value, r.bytes, u64::from(r.stream_id)), (7, 4096, stream_id));
                memsets += 1;
            }
            Record::Kernel(r) => {
                assert!(in_time(r.start_ns, r.end_ns));
                // SAFETY: a record's kernel name lives as long as the library.
                assert_eq!(unsafe { CStr::from_ptr(r.name) }, c"work");
                assert_eq!((r.grid, r.block, r.dynamic_shared_memory), ([3, 1, 1], [64, 1, 1], 16));
                assert_eq!(u64::from(r.stream_id), stream_id);
                kernels += 1;
            }
            Record::Synchronization(r) => {
                assert!(in_time(r.start_ns, r.end_ns));
                syncs.push((r.type_, r.stream_id));
            }
            Record::Api(r) => {
                calls.insert(r.correlation_id, r.cbid);
            }
            other => panic!("{other:?}"),
        });
        use memory_kind::{DEVICE, PAGEABLE, PINNED};
        let without_id: Vec<_> = copies.iter().map(|c| (c.0, c.1, c.2, c.3, c.4)).collect();
        let expected = [
            (copy_kind::HOST_TO_DEVICE, PAGEABLE, DEVICE, 0, 4096),
            (copy_kind::DEVICE_TO_HOST, DEVICE, PINNED, 1, 4096),
            (copy_kind::DEVICE_TO_HOST, DEVICE, PAGEABLE, 1, 4096),
        ];
        assert_eq!(without_id, expected);
        assert_eq!((kernels, memsets), (1, 1));
        let made_by: Vec<_> = copies.iter().map(|c| calls[&c.5]).collect();
        use cbid::driver::{CU_MEMCPY_DTOH_ASYNC_V2 as DTOH, CU_MEMCPY_HTOD_V2 as HTOD};
        assert_eq!(made_by, [HTOD, DTOH, DTOH], "records lead to the calls that made them");
        assert_eq!(TOLD.lock().unwrap()[0].correlation, copies[0].5, "and callbacks to the records");
        let id = stream_id as u32;
        let all = [
            (synchronization::STREAM_SYNCHRONIZE, id),
            (synchronization::EVENT_SYNCHRONIZE, id),
            (synchronization::CONTEXT_SYNCHRONIZE, u32::MAX),
        ];
        assert_eq!(syncs, all);
        let me = std::thread::current().id();
        assert!(
            ASKED.lock().unwrap().iter().all(|t| *t == me),
            "buffers are asked for on the program's thread"
        );
    });
}

#[test]
fn a_full_buffer_comes_back_once_its_records_are_complete_and_no_record_is_lost() {
    common::on_the_emulated_device(
        "a_full_buffer_comes_back_once_its_records_are_complete_and_no_record_is_lost",
        || {
            let library = cupti();
            let context = CudaContext::new(0).unwrap();
            // SAFETY: plain integers and functions that live as long as the process.
            unsafe {
                assert!((library.activity_register_callbacks)(requested, completed).is_ok());
                assert!((library.activity_enable)(kind::MEMSET).is_ok());
            }
            const THREADS: usize = 4;
            const EACH: usize = 200;
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        context.bind_to_thread().unwrap();
                        let stream = context.new_stream().unwrap();
                        let mut memory = stream.alloc_zeros::<u8>(64).unwrap(); // one memset
                        for _ in 1..EACH {
                            stream.memset_zeros(&mut memory).unwrap();
                        }
                        stream.synchronize().unwrap();
                    });
                }
            });
            // SAFETY: as above.
            unsafe { assert!((library.activity_flush_all)(0).is_ok()) };
            let mut seen = 0;
            each_record(&library, |record| match record {
                Record::Memset(r) => {
                    assert!(r.end_ns >= r.start_ns && r.start_ns > 0);
                    assert_eq!(r.correlation_id, 0, "no API records, no correlation ids");
                    seen += 1;
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(seen, THREADS * EACH);
            let mut dropped = 99;
            // SAFETY: a valid output.
            unsafe {
                let result =
                    (library.activity_get_num_dropped_records)(std::ptr::null_mut(), 0, &mut dropped);
                assert!(result.is_ok());
            }
            assert_eq!(dropped, 0);
        },
    );
}

#[test]
fn copies_inside_a_graph_are_recorded_with_their_node() {
    common::on_the_emulated_device("copies_inside_a_graph_are_recorded_with_their_node", || {
        use sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
        let library = cupti();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        // SAFETY: sizes and pointers belong together; plain integers for CUPTI.
        unsafe {
            let device = result::malloc_sync(64).unwrap();
            let pinned = std::slice::from_raw_parts_mut(result::malloc_host(64, 0).unwrap().cast::<u8>(), 64);
            stream.begin_capture(RELAXED).unwrap();
            result::memset_d8_async(device, 9, 64, stream.cu_stream()).unwrap();
            result::memcpy_dtoh_async(pinned, device, stream.cu_stream()).unwrap();
            let flags = sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = stream.end_capture(flags).unwrap().unwrap();
            assert!((library.activity_register_callbacks)(requested, completed).is_ok());
            assert!((library.activity_enable)(kind::MEMCPY).is_ok());
            graph.launch().unwrap();
            graph.launch().unwrap();
            stream.synchronize().unwrap();
            assert_eq!(pinned, [9; 64]);
            assert!((library.activity_flush_all)(0).is_ok());
        }
        let mut nodes = Vec::new();
        each_record(&library, |record| {
            let Record::Memcpy(copy) = record else { panic!("{record:?}") };
            nodes.push((copy.graph_id, copy.graph_node_id));
        });
        assert_eq!(nodes.len(), 2);
        assert!(nodes[0] == nodes[1] && nodes[0].1 != 0, "{nodes:?}");
    });
}
