//! NVIDIA's own user-space driver loads the tracer through its own injection loader, with and without a real CUPTI beside
//! it. On a machine without a GPU `cuInit` answers "no device" (100), after the injection.

mod support;

use std::path::{Path, PathBuf};

use support::{Trace, Traced, compile, vendor};
use syncaudit_eventlog::{EndReason, Record, meta};

/// The driver, or a message why not.
fn driver() -> Option<PathBuf> {
    let path = vendor().join("driver/libcuda.so.1");
    if !path.exists() {
        eprintln!("skipped: no driver at {}; run scripts/fetch-vendor-libs.sh on Debian", path.display());
        return None;
    }
    if Path::new("/proc/driver/nvidia").exists() {
        eprintln!("skipped: this machine has a GPU, and its driver is another one");
        return None;
    }
    Some(path)
}

fn run(driver: &Path, cupti: Option<&Path>, nvtx: bool) -> Trace {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("driver_program");
    compile("driver_program.c", &program, &[]);
    let mut traced = Traced::new(&program);
    traced.command.arg(driver);
    if nvtx {
        traced.command.arg("nvtx");
    }
    if let Some(cupti) = cupti {
        traced.command.env("SYNCAUDIT_CUPTI", cupti);
    }
    traced.run()
}

const NO_DEVICE: i32 = 100;

#[test]
fn the_drivers_own_loader_brings_the_tracer_up() {
    let Some(driver) = driver() else { return };
    let trace = run(&driver, None, true);
    let log = trace.assert_exit(NO_DEVICE).log();
    let version: u32 = std::str::from_utf8(log.meta(meta::CUDA_DRIVER).unwrap()).unwrap().parse().unwrap();
    assert!((12000..14000).contains(&version), "cuDriverGetVersion said {version}");
    assert_eq!(log.meta(meta::EMULATED), Some(&b"0"[..]));
    let handshake = &trace.handshakes()[0].1;
    assert!(
        handshake.contains("nvtx=1\n") && handshake.contains(&format!("cuda={version}\n")),
        "{handshake}"
    );
    let records: Vec<_> = log.threads().flat_map(|thread| thread.records()).collect();
    let count = |wanted: fn(&Record<'_>) -> bool| records.iter().filter(|record| wanted(record)).count();
    assert_eq!(count(|record| matches!(record, Record::RangePush { .. })), 2);
    assert_eq!(count(|record| matches!(record, Record::RangePop { .. })), 2);
    assert!(matches!(records.last(), Some(Record::End { reason: EndReason::Exit, code: 100, .. })));
    assert!(log.modules().any(|module| match module {
        Record::Module { path, build_id, .. } => {
            log.str(path).is_some_and(|path| path.windows(7).any(|part| part == b"libcuda"))
                && !build_id.is_empty()
        }
        _ => false,
    }));
}

#[test]
fn a_driver_without_nvtx_is_recorded_too() {
    let Some(driver) = driver() else { return };
    let node = Path::new("/dev/nvidiactl");
    let before = node.exists();
    run(&driver, None, false).assert_exit(NO_DEVICE).log();
    assert_eq!(node.exists(), before, "the test must leave no device node behind");
}

/// Without a device every version refuses the subscription. That must be one line, and must not harm the program: this is
/// the path that crashed in versions that were touched too early.
#[test]
fn every_real_cupti_refuses_without_a_device_and_the_program_goes_on() {
    let Some(driver) = driver() else { return };
    let mut tried = 0;
    for entry in std::fs::read_dir(vendor()).unwrap() {
        let folder = entry.unwrap().path();
        for soname in ["libcupti.so.12", "libcupti.so.13"] {
            let cupti = folder.join(soname);
            if !cupti.exists() {
                continue;
            }
            let trace = run(&driver, Some(&cupti), true);
            let log = trace.assert_exit(NO_DEVICE).log();
            let stderr = trace.stderr();
            assert_eq!(stderr.lines().count(), 1, "{}: {stderr}", cupti.display());
            assert!(stderr.contains("cuptiSubscribe") && stderr.contains("CUPTI result "), "{stderr}");
            let pushes = log
                .threads()
                .flat_map(|thread| thread.records())
                .filter(|record| matches!(record, Record::RangePush { .. }));
            assert_eq!(pushes.count(), 2, "{}", cupti.display());
            eprint!("{}: {stderr}", folder.file_name().unwrap().display());
            tried += 1;
        }
    }
    if tried == 0 {
        eprintln!("skipped: no CUPTI in {}; run scripts/fetch-vendor-libs.sh", vendor().display());
    }
}
