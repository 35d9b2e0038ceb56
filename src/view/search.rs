//! Search over functions, files, ranges and APIs.
//!
//! In: a word. Out: which names have it in them, how many events that are, and the next such event from a moment on. Names are
//! compared once each; events by number only. Letters match in both cases.

use super::lod::Intervals;
use super::recording::{Lane, LaneKind, Recording};
use super::state::Part;
use crate::model::{ApiId, StrId};

/// A word that was searched for, and the names that have it.
#[derive(Clone, Debug)]
pub struct Query {
    pub text: String,
    names: Vec<bool>,
    apis: Vec<bool>,
    sites: Vec<bool>,
}

/// How many events match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub ranges: u64,
    pub calls: u64,
    pub waits: u64,
    pub device: u64,
}

impl Hits {
    /// All of them; a wait whose call matches too counts for both.
    #[must_use]
    pub fn total(self) -> u64 {
        self.ranges + self.calls + self.waits + self.device
    }
}

/// A match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub lane: usize,
    pub part: Part,
    pub start_ns: u64,
    pub name: String,
}

impl Query {
    /// Finds the names that have `text` in them.
    #[must_use]
    pub fn new(text: &str, rec: &Recording) -> Self {
        let word = text.to_lowercase();
        let has = |name: &str| {
            if name.is_ascii() && word.is_ascii() {
                contains_ascii(name.as_bytes(), word.as_bytes())
            } else {
                name.to_lowercase().contains(&word)
            }
        };
        let count = u32::try_from(rec.trace.strings.len()).unwrap_or(u32::MAX);
        let names = (0..count).map(|id| has(rec.trace.str(StrId(id)))).collect();
        let apis = rec.trace.apis.iter().map(|api| has(&api.name)).collect();
        let sites = rec
            .judged
            .audit
            .sites
            .iter()
            .map(|site| {
                let frames = site.python.iter().chain(&site.native).chain(&site.call_site);
                let mut texts = frames.flat_map(|frame| [&frame.file, &frame.function]);
                texts.any(|text| has(text)) || site.range.iter().chain(&site.ops).any(|name| has(name))
            })
            .collect();
        Self { text: text.to_owned(), names, apis, sites }
    }

    /// Whether a site's functions, files or ranges match.
    #[must_use]
    pub fn has_site(&self, site: usize) -> bool {
        self.sites.get(site).copied().unwrap_or(false)
    }

    fn has_name(&self, id: StrId) -> bool {
        id.get().and_then(|id| self.names.get(id)).copied().unwrap_or(false)
    }

    fn has_api(&self, id: ApiId) -> bool {
        id.get().and_then(|id| self.apis.get(id)).copied().unwrap_or(false)
    }

    /// How many events match.
    #[must_use]
    pub fn count(&self, rec: &Recording) -> Hits {
        let mut hits = Hits::default();
        let any = |flags: &[bool]| flags.contains(&true);
        if any(&self.sites) {
            hits.waits =
                rec.judged.audit.waits.iter().filter(|wait| self.has_site(wait.site as usize)).count() as u64;
        }
        for lane in &rec.lanes {
            let process = &rec.trace.processes[lane.process as usize];
            match lane.kind {
                LaneKind::Thread(thread) => {
                    let thread = &process.threads[thread as usize];
                    if any(&self.apis) {
                        hits.calls +=
                            thread.calls.iter().filter(|call| self.has_api(call.api)).count() as u64;
                    }
                    if any(&self.names) {
                        let spans = lane.ranges.iter().flatten().map(|&span| &thread.spans[span as usize]);
                        hits.ranges += spans.filter(|span| self.has_name(span.name)).count() as u64;
                    }
                }
                LaneKind::Stream(_) if any(&self.names) => {
                    let ops = lane.ops.iter().map(|&op| &process.device_ops[op as usize]);
                    hits.device += ops.filter(|op| self.has_name(op.name)).count() as u64;
                }
                LaneKind::Stream(_) => {}
            }
        }
        hits
    }

    /// The nearest match that begins after (or before) a moment, on one of the lanes.
    #[must_use]
    pub fn next(&self, rec: &Recording, lanes: &[usize], from_ns: u64, forwards: bool) -> Option<Hit> {
        let mut best: Option<Hit> = None;
        for &index in lanes {
            let lane = &rec.lanes[index];
            for part in parts(lane) {
                if let Some((start_ns, name)) = self.next_in(rec, lane, part, from_ns, forwards) {
                    let nearer = |best: &Hit| {
                        if forwards { start_ns < best.start_ns } else { start_ns > best.start_ns }
                    };
                    if best.as_ref().is_none_or(nearer) {
                        best = Some(Hit { lane: index, part, start_ns, name });
                    }
                }
            }
        }
        best
    }

    fn next_in(
        &self,
        rec: &Recording,
        lane: &Lane,
        part: Part,
        from_ns: u64,
        forwards: bool,
    ) -> Option<(u64, String)> {
        let process = &rec.trace.processes[lane.process as usize];
        match (part, lane.kind) {
            (Part::Waits, _) => {
                let waits = &lane.waits;
                let at = scan(
                    waits.len(),
                    |i| waits.start_ns(i),
                    |i| self.has_site(rec.judged.audit.waits[waits.ids[i] as usize].site as usize),
                    from_ns,
                    forwards,
                )?;
                let wait = &rec.judged.audit.waits[waits.ids[at] as usize];
                Some((wait.start_ns, wait.kind.id().to_owned()))
            }
            (Part::Calls, LaneKind::Thread(thread)) => {
                let calls = &process.threads[thread as usize].calls;
                let start = |i: usize| calls[i].start_ns;
                let at = scan(calls.len(), start, |i| self.has_api(calls[i].api), from_ns, forwards)?;
                Some((calls[at].start_ns, rec.trace.api(calls[at].api).name.clone()))
            }
            (Part::Range(depth), LaneKind::Thread(thread)) => {
                let spans = &process.threads[thread as usize].spans;
                let ids = &lane.ranges[depth];
                let span = |i: usize| &spans[ids[i] as usize];
                let at = scan(
                    ids.len(),
                    |i| span(i).start_ns,
                    |i| self.has_name(span(i).name),
                    from_ns,
                    forwards,
                )?;
                Some((span(at).start_ns, rec.trace.str(span(at).name).to_owned()))
            }
            (Part::Ops, LaneKind::Stream(_)) => {
                let op = |i: usize| &process.device_ops[lane.ops[i] as usize];
                let at = scan(
                    lane.ops.len(),
                    |i| op(i).start_ns,
                    |i| self.has_name(op(i).name),
                    from_ns,
                    forwards,
                )?;
                Some((op(at).start_ns, rec.trace.str(op(at).name).to_owned()))
            }
            _ => None,
        }
    }
}

fn parts(lane: &Lane) -> impl Iterator<Item = Part> + use<> {
    let (ranges, thread) = (lane.ranges.len(), matches!(lane.kind, LaneKind::Thread(_)));
    let fixed = if thread { [Some(Part::Waits), Some(Part::Calls)] } else { [Some(Part::Ops), None] };
    fixed.into_iter().flatten().chain((0..ranges).map(Part::Range))
}

/// The nearest index whose start is after (or before) `from_ns` and that matches; starts are sorted.
fn scan(
    len: usize,
    start_ns: impl Fn(usize) -> u64,
    matches: impl Fn(usize) -> bool,
    from_ns: u64,
    forwards: bool,
) -> Option<usize> {
    let split = |is_before: &dyn Fn(u64) -> bool| {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(start_ns(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    };
    if forwards {
        (split(&|start| start <= from_ns)..len).find(|&i| matches(i))
    } else {
        (0..split(&|start| start < from_ns)).rev().find(|&i| matches(i))
    }
}

/// `word` is in lower case.
fn contains_ascii(text: &[u8], word: &[u8]) -> bool {
    word.is_empty() || text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}
