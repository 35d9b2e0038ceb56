//! Traces of PyTorch's profiler (Kineto) and other Chrome trace JSON with its vocabulary.
//!
//! In: plain text of a trace, as a stream. Out: processes in a [`TraceBuilder`], and what the file says about its place in
//! a job. Events go to the model as they are read: the text is never held whole (`window.rs`), nor a tree of it. What is
//! damaged is counted in [`Problem`]s with the offset of the first damage; never a smaller trace in silence.
//! What a profiler trace can and can't tell: `docs/import-kineto.md`.

mod build;
mod event;
mod json;
mod names;
mod own;
mod places;
mod reader;
mod window;

use std::io::{self, Read};

use super::ImportError;
use super::job::Imported;
use crate::model::{Problem, ProblemKind, SourceKind, TraceBuilder};
use build::FileBuilder;
pub(super) use names::{is_annotation, rank_of_file};
use reader::{Damage, NotATrace};

/// Whether a text that begins like this may be such a trace.
pub(super) fn looks_like(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    !super::foreign::is_utf16(head)
        && matches!(head.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
}

/// Reads one file. `name` is its path as the user gave it, `progress` is called now and then.
pub(super) fn import(
    name: &std::path::Path,
    text: &mut dyn Read,
    trace: &mut TraceBuilder,
    progress: &mut dyn FnMut(),
) -> Result<Imported, ImportError> {
    let shown = name.display().to_string();
    let problems_before = trace.problems.len();
    let mut file = FileBuilder::new(trace, progress);
    let damage = match reader::read(text, &mut file) {
        Ok(damage) => damage,
        Err(NotATrace { offset, expected, well_formed }) => {
            let error = ImportError::new(
                name,
                format!(
                    "at byte {offset} {expected} was expected. This is no trace of PyTorch's profiler; record one with \
                     torch.profiler.profile(...) and export_chrome_trace(...) or tensorboard_trace_handler(...)"
                ),
            );
            return Err(if well_formed { error.foreign() } else { error });
        }
    };
    if file.events == 0 {
        return Err(nothing_in_it(name, damage));
    }
    file.finish();
    let processes = file.processes();
    let (facts, unused) = (std::mem::take(&mut file.facts), std::mem::take(&mut file.unused));
    let (calls, device_events) = (file.calls, file.device_events);

    trace.source.kind = SourceKind::Kineto;
    note_damage(&shown, damage, trace);
    note_unused(&shown, &unused, trace);
    if processes.is_empty() {
        trace.problems.truncate(problems_before);
        return Err(ImportError::new(
            name,
            "no event in it has a category of PyTorch's profiler (cpu_op, cuda_runtime, kernel, ...), so there is \
             nothing to audit. Record the trace with torch.profiler",
        ));
    }
    if calls == 0 {
        trace.problem(Problem::new(ProblemKind::CuptiMissing, no_calls(&shown, device_events)));
    }
    let rank =
        facts.rank.or_else(|| name.file_name().and_then(|name| names::rank_of_file(&name.to_string_lossy())));
    let host = facts.host.as_deref().map_or(crate::model::StrId::NONE, |host| trace.intern(host));
    for process in processes.clone() {
        let mut process = trace.process_at(process);
        let data = process.data();
        data.rank = rank;
        data.host = host;
    }
    let mut versions = facts.versions.clone();
    let mut devices = facts.devices.clone();
    devices.dedup();
    versions.extend(devices.into_iter().map(|name| ("device".to_owned(), name)));
    for version in versions {
        if !trace.source.versions.contains(&version) {
            trace.source.versions.push(version);
        }
    }
    Ok(Imported {
        ranks: rank.into_iter().collect(),
        world_size: facts.world_size,
        base_ns: facts.base_ns,
        processes,
    })
}

fn no_calls(shown: &str, device_events: u64) -> String {
    if device_events > 0 {
        format!(
            "{shown} has work on a device but no calls of the CUDA runtime or driver, so no wait can be seen in it. It was \
             filtered, or recorded without ProfilerActivity.CPU"
        )
    } else {
        format!(
            "{shown} has no CUDA calls and no device work at all: it was recorded without ProfilerActivity.CUDA, on a \
             machine without a GPU, or with CUPTI held by another tool. Record it with activities=[CPU, CUDA]"
        )
    }
}

fn nothing_in_it(name: &std::path::Path, damage: Damage) -> ImportError {
    let text = match (damage.error, damage.cut_at, damage.first_lost) {
        (Some(error), ..) => format!("{} before the first event", reading_failed(&error)),
        (None, Some(offset), _) => format!(
            "the file ends at byte {offset} before the first event; the program was killed while it wrote the trace, or \
             the copy is incomplete"
        ),
        (None, None, Some((offset, expected))) => {
            format!("at byte {offset} there is no {expected}, and nothing after it can be read as an event")
        }
        _ => "its list of events is empty: the profiler recorded nothing. Did the program reach a step in which the \
              profiler's schedule records?"
            .to_owned(),
    };
    ImportError::new(name, text)
}

fn reading_failed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::Other => super::input::unpacking_failed(error),
        _ => format!("reading failed ({error})"),
    }
}

fn note_damage(shown: &str, damage: Damage, trace: &mut TraceBuilder) {
    if let Some((offset, expected)) = damage.first_lost {
        trace.problem(Problem::counted(
            ProblemKind::Corrupt,
            damage.lost,
            format!(
                "{shown} is damaged in {} (first at byte {offset}: expected {expected}): {} bytes were skipped, the events \
                 in them are lost",
                places(damage.lost),
                damage.lost_bytes
            ),
        ));
    }
    if damage.mended > 0 {
        trace.problem(Problem::counted(
            ProblemKind::Note,
            damage.mended,
            format!(
                "{shown}: {} with a quote in a text that was not escaped were mended, nothing of them is lost",
                events(damage.mended)
            ),
        ));
    }
    match (damage.error, damage.cut_at) {
        (Some(error), at) => trace.problem(Problem::new(
            ProblemKind::Truncated,
            format!(
                "{shown}: {}{}; what came before is used",
                reading_failed(&error),
                at.map_or_else(String::new, |at| format!(" after {at} bytes of text"))
            ),
        )),
        (None, Some(at)) => trace.problem(Problem::new(
            ProblemKind::Truncated,
            format!(
                "{shown} ends at byte {at} {}: the program was killed while it wrote the trace, or the copy is incomplete; \
                 what came before is used",
                if damage.cut_inside_event { "in the middle of an event" } else { "before the end of the trace" }
            ),
        )),
        (None, None) if damage.open_array => trace.problem(Problem::new(
            ProblemKind::Truncated,
            format!("{shown} ends without the closing bracket of its list, so events at its end may be missing"),
        )),
        (None, None) => {}
    }
    if damage.trailing > 0 {
        trace.problem(Problem::counted(
            ProblemKind::Note,
            damage.trailing,
            format!("{shown}: {} bytes after the end of the trace were not read", damage.trailing),
        ));
    }
}

fn note_unused(shown: &str, unused: &build::Unused, trace: &mut TraceBuilder) {
    let mut note = |kind, count, text: &str| {
        if count > 0 {
            trace.problem(Problem::counted(kind, count, format!("{shown}: {} {text}", events(count))));
        }
    };
    note(ProblemKind::LostRecords, unused.incomplete, "without phase or time can't be used");
    note(ProblemKind::LostRecords, unused.negative_time, "before time zero can't be used");
    note(ProblemKind::LostRecords, unused.lone_end, "end something that never began and can't be used");
    note(
        ProblemKind::NoDuration,
        unused.no_duration,
        "without a duration that makes sense are shown without one: what lies inside of them, or was waited for, can't be told",
    );
    note(
        ProblemKind::ClockUnreliable,
        unused.no_duration_beside,
        "without a duration that makes sense, of which no wait depends, are shown without one",
    );
    note(ProblemKind::Note, unused.further_categories, "of further unknown categories were not used");
    for (category, count) in &unused.unknown_categories {
        let category = String::from_utf8_lossy(category);
        note(ProblemKind::Note, *count, &format!("of the unknown category '{category}' were not used"));
    }
}

fn events(count: u64) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}

fn places(count: u64) -> String {
    if count == 1 { "1 place".to_owned() } else { format!("{count} places") }
}
