//! Where the run got to: names of ranges, operators and functions, waiting or not.
//!
//! In: a trace and the sites found in it. Out: names as fingerprints use them. A gate needs them to tell a wait that is gone from one whose
//! place this run never reached; a name that is missing proves nothing by itself (stacks are taken of waits only).

use std::collections::BTreeSet;

use super::sites::{self, Site};
use crate::model::{SpanKind, Trace};

/// All names of the run.
pub(super) fn names(trace: &Trace, sites: &[Site]) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = sites
        .iter()
        .flat_map(|site| site.range.iter().chain(&site.ops).chain(&site.functions))
        .cloned()
        .collect();
    // A trace has many spans with few names: each name is looked at once.
    let mut known: Vec<bool> = Vec::new();
    let spans = trace.processes.iter().flat_map(|process| &process.threads).flat_map(|thread| &thread.spans);
    let free = trace.processes.iter().flat_map(|process| &process.free_ranges);
    for (id, kind) in
        spans.map(|span| (span.name, span.kind)).chain(free.map(|range| (range.name, SpanKind::Range)))
    {
        let Some(index) = id.get() else { continue };
        if index >= known.len() {
            known.resize(index + 1, false);
        }
        if std::mem::replace(&mut known[index], true) {
            continue;
        }
        let text = trace.str(id);
        names.insert(match kind {
            SpanKind::PythonFrame => text.split_once("): ").map_or(text, |(_, function)| function).to_owned(),
            SpanKind::Range | SpanKind::Op => sites::clean_name(text).0.to_owned(),
        });
    }
    names
}
