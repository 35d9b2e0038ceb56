//! Databases of Nsight Systems, made here for each generation of its schema, whole and broken.
//!
//! The scenario is always the same small training run: steps of one kernel and one read, so that every test can say what the
//! audit must find.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rusqlite::{Connection, types::Value};
use syncaudit::audit::{Audit, StepKind, Verdict, WaitKind};
use syncaudit::model::{CallEffect, CopyDirection, MemoryKind, ProblemKind, SpanKind, Trace};
use syncaudit::{AuditOptions, audit_path, load_path};
use tempfile::TempDir;

/// Generations of the schema that differ in what matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schema {
    /// 2022: metadata in EXPORT_META_DATA, no ENUM tables, calls with backtraces are there twice.
    V2,
    /// 2023: META_DATA_EXPORT, ENUM tables, texts of ranges in the table of strings.
    V3_6,
    /// 2026: green contexts, `deprecatedSyncType`, overheads in a table of their own.
    V3_25,
}

const ALL: [Schema; 3] = [Schema::V2, Schema::V3_6, Schema::V3_25];

const RUNTIME: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
const MEMCPY: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const KERNEL: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const SYNC: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
const NVTX: &str = "NVTX_EVENTS";
/// `cudaErrorNotReady`
const NOT_READY: i64 = 600;

/// A database under construction. Values for columns that its generation doesn't have are left out.
struct Maker {
    connection: Connection,
    schema: Schema,
    strings: Vec<String>,
}

impl Maker {
    fn new(schema: Schema) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        let mut tables: Vec<(&str, &str)> = vec![
            ("StringIds", "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL"),
            ("ThreadNames", "nameId INTEGER, priority INTEGER, globalTid INTEGER"),
            ("PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT"),
            ("TARGET_INFO_SYSTEM_ENV", "name TEXT, value TEXT"),
            (RUNTIME, "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId"),
            ("CUDA_CALLCHAINS", "id, symbol, module, unresolved, originalIP, stackDepth"),
        ];
        match schema {
            Schema::V2 => tables.extend([
                ("EXPORT_META_DATA", "name TEXT, value TEXT"),
                ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs, utcTime, localTime"),
                (
                    MEMCPY,
                    "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind",
                ),
                (
                    KERNEL,
                    "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName",
                ),
                (SYNC, "start, end, deviceId, contextId, streamId, correlationId, globalPid, syncType, eventId"),
                (
                    NVTX,
                    "start, end, eventType, rangeId, text TEXT, globalTid, endGlobalTid, textId, domainId, int64Value",
                ),
                ("PROFILER_OVERHEAD", "start, end, globalTid, nameId, returnValue"),
            ]),
            Schema::V3_6 | Schema::V3_25 => tables.extend([
                ("META_DATA_EXPORT", "name TEXT, value TEXT"),
                ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs, utcTime, localTime, systemClockNs"),
                (
                    MEMCPY,
                    "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, bytes, copyKind, \
                     deprecatedSrcId, srcKind, dstKind, graphNodeId, copyCount",
                ),
                (
                    KERNEL,
                    "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, demangledName, \
                     shortName, mangledName, graphNodeId",
                ),
                (
                    SYNC,
                    "start, end, deviceId, contextId, streamId, correlationId, globalPid, deprecatedSyncType, syncType, \
                     eventId, eventSyncId",
                ),
                (
                    NVTX,
                    "start, end, eventType, rangeId, text TEXT, globalTid, endGlobalTid, textId, domainId, uint64Value, \
                     int64Value, int32Value, uint32Value",
                ),
                (
                    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                    "deviceId, contextId, streamId, correlationId, globalPid, eventId",
                ),
                ("CUPTI_ACTIVITY_KIND_OVERHEAD", "start, end, globalTid, correlationId, nameId, overheadType"),
                ("DIAGNOSTIC_EVENT", "timestamp, severity, text TEXT, globalPid"),
                ("ENUM_CUDA_MEM_KIND", "id INTEGER PRIMARY KEY, name TEXT, label TEXT"),
                ("ENUM_CUPTI_OVERHEAD_TYPE", "id INTEGER PRIMARY KEY, name TEXT, label TEXT"),
                ("ENUM_NSYS_EVENT_CLASS", "id INTEGER PRIMARY KEY, name TEXT, label TEXT"),
            ]),
        }
        for (table, columns) in tables {
            connection.execute_batch(&format!("CREATE TABLE {table} ({columns})")).unwrap();
        }
        let mut maker = Self { connection, schema, strings: Vec::new() };
        let (metadata, version) = match schema {
            Schema::V2 => ("EXPORT_META_DATA", "2.9.1"),
            Schema::V3_6 => ("META_DATA_EXPORT", "3.6.0"),
            Schema::V3_25 => ("META_DATA_EXPORT", "3.25.0"),
        };
        maker.insert(metadata, &[("name", "EXPORT_SCHEMA_VERSION".into()), ("value", version.into())]);
        for (number, name) in [(0, "PAGEABLE"), (1, "PINNED"), (2, "DEVICE"), (4, "MANAGED")] {
            let name = format!("CUDA_MEMOPR_MEMORY_KIND_{name}");
            maker.insert("ENUM_CUDA_MEM_KIND", &[("id", number.into()), ("name", name.into())]);
        }
        let class = "TRACE_PROCESS_EVENT_CUDABACKTRACE";
        maker.insert("ENUM_NSYS_EVENT_CLASS", &[("id", 67.into()), ("name", class.to_owned().into())]);
        maker
    }

    fn columns(&self, table: &str) -> Vec<String> {
        let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
        statement.query_map([table], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// Adds a row with those of the values whose columns there are; none if there is no such table.
    fn insert(&mut self, table: &str, values: &[(&str, Val)]) {
        let columns = self.columns(table);
        let values: Vec<&(&str, Val)> =
            values.iter().filter(|(name, _)| columns.iter().any(|column| column == name)).collect();
        if values.is_empty() {
            return;
        }
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        let marks = vec!["?"; names.len()].join(", ");
        let query = format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(", "));
        let values = rusqlite::params_from_iter(values.iter().map(|(_, value)| value.0.clone()));
        self.connection.execute(&query, values).unwrap();
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(at) = self.strings.iter().position(|known| known == text) {
            return i64::try_from(at).unwrap();
        }
        let id = i64::try_from(self.strings.len()).unwrap();
        self.strings.push(text.to_owned());
        self.insert("StringIds", &[("id", id.into()), ("value", text.into())]);
        id
    }

    fn call(&mut self, who: Who, name: &str, start: i64, end: i64, correlation: i64) -> i64 {
        let name = self.string(name);
        self.insert(
            RUNTIME,
            &[
                ("start", start.into()),
                ("end", end.into()),
                ("eventClass", 0.into()),
                ("globalTid", who.tid().into()),
                ("correlationId", correlation.into()),
                ("nameId", name.into()),
                ("returnValue", 0.into()),
            ],
        );
        self.connection.last_insert_rowid()
    }

    fn range(&mut self, who: Who, text: &str, start: i64, end: Option<i64>, payload: Option<i64>) {
        let text_id = (self.schema != Schema::V2).then(|| self.string(text));
        self.insert(
            NVTX,
            &[
                ("start", start.into()),
                ("end", end.into()),
                ("eventType", 59.into()),
                ("globalTid", who.tid().into()),
                ("text", if text_id.is_some() { Val(Value::Null) } else { text.into() }),
                ("textId", text_id.into()),
                ("domainId", 0.into()),
                ("int64Value", payload.into()),
            ],
        );
    }

    fn copy(&mut self, who: Who, kinds: (i64, i64, i64), start: i64, end: i64, correlation: i64) {
        self.insert(
            MEMCPY,
            &[
                ("start", start.into()),
                ("end", end.into()),
                ("deviceId", who.device.into()),
                ("contextId", (who.device + 1).into()),
                ("streamId", (7 + 8 * who.device).into()),
                ("correlationId", correlation.into()),
                ("globalPid", who.pid().into()),
                ("bytes", 4.into()),
                ("copyKind", kinds.0.into()),
                ("srcKind", kinds.1.into()),
                ("dstKind", kinds.2.into()),
            ],
        );
    }

    fn kernel(&mut self, who: Who, start: i64, end: i64, correlation: i64) {
        let name = self.string("gemm");
        self.insert(
            KERNEL,
            &[
                ("start", start.into()),
                ("end", end.into()),
                ("deviceId", who.device.into()),
                ("contextId", (who.device + 1).into()),
                ("streamId", (7 + 8 * who.device).into()),
                ("correlationId", correlation.into()),
                ("globalPid", who.pid().into()),
                ("demangledName", name.into()),
                ("shortName", name.into()),
            ],
        );
    }

    /// A synchronise as the driver records it: the device is 0 whatever it was.
    fn sync(&mut self, who: Who, kind: i64, start: i64, end: i64, correlation: i64, event: i64) {
        let on_stream = if kind == 1 { i64::from(u32::MAX) } else { 7 + 8 * who.device };
        self.insert(
            SYNC,
            &[
                ("start", start.into()),
                ("end", end.into()),
                ("deviceId", 0.into()),
                ("contextId", (who.device + 1).into()),
                ("streamId", on_stream.into()),
                ("correlationId", correlation.into()),
                ("globalPid", who.pid().into()),
                ("syncType", kind.into()),
                ("eventId", event.into()),
            ],
        );
    }

    /// `steps` steps of 1 ms: a kernel, and a read of its result into pageable memory.
    fn training(&mut self, who: Who, steps: i64) {
        for step in 0..steps {
            let (at, id) = (1_000_000 * (step + 1), 10 * step + 1);
            self.range(who, "step", at, Some(at + 900_000), Some(step));
            self.range(
                who,
                &format!("aten::item, op_id = {}", 70 + step),
                at + 90_000,
                Some(at + 800_000),
                None,
            );
            self.call(who, "cudaLaunchKernel_v7000", at + 1_000, at + 6_000, id);
            self.kernel(who, at + 10_000, at + 700_000, id);
            self.call(who, "cudaMemcpyAsync_v3020", at + 100_000, at + 104_000, id + 1);
            self.copy(who, (2, 2, 0), at + 700_000, at + 702_000, id + 1);
            self.call(who, "cudaStreamSynchronize_v3020", at + 105_000, at + 705_000, id + 2);
            self.sync(who, 3, at + 106_000, at + 704_000, id + 2, i64::from(u32::MAX));
        }
    }

    /// The database as a file in a folder of its own.
    fn save(&self) -> Saved {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("run.sqlite");
        self.connection.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
        Saved { path, _folder: folder }
    }
}

/// A value for a column.
#[derive(Clone, Debug)]
struct Val(Value);

impl From<i64> for Val {
    fn from(number: i64) -> Self {
        Self(number.into())
    }
}
impl From<&str> for Val {
    fn from(text: &str) -> Self {
        Self(text.to_owned().into())
    }
}
impl From<String> for Val {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}
impl From<Option<i64>> for Val {
    fn from(number: Option<i64>) -> Self {
        Self(number.map_or(Value::Null, Value::from))
    }
}

#[derive(Clone, Copy)]
struct Who {
    process: i64,
    thread: i64,
    device: i64,
}

impl Who {
    const fn new(process: i64, device: i64) -> Self {
        Self { process, thread: process, device }
    }

    fn pid(self) -> i64 {
        (1 << 48) | self.process << 24
    }

    fn tid(self) -> i64 {
        self.pid() | self.thread
    }
}

const MAIN: Who = Who::new(100, 1);

struct Saved {
    path: PathBuf,
    _folder: TempDir,
}

impl Saved {
    fn load(&self) -> Trace {
        load_path(std::slice::from_ref(&self.path)).unwrap()
    }

    fn audit(&self) -> Audit {
        audit_of(&self.path)
    }
}

fn audit_of(path: &Path) -> Audit {
    let audit = audit_path(&[path.to_owned()], &AuditOptions::default()).unwrap();
    audit.reconcile().unwrap();
    audit
}

fn error_of(path: &Path) -> String {
    audit_path(&[path.to_owned()], &AuditOptions::default()).unwrap_err().to_string()
}

fn training(schema: Schema) -> Maker {
    let mut maker = Maker::new(schema);
    maker.training(MAIN, 6);
    maker
}

fn has_problem(audit: &Audit, kind: ProblemKind, word: &str) -> bool {
    audit.problems.iter().any(|problem| problem.kind == kind && problem.text.contains(word))
}

#[test]
fn every_generation_of_the_schema_gives_the_same_audit() {
    for schema in ALL {
        let saved = training(schema).save();
        let audit = saved.audit();
        assert_eq!(audit.problems, [], "{schema:?}");
        assert_eq!(audit.verdict, Verdict::Fail, "{schema:?}");
        assert_eq!(
            (audit.totals.waits, audit.totals.calls, audit.totals.recorded_calls),
            (6, 12, 18),
            "{schema:?}"
        );
        assert_eq!(audit.sites.len(), 1, "{schema:?}");
        let site = &audit.sites[0];
        assert_eq!(site.kind, WaitKind::DeviceToHostRead);
        assert_eq!(site.op.as_deref(), Some("aten::item"));
        assert_eq!(site.range, ["step"]);
        assert_eq!(site.apis, ["cudaMemcpyAsync", "cudaStreamSynchronize"]);
        assert_eq!((site.bytes, site.blocked_ns), (24, Some(6 * 604_000)));
        let kinds: Vec<(StepKind, u64)> = audit.steps.iter().map(|step| (step.kind, step.waits)).collect();
        use StepKind::{Ordinary, Warmup};
        assert_eq!(
            kinds,
            [(Warmup, 1), (Warmup, 1), (Ordinary, 1), (Ordinary, 1), (Ordinary, 1), (Ordinary, 1)]
        );
        assert_eq!(audit.steps[3].number, Some(3));
        let trace = saved.load();
        let call = &trace.processes[0].threads[0].calls[1];
        assert_eq!(
            (call.direction, call.from, call.to),
            (CopyDirection::DeviceToHost, MemoryKind::Device, MemoryKind::Pageable)
        );
        assert_eq!(trace.processes[0].pid, 100);
    }
}

#[test]
fn no_missing_column_or_table_makes_waits_disappear_in_silence() {
    for schema in ALL {
        let tables = [RUNTIME, MEMCPY, KERNEL, SYNC, NVTX, "StringIds"];
        for table in tables {
            let columns = training(schema).columns(table);
            let drops = columns.iter().map(|column| format!("ALTER TABLE {table} DROP COLUMN \"{column}\""));
            for statement in drops.chain([format!("DROP TABLE {table}")]) {
                let maker = training(schema);
                if maker.connection.execute_batch(&statement).is_err() {
                    // SQLite itself refuses to drop a primary key.
                    continue;
                }
                let saved = maker.save();
                match audit_path(std::slice::from_ref(&saved.path), &AuditOptions::default()) {
                    Ok(audit) => assert!(
                        audit.totals.waits >= 6
                            || audit.problems.iter().any(|problem| problem.kind.hides_waits()),
                        "{schema:?} {statement}: {:?}",
                        audit.totals
                    ),
                    Err(error) => assert!(error.text.len() > 20, "{error}"),
                }
            }
        }
    }
}

#[test]
fn a_call_with_a_backtrace_is_there_twice_and_counts_once() {
    for schema in ALL {
        let mut maker = Maker::new(schema);
        let frame = |maker: &mut Maker,
                     chain: i64,
                     depth: i64,
                     symbol: &str,
                     module: &str,
                     unresolved: Option<i64>| {
            let (symbol, module) = (maker.string(symbol), maker.string(module));
            maker.insert(
                "CUDA_CALLCHAINS",
                &[
                    ("id", chain.into()),
                    ("symbol", symbol.into()),
                    ("module", module.into()),
                    ("unresolved", unresolved.into()),
                    ("originalIP", (4096 * chain + depth).into()),
                    ("stackDepth", depth.into()),
                ],
            );
        };
        // The oldest exports count references from 0 and ids from 1.
        let first = i64::from(schema == Schema::V2);
        for chain in [1, 2] {
            frame(&mut maker, chain + first, 2, "read_loss(float*)", "/home/me/train", None);
            frame(&mut maker, chain + first, 1, "cudaMemcpy", "/cuda/lib64/libcudart.so.12", None);
            frame(&mut maker, chain + first, 3, "main", "/home/me/train", None);
            frame(&mut maker, chain + first, 0, "0x7fd990700588", "/usr/lib/libcuda.so.1", Some(1));
        }
        let backtrace = |maker: &mut Maker, start: i64, end: i64, correlation: i64, chain: i64| {
            let row = maker.call(MAIN, "cudaMemcpy", start, end, correlation);
            let set =
                format!("UPDATE {RUNTIME} SET eventClass = 67, callchainId = {chain} WHERE rowid = {row}");
            maker.connection.execute_batch(&set).unwrap();
        };
        backtrace(&mut maker, 1_000, 90_000, 5, 1);
        maker.call(MAIN, "cudaMemcpy_v3020", 1_100, 89_000, 5);
        maker.copy(MAIN, (2, 2, 0), 80_000, 88_000, 5);
        // One whose call itself was not recorded.
        backtrace(&mut maker, 200_000, 290_000, 6, 2);
        maker.copy(MAIN, (2, 2, 0), 280_000, 288_000, 6);
        let saved = maker.save();
        let trace = saved.load();
        let calls = &trace.processes[0].threads[0].calls;
        let times: Vec<(u64, u64)> = calls.iter().map(|call| (call.start_ns, call.end_ns)).collect();
        assert_eq!(times, [(1_100, 89_000), (200_000, 290_000)], "{schema:?}");
        let audit = saved.audit();
        assert_eq!((audit.totals.waits, audit.totals.calls), (2, 2));
        for site in &audit.sites {
            let functions: Vec<&str> = site.native.iter().map(|frame| frame.function.as_str()).collect();
            assert_eq!(
                functions,
                ["read_loss(float*)", "main"],
                "libraries of CUDA are no place to point at"
            );
            assert_eq!(site.place().map(|frame| frame.module.as_str()), Some("train"));
        }
        assert!(audit.problems.is_empty(), "{:?}", audit.problems);
    }
}

#[test]
fn processes_on_several_gpus_keep_their_calls_streams_and_names_apart() {
    for schema in ALL {
        let mut maker = Maker::new(schema);
        let (first, second) = (Who::new(200, 0), Who::new(100, 1));
        // The same correlation ids in both.
        maker.training(first, 4);
        maker.training(second, 4);
        for (who, name) in [(first, "python3"), (second, "/usr/bin/python3"), (Who::new(1, 0), "init")] {
            maker.insert("PROCESSES", &[("globalPid", who.pid().into()), ("name", name.into())]);
        }
        let worker = Who { thread: 777, ..second };
        maker.call(worker, "cudaDeviceSynchronize_v3020", 2_300_000, 2_400_000, 900);
        for (priority, name) in [(20, "python3"), (10, "autograd")] {
            let name = maker.string(name);
            let values =
                [("nameId", name.into()), ("priority", priority.into()), ("globalTid", worker.tid().into())];
            maker.insert("ThreadNames", &values);
        }
        let saved = maker.save();
        let trace = saved.load();
        let pids: Vec<u64> = trace.processes.iter().map(|process| process.pid).collect();
        assert_eq!(pids, [100, 200]);
        assert!(trace.processes.iter().all(|process| trace.str(process.name) == "python3"));
        let devices: Vec<u32> = trace.processes.iter().map(|process| process.device_ops[0].device).collect();
        assert_eq!(devices, [1, 0]);
        assert_eq!(trace.str(trace.processes[0].threads[1].name), "autograd");
        let audit = saved.audit();
        // The synchronise names device 0, but it is on the stream of the copy: one wait of two calls in both processes.
        assert_eq!((audit.totals.waits, audit.totals.calls), (9, 17), "{schema:?}");
        assert_eq!(audit.processes.iter().map(|row| row.waits).collect::<Vec<_>>(), [5, 4]);
    }
}

#[test]
fn ranges_of_every_kind_are_read() {
    let mut maker = Maker::new(Schema::V3_25);
    let nvtx = |maker: &mut Maker, values: &[(&str, Val)]| {
        let mut all: Vec<(&str, Val)> = vec![("globalTid", MAIN.tid().into())];
        all.extend(values.iter().cloned());
        maker.insert(NVTX, &all);
    };
    let named = |kind: i64, text: &str, start: i64, end: Option<i64>| {
        vec![("eventType", kind.into()), ("text", text.into()), ("start", start.into()), ("end", end.into())]
    };
    nvtx(&mut maker, &[named(75, "NCCL", 0, None), vec![("domainId", 3.into())]].concat());
    nvtx(&mut maker, &[named(59, "ncclAllReduce", 10, Some(90)), vec![("domainId", 3.into())]].concat());
    nvtx(&mut maker, &[named(59, "elsewhere", 11, Some(80)), vec![("domainId", 4.into())]].concat());
    nvtx(&mut maker, &[named(60, "step", 100, Some(900)), vec![("uint64Value", 12.into())]].concat());
    nvtx(&mut maker, &named(34, "checkpoint", 50, None));
    nvtx(&mut maker, &named(39, "MPI Rank 3", 5, None));
    nvtx(&mut maker, &named(59, "never popped", 1_000, None));
    nvtx(&mut maker, &named(33, "a category", 1, None));
    nvtx(&mut maker, &named(200, "of another time", 1, None));
    maker.range(MAIN, "AddmmBackward0, seq = 46174, op_id = 9", 20, Some(30), None);
    let trace = maker.save().load();
    let process = &trace.processes[0];
    let thread = &process.threads[0];
    let spans: Vec<(&str, &str, SpanKind, Option<i64>)> = thread
        .spans
        .iter()
        .map(|span| (trace.str(span.name), trace.str(span.domain), span.kind, span.payload()))
        .collect();
    assert_eq!(
        spans,
        [
            ("ncclAllReduce", "NCCL", SpanKind::Range, None),
            ("elsewhere", "domain 4", SpanKind::Range, None),
            ("AddmmBackward0", "", SpanKind::Op, Some(46_174)),
            ("never popped", "", SpanKind::Range, None),
        ]
    );
    assert!(thread.spans[3].is_open());
    assert_eq!((trace.str(thread.marks[0].name), thread.marks[0].time_ns), ("checkpoint", 50));
    assert_eq!(trace.str(thread.name), "MPI Rank 3");
    assert_eq!(process.rank, Some(3));
    let free = &process.free_ranges[0];
    assert_eq!(
        (trace.str(free.name), free.start_ns, free.end_ns, free.payload),
        ("step", 100, 900, Some(12))
    );
    assert!(
        trace.problems.iter().any(|problem| problem.kind == ProblemKind::CuptiMissing),
        "no calls is no pass"
    );
    assert!(trace.problems.iter().any(|problem| problem.text.contains("1 NVTX event of unknown kinds")));
}

#[test]
fn a_query_that_says_not_ready_is_no_failed_call_and_a_loop_of_them_is_a_wait() {
    let mut maker = Maker::new(Schema::V3_25);
    for query in 0..12 {
        let at = 1_000 + query * 100;
        let row = maker.call(MAIN, "cudaEventQuery_v3020", at, at + 50, query + 1);
        maker.sync(MAIN, 1, at + 1, at + 49, query + 1, 42);
        let set = format!("UPDATE {RUNTIME} SET returnValue = {NOT_READY} WHERE rowid = {row}");
        maker.connection.execute_batch(&set).unwrap();
    }
    let row = maker.call(MAIN, "cudaStreamSynchronize_v3020", 9_000, 9_900, 99);
    maker
        .connection
        .execute_batch(&format!("UPDATE {RUNTIME} SET returnValue = 700 WHERE rowid = {row}"))
        .unwrap();
    let saved = maker.save();
    let trace = saved.load();
    let calls = &trace.processes[0].threads[0].calls;
    assert!(
        calls[..12].iter().all(|call| (call.not_ready, call.object, call.effect) == (1, 42, CallEffect::Ok))
    );
    assert_eq!(calls[12].effect, CallEffect::Failed);
    let audit = saved.audit();
    let kinds: Vec<(WaitKind, u64)> = audit.sites.iter().map(|site| (site.kind, site.calls)).collect();
    assert_eq!(kinds, [(WaitKind::Polling, 12)]);
}

#[test]
fn a_full_launch_queue_and_what_nsys_says_itself_are_taken_over() {
    let mut maker = training(Schema::V3_25);
    let full = "OVERHEAD_COMMAND_BUFFER_FULL";
    maker.insert("ENUM_CUPTI_OVERHEAD_TYPE", &[("id", 8.into()), ("name", full.into())]);
    maker.insert(
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        &[
            ("start", 3_001_000.into()),
            ("end", 3_005_000.into()),
            ("globalTid", MAIN.tid().into()),
            ("correlationId", 21.into()),
            ("overheadType", 8.into()),
        ],
    );
    let other = Who::new(4_000, 0);
    for (severity, text, who) in [
        (1, "Number of CUDA events collected: 18.", MAIN),
        (2, "Not all CUDA events might have been collected.", MAIN),
        (2, "No CUDA events collected. Does the process use CUDA?", other),
        (2, "The disk is slow.", MAIN),
    ] {
        let values = [("severity", severity.into()), ("text", text.into()), ("globalPid", who.pid().into())];
        maker.insert("DIAGNOSTIC_EVENT", &values);
    }
    let audit = maker.save().audit();
    assert!(audit.sites.iter().any(|site| site.kind == WaitKind::LaunchQueueFull && site.waits == 1));
    let said: Vec<&str> = audit.problems.iter().map(|problem| problem.text.as_str()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        has_problem(&audit, ProblemKind::Note, "might have been collected. (all device work"),
        "{said:?}"
    );
    assert!(has_problem(&audit, ProblemKind::Note, "The disk is slow."), "{said:?}");

    // With device work that has no call, the same words are believed.
    maker.connection.execute_batch(&format!("DELETE FROM {RUNTIME} WHERE correlationId = 22")).unwrap();
    let audit = maker.save().audit();
    assert!(has_problem(&audit, ProblemKind::LostRecords, "Not all CUDA events"), "{:?}", audit.problems);
    assert!(has_problem(&audit, ProblemKind::LostRecords, "1 call with device work"), "{:?}", audit.problems);
    assert!(audit.problems.iter().any(|problem| problem.kind.hides_waits()));
}

#[test]
fn what_is_no_export_of_nsys_is_named_with_the_command_to_run() {
    let folder = TempDir::new().unwrap();
    let database = |name: &str, script: &str| {
        let path = folder.path().join(name);
        Connection::open(&path).unwrap().execute_batch(script).unwrap();
        path
    };
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let cases = [
        (
            file("my run.nsys-rep", b"\x12\x34report"),
            "nsys export --type sqlite --output my run.sqlite my run.nsys-rep",
        ),
        (file("old.qdrep", b"QDREP"), "nsys export --type sqlite --output old.sqlite old.qdrep"),
        (file("raw.qdstrm", b"....."), "QdstrmImporter"),
        (file("empty.sqlite", b""), "the file is empty"),
        (file("zeros.sqlite", &[0; 4096]), "nothing but blanks or NUL"),
        (file("head.sqlite", b"SQLite format 3\0"), "ends after 16 of the 100 bytes"),
        (database("dlprof_dldb.sqlite", "CREATE TABLE view_op_nodes (a)"), "DLProf"),
        (database("a.db", "CREATE TABLE rocpd_api (a)"), "rocprof"),
        (database("b.db", "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_, cbid, start, end)"), "nvprof"),
        (
            database("c.db", "CREATE TABLE moz_places (a); CREATE TABLE moz_hosts (a)"),
            "its tables are moz_hosts, moz_places",
        ),
        (database("d.db", "CREATE TABLE x (a); DROP TABLE x"), "it has no tables at all"),
        (database("e.db", "CREATE TABLE META_DATA_EXPORT (name, value)"), "nsys profile -t cuda,nvtx"),
        (
            database(
                "f.db",
                "CREATE TABLE NVTX_EVENTS (start, end); CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start)",
            ),
            "holds no call",
        ),
    ];
    for (path, words) in cases {
        let error = error_of(&path);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn an_export_without_calls_is_inconclusive_and_says_how_to_record() {
    let mut maker = Maker::new(Schema::V3_25);
    maker.range(MAIN, "step", 10, Some(20), None);
    maker
        .connection
        .execute_batch(&format!("DROP TABLE {RUNTIME}; DROP TABLE {KERNEL}; DROP TABLE {MEMCPY}"))
        .unwrap();
    let audit = maker.save().audit();
    assert_eq!(audit.verdict, Verdict::Inconclusive);
    assert!(
        has_problem(&audit, ProblemKind::CuptiMissing, "nsys profile -t cuda,nvtx"),
        "{:?}",
        audit.problems
    );
}

#[test]
fn impossible_values_are_counted_and_cost_no_other_row() {
    let mut maker = training(Schema::V3_25);
    let big = i64::MAX;
    for statement in [
        // A call without a start, one without a thread, one without an end, one that ends before it starts.
        "(NULL, 10, 0, TID, 900, 0, 0, NULL), (10, 20, 0, NULL, 901, 0, 0, NULL)",
        "(5000, NULL, 0, TID, 902, 0, 0, NULL), (900, 100, 0, TID, 903, 0, 0, NULL)",
        // Before time zero; numbers as text and with a fraction; a blob; ids beyond everything.
        "(-50, -40, 0, TID, 904, 0, 0, NULL), ('7000', 7100.0, 0, TID, '905', 0, 0, NULL)",
        "(x'00ff', 20, 0, TID, 906, 0, 0, NULL), (BIG, BIG, BIG, TID, BIG, BIG, BIG, BIG)",
    ] {
        let values = statement.replace("TID", &MAIN.tid().to_string()).replace("BIG", &big.to_string());
        maker.connection.execute_batch(&format!("INSERT INTO {RUNTIME} VALUES {values}")).unwrap();
    }
    maker.copy(MAIN, (big, big, -big), 9_000, 8_000, 77_000);
    maker.insert(
        MEMCPY,
        &[("start", 1.into()), ("end", 2.into()), ("bytes", big.into()), ("deviceId", (-1).into())],
    );
    let audit = maker.save().audit();
    assert_eq!((audit.totals.waits, audit.totals.recorded_calls), (6, 22));
    for (kind, words) in [
        (ProblemKind::LostRecords, "3 rows without a start or a thread"),
        (ProblemKind::LostRecords, "1 row with an end before time zero"),
        (ProblemKind::LostRecords, "1 call of functions whose names are not in the database"),
        (ProblemKind::NoDuration, "1 row without an end"),
        (ProblemKind::NoDuration, "1 piece of device work with an end before"),
        (ProblemKind::NoDuration, "1 event with an end before the beginning"),
        (ProblemKind::Corrupt, "1 value of a type"),
    ] {
        assert!(has_problem(&audit, kind, words), "{words}: {:#?}", audit.problems);
    }
}

/// Every file below a folder with its bytes and time of change.
fn contents(folder: &Path) -> BTreeSet<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
            (path.clone(), std::fs::read(&path).unwrap(), changed)
        })
        .collect()
}

#[test]
fn nothing_is_changed_or_made_beside_the_database() {
    let saved = training(Schema::V3_6).save();
    let folder = saved.path.parent().unwrap();
    // A database in write-ahead mode would have SQLite make files beside it.
    let mut bytes = std::fs::read(&saved.path).unwrap();
    (bytes[18], bytes[19]) = (2, 2);
    std::fs::write(&saved.path, &bytes).unwrap();
    let make_read_only = |read_only| {
        let mut permissions = std::fs::metadata(folder).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, if read_only { 0o555 } else { 0o755 });
        std::fs::set_permissions(folder, permissions).unwrap();
    };
    make_read_only(true);
    let before = contents(folder);
    assert_eq!(saved.audit().problems, []);
    assert_eq!(contents(folder), before);
    make_read_only(false);
    for beside in ["run.sqlite-wal", "run.sqlite-journal"] {
        std::fs::write(folder.join(beside), b"changes that were not merged").unwrap();
        let before = contents(folder);
        let audit = saved.audit();
        assert_eq!(contents(folder), before);
        assert_eq!(audit.totals.waits, 6);
        assert!(has_problem(&audit, ProblemKind::Truncated, beside), "{:?}", audit.problems);
        std::fs::remove_file(folder.join(beside)).unwrap();
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn compressed_databases_and_odd_names_are_read() {
    let saved = training(Schema::V3_25).save();
    let folder = saved.path.parent().unwrap();
    let bytes = std::fs::read(&saved.path).unwrap();
    for (name, bytes) in
        [("run.sqlite.gz", gzip(&bytes)), ("100% sure? #1 ü.db", bytes.clone()), ("x.json", bytes)]
    {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        let audit = audit_of(&path);
        assert_eq!((audit.totals.waits, audit.problems.len()), (6, 0), "{name}");
    }
}

#[test]
fn a_file_that_was_cut_off_gives_what_is_left_and_says_so() {
    let mut maker = Maker::new(Schema::V3_25);
    maker.training(MAIN, 400);
    let whole = std::fs::read(&maker.save().path).unwrap();
    let folder = TempDir::new().unwrap();
    let mut partly = 0;
    for percent in (1..100).step_by(7) {
        let cut = &whole[..whole.len() * percent / 100];
        let packed = gzip(&whole);
        for (name, bytes) in
            [("cut.sqlite", cut.to_vec()), ("cut.sqlite.gz", packed[..packed.len() * percent / 100].to_vec())]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, &bytes).unwrap();
            match audit_path(std::slice::from_ref(&path), &AuditOptions::default()) {
                Ok(audit) => {
                    assert!(
                        has_problem(&audit, ProblemKind::Truncated, "bytes that it says it has"),
                        "{percent}"
                    );
                    partly += usize::from(audit.totals.recorded_calls > 0);
                }
                Err(error) => {
                    assert!(error.text.contains("Export") || error.text.contains("unpacked"), "{error}")
                }
            }
        }
    }
    assert!(partly > 10, "only {partly} cut files gave anything");
}

#[test]
fn a_damaged_page_costs_its_own_rows_and_they_are_counted() {
    let mut maker = Maker::new(Schema::V3_25);
    maker.training(MAIN, 400);
    let saved = maker.save();
    let mut bytes = std::fs::read(&saved.path).unwrap();
    // A page of the table of calls: find it by the tree's first level.
    let connection = Connection::open(&saved.path).unwrap();
    let root: i64 = connection
        .query_row("SELECT rootpage FROM sqlite_master WHERE name = ?1", [RUNTIME], |row| row.get(0))
        .unwrap();
    drop(connection);
    let at = (usize::try_from(root).unwrap() - 1) * 4096;
    assert_eq!(bytes[at], 5, "the root is an inner page");
    let pointer = at + usize::from(u16::from_be_bytes([bytes[at + 12 + 4], bytes[at + 12 + 5]]));
    let leaf = u32::from_be_bytes(bytes[pointer..pointer + 4].try_into().unwrap()) as usize;
    bytes[(leaf - 1) * 4096..leaf * 4096].fill(0xee);
    std::fs::write(&saved.path, &bytes).unwrap();
    let audit = saved.audit();
    let problem =
        audit.problems.iter().find(|problem| problem.kind == ProblemKind::Corrupt).expect("it is said");
    assert!(problem.text.contains(RUNTIME), "{problem:?}");
    assert_eq!(audit.totals.recorded_calls + problem.count, 1200, "{problem:?}");
    assert!(problem.count < 300, "{problem:?}");
}

/// How many changed databases to try.
fn mutations() -> u32 {
    std::env::var("SYNCAUDIT_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(600)
}

/// Reads a database with some of its bytes changed: a clear error, or a trace that has all rows or says that it has not.
fn survives(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("mutated.sqlite");
    std::fs::write(&path, bytes).unwrap();
    match audit_path(std::slice::from_ref(&path), &AuditOptions::default()) {
        Ok(audit) => {
            audit.reconcile()?;
            let whole = audit.totals.recorded_calls >= 18;
            let says_so = audit.problems.iter().any(|problem| problem.kind.hides_waits());
            // What is left is a sound database with other values, such as times that put one call into another.
            let sound = || {
                let query = format!("SELECT count(*) FROM {RUNTIME}");
                Connection::open(&path).and_then(|db| db.query_row(&query, [], |row| row.get::<_, i64>(0)))
                    == Ok(18)
            };
            (whole || says_so || sound())
                .then_some(())
                .ok_or_else(|| format!("{} calls in silence", audit.totals.recorded_calls))
        }
        Err(error) if error.text.len() > 20 => Ok(()),
        Err(error) => Err(format!("no clear message: {error}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: mutations(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic_and_never_lose_calls_in_silence(
        schema in 0..ALL.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 1usize..9), 1..6),
    ) {
        thread_local!(static WHOLE: Vec<(Vec<u8>, Vec<usize>)> = ALL.map(|schema| {
            let bytes = std::fs::read(&training(schema).save().path).unwrap();
            // Most of a small database is empty pages, where changes do nothing.
            let places = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
            (bytes, places)
        }).into());
        let folder = TempDir::new().unwrap();
        let (mut bytes, places) = WHOLE.with(|whole| whole[schema].clone());
        for (place, value, run) in &changes {
            let at = *place.get(&places);
            let end = (at + run).min(bytes.len());
            bytes[at..end].fill(*value);
        }
        let outcome = survives(&bytes, folder.path());
        prop_assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[test]
fn ranks_of_several_databases_come_from_their_names_and_share_a_clock() {
    let folder = TempDir::new().unwrap();
    for rank in 0..2i64 {
        let mut maker = training(Schema::V3_25);
        let start = 1_700_000_000_000_000_000 + rank * 5_000;
        maker.insert("TARGET_INFO_SESSION_START_TIME", &[("utcEpochNs", start.into())]);
        let saved = maker.save();
        std::fs::copy(&saved.path, folder.path().join(format!("run_rank{rank}.sqlite"))).unwrap();
    }
    let trace = load_path(&[folder.path().to_owned()]).unwrap();
    let ranks: Vec<Option<u32>> = trace.processes.iter().map(|process| process.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1)]);
    let starts: Vec<u64> =
        trace.processes.iter().map(|process| process.threads[0].calls[0].start_ns).collect();
    assert_eq!(starts[1] - starts[0], 5_000);
}

#[test]
fn unpacking_is_half_of_the_progress_of_a_compressed_database() {
    let saved = training(Schema::V3_25).save();
    let bytes = std::fs::read(&saved.path).unwrap();
    for (name, content) in [("run.sqlite", bytes.clone()), ("run.sqlite.gz", gzip(&bytes))] {
        let path = saved.path.parent().unwrap().join(name);
        std::fs::write(&path, &content).unwrap();
        let mut seen = Vec::new();
        syncaudit::import::load_with(&[path], &mut |progress| seen.push(progress.done_bytes)).unwrap();
        let size = content.len() as u64;
        assert!(seen.is_sorted(), "{name}: {seen:?}");
        assert_eq!(seen.last(), Some(&size), "{name}: {seen:?}");
        assert_eq!(name.ends_with(".gz"), seen.contains(&(size / 2)), "{name}: {seen:?}");
    }
}
