//! A trace for other tools: one file per format.
//!
//! In: a trace and its audit. Out: bytes, written as they come. Times of an emulated run mean nothing: where a format can't do
//! without times, the order of the events takes their place, and the file says so.

mod csv;
mod perfetto;
mod speedscope;

pub use csv::csv;
pub use perfetto::perfetto;
pub use speedscope::speedscope;

use crate::audit::Site;
use crate::report::words::place_text;
use crate::view::recording::Recording;

/// Where a site is, and the functions around it from the outermost inwards, for tools that show a tree.
fn stack_of(site: &Site) -> Vec<String> {
    let frames = if site.python.is_empty() { &site.native } else { &site.python };
    let user = frames.iter().any(|frame| frame.user);
    let mut names: Vec<String> = frames
        .iter()
        .filter(|frame| !user || frame.user)
        .map(|frame| match (frame.file.is_empty(), frame.line) {
            (true, _) => frame.function.clone(),
            (false, 0) => format!("{} ({})", frame.function, frame.file),
            (false, line) => format!("{} ({}:{line})", frame.function, frame.file),
        })
        .rev()
        .collect();
    if names.is_empty() {
        names.extend(site.range.iter().cloned());
        names.extend(site.op.clone());
    }
    names.push(format!("{} at {}", site.kind.id(), place_text(site)));
    names
}

/// The step of a wait as tables have it: number (or position) and kind.
fn step_of(rec: &Recording, step: Option<u32>) -> (String, &'static str) {
    match step.and_then(|step| rec.judged.audit.steps.get(step as usize)) {
        Some(step) => (Recording::step_name(step), step.kind.id()),
        None => (String::new(), "outside"),
    }
}
