//! `syncaudit diff`: two traces side by side.

use super::write_whole;
use crate::cli::{DiffArgs, DiffFormat};
use crate::trouble::Trouble;
use crate::{judge, load};
use std::path::Path;
use syncaudit::gate::Diff;
use syncaudit::{audit, exit, report};

pub fn diff(args: &DiffArgs) -> Result<u8, Trouble> {
    let settings = judge::Settings::of(&args.audit)?;
    let judged = |trace: &Path| {
        let trace = [trace.to_owned()];
        let options = settings.options(&args.audit, judge::recorded_steps(&trace).as_ref());
        settings.judge(vec![audit::audit(&load(&trace)?, &options)], &options)
    };
    let diff = Diff::of(&judged(&args.old)?, &judged(&args.new)?, &settings.options(&args.audit, None));
    let text = match args.format {
        DiffFormat::Text => report::diff_text(&diff),
        DiffFormat::Json => report::diff_json(&diff),
    };
    write_whole(args.output.as_deref().unwrap_or(Path::new("-")), &text)?;
    Ok(exit::status(diff.verdict, args.audit.report_only))
}
