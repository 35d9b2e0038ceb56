//! Starting programs: what is refused, what is passed on, whose output is whose.

use crate::support::{Outcome, Place, built, program, program_with};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};

fn run(place: &Place, program: impl AsRef<OsStr>) -> Outcome {
    place.syncaudit([
        OsStr::new("run"),
        OsStr::new("--device"),
        OsStr::new("emulated"),
        OsStr::new("--"),
        program.as_ref(),
    ])
}

/// Refused before anything was made.
#[track_caller]
fn refused(place: &Place, program: impl AsRef<OsStr>, found: &str, todo: &str) {
    run(place, program).refused(found, todo);
    assert!(!place.path().join(".syncaudit").exists(), "no trace directory for a program that never ran");
}

#[test]
fn no_program_is_a_misuse() {
    let place = Place::new();
    for words in [&["run"][..], &["run", "--"], &["run", "--device", "emulated"]] {
        let outcome = place.syncaudit(words);
        assert_eq!(outcome.status, 2);
        assert!(outcome.stderr.contains("PROGRAM"), "{}", outcome.stderr);
    }
}

#[test]
fn what_cannot_be_started_is_named_with_what_to_do() {
    let place = Place::new();
    refused(&place, "no-such-program-anywhere", "no such program in any directory of PATH", "spelling");
    refused(&place, "./missing", "no such file", "check the path");
    refused(&place, "/", "it is a directory", "name the program inside it");
    let text = place.file("notes.txt", "hello\n");
    refused(&place, &text, "not executable", "chmod +x");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    refused(&place, &text, "neither an ELF program nor a script", "interpreter");
    refused(&place, "notes.txt", "no such program", "./notes.txt");
}

#[test]
fn programs_that_ignore_their_environment_are_refused() {
    let place = Place::new();
    let copy = place.path().join("suid");
    fs::copy(program("plain"), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    refused(&place, &copy, "set-user-ID", "run a copy of it without that bit");
}

#[test]
fn programs_of_another_width_are_refused() {
    let place = Place::new();
    let mut bytes = fs::read(program("plain")).unwrap();
    bytes[4] = 1; // EI_CLASS: ELFCLASS32
    let narrow = place.file("narrow", bytes);
    fs::set_permissions(&narrow, fs::Permissions::from_mode(0o755)).unwrap();
    refused(&place, &narrow, "32-bit", "64-bit build");
}

#[test]
fn a_static_program_runs_and_is_inconclusive_for_that_reason() {
    let place = Place::new();
    let outcome = run(&place, program_with("plain", "plain-static", &["-static"]));
    assert_eq!(outcome.text(), "plain output\n");
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("statically linked"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("INCONCLUSIVE"), "{}", outcome.stderr);
}

#[test]
fn a_program_that_never_calls_cuda_is_inconclusive_for_that_reason() {
    let place = Place::new();
    let (outcome, report) = place.run(&[], &[program("plain").as_os_str()]);
    assert_eq!(outcome.status, 2);
    assert_eq!(outcome.text(), "plain output\n");
    assert_eq!(report["verdict"], "inconclusive");
    let reasons = report["reasons"].to_string();
    assert!(reasons.contains("without having initialised CUDA"), "{reasons}");
    assert_eq!(report["source"]["program"][0], program("plain").to_str().unwrap());
}

#[test]
fn the_exit_status_of_a_failed_program_is_passed_on() {
    let place = Place::new();
    assert_eq!(place.run(&[], &[program("plain").as_os_str(), OsStr::new("7")]).0.status, 7);
    assert_eq!(place.run(&["--report-only"], &[program("plain").as_os_str(), OsStr::new("1")]).0.status, 1);
    let (outcome, report) = place.run(&[], &["sh", "-c", "kill -9 $$"].map(OsStr::new));
    assert_eq!(outcome.status, 137);
    assert!(outcome.stderr.contains("killed by SIGKILL"), "{}", outcome.stderr);
    assert_eq!(report["verdict"], "inconclusive");
}

#[test]
fn scripts_are_started_as_the_shell_does() {
    let place = Place::new();
    let script = place.file("script", "#!/bin/sh -e\necho \"$0\" \"$@\"\nexit 3\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = place.syncaudit(["run", "--device", "emulated", "./script", "--steps", "-x"]);
    assert_eq!((outcome.status, outcome.text().as_str()), (3, "./script --steps -x\n"));
}

#[test]
fn missing_libraries_are_named_with_the_places_searched() {
    let place = Place::new();
    let mut command = place.command();
    command.args(["run", "--device", "emulated", "--", "true"]).env("SYNCAUDIT_LIB_DIR", "/no/such/folder");
    let outcome = Outcome::of(command.output().unwrap());
    outcome.refused("libsyncaudit_tracer.so", "SYNCAUDIT_LIB_DIR");
    assert!(outcome.stderr.contains("/no/such/folder"), "{}", outcome.stderr);
}

#[test]
fn libraries_beside_or_below_a_prefix_are_found() {
    let place = Place::new();
    for libraries in ["bin", "lib/syncaudit"] {
        let prefix = place.path().join(libraries.replace('/', "-"));
        fs::create_dir_all(prefix.join("bin")).unwrap();
        fs::create_dir_all(prefix.join(libraries)).unwrap();
        fs::copy(built().join("syncaudit"), prefix.join("bin/syncaudit")).unwrap();
        for name in ["libsyncaudit_tracer.so", "libsyncaudit_emulator.so"] {
            fs::copy(built().join(name), prefix.join(libraries).join(name)).unwrap();
        }
        let mut command = place.clean(prefix.join("bin/syncaudit"));
        command.args(["run", "--device", "emulated", "--no-trace", "--", "true"]);
        let outcome = Outcome::of(command.output().unwrap());
        assert!(!outcome.stderr.contains("cannot"), "{libraries}: {}", outcome.stderr);
    }
}

#[test]
fn the_gpu_is_refused_where_there_is_none_and_auto_says_what_it_takes() {
    let place = Place::new();
    if fs::read_dir("/dev")
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"))
    {
        println!("skipped: this machine has a GPU");
        return;
    }
    place.syncaudit(["run", "--device", "cuda", "--", "true"]).refused("/dev/nvidia*", "--device emulated");
    let outcome = place.syncaudit(["run", "--", "true"]);
    assert!(outcome.stderr.contains("using the emulated device"), "{}", outcome.stderr);
}

#[test]
fn a_trace_goes_where_it_is_told_and_nowhere_else() {
    let place = Place::new();
    let full = place.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "x").unwrap();
    place
        .syncaudit(["run", "--device", "emulated", "--trace", "full", "--", "true"])
        .refused("not empty", "an empty one of yours");
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);

    place.syncaudit(["run", "--device", "emulated", "--trace", "mine", "--", "true"]);
    let mode = fs::metadata(place.path().join("mine")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let record = crate::support::json(&place.path().join("mine/run.json"));
    assert_eq!(record["program"][0], "true");
    assert_eq!(record["end"]["exit"], 0);

    place.syncaudit(["run", "--device", "emulated", "--no-trace", "--", "true"]);
    let left: Vec<_> = fs::read_dir(place.path().join(".syncaudit")).unwrap().flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name() == ".gitignore"), "{left:?}");
}

#[test]
fn a_report_that_cannot_be_written_is_found_out_before_the_program_runs() {
    let place = Place::new();
    place
        .syncaudit(["run", "--device", "emulated", "-o", "no/such/report", "--", "touch", "ran"])
        .refused("no/such/report", "name a place");
    assert!(!place.path().join("ran").exists());
}

#[test]
fn a_tool_that_was_loaded_before_us_is_told_apart() {
    let place = Place::new();
    let mut command = place.command();
    command
        .args(["run", "--device", "emulated", "--", "true"])
        .env("CUDA_INJECTION64_PATH", "/other/tool.so");
    let outcome = Outcome::of(command.output().unwrap());
    assert!(
        outcome.stderr.contains("CUDA_INJECTION64_PATH already names /other/tool.so"),
        "{}",
        outcome.stderr
    );
}

/// A child that has said "ready" on its stdout.
fn ready(place: &Place, words: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = place.command();
    command.args(["run", "--device", "emulated", "--"]).arg(program("signals")).args(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    expect_line(&mut stdout, "ready\n");
    (child, stdout)
}

#[track_caller]
fn expect_line(stdout: &mut impl BufRead, expected: &str) {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, expected);
}

fn send(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

fn end(mut child: Child) -> (i32, String) {
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code().expect("the command itself was not killed"), stderr)
}

#[test]
fn signals_reach_the_program_and_the_report_still_comes() {
    use rustix::process::Signal;
    let place = Place::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1] {
        let (child, _stdout) = ready(&place, &[]);
        send(&child, signal);
        let (status, stderr) = end(child);
        assert_eq!(status, 40 + signal.as_raw(), "{stderr}");
        assert!(stderr.contains("INCONCLUSIVE"), "the report came:\n{stderr}");
    }
}

#[test]
fn a_program_that_does_not_end_is_killed_at_the_third_request_and_reported() {
    use rustix::process::Signal;
    let place = Place::new();
    let (child, mut stdout) = ready(&place, &["stubborn"]);
    send(&child, Signal::TERM);
    expect_line(&mut stdout, "again\n");
    send(&child, Signal::TERM);
    expect_line(&mut stdout, "again\n");
    send(&child, Signal::TERM);
    let (status, stderr) = end(child);
    assert_eq!(status, 137, "{stderr}");
    assert!(stderr.contains("killing it") && stderr.contains("INCONCLUSIVE"), "{stderr}");
}

#[test]
fn a_killed_command_leaves_the_program_running_and_a_trace_that_can_be_read() {
    use rustix::process::Signal;
    let place = Place::new();
    let (mut child, mut stdout) = ready(&place, &[]);
    send(&child, Signal::KILL);
    assert_eq!(child.wait().unwrap().code(), None);
    let record = crate::support::json(&place.trace().join("run.json"));
    assert!(record.get("end").is_none(), "{record}");
    let mut stderr = child.stderr.take().unwrap();
    // The program still holds its stdout; find it through the only process that has the trace in its environment.
    let pid = holder_of(&place.trace());
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("syncaudit report"), "{said}");
}

fn holder_of(trace: &Path) -> rustix::process::Pid {
    let wanted = format!("SYNCAUDIT_TRACE_DIR={}", trace.canonicalize().unwrap().display());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes()) {
            return rustix::process::Pid::from_raw(pid).unwrap();
        }
    }
    panic!("no process has {wanted}");
}
