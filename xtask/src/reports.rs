//! The folder `reports/`: the reference trainer as a job of three trainers and a rollout, audited before and after, with the gate's
//! baselines, the benchmark, and a page that tells the story with real output.
//!
//! In: the built workspace, and with `--check` the folder as it is committed. Out: the folder written anew, or an error that names
//! each count and place in which the committed one differs from what the trainer does now. Nothing that is compared is a time, a line
//! number, a process id or the wording of a report: [`facts`] says what is left.

mod facts;
mod story;

use crate::build;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The five historical sources of waits: the names of their files in `reference/src/waits/`.
const SOURCES: [&str; 5] = ["batch_copy", "anchors", "scalars", "acks", "metrics"];
/// Ranks that train; the fourth process rolls out.
const TRAINERS: [u64; 3] = [0, 1, 2];

/// An audit of a whole job.
struct Audit {
    /// `domino-legacy`: the name of its files and of its trace.
    name: String,
    /// What the shell would be given, with the trace in the folder that one stands in.
    command: String,
    /// The report as JSON, as it came.
    report: Value,
    /// The report as text.
    text: String,
    /// The report as Markdown.
    markdown: String,
}

/// Writes `reports/`, or compares it with what would be written.
pub fn reports(check: bool) -> Result<(), String> {
    build::workspace()?;
    let made = Workshop::new()?;
    let (dflash, domino) = (made.before_and_after("dflash")?, made.before_and_after("domino")?);
    let back = made.audit("one-is-back", "domino", "anchors", 1)?;

    made.baseline(&domino.0.name, "legacy.baseline")?;
    made.baseline(&domino.1.name, "syncaudit.baseline")?;
    let output = story::Output {
        diff: syncaudit(&["diff", &made.trace(&domino.0.name), &made.trace(&domino.1.name)], 0)?,
        accepted: made.check(&domino.0.name, "legacy.baseline", 0)?,
        fixed: made.check(&domino.1.name, "legacy.baseline", 0)?,
        back: made.check(&back.name, "syncaudit.baseline", 1)?,
        // Times are not compared, so a check needs no more steps than make a table.
        bench: made.bench(if check { "2" } else { "10" })?,
    };
    for audit in [&dflash.0, &dflash.1, &domino.0, &domino.1] {
        made.write(&format!("{}.json", audit.name), &facts::page(&facts::of(&audit.report)))?;
        made.write(&format!("{}.md", audit.name), &audit.markdown)?;
    }
    made.write("bench.txt", &output.bench)?;
    made.write("README.md", &story::page(&dflash, &domino, &back, &output)?)?;

    let committed = build::root().join("reports");
    if check { made.compare(&committed) } else { made.publish(&committed) }
}

/// Where traces lie and files are made, before they are published or compared.
struct Workshop {
    folder: PathBuf,
}

impl Workshop {
    fn new() -> Result<Self, String> {
        let folder = build::release().parent().expect("target directory").join("reports");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        fs::create_dir_all(folder.join("new")).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder })
    }

    fn trace(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// With all historical waits, and as the trainer is. An error if that is not what the audits say.
    fn before_and_after(&self, algorithm: &str) -> Result<(Audit, Audit), String> {
        let legacy = self.audit(&format!("{algorithm}-legacy"), algorithm, "legacy", 1)?;
        let default = self.audit(&format!("{algorithm}-default"), algorithm, "none", 0)?;
        legacy_waits_for_every_source(&legacy)?;
        default_never_waits(&default)?;
        Ok((legacy, default))
    }

    /// Trains the whole job under audit and keeps trace, JSON, text and Markdown.
    fn audit(&self, name: &str, algorithm: &str, waits: &str, status: i32) -> Result<Audit, String> {
        println!("==> {name}");
        let trainer = format!(
            "dflash-train train --algorithm {algorithm} --trainers 3 --rollouts 1 --waits {waits} --steps 12 --log-every 4"
        );
        let file = |suffix: &str| self.folder.join(format!("{name}.{suffix}"));
        let formats = [
            format!("json={}", file("json").display()),
            format!("text={}", file("txt").display()),
            format!("markdown={}", file("md").display()),
        ];
        let trace = self.trace(name);
        let mut words = vec!["run", "--device", "emulated", "--trace", &trace];
        formats.iter().for_each(|format| words.extend(["--format", format]));
        words.push("--");
        words.extend(trainer.split(' '));
        syncaudit(&words, status)?;
        let report = serde_json::from_str(&read(&file("json"))?)
            .map_err(|error| format!("{}: {error}", file("json").display()))?;
        let command = format!("syncaudit run --device emulated --trace {name} -- {trainer}");
        Ok(Audit {
            name: name.to_owned(),
            command,
            report,
            text: read(&file("txt"))?,
            markdown: read(&file("md"))?,
        })
    }

    fn baseline(&self, trace: &str, file: &str) -> Result<(), String> {
        let file = self.folder.join("new").join(file);
        syncaudit(&["baseline", &self.trace(trace), "-o", &file.display().to_string()], 0).map(drop)
    }

    fn check(&self, trace: &str, baseline: &str, status: i32) -> Result<String, String> {
        let file = self.folder.join("new").join(baseline).display().to_string();
        let said = syncaudit(&["check", &self.trace(trace), "--baseline", &file], status)?;
        Ok(said.replace(&file, &format!("reports/{baseline}")))
    }

    /// The benchmark's table. Without a driver of its own, the emulated device is reached through `run` only.
    fn bench(&self, steps: &str) -> Result<String, String> {
        println!("==> bench");
        let report = format!("json={}", self.folder.join("bench.json").display());
        let words = ["run", "--device", "emulated", "--no-trace", "--report-only", "--format", &report, "--"];
        let bench = ["dflash-train", "bench", "--algorithm", "domino", "--measure", steps];
        syncaudit(&[&words[..], &bench[..]].concat(), 0)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join("new").join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn made(&self) -> Result<BTreeSet<String>, String> {
        files(&self.folder.join("new"))
    }

    fn publish(&self, committed: &Path) -> Result<(), String> {
        fs::create_dir_all(committed).map_err(|error| format!("{}: {error}", committed.display()))?;
        for name in self.made()? {
            let to = committed.join(&name);
            fs::copy(self.folder.join("new").join(&name), &to)
                .map_err(|error| format!("{}: {error}", to.display()))?;
            println!("written: reports/{name}");
        }
        Ok(())
    }

    fn compare(&self, committed: &Path) -> Result<(), String> {
        let there = files(committed)?;
        let mut differences = Vec::new();
        for name in self.made()? {
            if !there.contains(&name) {
                differences.push(format!("reports/{name} is not there"));
                continue;
            }
            let (old, new) = (read(&committed.join(&name))?, read(&self.folder.join("new").join(&name))?);
            differences
                .extend(facts::difference(&name, &old, &new).map(|what| format!("reports/{name}: {what}")));
        }
        if differences.is_empty() {
            println!("reports/ has every count and every place that the trainer has now");
            return Ok(());
        }
        Err(format!(
            "reports/ is not what the trainer does now:\n  {}\nIf that is meant to be, write it anew with `cargo xtask reports`, and look at what `git diff reports` says",
            differences.join("\n  ")
        ))
    }
}

/// Runs the command in the repository's root, where source paths start. Answers what it printed, if it ended with that status.
fn syncaudit(words: &[&str], status: i32) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([build::release()].into_iter().chain(std::env::split_paths(&path)))
        .map_err(|error| error.to_string())?;
    let mut command = Command::new(build::release().join("syncaudit"));
    // The trainer by its bare name, as on the page.
    command.args(words).current_dir(build::root()).env("PATH", path);
    let output = command.output().map_err(|error| format!("syncaudit does not start: {error}"))?;
    if output.status.code() == Some(status) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "`syncaudit {}` ended with {}, expected {status}\n{}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn files(folder: &Path) -> Result<BTreeSet<String>, String> {
    let fail =
        |error: std::io::Error| format!("{}: {error}; `cargo xtask reports` writes it", folder.display());
    let entries = fs::read_dir(folder).map_err(fail)?;
    entries.map(|entry| Ok(entry.map_err(fail)?.file_name().to_string_lossy().into_owned())).collect()
}

/// Waits per ordinary step of one rank at the places of one source.
fn waits(report: &Value, source: &str, rank: u64) -> Result<f64, String> {
    let steps = row(report, rank)?["ordinary_steps"].as_f64().unwrap_or(0.0);
    let of_rank = |site: &Value| {
        let share = list(&site["per_rank"]).iter().find(|share| share["rank"] == rank);
        share.and_then(|share| share["ordinary_waits"].as_f64()).unwrap_or(0.0)
    };
    Ok(places(report, source).map(of_rank).fold(0.0, |sum, waits| sum + waits) / steps)
}

/// The places of one source that make ordinary steps wait.
fn places<'r>(report: &'r Value, source: &str) -> impl Iterator<Item = &'r Value> {
    let file = format!("reference/src/waits/{source}.rs");
    list(&report["sites"]).iter().filter(move |site| {
        site["ordinary_waits"] != 0
            && list(&site["native"]).iter().any(|frame| frame["file"] == file.as_str())
    })
}

fn row(report: &Value, rank: u64) -> Result<&Value, String> {
    list(&report["ranks"])
        .iter()
        .find(|row| row["rank"] == rank)
        .ok_or_else(|| format!("the report has no rank {rank}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn legacy_waits_for_every_source(audit: &Audit) -> Result<(), String> {
    for rank in TRAINERS {
        for source in SOURCES {
            if waits(&audit.report, source, rank)? < 1.0 {
                return Err(format!(
                    "{}: rank {rank} does not wait for {source} in every ordinary step",
                    audit.name
                ));
            }
        }
    }
    Ok(())
}

fn default_never_waits(audit: &Audit) -> Result<(), String> {
    for rank in TRAINERS {
        let row = row(&audit.report, rank)?;
        if row["ordinary_waits"] != 0 || row["ordinary_steps"].as_u64().is_none_or(|steps| steps == 0) {
            return Err(format!(
                "{}: rank {rank} has waits in ordinary steps, or no such steps: {row}",
                audit.name
            ));
        }
    }
    Ok(())
}
