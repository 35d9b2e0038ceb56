//! Predictions for the reference trainer against what happens: the trace of the legacy mode alone says what each of the 32 sets of the five sources of waits
//! would take, and then each set is really trained.
//!
//! In: the built workspace, as it was built with this program. Out: a table, on stdout and in a file. The device is emulated under a time model, so the times are the model's and this
//! machine's host's, from one run.

use crate::build;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use syncaudit::audit::audit;
use syncaudit::model::Trace;
use syncaudit::price::{recorded_step_ns, what_if};
use syncaudit::{Audit, AuditOptions};

const SOURCES: [(&str, &str); 5] = [
    ("metrics", "waits/metrics.rs"),
    ("anchors", "waits/anchors.rs"),
    ("scalars", "waits/scalars.rs"),
    ("acks", "waits/acks.rs"),
    ("batch-copy", "waits/batch_copy.rs"),
];

pub fn price(steps: u32, kernel_time: &str, output: &Path) -> Result<(), String> {
    let programs = programs()?;
    let folder = programs.parent().unwrap_or(&programs).join("price");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let train = |set: &[bool], name: &str| train(&programs, &folder.join(name), set, steps, kernel_time);
    let (legacy, found) = train(&[true; 5], "legacy")?;

    let mut rows = Vec::new();
    let mut errors = Vec::new();
    for number in 0..32u32 {
        let set: Vec<bool> = (0..5).map(|bit| number & (1 << bit) != 0).collect();
        let removed = sites_of(&found, &set)?;
        let predicted = what_if(&legacy, &found, &[removed]).map_err(|why| why.text())?;
        let predicted = predicted.first().map_or(0, |answer| answer.step_ns);
        let (trace, audit) = train(&set, &format!("set-{number}"))?;
        let real = recorded_step_ns(&trace, &audit).map_err(|why| why.text())?;
        let error = (predicted as f64 - real as f64) / real as f64 * 100.0;
        errors.push(error.abs());
        let row = format!(
            "| {} | {:.2} | {:.2} | {error:+.1} % |",
            words(&set),
            predicted as f64 / 1e6,
            real as f64 / 1e6
        );
        println!("{row}");
        rows.push(row);
    }
    errors.sort_by(f64::total_cmp);
    let (median, worst) = (errors[16], errors[31]);
    let text = format!(
        "# The reference trainer without some of its waits: predicted and trained\n\n\
         `cargo xtask price --steps {steps} --kernel-time {kernel_time}`: the trace of `--waits legacy` says how long an ordinary step would be with the waits of the first column only; then \
         the trainer is run with them. Emulated device under a time model: modelled kernels, the host of the machine at hand. One run, so each figure has that run's noise.\n\n\
         | waits left | predicted ms | trained ms | error |\n|---|---|---|---|\n{}\n\n\
         Median error {median:.1} %, worst {worst:.1} %.\n",
        rows.join("\n")
    );
    if let Some(parent) = output.parent() {
        fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    }
    fs::write(output, text).map_err(|error| format!("{}: {error}", output.display()))?;
    println!("median error {median:.1} %, worst {worst:.1} %; written to {}", output.display());
    Ok(())
}

fn words(set: &[bool]) -> String {
    let names: Vec<&str> =
        SOURCES.iter().zip(set).filter(|(_, on)| **on).map(|((name, _), _)| *name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// The folder of the programs that were built like this one.
fn programs() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = own.parent().ok_or("this program lies in no folder")?.to_owned();
    let release: &[&str] = if folder.ends_with("release") { &["--release"] } else { &[] };
    build::cargo(&[&["build", "--workspace"], release].concat())?;
    Ok(folder)
}

/// Trains with some of the sources and reads the trace back.
fn train(
    programs: &Path,
    trace: &Path,
    set: &[bool],
    steps: u32,
    kernel_time: &str,
) -> Result<(Trace, Audit), String> {
    let output = Command::new(programs.join("syncaudit"))
        .args([
            "run",
            "--device",
            "emulated",
            "--gpu-timeline",
            "--report-only",
            "--kernel-time",
            kernel_time,
            "--trace",
        ])
        .arg(trace)
        .arg("--")
        .arg(programs.join("dflash-train"))
        .args(["--waits", &words(set), "--log-every", "1000", "--steps", &steps.to_string()])
        .current_dir(build::root())
        .output()
        .map_err(|error| format!("syncaudit does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("training with {}: {}", words(set), String::from_utf8_lossy(&output.stderr)));
    }
    let trace = syncaudit::load_path(&[trace.to_owned()]).map_err(|error| error.text)?;
    let audit = audit(&trace, &AuditOptions::default());
    Ok((trace, audit))
}

/// The sites of the sources that are off.
fn sites_of(found: &Audit, set: &[bool]) -> Result<Vec<usize>, String> {
    let mut sites = Vec::new();
    for ((name, file), _) in SOURCES.iter().zip(set).filter(|(_, on)| !**on) {
        let of_file = |site: &usize| {
            let frames = &found.sites[*site].native;
            frames.iter().any(|frame| frame.file.ends_with(file))
                || found.sites[*site].call_site.as_ref().is_some_and(|frame| frame.file.ends_with(file))
        };
        let before = sites.len();
        sites.extend((0..found.sites.len()).filter(of_file));
        if sites.len() == before {
            return Err(format!("the trace of the legacy mode has no wait of {name}"));
        }
    }
    Ok(sites)
}
