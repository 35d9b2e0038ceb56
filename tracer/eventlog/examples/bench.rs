//! Measures what the event log costs: `cargo run --release -p syncaudit-eventlog --example bench [-- --records N]`.
//!
//! Prints one table. Clock reads are not part of the costs (the tracer needs them anyway). The best of several rounds
//! is shown beside the median, since other load on the machine only ever adds.

#[cfg(not(unix))]
fn main() {
    eprintln!("the writer exists on unix only");
}

#[cfg(unix)]
fn main() {
    bench::main();
}

#[cfg(unix)]
mod bench {
    use std::hint::black_box;
    use std::time::Instant;
    use syncaudit_eventlog::*;

    const ROUNDS: usize = 7;

    pub fn main() {
        let mut records: u64 = 1_000_000;
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match (argument.as_str(), arguments.next().and_then(|value| value.parse().ok())) {
                ("--records", Some(value)) => records = value,
                _ => {
                    eprintln!("usage: bench [--records N]");
                    std::process::exit(2);
                }
            }
        }
        let api = Api { domain: ApiDomain::Runtime, cbid: 131 };
        let call = move |index: u64| {
            Record::Call(Call {
                enter_ns: index * 1000,
                exit_ns: index * 1000 + 700,
                api,
                correlation: index as u32,
                result: 0,
                copy_kind: 2,
                stream: 7,
                bytes: 4,
                object: index,
                stack: StackId(1),
                py_stack: PyStackId(1),
                nested_calls: 1,
                nested_cbid: 300,
            })
        };
        println!("{:<44} {:>9} {:>9} {:>13}", "write", "best ns", "median ns", "bytes/record");
        row("call", records, 1, move |log, index| {
            log.write(&call(index));
        });
        row("call, entry noted before", records, 2, move |log, index| {
            log.write(&Record::CallEnter(CallEnter {
                enter_ns: index * 1000,
                api,
                correlation: index as u32,
                stack: StackId(1),
                py_stack: PyStackId(1),
            }));
            log.write(&call(index));
        });
        row("range push + pop", records, 2, |log, index| {
            let attributes = RangeAttributes { name: StrId(1), ..Default::default() };
            log.write(&Record::RangePush { t_ns: index, attributes });
            log.write(&Record::RangePop { t_ns: index, domain: DomainId::NONE });
        });
        row("range push + pop, text looked up", records, 2, |log, index| {
            let name = log.str(black_box(b"forward @ src/model/attention.rs:123"));
            let attributes = RangeAttributes { name, ..Default::default() };
            log.write(&Record::RangePush { t_ns: index, attributes });
            log.write(&Record::RangePop { t_ns: index, domain: DomainId::NONE });
        });
        let stack: Vec<u64> = (0..40).map(|frame| 0x7f00_0000_0000 + frame * 4096).collect();
        row("call, stack of 40 looked up", records, 1, move |log, index| {
            let stack = log.stack(black_box(&stack));
            let Record::Call(call) = call(index) else { return };
            log.write(&Record::Call(Call { stack, ..call }));
        });
        for threads in [2, 4] {
            contended(threads, records, call);
        }
        read(records, call);
    }

    /// `per` is the number of records that one call of `work` writes; costs are per call of `work`.
    fn row(name: &str, count: u64, per: u64, mut work: impl FnMut(&mut ThreadLog<'_>, u64)) {
        let directory = tempfile::tempdir().expect("a folder for the log");
        let mut times = Vec::new();
        let mut size = 0;
        for _ in 0..ROUNDS {
            let writer = LogWriter::create(directory.path(), Options::default()).expect("a log");
            let mut log = writer.thread();
            let start = Instant::now();
            for index in 0..count {
                work(&mut log, index);
            }
            times.push(start.elapsed().as_nanos() as f64 / count as f64);
            log.end(EndReason::Exit, 0);
            size = std::fs::metadata(writer.path()).expect("the log").len();
            std::fs::remove_file(writer.path()).expect("the log can be removed");
        }
        times.sort_by(f64::total_cmp);
        let bytes = size as f64 / (count * per) as f64;
        println!("{name:<44} {:>9.1} {:>9.1} {bytes:>13.1}", times[0], times[times.len() / 2]);
    }

    fn contended(threads: u64, count: u64, call: impl Fn(u64) -> Record<'static> + Copy + Send + Sync) {
        let directory = tempfile::tempdir().expect("a folder for the log");
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let writer = LogWriter::create(directory.path(), Options::default()).expect("a log");
            let start = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let mut log = writer.thread();
                        for index in 0..count / threads {
                            log.write(&call(index));
                        }
                    });
                }
            });
            times.push(start.elapsed().as_nanos() as f64 / count as f64);
            std::fs::remove_file(writer.path()).expect("the log can be removed");
        }
        times.sort_by(f64::total_cmp);
        let name = format!("call, {threads} threads at once (wall / calls)");
        println!("{name:<44} {:>9.1} {:>9.1}", times[0], times[times.len() / 2]);
    }

    fn read(count: u64, call: impl Fn(u64) -> Record<'static>) {
        let directory = tempfile::tempdir().expect("a folder for the log");
        let writer = LogWriter::create(directory.path(), Options::default()).expect("a log");
        let mut log = writer.thread();
        let name = log.str(b"step");
        for index in 0..count {
            let attributes = RangeAttributes { name, ..Default::default() };
            log.write(&Record::RangePush { t_ns: index, attributes });
            log.write(&call(index));
            log.write(&Record::RangePop { t_ns: index, domain: DomainId::NONE });
        }
        log.end(EndReason::Exit, 0);
        let (mut open, mut walk) = (Vec::new(), Vec::new());
        let mut summary = Summary::default();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let file = LogFile::open(writer.path()).expect("the log is readable");
            open.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let records: u64 =
                file.threads().map(|thread| thread.records().map(black_box).count() as u64).sum();
            walk.push(start.elapsed().as_secs_f64());
            assert_eq!(records, file.summary().records);
            summary = *file.summary();
        }
        open.sort_by(f64::total_cmp);
        walk.sort_by(f64::total_cmp);
        let rate = |seconds: f64| summary.records as f64 / seconds / 1e6;
        println!();
        println!("{:<44} {:>9} {:>9}", "read, million records/s", "best", "median");
        for (name, times) in [("open (read the file, verify everything)", &open), ("walk", &walk)] {
            println!("{name:<44} {:>9.1} {:>9.1}", rate(times[0]), rate(times[times.len() / 2]));
        }
    }
}
