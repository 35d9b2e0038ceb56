//! NVTX through the built library: a C program speaks the injection protocol, the log is read back.

mod support;

use std::path::PathBuf;
use std::sync::OnceLock;

use support::{Trace, Traced, compile, said};
use syncaudit_eventlog::{EndReason, LogFile, Record, meta};

fn client() -> PathBuf {
    static CLIENT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    CLIENT
        .get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("nvtx_client");
            compile("nvtx_client.c", &path, &[]);
            (directory, path)
        })
        .1
        .clone()
}

fn run(mode: &str) -> Trace {
    let mut traced = Traced::new(&client());
    traced.command.arg(mode);
    traced.run()
}

fn end_of(log: &LogFile) -> Option<(EndReason, u32)> {
    log.threads().flat_map(|thread| thread.records()).find_map(|record| match record {
        Record::End { reason, code, .. } => Some((reason, code)),
        _ => None,
    })
}

#[test]
fn every_slot_does_what_nvtx_documents() {
    let trace = run("slots");
    let log = trace.assert_exit(0).log();
    let expected = [
        "mark mark ex",
        "mark mark a",
        "mark mark ß 😀",
        "start start ex",
        "start start a",
        "start start w",
        "end ",
        "end ",
        "end ",
        "push outer",
        "push with payload #7 I64(-42)",
        "push wide",
        "pop ",
        "pop ",
        "pop ",
        "mark payload U64(9223372036854775808)",
        "mark payload F64(0.5)",
        "mark payload U32(4000000000)",
        "mark payload I32(-5)",
        "mark payload F32(1.5)",
        "category 7=seven",
        "category 8=eight",
        "category left:7=left seven",
        "category left:9=left nine",
        "push left:registered",
        "push right:registered wide",
        "push left:registered wide",
        "push default",
        "push registered wide",
        "pop left:",
        "pop left:",
        "pop right:",
        "pop ",
        "pop ",
        "mark right:registered wide",
        "start right:registered wide",
        "end right:",
        "push left:registered",
        "pop left:",
        "push -",
        "pop ",
        "push -",
        "pop ",
        "push -",
        "pop ",
        "push -",
        "pop ",
    ];
    assert_eq!(said(&log), expected);
    assert_eq!(log.threads().next().unwrap().name(), Some(&b"chief"[..]));
    assert_eq!(end_of(&log), Some((EndReason::Exit, 0)));
    assert!(log.header().losses.is_empty(), "{:?}", log.header());
}

#[test]
fn the_log_and_the_handshake_say_what_program_it_was() {
    let mut traced = Traced::new(&client());
    traced
        .command
        .args(["slots", "second argument"])
        .env("RANK", "3")
        .env("WORLD_SIZE", "not a number; a secret");
    let trace = traced.run();
    let log = trace.assert_exit(0).log();
    let program = String::from_utf8(log.meta(meta::PROGRAM).unwrap().to_vec()).unwrap();
    assert_eq!(program, format!("{}\0slots\0second argument\0", client().display()));
    assert_eq!(log.meta(meta::RANK), Some(&b"3"[..]));
    assert_eq!(log.meta(meta::WORLD_SIZE), None, "only numbers are taken from the environment");
    assert_eq!(log.meta(meta::EMULATED), None, "it never came to CUDA");
    let handshakes = trace.handshakes();
    assert_eq!(handshakes.len(), 1);
    assert_eq!(handshakes[0].0, format!("alive-{}-0", log.header().pid));
    assert_eq!(handshakes[0].1, concat!("tracer=", env!("CARGO_PKG_VERSION"), "\nnvtx=1\n"));
    assert!(trace.output.stderr.is_empty() && trace.output.stdout.is_empty());
    let modules = log.modules().count();
    assert!(modules >= 4, "the program, libc, the tracer, the linker: {modules}");
}

#[test]
fn an_injection_called_twice_records_each_range_once() {
    let log = run("twice").assert_exit(0).log();
    assert_eq!(said(&log), ["push once", "pop "]);
}

#[test]
fn the_shorter_table_of_nvtx_version_2_is_not_overrun() {
    run("v2").assert_exit(0);
}

#[test]
fn the_payload_extension_is_told_that_domains_are_enabled() {
    let log = run("extension").assert_exit(0).log();
    assert_eq!(said(&log), ["push -", "pop "]);
}

#[test]
fn a_storm_of_threads_loses_nothing() {
    let log = run("threads").assert_exit(0).log();
    let lines = said(&log);
    let pushes = lines.iter().filter(|line| line.starts_with("push")).count();
    assert_eq!((pushes, lines.len()), (3 * 16 * 1000 * 2, 2 * 3 * 16 * 1000 * 2));
    assert!(log.header().losses.is_empty());
    let threads: std::collections::BTreeSet<_> = log.threads().map(|thread| thread.os_tid()).collect();
    assert_eq!(threads.len(), 1 + 3 * 16);
    for thread in log.threads() {
        let mut depth = 0i64;
        for record in thread.records() {
            depth += match record {
                Record::RangePush { .. } => 1,
                Record::RangePop { .. } => -1,
                _ => 0,
            };
            assert!((0..=2).contains(&depth));
        }
        assert_eq!(depth, 0);
    }
}

#[test]
fn children_write_logs_of_their_own_and_leave_the_parents_alone() {
    let trace = run("fork");
    trace.assert_exit(0);
    let logs = trace.logs();
    let lines: Vec<_> = logs.iter().map(said).collect();
    assert_eq!(
        lines,
        [
            vec!["push parent", "push shared:text of the parent", "pop "],
            vec!["push child", "push shared:text of the parent"],
            vec!["push grandchild"],
        ],
        "the child without events has no log"
    );
    assert_eq!(logs[1].header().ppid, logs[0].header().pid);
    assert_eq!(logs[2].header().ppid, logs[1].header().pid);
    for log in &logs {
        assert!(log.warnings().is_empty(), "{:?}", log.warnings());
    }
    assert_eq!(end_of(&logs[0]), Some((EndReason::Exit, 0)));
    assert_eq!(end_of(&logs[1]), Some((EndReason::Exit, 4)));
    assert_eq!(end_of(&logs[2]), None, "_exit runs no handlers");
    assert_eq!(trace.handshakes().len(), 3);
}

#[test]
fn children_forked_in_the_middle_of_other_threads_events_record_theirs() {
    let trace = run("fork-storm");
    trace.assert_exit(0);
    let logs = trace.logs();
    assert_eq!(logs.len(), 21);
    for child in &logs[1..] {
        assert_eq!(said(child), ["push child of a storm"]);
        assert_eq!(end_of(child), Some((EndReason::Exit, 0)));
        assert!(child.warnings().is_empty() && child.header().losses.is_empty());
    }
    assert_eq!(said(&logs[0]).len(), 4 * 1000 * 4);
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_files_and_its_log() {
    let mut traced = Traced::new(&client());
    let own_file = traced.directory.path().join("own-file");
    traced.command.arg("close-all").arg(&own_file);
    let trace = traced.run();
    let log = trace.assert_exit(0).log();
    assert_eq!(said(&log).len(), 1 + 2 * 20_000);
    assert_eq!(std::fs::read(own_file).unwrap(), b"");
}

#[test]
fn exec_begins_a_second_log_under_the_same_pid() {
    let trace = run("exec");
    trace.assert_exit(0);
    let logs = trace.logs();
    assert_eq!(logs.iter().map(said).collect::<Vec<_>>(), [["push before"], ["push after"]]);
    assert_eq!(logs[0].header().pid, logs[1].header().pid);
    let names: Vec<_> = trace.handshakes().into_iter().map(|(name, _)| name).collect();
    let pid = logs[0].header().pid;
    assert_eq!(names, [format!("alive-{pid}-0"), format!("alive-{pid}-1")]);
}

#[test]
fn whatever_ends_the_program_the_last_event_is_in_the_log() {
    for mode in ["abort", "kill", "_exit"] {
        let trace = run(mode);
        assert!(!trace.output.status.success());
        let logs = trace.logs();
        assert_eq!(said(&logs[0]), ["push last words"], "{mode}");
        assert_eq!(end_of(&logs[0]), None, "{mode}");
    }
}

#[test]
fn exit_in_a_storm_of_threads_neither_hangs_nor_crashes() {
    for _ in 0..5 {
        let trace = run("exit-in-thread-storm");
        let log = trace.assert_exit(6).log();
        assert_eq!(end_of(&log), Some((EndReason::Exit, 6)));
        assert!(said(&log).contains(&"push main".to_owned()));
    }
}

#[test]
fn without_a_trace_directory_the_tracer_is_silent_and_fills_nothing() {
    let mut traced = Traced::new(&client());
    traced.command.arg("off").env_remove("SYNCAUDIT_TRACE_DIR");
    let trace = traced.run();
    trace.assert_exit(0);
    assert!(trace.output.stderr.is_empty());
}

#[test]
fn a_refused_directory_is_one_line_on_stderr_and_the_program_goes_on() {
    use std::os::unix::fs::PermissionsExt;
    let traced = Traced::new(&client());
    let open = traced.directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let link = traced.directory.path().join("link");
    std::os::unix::fs::symlink(traced.directory.path(), &link).unwrap();
    for (path, reason) in [(&open, "open to others (mode 0755)"), (&link, "symbolic link")] {
        let mut traced = Traced::new(&client());
        traced.command.arg("off").env("SYNCAUDIT_TRACE_DIR", path);
        let trace = traced.run();
        trace.assert_exit(0);
        let stderr = trace.stderr();
        assert!(stderr.starts_with("syncaudit: not tracing: ") && stderr.contains(reason), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    assert_eq!(std::fs::read_dir(open).unwrap().count(), 0, "nothing is written there");
}
