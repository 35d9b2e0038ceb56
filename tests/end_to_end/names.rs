//! Names of functions stay with a trace: the program may be built anew, and what was recorded is compared all the same. Where the names can't
//! be had, nothing is compared.

use crate::support::{Outcome, Place, json, program_with};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;

/// Builds `./moving` with these flags and records it into the folder of that name.
fn record(place: &Place, trace: &str, flags: &[&str]) {
    build(place, trace, flags);
    let (outcome, _) =
        place.run(&["--trace", trace, "--report-only"], &[OsStr::new("./moving"), OsStr::new("6")]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
}

fn build(place: &Place, name: &str, flags: &[&str]) {
    let built = program_with("moving", &format!("names-{name}"), flags);
    let path = place.path().join("moving");
    // A new file, as a linker makes one.
    drop(fs::remove_file(&path));
    fs::copy(built, path).expect("copied");
}

fn diff(place: &Place, old: &str, new: &str) -> (Outcome, Value) {
    let outcome = place.syncaudit(["diff", old, new, "--format", "json=diff.json"]);
    (outcome, json(&place.path().join("diff.json")))
}

fn changes(report: &Value) -> Vec<&str> {
    report["sites"].as_array().unwrap().iter().map(|row| row["change"].as_str().unwrap()).collect()
}

fn baseline(place: &Place, trace: &str, file: &str) -> String {
    let outcome = place.syncaudit(["baseline", trace, "-o", file]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    fs::read_to_string(place.path().join(file)).unwrap()
}

#[test]
fn a_trace_says_the_same_after_its_program_was_built_anew() {
    let place = Place::new();
    record(&place, "old", &[]);
    let report = |file: &str| {
        let outcome = place.syncaudit(["report", "old", "--format", "json", "-o", file]);
        assert_eq!(outcome.status, 1, "{}", outcome.stderr);
        fs::read_to_string(place.path().join(file)).unwrap()
    };
    let (before, report_before) = (baseline(&place, "old", "before"), report("report.before"));
    record(&place, "new", &["-DMOVED", "-DADDED"]);

    assert_eq!(baseline(&place, "old", "after"), before);
    assert_eq!(report("report.after"), report_before);
    let (outcome, report) = diff(&place, "old", "new");
    assert_eq!(outcome.status, 1, "{:#}", report["reasons"]);
    assert_eq!(changes(&report), ["appeared", "same", "same", "same"]);
    // Three waits are in both of the runs, and so they count.
    let outcome = place.syncaudit(["check", "old", "new"]);
    assert_eq!(outcome.status, 1, "{}", outcome.text());
    assert_eq!(outcome.text().matches("error[over-budget]").count(), 3, "{}", outcome.text());
    let outcome = place.syncaudit(["check", "new", "--baseline", "before"]);
    assert_eq!((outcome.status, outcome.text().matches("[new-wait]").count()), (1, 1), "{}", outcome.text());

    // Also where the program is gone altogether, and for a single log out of the trace.
    fs::remove_file(place.path().join("moving")).unwrap();
    assert_eq!(diff(&place, "old", "new").0.status, 1);
    let log = fs::read_dir(place.path().join("old")).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        (path.extension() == Some(OsStr::new("salog"))).then_some(path)
    });
    let words = [OsStr::new("check"), log.as_ref().unwrap().as_os_str(), OsStr::new("--baseline=before")];
    assert_eq!(place.syncaudit(words).status, 0);
}

#[test]
fn the_names_are_kept_however_the_program_ends() {
    let place = Place::new();
    let program = crate::support::program("steps");
    fs::copy(&program, place.path().join("steps")).unwrap();
    for (name, words) in [("killed", &["6", "1", "kill-at=4"][..]), ("failed", &["6", "1", "status=3"])] {
        let words: Vec<&OsStr> =
            [OsStr::new("./steps")].into_iter().chain(words.iter().map(OsStr::new)).collect();
        place.run(&["--trace", name], &words);
        assert!(place.path().join(name).join("symbols").exists(), "{name}");
    }
    fs::remove_file(place.path().join("steps")).unwrap();
    assert_eq!(diff(&place, "killed", "failed").0.status, 0);
}

#[test]
fn without_names_every_comparison_is_inconclusive_and_says_what_to_do() {
    let place = Place::new();
    record(&place, "old", &[]);
    let recorded = {
        let text = fs::read_to_string(place.path().join("old/symbols")).unwrap();
        let body: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
        let module = body["modules"].as_array().unwrap().last().unwrap().clone();
        let bytes = module["build_id"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap());
        bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert!(!recorded.is_empty(), "the compiler gives programs a build id");
    baseline(&place, "old", "known");
    fs::remove_file(place.path().join("old/symbols")).unwrap();
    // The program itself is as good as the names.
    assert_eq!(place.syncaudit(["check", "old", "--baseline", "known"]).status, 0);

    record(&place, "new", &["-DMOVED"]);
    place.file(
        "allow.toml",
        "[[allow]]\nfunction = 'train'\nreason = 'x'\n[[allow]]\nfunction = 'clip'\nreason = 'x'\n",
    );
    let words: [&[&str]; 6] = [
        &["check", "old", "--baseline", "known"],
        &["check", "old", "new"],
        &["check", "new", "old"],
        &["diff", "old", "new"],
        &["diff", "new", "old"],
        &["check", "old", "--config", "allow.toml"],
    ];
    for reason in ["its build id is", "can't be opened"] {
        for words in words {
            let outcome = place.syncaudit(words);
            assert_eq!(outcome.status, 2, "{words:?}: {}", outcome.text());
            let text = outcome.text();
            for part in ["verdict: inconclusive", "moving: the file", reason] {
                assert!(text.contains(part), "{part}: {text}");
            }
            let ids = format!("that of the trace {recorded}); record again, or restore the file");
            assert!(reason != "its build id is" || text.contains(&ids), "{text}");
            assert!(
                !text.contains("[new-wait]") && !text.contains("appeared") && !text.contains("flicker"),
                "{text}"
            );
        }
        place.syncaudit(["baseline", "old", "-o", "again"]).refused(reason, "record again");
        assert!(!place.path().join("again").exists());
        // What needs no names is said: three places that wait in each step.
        let outcome = place.syncaudit(["check", "old"]);
        assert_eq!(outcome.status, 1, "{}", outcome.text());
        drop(fs::remove_file(place.path().join("moving")));
    }
}

#[test]
fn a_file_of_names_that_can_not_be_used_is_said_and_the_program_is_asked() {
    let place = Place::new();
    record(&place, "old", &[]);
    let before = baseline(&place, "old", "before");
    record(&place, "other", &[]);
    let good = fs::read_to_string(place.path().join("old/symbols")).unwrap();
    let foreign = fs::read_to_string(place.path().join("other/symbols")).unwrap();
    for (what, text, why) in [
        ("changed", good.replace("\"train\"", "\"trian\""), "it is damaged"),
        ("cut", good[..good.len() / 2].to_owned(), "it is damaged"),
        ("empty", String::new(), "it is damaged"),
        ("newer", good.replacen("symbols 1 ", "symbols 2 ", 1), "it is of version 2"),
        ("something else", "{}\n".to_owned(), "it does not begin with 'syncaudit-symbols'"),
        ("of another trace", foreign, "it is of another trace"),
    ] {
        fs::write(place.path().join("old/symbols"), text).unwrap();
        let outcome = place.syncaudit(["report", "old"]);
        assert_eq!(outcome.status, 1, "{what}: {}", outcome.stderr);
        let text: String = outcome.text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains(&format!("the file 'symbols' in the trace can't be used: {why}")),
            "{what}: {text}"
        );
        drop(fs::remove_file(place.path().join("again")));
        assert_eq!(baseline(&place, "old", "again"), before, "{what}");
    }
}
