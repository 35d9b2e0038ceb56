//! `syncaudit explain`: what a kind, a rule, a code of the gate or a place of a trace is about.

use crate::cli::{ExplainArgs, Format, Sink};
use crate::judge::{self, Outputs};
use crate::run::{record, trace_dir};
use crate::trouble::Trouble;
use crate::{load, say};
use std::path::{Path, PathBuf};
use syncaudit::gate::Code;
use syncaudit::report::{self, TextStyle};
use syncaudit::{exit, rules};

pub fn explain(args: &ExplainArgs) -> Result<u8, Trouble> {
    let Some(word) = args.word.as_deref() else {
        return print(|_| list());
    };
    if let Some(rule) = rules::find(word) {
        return print(|style| report::explain(rule, style));
    }
    if let Some(code) = Code::ALL.iter().find(|code| code.id() == word) {
        return print(|_| format!("{}: {}\n\n{}\n", code.id(), code.title(), code.description()));
    }
    if is_fingerprint(word) {
        return place(args, &word.to_ascii_lowercase());
    }
    let help = match closest(word) {
        Some(known) => format!("did you mean `{known}`? `syncaudit explain` alone lists all words"),
        None => "`syncaudit explain` alone lists all words".to_owned(),
    };
    Err(Trouble::new(
        format!("explain `{word}`"),
        "it is no kind of wait, no rule, no code of the gate and no fingerprint",
        help,
    ))
}

fn is_fingerprint(word: &str) -> bool {
    (1..=16).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The known word that is closest, of rules, kinds and codes.
fn closest(word: &str) -> Option<&'static str> {
    let of_codes = || {
        let word = word.to_lowercase();
        let distance = |id: &str| strsim::damerau_levenshtein(&word, id);
        let near = Code::ALL.iter().map(|code| code.id()).filter(|id| distance(id) <= id.len().div_ceil(3));
        near.min_by_key(|id| (distance(id), *id))
    };
    rules::closest(word).or_else(of_codes)
}

fn list() -> String {
    let mut text = String::new();
    for (title, general) in [("kinds of waits", true), ("idioms", false)] {
        text += &format!("{title}:\n");
        for rule in rules::ALL.iter().filter(|rule| rule.is_general() == general) {
            text += &format!("  {:<24} {}\n", rule.id, rule.headline);
        }
        text += "\n";
    }
    text += "codes of the gate:\n";
    for code in Code::ALL {
        text += &format!("  {:<24} {}\n", code.id(), code.title());
    }
    text + "\nmore: syncaudit explain WORD\n"
}

/// A place of a trace, and its rule.
fn place(args: &ExplainArgs, word: &str) -> Result<u8, Trouble> {
    let traces: Vec<PathBuf> = match &args.trace {
        Some(trace) => vec![trace.clone()],
        None => vec![latest().ok_or_else(|| {
            Trouble::new(
                format!("explain the place `{word}`"),
                format!("there is no trace in {}", trace_dir::DEFAULT_PARENT),
                "name the trace: syncaudit explain FINGERPRINT TRACE",
            )
        })?],
    };
    let mut settings = judge::Settings::of(&args.audit)?;
    settings.against_configured()?;
    let options = settings.options(&args.audit, judge::recorded_steps(&traces).as_ref());
    let judged = settings.judge(
        vec![syncaudit::assess(&load(&traces)?, &options, syncaudit::price::Effort::Full)],
        &options,
    )?;
    let sites = &judged.audit.sites;
    let found: Vec<usize> =
        (0..sites.len()).filter(|&site| sites[site].fingerprint.starts_with(word)).collect();
    let shown = traces[0].display();
    match found[..] {
        [site] => {
            if args.trace.is_none() {
                say(&format!("from the latest trace, {shown}"));
            }
            let rule = rules::find(sites[site].rule).unwrap_or_else(|| rules::general(sites[site].kind));
            print(|style| {
                format!("{}\n{}", report::explain_site(&judged, site, style), report::explain(rule, style))
            })
        }
        [] => Err(Trouble::new(
            format!("explain the place `{word}`"),
            format!("{shown} has no such place"),
            "the ids of its places are in `syncaudit report`; another trace can be named behind the id",
        )),
        _ => {
            let ids: Vec<&str> = found.iter().map(|&site| sites[site].fingerprint.as_str()).collect();
            Err(Trouble::new(
                format!("explain the place `{word}`"),
                format!("{} places begin so: {}", ids.len(), ids.join(", ")),
                "type more of its digits",
            ))
        }
    }
}

/// The trace that was made last, of those where `run` puts them.
fn latest() -> Option<PathBuf> {
    let entries = std::fs::read_dir(Path::new(trace_dir::DEFAULT_PARENT)).ok()?;
    let traces = entries.flatten().filter_map(|entry| {
        // Beside the traces lie a `.gitignore` and whatever else was put there.
        let made = std::fs::metadata(entry.path().join(record::FILE)).ok()?.modified().ok()?;
        Some((made, entry.path()))
    });
    traces.max().map(|(_, path)| path)
}

fn print(text: impl Fn(TextStyle) -> String) -> Result<u8, Trouble> {
    Outputs::open(vec![(Format::Text, Sink::Stdout)])?.write(|_, style| text(style))?;
    Ok(exit::PASS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_told_from_a_word() {
        for id in ["140073c79f76b8ca", "1400", "1", "AB"] {
            assert!(is_fingerprint(id), "{id}");
        }
        for word in ["", "polling", "140073c79f76b8ca0"] {
            assert!(!is_fingerprint(word), "{word}");
        }
    }

    #[test]
    fn an_unknown_word_finds_the_closest_of_rules_and_codes() {
        assert_eq!(closest("new-wiat"), Some("new-wait"));
        assert_eq!(closest("mask-indexin"), Some("mask-indexing"));
        assert_eq!(closest("frobnicate everything"), None);
    }
}
