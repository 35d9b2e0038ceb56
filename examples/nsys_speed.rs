//! How fast a database of Nsight Systems is read: makes one with as many calls as asked for, then reads and audits it.
//!
//! `cargo run --release --example nsys_speed -- [CALLS] [DATABASE]`; without DATABASE the file is a temporary one. Each step
//! has ten calls: eight launches with a kernel each, a read into pageable memory, and a synchronise, inside of twelve ranges.

use std::path::PathBuf;
use std::time::Instant;

use rusqlite::{Connection, params};
use syncaudit::{AuditOptions, audit, load_path};

const CALLS_PER_STEP: i64 = 10;
const RANGES_PER_STEP: i64 = 12;

const TABLES: &str = "
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER, graphNodeId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,
        globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, int64Value INTEGER);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0');
    INSERT INTO StringIds VALUES (0, 'cudaLaunchKernel_v7000'), (1, 'cudaMemcpyAsync_v3020'),
        (2, 'cudaStreamSynchronize_v3020'), (3, 'gemm'), (4, 'step');
";

fn make(path: &PathBuf, steps: i64) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    connection.execute_batch(TABLES)?;
    let transaction = connection.transaction()?;
    {
        let mut call = transaction
            .prepare("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, 0, ?3, ?4, ?5, 0, NULL)")?;
        let mut kernel = transaction.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, 0, 1, 7, ?3, ?4, 3, 3, 64, NULL)",
        )?;
        let mut copy = transaction.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?1, ?2, 0, 1, 7, ?3, ?4, 4, 2, 2, 0, NULL)",
        )?;
        let mut sync = transaction.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (?1, ?2, 0, 1, 7, ?3, ?4, 3, 4294967295)",
        )?;
        let mut range = transaction
            .prepare("INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, NULL, ?3, ?4, NULL, ?5, 0, ?6)")?;
        let pid = (1i64 << 48) | (4_242 << 24);
        let tid = pid | 4_242;
        for step in 0..steps {
            let (at, id) = (1_000_000 * (step + 1), step * CALLS_PER_STEP + 1);
            range.execute(params![at, at + 900_000, None::<&str>, tid, 4, step])?;
            for op in 0..RANGES_PER_STEP - 1 {
                let start = at + 10_000 + op * 8_000;
                let text = format!("aten::op{op}, op_id = {}", step * RANGES_PER_STEP + op);
                range.execute(params![start, start + 7_000, text, tid, None::<i64>, None::<i64>])?;
            }
            for launch in 0..CALLS_PER_STEP - 2 {
                let start = at + 11_000 + launch * 8_000;
                call.execute(params![start, start + 4_000, tid, id + launch, 0])?;
                kernel.execute(params![start + 6_000, start + 60_000, id + launch, pid])?;
            }
            let last = id + CALLS_PER_STEP - 2;
            call.execute(params![at + 100_000, at + 104_000, tid, last, 1])?;
            copy.execute(params![at + 700_000, at + 702_000, last, pid])?;
            call.execute(params![at + 105_000, at + 705_000, tid, last + 1, 2])?;
            sync.execute(params![at + 106_000, at + 704_000, last + 1, pid])?;
        }
    }
    transaction.commit()
}

/// Seconds that this thread has run on a core, which says more than the clock on a busy machine. 0 where Linux doesn't tell.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let calls: i64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let folder = tempfile::tempdir().expect("there is a place for temporary files");
    let path = arguments.next().map_or_else(|| folder.path().join("speed.sqlite"), PathBuf::from);
    if !path.exists() {
        make(&path, calls / CALLS_PER_STEP).expect("the database can be made");
    }
    let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    for round in 1..=3 {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let trace = load_path(std::slice::from_ref(&path)).expect("the database can be read");
        let (read, read_cpu) = (start.elapsed(), cpu_seconds() - cpu);
        let start = Instant::now();
        let found = audit::audit(&trace, &AuditOptions::default());
        println!(
            "round {round}: {} calls, {} waits, {:.0} MB: read in {:.2} s ({read_cpu:.2} s on a core), audited in {:.2} s",
            trace.call_count(),
            found.totals.waits,
            bytes as f64 / 1e6,
            read.as_secs_f64(),
            start.elapsed().as_secs_f64()
        );
        assert_eq!(found.problems, [], "the database is sound");
    }
}
