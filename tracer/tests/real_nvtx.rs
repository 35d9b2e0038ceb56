//! Real NVTX clients, no GPU: the Python package in versions around the one that drops all ranges unless the payload
//! extension is answered (0.2.12), and the NVTX v2 library that older PyTorch links.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Traced, compile, said, vendor};

const SCRIPT: &str = "
import threading, nvtx
with nvtx.annotate('step', payload=7):
    with nvtx.annotate('forward', domain='model', category='math'):
        nvtx.push_range('inner')
        nvtx.pop_range()
    nvtx.mark('here')
identity = nvtx.start_range('crossing')
thread = threading.Thread(target=lambda: nvtx.end_range(identity))
thread.start()
thread.join()
";

/// The folders `nvtx-VERSION` whose extension modules this machine's Python can load.
fn python_clients() -> Vec<(String, PathBuf)> {
    let mut clients: Vec<_> = std::fs::read_dir(vendor())
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.strip_prefix("nvtx-")?.to_owned();
            let imports = Command::new("python3")
                .args(["-c", "import nvtx"])
                .env("PYTHONPATH", &path)
                .env_remove("NVTX_INJECTION64_PATH")
                .output()
                .is_ok_and(|output| output.status.success());
            if !imports {
                eprintln!("skipped nvtx {version}: this python3 can't import it");
            }
            imports.then_some((version, path))
        })
        .collect();
    clients.sort();
    if clients.is_empty() {
        eprintln!("skipped: no Python nvtx in {}; run scripts/fetch-vendor-libs.sh", vendor().display());
    }
    clients
}

#[test]
fn every_version_of_the_python_client_delivers_its_ranges() {
    for (version, folder) in python_clients() {
        let mut traced = Traced::new(Path::new("python3"));
        traced.command.args(["-c", SCRIPT]).env("PYTHONPATH", &folder);
        let trace = traced.run();
        let log = trace.assert_exit(0).log();
        let lines = said(&log);
        let count = |wanted: &str| lines.iter().filter(|line| line.starts_with(wanted)).count();
        assert!(lines.contains(&"push step I64(7)".to_owned()), "nvtx {version}: {lines:?}");
        let forward = lines.iter().find(|line| line.starts_with("push model:forward #"));
        assert!(forward.is_some(), "nvtx {version}: {lines:?}");
        assert!(lines.contains(&"push inner".to_owned()) && lines.contains(&"mark here".to_owned()));
        assert!(lines.contains(&"start crossing".to_owned()), "nvtx {version}: {lines:?}");
        assert_eq!((count("push"), count("pop"), count("end")), (3, 3, 1), "nvtx {version}: {lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("category model:") && line.ends_with("=math")));
        assert!(trace.output.stderr.is_empty(), "{}", trace.stderr());
        eprintln!("nvtx {version}: {} events", lines.len());
    }
}

#[test]
fn the_nvtx_v2_library_delivers_its_ranges() {
    let library = vendor().join("nvtoolsext/libnvToolsExt.so.1");
    if !library.exists() {
        eprintln!("skipped: no {}; run scripts/fetch-vendor-libs.sh", library.display());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("nvtx_v2_program");
    compile("nvtx_v2_program.c", &program, &[]);
    let mut traced = Traced::new(&program);
    traced.command.arg(&library);
    let trace = traced.run();
    assert_eq!(said(&trace.assert_exit(0).log()), ["push old", "push older", "pop ", "pop ", "mark mark"]);
}
