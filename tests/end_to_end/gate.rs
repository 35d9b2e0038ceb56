//! The gate as a team has it: a baseline in the repository, and a check on every change. The reference trainer stands for the program, its
//! `--waits` switches for the changes.

use crate::support::{Outcome, Place, built, json, program_with};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Trains with these waits switched on; the trace goes to the folder of that name.
fn record(place: &Place, waits: &str) -> PathBuf {
    record_as(place, waits, waits)
}

fn record_as(place: &Place, name: &str, waits: &str) -> PathBuf {
    let words = ["--waits", waits, "--steps", "8", "--log-every", "4"];
    let mut program: Vec<OsString> = vec![built().join("dflash-train").into()];
    program.extend(words.map(OsString::from));
    place.run(
        &["--trace", name, "--report-only"],
        &program.iter().map(OsString::as_os_str).collect::<Vec<_>>(),
    );
    place.path().join(name)
}

fn check(place: &Place, words: &[&str]) -> (Outcome, Value) {
    let words = ["check", "--format", "json=check.json"].into_iter().chain(words.iter().copied());
    let outcome = place.syncaudit(words);
    (outcome, json(&place.path().join("check.json")))
}

/// Codes of the findings with that severity.
fn codes<'r>(report: &'r Value, severity: &str) -> Vec<&'r str> {
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().filter(|f| f["severity"] == severity).map(|f| f["code"].as_str().unwrap()).collect()
}

/// With a baseline of the default: a switch fails with its own sites; with a baseline of the switch: the default reports them fixed.
#[track_caller]
fn gates(waits: &str, file: &str, sites: usize) {
    let place = Place::new();
    record(&place, "none");
    record(&place, waits);
    assert_eq!(place.syncaudit(["baseline", "none", "-o", "good"]).status, 0);
    assert_eq!(place.syncaudit(["baseline", waits, "-o", "bad"]).status, 0);

    let (outcome, report) = check(&place, &["none", "--baseline", "good"]);
    assert_eq!((outcome.status, &report["verdict"]), (0, &"pass".into()), "{:#}", report["reasons"]);
    let (outcome, report) = check(&place, &[waits, "--baseline", "good"]);
    assert_eq!((outcome.status, &report["verdict"]), (1, &"fail".into()), "{:#}", report["reasons"]);
    assert_eq!(codes(&report, "error"), vec!["new-wait"; sites], "{:#}", report["findings"]);
    for finding in report["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error") {
        let at = finding["place"]["file"].as_str().expect("a file");
        assert_eq!(at, format!("reference/src/waits/{file}"), "{finding:#}");
        assert!(finding["place"]["line"].as_u64().expect("a line") > 0);
    }

    let (outcome, report) = check(&place, &[waits, "--baseline", "bad"]);
    assert_eq!(
        (outcome.status, codes(&report, "note")),
        (0, vec!["known-wait"; sites]),
        "{:#}",
        report["findings"]
    );
    let (outcome, report) = check(&place, &["none", "--baseline", "bad"]);
    assert_eq!(
        (outcome.status, codes(&report, "note")),
        (0, vec!["fixed-wait"; sites]),
        "{:#}",
        report["findings"]
    );

    let said = place.syncaudit(["check", "none", "--baseline", "bad"]).text();
    assert!(said.contains("\n  next: tighten the baseline"), "{said}");
    let said = place.syncaudit(["check", "none", "--baseline", "bad", "--format", "github"]).text();
    assert!(said.starts_with("::notice ") && said.contains("%0ANext: tighten the baseline"), "{said}");

    // The fix is written down, and what was fixed can't come back.
    assert_eq!(place.syncaudit(["baseline", "none", "-o", "bad", "--update"]).status, 0);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    assert_eq!(read("bad"), read("good"));
    assert_eq!(check(&place, &[waits, "--baseline", "bad"]).0.status, 1);
}

#[test]
fn metrics_fail_with_their_four_places_and_are_fixed_by_the_way_back() {
    gates("metrics", "metrics.rs", 4);
}

#[test]
fn anchors_fail_with_their_place_and_are_fixed_by_the_way_back() {
    gates("anchors", "anchors.rs", 1);
}

#[test]
fn scalars_fail_with_their_four_places_and_are_fixed_by_the_way_back() {
    gates("scalars", "scalars.rs", 4);
}

#[test]
fn acks_fail_with_their_four_places_and_are_fixed_by_the_way_back() {
    gates("acks", "acks.rs", 4);
}

#[test]
fn batch_copies_fail_with_their_three_places_and_are_fixed_by_the_way_back() {
    gates("batch-copy", "batch_copy.rs", 3);
}

#[test]
fn one_more_wait_beside_known_ones_is_the_only_one_reported() {
    let place = Place::new();
    record(&place, "metrics");
    record_as(&place, "more", "metrics,anchors");
    assert_eq!(place.syncaudit(["baseline", "metrics", "-o", "known"]).status, 0);
    let (outcome, report) = check(&place, &["more", "--baseline", "known"]);
    assert_eq!((outcome.status, codes(&report, "error")), (1, vec!["new-wait"]));
    assert_eq!(codes(&report, "note"), ["known-wait"; 4]);
    assert_eq!(
        report["sites"].as_array().unwrap().iter().filter(|s| s["status"] == "over-budget").count(),
        1
    );

    // An update takes nothing in by itself, and with a reason it is in the file with that reason.
    let left_out = place.syncaudit(["baseline", "more", "-o", "known", "--update"]);
    assert_eq!(left_out.status, 1);
    assert!(left_out.stderr.contains("NOT accepted"), "{}", left_out.stderr);
    assert_eq!(check(&place, &["more", "--baseline", "known"]).0.status, 1);
    let unsaid = place.syncaudit(["baseline", "more", "-o", "known", "--update", "--accept", " "]);
    assert_eq!(unsaid.status, 2);
    assert!(unsaid.stderr.contains("say why these waits are accepted"), "{}", unsaid.stderr);
    let words = ["baseline", "more", "-o", "known", "--update", "--accept", "anchors are read for now"];
    assert_eq!(place.syncaudit(words).status, 0);
    let text = std::fs::read_to_string(place.path().join("known")).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with("\tanchors are read for now")).count(), 1, "{text}");
    let (outcome, report) = check(&place, &["more", "--baseline", "known"]);
    assert_eq!((outcome.status, codes(&report, "note")), (0, vec!["known-wait"; 5]));

    // Nothing of the machine and of the day is in it.
    let here = place.path().to_string_lossy().into_owned();
    assert!(!text.contains(&here) && !text.contains("/") && !text.contains(".rs"), "{text}");
}

#[test]
fn a_wait_that_only_one_of_several_runs_has_fails_only_if_any_is_asked_for() {
    let place = Place::new();
    record(&place, "none");
    record(&place, "anchors");
    assert_eq!(place.syncaudit(["baseline", "none", "-o", "good"]).status, 0);
    let (outcome, report) = check(&place, &["anchors", "none", "--baseline", "good"]);
    assert_eq!((outcome.status, codes(&report, "note")), (0, vec!["flickering-wait"]));
    // Also one that only a later run has, where the first has nothing to show.
    let (outcome, report) = check(&place, &["none", "anchors", "--baseline", "good"]);
    assert_eq!((outcome.status, codes(&report, "note")), (0, vec!["flickering-wait"]));
    let finding = &report["findings"][0];
    assert!(finding["message"].as_str().unwrap().contains("in run 2"), "{finding:#}");
    assert_eq!(finding["place"]["file"], "reference/src/waits/anchors.rs");
    for order in [["anchors", "none"], ["none", "anchors"]] {
        let (outcome, report) = check(&place, &[order[0], order[1], "--baseline", "good", "--runs", "any"]);
        assert_eq!((outcome.status, codes(&report, "error")), (1, vec!["new-wait"]), "{order:?}");
    }
    let (outcome, report) = check(&place, &["anchors", "anchors", "--baseline", "good"]);
    assert_eq!(outcome.status, 1);
    let next = report["next"][0].as_str().unwrap();
    assert!(next.contains("--update --accept REASON") && !next.contains("[budget]"), "{next}");
    // What is wrong with a run is said of that run.
    let run = std::fs::read_to_string(place.path().join("none/run.json")).unwrap();
    place.file("none/run.json", run.replace("\"exit\": 0", "\"signal\": 9"));
    let text = place.syncaudit(["check", "anchors", "none"]).text();
    assert!(text.contains("run 2 of 2: the program was killed by SIGKILL"), "{text}");
    let outcome = place.syncaudit(["baseline", "none", "-o", "of-killed"]);
    assert!(
        outcome.status == 0 && outcome.stderr.contains("note: the program was killed"),
        "{}",
        outcome.stderr
    );
    let text = place.syncaudit(["check", "anchors", "none", "--warmup", "100"]).text();
    assert!(text.contains("run 2 of 2: there is no ordinary step"), "{text}");
    // What several traces mean is said, and that they are no ranks of one job.
    for (runs, said) in [
        (
            "all",
            "2 runs: a wait counts only as often as all of them have it (--runs any: if one has it); steps and places are those of the first",
        ),
        (
            "any",
            "2 runs: a wait counts if one of them has it (--runs all: only if all have it); steps and places are those of run 1",
        ),
    ] {
        let text = place.syncaudit(["check", "anchors", "none", "--runs", runs]).text();
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn an_entry_of_the_allow_list_covers_a_wait_until_its_day_is_past() {
    let place = Place::new();
    record(&place, "anchors");
    let allow = "[[allow]]\nkind = 'device-to-host-read'\nfunction = 'ANY*'\nreason = 'counts decide the shapes'\nexpires = 2030-06-30\nowner = 'me'\n";
    place.file("syncaudit.toml", allow.replace("ANY", ""));
    let on = |day: &str| check(&place, &["anchors", "--today", day]);
    let (outcome, report) = on("2030-06-30");
    assert_eq!((outcome.status, codes(&report, "note")), (0, vec!["allowed-wait"]), "{}", outcome.stderr);
    assert_eq!(report["findings"][0]["justification"], "counts decide the shapes");
    let (outcome, report) = on("2030-07-01");
    assert_eq!((outcome.status, codes(&report, "error")), (1, vec!["allow-expired"]));
    let message = report["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("until 2030-06-30, owner me (counts decide the shapes)"), "{message}");
    assert_eq!(report["findings"][0]["written"]["line"], 1);

    place.file("syncaudit.toml", "[[allow]]\nfunction = 'nobody'\nrange = 'step'\nreason = 'x'\n[[allow]]\nrange = 'step'\nkind = 'polling'\nreason = 'x'\n");
    let (outcome, report) = on("2030-07-01");
    assert_eq!((outcome.status, codes(&report, "error")), (1, vec!["over-budget"]));
    assert_eq!(
        (codes(&report, "warn"), codes(&report, "note")),
        (vec!["allow-gone"], vec!["allow-not-reached"])
    );
}

#[test]
fn two_traces_are_compared_and_the_exit_status_tells() {
    let place = Place::new();
    record(&place, "none");
    record(&place, "acks");
    let diff = |old: &str, new: &str| {
        let outcome = place.syncaudit(["diff", old, new, "--format", "json", "-o", "diff.json"]);
        (outcome.status, json(&place.path().join("diff.json")))
    };
    let changes = |report: &Value| -> BTreeSet<String> {
        report["sites"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["change"].as_str().unwrap().to_owned())
            .collect()
    };
    let (status, report) = diff("none", "acks");
    assert_eq!((status, changes(&report)), (1, ["appeared".to_owned()].into()));
    assert_eq!(
        (&report["old"]["waits_per_step"], &report["new"]["waits_per_step"]),
        (&0.0.into(), &4.0.into())
    );
    assert_eq!(report["old"]["blocked_ns_per_step"], Value::Null, "no time of an emulated run");
    let (status, report) = diff("acks", "none");
    assert_eq!((status, changes(&report)), (0, ["gone".to_owned()].into()));
    let (status, report) = diff("acks", "acks");
    assert_eq!((status, changes(&report)), (0, ["same".to_owned()].into()));
    let text = place.syncaudit(["diff", "none", "acks"]);
    assert!(text.text().contains("4 appeared"), "{}", text.text());

    let words = [
        "diff",
        "none",
        "acks",
        "--format",
        "text",
        "--format",
        "markdown=diff.md",
        "--format",
        "json=again.json",
    ];
    let several = place.syncaudit(words);
    assert_eq!((several.status, several.text()), (1, text.text()));
    let markdown = std::fs::read_to_string(place.path().join("diff.md")).unwrap();
    assert!(markdown.starts_with("<!-- syncaudit diff -->\n### ❌ syncaudit diff: fail"), "{markdown}");
    assert_eq!(markdown.matches("acks.rs:").count(), 4, "{markdown}");
    assert!(
        markdown.contains("#### 4 appeared")
            && markdown.contains("| waits per ordinary step | 0.00 | 4.00 |"),
        "{markdown}"
    );
    for format in ["github", "sarif", "junit", "html"] {
        let outcome = place.syncaudit(["diff", "none", "acks", "--format", &format!("{format}=none")]);
        outcome.refused("is about the findings of one run", "syncaudit check NEW");
    }
}

#[test]
fn a_started_budget_file_judges_the_trace_as_it_was_judged_without_one() {
    let place = Place::new();
    record(&place, "anchors");
    let (before, _) = check(&place, &["anchors"]);
    let started = place.syncaudit(["init", "anchors"]);
    assert_eq!(started.status, 0);
    assert!(started.stderr.contains("next: syncaudit baseline anchors"), "{}", started.stderr);
    let (after, _) = check(&place, &["anchors"]);
    assert_eq!((before.status, after.status), (1, 1));
    let text = std::fs::read_to_string(place.path().join("syncaudit.toml")).unwrap();
    assert!(
        text.contains("number % 4 == 0") && text.contains("device-to-host-read up to 1 in a step"),
        "{text}"
    );
    place.syncaudit(["init", "anchors"]).refused("it is there already", "-o FILE");
}

#[test]
fn baselines_that_can_not_be_used_are_refused_with_what_to_do() {
    let place = Place::new();
    record(&place, "anchors");
    assert_eq!(place.syncaudit(["baseline", "anchors", "-o", "good"]).status, 0);
    let good = std::fs::read_to_string(place.path().join("good")).unwrap();
    for (name, text, found) in [
        ("later", good.replacen("syncaudit-baseline 1", "syncaudit-baseline 2", 1), "version 2"),
        ("foreign", "{\"schema\": 1}\n".to_owned(), "it is no baseline"),
        ("empty", String::new(), "it is no baseline"),
        ("other", good.replace("program\tdflash-train", "program\ttrain.py"), "a baseline of 'train.py'"),
        ("edited", good.replace("device-to-host-read", "stream-sync"), "the line was changed"),
        ("cut", good[..good.len() - 20].to_owned(), "cut short"),
        ("conflict", good.replace("program\t", "<<<<<<< ours\nprogram\t"), "a merge conflict"),
    ] {
        place.file(name, &text);
        place.syncaudit(["check", "anchors", "--baseline", name]).refused(found, "help:");
    }
    place.syncaudit(["check", "anchors", "--baseline", "missing"]).refused("missing", "syncaudit baseline");
    place.syncaudit(["baseline", "anchors", "-o", "good"]).refused("it is there already", "--update");
    place
        .syncaudit(["baseline", "anchors", "-o", "new", "--update"])
        .refused("it is not there", "without --update");
    // All of its steps are warm-up: nothing can be said of ordinary ones.
    let words = ["baseline", "anchors", "-o", "new", "--warmup", "100"];
    place.syncaudit(words).refused("inconclusive", "--warmup");
    assert!(!place.path().join("new").exists());
}

/// Words for the shell are not ours to guess.
#[test]
fn help_of_the_commands_of_the_gate_names_their_exit_statuses() {
    let place = Place::new();
    for command in ["check", "baseline", "diff", "init"] {
        let outcome = place.syncaudit([OsStr::new(command), OsStr::new("--help")]);
        assert_eq!(outcome.status, 0);
        assert!(outcome.text().contains("Examples:"), "{command}");
    }
}

#[test]
fn fingerprints_of_a_compiled_program_survive_moved_code_and_an_added_wait_is_one_new_one() {
    let place = Place::new();
    // One name for all of them: a program that was built anew is the same program.
    for (name, flags) in [("before", &[][..]), ("moved", &["-DMOVED"]), ("added", &["-DMOVED", "-DADDED"])] {
        let built = program_with("moving", &format!("moving-{name}"), flags);
        std::fs::copy(built, place.path().join("moving")).expect("copied");
        place.run(&["--trace", name, "--report-only"], &[OsStr::new("./moving"), OsStr::new("6")]);
        // The lines are looked up in the program as it is now.
        let (outcome, _) = check(&place, &[name, "--report-only"]);
        assert_eq!(outcome.status, 0);
        std::fs::rename(place.path().join("check.json"), place.path().join(format!("{name}.json"))).unwrap();
        if name == "before" {
            assert_eq!(place.syncaudit(["baseline", name, "-o", "known"]).status, 0);
        } else {
            let (outcome, report) = check(&place, &[name, "--baseline", "known"]);
            let new = if name == "added" { vec!["new-wait"] } else { vec![] };
            assert_eq!(codes(&report, "error"), new, "{:#}", report["findings"]);
            assert_eq!(codes(&report, "note"), ["known-wait"; 3]);
            assert_eq!(outcome.status, i32::from(name == "added"));
        }
    }
    let of = |name: &str| -> (BTreeSet<String>, Vec<u64>) {
        let report = json(&place.path().join(format!("{name}.json")));
        let sites: Vec<Value> = report["sites"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|site| site["ordinary_waits"] != 0)
            .cloned()
            .collect();
        let mut lines: Vec<u64> = sites.iter().filter_map(|site| site["place"]["line"].as_u64()).collect();
        lines.sort_unstable();
        (sites.iter().map(|site| site["fingerprint"].as_str().unwrap().to_owned()).collect(), lines)
    };
    let ((before, lines), (moved, moved_lines)) = (of("before"), of("moved"));
    assert_eq!(before.len(), 3, "two waits in one function stay two");
    assert_eq!(before, moved);
    assert_ne!(lines, moved_lines, "the code did move");
}
