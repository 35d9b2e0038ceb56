//! Cases with known answers, on a machine small enough to be followed by hand: a call takes 5 us, work begins 5 us after its call or 1 us after the work
//! before it, a synchronise with nothing to wait for takes 3 us, and any wait returns 4 us after the work it is for.

use std::collections::HashMap;

use super::{Abstention, Confidence, Effort, Limit, NextPayer, Prices, Unit, price, verdict, what_if};
use crate::audit::{Audit, AuditOptions, audit};
use crate::model::{
    CallData, CopyDirection, DeviceOp, DeviceOpKind, MemoryKind, SpanKind, StreamId, Trace, TraceBuilder,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// What a program does; times of the machine are filled in.
#[derive(Default)]
struct Machine {
    builder: TraceBuilder,
    process: usize,
    /// Per thread.
    now: HashMap<u64, u64>,
    free: HashMap<u32, u64>,
    events: HashMap<u64, u64>,
    correlation: u32,
}

impl Machine {
    fn new() -> Self {
        let mut machine = Self::default();
        machine.builder.process(1);
        machine
    }

    /// Goes on with another process, with a rank.
    fn rank(&mut self, rank: u32) {
        self.process = rank as usize;
        self.builder.process_at(self.process).data().rank = Some(rank);
        self.now.clear();
        self.free.clear();
    }

    fn now(&mut self, thread: u64) -> &mut u64 {
        self.now.entry(thread).or_insert(MS)
    }

    fn work(&mut self, thread: u64, ns: u64) {
        *self.now(thread) += ns;
    }

    fn call(&mut self, thread: u64, api: &str, end_ns: u64, data: CallData) {
        let start_ns = *self.now(thread);
        self.builder.thread_at(self.process, thread).call(api, start_ns, end_ns, data);
        *self.now(thread) = end_ns;
    }

    fn stream(&mut self, number: u32) -> StreamId {
        self.builder.process_at(self.process).stream(0, Some(number), 0)
    }

    fn op(&mut self, number: u32, kind: DeviceOpKind, name: &str, start_ns: u64, ns: u64) -> u64 {
        let stream = self.stream(number);
        let name = self.builder.intern(name);
        let to_host = kind == DeviceOpKind::Copy;
        self.builder.process_at(self.process).device_op(DeviceOp {
            start_ns,
            end_ns: start_ns + ns,
            name,
            correlation: self.correlation,
            stream,
            kind,
            bytes: if to_host { 8 } else { 0 },
            direction: if to_host { CopyDirection::DeviceToHost } else { CopyDirection::Unknown },
            to: if to_host { MemoryKind::Pinned } else { MemoryKind::Unknown },
            ..DeviceOp::default()
        });
        self.free.insert(number, start_ns + ns);
        start_ns + ns
    }

    fn ready(&mut self, thread: u64, number: u32) -> u64 {
        let free = self.free.get(&number).copied().unwrap_or(0);
        (*self.now(thread) + 5 * US).max(if free > 0 { free + US } else { 0 })
    }

    fn issue(&mut self, thread: u64, number: u32, api: &str, kind: DeviceOpKind, name: &str, ns: u64) {
        self.correlation += 1;
        let start_ns = self.ready(thread, number);
        self.op(number, kind, name, start_ns, ns);
        let data = CallData { correlation: self.correlation, ..CallData::default() };
        let end_ns = *self.now(thread) + 5 * US;
        self.call(thread, api, end_ns, data);
    }

    fn launch(&mut self, thread: u64, number: u32, ns: u64) {
        self.issue(thread, number, "cudaLaunchKernel", DeviceOpKind::Kernel, "gemm", ns);
    }

    fn sync(&mut self, thread: u64, number: u32) {
        let free = self.free.get(&number).copied().unwrap_or(0);
        let end_ns = (*self.now(thread) + 3 * US).max(free + 4 * US);
        let stream = self.stream(number);
        self.call(thread, "cudaStreamSynchronize", end_ns, CallData { stream, ..CallData::default() });
    }

    /// A read of a few bytes: a copy of 2 us and a synchronise.
    fn read(&mut self, thread: u64, number: u32) {
        self.issue(thread, number, "cudaMemcpyAsync", DeviceOpKind::Copy, "Memcpy DtoH", 2 * US);
        self.sync(thread, number);
    }

    fn record(&mut self, thread: u64, number: u32, event: u64) {
        let free = self.free.get(&number).copied().unwrap_or(0);
        self.events.insert(event, free);
        let (end_ns, stream) = (*self.now(thread) + US, self.stream(number));
        self.call(thread, "cuEventRecord", end_ns, CallData { stream, object: event, ..CallData::default() });
    }

    fn sync_event(&mut self, thread: u64, event: u64) {
        let end_ns = (*self.now(thread) + 3 * US).max(self.events[&event] + 4 * US);
        self.call(thread, "cuEventSynchronize", end_ns, CallData { object: event, ..CallData::default() });
    }

    fn range(&mut self, thread: u64, name: &str, body: impl FnOnce(&mut Self)) {
        let start_ns = *self.now(thread);
        body(self);
        let end_ns = *self.now(thread);
        self.builder.thread_at(self.process, thread).named_span(SpanKind::Range, name, start_ns, end_ns);
    }

    fn steps(&mut self, count: usize, mut body: impl FnMut(&mut Self)) {
        (0..count).for_each(|step| self.range(1, &format!("step {step}"), &mut body));
    }

    fn finish(self) -> (Trace, Audit) {
        let trace = self.builder.finish();
        let audit = audit(&trace, &AuditOptions::default());
        (trace, audit)
    }

    fn prices(self) -> (Trace, Audit, Prices) {
        let (trace, audit) = self.finish();
        let pricing = price(&trace, &audit, Effort::Full);
        let prices = *pricing.prices.unwrap_or_else(|why| panic!("{}", why.text()));
        (trace, audit, prices)
    }
}

/// The price of the only site in that range.
fn at<'p>(audit: &Audit, prices: &'p Prices, range: &str) -> &'p super::SitePrice {
    let site = audit.sites.iter().find(|site| site.range.iter().any(|name| name == range));
    let site = site.unwrap_or_else(|| panic!("no site in range {range}"));
    prices.of_site(&site.fingerprint).expect("a site in ordinary steps is priced")
}

fn index(audit: &Audit, range: &str) -> usize {
    audit.sites.iter().position(|site| site.range.iter().any(|name| name == range)).expect("a site")
}

fn near(found: i64, expected: i64, by: u64) {
    assert!((found - expected).unsigned_abs() <= by, "{found} is not {expected} give or take {by}");
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap()
}

#[test]
fn of_two_waits_in_a_row_the_second_is_free_until_the_first_goes() {
    let mut machine = Machine::new();
    machine.steps(8, |machine| {
        machine.launch(1, 7, 10 * MS);
        machine.range(1, "first", |machine| machine.sync(1, 7));
        machine.range(1, "second", |machine| machine.sync(1, 7));
        machine.work(1, 2 * MS);
    });
    let (_, audit, prices) = machine.prices();
    let (first, second) = (at(&audit, &prices, "first"), at(&audit, &prices, "second"));
    near(signed(first.blocked_ns), signed(10 * MS), 20 * US);
    near(signed(second.blocked_ns), signed(3 * US), 1);
    // The device stands idle for the 2 ms of host work, because the first wait let it run dry.
    near(signed(first.exposed_ns), signed(2 * MS), 20 * US);
    assert!(second.exposed_ns <= 4 * US, "{}", second.exposed_ns);
    // Each alone buys next to nothing; the other takes the bill.
    assert!(first.alone_ns.unwrap() <= signed(10 * US) && second.alone_ns.unwrap() <= signed(10 * US));
    assert_eq!(first.next_payer, Some(NextPayer::Site(index(&audit, "second"))));
    assert_eq!(first.next_site.as_deref(), Some(second.fingerprint.as_str()));
    // Both: 12 ms become the 10 ms of the device.
    near(prices.together.gain_ns, signed(2 * MS), 30 * US);
    assert_eq!(prices.best.last().map(|set| set.removed.len()), Some(2));
    let sentence = verdict(&prices);
    assert!(sentence.starts_with("the last of these 2 pays: 1"), "{sentence}");
}

#[test]
fn a_step_whose_device_is_never_idle_gains_nothing() {
    let mut machine = Machine::new();
    machine.steps(8, |machine| {
        (0..10).for_each(|_| machine.launch(1, 7, MS));
        machine.record(1, 7, 1);
        machine.launch(1, 7, MS);
        machine.range(1, "limit", |machine| machine.sync_event(1, 1));
    });
    let (_, audit, prices) = machine.prices();
    let limit = at(&audit, &prices, "limit");
    assert!(limit.blocked_ns > 10 * MS && limit.exposed_ns == 0, "{limit:?}");
    near(limit.alone_ns.unwrap(), 0, 20 * US);
    assert_eq!((limit.next_payer, prices.bound.limit()), (Some(NextPayer::Device), Limit::Device));
    assert!(
        verdict(&prices).starts_with("GPU-bound: removing waits will buy about nothing"),
        "{}",
        verdict(&prices)
    );
    assert_eq!(prices.run_ahead.permille(), Some(1000));
    assert_eq!(prices.idle.waits_ns, 0);
}

#[test]
fn a_step_whose_host_is_slow_gains_nothing() {
    let mut machine = Machine::new();
    machine.steps(8, |machine| {
        machine.work(1, 10 * MS);
        machine.launch(1, 7, 50 * US);
        machine.range(1, "read", |machine| machine.read(1, 7));
    });
    let (_, audit, prices) = machine.prices();
    let read = at(&audit, &prices, "read");
    // The copy stays (5 us of the host), nobody waits for it.
    near(read.alone_ns.unwrap(), signed(read.blocked_ns - 5 * US), 2 * US);
    assert_eq!(prices.bound.limit(), Limit::Host);
    assert!(
        verdict(&prices).starts_with("host-bound: removing waits will buy about nothing"),
        "{}",
        verdict(&prices)
    );
    assert_eq!(prices.run_ahead.permille(), Some(0));
    // Idle: 10 ms of host work, of which the time that the read held the host is charged to it.
    near(signed(prices.idle.total_ns), signed(prices.step_ns) - signed(52 * US), 5 * US);
    near(signed(read.exposed_ns), signed(read.blocked_ns), 10 * US);
}

#[test]
fn a_read_of_one_stream_is_free_behind_a_long_kernel_of_another() {
    let mut machine = Machine::new();
    machine.steps(8, |machine| {
        machine.launch(1, 20, 10 * MS);
        machine.launch(1, 7, MS);
        machine.range(1, "read", |machine| machine.read(1, 7));
        machine.work(1, 3 * MS);
        machine.range(1, "end", |machine| machine.sync(1, 20));
    });
    let (_, audit, prices) = machine.prices();
    let read = at(&audit, &prices, "read");
    near(signed(read.blocked_ns), signed(MS), 30 * US);
    assert_eq!(read.exposed_ns, 0);
    near(read.alone_ns.unwrap(), 0, 5 * US);
    assert_eq!(read.next_payer, Some(NextPayer::Site(index(&audit, "end"))));
}

#[test]
fn a_wait_for_one_of_two_streams_costs_what_that_stream_makes_it_wait() {
    let step = |slow: u64| {
        let mut machine = Machine::new();
        machine.steps(8, |machine| {
            machine.launch(1, 7, 4 * MS);
            machine.launch(1, 20, slow);
            machine.range(1, "one", |machine| machine.sync(1, 7));
            machine.work(1, 2 * MS);
        });
        let (_, audit, prices) = machine.prices();
        let one = at(&audit, &prices, "one");
        (one.exposed_ns, one.alone_ns.unwrap())
    };
    // The other stream is done before: the device idles during the 2 ms of host work, 6 ms become 4 ms.
    let (exposed_ns, alone_ns) = step(MS);
    near(signed(exposed_ns), signed(2 * MS), 20 * US);
    near(alone_ns, signed(2 * MS), 30 * US);
    // The other stream is busy all the time, and the wait costs nothing.
    let (exposed_ns, alone_ns) = step(7 * MS);
    assert_eq!(exposed_ns, 0);
    near(alone_ns, 0, 40 * US);
}

/// Two ranks whose steps end in a collective; rank 1 waits before it.
fn two_ranks() -> Machine {
    let mut machine = Machine::new();
    let collective = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)";
    // Rank 0 is there after 1 ms of work and meets rank 1 after that one's 1 ms of work, wait and 4 ms on the host.
    let mut met = Vec::new();
    machine.builder.process(2);
    machine.rank(1);
    machine.steps(8, |machine| {
        machine.launch(1, 7, 2 * MS);
        machine.range(1, "late", |machine| machine.sync(1, 7));
        machine.work(1, 4 * MS);
        let start_ns = machine.ready(1, 7);
        machine.issue(1, 7, "cudaLaunchKernel", DeviceOpKind::Kernel, collective, MS);
        met.push(start_ns);
        machine.range(1, "end", |machine| machine.sync(1, 7));
    });
    machine.rank(0);
    let mut met = met.into_iter();
    machine.steps(8, |machine| {
        machine.launch(1, 7, 2 * MS);
        let met_ns = met.next().unwrap();
        let start_ns = machine.ready(1, 7);
        machine.issue(1, 7, "cudaLaunchKernel", DeviceOpKind::Kernel, collective, met_ns + MS - start_ns);
        machine.range(1, "end", |machine| machine.sync(1, 7));
    });
    machine
}

#[test]
fn a_wait_of_one_rank_is_paid_by_the_ranks_that_meet_it() {
    let (_, audit, prices) = two_ranks().prices();
    let late = at(&audit, &prices, "late");
    // Rank 1: launch, 2 ms of work beside 4 ms on the host instead of before them; both ranks gain 2 ms.
    near(signed(prices.step_ns), signed(7 * MS), 60 * US);
    near(late.alone_ns.unwrap(), signed(2 * MS), 60 * US);
    near(signed(late.exposed_ns) * 2, signed(2 * MS), 60 * US);
    assert!(
        prices.notes.iter().any(|note| note.contains("collectives were replayed as meetings")),
        "{:?}",
        prices.notes
    );
}

#[test]
fn idle_time_adds_up_and_no_part_of_it_is_charged_twice() {
    let mut machine = Machine::new();
    machine.steps(8, |machine| {
        machine.range(1, "data", |machine| machine.work(1, 3 * MS));
        machine.launch(1, 7, MS);
        machine.range(1, "read", |machine| machine.read(1, 7));
        machine.work(1, 500 * US);
        machine.launch(1, 7, 2 * MS);
        machine.range(1, "end", |machine| machine.sync(1, 7));
    });
    let (_, audit, prices) = machine.prices();
    let idle = prices.idle;
    assert_eq!(idle.total_ns, idle.waits_ns + idle.host_ns + idle.data_ns + idle.device_ns + idle.unknown_ns);
    near(signed(idle.total_ns), signed(prices.step_ns) - signed(3 * MS + 2 * US), 10 * US);
    let sites: u64 = ["read", "end"].iter().map(|range| at(&audit, &prices, range).exposed_ns).sum();
    near(signed(sites), signed(idle.waits_ns), 2);
    // Of the 3 ms of loading 2 ms are charged to the wait that held the host for 2 ms just before; the rest is data.
    near(signed(idle.data_ns), signed(MS), 20 * US);
}

#[test]
fn a_full_launch_queue_holds_the_host_however_many_waits_are_removed() {
    let mut machine = Machine::new();
    machine.steps(4, |machine| {
        (0..700).for_each(|_| machine.launch(1, 7, 100 * US));
        machine.range(1, "end", |machine| machine.sync(1, 7));
    });
    let (trace, audit, prices) = machine.prices();
    let all: Vec<usize> = (0..audit.sites.len()).collect();
    let without = &what_if(&trace, &audit, &[all]).unwrap()[0];
    assert!(without.step_ns >= 700 * 101 * US - MS, "{}", without.step_ns);
    near(without.gain_ns, signed(prices.step_ns) - signed(700 * 101 * US), 100 * US);
}

#[test]
fn a_thread_that_another_one_waited_for_takes_its_time_and_hands_back() {
    // A backward pass on a thread of its own, which waits in the middle.
    let mut machine = Machine::new();
    machine.steps(8, |machine| {
        machine.launch(1, 7, 3 * MS);
        machine.work(1, 100 * US);
        let begin_ns = *machine.now(1);
        *machine.now(2) = begin_ns;
        machine.launch(2, 7, MS);
        machine.range(2, "inner", |machine| machine.sync(2, 7));
        machine.work(2, MS);
        machine.launch(2, 7, MS);
        let end_ns = *machine.now(2);
        *machine.now(1) = end_ns + 50 * US;
        machine.launch(1, 7, MS);
        machine.range(1, "end", |machine| machine.sync(1, 7));
    });
    let (_, audit, prices) = machine.prices();
    let inner = at(&audit, &prices, "inner");
    // 3 + 1 ms of work, then 1 ms in which the device idles because of the wait, then 1 + 1 ms.
    near(signed(prices.step_ns), signed(7 * MS), 100 * US);
    near(inner.alone_ns.unwrap(), signed(MS), 60 * US);
    near(signed(inner.exposed_ns), signed(MS), 30 * US);
}

#[test]
fn a_read_that_decides_what_is_issued_next_is_not_simply_removed() {
    let mut machine = Machine::new();
    machine.steps(6, |machine| {
        machine.launch(1, 7, MS);
        let start_ns = *machine.now(1);
        machine.read(1, 7);
        let end_ns = *machine.now(1);
        let mut thread = machine.builder.thread_at(0, 1);
        thread.named_span(SpanKind::Op, "aten::nonzero", start_ns, end_ns);
        machine.work(1, MS);
    });
    let (_, audit, prices) = machine.prices();
    assert_eq!(audit.sites[0].rule, "mask-indexing");
    let price = prices.of_site(&audit.sites[0].fingerprint).unwrap();
    assert!(!price.removable && price.alone_ns.unwrap() > 0);
    assert!(prices.together.removed.is_empty());
    assert_eq!(verdict(&prices), "no wait can simply be removed");
}

#[test]
fn a_single_step_is_priced_as_if_it_came_again_and_again() {
    let mut machine = Machine::new();
    machine.steps(1, |machine| {
        machine.work(1, 3 * MS);
        machine.launch(1, 7, 4 * MS);
        machine.range(1, "read", |machine| machine.read(1, 7));
    });
    let (_, audit, prices) = machine.prices();
    assert_eq!(prices.unit, Unit::RepeatedStep);
    // 3 ms of host work beside 4 ms of device work instead of before it.
    near(at(&audit, &prices, "read").alone_ns.unwrap(), signed(3 * MS), 40 * US);
    assert!(prices.notes[0].contains("no more than two steps"));
}

fn reason(trace: &Trace) -> Abstention {
    let audit = audit(trace, &AuditOptions::default());
    price(trace, &audit, Effort::Full).prices.expect_err("no price")
}

#[test]
fn what_a_trace_can_not_tell_is_not_told() {
    let scene = |change: &dyn Fn(&mut Trace)| {
        let mut machine = Machine::new();
        machine.steps(6, |machine| {
            machine.launch(1, 7, MS);
            machine.launch(1, 7, MS);
            machine.sync(1, 7);
        });
        let (mut trace, _) = machine.finish();
        change(&mut trace);
        reason(&trace)
    };
    let kernels = scene(&|trace| trace.processes[0].device_ops.clear());
    assert_eq!(kernels, Abstention::NoKernels);
    assert!(kernels.text().contains("--gpu-timeline"));
    let clipped = scene(&|trace| trace.processes[0].device_ops.retain(|op| op.correlation != 4));
    assert!(matches!(clipped, Abstention::Clipped { launches_without_work: 1, .. }), "{clipped:?}");
    let orphans = scene(&|trace| trace.processes[0].threads[0].calls.retain(|call| call.correlation != 4));
    assert!(matches!(orphans, Abstention::Clipped { work_without_call: 1, .. }), "{orphans:?}");
    assert_eq!(scene(&|trace| trace.source.emulated = true), Abstention::NoTimeModel);
    // Work that began before its own stream was free: no replay gives that.
    let early = scene(&|trace| {
        for op in trace.processes[0].device_ops.iter_mut().filter(|op| op.correlation % 2 == 0) {
            op.start_ns -= MS;
        }
    });
    assert!(matches!(early, Abstention::NotReproduced { .. }), "{early:?}");
    assert!(early.text().contains("misses the recorded times by"), "{}", early.text());
    let mut quiet = Machine::new();
    quiet.steps(6, |machine| machine.launch(1, 7, MS));
    assert_eq!(reason(&quiet.finish().0), Abstention::NothingToPrice);
}

#[test]
fn graphs_are_units_and_without_their_nodes_there_is_no_price() {
    let graph = |with_nodes: bool| {
        let mut machine = Machine::new();
        machine.steps(6, |machine| {
            machine.launch(1, 7, 100 * US);
            machine.correlation += 1;
            let start_ns = machine.ready(1, 7);
            if with_nodes {
                for node in 0..3 {
                    machine.op(7, DeviceOpKind::Kernel, "node", start_ns + node * MS, MS);
                }
                let correlation = machine.correlation;
                let mut process = machine.builder.process_at(0);
                let ops = process.data().device_ops.iter_mut();
                ops.filter(|op| op.correlation == correlation).for_each(|op| op.graph_node = 9);
            }
            let (end_ns, correlation) = (*machine.now(1) + 5 * US, machine.correlation);
            machine.call(1, "cudaGraphLaunch", end_ns, CallData { correlation, ..CallData::default() });
            machine.range(1, "end", |machine| machine.sync(1, 7));
            machine.work(1, MS);
        });
        machine.launch(1, 7, US);
        let (trace, audit) = machine.finish();
        price(&trace, &audit, Effort::Full).prices
    };
    let prices = graph(true).unwrap();
    near(signed(prices.step_ns), signed(4 * MS + 110 * US), 30 * US);
    near(prices.together.gain_ns, signed(MS), 40 * US);
    assert_eq!(prices.confidence, Confidence::High);
    assert!(matches!(graph(false), Err(Abstention::GraphsWithoutNodes { launches: 6 })));
}

#[test]
fn a_budget_for_idle_time_fails_what_exceeds_it_and_is_inconclusive_without_prices() {
    use crate::audit::{Budget, Verdict};
    let judged = |exposed_ns: u64, with_kernels: bool| {
        let mut machine = Machine::new();
        machine.steps(8, |machine| {
            machine.launch(1, 7, 4 * MS);
            machine.range(1, "end", |machine| machine.sync(1, 7));
            machine.work(1, 2 * MS);
        });
        let (mut trace, _) = machine.finish();
        if !with_kernels {
            trace.processes[0].device_ops.clear();
        }
        let budget = Budget { total: 5, exposed_ns: Some(exposed_ns), ..Budget::default() };
        let options = AuditOptions { budget, ..AuditOptions::default() };
        let audit = crate::assess(&trace, &options, Effort::Full);
        crate::gate::Judged::by_budget(audit, &options)
    };
    let over = judged(MS, true);
    assert_eq!(over.audit.verdict, Verdict::Fail);
    assert_eq!(over.findings[0].code.id(), "exposed-over-budget");
    assert!(
        over.audit.reasons[0].contains("idle for 2.0") && over.audit.reasons[0].contains("budget: 1.000 ms")
    );
    assert_eq!(judged(3 * MS, true).audit.verdict, Verdict::Pass);
    let unknown = judged(MS, false);
    assert_eq!(unknown.audit.verdict, Verdict::Inconclusive);
    assert!(unknown.audit.reasons[0].contains("no record of a kernel"), "{:?}", unknown.audit.reasons);
}
