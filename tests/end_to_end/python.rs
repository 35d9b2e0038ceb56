//! Python programs under trace: each wait has the Python frames that it was made from, whatever the version of CPython.
//!
//! In: every CPython from 3.9 to 3.14 that is on the PATH or below pyenv's root. `tests/programs/frames.py` waits in all kinds of frames, and
//! takes down beforehand what Python itself says of them.

use crate::support::{Place, json, program_with};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use syncaudit::model::Trace;

/// One interpreter per minor version. Those that aren't there are named, once.
fn pythons() -> &'static BTreeMap<u32, PathBuf> {
    static FOUND: OnceLock<BTreeMap<u32, PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut folders: Vec<PathBuf> =
            std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
        let root = std::env::var_os("PYENV_ROOT")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
        let versions = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
        folders.extend(versions.into_iter().flatten().flatten().map(|version| version.path().join("bin")));
        let mut found = BTreeMap::new();
        for folder in folders {
            for minor in 9..=14 {
                let python = folder.join(format!("python3.{minor}"));
                if !found.contains_key(&minor) && is_cpython(&python, minor) {
                    found.insert(minor, python);
                }
            }
        }
        for minor in (9..=14).filter(|minor| !found.contains_key(minor)) {
            eprintln!("skipped: there is no CPython 3.{minor} on the PATH or below pyenv's root");
        }
        found
    })
}

fn is_cpython(python: &Path, minor: u32) -> bool {
    let script = "import sys; print(sys.implementation.name, sys.version_info[1], getattr(sys, '_is_gil_enabled', bool)() or sys.version_info < (3, 13))";
    let output = Command::new(python).args(["-I", "-c", script]).output();
    output
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("cpython {minor} True"))
}

fn library() -> PathBuf {
    program_with("pyext", "pyext.so", &["-shared", "-fPIC", "-pthread"])
}

/// `syncaudit run -- python SCRIPT LIBRARY WORDS`.
fn run(place: &Place, python: &Path, script: &Path, words: &[&str]) -> (crate::support::Outcome, Value) {
    let library = library();
    let mut all: Vec<&OsStr> = vec![python.as_os_str(), script.as_os_str(), library.as_os_str()];
    all.extend(words.iter().map(OsStr::new));
    place.run(&["--format", "text"], &all)
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

fn load(place: &Place) -> Trace {
    syncaudit::import::load(&[place.trace()]).expect("the trace that was just made")
}

/// The Python frames of the synchronises of each thread, in order.
fn recorded(trace: &Trace) -> HashMap<u64, Vec<Value>> {
    let mut recorded: HashMap<u64, Vec<Value>> = HashMap::new();
    for thread in trace.processes.iter().flat_map(|process| &process.threads) {
        for call in thread.calls.iter().filter(|call| trace.api(call.api).base == "cuStreamSynchronize") {
            let frames = trace.python.get(call.python).iter();
            let chain: Vec<Value> = frames
                .map(|frame| json!([trace.str(frame.file), trace.str(frame.function), frame.line]))
                .collect();
            recorded.entry(thread.tid).or_default().push(Value::from(chain));
        }
    }
    recorded
}

#[test]
fn each_wait_has_the_frames_that_python_itself_tells() {
    for (minor, python) in pythons() {
        let place = Place::new();
        let (outcome, report) = run(&place, python, &programs().join("frames.py"), &["seen"]);
        assert_ne!(report["verdict"], Value::Null);
        assert!(!outcome.stderr.contains("no Python frames"), "3.{minor}: {}", outcome.stderr);
        let trace = load(&place);
        let pid = trace.processes[0].pid;
        let mut expected: HashMap<u64, Vec<Value>> = HashMap::new();
        let seen = json(&place.path().join(format!("seen.{pid}")));
        for entry in seen.as_array().unwrap() {
            expected.entry(entry[0].as_u64().unwrap()).or_default().push(entry[1].clone());
        }
        let recorded = recorded(&trace);
        // Four Python threads, the main thread, and one that Python does not know.
        assert_eq!((expected.len(), recorded.len()), (5, 6), "3.{minor}");
        for (tid, stacks) in &recorded {
            let Some(expected) = expected.get(tid) else {
                assert_eq!(*stacks, [json!([])], "3.{minor}: a thread of C has no Python frames");
                continue;
            };
            assert_eq!(stacks.len(), expected.len(), "3.{minor}");
            for (stack, expected) in stacks.iter().zip(expected) {
                let mut expected = expected.as_array().unwrap().clone();
                if expected.len() > 256 {
                    expected.truncate(256);
                    expected.push(json!(["", "(frames further out were not recorded)", 0]));
                }
                assert_eq!(stack, &Value::from(expected), "3.{minor}");
            }
        }
    }
}

const TRAIN: &str = "import ctypes, sys
sys.path.insert(0, 'site-packages')
import wrapper
ext = ctypes.CDLL(sys.argv[1])

def read_loss():
    return wrapper.item(ext)  # the line to fix

def step():
    ext.ext_push(b'step')
    read_loss()
    ext.ext_pop()

ext.ext_start()
for _ in range(6):
    step()
";

#[test]
fn the_report_points_at_the_users_line_and_has_the_whole_chain() {
    for (minor, python) in pythons() {
        let place = Place::new();
        std::fs::create_dir(place.path().join("site-packages")).unwrap();
        place.file("site-packages/wrapper.py", "def item(ext):\n    return ext.ext_read()\n");
        let fingerprint = |source: String| {
            let script = place.file("train.py", source);
            let (outcome, report) = run(&place, python, &script, &[]);
            assert_eq!(
                (outcome.status, &report["verdict"]),
                (1, &json!("fail")),
                "3.{minor}: {}",
                outcome.stderr
            );
            let sites = report["sites"].as_array().unwrap();
            let site = sites.iter().find(|site| site["ordinary_waits"] != 0).unwrap();
            let functions: Vec<&Value> =
                site["python"].as_array().unwrap().iter().map(|frame| &frame["function"]).collect();
            assert_eq!(functions, ["item", "read_loss", "step", "<module>"], "3.{minor}");
            let text = outcome.text();
            let line = site["python"][1]["line"].as_u64().unwrap();
            assert_eq!(site["place"]["function"], "read_loss");
            let place = format!("train.py:{line}");
            for part in [&*place, "return wrapper.item(ext)  # the line to fix"] {
                assert!(text.contains(part), "3.{minor}: {part} in {text}");
            }
            (site["fingerprint"].clone(), line)
        };
        let (before, line) = fingerprint(TRAIN.to_owned());
        let (after, moved) = fingerprint(format!("# a comment\n\n{TRAIN}"));
        assert_eq!((line, moved), (7, 9));
        assert_eq!(before, after, "3.{minor}: lines are no part of a fingerprint");
    }
}

#[test]
fn daemon_threads_that_wait_while_python_shuts_down_do_no_harm() {
    for (minor, python) in pythons() {
        let place = Place::new();
        let script = place.file(
            "daemon.py",
            "import ctypes, sys, threading
ext = ctypes.CDLL(sys.argv[1])
ext.ext_start()
up = [threading.Event() for _ in range(3)]
def wait(i):
    ext.ext_enter()
    while True:
        ext.ext_read()
        up[i].set()
for i in range(3):
    threading.Thread(target=wait, args=(i,), daemon=True).start()
for event in up:
    event.wait()
",
        );
        let (outcome, report) = run(&place, python, &script, &[]);
        // No steps, so nothing to judge; the program itself ended as it wanted to.
        assert_eq!(report["verdict"], "inconclusive");
        assert_eq!(outcome.status, 2, "3.{minor}: {}", outcome.stderr);
    }
}

#[test]
fn an_interpreter_whose_frames_cannot_be_read_is_one_line_and_no_harm() {
    for (version, rubbish, reason) in [
        ("0x030f0000", "0", "CPython 3.15: only 3.9 to 3.14 are known"),
        ("0x04000000", "0", "Python 4.0 is not known"),
        ("0x030d0000", "0", "CPython 3.13: the table of its layout is not where it should be"),
        ("0x030c0000", "ADDRESS(0x18)", "CPython 3.12: a frame can't be read"),
        ("0x030c0000", "ADDRESS(0x123456789abcdef1)", "CPython 3.12: a frame can't be read"),
        ("0x030c0000", "ADDRESS(-8)", "CPython 3.12: a frame can't be read"),
        ("0x030b0000", "state", "CPython 3.11: the chain of frames has no end"),
    ] {
        let place = Place::new();
        let name = format!("no_python_{version}_{}.so", rubbish.len());
        let flags = [&*format!("-DVERSION={version}"), &format!("-DRUBBISH={rubbish}"), "-shared", "-fPIC"];
        let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
        preload.push(program_with("no_python", &name, &flags));
        let steps = crate::support::program("steps");
        let all = ["env".as_ref(), &*preload, steps.as_os_str(), "4".as_ref(), "1".as_ref()];
        let (outcome, report) = place.run(&[], &all);
        assert_eq!((outcome.status, &report["verdict"]), (1, &json!("fail")), "{}", outcome.stderr);
        let lines: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.contains("no Python frames are recorded")).collect();
        let [line] = lines[..] else { panic!("{version} {rubbish}: {}", outcome.stderr) };
        assert!(line.contains(reason), "{line}");
        assert!(load(&place).python.is_empty());
    }
}
