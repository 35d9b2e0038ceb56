//! Measures import and audit: `cargo run --release --example audit_bench [-- --events N]`.
//!
//! Writes an event log as the tracer would (two threads, ranges, waits with stacks and their copy records, calls that don't
//! wait), then times reading it, auditing it and writing the reports, several rounds each. Prints one table; the file is
//! gone afterwards.

#[cfg(not(unix))]
fn main() {
    eprintln!("the event log's writer exists on unix only");
}

#[cfg(unix)]
fn main() {
    bench::main();
}

#[cfg(unix)]
mod bench {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use syncaudit::audit::{AuditOptions, audit};
    use syncaudit::gate::Judged;
    use syncaudit::report::{TextStyle, json, text};
    use syncaudit_eventlog::{
        Api, ApiDomain, Call, CallEnter, DomainId, EndReason, LogWriter, Memcpy, Options, Payload, PyStackId,
        RangeAttributes, Record, StackId, ThreadLog, meta,
    };

    const ROUNDS: usize = 5;
    const COPY: Api = Api { domain: ApiDomain::Driver, cbid: 276 };
    const SYNC: Api = Api { domain: ApiDomain::Driver, cbid: 279 };

    pub fn main() {
        let mut events: u64 = 1_000_000;
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match (argument.as_str(), arguments.next().and_then(|value| value.parse().ok())) {
                ("--events", Some(value)) => events = value,
                _ => {
                    eprintln!("usage: audit_bench [--events N]");
                    std::process::exit(2);
                }
            }
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let writer = LogWriter::create(directory.path(), Options::default()).expect("a log");
        let written = write(&mut writer.thread(), events);
        let paths: Vec<PathBuf> = vec![writer.path().to_owned()];
        drop(writer);

        let before = resident_bytes();
        let trace = syncaudit::load_path(&paths).expect("the log that was just written");
        let grown = resident_bytes().saturating_sub(before);
        let options = AuditOptions::default();
        let result = audit(&trace, &options);
        result.reconcile().expect("sums agree");
        println!(
            "{written} events, {} calls, {} waits, {} steps, {} sites; {} bytes in the log",
            trace.call_count(),
            result.totals.waits,
            result.step_counts.total,
            result.sites.len(),
            std::fs::metadata(&paths[0]).map_or(0, |file| file.len()),
        );
        println!("resident memory of the trace: {:.1} bytes per event", grown as f64 / written as f64);
        println!("{:<12} {:>10} {:>10} {:>16}", "", "best ms", "median ms", "events/s (best)");
        row("import", written, || drop(syncaudit::load_path(&paths)));
        row("audit", written, || drop(audit(&trace, &options)));
        let judged = Judged::by_budget(result.clone(), &options);
        row("text", written, || drop(text(&judged, TextStyle::default())));
        row("json", written, || drop(json(&judged)));
    }

    fn row(name: &str, events: u64, mut work: impl FnMut()) {
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                work();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let (best, median) = (times[0].as_secs_f64(), times[ROUNDS / 2].as_secs_f64());
        println!("{name:<12} {:>10.1} {:>10.1} {:>16.0}", best * 1e3, median * 1e3, events as f64 / best);
    }

    /// Steps of 100 events: ranges, copies that don't wait, and three reads.
    fn write(log: &mut ThreadLog<'_>, events: u64) -> u64 {
        log.write(&Record::Meta { key: meta::PROGRAM, value: b"bench\0" });
        log.write(&Record::Meta { key: meta::EMULATED, value: b"0" });
        log.api_name(COPY, || b"cuMemcpyDtoHAsync_v2");
        log.api_name(SYNC, || b"cuStreamSynchronize");
        let step = log.str(b"step");
        let names: Vec<_> = (0..12).map(|layer| log.str(format!("layer {layer}").as_bytes())).collect();
        let stacks: Vec<StackId> =
            (0..8u64).map(|site| log.stack(&[0x1000 + site, 0x2000, 0x3000 + site % 3])).collect();
        let (mut now, mut written, mut correlation) = (1_000u64, 0u64, 0u32);
        let mut number = 0u64;
        while written < events {
            let mut put = |record: &Record<'_>| {
                log.write(record);
                written += 1;
            };
            let attributes =
                RangeAttributes { name: step, payload: Payload::U64(number), ..Default::default() };
            put(&Record::RangePush { t_ns: now, attributes });
            for layer in 0..12usize {
                now += 1_000;
                let attributes = RangeAttributes { name: names[layer], ..Default::default() };
                put(&Record::RangePush { t_ns: now, attributes });
                for copy in 0..2usize {
                    correlation += 1;
                    let wait = layer % 4 == 3 && copy == 1;
                    now += 500;
                    call(
                        &mut put,
                        COPY,
                        now,
                        correlation,
                        if wait { stacks[layer % 8] } else { StackId::NONE },
                    );
                    put(&Record::Memcpy(Memcpy {
                        correlation,
                        copy_kind: 2,
                        src_kind: 3,
                        dst_kind: 2,
                        bytes: 4,
                        start_cupti_ns: now,
                        end_cupti_ns: now + 50,
                        stream: 7,
                        ..Default::default()
                    }));
                    if wait {
                        now += 500;
                        correlation += 1;
                        call(&mut put, SYNC, now, correlation, stacks[layer % 8]);
                    }
                }
                now += 500;
                put(&Record::RangePop { t_ns: now, domain: DomainId::NONE });
            }
            now += 1_000;
            put(&Record::RangePop { t_ns: now, domain: DomainId::NONE });
            number += 1;
        }
        log.end(EndReason::Exit, 0);
        written
    }

    fn call(put: &mut impl FnMut(&Record<'_>), api: Api, enter_ns: u64, correlation: u32, stack: StackId) {
        if stack != StackId::NONE {
            put(&Record::CallEnter(CallEnter {
                enter_ns,
                api,
                correlation,
                stack,
                py_stack: PyStackId::NONE,
            }));
        }
        put(&Record::Call(Call {
            enter_ns,
            exit_ns: enter_ns + 200,
            api,
            correlation,
            result: 0,
            copy_kind: if api == COPY { 2 } else { 0 },
            stream: 7,
            bytes: 4,
            object: 0,
            stack,
            py_stack: PyStackId::NONE,
            nested_calls: 0,
            nested_cbid: 0,
        }));
    }

    /// 0 where the system doesn't say.
    fn resident_bytes() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        pages.unwrap_or(0) * 4096
    }
}
