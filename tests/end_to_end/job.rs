//! A job of several processes under audit: one report for all of them, every trainer by its rank.

use crate::support::{Outcome, Place, built};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

/// Three trainers and a rollout of the Domino recipe with these sources of waits; small steps.
fn audited(place: &Place, waits: &str) -> (Outcome, Value) {
    let options = "train --algorithm domino --trainers 3 --rollouts 1 --batch 1 --sequence 24 --steps 7 --log-every 3 \
                   --checkpoint state --checkpoint-every 4 --waits";
    let mut words: Vec<OsString> = vec![built().join("dflash-train").into()];
    words.extend(options.split_whitespace().map(OsString::from));
    words.push(waits.into());
    place.run(&["--no-trace"], &words.iter().map(OsString::as_os_str).collect::<Vec<&OsStr>>())
}

/// Of each rank: its steps, its ordinary steps, and the different numbers of waits that those have.
fn by_rank(report: &Value) -> BTreeMap<u64, (u64, u64, BTreeSet<u64>)> {
    let rank_of = |process: u64| report["processes"][process as usize]["rank"].as_u64().expect("a rank");
    let rows = report["ranks"].as_array().expect("ranks").iter();
    let mut ranks: BTreeMap<u64, (u64, u64, BTreeSet<u64>)> = rows
        .map(|row| {
            let number = |key: &str| row[key].as_u64().expect("a number");
            (number("rank"), (number("steps"), number("ordinary_steps"), BTreeSet::new()))
        })
        .collect();
    for step in
        report["per_step"].as_array().expect("per_step").iter().filter(|step| step["kind"] == "ordinary")
    {
        let rank = rank_of(step["process"].as_u64().expect("a process"));
        ranks.get_mut(&rank).expect("a known rank").2.insert(step["waits"].as_u64().expect("waits"));
    }
    ranks
}

#[test]
fn the_default_waits_on_no_ordinary_step_of_any_rank_acknowledgements_included() {
    let place = Place::new();
    let (outcome, report) = audited(&place, "none");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(report["verdict"], "pass", "{:#}", report["reasons"]);
    // Two of seven steps are warm-up, two are log steps; the rollout has no step.
    let trainer = (7, 3, BTreeSet::from([0]));
    let expected = [(0, trainer.clone()), (1, trainer.clone()), (2, trainer), (3, (0, 0, BTreeSet::new()))];
    assert_eq!(by_rank(&report), expected.into());
    assert_eq!(report["totals"]["log_waits"], 0);
    assert_eq!(report["totals"]["ordinary_waits"], 0);
}

#[test]
fn every_historical_source_is_found_on_every_trainer() {
    let place = Place::new();
    let (outcome, report) = audited(&place, "legacy");
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert_eq!(report["verdict"], "fail", "{:#}", report["reasons"]);
    // Ten metrics, the width, five scalars, three tensors, and the acknowledgements: four to gather, one to hear the result, and
    // on rank 0 one to tell it.
    let waits = |acks: u64| (7, 3, BTreeSet::from([10 + 1 + 5 + 3 + acks]));
    let expected = [(0, waits(6)), (1, waits(5)), (2, waits(5)), (3, (0, 0, BTreeSet::new()))];
    assert_eq!(by_rank(&report), expected.into());

    let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for site in report["sites"].as_array().expect("sites").iter().filter(|site| site["ordinary_waits"] != 0) {
        let frames = site["native"].as_array().expect("frames").iter();
        let files: Vec<&str> =
            frames.filter_map(|frame| frame["file"].as_str()?.rsplit_once("waits/")).map(|at| at.1).collect();
        let ranks =
            site["per_rank"].as_array().expect("per_rank").iter().map(|row| row["rank"].as_u64().unwrap());
        found.entry(files[0].to_owned()).or_default().extend(ranks);
    }
    let all = BTreeSet::from([0, 1, 2]);
    let files = ["acks.rs", "anchors.rs", "batch_copy.rs", "metrics.rs", "scalars.rs"];
    assert_eq!(found, files.map(|file| (file.to_owned(), all.clone())).into());
}

#[test]
fn a_job_that_dies_in_the_middle_is_no_pass_and_what_it_did_is_reported() {
    let place = Place::new();
    // The handshakes in the trace directory say which processes there are; any but the parent, which loads no tracer.
    let script = format!(
        "'{}' train --trainers 2 --rollouts 1 --batch 1 --sequence 24 --log-every 1 --steps 1000000 2>&1 | \
         while read word rest; do \
         [ \"$word\" = step ] && kill -9 $(ls \"$SYNCAUDIT_TRACE_DIR\" | sed -n 's/^alive-\\([0-9]*\\)-.*/\\1/p' | tail -n 1) 2>/dev/null; \
         echo \"$word $rest\"; done",
        built().join("dflash-train").display()
    );
    let (outcome, report) = place.run(&[], &["sh", "-c", &script].map(OsStr::new));
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(said.contains("was killed by signal 9, so the job was ended"), "{said}");
    assert_ne!(report["verdict"], "pass");
    assert!(report["steps"]["total"].as_u64().unwrap() >= 2, "{:#}", report["steps"]);
}
