//! `syncaudit baseline`: writes or tightens the file of accepted waits.

use super::write_whole;
use crate::cli::BaselineArgs;
use crate::trouble::Trouble;
use crate::{judge, load, say};
use std::path::{Path, PathBuf};
use syncaudit::gate::{Baseline, Code, Entry};
use syncaudit::model::ProblemKind;
use syncaudit::{audit, exit};

/// Where nobody names another.
const DEFAULT: &str = "syncaudit.baseline";

pub fn baseline(args: &BaselineArgs) -> Result<u8, Trouble> {
    let settings = judge::Settings::of(&args.audit)?;
    let path: PathBuf = args
        .output
        .clone()
        .or_else(|| settings.baseline_path().map(Path::to_owned))
        .unwrap_or_else(|| DEFAULT.into());
    let to_stdout = path.as_os_str() == "-";
    let old = match (args.update, path.exists() && !to_stdout) {
        (true, true) => Some(Baseline::load(&path).map_err(judge::bad_baseline)?),
        (true, false) => {
            return Err(Trouble::new(
                format!("update the baseline {}", path.display()),
                "it is not there",
                "make it without --update, or name it with -o FILE",
            ));
        }
        (false, true) => {
            return Err(Trouble::new(
                format!("write the baseline {}", path.display()),
                "it is there already, and writing it anew would accept whatever waits today",
                "tighten it with --update; delete it first if everything is to be accepted again",
            ));
        }
        (false, false) => None,
    };
    let trace = std::slice::from_ref(&args.trace);
    let options = settings.options(&args.audit, judge::recorded_steps(trace).as_ref());
    let mut audit = audit::audit(&load(trace)?, &options);
    audit.doubts.extend(audit.incomparable());
    if !audit.doubts.is_empty() {
        let doubts: Vec<&str> = audit.doubts.iter().map(|doubt| doubt.reason.as_str()).collect();
        let todo = audit.doubts.iter().find_map(|doubt| doubt.next.clone());
        return Err(Trouble::new(
            "make a baseline of this trace",
            format!("it is inconclusive: {}", doubts.join("; ")),
            todo.unwrap_or_else(|| "record a complete run and make the baseline of that".to_owned()),
        ));
    }
    for early in audit.problems.iter().filter(|problem| problem.kind == ProblemKind::EndedEarly) {
        say(&format!("note: {}", early.text));
    }
    // What the allow-list covers or the configuration turns off needs no baseline.
    let judged = settings.judge(vec![audit], &options)?;
    let of_site = judged.by_site();
    let accepted = |site: usize| {
        of_site[site].is_some_and(|finding| finding.code == Code::AllowedWait)
            || options.level(judged.audit.sites[site].kind) == audit::Level::Off
    };
    let current = Baseline::of(&judged.audit, |site| !accepted(site));
    let Some(old) = old else {
        write_whole(&path, &current.to_string())?;
        say(&format!("{} accepted in {}", counted(current.entries.len()), path.display()));
        return Ok(exit::PASS);
    };
    old.fits(&path, &judged.audit).map_err(judge::bad_baseline)?;
    let (new, update) = old.updated(&current, &judged.audit, args.accept.as_deref());
    if new != old {
        write_whole(&path, &new.to_string())?;
    }
    let list = |what: &str, entries: &mut dyn Iterator<Item = &Entry>| {
        for entry in entries {
            say(&format!("{what} {} x {}", entry.per_step, entry.place));
        }
    };
    list("fixed:", &mut update.removed.iter());
    list("now fewer:", &mut update.lowered.iter().map(|(_, after)| after));
    list("moved:", &mut update.moved.iter().map(|(_, after)| after));
    list("kept, this run did not get there:", &mut update.not_reached.iter());
    let added = if args.accept.is_some() { "accepted:" } else { "NOT accepted:" };
    list(added, &mut update.added.iter());
    let changed = if new == old { "is as tight as it can be" } else { "was written" };
    say(&format!("{} {changed}: {}", path.display(), counted(new.entries.len())));
    if args.accept.is_none() && !update.added.is_empty() {
        say("new waits were left out; fix them, or take them in with --accept REASON");
        return Ok(exit::FAIL);
    }
    Ok(exit::PASS)
}

fn counted(places: usize) -> String {
    format!("{places} {}", if places == 1 { "place that waits" } else { "places that wait" })
}
