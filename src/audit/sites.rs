//! What is a site, and what goes into its fingerprint.
//!
//! In: waits, and the ranges and stacks around their calls. Out: [`Site`]s; every wait is in exactly one.
//! A site is kind + calls + operator + ranges + the user's functions; no line, address, number or path of the machine is part
//! of that, so the fingerprint survives moved lines and other machines. Two waits that differ only in lines (or, without
//! lines, in addresses) are two sites with an ordinal each, counted in the order of their lines.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap as HashMap;

use super::options::stem;
use super::ranks::Share;
use super::steps::{Step, StepKind};
use super::waits::{SamePlace, Wait};
use super::{Evidence, WaitKind};
use crate::model::{ApiId, Call, Process, SpanKind, StackId, StrId, Strings, Thread, Trace};
use crate::symbols::Symbols;

/// A frame as reports show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Shown path: relative to the source root where possible. Empty if unknown.
    pub file: String,
    /// 0 if unknown.
    pub line: u32,
    pub function: String,
    /// Name of the executable or shared object, empty for Python.
    pub module: String,
    /// Where the file is on this machine, to show its text; never printed. Empty if unknown.
    pub path: String,
    /// Code of the user's own program, as opposed to libraries.
    pub user: bool,
}

/// What a site means for the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteStatus {
    OverBudget,
    Allowed,
    LogStep,
    Warmup,
    Outside,
}

impl SiteStatus {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::OverBudget => "over-budget",
            Self::Allowed => "allowed",
            Self::LogStep => "log-step",
            Self::Warmup => "warmup",
            Self::Outside => "outside",
        }
    }
}

/// A place in the program that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Sixteen hex digits, stable under line moves and on other machines.
    pub fingerprint: String,
    /// The fingerprint that all sites of the same functions share: that of ordinal 0.
    pub group: String,
    /// Counts up over sites that differ only in their lines; part of the fingerprint unless 0.
    pub ordinal: u32,
    pub kind: WaitKind,
    /// Names of the calls in order, as the program called them.
    pub apis: Vec<String>,
    /// Their names without versions, as fingerprints use them.
    pub api_bases: Vec<String>,
    /// Framework operator: the innermost that is not private to the framework (`aten::item` rather than
    /// `aten::_local_scalar_dense`).
    pub op: Option<String>,
    /// All operators from the outermost inwards.
    pub ops: Vec<String>,
    /// Ranges from the outermost inwards, without call sites and numbers.
    pub range: Vec<String>,
    /// The place that the innermost range itself names (`read loss @ src/train.rs:88`).
    pub call_site: Option<Frame>,
    /// Innermost first.
    pub python: Vec<Frame>,
    /// Innermost first, inlined frames included.
    pub native: Vec<Frame>,
    /// Why functions of the program here have no names, one clause per module: without them the fingerprint is that of no place. Empty where all
    /// is known.
    pub unnamed: Vec<String>,
    /// The user's functions as fingerprints use them, innermost first, repeats of a recursion once.
    pub functions: Vec<String>,
    /// Index into `native` of the frame that tells this place from others: a program's own layers around the driver are the
    /// innermost frames of many places.
    pub own_frame: usize,
    /// The thread, by name or number; empty when it differs between waits.
    pub thread: String,
    pub evidence: Evidence,
    /// Id of what this is in [`crate::rules`]: the idiom where it is a known one, else the kind.
    pub rule: &'static str,
    /// The program works with a framework: an operator or Python was seen somewhere in the trace.
    pub framework: bool,
    pub status: SiteStatus,
    pub waits: u64,
    pub calls: u64,
    pub bytes: u64,
    pub blocked_ns: Option<u64>,
    pub ordinary_waits: u64,
    pub log_waits: u64,
    /// Of `log_waits`, those outside of the log range.
    pub log_waits_outside_range: u64,
    pub warmup_waits: u64,
    /// Waits in a step that had not ended when the trace did.
    pub unfinished_waits: u64,
    pub outside_waits: u64,
    /// Ordinary steps with at least one of these waits, and the most in one step.
    pub steps_with_waits: u64,
    pub most_per_step: u64,
    /// The trace ended while the host was waiting here.
    pub killed_here: bool,
    /// Made by the tool that recorded the trace, not by the program.
    pub by_recorder: bool,
    /// What processes have of these waits, in their order, for those that have any.
    pub per_process: Vec<Share>,
}

impl Site {
    /// The frame to point at: the user's innermost Python frame, else what the innermost range names, else the user's
    /// innermost native frame, else the innermost frame with a line.
    #[must_use]
    pub fn place(&self) -> Option<&Frame> {
        let own = self.native.get(self.own_frame).filter(|frame| frame.user);
        let frames = || self.python.iter().chain(self.at_call_site()).chain(own).chain(&self.native);
        frames()
            .find(|frame| frame.user && frame.line > 0)
            .or_else(|| frames().find(|frame| frame.user))
            .or_else(|| frames().find(|frame| frame.line > 0))
    }

    /// What the innermost range names is where the range begins. The call itself is a little below, in a frame of the same
    /// file, if there is one.
    fn at_call_site(&self) -> Option<&Frame> {
        let named = self.call_site.as_ref()?;
        let below = |frame: &&Frame| frame.user && frame.file == named.file && frame.line >= named.line;
        self.native.iter().find(below).or(Some(named))
    }
}

/// Where a wait comes from, before symbolisation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RawSite {
    kind: WaitKind,
    first: ApiId,
    last: ApiId,
    native: StackId,
    python: StackId,
    /// Where its first call comes from.
    begins: (StackId, StackId),
    by_recorder: bool,
    /// The trace ended inside of its first call.
    cut_short: bool,
    /// Index into the distinct contexts.
    context: usize,
}

/// The spans around a call, without numbers and call sites, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Context {
    range: Vec<StrId>,
    ops: Vec<StrId>,
    /// Python frames that the source gives as spans, innermost first.
    python: Vec<StrId>,
    /// Full name of the innermost range, if it names its call site.
    call_site: StrId,
}

/// Puts waits into sites, in no order yet, and tells each wait its site.
pub(super) fn group(
    trace: &Trace,
    symbols: &mut Symbols<'_>,
    steps: &[Step],
    waits: &mut [Wait],
) -> Vec<Site> {
    let mut raw = RawSites::new(trace);
    let raw_of_wait: Vec<usize> = waits.iter().map(|wait| raw.of(wait)).collect();
    // Raw sites that look the same to a reader are one site.
    let mut drafts: Vec<Draft> = Vec::new();
    let mut draft_of_raw: Vec<usize> = vec![0; raw.sites.len()];
    let mut known: HashMap<(String, Detail), usize> = HashMap::default();
    // What was cut short comes last, when all whole operations are known.
    let mut order: Vec<usize> = (0..raw.sites.len()).collect();
    order.sort_by_key(|&index| raw.sites[index].cut_short);
    for raw_index in order {
        let site = &raw.sites[raw_index];
        let draft = raw.describe(site, symbols);
        if let Some(whole) = drafts.iter().position(|whole| site.cut_short && draft.is_begun(whole)) {
            draft_of_raw[raw_index] = whole;
            continue;
        }
        let next = drafts.len();
        let index = *known.entry((draft.canonical(), draft.detail.clone())).or_insert(next);
        match drafts.get_mut(index) {
            Some(known) => known.begins.extend(draft.begins),
            None => drafts.push(draft),
        }
        draft_of_raw[raw_index] = index;
    }
    let mut sites = number(drafts);
    let mut per_step: HashMap<(usize, u32), u64> = HashMap::default();
    for (wait, raw) in waits.iter_mut().zip(raw_of_wait) {
        let index = draft_of_raw[raw];
        wait.site = u32::try_from(index).unwrap_or(u32::MAX);
        count(trace, &mut sites[index], wait, steps);
        if let Some(step) = wait.step.filter(|&step| steps[step as usize].kind == StepKind::Ordinary) {
            *per_step.entry((index, step)).or_default() += 1;
        }
    }
    for ((index, _), in_step) in per_step {
        let site = &mut sites[index];
        site.steps_with_waits += 1;
        site.most_per_step = site.most_per_step.max(in_step);
    }
    find_own_frames(&mut sites);
    sites
}

/// For each site the innermost frame of the user's from which on inwards no other site looks the same.
fn find_own_frames(sites: &mut [Site]) {
    // Chains of (file, line) from the innermost frame of the user's outwards, each under its hash.
    let chain = |site: &Site| -> Vec<(usize, u64)> {
        let mut hasher = rustc_hash::FxHasher::default();
        let user = site.native.iter().enumerate().filter(|(_, frame)| frame.user && frame.line > 0);
        user.map(|(index, frame)| {
            (&frame.file, frame.line).hash(&mut hasher);
            (index, hasher.finish())
        })
        .collect()
    };
    let mut shared: HashMap<u64, u32> = HashMap::default();
    for (_, hash) in sites.iter().flat_map(chain) {
        *shared.entry(hash).or_default() += 1;
    }
    for site in sites {
        let chain = chain(site);
        let Some(least) = chain.last().map(|(_, hash)| shared[hash]) else { continue };
        site.own_frame = chain.iter().find(|(_, hash)| shared[hash] == least).map_or(0, |&(index, _)| index);
    }
}

/// Adds a wait to its site.
fn count(trace: &Trace, site: &mut Site, wait: &Wait, steps: &[Step]) {
    let thread = thread_name(trace, wait);
    if site.waits == 0 {
        site.thread = thread;
        site.evidence = wait.evidence;
        site.blocked_ns = trace.times_meaningful().then_some(0);
    } else if site.thread != thread {
        site.thread.clear();
    }
    site.waits += 1;
    site.calls += wait.calls.count();
    site.bytes = site.bytes.saturating_add(wait.bytes);
    site.killed_here |= wait.unfinished;
    if let (Some(sum), Some(blocked_ns)) = (&mut site.blocked_ns, wait.blocked_ns) {
        *sum = sum.saturating_add(blocked_ns);
    }
    let kind = wait.step.map(|step| steps[step as usize].kind);
    let at = site.per_process.binary_search_by_key(&wait.process, |share| share.of).unwrap_or_else(|at| {
        site.per_process.insert(at, Share { of: wait.process, ..Share::default() });
        at
    });
    site.per_process[at].waits += 1;
    site.per_process[at].ordinary_waits += u64::from(kind == Some(StepKind::Ordinary));
    match kind {
        None => site.outside_waits += 1,
        Some(StepKind::Ordinary) => site.ordinary_waits += 1,
        Some(StepKind::Warmup) => site.warmup_waits += 1,
        Some(StepKind::Unfinished) => site.unfinished_waits += 1,
        Some(StepKind::Log) => {
            site.log_waits += 1;
            site.log_waits_outside_range += u64::from(!wait.in_log_range);
        }
    }
}

fn thread_name(trace: &Trace, wait: &Wait) -> String {
    let Some(process) = trace.processes.get(wait.process as usize) else { return String::new() };
    let Some(thread) = process.threads.get(wait.thread as usize) else { return String::new() };
    name_thread(trace, process, thread)
}

/// A thread's name, `main`, or its number.
fn name_thread(trace: &Trace, process: &Process, thread: &Thread) -> String {
    match trace.str(thread.name) {
        _ if thread.tid == process.pid => "main".to_owned(),
        "" => format!("thread {}", thread.tid),
        name => name.to_owned(),
    }
}

/// Worst first; ties in the order in which the program got there, so that a report reads like the program. Returns the
/// new index of each site.
pub(super) fn sort(sites: &mut Vec<Site>, waits: &mut [Wait]) -> Vec<u32> {
    let mut first_ns = vec![u64::MAX; sites.len()];
    for wait in &*waits {
        let first = &mut first_ns[wait.site as usize];
        *first = (*first).min(wait.start_ns);
    }
    let mut order: Vec<usize> = (0..sites.len()).collect();
    order.sort_by(|&a, &b| {
        let key = |site: &Site| {
            (site.status, std::cmp::Reverse((site.ordinary_waits, site.unfinished_waits, site.waits)))
        };
        let tie = |index: usize| (first_ns[index], &sites[index].fingerprint);
        key(&sites[a]).cmp(&key(&sites[b])).then_with(|| tie(a).cmp(&tie(b)))
    });
    let mut new_index = vec![0u32; sites.len()];
    for (new, &old) in order.iter().enumerate() {
        new_index[old] = u32::try_from(new).unwrap_or(u32::MAX);
    }
    for wait in waits {
        wait.site = new_index[wait.site as usize];
    }
    let mut old: Vec<Option<Site>> = sites.drain(..).map(Some).collect();
    sites.extend(order.into_iter().filter_map(|index| old[index].take()));
    new_index
}

/// A site without counts.
struct Draft {
    kind: WaitKind,
    apis: Vec<String>,
    api_bases: Vec<String>,
    op: Option<String>,
    ops: Vec<String>,
    range: Vec<String>,
    call_site: Option<Frame>,
    python: Vec<Frame>,
    native: Vec<Frame>,
    unnamed: Vec<String>,
    /// The user's functions, innermost first, repeats of a recursion once.
    functions: Vec<String>,
    detail: Detail,
    /// Where its first call was seen to come from.
    begins: BTreeSet<Beginning>,
    by_recorder: bool,
}

/// The user's functions and the lines of a call.
type Beginning = (Vec<String>, Detail);

/// What tells two waits of the same functions apart, in the order in which they are numbered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Detail {
    /// Lines of the user's frames.
    Lines(Vec<u32>),
    /// Addresses within their modules, where there are no lines.
    Addresses(Vec<u64>),
}

impl Draft {
    /// Whether this, a call that never returned, is the beginning of `whole`: a program killed inside of a copy never came to the synchronise,
    /// and such a call may not tell in which direction it copied.
    fn is_begun(&self, whole: &Self) -> bool {
        self.api_bases.first() == whole.api_bases.first()
            && (&self.op, &self.range, &self.call_site) == (&whole.op, &whole.range, &whole.call_site)
            && (self.kind == whole.kind || self.kind == WaitKind::Unclassified)
            && self.by_recorder == whole.by_recorder
            && self.begins.iter().any(|begin| whole.begins.contains(begin))
    }

    /// The text that is hashed. Changing it changes every baseline there is: only with a new version in front.
    fn canonical(&self) -> String {
        let text = canonical(self.kind, &self.api_bases, self.op.as_deref(), &self.range, &self.functions);
        // A wait of the recording tool must not share a fingerprint with one of the program.
        if self.by_recorder { text + "\u{1e}recorder" } else { text }
    }
}

/// The text whose hash is the fingerprint of a place.
pub(crate) fn canonical(
    kind: WaitKind,
    calls: &[String],
    op: Option<&str>,
    range: &[String],
    functions: &[String],
) -> String {
    let list = |items: &[String]| items.join("\u{1f}");
    format!(
        "site/1\u{1e}{}\u{1e}{}\u{1e}{}\u{1e}{}\u{1e}{}",
        kind.id(),
        list(calls),
        op.unwrap_or_default(),
        list(range),
        list(functions)
    )
}

/// FNV-1a of 64 bits.
pub(crate) fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The fingerprint of a canonical text and an ordinal: FNV-1a of 64 bits, then mixed.
pub(crate) fn fingerprint(canonical: &str, ordinal: u32) -> String {
    let suffix = if ordinal == 0 { String::new() } else { format!("\u{1e}{ordinal}") };
    let mut hash = fnv1a(canonical.bytes().chain(suffix.bytes()));
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    format!("{hash:016x}")
}

/// Makes sites of drafts; drafts with the same canonical text are numbered by their lines.
fn number(drafts: Vec<Draft>) -> Vec<Site> {
    let canonicals: Vec<String> = drafts.iter().map(Draft::canonical).collect();
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::default();
    for (index, canonical) in canonicals.iter().enumerate() {
        groups.entry(canonical).or_default().push(index);
    }
    let mut ordinals = vec![0u32; drafts.len()];
    for members in groups.values_mut() {
        members.sort_by(|&a, &b| drafts[a].detail.cmp(&drafts[b].detail));
        for (ordinal, &index) in members.iter().enumerate() {
            ordinals[index] = u32::try_from(ordinal).unwrap_or(u32::MAX);
        }
    }
    drafts
        .into_iter()
        .zip(canonicals)
        .zip(ordinals)
        .map(|((draft, canonical), ordinal)| Site {
            fingerprint: fingerprint(&canonical, ordinal),
            group: fingerprint(&canonical, 0),
            ordinal,
            kind: draft.kind,
            apis: draft.apis,
            api_bases: draft.api_bases,
            op: draft.op,
            ops: draft.ops,
            range: draft.range,
            call_site: draft.call_site,
            python: draft.python,
            native: draft.native,
            unnamed: draft.unnamed,
            functions: draft.functions,
            own_frame: 0,
            thread: String::new(),
            evidence: Evidence::HeldByDevice,
            rule: draft.kind.id(),
            framework: false,
            status: SiteStatus::Outside,
            waits: 0,
            calls: 0,
            bytes: 0,
            blocked_ns: None,
            ordinary_waits: 0,
            log_waits: 0,
            log_waits_outside_range: 0,
            warmup_waits: 0,
            unfinished_waits: 0,
            outside_waits: 0,
            steps_with_waits: 0,
            most_per_step: 0,
            killed_here: false,
            by_recorder: draft.by_recorder,
            per_process: Vec::new(),
        })
        .collect()
}

/// Collects the distinct places that waits come from.
struct RawSites<'a> {
    trace: &'a Trace,
    sites: Vec<RawSite>,
    known: HashMap<RawSite, usize>,
    contexts: Vec<Context>,
    known_contexts: HashMap<Context, usize>,
    /// Range and operator names as fingerprints use them.
    names: Strings,
    clean: HashMap<StrId, (StrId, bool)>,
}

impl<'a> RawSites<'a> {
    fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            sites: Vec::new(),
            known: HashMap::default(),
            contexts: Vec::new(),
            known_contexts: HashMap::default(),
            names: Strings::default(),
            clean: HashMap::default(),
        }
    }

    /// The place of a wait.
    fn of(&mut self, wait: &Wait) -> usize {
        let thread = self
            .trace
            .processes
            .get(wait.process as usize)
            .and_then(|process| process.threads.get(wait.thread as usize));
        let call = |index: Option<u32>| thread.and_then(|thread| thread.calls.get(index? as usize));
        let (first, last) = (call(wait.calls.first()), call(wait.calls.last()));
        let context = match (thread, last) {
            (Some(thread), Some(call)) => self.context(thread, call),
            _ => self.intern(Context::default()),
        };
        let api = |call: Option<&Call>| call.map_or(ApiId::NONE, |call| call.api);
        // The synchronise is where the host waits; a source may have taken only one of the stacks.
        let stack = |pick: fn(&Call) -> StackId| {
            let of = |call: Option<&Call>| call.map_or(StackId::NONE, pick);
            if of(last) == StackId::NONE { of(first) } else { of(last) }
        };
        let site = RawSite {
            kind: wait.kind,
            first: if wait.calls.count() == 2 { api(first) } else { ApiId::NONE },
            last: api(last),
            native: stack(|call| call.native),
            python: stack(|call| call.python),
            begins: first.map_or((StackId::NONE, StackId::NONE), |call| (call.native, call.python)),
            by_recorder: wait.by_recorder,
            cut_short: wait.unfinished && wait.calls.count() == 1,
            context,
        };
        let next = self.sites.len();
        let index = *self.known.entry(site.clone()).or_insert(next);
        if index == next {
            self.sites.push(site);
        }
        index
    }

    fn context(&mut self, thread: &Thread, call: &Call) -> usize {
        let mut context = Context::default();
        for span in thread.spans_around(call) {
            match span.kind {
                SpanKind::PythonFrame => context.python.push(span.name),
                SpanKind::Range | SpanKind::Op => {
                    let (name, names_op) = self.clean(span.name);
                    if span.kind == SpanKind::Op || names_op {
                        context.ops.push(name);
                    } else {
                        if context.range.is_empty() && call_site(self.trace.str(span.name)).is_some() {
                            context.call_site = span.name;
                        }
                        context.range.push(name);
                    }
                }
            }
        }
        context.range.reverse();
        context.ops.reverse();
        // A recursion opens the same range again and again; how deep it was is no part of the place.
        context.range.dedup();
        context.ops.dedup();
        context.python.dedup();
        self.intern(context)
    }

    fn intern(&mut self, context: Context) -> usize {
        if let Some(&index) = self.known_contexts.get(&context) {
            return index;
        }
        self.contexts.push(context.clone());
        self.known_contexts.insert(context, self.contexts.len() - 1);
        self.contexts.len() - 1
    }

    /// The name for fingerprints, and whether it is that of an operator (`emit_nvtx` makes ranges of operators).
    fn clean(&mut self, name: StrId) -> (StrId, bool) {
        if let Some(&known) = self.clean.get(&name) {
            return known;
        }
        let (text, is_op) = clean_name(self.trace.str(name));
        let clean = (self.names.intern(text), is_op);
        self.clean.insert(name, clean);
        clean
    }

    fn addresses(&self, stack: StackId) -> Vec<u64> {
        self.trace.native.get(stack).iter().map(|frame| frame.address).collect()
    }

    fn describe(&self, site: &RawSite, symbols: &mut Symbols<'_>) -> Draft {
        let context = &self.contexts[site.context];
        let texts = |ids: &[StrId]| ids.iter().map(|&id| self.names.get(id).to_owned()).collect::<Vec<_>>();
        let ops = texts(&context.ops);
        let public = |op: &&String| !op.rsplit("::").next().unwrap_or_default().starts_with('_');
        let op = ops.iter().rev().find(public).or(ops.last()).cloned();
        let mut python = symbols.python(site.python).to_vec();
        if python.is_empty() {
            python = context.python.iter().map(|&name| python_span(self.trace.str(name), symbols)).collect();
        }
        let native = symbols.native(site.native).to_vec();
        let by_python = python.iter().any(|frame| frame.user);
        let begin = {
            let (native, python) = (symbols.native(site.begins.0), symbols.python(site.begins.1));
            let frames = if python.iter().any(|frame| frame.user) { python } else { native };
            let user = || frames.iter().filter(|frame| frame.user);
            let functions = user().map(|frame| frame.function.clone()).collect();
            let detail = if user().any(|frame| frame.line > 0) {
                Detail::Lines(user().map(|frame| frame.line).collect())
            } else {
                Detail::Addresses(self.addresses(site.begins.0))
            };
            (functions, detail)
        };
        let unnamed = if by_python { Vec::new() } else { symbols.missing(site.native) };
        let frames = if by_python { &python } else { &native };
        let user: Vec<&Frame> = frames.iter().filter(|frame| frame.user).collect();
        let call_site = call_site(self.trace.str(context.call_site))
            .map(|(function, file, line)| symbols.written_place(file, line, function));
        let mut functions: Vec<String> =
            user.iter().map(|frame| function_key(&frame.function, frame.module.is_empty())).collect();
        functions.dedup();
        let detail = if user.iter().copied().chain(&call_site).any(|frame| frame.line > 0) {
            Detail::Lines(call_site.iter().chain(user.iter().copied()).map(|frame| frame.line).collect())
        } else {
            Detail::Addresses(self.addresses(site.native))
        };
        let apis: Vec<&crate::model::Api> = [site.first, site.last]
            .into_iter()
            .filter(|id| id.get().is_some())
            .map(|id| self.trace.api(id))
            .collect();
        Draft {
            kind: site.kind,
            apis: apis.iter().map(|api| api.name.clone()).collect(),
            api_bases: apis.iter().map(|api| api.base.clone()).collect(),
            op,
            ops,
            range: texts(&context.range),
            call_site,
            python,
            native,
            unnamed,
            functions,
            detail,
            begins: BTreeSet::from([begin]),
            by_recorder: site.by_recorder,
        }
    }
}

/// The name of a range or operator for fingerprints, and whether it is that of an operator (`emit_nvtx` makes ranges of operators).
pub(super) fn clean_name(text: &str) -> (&str, bool) {
    let text =
        text.split_once(", seq = ").or_else(|| text.split_once(", op_id = ")).map_or(text, |parts| parts.0);
    let is_op = ["aten::", "autograd::", "c10d::", "torch::"].iter().any(|prefix| text.starts_with(prefix));
    (stem(text), is_op)
}

/// A function's name as fingerprints use it. Debug information gives full paths, or only last segments with type arguments, depending on
/// how much of it there is and on what was inlined; the last segment alone is in all of them. Python's names are used as they are.
fn function_key(name: &str, is_python: bool) -> String {
    if is_python {
        return name.to_owned();
    }
    let mut depth = 0usize;
    let mut plain = String::new();
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' if !plain.ends_with('-') => depth = depth.saturating_sub(1),
            // Arguments of a C++ function.
            '(' if depth == 0 => break,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let last = plain.rsplit("::").find(|part| !part.is_empty()).unwrap_or(name);
    let last = last.rsplit(' ').next().unwrap_or(last);
    if last.starts_with('{') { "{closure}".to_owned() } else { last.to_owned() }
}

/// `read loss @ src/train.rs:88` -> name, file, line.
fn call_site(name: &str) -> Option<(&str, &str, u32)> {
    let (function, place) = name.split_once(" @ ")?;
    let (file, line) = place.rsplit_once(':')?;
    Some((function, file, line.trim().parse().ok()?))
}

/// `train.py(12): main` as profilers name Python frames.
fn python_span(name: &str, symbols: &Symbols<'_>) -> Frame {
    let parts = name.split_once("): ").and_then(|(place, function)| {
        let (file, line) = place.rsplit_once('(')?;
        Some((file, line.parse().ok()?, function))
    });
    match parts {
        Some((file, line, function)) => symbols.python_frame(file, line, function),
        None => symbols.python_frame("", 0, name),
    }
}

/// Tells by the user's functions whether two calls belong to one operation: the chains of functions are equal, but for a few
/// helpers at the inner end of each. Unknown stacks are taken to agree.
pub(super) struct Places<'s, 'a> {
    symbols: &'s mut Symbols<'a>,
    known: HashMap<[StackId; 4], bool>,
}

impl<'s, 'a> Places<'s, 'a> {
    pub(super) fn new(symbols: &'s mut Symbols<'a>) -> Self {
        Self { symbols, known: HashMap::default() }
    }
}

impl SamePlace for Places<'_, '_> {
    fn same_function(&mut self, a: &Call, b: &Call) -> bool {
        let unknown = |a: StackId, b: StackId| a == b || a == StackId::NONE || b == StackId::NONE;
        if unknown(a.python, b.python) && unknown(a.native, b.native) {
            return true;
        }
        let symbols = &mut *self.symbols;
        *self.known.entry([a.python, b.python, a.native, b.native]).or_insert_with(|| {
            (unknown(a.python, b.python) || agree(&symbols.python(a.python), &symbols.python(b.python)))
                && (unknown(a.native, b.native)
                    || agree(&symbols.native(a.native), &symbols.native(b.native)))
        })
    }
}

/// A program's own layers between the function that wants a value and the calls of the driver: `read` -> `Stream::copy` -> `driver::copy`.
const MOST_HELPERS: usize = 3;

fn agree(a: &[Frame], b: &[Frame]) -> bool {
    // Outermost first, repeats of a recursion once.
    let chain = |frames: &[Frame]| {
        let mut names: Vec<String> =
            frames.iter().rev().filter(|frame| frame.user).map(|frame| frame.function.clone()).collect();
        names.dedup();
        names
    };
    let (a, b) = (chain(a), chain(b));
    let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    a.is_empty() || b.is_empty() || (a.len() - shared <= MOST_HELPERS && b.len() - shared <= MOST_HELPERS)
}

#[cfg(test)]
mod tests {
    use crate::audit::{Audit, AuditOptions, audit};
    use crate::model::{CallData, PythonFrame, TraceBuilder};

    /// Four steps; each waits once in `train` for every line given.
    fn run(folder: &str, lines: &[u32], function: &str) -> Audit {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = true;
        let file = builder.intern(&format!("{folder}/train.py"));
        let (train, main) = (builder.intern(function), builder.intern("main"));
        let stacks: Vec<_> = lines
            .iter()
            .map(|&line| {
                builder.python.intern(&[
                    PythonFrame { file, function: train, line },
                    PythonFrame { file, function: main, line: line + 100 },
                ])
            })
            .collect();
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        for step in 0..4u64 {
            let start = step * 1_000;
            thread.push(start + 1, &format!("step {step}"), None);
            for (index, &python) in stacks.iter().enumerate() {
                let start = start + 10 * index as u64 + 10;
                thread.call(
                    "cudaDeviceSynchronize",
                    start,
                    start + 5,
                    CallData { python, ..CallData::default() },
                );
            }
            thread.pop(start + 900);
        }
        let audit = audit(&builder.finish(), &AuditOptions::default());
        audit.reconcile().unwrap();
        audit
    }

    fn fingerprints(audit: &Audit) -> Vec<&str> {
        let mut all: Vec<&str> = audit.sites.iter().map(|site| site.fingerprint.as_str()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_fingerprint_survives_moved_lines_and_another_machine() {
        let here = run("/home/me/project", &[10], "train");
        assert_eq!(here.sites.len(), 1);
        assert_eq!((here.sites[0].waits, here.sites[0].ordinary_waits), (4, 2));
        assert_eq!(fingerprints(&here), fingerprints(&run("/mnt/other", &[77], "train")));
        assert_ne!(fingerprints(&here), fingerprints(&run("/home/me/project", &[10], "train_fast")));
    }

    #[test]
    fn two_waits_in_one_function_stay_two_whatever_moves() {
        let two = run("/a", &[10, 12], "train");
        assert_eq!(two.sites.len(), 2);
        assert_eq!(fingerprints(&two), fingerprints(&run("/a", &[20, 29], "train")));
        let mut in_order: Vec<(u32, u32)> =
            two.sites.iter().map(|site| (site.place().unwrap().line, site.ordinal)).collect();
        in_order.sort_unstable();
        assert_eq!(in_order, [(10, 0), (12, 1)]);
        // The same line twice is one place.
        assert_eq!(run("/a", &[10, 10], "train").sites.len(), 1);
    }

    #[test]
    fn a_function_has_one_key_however_much_debug_information_there_is() {
        for name in [
            "dflash_train::device::stream::Stream::download_blocking",
            "download_blocking<u32>",
            "<dflash_train::Stream as dflash_train::Copy<T>>::download_blocking::<u32>",
            "void device::Stream::download_blocking<unsigned int>(unsigned int*, int)",
        ] {
            assert_eq!(super::function_key(name, false), "download_blocking", "{name}");
        }
        assert_eq!(super::function_key("train::step::{{closure}}", false), "{closure}");
        assert_eq!(super::function_key("{closure#0}", false), "{closure}");
        assert_eq!(super::function_key("", false), "");
        assert_eq!(super::function_key("Net.forward.<locals>.inner", true), "Net.forward.<locals>.inner");
    }

    #[test]
    fn places_behind_a_shared_helper_are_told_apart_by_its_callers() {
        let frame =
            |line| crate::audit::Frame { file: "a.rs".into(), line, user: true, ..Default::default() };
        let audit = run("/a", &[1, 2, 3], "f");
        let mut sites = audit.sites.clone();
        for (site, lines) in sites.iter_mut().zip([vec![9, 10, 30], vec![9, 10, 40], vec![7, 50]]) {
            site.python.clear();
            site.native = lines.into_iter().map(frame).collect();
        }
        super::find_own_frames(&mut sites);
        let lines: Vec<u32> = sites.iter().map(|site| site.place().unwrap().line).collect();
        assert_eq!(lines, [30, 40, 7]);
    }

    fn chain(names: &[&str]) -> Vec<crate::audit::Frame> {
        let frame = |name: &&str| crate::audit::Frame {
            function: (*name).to_owned(),
            user: true,
            ..Default::default()
        };
        names.iter().map(frame).collect()
    }

    #[test]
    fn helpers_of_one_function_make_one_operation_and_distant_functions_do_not() {
        let copy = chain(&["driver::copy", "Stream::copy", "read", "step", "main"]);
        let sync = chain(&["driver::sync", "Stream::sync", "read", "step", "main"]);
        assert!(super::agree(&copy, &sync));
        let elsewhere = chain(&["driver::sync", "Stream::sync", "flush", "save", "epilogue", "main"]);
        assert!(!super::agree(&copy, &elsewhere));
        assert!(super::agree(&copy, &[]), "an unknown stack says nothing against it");
    }

    #[test]
    fn a_hash_that_baselines_rely_on_does_not_change_by_accident() {
        assert_eq!(super::fingerprint("", 0), super::fingerprint("", 0));
        assert_ne!(super::fingerprint("a", 0), super::fingerprint("a", 1));
        assert_eq!(super::fingerprint("site/1", 0).len(), 16);
        assert_eq!(super::fingerprint("site/1", 0), KNOWN);
    }

    /// FNV-1a and mixing, computed by a second implementation.
    const KNOWN: &str = "140073c79f76b8ca";
}
