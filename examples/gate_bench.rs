//! Measures the gate on large input: `cargo run --release --example gate_bench`. Never a test: the numbers depend on the machine.
//!
//! Targets: a configuration with 10,000 entries of the allow-list read and held against a run in 50 ms or less, a baseline of 100,000 places read
//! and compared in 1 s or less.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use syncaudit::audit::{AuditOptions, audit};
use syncaudit::config;
use syncaudit::gate::{Against, Baseline, Date, Rules, judge};
use syncaudit::model::{CallData, Trace, TraceBuilder};

const ROUNDS: usize = 9;

fn main() {
    let options = AuditOptions::default();
    let today: Date = "2026-01-01".parse().expect("a date");
    let result = audit(&run(1_000), &options);
    println!("{:<44} {:>10} {:>10}", "", "best ms", "median ms");
    for (name, text) in [("fingerprints", by_fingerprint()), ("functions and ranges", by_name())] {
        let path = Path::new("syncaudit.toml");
        row(&format!("read 10,000 entries ({name})"), || drop(config::parse(path, &text).expect("valid")));
        let rules = config::parse(path, &text).expect("valid").rules;
        row(&format!("hold them against {} places", result.sites.len()), || {
            drop(judge(result.clone(), &options, &rules, None, today));
        });
    }
    row("hold no entry against them", || {
        drop(judge(result.clone(), &options, &Rules::default(), None, today))
    });

    let large = audit(&run(100_000), &options);
    let baseline = Baseline::of(&large, |_| true);
    let text = baseline.to_string();
    let path = Path::new("syncaudit.baseline");
    println!("{} places, {} bytes of baseline", baseline.entries.len(), text.len());
    row("write a baseline", || drop(baseline.to_string()));
    row("read it", || drop(Baseline::parse(path, &text).expect("valid")));
    let against = Against { baseline: &baseline, path };
    row("copy the audited run (part of the next rows)", || drop(large.clone()));
    row("judge it without a baseline", || {
        drop(judge(large.clone(), &options, &Rules::default(), None, today))
    });
    row("compare: all known", || {
        drop(judge(large.clone(), &options, &Rules::default(), Some(against), today))
    });
    let other = audit(&run(1_000), &options);
    row("compare: 99,000 gone", || {
        drop(judge(other.clone(), &options, &Rules::default(), Some(against), today))
    });
}

/// A trace whose ordinary steps wait at so many places, each in a range of its own.
fn run(places: usize) -> Trace {
    let mut builder = TraceBuilder::default();
    builder.source.emulated = true;
    let mut process = builder.process(1);
    let mut thread = process.thread(1);
    let mut now = 0;
    for step in 0..4 {
        now += 10;
        thread.push(now, &format!("step {step}"), None);
        for place in 0..places {
            thread.push(now + 1, &format!("place{}x", place), None);
            thread.call("cudaDeviceSynchronize", now + 2, now + 3, CallData::default());
            thread.pop(now + 4);
            now += 10;
        }
        thread.pop(now);
    }
    builder.finish()
}

fn by_fingerprint() -> String {
    let mut text = String::new();
    for entry in 0..10_000u64 {
        let fingerprint = entry.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let _ = writeln!(
            text,
            "[[allow]]\nfingerprint = \"{fingerprint:016x}\"\nreason = \"accepted in review {entry}\"\nowner = \"team\"\n"
        );
    }
    text
}

fn by_name() -> String {
    let mut text = String::new();
    for entry in 0..5_000 {
        let _ = writeln!(
            text,
            "[[allow]]\nfunction = \"save_{entry}\"\nkind = \"stream-sync\"\nreason = \"saves\"\nexpires = 2030-01-31\n"
        );
        let _ =
            writeln!(text, "[[allow]]\nrange = \"place{entry}x\"\nmax-per-step = 2\nreason = \"place\"\n");
    }
    text
}

fn row(name: &str, mut work: impl FnMut()) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{name:<44} {:>10.2} {:>10.2}", ms(times[0]), ms(times[ROUNDS / 2]));
}
