//! Measures pricing: `cargo run --release --example price_bench [-- --events N]`.
//!
//! Makes a trace of N host and device events (half launches, half kernels, on two streams, with 50 places that wait), then times one replay, the
//! prices with the search for the best sets up to five of 50 sites, and looks at the memory that it takes beside the trace.

use std::time::Instant;

use syncaudit::audit::{AuditOptions, audit};
use syncaudit::model::{CallData, DeviceOp, DeviceOpKind, SpanKind, Trace, TraceBuilder};
use syncaudit::price::{Effort, price, what_if};

const SITES: usize = 50;

fn main() {
    let events: usize = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => 1_000_000,
        [flag, number] if flag == "--events" => number.parse().expect("a number of events"),
        _ => panic!("usage: price_bench [--events N]"),
    };
    let before = resident_bytes();
    let trace = made(events / 2);
    let of_trace = resident_bytes().saturating_sub(before);
    let audit = audit(&trace, &AuditOptions::default());
    let calls = trace.call_count();
    let work = trace.processes[0].device_ops.len();
    println!(
        "{calls} calls, {work} pieces of device work, {} waits, {} sites",
        audit.waits.len(),
        audit.sites.len()
    );

    let before = resident_bytes();
    let began = Instant::now();
    what_if(&trace, &audit, &[vec![0]]).expect("an answer");
    let once = began.elapsed();
    println!("timeline, graph, check and one question: {once:.2?}");
    let one = vec![vec![0]; 101];
    let began = Instant::now();
    what_if(&trace, &audit, &one).expect("answers");
    println!("one more replay: {:.2?}", began.elapsed().saturating_sub(once) / 100);
    let began = Instant::now();
    let pricing = price(&trace, &audit, Effort::Full);
    let prices = pricing.prices.expect("prices");
    println!("prices of all sites, best sets of up to {}: {:.2?}", prices.best.len(), began.elapsed());
    println!(
        "memory: the trace {} MiB, most of pricing beside it {} MiB",
        of_trace >> 20,
        peak_bytes().saturating_sub(before) >> 20
    );
}

/// Launches on two streams; every hundredth is followed by a wait at one of the sites.
fn made(launches: usize) -> Trace {
    let mut builder = TraceBuilder::default();
    builder.process(1);
    let streams = [7, 20].map(|number| builder.process_at(0).stream(0, Some(number), 0));
    let name = builder.intern("gemm");
    let (mut now, mut free) = (1_000_000u64, [0u64; 2]);
    let per_step = 10_000;
    let mut begun = now;
    for at in 0..launches {
        let stream = usize::from(at % 5 == 4);
        let correlation = u32::try_from(at + 1).expect("fewer than 2^32 launches");
        let start_ns = (now + 5_000).max(free[stream] + 1_000);
        free[stream] = start_ns + 6_000 + (at % 7) as u64 * 1_000;
        builder.process_at(0).device_op(DeviceOp {
            start_ns,
            end_ns: free[stream],
            name,
            correlation,
            stream: streams[stream],
            kind: DeviceOpKind::Kernel,
            ..DeviceOp::default()
        });
        let data = CallData { correlation, ..CallData::default() };
        builder.thread_at(0, 1).call("cudaLaunchKernel", now, now + 5_000, data);
        now += 7_000;
        if at % 100 == 99 {
            let site = at / 100 % SITES;
            let end_ns = (now + 3_000).max(free[stream] + 4_000);
            let data = CallData { stream: streams[stream], ..CallData::default() };
            let letters = format!("place {}", char::from(b'A' + site as u8));
            builder.thread_at(0, 1).named_span(SpanKind::Range, &letters, now, end_ns);
            builder.thread_at(0, 1).call("cudaStreamSynchronize", now, end_ns, data);
            now = end_ns;
        }
        if at % per_step == per_step - 1 {
            let step = format!("step {}", at / per_step);
            builder.thread_at(0, 1).named_span(SpanKind::Range, &step, begun, now);
            begun = now;
        }
    }
    builder.finish()
}

fn status_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0)
}

fn resident_bytes() -> u64 {
    status_kib("VmRSS:") << 10
}

fn peak_bytes() -> u64 {
    status_kib("VmHWM:") << 10
}
