//! Where reports go: what can't be written is never taken for written, and a reader that went away is no failure.

use crate::support::{Outcome, Place, program};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// A place with the trace `t` of a program that passes.
fn recorded() -> Place {
    let place = Place::new();
    let steps = program("steps");
    let (outcome, _) = place.run(&["--trace", "t"], &[steps.as_os_str(), OsStr::new("5"), OsStr::new("0")]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    place
}

/// Every command that puts something on stdout, with its status when all is well.
fn all() -> Vec<(String, i32)> {
    let steps = program("steps").display().to_string();
    let mut commands: Vec<(String, i32)> = [
        "report t",
        "report t --format json",
        "check t",
        "check t --format github",
        "diff t t",
        "diff t t --format markdown",
        "init -o - t",
        "baseline t -o -",
        "export t --to csv",
        "export t --to perfetto",
        "explain",
        "explain device-sync",
        "view t",
        "doctor --device emulated",
        "--help",
        "report --help",
        "--version",
    ]
    .into_iter()
    .map(|words| (words.to_owned(), 0))
    .collect();
    commands.push((format!("run --device emulated --format json -- '{steps}' 5 0"), 0));
    commands
}

fn shell(place: &Place, words: &str, rest: &str) -> Outcome {
    let syncaudit = crate::support::built().join("syncaudit");
    let script = format!("'{}' {words} {rest}", syncaudit.display());
    Outcome::of(place.clean("bash").args(["-c", &script]).output().unwrap())
}

#[test]
fn a_closed_stdout_is_said_and_fails() {
    let place = recorded();
    for (words, _) in all() {
        let outcome = shell(&place, &words, ">&-");
        assert_eq!(outcome.status, 2, "{words}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("stdout: it is closed") && outcome.stderr.contains("help:"),
            "{words}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn a_report_for_a_closed_stderr_fails_before_the_program_is_started() {
    let place = recorded();
    let outcome = shell(&place, "run --device emulated --trace none -- touch started", "2>&-");
    assert_eq!(outcome.status, 2);
    assert!(!place.path().join("started").exists());
    // With a place for the report, nothing is amiss.
    let steps = program("steps").display().to_string();
    let outcome =
        shell(&place, &format!("run --device emulated --trace some -o report -- '{steps}' 5 0"), "2>&-");
    assert_eq!(outcome.status, 0);
    assert!(fs::read_to_string(place.path().join("report")).unwrap().starts_with("verdict: PASS"));
}

#[test]
fn a_full_disk_is_said_and_fails() {
    let place = recorded();
    for (words, _) in all() {
        let outcome = shell(&place, &words, ">/dev/full");
        assert_eq!(outcome.status, 2, "{words}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("No space left"), "{words}: {}", outcome.stderr);
    }
    for words in [
        "report t -o /dev/full",
        "check t --format sarif=/dev/full",
        "diff t t -o /dev/full",
        "init -o /dev/full t",
        "baseline t -o /dev/full",
        "export t --to csv -o /dev/full",
        "doctor --device emulated -o /dev/full",
    ] {
        let outcome = shell(&place, words, "");
        assert_eq!(outcome.status, 2, "{words}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("/dev/full") && outcome.stderr.contains("help:"),
            "{words}: {}",
            outcome.stderr
        );
    }
    // One that fails does not keep the others from being written.
    let outcome = shell(&place, "check t --format text --format json=rest.json", ">/dev/full");
    assert_eq!(outcome.status, 2);
    assert!(place.path().join("rest.json").exists());
}

#[test]
fn a_trace_whose_report_could_not_be_written_is_kept() {
    let place = Place::new();
    let steps = program("steps").display().to_string();
    let outcome =
        shell(&place, &format!("run --device emulated --no-trace -o - -- '{steps}' 5 0"), ">/dev/full");
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("trace kept"), "{}", outcome.stderr);
    assert!(place.trace().join("run.json").exists());
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let place = recorded();
    for (words, status) in all() {
        // The pipe has no reader before anything is written: `true` has ended when the command starts.
        let script = format!(
            "exec 3> >(true); wait $!; '{}' {words} >&3",
            crate::support::built().join("syncaudit").display()
        );
        let mut command: Command = place.clean("bash");
        let outcome = Outcome::of(command.args(["-c", &script]).output().unwrap());
        assert_eq!(outcome.status, status, "{words}: {}", outcome.stderr);
        assert!(
            !outcome.stderr.contains("error") && !outcome.stderr.contains("panicked"),
            "{words}: {}",
            outcome.stderr
        );
    }
    let script = format!(
        "exec 3> >(true); wait $!; '{}' check t --format json=/dev/fd/3",
        crate::support::built().join("syncaudit").display()
    );
    let outcome = Outcome::of(place.clean("bash").args(["-c", &script]).output().unwrap());
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
}
