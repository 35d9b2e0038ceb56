//! Programs of known behaviour under trace: every wait they make is counted, whatever becomes of them.
//!
//! `tests/programs/steps.c` makes the waits: each is a copy to the host and a synchronise of the stream.

use crate::support::{Outcome, Place, json, program};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `steps WORDS` under trace.
fn steps(place: &Place, options: &[&str], words: &str) -> (Outcome, Value) {
    let mut all: Vec<OsString> = vec![program("steps").into()];
    all.extend(words.split_whitespace().map(OsString::from));
    place.run(options, &all.iter().map(OsString::as_os_str).collect::<Vec<_>>())
}

fn number(report: &Value, pointer: &str) -> u64 {
    let value = report.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {report:#}"));
    value.as_u64().unwrap_or_else(|| panic!("{pointer} is {value}"))
}

/// The verdict, and its reasons for the message of a failed test.
#[track_caller]
fn verdict(report: &Value, expected: &str) {
    assert_eq!(report["verdict"], expected, "{:#}", report["reasons"]);
}

#[test]
fn every_wait_is_counted_once_and_judged() {
    let place = Place::new();
    let (outcome, report) = steps(&place, &[], "6 2");
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    verdict(&report, "fail");
    let numbers =
        ["total", "warmup", "log", "ordinary"].map(|kind| number(&report, &format!("/steps/{kind}")));
    assert_eq!(numbers, [6, 2, 0, 4]);
    assert_eq!(number(&report, "/totals/waits"), 12);
    assert_eq!(number(&report, "/totals/device_to_host_copies"), 12);
    assert_eq!(number(&report, "/totals/device_to_host_bytes"), 48);
    assert_eq!(report["source"]["emulated"], true);
    assert_eq!(report["totals"]["blocked_ns"], Value::Null, "times of an emulated run are not shown");

    let in_steps: Vec<&Value> = report["sites"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|site| site["waits"] != site["outside_waits"])
        .collect();
    let [site] = in_steps[..] else { panic!("{:#}", report["sites"]) };
    assert_eq!(site["kind"], "device-to-host-read");
    assert_eq!(site["apis"], serde_json::json!(["cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"]));
    assert_eq!(site["range"], serde_json::json!(["step"]));
    assert_eq!(
        [&site["waits"], &site["calls"], &site["ordinary_waits"], &site["warmup_waits"]],
        [12, 24, 8, 4].map(Value::from).each_ref()
    );
    assert!(
        site["native"].to_string().contains("wait_for_the_device"),
        "the function that waits is in the stack: {:#}",
        site["native"]
    );
}

#[test]
fn a_program_without_waits_passes() {
    let place = Place::new();
    let (outcome, report) = steps(&place, &[], "6 0");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    verdict(&report, "pass");
    assert_eq!(report["totals"]["ordinary_waits_per_step"].as_f64(), Some(0.0));
}

#[test]
fn binary_output_is_the_same_with_and_without_us() {
    let place = Place::new();
    let words = ["6", "1", "stdout=300000"];
    let bytes: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();

    let redirected = place.path().join("out.bin");
    let status = place
        .command()
        .args(["run", "--device", "emulated", "--"])
        .arg(program("steps"))
        .args(words)
        .stdout(File::create(&redirected).unwrap())
        .stderr(File::create(place.path().join("stderr")).unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1), "{}", fs::read_to_string(place.path().join("stderr")).unwrap());
    assert!(fs::read(&redirected).unwrap() == bytes, "what the program wrote, and nothing else");
    let report = fs::read_to_string(place.path().join("stderr")).unwrap();
    assert!(report.contains("device-to-host-read"), "{report}");
}

#[test]
fn a_format_asked_for_by_name_follows_the_output_of_the_program() {
    let place = Place::new();
    let mut words: Vec<&OsStr> =
        ["run", "--device", "emulated", "--format", "json", "--"].map(OsStr::new).to_vec();
    let program = program("steps");
    words.push(program.as_os_str());
    words.extend(["4", "0", "stdout=3"].map(OsStr::new));
    let outcome = place.syncaudit(words);
    let report: Value = serde_json::from_slice(outcome.stdout.strip_prefix(&[0, 1, 2]).unwrap()).unwrap();
    verdict(&report, "pass");
}

#[test]
fn a_program_killed_at_any_step_is_reported_up_to_there() {
    for killed_at in [0, 2, 3, 5, 8] {
        let place = Place::new();
        let (outcome, report) = steps(&place, &[], &format!("10 2 kill-at={killed_at}"));
        assert_eq!(outcome.status, 137, "{}", outcome.stderr);
        assert_eq!(number(&report, "/steps/total"), killed_at + 1);
        assert_eq!(number(&report, "/totals/device_to_host_copies"), 2 * (killed_at + 1), "no event is lost");
        assert_ne!(report["verdict"], "pass");
    }
}

#[test]
fn a_program_that_ends_without_its_exit_handlers_loses_nothing() {
    let place = Place::new();
    let (outcome, report) = steps(&place, &[], "6 1 exit-at=5");
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert_eq!(number(&report, "/totals/device_to_host_copies"), 6);
}

#[test]
fn a_program_that_crashes_before_its_first_step_is_inconclusive() {
    let place = Place::new();
    let (outcome, report) = steps(&place, &[], "6 1 crash-first");
    assert_eq!(outcome.status, 128 + 6, "{}", outcome.stderr);
    verdict(&report, "inconclusive");
    assert_eq!(number(&report, "/steps/total"), 0);
}

#[test]
fn a_program_without_ranges_is_inconclusive_and_its_waits_are_shown() {
    let place = Place::new();
    let (outcome, report) = steps(&place, &[], "6 1 no-ranges");
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    verdict(&report, "inconclusive");
    assert_eq!(number(&report, "/totals/device_to_host_copies"), 6);
}

#[test]
fn a_pattern_that_matches_nothing_names_the_ranges_that_were_seen() {
    let place = Place::new();
    let (outcome, report) = steps(&place, &["--steps", "trian"], "6 1 range=train");
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    let reasons = report["reasons"].to_string();
    assert!(reasons.contains("trian") && reasons.contains("train"), "{reasons}");
    assert!(outcome.stderr.is_empty() || !outcome.stderr.contains("panicked"));

    // The trace holds everything: asked again with the right name, it answers.
    let outcome = place.syncaudit([
        OsStr::new("report"),
        OsStr::new("--steps"),
        OsStr::new("train"),
        place.trace().as_os_str(),
    ]);
    assert_eq!(outcome.status, 1, "{}{}", outcome.text(), outcome.stderr);
}

#[test]
fn what_was_said_to_run_holds_for_a_later_report() {
    let place = Place::new();
    let (outcome, first) =
        steps(&place, &["--steps", "train", "--warmup", "1", "--log-every", "3"], "7 1 range=train");
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    let outcome =
        place.syncaudit([OsStr::new("report"), OsStr::new("--format=json"), place.trace().as_os_str()]);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    let second: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(first["steps"], second["steps"]);
    assert_eq!(first["sites"], second["sites"]);
}

#[test]
fn two_processes_are_one_job() {
    let place = Place::new();
    let script = format!("{0} 5 1 & {0} 5 2; wait", program("steps").display());
    let (outcome, report) = place.run(&[], &[OsStr::new("sh"), OsStr::new("-c"), OsStr::new(&script)]);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert_eq!(number(&report, "/steps/total"), 10);
    assert_eq!(number(&report, "/totals/device_to_host_copies"), 15);
}

#[test]
fn both_sides_of_a_fork_are_recorded() {
    let place = Place::new();
    let (outcome, report) = steps(&place, &[], "4 1 fork");
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert_eq!(number(&report, "/steps/total"), 8);
    assert_eq!(number(&report, "/totals/device_to_host_copies"), 8);
}

#[test]
fn a_process_that_outlives_the_program_is_not_waited_for_and_is_named() {
    let place = Place::new();
    let fifo = place.fifo("done");
    let stop = place.fifo("done.stop");
    // Into files: the process that is left behind keeps a pipe open.
    let status = place
        .command()
        .args(["run", "--device", "emulated", "--format", "json=report.json", "--"])
        .arg(program("steps"))
        .args(["4", "1", &format!("orphan={}", fifo.display())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    fs::write(stop, "x").unwrap(); // whatever is found below, nobody is left behind
    assert_eq!(status.code(), Some(1));
    let report = json(&place.path().join("report.json"));
    assert_eq!(number(&report, "/totals/device_to_host_copies"), 4);
    let warnings = report["source"]["warnings"].to_string();
    assert!(warnings.contains("still run"), "{warnings}");
}

#[test]
fn what_a_program_did_before_it_was_killed_is_judged_and_everybody_says_that_it_was() {
    let said = "what it did until then is what is judged";
    for (words, status, verdict_now, how) in [
        ("9 0 kill-at=6", 137, "pass", "the program was killed by SIGKILL"),
        ("9 1 kill-at=6", 137, "fail", "the program was killed by SIGKILL"),
        ("9 0 kill-at=1", 137, "inconclusive", "the program was killed by SIGKILL"),
        ("9 0 status=3", 3, "pass", "the program ended with exit status 3"),
    ] {
        let place = Place::new();
        let (outcome, report) = steps(&place, &["--trace", "t"], words);
        assert_eq!(outcome.status, status, "{words}: {}", outcome.stderr);
        verdict(&report, verdict_now);
        let reason = format!("{how}: {said}");
        let reasons = |report: &Value| report["reasons"].as_array().unwrap().clone();
        assert!(reasons(&report).contains(&Value::from(reason.as_str())), "{words}: {:#}", report["reasons"]);
        let later = place.syncaudit(["report", "t", "--format", "json"]);
        let later: Value = serde_json::from_slice(&later.stdout).unwrap();
        assert_eq!((&later["verdict"], reasons(&later)), (&report["verdict"], reasons(&report)));
        let check = place.syncaudit(["check", "t"]);
        assert_eq!(
            check.status,
            ["pass", "fail", "inconclusive"].iter().position(|v| *v == verdict_now).unwrap() as i32
        );
        assert!(check.text().contains(&reason), "{}", check.text());
    }
    // As it is while the program runs, or after `syncaudit` itself was killed.
    let place = Place::new();
    steps(&place, &["--trace", "t"], "9 0");
    let whole = place.syncaudit(["check", "t"]);
    assert!((whole.status, whole.text().contains(said)) == (0, false), "{}", whole.text());
    let mut run = json(&place.path().join("t/run.json"));
    run.as_object_mut().unwrap().remove("end");
    place.file("t/run.json", run.to_string());
    let check = place.syncaudit(["check", "t"]);
    assert_eq!(check.status, 0);
    assert!(
        check.text().contains("the program has not ended") && check.text().contains(said),
        "{}",
        check.text()
    );
}

#[test]
fn a_program_that_never_used_the_device_is_told_once() {
    let place = Place::new();
    let (outcome, report) = place.run(&["--trace", "t"], &[OsStr::new("true")]);
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    let reasons = report["reasons"].as_array().unwrap();
    let [reason] = &reasons[..] else { panic!("{reasons:#?}") };
    assert!(
        reason.as_str().unwrap().starts_with("no process left an event log: the program ended"),
        "{reason}"
    );
    assert_eq!(
        (&report["source"]["emulated"], &report["totals"]["blocked_ns"]),
        (&true.into(), &Value::Null)
    );
    let check = place.syncaudit(["check", "t"]);
    assert_eq!((check.status, check.text().matches("no process").count()), (2, 1), "{}", check.text());
}

#[test]
fn a_trace_that_is_not_to_be_kept_stays_while_a_process_may_still_use_it() {
    let place = Place::new();
    let fifo = place.fifo("done");
    let stop = place.fifo("done.stop");
    let status = place
        .command()
        .args(["run", "--device", "emulated", "--no-trace", "--format", "json=report.json", "--"])
        .arg(program("steps"))
        .args(["4", "1", &format!("orphan={}", fifo.display())])
        .stdout(Stdio::null())
        .stderr(File::create(place.path().join("said")).unwrap())
        .status()
        .unwrap();
    let driver = place.trace().join("lib/libcuda.so.1").exists();
    fs::write(stop, "x").unwrap(); // whatever is found, nobody is left behind
    assert_eq!((status.code(), driver), (Some(1), true));
    let said = fs::read_to_string(place.path().join("said")).unwrap();
    assert!(
        said.contains("is left to the processes that still run; remove it when they have ended"),
        "{said}"
    );
}

#[test]
fn an_emulated_and_a_measured_trace_as_one_job_are_warned_of() {
    let place = Place::new();
    steps(&place, &["--trace", "emulated"], "5 0");
    let event = |name: &str, category: &str, at: u32| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","ts":{at},"dur":5,"pid":1,"tid":1,"args":{{"correlation":{at}}}}}"#
        )
    };
    let events =
        [event("ProfilerStep#1", "user_annotation", 10), event("cudaDeviceSynchronize", "cuda_runtime", 11)];
    place.file("measured.json", format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")));
    let outcome = place.syncaudit(["report", "emulated", "measured.json"]);
    let text: String = outcome.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("emulated is of the emulated device and measured.json of a GPU"), "{text}");
    // The same file twice is one.
    place.file("copy.json", fs::read(place.path().join("measured.json")).unwrap());
    let report = |words: &[&str]| -> Value {
        serde_json::from_slice(&place.syncaudit(words).stdout).unwrap_or_default()
    };
    let twice = report(&["report", "measured.json", "copy.json", "--format", "json"]);
    assert_eq!(number(&twice, "/totals/waits"), 1);
    assert!(
        twice["source"]["warnings"].to_string().contains("measured.json was given twice and is counted once")
    );
}

#[test]
fn the_same_trace_gives_the_same_report_as_a_directory_and_as_a_file() {
    let place = Place::new();
    steps(&place, &[], "5 1");
    let report = |path: &Path| {
        let outcome = place.syncaudit([OsStr::new("report"), OsStr::new("--format=json"), path.as_os_str()]);
        assert_eq!(outcome.status, 1, "{}", outcome.stderr);
        outcome.stdout
    };
    let trace = place.trace();
    let log = log_of(&trace);
    assert!(report(&trace) == report(&trace));
    let (whole, alone): (Value, Value) =
        (serde_json::from_slice(&report(&trace)).unwrap(), serde_json::from_slice(&report(&log)).unwrap());
    for key in ["verdict", "steps", "totals", "sites", "per_step"] {
        assert_eq!(whole[key], alone[key], "{key}");
    }
    let outcome = place.syncaudit([OsStr::new("check"), trace.as_os_str()]);
    assert_eq!(outcome.status, 1);
    assert!(outcome.text().starts_with("verdict: fail"), "{}", outcome.text());
}

fn log_of(trace: &Path) -> std::path::PathBuf {
    let mut logs: Vec<_> = fs::read_dir(trace)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "salog"))
        .collect();
    assert_eq!(logs.len(), 1);
    logs.remove(0)
}

#[test]
fn a_damaged_trace_never_passes_and_never_panics() {
    let place = Place::new();
    steps(&place, &[], "5 0");
    let log = log_of(&place.trace());
    let whole = fs::read(&log).unwrap();
    assert_eq!(place.syncaudit([OsStr::new("report"), log.as_os_str()]).status, 0, "undamaged, it passes");
    // The log has room left in it; damage there is none.
    let written: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    let middle = written[written.len() / 2];
    for (name, bytes) in [
        ("half", whole[..middle].to_vec()),
        ("header", whole[..10].to_vec()),
        ("overwritten", {
            let mut bytes = whole.clone();
            bytes[middle..middle + 8].fill(0xA5);
            bytes
        }),
        ("noise", (0..whole.len()).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect()),
    ] {
        let path = place.file(&format!("{name}.salog"), bytes);
        for command in ["report", "check"] {
            let outcome = place.syncaudit([OsStr::new(command), path.as_os_str()]);
            assert_eq!(outcome.status, 2, "{name}: {}{}", outcome.text(), outcome.stderr);
            assert!(!outcome.stderr.contains("panicked"), "{name}: {}", outcome.stderr);
            assert!(!(outcome.text() + &outcome.stderr).trim().is_empty(), "{name}: says something");
        }
    }
}

#[test]
fn a_second_run_in_the_same_place_keeps_the_first_trace() {
    let place = Place::new();
    steps(&place, &["--trace", "one"], "4 0");
    steps(&place, &["--trace", "two"], "4 1");
    let device = |name: &str| json(&place.path().join(name).join("run.json"))["device"].clone();
    assert_eq!([device("one"), device("two")], ["emulated", "emulated"]);
    // A process that the program left behind may load the driver after the program ended.
    assert!(place.path().join("one/lib/libcuda.so.1").exists(), "the links to the emulated driver stay");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    steps(&place, &[], "40 3");
    let script = format!(
        "'{}' report {} | true; exit 0",
        crate::support::built().join("syncaudit").display(),
        place.trace().display()
    );
    let outcome =
        Outcome::of(Command::new("sh").args(["-c", &script]).current_dir(place.path()).output().unwrap());
    assert!(!outcome.stderr.contains("panicked") && !outcome.stderr.contains("error"), "{}", outcome.stderr);
}
