//! The reference trainer under audit: every historical source of waits is found, in its own file, as often as it waits, and
//! nothing else is. `reference/src/waits/mod.rs` says how often that is.

use crate::support::{Outcome, Place, built};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::process::Command;

const STEPS: u64 = 8;
const LOG_EVERY: u64 = 4;

/// Trains under audit with these sources switched on.
fn audited(place: &Place, waits: &str) -> (Outcome, Value) {
    audited_with(place, waits, &[])
}

fn audited_with(place: &Place, waits: &str, options: &[&str]) -> (Outcome, Value) {
    let trainer = built().join("dflash-train");
    let metrics = place.path().join(format!("{waits}.jsonl"));
    let mut words: Vec<OsString> = vec![
        trainer.into(),
        "--waits".into(),
        waits.into(),
        "--steps".into(),
        STEPS.to_string().into(),
        "--log-every".into(),
        LOG_EVERY.to_string().into(),
        "--metrics".into(),
        metrics.into(),
    ];
    words.extend(options.iter().map(OsString::from));
    place.run(&["--no-trace"], &words.iter().map(OsString::as_os_str).collect::<Vec<_>>())
}

/// Waits of every step of that kind.
fn waits_of(report: &Value, kind: &str) -> Vec<u64> {
    let steps = report["per_step"].as_array().expect("per_step");
    steps
        .iter()
        .filter(|step| step["kind"] == kind)
        .map(|step| step["waits"].as_u64().expect("waits"))
        .collect()
}

/// Every source alone: exact counts on ordinary and on log steps, and no wait from anywhere else.
#[track_caller]
fn finds(waits: &str, file: &str, per_step: u64, kinds: &[&str]) {
    finds_with(&[], waits, file, per_step, kinds);
}

#[track_caller]
fn finds_with(options: &[&str], waits: &str, file: &str, per_step: u64, kinds: &[&str]) {
    let place = Place::new();
    let (outcome, report) = audited_with(&place, waits, options);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert_eq!(report["verdict"], "fail", "{:#}", report["reasons"]);
    let ordinary = waits_of(&report, "ordinary");
    assert!(!ordinary.is_empty() && ordinary.iter().all(|&waits| waits == per_step), "{ordinary:?}");
    let log = waits_of(&report, "log");
    assert!(!log.is_empty() && log.iter().all(|&waits| waits == per_step), "on log steps: {log:?}");

    for site in in_steps(&report) {
        assert!(kinds.iter().any(|kind| site["kind"] == *kind), "{site:#}");
        assert!(site["native"].to_string().contains(file), "{file} in {:#}", site["native"]);
        // Reads of a log step stand in its log range, which makes a place of their own.
        let expected = if site["ordinary_waits"] == 0 { "log-step" } else { "over-budget" };
        assert_eq!(site["status"], expected, "{site:#}");
    }
    assert_eq!(ordinary_places(&report), per_step, "one place per wait of a step: {:#}", report["sites"]);
}

/// Places that wait on ordinary steps.
fn ordinary_places(report: &Value) -> u64 {
    in_steps(report).filter(|site| site["ordinary_waits"] != 0).count() as u64
}

fn in_steps(report: &Value) -> impl Iterator<Item = &Value> {
    report["sites"].as_array().expect("sites").iter().filter(|site| site["waits"] != site["outside_waits"])
}

#[test]
fn metrics_are_four_reads_a_step() {
    finds("metrics", "reference/src/waits/metrics.rs", 4, &["device-to-host-read"]);
}

#[test]
fn anchors_are_one_read_a_step() {
    finds("anchors", "reference/src/waits/anchors.rs", 1, &["device-to-host-read"]);
}

#[test]
fn scalars_are_four_uploads_a_step() {
    finds("scalars", "reference/src/waits/scalars.rs", 4, &["host-to-device-write"]);
}

#[test]
fn acks_are_two_uploads_and_two_reads_a_step() {
    finds("acks", "reference/src/waits/acks.rs", 4, &["device-to-host-read", "host-to-device-write"]);
}

#[test]
fn batch_copies_are_three_uploads_a_step() {
    finds("batch-copy", "reference/src/waits/batch_copy.rs", 3, &["host-to-device-write"]);
}

const DOMINO: [&str; 2] = ["--algorithm", "domino"];

#[test]
fn domino_reads_ten_metrics_and_uploads_five_scalars_a_step() {
    finds_with(&DOMINO, "metrics", "reference/src/waits/metrics.rs", 10, &["device-to-host-read"]);
    finds_with(&DOMINO, "scalars", "reference/src/waits/scalars.rs", 5, &["host-to-device-write"]);
}

#[test]
fn domino_with_every_source_waits_twenty_three_times_a_step() {
    let place = Place::new();
    let (outcome, report) = audited_with(&place, "legacy", &DOMINO);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert!(waits_of(&report, "ordinary").iter().all(|&waits| waits == 23), "{:#}", report["per_step"]);
    assert_eq!(ordinary_places(&report), 23);
}

#[test]
fn all_of_them_together_are_their_sum_and_nothing_is_merged() {
    let place = Place::new();
    let (outcome, report) = audited(&place, "legacy");
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert!(waits_of(&report, "ordinary").iter().all(|&waits| waits == 16), "{:#}", report["per_step"]);
    assert!(waits_of(&report, "log").iter().all(|&waits| waits == 16), "{:#}", report["per_step"]);
    assert_eq!(ordinary_places(&report), 16);
    let files: BTreeSet<String> = in_steps(&report)
        .flat_map(|site| site["native"].as_array().unwrap())
        .filter_map(|frame| Some(frame["file"].as_str()?.rsplit_once("waits/")?.1.to_owned()))
        .collect();
    assert_eq!(
        files,
        ["acks.rs", "anchors.rs", "batch_copy.rs", "metrics.rs", "scalars.rs"].map(String::from).into()
    );
    assert_eq!(report["totals"]["waits"], sum(&report, "waits"), "totals are the sum of the sites");
    assert_eq!(report["totals"]["calls"], sum(&report, "calls"));
}

fn sum(report: &Value, key: &str) -> u64 {
    report["sites"].as_array().unwrap().iter().map(|site| site[key].as_u64().unwrap()).sum()
}

/// DFlash and Domino, issued call by call and replayed as a graph.
#[test]
fn the_default_waits_on_no_ordinary_step() {
    for options in [&[][..], &DOMINO, &["--graph"], &["--graph", DOMINO[0], DOMINO[1]]] {
        let place = Place::new();
        let (outcome, report) = audited_with(&place, "none", options);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert_eq!(report["verdict"], "pass", "{:#}", report["reasons"]);
        let ordinary = waits_of(&report, "ordinary");
        assert!(!ordinary.is_empty() && ordinary.iter().all(|&waits| waits == 0), "{:#}", report["per_step"]);
        assert_eq!(report["steps"]["total"], STEPS);
        assert_eq!(report["steps"]["log"], STEPS / LOG_EVERY);
    }
}

#[test]
fn the_losses_are_the_same_bits_with_and_without_waits_and_with_and_without_us() {
    let place = Place::new();
    audited(&place, "none");
    audited(&place, "legacy");
    // Without us, on the same device: its links are made by hand.
    let driver = place.path().join("driver");
    fs::create_dir(&driver).unwrap();
    std::os::unix::fs::symlink(built().join("libsyncaudit_emulator.so"), driver.join("libcuda.so.1"))
        .unwrap();
    std::os::unix::fs::symlink(built().join("libsyncaudit_emulator.so"), driver.join("libcuda.so")).unwrap();
    let mut untraced: Command = place.clean(built().join("dflash-train"));
    untraced.args([
        "--steps",
        &STEPS.to_string(),
        "--log-every",
        &LOG_EVERY.to_string(),
        "--metrics",
        "untraced.jsonl",
    ]);
    let outcome = Outcome::of(untraced.env("LD_LIBRARY_PATH", &driver).output().unwrap());
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);

    let losses = |name: &str| -> Vec<u64> {
        let lines = fs::read_to_string(place.path().join(format!("{name}.jsonl"))).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64().unwrap().to_bits())
            .collect()
    };
    assert_eq!(losses("none").len() as u64, STEPS);
    assert_eq!(losses("none"), losses("legacy"));
    assert_eq!(losses("none"), losses("untraced"));
}

#[test]
fn a_trainer_killed_in_the_middle_is_reported_up_to_there() {
    let place = Place::new();
    // The metrics file is a pipe; whoever reads it kills the trainer after two lines: somewhere in the middle, and never
    // before two steps are done. The time limit is for a trainer that never opens the pipe.
    let fifo = place.fifo("metrics");
    let script = format!(
        "'{}' --waits legacy --steps 100000 --log-every 2 --metrics '{1}' & pid=$!
         timeout 120 sh -c 'exec 3<\"$0\"; read one <&3; read two <&3; kill -9 $1' '{1}' $pid
         wait $pid",
        built().join("dflash-train").display(),
        fifo.display()
    );
    let (outcome, report) = place.run(&[], &["sh", "-c", &script].map(OsStr::new));
    assert_eq!(outcome.status, 137, "{}", outcome.stderr);
    assert!(report["steps"]["total"].as_u64().unwrap() >= 2, "{:#}", report["steps"]);
    assert!(report["totals"]["waits"].as_u64().unwrap() >= 32, "{:#}", report["totals"]);
    assert_ne!(report["verdict"], "pass");
}
