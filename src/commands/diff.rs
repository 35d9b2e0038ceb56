//! `syncaudit diff`: two traces side by side.

use crate::cli::{DiffArgs, Format, Sink};
use crate::judge::Outputs;
use crate::trouble::Trouble;
use crate::{judge, load};
use std::path::Path;
use syncaudit::gate::Diff;
use syncaudit::{audit, exit, report};

pub fn diff(args: &DiffArgs) -> Result<u8, Trouble> {
    let settings = judge::Settings::of(&args.audit)?;
    let reports = args
        .output
        .reports(Sink::Stdout)
        .map_err(|found| Trouble::new("write the reports", found, "see `syncaudit diff --help`"))?;
    if let Some((format, _)) = reports.iter().find(|(format, _)| report_of(*format).is_none()) {
        let format = format.id();
        return Err(Trouble::new(
            format!("compare two traces as {format}"),
            format!(
                "a {format} report is about the findings of one run; a comparison has text, json and markdown"
            ),
            format!("for what is new in NEW: syncaudit check NEW --baseline FILE --format {format}"),
        ));
    }
    let outputs = Outputs::open(reports)?;
    let judged = |trace: &Path| {
        let trace = [trace.to_owned()];
        let options = settings.options(&args.audit, judge::recorded_steps(&trace).as_ref());
        settings.judge(vec![audit::audit(&load(&trace)?, &options)], &options)
    };
    let diff = Diff::of(&judged(&args.old)?, &judged(&args.new)?, &settings.options(&args.audit, None));
    outputs.write(|format, _| report_of(format).map(|report| report(&diff)).unwrap_or_default())?;
    Ok(exit::status(diff.verdict, args.audit.report_only))
}

/// The report of a comparison in a format, where there is one.
fn report_of(format: Format) -> Option<fn(&Diff) -> String> {
    match format {
        Format::Text => Some(report::diff_text),
        Format::Json => Some(report::diff_json),
        Format::Markdown => Some(report::diff_markdown),
        Format::Github | Format::Sarif | Format::Junit | Format::Html => None,
    }
}
