//! Every recorded database of Nsight Systems against a count made by a separate script (`NAME.truth.json` beside it).
//!
//! The databases are not in this repository: they are looked for at `../shared/traces`, or under `SYNCAUDIT_SHARED`, and the
//! tests say so and pass when they aren't there. `docs/import-nsys.md` says where the audit and the script differ, who is
//! right and why; the numbers of both are here.

use std::path::{Path, PathBuf};

use serde_json::Value;
use syncaudit::audit::WaitKind;
use syncaudit::model::{ApiClass, SourceKind};
use syncaudit::{Audit, AuditOptions, audit, load_path};

/// The audit of a database with the script's numbers: (number of blocking calls, their host time in ms, rows of calls).
struct Recorded {
    audit: Audit,
    trace: syncaudit::model::Trace,
    truth: Value,
}

fn recorded(name: &str) -> Option<Recorded> {
    let shared = std::env::var_os("SYNCAUDIT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let database = shared.join("traces").join(format!("{name}.sqlite.gz"));
    if !database.is_file() {
        println!("skipped: no {} (SYNCAUDIT_SHARED names another place)", database.display());
        return None;
    }
    let trace = load_path(&[database]).expect("a recorded database can be read");
    let audit = audit::audit(&trace, &AuditOptions::default());
    audit.reconcile().expect("the sums agree");
    let text =
        std::fs::read(shared.join("traces").join(format!("{name}.truth.json"))).expect("each has its truth");
    Some(Recorded { audit, trace, truth: serde_json::from_slice(&text).expect("the truth is JSON") })
}

impl Recorded {
    fn site(&self) -> &Value {
        let sites = self.truth["by_site"].as_array().expect("sites");
        assert_eq!(sites.len(), 1);
        &sites[0]
    }

    /// The script's number of blocking calls, and their host time in ns.
    fn counted(&self) -> (u64, u64) {
        let site = self.site();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "milliseconds of a short recording"
        )]
        let host_ns = (site["ms"].as_f64().expect("ms") * 1e6) as u64;
        (site["n"].as_u64().expect("n"), host_ns)
    }

    /// Number and host time of the calls of a class.
    fn calls_of(&self, class: ApiClass) -> (u64, u64) {
        let calls =
            self.trace.processes.iter().flat_map(|process| &process.threads).flat_map(|thread| &thread.calls);
        calls
            .filter(|call| self.trace.api(call.api).class == class)
            .fold((0, 0), |sum, call| (sum.0 + 1, sum.1 + call.host_ns().unwrap_or(0)))
    }
}

/// The script's times are rounded to 100 ns.
fn same_time(ours_ns: u64, theirs_ns: u64) -> bool {
    ours_ns.abs_diff(theirs_ns) <= 100
}

#[test]
fn two_ranks_upload_an_index_each_step_and_wait_for_it() {
    for (name, waits, calls, rows) in
        [("nsysai_mfu_before", 33, 66, 7466), ("nsysai_mfu_after", 30, 60, 6682)]
    {
        let Some(recorded) = recorded(name) else { return };
        let audit = &recorded.audit;
        assert_eq!(recorded.trace.source.kind, SourceKind::Nsys);
        assert_eq!(recorded.truth["n_runtime"].as_u64(), Some(rows));
        assert_eq!(audit.totals.recorded_calls, rows);
        // The script counts the synchronise; for us the upload before it is part of the same wait.
        let (count, host_ns) = recorded.counted();
        assert_eq!((audit.totals.waits, audit.totals.calls), (waits, calls));
        assert_eq!(count, waits);
        let (syncs, sync_ns) = recorded.calls_of(ApiClass::StreamSync);
        assert_eq!(syncs, waits);
        assert!(same_time(sync_ns, host_ns), "{sync_ns} against {host_ns}");
        let uploads: u64 = audit.totals.blocked_ns.unwrap() - sync_ns;
        assert!((300_000..600_000).contains(&uploads), "{uploads} ns inside of {waits} uploads of 8 bytes");
        // Both ranks are at the same place, although the records of their synchronises name device 0.
        assert_eq!(audit.sites.len(), 1);
        let site = &audit.sites[0];
        assert_eq!(site.kind, WaitKind::HostToDeviceWrite);
        assert_eq!(site.op.as_deref(), recorded.site()["nvtx_inner"].as_str());
        assert_eq!(site.ops.first().map(String::as_str), recorded.site()["nvtx_outer"].as_str());
        assert_eq!(site.bytes, 8 * waits);
        let per_process: Vec<u64> = audit.processes.iter().map(|row| row.waits).collect();
        assert_eq!(per_process, if waits == 33 { [16, 17] } else { [15, 15] });
        let devices: Vec<u32> =
            recorded.trace.processes.iter().map(|process| process.device_ops[0].device).collect();
        assert_eq!(devices, [0, 1]);
        assert!(audit.problems.iter().all(|problem| !problem.kind.hides_waits()), "{:?}", audit.problems);
    }
}

#[test]
fn a_copy_with_a_backtrace_is_recorded_twice_and_counted_once() {
    let Some(recorded) = recorded("pipit_saxpy") else { return };
    let audit = &recorded.audit;
    // Of 95 rows 38 are backtraces of calls that have a row of their own.
    assert_eq!(recorded.truth["n_runtime"].as_u64(), Some(95));
    assert_eq!(audit.totals.recorded_calls, 95 - 38);
    let (count, host_ns) = recorded.counted();
    let copies: Vec<_> = audit
        .waits
        .iter()
        .filter(|wait| matches!(wait.kind, WaitKind::DeviceToHostRead | WaitKind::HostToDeviceWrite))
        .collect();
    assert_eq!((copies.len() as u64, count), (15, 15));
    // The script takes the time of the backtrace around the call, which is 7 us longer over all fifteen.
    let ours_ns: u64 = copies.iter().filter_map(|wait| wait.blocked_ns).sum();
    assert_eq!(ours_ns, 374_336_827);
    assert!(same_time(host_ns, 374_343_896), "{host_ns}");
    // What held the host besides: registering and freeing memory, which the script doesn't look at.
    let others = audit.waits.len() - copies.len();
    let of = |class| recorded.calls_of(class).0;
    let management = of(ApiClass::DeviceAlloc)
        + of(ApiClass::DeviceFree)
        + of(ApiClass::HostRegister)
        + of(ApiClass::HostUnregister);
    assert_eq!((others as u64, management), (36, 36));
    // The references to call chains are one short of the ids in this export. Believed as they are, the reads would be inside
    // of `saxpy` and `cudaLaunchKernel`, and the first allocation would have no chain.
    for wait in &copies {
        let site = &audit.sites[wait.site as usize];
        let functions: Vec<&str> = site.native.iter().map(|frame| frame.function.as_str()).collect();
        assert_eq!(functions, ["main"]);
        assert_eq!(site.place().map(|frame| frame.module.as_str()), Some("saxpy-mpi-cuda"));
    }
    let process = &recorded.trace.processes[0];
    assert_eq!(
        (process.pid, process.rank, recorded.trace.str(process.name)),
        (1_230_493, Some(0), "saxpy-mpi-cuda")
    );
    let versions = &recorded.trace.source.versions;
    assert!(versions.contains(&("nsight systems".to_owned(), "2022.2.1.31".to_owned())), "{versions:?}");
    assert!(versions.contains(&("device".to_owned(), "NVIDIA A100-SXM4-40GB".to_owned())), "{versions:?}");
}
