//! CUDA calls through the built library: a mock driver and CUPTI call back in every shape, the log is read back.

mod support;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use support::{Trace, Traced, compile};
use syncaudit_eventlog::{
    Api, ApiDomain, Call, EndReason, LogFile, LossReason, NoteLevel, QueryRun, Record, StackId, meta,
};

struct Built {
    _directory: tempfile::TempDir,
    program: PathBuf,
    mock: PathBuf,
    emulated: PathBuf,
    old: PathBuf,
    broken: PathBuf,
}

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let library = |name: &str, options: &[&str]| {
            std::fs::create_dir(directory.path().join(name)).unwrap();
            let path = directory.path().join(name).join("libcuda.so.1");
            let shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
            compile("mock_cuda.c", &path, &[&shared, options].concat());
            path
        };
        let program = directory.path().join("mock_program");
        compile("mock_program.c", &program, &[]);
        Built {
            program,
            mock: library("mock", &[]),
            emulated: library("emulated", &["-DEMULATED"]),
            old: library("old", &["-DMISSING"]),
            broken: library("broken", &["-DNO_SUBSCRIBE"]),
            _directory: directory,
        }
    })
}

fn traced(mock: &Path, mode: &str) -> Traced {
    let mut traced = Traced::new(&built().program);
    traced.command.arg(mock).arg(mode).env("SYNCAUDIT_CUPTI", mock);
    traced
}

fn run(mode: &str) -> Trace {
    traced(&built().mock, mode).run()
}

fn records(log: &LogFile) -> impl Iterator<Item = Record<'_>> {
    log.threads().flat_map(|thread| thread.records())
}

fn calls(log: &LogFile) -> Vec<Call> {
    records(log)
        .filter_map(|record| if let Record::Call(call) = record { Some(call) } else { None })
        .collect()
}

fn query_runs(log: &LogFile) -> Vec<QueryRun> {
    records(log)
        .filter_map(|record| if let Record::QueryRun(run) = record { Some(run) } else { None })
        .collect()
}

fn name(log: &LogFile, api: Api) -> String {
    String::from_utf8(log.api_name(api).unwrap().to_vec()).unwrap()
}

fn driver(cbid: u16) -> Api {
    Api { domain: ApiDomain::Driver, cbid }
}

/// Names of the program's functions on a stack, innermost first, with the help of the symbol table.
fn functions(log: &LogFile, stack: StackId) -> Vec<String> {
    let program = built().program.display().to_string();
    let module = log.modules().find_map(|module| match module {
        Record::Module { base, end, bias, path, .. } if log.str(path) == Some(program.as_bytes()) => {
            Some((base..end, bias))
        }
        _ => None,
    });
    let (range, bias) = module.expect("the program is among the modules");
    let addresses: Vec<String> = log
        .stack(stack)
        .expect("this call has a stack")
        .iter()
        .filter(|address| range.contains(address))
        // A return address is behind its call.
        .map(|address| format!("{:#x}", address - bias - 1))
        .collect();
    let output = std::process::Command::new("addr2line")
        .args(["-f", "-e", &program])
        .args(&addresses)
        .output()
        .expect("addr2line comes with the C compiler");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().step_by(2).map(str::to_owned).collect()
}

#[test]
fn only_the_calls_of_the_table_are_called_back_and_only_their_records_are_made() {
    run("enabled").assert_exit(3);
    let mut old = traced(&built().old, "enabled");
    old.command.arg("old");
    old.run().assert_exit(3);
    let mut timeline = traced(&built().mock, "timeline");
    timeline.command.env("SYNCAUDIT_GPU_TIMELINE", "1");
    timeline.run().assert_exit(3);
}

#[test]
fn one_call_of_the_program_is_one_call_in_the_log_whatever_is_nested_in_it() {
    let trace = run("calls");
    let log = trace.assert_exit(3).log();
    let calls = calls(&log);
    let short: Vec<_> = calls
        .iter()
        .map(|call| (name(&log, call.api), call.bytes, call.copy_kind, call.result, call.nested_calls))
        .collect();
    assert_eq!(
        short,
        [
            ("cudaMemcpyAsync".to_owned(), 4, 2, 0, 1),
            ("cudaStreamSynchronize".to_owned(), 0, 0, 0, 1),
            ("cudaStreamSynchronize".to_owned(), 0, 0, 719, 1),
            ("cuMemcpyDtoDAsync_v2".to_owned(), 512, 8, 0, 0),
            ("cuMemcpyDtoDAsync_v2".to_owned(), 512, 8, 0, 0),
            ("cudaDeviceSynchronize".to_owned(), 0, 0, 0, 0),
        ]
    );
    let copy = &calls[0];
    assert_eq!((copy.stream, copy.correlation), (0x5157, 1));
    assert_eq!(name(&log, driver(copy.nested_cbid)), "cuMemcpyDtoHAsync_v2");
    assert!(copy.exit_ns - copy.enter_ns >= 100_000, "the call slept for 100 us");
    assert_eq!(name(&log, driver(calls[1].nested_cbid)), "cuStreamSynchronize");
    for pair in calls.windows(2) {
        assert!(pair[0].exit_ns <= pair[1].enter_ns);
    }
    assert!(log.header().losses.is_empty());
}

#[test]
fn waits_and_host_copies_have_stacks_and_device_copies_only_when_slow() {
    let log = run("calls").assert_exit(3).log();
    let calls = calls(&log);
    assert_eq!(functions(&log, calls[0].stack), ["runtime_copy_to_host", "calls", "main", "_start"]);
    assert_eq!(functions(&log, calls[1].stack)[..2], ["runtime_stream_sync", "calls"]);
    assert!(calls[3].stack.is_none() || calls[3].exit_ns - calls[3].enter_ns >= 50_000);
    assert_eq!(functions(&log, calls[4].stack)[0], "calls");
    let own = log.modules().find_map(|module| match module {
        Record::Module { base, end, path, .. } => {
            log.str(path)?.ends_with(b"/libsyncaudit_tracer.so").then_some(base..end)
        }
        _ => None,
    });
    let own = own.expect("the tracer is among the modules");
    assert!(!log.stack(calls[0].stack).unwrap().iter().any(|address| own.contains(&address)));
}

#[test]
fn a_call_that_never_returned_is_in_the_log_with_its_stack() {
    let trace = run("inside-killed");
    let log = trace.log();
    let entered: Vec<_> = records(&log)
        .filter_map(|record| if let Record::CallEnter(enter) = record { Some(enter) } else { None })
        .collect();
    assert_eq!(entered.len(), 1);
    assert_eq!(name(&log, entered[0].api), "cudaStreamSynchronize");
    assert!(functions(&log, entered[0].stack).contains(&"main".to_owned()));
    assert_eq!(calls(&log), []);
}

#[test]
fn every_recorded_enter_is_completed_by_the_call_with_the_same_time() {
    let log = run("calls").assert_exit(3).log();
    let calls = calls(&log);
    for record in records(&log) {
        if let Record::CallEnter(enter) = record {
            assert!(calls.iter().any(|call| call.api == enter.api && call.enter_ns == enter.enter_ns));
        }
    }
}

#[test]
fn a_call_left_without_exit_does_not_swallow_the_ones_after_it() {
    let log = run("abandoned").assert_exit(3).log();
    let names: Vec<_> = calls(&log).iter().map(|call| name(&log, call.api)).collect();
    assert_eq!(
        names,
        [
            "cudaStreamSynchronize",
            "cudaStreamSynchronize",
            "cudaStreamSynchronize",
            "cudaDeviceSynchronize",
            "cuStreamSynchronize"
        ]
    );
}

#[test]
fn polling_is_a_run_that_ends_with_anything_else() {
    let log = run("queries").assert_exit(3).log();
    let runs = query_runs(&log);
    // The last state of each run, by its number.
    let mut last: Vec<(u64, u32, u32)> = Vec::new();
    for run in &runs {
        last.resize(last.len().max(run.run as usize), (0, 0, 0));
        last[run.run as usize - 1] = (run.object, run.count, run.not_ready);
    }
    assert_eq!(last, [(0xe1, 6, 5), (0xe2, 1, 0), (0xe1, 1, 1), (0xe2, 1, 1), (0xe2, 1, 1)]);
    let first = runs.iter().rfind(|run| run.run == 1).unwrap();
    assert_eq!(name(&log, first.api), "cudaEventQuery");
    assert_eq!(functions(&log, first.stack)[..2], ["query_event", "queries"]);
    assert!(runs.iter().find(|run| run.run == 2).unwrap().stack.is_none(), "a hit needs no stack");
    let calls = calls(&log);
    assert_eq!(calls.len(), 2, "the synchronise and the query that failed");
    assert_eq!((name(&log, calls[1].api), calls[1].result), ("cudaEventQuery".to_owned(), 719));
}

#[test]
fn a_polling_loop_that_is_killed_is_in_the_log() {
    let log = run("polling-killed").log();
    let runs = query_runs(&log);
    assert_eq!(runs.last().map(|run| (run.run, run.count)), Some((1, 64)));
    assert_eq!(runs.len(), 7, "written at 1, 2, 4 ... 64");
}

#[test]
fn records_keep_their_numbers_and_those_that_say_nothing_are_left_out() {
    let log = run("records").assert_exit(3).log();
    let mut copies = Vec::new();
    let mut syncs = Vec::new();
    let mut overheads = Vec::new();
    let mut sets = Vec::new();
    let mut kernels = Vec::new();
    for record in records(&log) {
        match record {
            Record::Memcpy(copy) => copies.push(copy),
            Record::Synchronization(sync) => syncs.push(sync),
            Record::Overhead(overhead) => overheads.push(overhead),
            Record::Memset(set) => sets.push(set),
            Record::Kernel(kernel) => kernels.push(kernel),
            _ => {}
        }
    }
    assert_eq!(copies.len(), 3);
    let (pageable, pinned, peer) = (&copies[0], &copies[1], &copies[2]);
    assert_eq!((peer.copy_kind, peer.correlation), (10, 15));
    assert_eq!(sets.len(), 1);
    assert_eq!((sets[0].bytes, sets[0].memory_kind, sets[0].flags, sets[0].correlation), (64, 2, 1, 16));
    assert_eq!(kernels.len(), 1);
    assert_eq!(log.str(kernels[0].name), Some(&b"a_kernel"[..]));
    assert_eq!((kernels[0].correlation, kernels[0].graph_node, kernels[0].graph), (17, 5, 6));
    assert_eq!((kernels[0].start_cupti_ns, kernels[0].end_cupti_ns), (9, 10));
    assert_eq!((pageable.src_kind, pageable.dst_kind, pageable.flags), (3, 1, 1));
    assert_eq!((pageable.bytes, pageable.start_cupti_ns, pageable.end_cupti_ns), (4, 1000, 2000));
    assert_eq!((pageable.correlation, pageable.stream, pageable.context), (11, 7, 1));
    assert_eq!((pinned.dst_kind, pinned.correlation, pinned.graph, pinned.graph_node), (2, 12, 3, 4));
    assert_eq!(syncs.len(), 1, "a stream that waits for an event is not a host that waits");
    assert_eq!((syncs[0].sync_type, syncs[0].correlation, syncs[0].stream), (3, 13, 7));
    assert_eq!(overheads.len(), 1);
    assert_eq!((overheads[0].overhead_kind, overheads[0].correlation), (6 << 16, 14));
    let clocks: Vec<_> = records(&log)
        .filter_map(|record| if let Record::Clock(clock) = record { Some(clock) } else { None })
        .collect();
    assert!(clocks.len() >= 3 && clocks.last().unwrap().cupti_ns > 0);
    assert!(log.header().losses.is_empty());
}

#[test]
fn what_cupti_dropped_or_garbled_is_counted() {
    let log = run("drops").assert_exit(3).log();
    assert_eq!(log.header().losses, [(LossReason::CuptiDropped, 17)]);
    let log = run("broken-records").assert_exit(3).log();
    assert_eq!(log.header().losses, [(LossReason::Unreadable, 1)]);
}

/// The pause is what is tested: records are asked for once a second, from the end of a wait.
#[test]
fn a_killed_program_has_lost_no_records_older_than_a_second() {
    let log = run("killed-later").log();
    assert_eq!(records(&log).filter(|record| matches!(record, Record::Memcpy(_))).count(), 3);
    assert_eq!(calls(&log).len(), 2);
}

#[test]
fn libraries_that_come_and_go_meanwhile_do_no_harm() {
    let library = built().program.with_file_name(support::unique("library"));
    compile("empty_library.c", &library, &["-shared", "-fPIC"]);
    let mut traced = traced(&built().mock, "unload-storm");
    traced.command.arg(&library);
    let log = traced.run().assert_exit(3).log();
    let calls = calls(&log);
    assert_eq!(calls.len(), 300);
    for call in calls {
        assert_eq!(functions(&log, call.stack)[0], "runtime_stream_sync");
    }
}

#[test]
fn threads_that_call_at_once_lose_nothing() {
    let log = run("storm").assert_exit(3).log();
    assert_eq!(calls(&log).len(), 8 * 500 * 2);
    let queries: u32 = query_runs(&log).iter().filter(|run| run.count == 1).map(|run| run.count).sum();
    assert_eq!(queries, 8 * 500);
    assert!(log.header().losses.is_empty());
}

#[test]
fn a_forked_child_records_its_calls_and_leaves_cupti_alone() {
    let trace = run("fork");
    trace.assert_exit(3);
    let logs = trace.logs();
    assert_eq!(logs.len(), 2);
    let copies = |log: &LogFile| records(log).filter(|record| matches!(record, Record::Memcpy(_))).count();
    assert_eq!((calls(&logs[0]).len(), copies(&logs[0])), (1, 3));
    assert_eq!((calls(&logs[1]).len(), copies(&logs[1])), (1, 0));
}

#[test]
fn nvtx_may_come_long_before_cuda() {
    let trace = run("nvtx-first");
    let log = trace.assert_exit(3).log();
    let kinds: Vec<&str> = records(&log)
        .filter_map(|record| match record {
            Record::RangePush { .. } => Some("push"),
            Record::Call(_) => Some("call"),
            Record::RangePop { .. } => Some("pop"),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, ["push", "call", "pop"]);
    let handshakes = trace.handshakes();
    assert_eq!(handshakes.len(), 1);
    let keys: Vec<_> = handshakes[0].1.lines().map(|line| line.split('=').next().unwrap()).collect();
    assert_eq!(keys, ["tracer", "nvtx", "cuda", "emulated", "cupti"]);
}

#[test]
fn versions_and_the_emulated_device_are_told() {
    for (mock, emulated) in [(&built().mock, "0"), (&built().emulated, "1")] {
        let trace = traced(mock, "enabled").run();
        let log = trace.assert_exit(3).log();
        assert_eq!(log.meta(meta::CUDA_DRIVER), Some(&b"12080"[..]));
        assert_eq!(log.meta(meta::CUPTI), Some(&b"26"[..]));
        assert_eq!(log.meta(meta::EMULATED), Some(emulated.as_bytes()));
        let handshake = &trace.handshakes()[0].1;
        assert!(handshake.contains(&format!("\ncuda=12080\nemulated={emulated}\ncupti=26\n")), "{handshake}");
    }
}

/// Runs with something wrong: NVTX must go on, the reason must be everywhere it belongs, once.
#[track_caller]
fn assert_problem(traced: Traced, level: NoteLevel, words: &[&str]) {
    let trace = traced.run();
    let log = trace.assert_exit(3).log();
    let stderr = trace.stderr();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("syncaudit: "), "{stderr}");
    let notes: Vec<_> = records(&log)
        .filter_map(|record| match record {
            Record::Note { level, text, .. } => Some((level, String::from_utf8_lossy(text).into_owned())),
            _ => None,
        })
        .collect();
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].0, level);
    let handshake = &trace.handshakes()[0].1;
    for word in words {
        assert!(
            stderr.contains(word) && notes[0].1.contains(word) && handshake.contains(word),
            "{word}: {stderr}"
        );
    }
    assert!(handshake.contains("\nproblem="), "{handshake}");
    assert!(records(&log).any(|record| matches!(record, Record::RangePush { .. })), "NVTX goes on");
    let end = records(&log).last();
    assert!(matches!(end, Some(Record::End { reason: EndReason::Exit, code: 3, .. })), "{end:?}");
}

#[test]
fn another_subscriber_is_said_and_nvtx_goes_on() {
    let mut traced = traced(&built().mock, "problem");
    traced.command.env("MOCK_REFUSE", "subscribe=39");
    assert_problem(traced, NoteLevel::Problem, &["another tool", "CUPTI result 39"]);
}

#[test]
fn a_cupti_that_fails_is_said_and_nvtx_goes_on() {
    let mut refused = traced(&built().mock, "problem");
    refused.command.env("MOCK_REFUSE", "subscribe=15");
    assert_problem(refused, NoteLevel::Problem, &["CUPTI result 15 (NOT_INITIALIZED)"]);
    let mut callbacks = traced(&built().mock, "problem");
    callbacks.command.env("MOCK_REFUSE", "callback=999");
    assert_problem(callbacks, NoteLevel::Problem, &["can't be followed", "CUPTI result 999"]);
    let mut records = traced(&built().mock, "problem");
    records.command.env("MOCK_REFUSE", "activity=999");
    assert_problem(records, NoteLevel::Warning, &["pinned and pageable", "CUPTI result 999"]);
}

#[test]
fn a_cupti_without_a_needed_function_is_said_and_nvtx_goes_on() {
    assert_problem(traced(&built().broken, "problem"), NoteLevel::Problem, &["no function cuptiSubscribe"]);
}

#[test]
fn a_cupti_that_is_not_there_is_said_and_nvtx_goes_on() {
    let mut traced = traced(&built().mock, "problem");
    traced.command.env("SYNCAUDIT_CUPTI", "/nonexistent/libcupti.so.12");
    assert_problem(traced, NoteLevel::Problem, &["/nonexistent/libcupti.so.12", "SYNCAUDIT_CUPTI"]);
}
