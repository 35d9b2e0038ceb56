//! The main job on real input, as a user would type it: the reference trainer under audit, before and after.
//!
//! In: the built workspace. Out: both audits on stdout; an error unless the old way was found over budget with every one of
//! its sources and the new way within budget with no wait at all on an ordinary step.

use crate::build;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

pub fn demo(steps: u32) -> Result<(), String> {
    build::workspace()?;
    let folder = build::release().parent().expect("target directory").join("demo");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let legacy = run(&folder, "legacy", steps, 1)?;
    let default = run(&folder, "none", steps, 0)?;

    expect(&legacy, "verdict", "fail")?;
    expect(&default, "verdict", "pass")?;
    let per_step = |report: &Value| report["totals"]["ordinary_waits_per_step"].as_f64().unwrap_or(f64::NAN);
    let (before, after) = (per_step(&legacy), per_step(&default));
    if !(before > 0.0 && after == 0.0) {
        return Err(format!("waits per ordinary step: {before} with --waits legacy, {after} without"));
    }
    println!();
    println!("waits per ordinary step: {before} with --waits legacy, {after} with the default.");
    println!("reports: {0}/legacy.json, {0}/none.json", folder.display());
    Ok(())
}

fn run(folder: &Path, waits: &str, steps: u32, expected: i32) -> Result<Value, String> {
    let report = folder.join(format!("{waits}.json"));
    let steps = steps.to_string();
    let words = [
        "run",
        "--device",
        "emulated",
        "--no-trace",
        "--format",
        "text=-",
        "--format",
        &format!("json={}", report.display()),
        "--",
    ];
    let trainer = ["dflash-train", "--waits", waits, "--steps", &steps, "--log-every", "8"];
    println!("\n$ syncaudit {} {}\n", words.join(" "), trainer.join(" "));
    let mut command = Command::new(build::release().join("syncaudit"));
    // The trainer by its bare name, as in the line above, so that the line can be typed.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([build::release()].into_iter().chain(std::env::split_paths(&path)))
        .map_err(|error| error.to_string())?;
    let status = build::status(command.args(words).args(trainer).env("PATH", path))?;
    if status != expected {
        return Err(format!(
            "the audit with --waits {waits} ended with status {status}, expected {expected}"
        ));
    }
    let bytes = fs::read(&report).map_err(|error| format!("{}: {error}", report.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", report.display()))
}

fn expect(report: &Value, key: &str, expected: &str) -> Result<(), String> {
    match report[key].as_str() {
        Some(found) if found == expected => Ok(()),
        found => Err(format!("{key} is {found:?}, expected {expected:?}")),
    }
}
