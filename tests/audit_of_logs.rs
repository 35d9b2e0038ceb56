//! From event logs, written with the real writer, to audits: what was put in is what is counted.
#![cfg(unix)]

use std::path::{Path, PathBuf};

use syncaudit::audit::{AuditOptions, SiteStatus, StepKind, Verdict, WaitKind};
use syncaudit::gate::Judged;
use syncaudit::model::ProblemKind;
use syncaudit::report::{TextStyle, json, text};
use syncaudit::{Audit, audit_path};
use syncaudit_eventlog::{
    Api, ApiDomain, Call, CallEnter, Clock, DomainId, EndReason, LogWriter, LossReason, Memcpy, NoteLevel,
    Options, Payload, QueryRun, RangeAttributes, Record, StackId, ThreadLog, meta,
};

const D2H: Api = Api { domain: ApiDomain::Driver, cbid: 276 };
const H2D: Api = Api { domain: ApiDomain::Driver, cbid: 277 };
const COPY: Api = Api { domain: ApiDomain::Runtime, cbid: 41 };
const STREAM_SYNC: Api = Api { domain: ApiDomain::Driver, cbid: 279 };
const FREE: Api = Api { domain: ApiDomain::Driver, cbid: 245 };
const QUERY: Api = Api { domain: ApiDomain::Driver, cbid: 120 };

/// Writes a log as the tracer would, with a clock that counts up.
struct Program<'w> {
    log: ThreadLog<'w>,
    now_ns: u64,
    correlation: u32,
}

impl<'w> Program<'w> {
    fn start(writer: &'w LogWriter) -> Self {
        Self::start_on(writer, true)
    }

    fn start_on(writer: &'w LogWriter, emulated: bool) -> Self {
        let mut log = writer.thread();
        log.write(&Record::Meta { key: meta::PROGRAM, value: b"/home/me/train\0--steps\x0010\0" });
        if emulated {
            log.write(&Record::Meta { key: meta::EMULATED, value: b"1" });
        }
        log.write(&Record::Clock(Clock { monotonic_ns: 1_000, realtime_ns: 500_000, cupti_ns: 501_000 }));
        for (api, name) in [
            (D2H, "cuMemcpyDtoHAsync_v2"),
            (H2D, "cuMemcpyHtoDAsync_v2"),
            (COPY, "cudaMemcpyAsync"),
            (STREAM_SYNC, "cuStreamSynchronize"),
            (FREE, "cuMemFree_v2"),
            (QUERY, "cuEventQuery"),
        ] {
            log.api_name(api, || name.as_bytes());
        }
        Self { log, now_ns: 1_000, correlation: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.now_ns += 100;
        self.now_ns
    }

    fn push(&mut self, name: &str, payload: Payload) {
        let t_ns = self.tick();
        let name = self.log.str(name.as_bytes());
        self.log.write(&Record::RangePush {
            t_ns,
            attributes: RangeAttributes { name, payload, ..Default::default() },
        });
    }

    fn pop(&mut self) {
        let t_ns = self.tick();
        self.log.write(&Record::RangePop { t_ns, domain: DomainId::NONE });
    }

    fn call(&mut self, api: Api, stream: u64, bytes: u64, object: u64) -> u32 {
        self.correlation += 1;
        let enter_ns = self.tick();
        let exit_ns = self.tick();
        self.log.write(&Record::CallEnter(CallEnter {
            enter_ns,
            api,
            correlation: self.correlation,
            stack: StackId::NONE,
            py_stack: Default::default(),
        }));
        self.log.write(&Record::Call(Call {
            enter_ns,
            exit_ns,
            api,
            correlation: self.correlation,
            result: 0,
            copy_kind: 0,
            stream,
            bytes,
            object,
            stack: StackId::NONE,
            py_stack: Default::default(),
            nested_calls: 0,
            nested_cbid: 0,
        }));
        self.correlation
    }

    fn memcpy(&mut self, correlation: u32, copy_kind: u8, src_kind: u8, dst_kind: u8, bytes: u64) {
        self.log.write(&Record::Memcpy(Memcpy {
            correlation,
            copy_kind,
            src_kind,
            dst_kind,
            bytes,
            start_cupti_ns: 501_500,
            end_cupti_ns: 501_700,
            ..Default::default()
        }));
    }

    /// `.item()`: a copy to pinned memory and a synchronise.
    fn read(&mut self, stream: u64) {
        let copy = self.call(D2H, stream, 4, 0);
        self.memcpy(copy, 2, 3, 2, 4);
        self.call(STREAM_SYNC, stream, 0, 0);
    }
}

fn log(directory: &Path, write: impl FnOnce(&mut Program<'_>)) -> PathBuf {
    let writer = LogWriter::create(directory, Options::default()).unwrap();
    let mut program = Program::start(&writer);
    write(&mut program);
    program.log.end(EndReason::Exit, 0);
    writer.path().to_owned()
}

fn audit(path: &Path) -> Audit {
    let audit = audit_path(&[path.to_owned()], &AuditOptions::default()).unwrap();
    audit.reconcile().unwrap();
    audit
}

/// Ten steps; every fifth one logs; each step reads twice in `forward`, one of them in `anchors`.
fn legacy(program: &mut Program<'_>) {
    program.call(FREE, 0, 0, 0x7000);
    for step in 0..10u64 {
        program.push("step", Payload::U64(step));
        program.push("forward", Payload::None);
        program.read(7);
        program.push("anchors @ src/model.rs:12", Payload::None);
        program.read(7);
        program.pop();
        program.pop();
        if step % 5 == 4 {
            program.push("log", Payload::None);
            program.read(7);
            program.pop();
        }
        program.pop();
    }
}

#[test]
fn every_read_is_one_wait_of_two_calls_and_lands_in_its_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = log(directory.path(), legacy);
    let audit = audit(&path);
    assert_eq!(audit.verdict, Verdict::Fail, "{:?}", audit.reasons);
    let counts = &audit.step_counts;
    assert_eq!((counts.total, counts.warmup, counts.log, counts.ordinary), (10, 2, 2, 6));
    assert_eq!(audit.totals.waits, 10 * 2 + 2 + 1);
    assert_eq!(audit.totals.calls, 22 * 2 + 1);
    assert_eq!(audit.totals.ordinary_waits_per_step, 2.0);
    assert_eq!((audit.totals.device_to_host_copies, audit.totals.device_to_host_bytes), (22, 88));
    assert_eq!(audit.totals.blocked_ns, None, "an emulated run has no times");
    let sites: Vec<(SiteStatus, WaitKind, String, u64, u64, u64)> = audit
        .sites
        .iter()
        .map(|s| (s.status, s.kind, s.range.join("/"), s.waits, s.ordinary_waits, s.log_waits))
        .collect();
    use WaitKind::{DeviceToHostRead as Read, MemoryManagement};
    assert!(sites.contains(&(SiteStatus::OverBudget, Read, "step/forward".into(), 10, 6, 2)), "{sites:?}");
    assert!(
        sites.contains(&(SiteStatus::OverBudget, Read, "step/forward/anchors".into(), 10, 6, 2)),
        "{sites:?}"
    );
    assert!(sites.contains(&(SiteStatus::LogStep, Read, "step/log".into(), 2, 0, 2)), "{sites:?}");
    assert!(sites.contains(&(SiteStatus::Outside, MemoryManagement, String::new(), 1, 0, 0)), "{sites:?}");
    assert_eq!(sites.len(), 4);
    let named = audit.sites.iter().find(|site| site.range.len() == 3).unwrap();
    let place = named.place().unwrap();
    assert_eq!((place.file.as_str(), place.line), ("src/model.rs", 12), "the range itself says where it is");
    assert!(audit.steps.iter().filter(|step| step.kind == StepKind::Ordinary).all(|step| step.over_budget));
    assert_eq!(audit.steps[4].number, Some(4));
    assert_eq!(audit.steps[4].log_range_waits, 1);
    assert_eq!(audit.totals.log_waits_outside_range, 4);
}

#[test]
fn a_program_that_only_waits_on_log_steps_passes() {
    let directory = tempfile::tempdir().unwrap();
    let path = log(directory.path(), |program| {
        for step in 0..10u64 {
            program.push("step", Payload::U64(step));
            let copy = program.call(D2H, 9, 64, 0);
            program.memcpy(copy, 2, 3, 2, 64);
            if step % 5 == 4 {
                program.push("log", Payload::None);
                program.call(STREAM_SYNC, 9, 0, 0);
                program.pop();
            }
            program.pop();
        }
    });
    let audit = audit(&path);
    assert_eq!(audit.verdict, Verdict::Pass, "{:?}", audit.reasons);
    // The copy is in another range than the synchronise: they are not one operation.
    assert_eq!(audit.sites.len(), 1);
    assert_eq!((audit.sites[0].kind, audit.sites[0].log_waits), (WaitKind::StreamSync, 2));
}

#[test]
fn memory_kinds_from_the_records_decide_about_copies_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = log(directory.path(), |program| {
        for step in 0..3u64 {
            program.push("step", Payload::U64(step));
            for (bytes, src) in [(4, 1), (1 << 20, 1), (1 << 20, 2)] {
                let copy = program.call(H2D, 9, bytes, 0);
                program.memcpy(copy, 1, src, 3, bytes);
            }
            let copy = program.call(D2H, 9, 8, 0);
            program.memcpy(copy, 2, 3, 1, 8);
            program.pop();
        }
    });
    let audit = audit(&path);
    let kinds: Vec<(WaitKind, u64, u64)> = audit.sites.iter().map(|s| (s.kind, s.waits, s.bytes)).collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert!(kinds.contains(&(WaitKind::HostToDeviceWrite, 3, 3 << 20)), "{kinds:?}");
    assert!(kinds.contains(&(WaitKind::DeviceToHostRead, 3, 24)), "{kinds:?}");
}

#[test]
fn a_polling_loop_is_one_wait_and_a_single_query_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = log(directory.path(), |program| {
        for step in 0..3u64 {
            program.push("step", Payload::U64(step));
            for (run, count) in [(2 * step as u32, 4), (2 * step as u32, 64), (2 * step as u32 + 1, 2)] {
                let (first_enter_ns, last_exit_ns) = (program.tick(), program.tick());
                program.log.write(&Record::QueryRun(QueryRun {
                    first_enter_ns,
                    last_exit_ns,
                    api: QUERY,
                    object: 0xe0 + u64::from(run),
                    run,
                    count,
                    not_ready: count - 1,
                    stack: StackId::NONE,
                    py_stack: Default::default(),
                }));
            }
            program.pop();
        }
    });
    let audit = audit(&path);
    assert_eq!(audit.totals.waits, 3);
    assert_eq!((audit.sites[0].kind, audit.sites[0].calls), (WaitKind::Polling, 3 * 64));
}

#[test]
fn a_program_killed_inside_of_a_call_is_reported_there() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut program = Program::start(&writer);
    for step in 0..5u64 {
        program.push("step", Payload::U64(step));
        program.pop();
    }
    program.push("step", Payload::U64(5));
    let enter_ns = program.tick();
    program.log.write(&Record::CallEnter(CallEnter {
        enter_ns,
        api: STREAM_SYNC,
        correlation: 99,
        stack: StackId::NONE,
        py_stack: Default::default(),
    }));
    // No end, no seal: the writer is leaked, as a killed process would.
    let path = writer.path().to_owned();
    drop(program);
    std::mem::forget(writer);
    let audit = audit(&path);
    assert_eq!((audit.step_counts.unfinished, audit.step_counts.ordinary), (1, 3));
    assert_eq!(audit.verdict, Verdict::Fail, "the last step is over the budget already");
    assert!(audit.reasons.iter().any(|r| r.contains("inside cuStreamSynchronize")), "{:?}", audit.reasons);
    assert!(audit.sites[0].killed_here);
    assert!(audit.problems.iter().any(|p| p.kind == ProblemKind::EndedEarly));
    assert_eq!(
        audit.reasons[0],
        "1 of 1 step that did not end waits for the device more often than allowed, up to 1 time in one step, at 1 place \
         (budget: 0)"
    );
    assert!(audit.reasons[1].contains("did not close its log"), "{:?}", audit.reasons);
}

#[test]
fn a_read_cut_short_by_a_kill_is_at_the_place_of_the_whole_ones_and_what_they_are() {
    // Of the second the direction is known from its record only, which a call that never returned does not have.
    // Emulated, nobody knows whether it would have waited in a copy that it was killed in: the whole ones count.
    for (copy, emulated) in [(D2H, false), (COPY, false), (D2H, true), (COPY, true)] {
        let directory = tempfile::tempdir().unwrap();
        let run = |killed: bool| {
            let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
            let mut program = Program::start_on(&writer, emulated);
            for step in 0..5u64 {
                program.push("step", Payload::U64(step));
                if step < 4 {
                    let correlation = program.call(copy, 3, 4, 0);
                    program.memcpy(correlation, 2, 3, 2, 4);
                    program.call(STREAM_SYNC, 3, 0, 0);
                    program.pop();
                }
            }
            if killed {
                let enter_ns = program.tick();
                program.log.write(&Record::CallEnter(CallEnter {
                    enter_ns,
                    api: copy,
                    correlation: 99,
                    stack: StackId::NONE,
                    py_stack: Default::default(),
                }));
            }
            let path = writer.path().to_owned();
            drop(program);
            std::mem::forget(writer);
            audit(&path)
        };
        let (killed, ended) = (run(true), run(false));
        let [site] = &killed.sites[..] else { panic!("{:?}", killed.sites) };
        assert_eq!(
            (site.waits, site.calls, site.killed_here),
            if emulated { (4, 8, false) } else { (5, 9, true) }
        );
        assert_eq!((site.rule, &site.fingerprint), ("scalar-read", &ended.sites[0].fingerprint));
        let unfinished = if emulated { "" } else { " and 1 of 1 step that did not end" };
        let why = format!(
            "2 of 2 ordinary steps{unfinished} wait for the device more often than allowed, up to 1 time in one step, at 1 place \
             (budget: 0)"
        );
        assert_eq!(killed.reasons[0], why);
    }
}

/// A killed run of five steps with one asynchronous copy each; only the first ones have their records.
fn killed_run(api: Api, bytes: u64, kinds: (u8, u8, u8), synchronise: bool, records: u64) -> Audit {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut program = Program::start(&writer);
    for step in 0..5u64 {
        program.push("step", Payload::U64(step));
        let correlation = program.call(api, 3, bytes, 0);
        if step < records {
            program.memcpy(correlation, kinds.0, kinds.1, kinds.2, bytes);
        }
        if synchronise {
            program.call(STREAM_SYNC, 3, 0, 0);
        }
        program.pop();
    }
    let path = writer.path().to_owned();
    drop(program);
    std::mem::forget(writer);
    audit(&path)
}

#[test]
fn copies_whose_records_a_kill_took_away_never_pass_and_their_place_is_what_the_others_make_it() {
    // Read into pinned memory: no wait, if it is known of all of them.
    let pinned = (2, 3, 2);
    assert_eq!(killed_run(D2H, 4, pinned, false, 5).verdict, Verdict::Pass);
    let unknown = killed_run(D2H, 4, pinned, false, 3);
    assert_eq!(unknown.verdict, Verdict::Inconclusive);
    let why = unknown.reasons.iter().find(|reason| reason.contains("left no record"));
    assert!(why.is_some_and(|why| why.starts_with("2 copies in ordinary steps")), "{:?}", unknown.reasons);
    // A small upload never waits here, whatever it comes from, and nor is there a doubt in warm-up steps.
    assert_eq!(killed_run(H2D, 4, (1, 1, 3), false, 0).verdict, Verdict::Pass);
    assert_eq!(killed_run(D2H, 4, pinned, false, 0).reasons.len(), unknown.reasons.len());

    let pageable = (1, 1, 3);
    for records in [5, 3, 1] {
        let audit = killed_run(H2D, 512, pageable, true, records);
        assert_eq!((audit.sites.len(), audit.sites[0].rule), (1, "pageable-upload"), "{records}");
    }
    assert_eq!(killed_run(H2D, 512, pageable, true, 0).sites[0].rule, "host-to-device-write");
}

#[test]
fn a_log_that_is_given_twice_is_counted_once_and_said() {
    let directory = tempfile::tempdir().unwrap();
    let first = log(directory.path(), legacy);
    log(directory.path(), legacy);
    let waits = |paths: &[&Path]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        let audit = audit_path(&paths, &AuditOptions::default()).unwrap();
        let twice = audit.problems.iter().filter(|problem| problem.text.contains("was given twice")).count();
        (audit.totals.waits, twice)
    };
    let (one, _) = waits(&[&first]);
    assert!(one > 0);
    assert_eq!(waits(&[&first, &first]), (one, 1));
    assert_eq!(waits(&[directory.path()]), (2 * one, 0));
    assert_eq!(waits(&[&first, directory.path()]), (2 * one, 1));
    assert_eq!(waits(&[directory.path(), directory.path()]), (2 * one, 2));
    let copy = directory.path().join("copy.salog");
    std::fs::copy(&first, &copy).unwrap();
    assert_eq!(waits(&[&first, &copy]), (one, 1));
}

#[test]
fn a_counter_that_can_not_be_is_no_number_to_print() {
    let directory = tempfile::tempdir().unwrap();
    for (count, said) in
        [(1, "1 event lost or cut"), (2, "2 events lost or cut"), (u64::MAX - 1, "how many is not known")]
    {
        let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
        let mut program = Program::start(&writer);
        legacy(&mut program);
        writer.count_loss(LossReason::CuptiDropped, count);
        writer.count_loss(LossReason::DiskFull, count);
        program.log.end(EndReason::Exit, 0);
        let audit = audit(writer.path());
        assert!(
            audit.dropped_records > 0 && audit.problems.iter().any(|p| p.text.contains(said)),
            "{:?}",
            audit.problems
        );
        assert!(!audit.problems.iter().any(|p| p.text.contains("18446744")), "{:?}", audit.problems);
    }
}

#[test]
fn losses_notes_and_missing_logs_never_pass() {
    let directory = tempfile::tempdir().unwrap();
    let clean = |program: &mut Program<'_>| {
        for step in 0..5u64 {
            program.push("step", Payload::U64(step));
            program.call(H2D, 1, 4, 0);
            program.pop();
        }
    };
    assert_eq!(audit(&log(directory.path(), clean)).verdict, Verdict::Pass);

    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut program = Program::start(&writer);
    clean(&mut program);
    writer.count_loss(LossReason::CuptiDropped, 7);
    program.log.end(EndReason::Exit, 0);
    let lossy = audit(writer.path());
    assert_eq!((lossy.verdict, lossy.dropped_records), (Verdict::Inconclusive, 7));

    let noted = audit(&log(directory.path(), |program| {
        clean(program);
        let text = b"CUDA calls are not recorded: another tool holds CUPTI's callbacks";
        program.log.write(&Record::Note { t_ns: 1, level: NoteLevel::Problem, text });
    }));
    assert_eq!(noted.verdict, Verdict::Inconclusive);
    assert!(noted.problems.iter().any(|p| p.kind == ProblemKind::CuptiHeld), "{:?}", noted.problems);

    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("run.json"), r#"{"program": ["true"]}"#).unwrap();
    let nothing = audit(empty.path());
    assert_eq!(nothing.verdict, Verdict::Inconclusive);
    let [_, why] = &nothing.reasons[..] else { panic!("{:?}", nothing.reasons) };
    assert!(why.contains("no process left an event log"), "{why}");

    let foreign = tempfile::tempdir().unwrap();
    let error = audit_path(&[foreign.path().to_owned()], &AuditOptions::default()).unwrap_err();
    assert!(error.to_string().contains("holds no event log"), "{error}");
    let error = audit_path(&[foreign.path().join("gone")], &AuditOptions::default()).unwrap_err();
    assert!(error.to_string().contains("nothing of that name"), "{error}");
}

#[test]
fn runs_without_steps_or_calls_are_inconclusive_and_say_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let no_cuda = audit(&log(directory.path(), |program| {
        program.push("epoch", Payload::None);
        program.pop();
    }));
    assert!(no_cuda.reasons[0].contains("no CUDA call was seen"), "{:?}", no_cuda.reasons);
    let no_step = audit(&log(directory.path(), |program| {
        program.push("epoch 1", Payload::None);
        program.read(1);
        program.pop();
    }));
    assert_eq!(no_step.verdict, Verdict::Inconclusive);
    assert!(no_step.reasons[0].contains("'epoch' (1)"), "{:?}", no_step.reasons);
    assert_eq!(no_step.totals.outside_steps_waits, 1);
    let warm = audit(&log(directory.path(), |program| {
        program.push("step", Payload::U64(0));
        program.read(1);
        program.pop();
    }));
    assert!(warm.reasons[0].contains("no ordinary step"), "{:?}", warm.reasons);
}

#[test]
fn many_logs_of_a_directory_are_one_job() {
    let directory = tempfile::tempdir().unwrap();
    for rank in [b"0", b"1"] {
        log(directory.path(), |program| {
            program.log.write(&Record::Meta { key: meta::RANK, value: rank });
            legacy(program);
        });
    }
    std::fs::write(directory.path().join("9-0.salog"), b"").unwrap();
    let audit = audit(directory.path());
    assert_eq!((audit.processes.len(), audit.step_counts.ordinary), (2, 12));
    assert_eq!(audit.totals.waits, 2 * 23);
    assert_eq!(audit.shares(&audit.sites[0]).iter().map(|share| share.waits).collect::<Vec<_>>(), [10, 10]);
    assert!(audit.problems.iter().any(|p| p.kind == ProblemKind::Truncated), "{:?}", audit.problems);
    assert_eq!(audit.verdict, Verdict::Fail);
}

#[test]
fn a_rank_that_left_no_log_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    let add = |rank: &[u8]| {
        log(directory.path(), |program| {
            program.log.write(&Record::Meta { key: meta::RANK, value: rank });
            program.log.write(&Record::Meta { key: meta::WORLD_SIZE, value: b"4" });
            // One step behind the warm-up; a single query waits for nothing.
            for step in 0..3 {
                program.push("step", Payload::U64(step));
                program.call(QUERY, 0, 0, 1);
                program.pop();
            }
        });
    };
    [b"0", b"3"].iter().for_each(|rank| add(*rank));
    let missed = audit(directory.path());
    assert_eq!(missed.verdict, Verdict::Inconclusive);
    assert!(missed.reasons[0].contains("of 4 ranks there is no trace of ranks 1-2"), "{:?}", missed.reasons);
    // A helper of a rank that is there is no rank of its own.
    [b"1", b"2", b"2"].iter().for_each(|rank| add(*rank));
    let whole = audit(directory.path());
    assert_eq!(whole.verdict, Verdict::Pass, "{:?}", whole.reasons);
    assert_eq!(whole.problems, []);
}

#[test]
fn reports_of_the_same_trace_are_the_same_bytes_and_show_no_time_of_an_emulated_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = log(directory.path(), legacy);
    let (first, second) = (audit(&path), audit(&path));
    let judged = |audit: &Audit| Judged::by_budget(audit.clone(), &AuditOptions::default());
    let report = json(&judged(&first));
    assert_eq!(report, json(&judged(&second)));
    let shown = text(&judged(&first), TextStyle::default());
    assert_eq!(shown, text(&judged(&second), TextStyle::default()));
    if std::env::var_os("SYNCAUDIT_SHOW").is_some() {
        println!("{shown}\n{report}");
    }
    assert!(shown.starts_with("verdict: FAIL (emulated device"), "{shown}");
    for unit in [" ns", " us", " ms"] {
        assert!(!shown.contains(unit), "{unit} in {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "no colour unless asked for");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["schema"], "syncaudit.report/1");
    assert_eq!(report["totals"]["blocked_ns"], serde_json::Value::Null);
    assert_eq!(report["sites"][0]["apis"][1], "cuStreamSynchronize");
    assert_eq!(report["steps"]["ordinary"], 6);
}

#[test]
fn names_of_the_program_cannot_write_to_the_terminal_and_lines_fit() {
    let directory = tempfile::tempdir().unwrap();
    let path = log(directory.path(), |program| {
        for step in 0..4u64 {
            program.push("step", Payload::U64(step));
            program.push("evil \u{1b}[2J\u{202e}\r\nverdict: PASS \u{7}@ x\u{1b}.rs:1", Payload::None);
            program.read(1);
            program.pop();
            program.pop();
        }
    });
    let audit = audit(&path);
    for width in [40, 60, 100, 200] {
        let shown = text(&Judged::from(audit.clone()), TextStyle { color: false, width });
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert_eq!(shown.lines().filter(|line| line.starts_with("verdict:")).count(), 1);
        // A place stays on one line, to be clicked on, and a word that is longer than the line is kept whole. Nothing else
        // may stick out.
        let places = |line: &&str| !line.contains("--> ");
        for line in shown.lines().filter(places).filter(|line| line.chars().count() > width) {
            let words = line.trim_start_matches([' ', '=', '|', '-', '>']).split_whitespace().count();
            assert!(words <= 6, "{width}: {line}");
        }
    }
}
