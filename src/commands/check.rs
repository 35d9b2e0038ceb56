//! `syncaudit check`: judges recorded runs by configuration and baseline.

use crate::cli::{CheckArgs, RunsWord, Sink};
use crate::trouble::Trouble;
use crate::{judge, load, outputs};
use syncaudit::gate::Runs;
use syncaudit::price::Effort;
use syncaudit::{assess, exit};

pub fn check(args: &CheckArgs) -> Result<u8, Trouble> {
    let mut settings = judge::Settings::of(&args.audit)?;
    if let Some(path) =
        args.baseline.clone().or_else(|| settings.baseline_path().map(std::path::Path::to_owned))
    {
        settings.against(&path)?;
    }
    match args.runs {
        Some(RunsWord::Any) => settings.runs(Runs::Any),
        Some(RunsWord::All) => settings.runs(Runs::All),
        None => {}
    }
    let outputs = outputs(&args.output, Sink::Stdout)?;
    let mut runs = Vec::new();
    for trace in &args.traces {
        let trace = std::slice::from_ref(trace);
        let options = settings.options(&args.audit, judge::recorded_steps(trace).as_ref());
        runs.push(assess(&load(trace)?, &options, Effort::Full));
    }
    // Steps are found by now; budgets and severities are the same for all runs.
    let judged = settings.judge(runs, &settings.options(&args.audit, None))?;
    outputs.write(|format, style| judge::render(&judged, format, style, true))?;
    Ok(exit::status(judged.audit.verdict, args.audit.report_only))
}
