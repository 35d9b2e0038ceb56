//! Whatever a trace holds, the audit's sums agree, no call is in two waits, and nothing panics.

use std::collections::HashSet;

use proptest::prelude::*;
use syncaudit::audit::{AuditOptions, Calls, LogEvery, audit};
use syncaudit::gate::Judged;
use syncaudit::model::{
    CallData, CallEffect, CopyDirection, DeviceOp, DeviceOpKind, FreeRange, MemoryKind, OPEN, Overhead,
    OverheadKind, Span, SpanId, SpanKind, StackId, StreamId, TraceBuilder,
};
use syncaudit::report::{TextStyle, json, text};

const APIS: [&str; 16] = [
    "cudaStreamSynchronize",
    "cuCtxSynchronize_v2",
    "cudaEventSynchronize",
    "cudaMemcpyAsync",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "hipMemcpyWithStream",
    "cudaEventQuery",
    "cudaFree",
    "cuMemHostAlloc",
    "cuModuleLoadData",
    "cudaLaunchKernel",
    "cudaStreamWaitEvent",
    "cudaMemset",
    "cudaGraphLaunch",
    "nonsense",
];
const NAMES: [&str; 9] =
    ["step", "step 3", "log", "forward", "aten::item, seq = 4", "load @ a.rs:3", "", "*", "ProfilerStep#7"];

#[derive(Clone, Debug)]
struct Event {
    process: usize,
    thread: u64,
    start_ns: u64,
    length_ns: u64,
    open: bool,
    what: u8,
    pick: usize,
    number: u32,
}

fn event() -> impl Strategy<Value = Event> {
    (0..3usize, 0..3u64, 0..5_000u64, 0..900_000u64, any::<u8>(), any::<u8>(), any::<usize>(), any::<u32>())
        .prop_map(|(process, thread, start, length_ns, open, what, pick, number)| Event {
            process,
            thread,
            start_ns: start * 400,
            length_ns: if what & 1 == 0 { length_ns } else { length_ns % 500 },
            open: open < 6,
            what,
            pick,
            number,
        })
}

fn add(builder: &mut TraceBuilder, event: &Event) {
    let end_ns = if event.open { OPEN } else { event.start_ns + event.length_ns };
    let name = builder.intern(NAMES[event.pick % NAMES.len()]);
    let mut process = builder.process_at(event.process);
    let directions = [
        CopyDirection::Unknown,
        CopyDirection::HostToDevice,
        CopyDirection::DeviceToHost,
        CopyDirection::DeviceToDevice,
        CopyDirection::HostToHost,
    ];
    let kinds = [
        MemoryKind::Unknown,
        MemoryKind::Pageable,
        MemoryKind::Pinned,
        MemoryKind::Device,
        MemoryKind::Managed,
    ];
    let direction = directions[event.number as usize % directions.len()];
    let (from, to) =
        (kinds[event.number as usize / 7 % kinds.len()], kinds[event.number as usize / 11 % kinds.len()]);
    match event.what % 8 {
        0..4 => {
            // Ids that no table knows must be harmless.
            let id = event.number % 5;
            let data = CallData {
                bytes: u64::from(event.number) * 7,
                object: u64::from(event.number % 3),
                correlation: event.number % 50,
                stream: if id == 0 { StreamId::NONE } else { StreamId(id) },
                count: event.number % 30,
                not_ready: event.number % 30,
                native: StackId(event.number % 9),
                python: StackId(event.number % 9),
                effect: if event.number.is_multiple_of(9) { CallEffect::Failed } else { CallEffect::Ok },
                direction,
                from,
                to,
            };
            process.thread(event.thread).call(APIS[event.pick % APIS.len()], event.start_ns, end_ns, data);
        }
        4..6 => {
            let span_kinds = [SpanKind::Range, SpanKind::Op, SpanKind::PythonFrame];
            process.thread(event.thread).span(Span {
                start_ns: event.start_ns,
                end_ns,
                payload: i64::from(event.number),
                has_payload: event.number.is_multiple_of(2),
                name,
                parent: SpanId(event.number),
                kind: span_kinds[event.number as usize % 3],
                ..Span::default()
            });
        }
        6 => {
            process.device_op(DeviceOp {
                start_ns: event.start_ns,
                end_ns,
                bytes: u64::from(event.number),
                graph_node: u64::from(event.number % 2),
                correlation: event.number % 50,
                stream: StreamId(event.number % 5),
                kind: [DeviceOpKind::Kernel, DeviceOpKind::Copy, DeviceOpKind::Sync]
                    [event.number as usize % 3],
                direction,
                from,
                to,
                ..DeviceOp::default()
            });
        }
        _ if event.pick.is_multiple_of(2) => process.free_range(FreeRange {
            start_ns: event.start_ns,
            end_ns,
            payload: None,
            name,
            domain: Default::default(),
            tid: event.thread,
        }),
        _ => process.overhead(Overhead {
            start_ns: event.start_ns,
            end_ns: event.start_ns / 2,
            tid: event.thread,
            correlation: event.number % 50,
            kind: OverheadKind::CommandBufferFull,
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn sums_agree_and_no_call_is_in_two_waits(
        events in proptest::collection::vec(event(), 0..200),
        emulated in any::<bool>(),
        warmup in 0..4usize,
        log_every in proptest::option::of(1..5u64),
        total in 0..3u64,
        width in 0..200usize,
    ) {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = emulated;
        for pid in 0..3 {
            let rank = u32::try_from(pid).ok();
            builder.process(pid).data().rank = rank;
        }
        events.iter().for_each(|event| add(&mut builder, event));
        let trace = builder.finish();
        let mut options = AuditOptions::default();
        options.steps.warmup = warmup;
        options.steps.log_every = log_every.map(|every| LogEvery::new(every, 0).unwrap());
        options.budget.total = total;
        let result = audit(&trace, &options);
        prop_assert_eq!(result.reconcile(), Ok(()));
        prop_assert!(!result.reasons.is_empty(), "every verdict has a reason");

        let mut used = HashSet::new();
        for wait in &result.waits {
            // A launch may wait for space and be held as well: its record is a wait of the driver's.
            let calls: Vec<u32> = match wait.calls {
                _ if wait.kind == syncaudit::audit::WaitKind::LaunchQueueFull => Vec::new(),
                Calls::None => Vec::new(),
                Calls::One(call) => vec![call],
                Calls::Pair(first, second) => vec![first, second],
                Calls::Run { first, last, .. } => vec![first, last],
            };
            let distinct: HashSet<u32> = calls.into_iter().collect();
            for call in distinct {
                prop_assert!(used.insert((wait.process, wait.thread, call)), "call {} twice", call);
            }
        }
        let judged = |audit: &syncaudit::Audit| json(&Judged::by_budget(audit.clone(), &options));
        prop_assert_eq!(judged(&result), judged(&audit(&trace, &options)));
        let style = TextStyle { color: width % 2 == 0, width };
        prop_assert!(text(&result.clone().into(), style).ends_with('\n'));
    }
}

#[test]
fn deep_recursion_and_a_hundred_thousand_nested_spans_are_no_trouble() {
    let mut builder = TraceBuilder::default();
    let mut process = builder.process(1);
    let mut thread = process.thread(1);
    for depth in 0..100_000u64 {
        thread.push(depth, if depth == 0 { "step" } else { "recursion" }, None);
    }
    thread.call("cudaDeviceSynchronize", 200_000, 200_100, CallData::default());
    (0..100_000u64).for_each(|depth| assert!(thread.pop(300_000 + depth)));
    let result = audit(&builder.finish(), &AuditOptions::default());
    assert_eq!((result.totals.waits, result.step_counts.total), (1, 1));
    assert_eq!(result.reconcile(), Ok(()));
}
