//! cudarc's safe API on the emulated device, through the built shared object as a program would load it.
//!
//! The loader reads `LD_LIBRARY_PATH` at process start, so each test runs itself again in a child whose path leads to
//! the emulated `libcuda.so.1`.

#![allow(unsafe_code)] // launches are unsafe in cudarc

mod common;

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaModule, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use syncaudit_emulator_api::{Emulator, KernelError};

const PTX: &str = ".version 8.0\n.target sm_90\n.visible .entry saxpy(.param .u64 y) { ret; }\n\
                   .visible .entry oops() { ret; }\n.visible .entry nothing() { ret; }";

fn device() -> (Arc<CudaContext>, Arc<CudaModule>) {
    let context = CudaContext::new(0).expect("a context on the emulated device");
    let emulator = Emulator::find().expect("libcuda.so.1 is the emulated device");
    emulator
        .register("saxpy", &[8, 8, 4, 4], |launch| {
            let (y, x) = (launch.param::<u64>(0)?, launch.param::<u64>(1)?);
            let (a, n) = (launch.param::<f32>(2)?, launch.param::<u32>(3)? as usize);
            for (y, x) in launch.slice_mut::<f32>(y, n)?.iter_mut().zip(launch.slice::<f32>(x, n)?) {
                *y += a * x;
            }
            Ok(())
        })
        .unwrap();
    emulator.register("oops", &[], |_| Err(KernelError::IllegalAddress("on purpose".into()))).unwrap();
    let module = context.load_module(Ptx::from_src(PTX)).expect("a module");
    (context, module)
}

#[test]
fn a_kernel_computes_on_copied_data_and_the_result_comes_back() {
    common::on_the_emulated_device("a_kernel_computes_on_copied_data_and_the_result_comes_back", || {
        let (context, module) = device();
        assert!(context.name().unwrap().contains("emulated"));
        let saxpy = module.load_function("saxpy").unwrap();
        for stream in [context.default_stream(), context.new_stream().unwrap()] {
            let x: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
            let x_device = stream.clone_htod(&x).unwrap();
            let mut y_device = stream.alloc_zeros::<f32>(x.len()).unwrap();
            let n = x.len() as u32;
            for _ in 0..3 {
                let mut launch = stream.launch_builder(&saxpy);
                launch.arg(&mut y_device).arg(&x_device).arg(&2.0f32).arg(&n);
                // SAFETY: the arguments are saxpy's, and both slices have n elements.
                unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }.unwrap();
            }
            let y = stream.clone_dtoh(&y_device).unwrap();
            assert!(y.iter().enumerate().all(|(i, y)| *y == 6.0 * i as f32));
        }
    });
}

#[test]
fn events_order_streams_and_measure_time() {
    common::on_the_emulated_device("events_order_streams_and_measure_time", || {
        use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
        let (context, _module) = device();
        let (a, b) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let mut data = a.alloc_zeros::<u8>(1 << 20).unwrap();
        a.memset_zeros(&mut data).unwrap();
        let start = a.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
        b.wait(&start).unwrap();
        b.memcpy_htod(&vec![7u8; 1 << 20], &mut data).unwrap();
        let end = b.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
        a.wait(&end).unwrap();
        assert_eq!(a.clone_dtoh(&data).unwrap(), vec![7u8; 1 << 20]);
        assert!(start.elapsed_ms(&end).unwrap() >= 0.0);
        // SAFETY: the buffer is written in full before it is read.
        let mut pinned = unsafe { context.alloc_pinned::<u8>(1 << 20) }.unwrap();
        a.memcpy_dtoh(&data, &mut pinned).unwrap();
        assert!(pinned.as_slice().unwrap().iter().all(|b| *b == 7));
    });
}

#[test]
fn a_captured_graph_replays_what_the_stream_would_have_done() {
    common::on_the_emulated_device("a_captured_graph_replays_what_the_stream_would_have_done", || {
        use cudarc::driver::sys::{CUgraphInstantiate_flags_enum as Flags, CUstreamCaptureMode_enum as Mode};
        let (context, module) = device();
        // SAFETY: one stream only, so there is nothing for cudarc's events to order.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let saxpy = module.load_function("saxpy").unwrap();
        let x = stream.clone_htod(&[1.0f32; 64]).unwrap();
        let mut y = stream.alloc_zeros::<f32>(64).unwrap();
        stream.synchronize().unwrap();
        stream.begin_capture(Mode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        let mut launch = stream.launch_builder(&saxpy);
        launch.arg(&mut y).arg(&x).arg(&0.5f32).arg(&64u32);
        // SAFETY: the arguments are saxpy's, and both slices have 64 elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(64)) }.unwrap();
        let graph = stream
            .end_capture(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
            .unwrap()
            .expect("a graph with one node");
        assert_eq!(stream.clone_dtoh(&y).unwrap(), [0.0; 64], "captured, not run");
        for _ in 0..4 {
            graph.launch().unwrap();
        }
        assert_eq!(stream.clone_dtoh(&y).unwrap(), [2.0; 64]);
    });
}

#[test]
fn a_kernel_occupies_its_stream_for_the_time_that_the_model_gives_it() {
    common::on_the_emulated_device(
        "a_kernel_occupies_its_stream_for_the_time_that_the_model_gives_it",
        || {
            use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
            // SAFETY: the child runs this one test, and nothing has read the variable yet.
            unsafe { std::env::set_var("SYNCAUDIT_EMU_KERNEL_TIME", "nothing=20ms,*=1ns") };
            let (context, module) = device();
            let stream = context.new_stream().unwrap();
            let nothing = module.load_function("nothing").unwrap();
            let start = stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
            for _ in 0..2 {
                // SAFETY: the kernel takes no arguments.
                unsafe { stream.launch_builder(&nothing).launch(LaunchConfig::for_num_elems(1)) }.unwrap();
            }
            let end = stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
            assert!(start.elapsed_ms(&end).unwrap() >= 40.0, "a lower bound, by the device's own events");
        },
    );
}

#[test]
fn an_unknown_kernel_of_a_ptx_is_not_found_and_a_failing_kernel_is_sticky() {
    common::on_the_emulated_device(
        "an_unknown_kernel_of_a_ptx_is_not_found_and_a_failing_kernel_is_sticky",
        || {
            let (context, module) = device();
            assert!(module.load_function("absent").is_err());
            let stream = context.new_stream().unwrap();
            let config = LaunchConfig::for_num_elems(1);
            let nothing = module.load_function("nothing").unwrap();
            // SAFETY: the kernel takes no arguments.
            unsafe { stream.launch_builder(&nothing).launch(config) }.unwrap();
            stream.synchronize().expect("a kernel without host implementation does nothing");
            let oops = module.load_function("oops").unwrap();
            // SAFETY: the kernel takes no arguments.
            unsafe { stream.launch_builder(&oops).launch(config) }.unwrap();
            let error = stream.synchronize().unwrap_err();
            assert_eq!(error.0, cudarc::driver::sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            assert!(stream.alloc_zeros::<u8>(16).is_err(), "sticky");
        },
    );
}
