//! Reports of all formats in one go, and what `explain` answers, over a run of the reference trainer with its waits of old.

use crate::support::{Place, built, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// A place with one trace in `.syncaudit`.
fn trained() -> Place {
    let place = Place::new();
    let trainer = built().join("dflash-train");
    let words = ["--waits", "legacy", "--steps", "5", "--log-every", "4"];
    let program: Vec<&OsStr> =
        std::iter::once(trainer.as_os_str()).chain(words.iter().map(OsStr::new)).collect();
    let (outcome, _) = place.run(&["--report-only"], &program);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    place
}

#[test]
fn all_formats_are_written_in_one_go_from_one_judgement() {
    let place = trained();
    let trace = place.trace();
    let mut command = place.command();
    command.arg("check").arg(&trace);
    let beginnings = [
        ("text", "verdict: fail"),
        ("json", "{\n  \"schema\": \"syncaudit.report/1\""),
        ("markdown", "<!-- syncaudit -->\n### ❌ syncaudit: fail"),
        ("github", "::error title=syncaudit%3A fail::"),
        ("sarif", "{\n  \"$schema\""),
        ("junit", "<?xml version=\"1.0\""),
        ("html", "<!doctype html>"),
    ];
    for (format, _) in beginnings {
        command.arg("--format").arg(format!("{format}=out.{format}"));
    }
    let outcome = crate::support::Outcome::of(command.output().unwrap());
    assert_eq!((outcome.status, outcome.stdout.len()), (1, 0), "{}", outcome.stderr);
    for (format, beginning) in beginnings {
        let text = std::fs::read_to_string(place.path().join(format!("out.{format}"))).unwrap();
        assert!(text.starts_with(beginning), "{format}: {}", &text[..200.min(text.len())]);
    }
    let left: Vec<_> = std::fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Each of the trainer's waits of old is known for what it is.
    let report = json(&place.path().join("out.json"));
    let rules: BTreeSet<(&str, &str)> = report["sites"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|site| site["status"] == "over-budget")
        .map(|site| {
            let file = site["place"]["file"].as_str().unwrap();
            (file.rsplit('/').next().unwrap(), site["rule"].as_str().unwrap())
        })
        .collect();
    let expected = [
        ("acks.rs", "producer-ack"),
        ("anchors.rs", "scalar-read"),
        ("batch_copy.rs", "pageable-upload"),
        ("metrics.rs", "scalar-read"),
        ("scalars.rs", "scalar-upload"),
    ];
    assert_eq!(rules, BTreeSet::from(expected));
}

#[test]
fn a_report_that_cannot_be_written_is_a_misuse_and_nothing_is_written() {
    let place = trained();
    let trace = place.trace();
    let words = ["--format", "sarif=out.sarif", "--format", "html=no/such/folder/out.html"];
    let outcome = place
        .syncaudit([OsStr::new("report"), trace.as_os_str()].into_iter().chain(words.iter().map(OsStr::new)));
    outcome.refused("no/such/folder/out.html", "name a place that can be written");
    assert!(!place.path().join("out.sarif").exists());
}

#[test]
fn explain_knows_kinds_rules_codes_and_places() {
    let place = trained();
    for (word, part) in [
        ("device-to-host-read", "How to fix it in PyTorch"),
        ("mask-indexing", "torch.where(mask, a, b)"),
        ("new-wait", "a wait that the baseline does not have"),
    ] {
        let outcome = place.syncaudit(["explain", word]);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert!(outcome.text().contains(part), "{word}: {}", outcome.text());
    }
    let all = place.syncaudit(["explain"]).text();
    assert!(
        all.contains("mask-indexing") && all.contains("device-sync") && all.contains("fixed-wait"),
        "{all}"
    );
    place.syncaudit(["explain", "mask-indexin"]).refused("no kind of wait", "did you mean `mask-indexing`?");

    let report = json(&place.path().join("report.json"));
    let sites = report["sites"].as_array().unwrap();
    let anchors = sites
        .iter()
        .find(|site| site["place"]["file"].as_str().is_some_and(|file| file.ends_with("anchors.rs")));
    let fingerprint = anchors.unwrap()["fingerprint"].as_str().unwrap();
    let trace = place.trace();
    let latest = place.syncaudit(["explain", fingerprint]);
    assert_eq!(latest.status, 0, "{}", latest.stderr);
    assert!(
        latest.text().contains("anchors.rs") && latest.text().contains("scalar-read"),
        "{}",
        latest.text()
    );
    assert!(latest.stderr.contains("from the latest trace"), "{}", latest.stderr);
    let named = place.syncaudit([OsStr::new("explain"), OsStr::new(&fingerprint[..8]), trace.as_os_str()]);
    assert_eq!(named.text(), latest.text());
    // As few digits as tell it from the others, however many these are; and where they don't, the ids that begin so.
    let ids: Vec<&str> = sites.iter().map(|site| site["fingerprint"].as_str().unwrap()).collect();
    let same_beginning =
        |digits: usize| ids.iter().filter(|id| id.starts_with(&fingerprint[..digits])).count();
    let digits = (1..=16).find(|&digits| same_beginning(digits) == 1).unwrap();
    assert_eq!(place.syncaudit(["explain", &fingerprint[..digits].to_uppercase()]).text(), latest.text());
    let shared = ids.iter().find_map(|id| {
        let digit = &id[..1];
        (ids.iter().filter(|other| other.starts_with(digit)).count() > 1).then_some(digit)
    });
    place.syncaudit(["explain", shared.unwrap()]).refused("places begin so: ", "type more of its digits");
    place.syncaudit(["explain", "0123456789abcdef"]).refused("has no such place", "syncaudit report");
    Place::new()
        .syncaudit(["explain", "0123456789abcdef"])
        .refused("no trace in .syncaudit", "name the trace");
}
