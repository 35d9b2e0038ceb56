//! The tracer on the emulated device: real streams, real waits, the same code path as on a GPU.

mod support;

use std::path::{Path, PathBuf};

use support::{Trace, Traced, compile};
use syncaudit_eventlog::{Call, LogFile, Memcpy, QueryRun, Record, meta};

fn emulator() -> PathBuf {
    let beside = support::tracer().with_file_name("libsyncaudit_emulator.so");
    assert!(beside.exists(), "cargo builds {} as a dependency of this test", beside.display());
    beside
}

fn run(options: &[(&str, &str)]) -> Trace {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("emulated_program");
    compile("emulated_program.c", &program, &[]);
    // The driver is looked for by this name, as on any machine.
    let driver = directory.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(emulator(), &driver).unwrap();
    let mut traced = Traced::new(&program);
    traced
        .command
        .arg(&driver)
        .env("LD_LIBRARY_PATH", directory.path())
        .env("SYNCAUDIT_CUPTI", emulator())
        .envs(options.iter().copied());
    traced.run()
}

fn records(log: &LogFile) -> impl Iterator<Item = Record<'_>> {
    log.threads().flat_map(|thread| thread.records())
}

fn named(log: &LogFile, name: &str) -> Vec<Call> {
    records(log)
        .filter_map(|record| if let Record::Call(call) = record { Some(call) } else { None })
        .filter(|call| log.api_name(call.api) == Some(name.as_bytes()))
        .collect()
}

/// The record of what the device did for a call.
fn copy_of(log: &LogFile, call: &Call) -> Memcpy {
    let mut copies = records(log).filter_map(|record| match record {
        Record::Memcpy(copy) if copy.correlation == call.correlation => Some(copy),
        _ => None,
    });
    let copy = copies.next().expect("each copy has a record with the call's correlation id");
    assert!(copies.next().is_none());
    copy
}

const PAGEABLE: u8 = 1;
const PINNED: u8 = 2;
const DEVICE: u8 = 3;

#[test]
fn every_wait_of_the_program_is_in_the_log_with_what_the_device_did() {
    let trace = run(&[]);
    let log = trace.assert_exit(0).log();
    assert!(trace.output.stderr.is_empty(), "{}", trace.stderr());
    assert_eq!(log.meta(meta::EMULATED), Some(&b"1"[..]));
    assert!(log.header().losses.is_empty(), "{:?}", log.header());

    let reads = named(&log, "cuMemcpyDtoHAsync_v2");
    assert_eq!(reads.iter().map(|call| call.bytes).collect::<Vec<_>>(), [1 << 16, 4, 1 << 16]);
    let kinds: Vec<_> =
        reads.iter().map(|call| copy_of(&log, call)).map(|copy| (copy.src_kind, copy.dst_kind)).collect();
    assert_eq!(kinds, [(DEVICE, PAGEABLE), (DEVICE, PINNED), (DEVICE, PINNED)]);
    let upload = &named(&log, "cuMemcpyHtoDAsync_v2")[0];
    assert_eq!((copy_of(&log, upload).src_kind, upload.copy_kind), (PAGEABLE, 1));

    let syncs = named(&log, "cuStreamSynchronize");
    assert_eq!(syncs.len(), 2);
    for sync in &syncs {
        assert_eq!(sync.stream, reads[0].stream);
        assert!(records(&log).any(|record| matches!(record,
            Record::Synchronization(s) if s.correlation == sync.correlation && s.sync_type == 3)));
    }
    assert_eq!(named(&log, "cuEventSynchronize").len(), 1);
    assert_eq!(named(&log, "cuCtxSynchronize").len(), 1);
    let blocking = &named(&log, "cuMemcpyDtoH_v2")[0];
    assert_eq!((blocking.bytes, copy_of(&log, blocking).dst_kind), (1, PAGEABLE));
    assert_eq!(named(&log, "cuEventRecord").len(), 2);
    for name in ["cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFree_v2"] {
        assert_eq!(named(&log, name).len(), 1, "{name}");
    }
    for call in reads.iter().chain(&syncs).chain([blocking]) {
        assert!(!call.stack.is_none());
    }
    assert!(named(&log, "cuMemsetD8Async").is_empty(), "it can't wait, so it isn't called back");
}

#[test]
fn a_polling_loop_is_one_run_that_ends_with_the_event() {
    let log = run(&[]).assert_exit(0).log();
    let runs: Vec<QueryRun> = records(&log)
        .filter_map(|record| if let Record::QueryRun(run) = record { Some(run) } else { None })
        .collect();
    let last = runs.last().unwrap();
    assert!(runs.iter().all(|run| run.run == last.run));
    assert_eq!(last.count, last.not_ready + 1, "the last query found it ready");
}

#[test]
fn device_times_lie_inside_the_run_once_converted_with_the_clock_pairs() {
    let log = run(&[]).assert_exit(0).log();
    let clocks: Vec<_> = records(&log)
        .filter_map(|record| if let Record::Clock(clock) = record { Some(clock) } else { None })
        .filter(|clock| clock.cupti_ns != 0)
        .collect();
    assert!(clocks.len() >= 2);
    let offset = i128::from(clocks[0].monotonic_ns) - i128::from(clocks[0].cupti_ns);
    let sync = &named(&log, "cuStreamSynchronize")[0];
    let read = &named(&log, "cuMemcpyDtoHAsync_v2")[0];
    let copy = copy_of(&log, read);
    let end = i128::from(copy.end_cupti_ns) + offset;
    // The clocks are read some hundred nanoseconds apart; a millisecond is far beyond that and far below a mix-up.
    let slack = 1_000_000;
    assert!(end >= i128::from(read.enter_ns) - slack && end <= i128::from(sync.exit_ns) + slack);
}

#[test]
fn copies_are_the_same_with_and_without_the_tracer() {
    // The program checks its own data; here without any injection.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("emulated_program");
    compile("emulated_program.c", &program, &[]);
    let mut traced = Traced::new(&program);
    traced.command.arg(Path::new(&emulator())).env_remove("SYNCAUDIT_TRACE_DIR");
    let trace = traced.run();
    trace.assert_exit(0);
    assert_eq!(trace.logs().len(), 0);
}
