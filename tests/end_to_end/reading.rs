//! Reading traces, configuration and words: what is refused, and how.

use crate::support::Place;

#[test]
fn a_trace_that_is_not_there_is_a_misuse_of_every_command_that_reads_one() {
    let place = Place::new();
    for words in [&["report", "t"][..], &["check", "t"], &["view", "t"], &["export", "t", "--to", "perfetto"]]
    {
        place.syncaudit(words).refused("cannot read a trace from t", "name a trace directory");
    }
}

#[test]
fn words_that_make_no_sense_are_a_misuse() {
    let place = Place::new();
    for words in [
        &["report"][..],
        &["check"],
        &["reprot", "t"],
        &["report", "t", "--format", "yaml"],
        &["report", "t", "--format", "sarif="],
        &["report", "t", "--log-every", "0"],
        &["report", "t", "--log-every", "often"],
        &["report", "t", "--warmup", "-1"],
        &["report", "t", "--steps", ""],
    ] {
        let outcome = place.syncaudit(words);
        assert_eq!(outcome.status, 2, "{words:?}: {}", outcome.stderr);
        assert!(!outcome.stderr.is_empty());
        assert!(outcome.stdout.is_empty());
    }
}

#[test]
fn traces_that_are_none_are_named_with_what_was_found() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("empty-dir")).unwrap();
    place.file("empty", "");
    place.file("foreign.salog", "this is no event log, whatever its name says\n");
    place.file("picture.png", b"\x89PNG\r\n\x1a\n");
    for (name, found) in [
        ("missing", "missing"),
        ("empty-dir", "empty-dir"),
        ("empty", "empty"),
        ("foreign.salog", "foreign.salog"),
        ("picture.png", "picture.png"),
    ] {
        for command in ["report", "check"] {
            place.syncaudit([command, name]).refused(found, "help:");
        }
    }
}

#[test]
fn an_unknown_key_in_the_budget_file_is_named_with_its_line_and_the_closest_one() {
    let place = Place::new();
    place.file("syncaudit.toml", "[budget]\nwaits-per-step = 1\n\n[stepz]\nwarmup = 3\n");
    let outcome = place.syncaudit(["report", "trace"]);
    outcome.refused("stepz", "steps");
    assert!(outcome.stderr.contains("syncaudit.toml:4"), "{}", outcome.stderr);
}
