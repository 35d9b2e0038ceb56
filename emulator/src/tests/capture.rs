//! Stream capture: what becomes a graph, what replay does, and which calls are prohibited meanwhile.

use super::{Device, get, launch, pointer};
use crate::args::Out;
use crate::capture::*;
use crate::context::cuCtxSynchronize;
use crate::copy::{cuMemcpyDtoH_v2, cuMemcpyHtoDAsync_v2, cuMemsetD32_v2, cuMemsetD32Async};
use crate::event::{cuEventCreate, cuEventQuery, cuEventRecord, cuEventSynchronize, cuStreamWaitEvent};
use crate::graph::*;
use crate::memory::{cuMemAlloc_v2, cuMemAllocAsync, cuMemFree_v2, cuMemHostAlloc};
use crate::stream::{cuStreamDestroy_v2, cuStreamQuery, cuStreamSynchronize};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

fn read(memory: u64) -> u32 {
    let mut value = 0u32;
    assert_eq!(cuMemcpyDtoH_v2((&raw mut value).cast(), memory, 4), 0);
    value
}

fn end(stream: usize) -> (u32, usize) {
    let mut graph = 1;
    (cuStreamEndCapture(stream, Out(&mut graph)), graph)
}

/// Kernel `x = x * 3 + 1` on one number.
fn step(device: &Device) -> usize {
    device.kernel(&[8], |launch| {
        let x = launch.slice_mut::<u32>(launch.param(0)?, 1)?;
        x[0] = x[0].wrapping_mul(3).wrapping_add(1);
        Ok(())
    })
}

#[test]
fn a_forked_and_joined_capture_replays_in_order() {
    let device = Device::alone();
    let (a, b) = (device.stream(0), device.stream(1));
    let (x, y) = (device.alloc(4), device.alloc(4));
    let step = step(&device);
    let (fork, join): (usize, usize) = (get(|o| cuEventCreate(o, 2)), get(|o| cuEventCreate(o, 2)));
    assert_eq!(cuStreamBeginCapture_v2(a, GLOBAL), 0);
    assert_eq!(cuMemsetD32Async(x, 1, 1, a), 0);
    assert_eq!(cuEventRecord(fork, a), 0);
    assert_eq!(cuStreamWaitEvent(b, fork, 0), 0);
    assert_eq!(cuMemsetD32Async(y, 10, 1, b), 0);
    assert_eq!(launch(step, b, &[pointer(&y)]), 0);
    assert_eq!(launch(step, a, &[pointer(&x)]), 0);
    assert_eq!(get::<u32>(|o| cuStreamIsCapturing(b, o)), 1);
    assert_eq!(cuEventRecord(join, b), 0);
    assert_eq!(cuStreamWaitEvent(a, join, 0), 0);
    assert_eq!(launch(step, a, &[pointer(&y)]), 0);
    let (code, graph) = end(a);
    assert_eq!(code, 0);
    assert_eq!(get::<u32>(|o| cuStreamIsCapturing(b, o)), 0, "the capture took its branch along");
    assert_eq!((read(x), read(y)), (0, 0), "nothing ran");
    let nodes: usize = get(|n| cuGraphGetNodes(graph, Out(std::ptr::null_mut()), n));
    let edges: usize =
        get(|n| cuGraphGetEdges(graph, Out(std::ptr::null_mut()), Out(std::ptr::null_mut()), n));
    assert_eq!((nodes, edges), (5, 5)); // x1->x2, x1->y1, y1->y2, x2->y3, y2->y3
    let exec: usize = get(|o| cuGraphInstantiateWithFlags(o, graph, 0));
    for _ in 0..3 {
        assert_eq!(cuMemsetD32_v2(x, 99, 1), 0);
        assert_eq!(cuGraphLaunch(exec, a), 0);
        assert_eq!(cuStreamSynchronize(a), 0);
        assert_eq!((read(x), read(y)), (4, 94));
    }
    assert_eq!(cuGraphDestroy(graph), 0);
    assert_eq!(cuGraphLaunch(exec, a), 0, "an executable graph outlives its graph");
    assert_eq!(cuGraphExecDestroy(exec), 0);
    assert_eq!(cuGraphLaunch(exec, a), 1);
}

#[test]
fn calls_that_would_not_be_captured_fail_and_invalidate_the_capture() {
    let device = Device::alone();
    let event: usize = get(|o| cuEventCreate(o, 0));
    let memory = device.alloc(4);
    let mut word = 0u32;
    let host = (&raw mut word).cast::<libc::c_void>();
    let other = device.stream(1);
    type CallIn<'a> = (&'a str, Box<dyn Fn(usize) -> u32 + 'a>);
    let calls: Vec<CallIn> = vec![
        ("stream synchronise", Box::new(|s| cuStreamSynchronize(s))),
        ("stream query", Box::new(|s| cuStreamQuery(s))),
        ("synchronise of another stream", Box::new(|_| cuStreamSynchronize(other))),
        ("context synchronise", Box::new(|_| cuCtxSynchronize())),
        ("event query", Box::new(|_| cuEventQuery(event))),
        ("event synchronise", Box::new(|_| cuEventSynchronize(event))),
        ("allocation", Box::new(|_| cuMemAlloc_v2(Out(&mut 0), 4))),
        ("free", Box::new(|_| cuMemFree_v2(memory))),
        ("pinned allocation", Box::new(|_| cuMemHostAlloc(Out(&mut std::ptr::null_mut()), 4, 0))),
        ("synchronous copy", Box::new(|_| cuMemcpyDtoH_v2(host, memory, 4))),
        ("synchronous memset", Box::new(|_| cuMemsetD32_v2(memory, 1, 1))),
    ];
    for (what, call) in calls {
        let stream = device.stream(1);
        assert_eq!(cuStreamBeginCapture_v2(stream, GLOBAL), 0);
        assert_eq!(cuMemsetD32Async(memory, 1, 1, stream), 0);
        assert_eq!(call(stream), 900, "{what}");
        assert_eq!(get::<u32>(|o| cuStreamIsCapturing(stream, o)), 2, "{what}");
        assert_eq!(cuMemsetD32Async(memory, 1, 1, stream), 901, "{what}");
        assert_eq!(end(stream), (901, 0), "{what}");
        assert_eq!(cuMemsetD32Async(memory, 1, 1, stream), 0, "the stream works again after {what}");
        assert_eq!(cuStreamSynchronize(stream), 0);
    }
    assert_eq!(cuMemFree_v2(memory), 0, "the prohibited free did not free");
}

#[test]
fn the_mode_decides_whose_calls_are_prohibited() {
    let device = Device::alone();
    for (mode, own, elsewhere) in [(GLOBAL, 900, 900), (THREAD_LOCAL, 900, 0), (RELAXED, 0, 0)] {
        for (on_another_thread, expected) in [(false, own), (true, elsewhere)] {
            let stream = device.stream(1);
            assert_eq!(cuStreamBeginCapture_v2(stream, mode), 0);
            let allocate = || {
                device.make_current();
                cuMemAlloc_v2(Out(&mut 0), 4)
            };
            let code = if on_another_thread {
                std::thread::scope(|s| s.spawn(allocate).join().unwrap())
            } else {
                allocate()
            };
            assert_eq!(code, expected, "mode {mode}, other thread {on_another_thread}");
            assert_eq!(end(stream).0, if expected == 0 { 0 } else { 901 });
        }
    }
    // A thread may lift the prohibition for itself.
    let stream = device.stream(1);
    assert_eq!(cuStreamBeginCapture_v2(stream, GLOBAL), 0);
    let mut mode = RELAXED;
    assert_eq!(cuThreadExchangeStreamCaptureMode(Out(&mut mode)), 0);
    assert_eq!(mode, GLOBAL);
    assert_eq!(cuMemAlloc_v2(Out(&mut 0), 4), 0);
    assert_eq!(cuThreadExchangeStreamCaptureMode(Out(&mut mode)), 0);
    assert_eq!(end(stream).0, 0);
}

#[test]
fn captures_that_make_no_graph_say_why() {
    let device = Device::alone();
    let memory = device.alloc(4);
    let event: usize = get(|o| cuEventCreate(o, 2));
    let streams = || (device.stream(0), device.stream(1));

    let (a, b) = streams();
    assert_eq!(cuStreamBeginCapture_v2(0, GLOBAL), 900, "the legacy default stream");
    assert_eq!(end(a).0, 401, "no capture to end");
    assert_eq!(cuStreamBeginCapture_v2(a, 7), 1, "no such mode");
    assert_eq!(cuStreamBeginCapture_v2(a, RELAXED), 0);
    assert_eq!(cuStreamBeginCapture_v2(a, RELAXED), 401, "captured already");
    assert_eq!(cuEventRecord(event, a), 0);
    assert_eq!(cuEventQuery(event), 907, "a captured event has no state");
    assert_eq!(cuStreamWaitEvent(b, event, 0), 0);
    assert_eq!(cuMemsetD32Async(memory, 1, 1, b), 0);
    assert_eq!(end(a), (904, 0), "a branch that never came back");

    let (a, b) = streams();
    assert_eq!(cuStreamBeginCapture_v2(a, RELAXED), 0);
    assert_eq!(cuEventRecord(event, a), 0);
    assert_eq!(cuStreamWaitEvent(b, event, 0), 0);
    assert_eq!(end(b).0, 903, "ended on a stream that did not begin it");
    assert_eq!(end(a).0, 901);

    let (a, b) = streams();
    assert_eq!(cuEventRecord(event, b), 0);
    assert_eq!(cuStreamBeginCapture_v2(a, RELAXED), 0);
    assert_eq!(cuStreamWaitEvent(a, event, 0), 905, "depends on work outside");
    assert_eq!(end(a).0, 901);

    let (a, b) = streams();
    assert_eq!(cuStreamBeginCapture_v2(a, RELAXED), 0);
    assert_eq!(cuStreamBeginCapture_v2(b, RELAXED), 0);
    assert_eq!(cuEventRecord(event, a), 0);
    assert_eq!(cuStreamWaitEvent(b, event, 0), 902, "two captures would merge");
    assert_eq!((end(a).0, end(b).0), (901, 901));

    let (a, _) = streams();
    assert_eq!(cuStreamBeginCapture_v2(a, RELAXED), 0);
    assert_eq!(cuMemsetD32Async(memory, 1, 1, 0), 906, "the legacy stream would depend on a captured one");
    assert_eq!(end(a).0, 901);

    let (a, _) = streams();
    assert_eq!(cuStreamBeginCapture_v2(a, THREAD_LOCAL), 0);
    let elsewhere = std::thread::scope(|s| s.spawn(|| end(a).0).join().unwrap());
    assert_eq!(elsewhere, 908, "another thread");
    assert_eq!(end(a).0, 0);

    let (a, _) = streams();
    assert_eq!(cuStreamBeginCapture_v2(a, GLOBAL), 0);
    assert_eq!(cuStreamDestroy_v2(a), 0);
    assert_eq!(cuMemAlloc_v2(Out(&mut 0), 4), 0, "a destroyed stream prohibits nothing");
}

#[test]
fn a_captured_upload_reads_its_source_at_each_replay() {
    let device = Device::alone();
    let stream = device.stream(1);
    let memory = device.alloc(4);
    let source = device.pinned(4) as *mut u32;
    assert_eq!(cuStreamBeginCapture_v2(stream, GLOBAL), 0);
    let own: u64 = get(|o| cuMemAllocAsync(o, 64, stream));
    assert_ne!(own, 0);
    assert_eq!(cuMemcpyHtoDAsync_v2(memory, source.cast(), 4, stream), 0);
    let (code, graph) = end(stream);
    assert_eq!(code, 0);
    let exec: usize = get(|o| cuGraphInstantiateWithFlags(o, graph, 0));
    for value in [5, 6] {
        // SAFETY: four bytes of pinned memory; the stream is idle.
        unsafe { source.write(value) };
        assert_eq!(cuGraphLaunch(exec, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(read(memory), value);
    }
}

#[test]
fn an_executable_graph_takes_new_parameters_but_no_new_shape() {
    let device = Device::alone();
    let memory = device.alloc(8);
    let stream = device.stream(1);
    let captured = |values: &[u32]| {
        assert_eq!(cuStreamBeginCapture_v2(stream, GLOBAL), 0);
        for (at, value) in values.iter().enumerate() {
            assert_eq!(cuMemsetD32Async(memory + 4 * at as u64, *value, 1, stream), 0);
        }
        end(stream).1
    };
    let exec: usize = get(|o| cuGraphInstantiateWithFlags(o, captured(&[1, 2]), 0));
    let mut info = crate::abi::UpdateInfo { result: 9, error_node: 0, error_from_node: 0 };
    assert_eq!(cuGraphExecUpdate_v2(exec, captured(&[7, 8]), Out(&mut info)), 0);
    assert_eq!(info.result, 0);
    assert_eq!(cuGraphLaunch(exec, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!((read(memory), read(memory + 4)), (7, 8));
    assert_eq!(cuGraphExecUpdate_v2(exec, captured(&[1]), Out(&mut info)), 910);
    assert_eq!(info.result, 2, "the topology changed");
}
