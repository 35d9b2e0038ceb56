//! `reports/README.md`: the story in `story.md`, filled with what the commands printed and what the audits count.
//!
//! In: the audits and the output of the other commands. Out: the page. It holds no number that was not found in them.

use super::{Audit, SOURCES, TRAINERS, list, places, waits};

const TEMPLATE: &str = include_str!("story.md");
/// Lines of a long list that the page shows.
const SHOWN: usize = 6;

/// What the commands beside the audits printed.
pub struct Output {
    pub diff: String,
    pub accepted: String,
    pub fixed: String,
    pub back: String,
    pub bench: String,
}

/// The page.
pub fn page(
    dflash: &(Audit, Audit),
    domino: &(Audit, Audit),
    back: &Audit,
    output: &Output,
) -> Result<String, String> {
    let (legacy, default) = domino;
    if list(&back.report["sites"]).iter().filter(|site| site["ordinary_waits"] != 0).count() != 1 {
        return Err(format!("{} has not exactly one place that waits", back.name));
    }
    let over_budget =
        |audit: &Audit| SOURCES.iter().map(|source| places(&audit.report, source).count()).sum::<usize>();
    let fills = [
        ("legacy_command", legacy.command.clone()),
        (
            "legacy_text",
            format!("{}\n...\n\n{}\n...", first_finding(&legacy.text), section(&legacy.text, "ranks")),
        ),
        ("domino_places", over_budget(legacy).to_string()),
        ("domino_table", table(domino)?),
        ("dflash_places", over_budget(&dflash.0).to_string()),
        ("dflash_table", table(dflash)?),
        ("default_command", default.command.clone()),
        ("default_text", format!("{}\n...\n\n{}\n...", card(&default.text), section(&default.text, "ranks"))),
        ("default_outside", default.report["totals"]["outside_steps_waits"].to_string()),
        ("diff", shortened(&output.diff)),
        ("accepted", shortened(&output.accepted)),
        ("fixed", shortened(&output.fixed)),
        ("back", output.back.trim_end().to_owned()),
        ("bench", output.bench.trim_end().to_owned()),
    ];
    let mut page = TEMPLATE.to_owned();
    for (name, text) in fills {
        let mark = format!("{{{{{name}}}}}");
        if !page.contains(&mark) {
            return Err(format!("story.md has no place for {mark}"));
        }
        page = page.replace(&mark, &text);
    }
    match page.find("{{") {
        Some(at) => {
            Err(format!("story.md asks for what is not there: {}", page[at..].lines().next().unwrap_or("")))
        }
        None => Ok(page),
    }
}

/// Waits per ordinary step, by source and rank: before, and after.
fn table((legacy, default): &(Audit, Audit)) -> Result<String, String> {
    let mut text = "| source | places | rank 0 | rank 1 | rank 2 | any rank, as it is now |\n|---|---|---|---|---|---|\n".to_owned();
    let mut sums = [0.0; 5];
    for source in SOURCES {
        let mut cells = vec![places(&legacy.report, source).count() as f64];
        for rank in TRAINERS {
            cells.push(waits(&legacy.report, source, rank)?);
        }
        let now: Result<f64, String> =
            TRAINERS.iter().map(|rank| waits(&default.report, source, *rank)).sum();
        cells.push(now?);
        sums.iter_mut().zip(&cells).for_each(|(sum, cell)| *sum += cell);
        text += &line(&format!("`{source}`"), &cells);
    }
    text += &line("all", &sums);
    text.truncate(text.trim_end().len());
    Ok(text)
}

fn line(name: &str, cells: &[f64]) -> String {
    let cells: Vec<String> = cells.iter().map(f64::to_string).collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}

/// Verdict and head of a report.
fn card(text: &str) -> &str {
    text.split("\n\n").next().unwrap_or(text)
}

/// The same, and the first place with its source line.
fn first_finding(text: &str) -> &str {
    let end = text.match_indices("\nerror[").nth(1).map_or(text.len(), |(at, _)| at);
    text[..end].trim_end()
}

/// The beginning of a section.
fn section(text: &str, name: &str) -> String {
    let lines = text.lines().skip_while(|line| *line != name).take_while(|line| !line.is_empty());
    lines.take(SHOWN + 1).collect::<Vec<_>>().join("\n")
}

/// Lists of one kind of line are cut, and the cut is counted.
fn shortened(text: &str) -> String {
    let kind = |line: &str| match line.split_once(' ') {
        Some((first, _)) if first.starts_with("note[") => first.to_owned(),
        _ => line.chars().take_while(|letter| *letter == ' ').collect(),
    };
    let mut lines: Vec<String> = Vec::new();
    let (mut before, mut run) = (String::new(), 0);
    for line in text.trim_end().lines().chain(["\u{0}"]) {
        let kind = if line.trim().is_empty() { String::new() } else { kind(line) };
        if kind != before {
            if run > SHOWN {
                lines.push(format!("... and {} more", run - SHOWN));
            }
            (before, run) = (kind, 0);
        }
        run += 1;
        if run <= SHOWN || before.is_empty() {
            lines.push(line.to_owned());
        }
    }
    lines.pop();
    lines.join("\n")
}
