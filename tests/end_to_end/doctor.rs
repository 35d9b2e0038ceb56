//! `doctor` says that tracing works exactly when it does.

use crate::support::{Outcome, Place, built};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

fn doctor(place: &Place, libraries: Option<&Path>) -> (Outcome, Value) {
    let mut command = place.command();
    command.args(["doctor", "--device", "emulated", "--format", "json"]);
    if let Some(folder) = libraries {
        command.env("SYNCAUDIT_LIB_DIR", folder);
    }
    let outcome = Outcome::of(command.output().unwrap());
    let report =
        serde_json::from_slice(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {}", outcome.stderr));
    (outcome, report)
}

fn status_of<'a>(report: &'a Value, name: &str) -> Vec<&'a str> {
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == name);
    checks.map(|check| check["status"].as_str().unwrap()).collect()
}

#[test]
fn the_known_wait_is_found_on_the_emulated_device() {
    let place = Place::new();
    let (outcome, report) = doctor(&place, None);
    assert_eq!(outcome.status, 0, "{report:#}");
    assert_eq!(report["works"], true);
    assert_eq!(report["device"], "emulated");
    for name in ["control", "nvtx", "stacks", "tracer"] {
        assert_eq!(status_of(&report, name), ["ok"], "{name} in {report:#}");
    }
    assert!(report.to_string().contains("cuMemcpyDtoHAsync_v2 + cuStreamSynchronize"), "{report:#}");
    assert!(!place.path().join(".syncaudit").exists(), "doctor leaves nothing behind");
}

#[test]
fn missing_libraries_are_a_problem() {
    let place = Place::new();
    let (outcome, report) = doctor(&place, Some(Path::new("/no/such/folder")));
    assert_eq!(outcome.status, 2);
    assert_eq!(report["works"], false);
    assert_eq!(status_of(&report, "libraries"), ["problem", "problem"]);
}

#[test]
fn a_tracer_that_sees_nothing_is_found_out() {
    let place = Place::new();
    let folder = place.path().join("libraries");
    fs::create_dir(&folder).unwrap();
    fs::copy(built().join("libsyncaudit_emulator.so"), folder.join("libsyncaudit_emulator.so")).unwrap();
    let source = place.file("blind.c", "int InitializeInjection(void) { return 1; }\n");
    let library = folder.join("libsyncaudit_tracer.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler named `cc`").success());
    let (outcome, report) = doctor(&place, Some(&folder));
    assert_eq!(outcome.status, 2, "{report:#}");
    assert_eq!(report["works"], false);
    assert!(report["checks"].to_string().contains("problem"));
}

#[test]
fn the_text_ends_with_the_answer() {
    let place = Place::new();
    let outcome = place.syncaudit(["doctor", "--device", "emulated"]);
    assert_eq!(outcome.status, 0, "{}", outcome.text());
    let last = outcome.text().lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("Tracing works on this machine, on the emulated device"), "{last}");
    assert!(!outcome.text().contains('\u{1b}'), "no colour into a pipe");
}

#[test]
fn what_is_in_the_way_is_named() {
    let place = Place::new();
    let mut command = place.command();
    command.args(["doctor", "--device", "emulated"]);
    command.env("CUDA_INJECTION64_PATH", "/other/tool.so").env("CUDA_LAUNCH_BLOCKING", "1");
    let outcome = Outcome::of(command.output().unwrap());
    for word in ["/other/tool.so", "CUDA_LAUNCH_BLOCKING"] {
        assert!(outcome.text().contains(word), "{word} in {}", outcome.text());
    }
}
