//! The blocking table against the device: each call is made while a gated kernel holds a stream, and it is seen either
//! to come back with the gate still closed or to be inside a wait. No clock is involved.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Device, Gate, function, get};
use crate::args::{In, Out, Text};
use crate::blocking::{Blocks, Call, Direction, Memory, Row, Size, TABLE};
use crate::worker::Role;
use crate::{context, copy, event, graph, memory, module, stream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The call came back while the gate was closed.
    Returned,
    /// The call was inside a wait while the gate was closed.
    Waited,
}

/// Makes `call` on a thread of its own while `gate` is closed on stream `held`. A wait for that stream can't end by
/// itself, so the first thing seen is the truth.
fn observe(device: &Device, gate: &Gate, held: usize, call: impl FnOnce() -> u32 + Send) -> (Seen, u32) {
    let returned = AtomicBool::new(false);
    let held = context::stream(held, Role::Legacy).expect("a live stream");
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            device.make_current();
            let code = call();
            returned.store(true, Ordering::SeqCst);
            code
        });
        let seen = loop {
            if returned.load(Ordering::SeqCst) {
                break Seen::Returned;
            }
            if held.hosts_waiting.load(Ordering::SeqCst) > 0 {
                break Seen::Waited;
            }
            std::thread::yield_now();
        };
        gate.open();
        (seen, caller.join().expect("the call came back"))
    })
}

/// Where the gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// On the stream that the call is about.
    ItsStream,
    /// On an unrelated non-blocking stream.
    AnotherStream,
}

fn expected(blocks: Blocks, held: Held) -> Seen {
    match (blocks, held) {
        (Blocks::No, _) => Seen::Returned,
        (Blocks::Device, _) | (_, Held::ItsStream) => Seen::Waited,
        (_, Held::AnotherStream) => Seen::Returned,
    }
}

const SMALL: usize = 64 << 10;
const LARGE: usize = SMALL + 1;

/// An address of `bytes` bytes of some kind of memory.
fn memory_of(device: &Device, kind: Memory, host: bool, bytes: usize) -> u64 {
    match kind {
        Memory::Pageable => vec![1u8; bytes].leak().as_ptr() as u64,
        Memory::Pinned => device.pinned(bytes) as u64,
        Memory::Device => device.alloc(bytes),
        Memory::Managed => get(|out| memory::cuMemAllocManaged(out, bytes, 1)),
        Memory::SyncMemops => {
            let address = if host { device.pinned(bytes) as u64 } else { device.alloc(bytes) };
            assert_eq!(memory::cuPointerSetAttribute(In(&1u32), 6, address), 0);
            address
        }
    }
}

/// Source and destination of a copy that the row is about.
fn sides(device: &Device, direction: Direction, memory: Memory, bytes: usize) -> Option<(u64, u64)> {
    let one = |kind, host| memory_of(device, kind, host, bytes);
    use Direction::*;
    use Memory::*;
    Some(match (direction, memory) {
        (HostToDevice, Pageable | Pinned) => (one(memory, true), one(Device, false)),
        (HostToDevice, Managed | SyncMemops) => (one(Pageable, true), one(memory, false)),
        (DeviceToHost, Pageable | Pinned) => (one(Device, false), one(memory, true)),
        (DeviceToHost, Managed | SyncMemops) => (one(memory, false), one(Pageable, true)),
        (DeviceToDevice, Device | Managed | SyncMemops) => (one(memory, false), one(Device, false)),
        (HostToHost, Pageable | Pinned | SyncMemops) => (one(memory, true), one(memory, true)),
        _ => return None,
    })
}

/// Rows that the scenarios reached, by index.
fn reached(
    call: Call,
    direction: Option<Direction>,
    memory: Option<Memory>,
    size: Option<Size>,
) -> &'static Row {
    let fits = |r: &&Row| {
        r.call == call
            && (r.direction.is_none() || r.direction == direction)
            && (r.memory.is_none() || r.memory == memory)
            && (r.size.is_none() || r.size == size)
    };
    TABLE.iter().find(fits).unwrap_or_else(|| panic!("{call:?} {direction:?} {memory:?} {size:?} has no row"))
}

#[test]
fn copies_hold_the_host_exactly_as_the_table_says() {
    let mut rows = HashSet::new();
    for call in [Call::CopySync, Call::CopyAsync] {
        for direction in [
            Direction::HostToDevice,
            Direction::DeviceToHost,
            Direction::DeviceToDevice,
            Direction::HostToHost,
        ] {
            for memory in
                [Memory::Pageable, Memory::Pinned, Memory::Device, Memory::Managed, Memory::SyncMemops]
            {
                for (size, bytes) in [(Size::Small, SMALL), (Size::Large, LARGE)] {
                    for held in [Held::ItsStream, Held::AnotherStream] {
                        let device = Device::new();
                        let Some((src, dst)) = sides(&device, direction, memory, bytes) else { continue };
                        let row = reached(call, Some(direction), Some(memory), Some(size));
                        rows.insert(std::ptr::from_ref(row) as usize);
                        let own = if call == Call::CopySync { 0 } else { device.stream(1) };
                        let other = device.stream(1);
                        let gate = Gate::new(&device);
                        let held_stream = if held == Held::ItsStream { own } else { other };
                        gate.hold(held_stream);
                        let (seen, code) = observe(&device, &gate, held_stream, || match call {
                            Call::CopySync => copy::cuMemcpy(dst, src, bytes),
                            _ => copy::cuMemcpyAsync(dst, src, bytes, own),
                        });
                        assert_eq!(code, 0);
                        let what = format!("{call:?} {direction:?} {memory:?} {size:?} {held:?}");
                        assert_eq!(seen, expected(row.blocks, held), "{what}");
                    }
                }
            }
        }
    }
    let copies = TABLE.iter().filter(|r| matches!(r.call, Call::CopySync | Call::CopyAsync)).count();
    assert_eq!(rows.len(), copies, "every row about copies was tried");
}

#[test]
fn memsets_hold_the_host_exactly_as_the_table_says() {
    for call in [Call::MemsetSync, Call::MemsetAsync] {
        for kind in [Memory::Pinned, Memory::Managed, Memory::Device] {
            for held in [Held::ItsStream, Held::AnotherStream] {
                let device = Device::new();
                let target = memory_of(&device, kind, true, 4096);
                let own = if call == Call::MemsetSync { 0 } else { device.stream(1) };
                let other = device.stream(1);
                let gate = Gate::new(&device);
                let held_stream = if held == Held::ItsStream { own } else { other };
                gate.hold(held_stream);
                let (seen, code) = observe(&device, &gate, held_stream, || match call {
                    Call::MemsetSync => copy::cuMemsetD8_v2(target, 1, 4096),
                    _ => copy::cuMemsetD8Async(target, 1, 4096, own),
                });
                assert_eq!(code, 0);
                let row = reached(call, None, Some(kind), None);
                assert_eq!(seen, expected(row.blocks, held), "{call:?} {kind:?} {held:?}");
            }
        }
    }
}

/// Makes the call that a row is about; its result. Everything it needs is made before the gate closes.
fn prepared(call: Call, device: &Device, own: usize) -> Box<dyn FnOnce() -> u32 + Send> {
    extern "C" fn nothing(_: *mut libc::c_void) {}
    match call {
        Call::CopySync | Call::CopyAsync | Call::MemsetSync | Call::MemsetAsync => {
            unreachable!("tested with their memory")
        }
        Call::StreamSynchronize => Box::new(move || stream::cuStreamSynchronize(own)),
        // The event lies behind the gate: recorded by `after_gate`.
        Call::EventSynchronize | Call::StreamWaitEvent | Call::EventDestroy | Call::EventRecord => {
            let made: usize = get(|out| event::cuEventCreate(out, 0));
            Box::new(move || match call {
                Call::EventRecord => event::cuEventRecord(made, own),
                _ => {
                    assert_eq!(event::cuEventRecord(made, own), 0);
                    match call {
                        Call::EventSynchronize => event::cuEventSynchronize(made),
                        Call::StreamWaitEvent => {
                            event::cuStreamWaitEvent(get(|o| stream::cuStreamCreate(o, 1)), made, 0)
                        }
                        _ => event::cuEventDestroy_v2(made),
                    }
                }
            })
        }
        Call::CtxSynchronize => Box::new(|| context::cuCtxSynchronize()),
        Call::CtxDestroy => {
            let context = device.context;
            Box::new(move || context::cuCtxDestroy_v2(context))
        }
        Call::Query => Box::new(move || match stream::cuStreamQuery(own) {
            600 => 0, // NOT_READY is an answer
            code => code,
        }),
        Call::MemAlloc => Box::new(|| memory::cuMemAlloc_v2(Out(&mut 0), 64)),
        Call::MemFree => {
            let memory = device.alloc(64);
            Box::new(move || memory::cuMemFree_v2(memory))
        }
        Call::MemFreeOfPool | Call::MemFreeAsync => {
            let memory: u64 = get(|out| memory::cuMemAllocAsync(out, 64, own));
            Box::new(move || match call {
                Call::MemFreeAsync => memory::cuMemFreeAsync(memory, own),
                _ => memory::cuMemFree_v2(memory),
            })
        }
        Call::MemAllocAsync => Box::new(move || memory::cuMemAllocAsync(Out(&mut 0), 64, own)),
        Call::MemPoolTrim => {
            let pool: usize = get(|out| memory::cuDeviceGetDefaultMemPool(out, 0));
            Box::new(move || memory::cuMemPoolTrimTo(pool, 0))
        }
        Call::MemHostAlloc => Box::new(|| memory::cuMemHostAlloc(Out(&mut std::ptr::null_mut()), 64, 0)),
        Call::MemFreeHost => {
            let memory = device.pinned(64);
            Box::new(move || memory::cuMemFreeHost(memory as *mut _))
        }
        Call::MemHostRegister | Call::MemHostUnregister => {
            let buffer = vec![0u8; 4096].leak().as_mut_ptr() as usize;
            if call == Call::MemHostUnregister {
                assert_eq!(memory::cuMemHostRegister_v2(buffer as *mut _, 4096, 0), 0);
                return Box::new(move || memory::cuMemHostUnregister(buffer as *mut _));
            }
            Box::new(move || memory::cuMemHostRegister_v2(buffer as *mut _, 4096, 0))
        }
        Call::ModuleLoad => {
            Box::new(|| module::cuModuleLoadData(Out(&mut 0), c"image".as_ptr().cast_mut().cast()))
        }
        Call::ModuleUnload => {
            let loaded: usize = get(|out| module::cuModuleLoadData(out, c"image".as_ptr().cast_mut().cast()));
            assert_eq!(module::cuModuleGetFunction(Out(&mut 0), loaded, Text(c"f".as_ptr())), 0);
            Box::new(move || module::cuModuleUnload(loaded))
        }
        Call::Launch => {
            let kernel = function("a kernel without host implementation");
            Box::new(move || super::launch(kernel, own, &[]))
        }
        Call::GraphLaunch => {
            let made: usize = get(|out| graph::cuGraphCreate(out, 0));
            let exec: usize = get(|out| graph::cuGraphInstantiateWithFlags(out, made, 0));
            Box::new(move || graph::cuGraphLaunch(exec, own))
        }
        Call::HostFunction => {
            Box::new(move || stream::cuLaunchHostFunc(own, Some(nothing), std::ptr::null_mut()))
        }
        Call::StreamDestroy => Box::new(move || stream::cuStreamDestroy_v2(own)),
    }
}

#[test]
fn all_other_calls_hold_the_host_exactly_as_the_table_says() {
    let with_memory = [Call::CopySync, Call::CopyAsync, Call::MemsetSync, Call::MemsetAsync];
    for row in TABLE.iter().filter(|r| !with_memory.contains(&r.call)) {
        for held in [Held::ItsStream, Held::AnotherStream] {
            let device = Device::new();
            let (own, other) = (device.stream(1), device.stream(1));
            let call = prepared(row.call, &device, own);
            let gate = Gate::new(&device);
            let held_stream = if held == Held::ItsStream { own } else { other };
            gate.hold(held_stream);
            let (seen, code) = observe(&device, &gate, held_stream, call);
            assert_eq!(code, 0, "{:?}", row.call);
            assert_eq!(seen, expected(row.blocks, held), "{:?} {held:?}", row.call);
        }
    }
}

#[test]
fn a_launch_waits_for_space_once_the_queue_is_full() {
    let device = Device::new();
    let own = device.stream(1);
    let kernel = function("another kernel without host implementation");
    let gate = Gate::new(&device);
    gate.hold(own);
    for _ in 1..crate::worker::QUEUE_LIMIT {
        assert_eq!(super::launch(kernel, own, &[]), 0);
    }
    let last = std::sync::atomic::AtomicU32::new(u32::MAX);
    let object = context::stream(own, Role::Legacy).expect("a live stream");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            device.make_current();
            last.store(super::launch(kernel, own, &[]), Ordering::SeqCst);
        });
        while object.hosts_waiting.load(Ordering::SeqCst) == 0 {
            assert_eq!(
                last.load(Ordering::SeqCst),
                u32::MAX,
                "the launch came back although there was no space"
            );
            std::thread::yield_now();
        }
        gate.open();
    });
    assert_eq!(last.load(Ordering::SeqCst), 0);
}

#[test]
fn the_legacy_default_stream_waits_for_blocking_streams_and_they_for_it() {
    let (legacy, blocking, free) = (None, Some(0), Some(1));
    for (held, used, ordered) in
        [(blocking, legacy, true), (free, legacy, false), (legacy, blocking, true), (legacy, free, false)]
    {
        let device = Device::new();
        let stream_of = |flags: Option<u32>| flags.map_or(0, |f| device.stream(f));
        let (held_stream, used_stream) = (stream_of(held), stream_of(used));
        let gate = Gate::new(&device);
        gate.hold(held_stream);
        // A kernel on the other stream notes whether the gate was open when it ran.
        let (noted, note) = std::sync::mpsc::channel();
        let is_open = gate.watch();
        let kernel = device.kernel(&[], move |_| {
            noted.send(is_open()).expect("the test listens");
            Ok(())
        });
        let object = context::stream(used_stream, Role::Legacy).expect("a live stream");
        let outstanding = object.context.implicit_order(&object).iter().any(|t| !t.is_complete());
        assert_eq!(outstanding, ordered, "held {held:?}, used {used:?}");
        assert_eq!(super::launch(kernel, used_stream, &[]), 0);
        if !ordered {
            assert!(
                !note.recv().expect("it ran"),
                "held {held:?}, used {used:?}: ran behind the closed gate"
            );
        }
        gate.open();
        if ordered {
            assert!(note.recv().expect("it ran"), "held {held:?}, used {used:?}: ran before the gate opened");
        }
    }
}

#[test]
fn the_documented_table_is_this_table() {
    let cell = |value: Option<String>| value.unwrap_or_else(|| "any".to_owned());
    let mut lines = vec!["| call | direction | memory | size | holds the host | source |".to_owned()];
    lines.push("|---|---|---|---|---|---|".to_owned());
    for row in TABLE {
        lines.push(format!(
            "| {:?} | {} | {} | {} | {} | {} |",
            row.call,
            cell(row.direction.map(|d| format!("{d:?}"))),
            cell(row.memory.map(|m| format!("{m:?}"))),
            cell(row.size.map(|s| match s {
                Size::Small => "up to 64 KiB".to_owned(),
                Size::Large => "more".to_owned(),
            })),
            match row.blocks {
                Blocks::No => "no",
                Blocks::Stream => "until the stream has drained",
                Blocks::Event => "until the event has happened",
                Blocks::Device => "until the context has drained",
                Blocks::Operation => "until it is done",
                Blocks::Staging => "until the stream has drained and the source is staged",
            },
            row.source
        ));
    }
    let document = include_str!("../../../docs/emulator.md");
    let table = lines.join("\n");
    assert!(
        document.contains(&table),
        "docs/emulator.md does not hold the blocking table, which is:\n{table}"
    );
}
