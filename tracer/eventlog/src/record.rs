//! What a log can hold: one variant of [`Record`] per kind, and its translation to and from words.
//!
//! In and out: plain values. Encoding never fails and never allocates (it is on the tracer's hot path); decoding takes
//! bytes from anywhere and never panics. Units are in the field names; `_ns` without more is `CLOCK_MONOTONIC`
//! nanoseconds, `_cupti_ns` is CUPTI's own clock (pair them with [`Clock`] records).

use crate::format::{FLAG_TRUNCATED, MAX_EVENT_BYTES, MAX_TAIL_BYTES};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Stands for "there is none".
            pub const NONE: $name = $name(0);

            pub fn is_none(self) -> bool {
                self.0 == 0
            }
        }
    )*};
}

ids! {
    /// An interned text.
    StrId;
    /// An interned native stack.
    StackId;
    /// An interned Python code object.
    PyCodeId;
    /// An interned Python stack.
    PyStackId;
    /// A loaded module (executable or shared object).
    ModuleId;
    /// An NVTX domain. Here [`DomainId::NONE`] is the default domain, which needs no definition.
    DomainId;
}

/// The two callback domains whose function numbers occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ApiDomain {
    Runtime,
    Driver,
}

/// A CUDA function: CUPTI's callback id within its domain. Its name comes from an [`Record::ApiName`] in the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Api {
    pub domain: ApiDomain,
    /// CUPTI's callback ids are below 1000 so far.
    pub cbid: u16,
}

/// One finished CUDA call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub enter_ns: u64,
    pub exit_ns: u64,
    pub api: Api,
    /// CUPTI's correlation id; 0 when not known.
    pub correlation: u32,
    /// `CUresult` or `cudaError_t`; all known values fit.
    pub result: u16,
    /// `CUmemcpyKind`-like direction in CUPTI's numbering (`CUpti_ActivityMemcpyKind`, 4 bits) as far as the call tells; 0 unknown.
    pub copy_kind: u8,
    /// Stream handle as the program gave it.
    pub stream: u64,
    pub bytes: u64,
    /// What the call is about: event handle, pointer, graph; 0 when there is none.
    pub object: u64,
    pub stack: StackId,
    pub py_stack: PyStackId,
    /// How many driver calls it made inside; 255 stands for "or more".
    pub nested_calls: u8,
    /// The longest-running driver call inside it, 0 when none.
    pub nested_cbid: u16,
}

/// A call that has begun. Written before calls that may block, so that a log cut off inside one shows where.
/// The [`Call`] that follows on the same thread with the same `api` and `enter_ns` completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnter {
    pub enter_ns: u64,
    pub api: Api,
    pub correlation: u32,
    pub stack: StackId,
    pub py_stack: PyStackId,
}

/// A run of consecutive event or stream queries of one object on one thread, of which all but at most the last answered
/// "not ready". It may be written several times while it grows: the one with the largest `count` per `run` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRun {
    pub first_enter_ns: u64,
    pub last_exit_ns: u64,
    pub api: Api,
    /// Event or stream handle.
    pub object: u64,
    /// Number of the run, counted up per thread.
    pub run: u32,
    pub count: u32,
    pub not_ready: u32,
    pub stack: StackId,
    pub py_stack: PyStackId,
}

/// A value attached to an NVTX range or mark.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Payload {
    #[default]
    None,
    U64(u64),
    I64(i64),
    F64(f64),
    U32(u32),
    I32(i32),
    F32(f32),
}

/// What NVTX ranges and marks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct RangeAttributes {
    pub domain: DomainId,
    pub name: StrId,
    /// The program's own category number, 0 for none; named by [`Record::Category`].
    pub category: u32,
    pub payload: Payload,
}

/// CUPTI's activity record of a copy. The enumerations are CUPTI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Memcpy {
    pub correlation: u32,
    /// `CUpti_ActivityMemcpyKind`: 1 host to device, 2 device to host, ...
    pub copy_kind: u8,
    /// `CUpti_ActivityMemoryKind`: 1 pageable, 2 pinned, 3 device, 4 array, 5 managed.
    pub src_kind: u8,
    pub dst_kind: u8,
    /// `CUpti_ActivityFlag`: bit 0 is "async".
    pub flags: u8,
    pub bytes: u64,
    pub start_cupti_ns: u64,
    pub end_cupti_ns: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    /// 0 outside of graphs.
    pub graph: u32,
    pub graph_node: u64,
}

/// CUPTI's activity record of a memset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Memset {
    pub correlation: u32,
    /// `CUpti_ActivityMemoryKind`.
    pub memory_kind: u16,
    /// `CUpti_ActivityFlag`.
    pub flags: u16,
    pub bytes: u64,
    pub start_cupti_ns: u64,
    pub end_cupti_ns: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub graph: u32,
    pub graph_node: u64,
}

/// CUPTI's activity record of a synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Synchronization {
    pub correlation: u32,
    /// `CUpti_ActivitySynchronizationType`: 1 event, 2 stream waits for event (no host wait), 3 stream, 4 context.
    pub sync_type: u32,
    pub start_cupti_ns: u64,
    pub end_cupti_ns: u64,
    pub context: u32,
    /// `u32::MAX` when it is not about a stream.
    pub stream: u32,
    /// `u32::MAX` when it is not about an event.
    pub event: u32,
}

/// CUPTI's activity record of a kernel (only with the GPU timeline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Kernel {
    pub name: StrId,
    pub correlation: u32,
    pub start_cupti_ns: u64,
    pub end_cupti_ns: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub graph: u32,
    pub graph_node: u64,
}

/// CUPTI's activity record of its own overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Overhead {
    /// `CUpti_ActivityOverheadKind`.
    pub overhead_kind: u32,
    /// 0 before CUDA 12.4.
    pub correlation: u32,
    pub start_cupti_ns: u64,
    pub end_cupti_ns: u64,
}

/// The clocks read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clock {
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
    /// 0 as long as CUPTI is not there.
    pub cupti_ns: u64,
}

/// How much a [`Record::Note`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoteLevel {
    /// Worth showing.
    Info,
    /// Something is missing, but what is there is right.
    Warning,
    /// The trace can't carry a verdict.
    Problem,
}

/// How a process image ended, as far as it could say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndReason {
    /// `exit` or return from `main`.
    Exit,
    /// The image was replaced by `exec`.
    Exec,
    /// The tracer turned itself off and said why in a note.
    Disarmed,
}

/// One Python frame: the code object and the instruction's offset in it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PyFrame {
    pub code: PyCodeId,
    pub offset: u32,
}

impl PyFrame {
    /// As one word, for [`Record::PyStack`] and the interner.
    pub fn pack(self) -> u64 {
        pair(self.code.0, self.offset)
    }

    pub fn unpack(word: u64) -> PyFrame {
        let (code, offset) = split(word);
        PyFrame { code: PyCodeId(code), offset }
    }
}

/// A list of words: from memory when written, from the file when read.
#[derive(Clone, Copy, Debug)]
pub enum Words<'a> {
    Native(&'a [u64]),
    /// Little-endian, a multiple of 8 long.
    Raw(&'a [u8]),
}

impl<'a> Words<'a> {
    pub fn len(&self) -> usize {
        match self {
            Words::Native(words) => words.len(),
            Words::Raw(bytes) => bytes.len() / 8,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + 'a {
        let (native, raw): (&'a [u64], &'a [u8]) = match *self {
            Words::Native(words) => (words, &[]),
            Words::Raw(bytes) => (&[], bytes),
        };
        native.iter().copied().chain(raw.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)))
    }
}

impl PartialEq for Words<'_> {
    fn eq(&self, other: &Words<'_>) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// Keys of [`Record::Meta`] that the parts agree on. Others may occur.
pub mod meta {
    /// The program and its own arguments, each ended by a NUL byte.
    pub const PROGRAM: &str = "program";
    /// Version of the tracer.
    pub const TRACER: &str = "tracer";
    /// `RANK`, `LOCAL_RANK`, `WORLD_SIZE` as the launcher set them, in decimal.
    pub const RANK: &str = "rank";
    pub const LOCAL_RANK: &str = "local-rank";
    pub const WORLD_SIZE: &str = "world-size";
    /// `cuDriverGetVersion`, in decimal (12080 is 12.8).
    pub const CUDA_DRIVER: &str = "cuda-driver";
    /// `cuptiGetVersion`, in decimal.
    pub const CUPTI: &str = "cupti";
    /// "1" on the emulated device, "0" on a GPU; absent when the program never came to CUDA.
    pub const EMULATED: &str = "emulated";
    /// Machine architecture as Rust names it ("x86_64").
    pub const ARCH: &str = "arch";
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// A fact about the process; for the same key the later one holds. Keys in [`meta`].
    Meta {
        key: &'a str,
        value: &'a [u8],
    },
    /// Defines a text (meant to be UTF-8, but it is the program's).
    Str {
        id: StrId,
        text: &'a [u8],
    },
    /// Defines a module. `base..end` is where it is mapped, `bias` what to subtract from an address to get the one in the file.
    Module {
        id: ModuleId,
        loaded_ns: u64,
        base: u64,
        end: u64,
        bias: u64,
        path: StrId,
        build_id: &'a [u8],
    },
    /// Defines a native stack: return addresses, innermost first.
    Stack {
        id: StackId,
        addresses: Words<'a>,
    },
    /// Defines a Python code object. `line_table` is `co_linetable` (3.10+) or `co_lnotab`, to be read by version.
    PyCode {
        id: PyCodeId,
        python_minor: u16,
        first_line: u32,
        filename: StrId,
        qualname: StrId,
        line_table: &'a [u8],
    },
    /// Defines a Python stack: [`PyFrame::pack`]ed frames, innermost first.
    PyStack {
        id: PyStackId,
        frames: Words<'a>,
    },
    /// Everything that follows in this lane, up to the next one, is by this thread.
    Thread {
        os_tid: u64,
    },
    /// The name of the lane's current thread.
    ThreadName {
        name: StrId,
    },
    /// Defines an NVTX domain.
    Domain {
        id: DomainId,
        name: StrId,
    },
    /// Names an NVTX category of a domain.
    Category {
        domain: DomainId,
        category: u32,
        name: StrId,
    },
    /// Names a CUDA function.
    ApiName {
        api: Api,
        name: StrId,
    },
    RangePush {
        t_ns: u64,
        attributes: RangeAttributes,
    },
    RangePop {
        t_ns: u64,
        domain: DomainId,
    },
    /// A range that may end on another thread.
    RangeStart {
        t_ns: u64,
        range: u64,
        attributes: RangeAttributes,
    },
    RangeEnd {
        t_ns: u64,
        range: u64,
        domain: DomainId,
    },
    Mark {
        t_ns: u64,
        attributes: RangeAttributes,
    },
    CallEnter(CallEnter),
    Call(Call),
    QueryRun(QueryRun),
    Memcpy(Memcpy),
    Memset(Memset),
    Synchronization(Synchronization),
    Kernel(Kernel),
    Overhead(Overhead),
    Clock(Clock),
    /// Something that the report must show.
    Note {
        t_ns: u64,
        level: NoteLevel,
        text: &'a [u8],
    },
    /// The process forked; the child has a log of its own.
    Fork {
        t_ns: u64,
        child_pid: u32,
    },
    /// The image ended. `code` is the exit status when known, else 0.
    End {
        t_ns: u64,
        reason: EndReason,
        code: u32,
    },
}

/// The numbers of the kinds in the file. Never re-use one.
pub(crate) mod kind {
    pub const META: u8 = 1;
    pub const STR: u8 = 2;
    pub const MODULE: u8 = 3;
    pub const STACK: u8 = 4;
    pub const PY_CODE: u8 = 5;
    pub const PY_STACK: u8 = 6;
    pub const THREAD: u8 = 7;
    pub const THREAD_NAME: u8 = 8;
    pub const DOMAIN: u8 = 9;
    pub const CATEGORY: u8 = 10;
    pub const API_NAME: u8 = 11;
    pub const RANGE_PUSH: u8 = 16;
    pub const RANGE_POP: u8 = 17;
    pub const RANGE_START: u8 = 18;
    pub const RANGE_END: u8 = 19;
    pub const MARK: u8 = 20;
    pub const CALL_ENTER: u8 = 24;
    pub const CALL: u8 = 25;
    pub const QUERY_RUN: u8 = 26;
    pub const MEMCPY: u8 = 32;
    pub const MEMSET: u8 = 33;
    pub const SYNC: u8 = 34;
    pub const KERNEL: u8 = 35;
    pub const OVERHEAD: u8 = 36;
    pub const CLOCK: u8 = 40;
    pub const NOTE: u8 = 41;
    pub const FORK: u8 = 42;
    pub const END: u8 = 43;

    pub fn is_known(kind: u8) -> bool {
        matches!(kind, META..=API_NAME | RANGE_PUSH..=MARK | CALL_ENTER..=QUERY_RUN | MEMCPY..=OVERHEAD | CLOCK..=END)
    }
}

/// In the flags of [`kind::CALL`], [`kind::CALL_ENTER`] and [`kind::QUERY_RUN`].
const FLAG_DRIVER: u8 = 0x10;
/// In the flags of [`kind::CALL`]: the duration did not fit into 40 bits and has a word of its own at the end.
const FLAG_LONG: u8 = 0x20;
const COPY_KIND_MASK: u8 = 0x0f;
const DURATION_BITS: u32 = 40;

/// In the flags of ranges and marks: payload type in the low bits; a word (category, 32-bit payload) is there.
const PAYLOAD_MASK: u8 = 0x07;
const FLAG_CATEGORY: u8 = 0x08;

/// Most fixed words of a record, without its header.
pub(crate) const MAX_FIXED_WORDS: usize = MAX_EVENT_BYTES / 8 - 1;

/// A record as words, ready to be written.
pub(crate) struct Encoded<'a> {
    pub kind: u8,
    pub flags: u8,
    pub count: usize,
    pub words: [u64; MAX_FIXED_WORDS],
    pub tail: Tail<'a>,
}

/// The variable part of a record, padded with zero bytes to a whole word in the file.
#[derive(Clone, Copy)]
pub(crate) enum Tail<'a> {
    None,
    Bytes(&'a [u8], &'a [u8]),
    Words(&'a [u64]),
    RawWords(&'a [u8]),
}

impl Tail<'_> {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Tail::None => 0,
            Tail::Bytes(first, second) => first.len() + second.len(),
            Tail::Words(words) => words.len() * 8,
            Tail::RawWords(bytes) => bytes.len() & !7,
        }
    }
}

#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn clip<T>(items: &[T], most: usize) -> (&[T], u8) {
    match items.get(..most) {
        Some(head) if items.len() > most => (head, FLAG_TRUNCATED),
        _ => (items, 0),
    }
}

fn driver_flag(api: Api) -> u8 {
    if api.domain == ApiDomain::Driver { FLAG_DRIVER } else { 0 }
}

fn api(flags: u8, cbid: u16) -> Api {
    Api { domain: if flags & FLAG_DRIVER != 0 { ApiDomain::Driver } else { ApiDomain::Runtime }, cbid }
}

impl<'a> Encoded<'a> {
    #[inline(always)]
    fn fixed<const N: usize>(kind: u8, flags: u8, fixed: [u64; N]) -> Encoded<'a> {
        const { assert!(N <= MAX_FIXED_WORDS) };
        let mut words = [0; MAX_FIXED_WORDS];
        words[..N].copy_from_slice(&fixed);
        Encoded { kind, flags, count: N, words, tail: Tail::None }
    }

    #[inline(always)]
    fn push(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut(self.count) {
            *place = word;
            self.count += 1;
        }
    }

    #[inline(always)]
    fn attributes(mut self, attributes: &RangeAttributes) -> Encoded<'a> {
        let RangeAttributes { domain, name, category, payload } = *attributes;
        self.push(pair(domain.0, name.0));
        let (tag, short, long) = match payload {
            Payload::None => (0, None, None),
            Payload::U64(value) => (1, None, Some(value)),
            Payload::I64(value) => (2, None, Some(value as u64)),
            Payload::F64(value) => (3, None, Some(value.to_bits())),
            Payload::U32(value) => (4, Some(value), None),
            Payload::I32(value) => (5, Some(value as u32), None),
            Payload::F32(value) => (6, Some(value.to_bits()), None),
        };
        self.flags = tag;
        if category != 0 || short.is_some() {
            self.flags |= FLAG_CATEGORY;
            self.push(pair(category, short.unwrap_or(0)));
        }
        if let Some(value) = long {
            self.push(value);
        }
        self
    }

    fn with_bytes(mut self, bytes: &'a [u8], cut: u8) -> Encoded<'a> {
        self.tail = Tail::Bytes(bytes, &[]);
        self.flags |= cut;
        self
    }

    fn with_words(kind: u8, id: u32, words: Words<'a>) -> Encoded<'a> {
        let most = MAX_TAIL_BYTES / 8;
        let (tail, count, cut) = match words {
            Words::Native(words) => {
                let (words, cut) = clip(words, most);
                (Tail::Words(words), words.len(), cut)
            }
            Words::Raw(bytes) => {
                let (bytes, cut) = clip(bytes, MAX_TAIL_BYTES);
                (Tail::RawWords(bytes), bytes.len() / 8, cut)
            }
        };
        let mut encoded = Encoded::fixed(kind, cut, [pair(id, count as u32)]);
        encoded.tail = tail;
        encoded
    }
}

impl<'a> Record<'a> {
    #[inline(always)]
    pub(crate) fn encode(&self) -> Encoded<'a> {
        match *self {
            Record::Meta { key, value } => {
                let (key, cut_key) = clip(key.as_bytes(), 256);
                let (value, cut) = clip(value, MAX_TAIL_BYTES - 256);
                let mut encoded =
                    Encoded::fixed(kind::META, cut | cut_key, [pair(key.len() as u32, value.len() as u32)]);
                encoded.tail = Tail::Bytes(key, value);
                encoded
            }
            Record::Str { id, text } => {
                let (text, cut) = clip(text, MAX_TAIL_BYTES);
                Encoded::fixed(kind::STR, 0, [pair(id.0, text.len() as u32)]).with_bytes(text, cut)
            }
            Record::Module { id, loaded_ns, base, end, bias, path, build_id } => {
                let (build_id, cut) = clip(build_id, 256);
                let fixed = [pair(id.0, path.0), loaded_ns, base, end, bias, pair(build_id.len() as u32, 0)];
                Encoded::fixed(kind::MODULE, 0, fixed).with_bytes(build_id, cut)
            }
            Record::Stack { id, addresses } => Encoded::with_words(kind::STACK, id.0, addresses),
            Record::PyCode { id, python_minor, first_line, filename, qualname, line_table } => {
                let (line_table, cut) = clip(line_table, MAX_TAIL_BYTES);
                let fixed = [
                    pair(id.0, line_table.len() as u32),
                    pair(filename.0, qualname.0),
                    pair(first_line, u32::from(python_minor)),
                ];
                Encoded::fixed(kind::PY_CODE, 0, fixed).with_bytes(line_table, cut)
            }
            Record::PyStack { id, frames } => Encoded::with_words(kind::PY_STACK, id.0, frames),
            Record::Thread { os_tid } => Encoded::fixed(kind::THREAD, 0, [os_tid]),
            Record::ThreadName { name } => Encoded::fixed(kind::THREAD_NAME, 0, [pair(name.0, 0)]),
            Record::Domain { id, name } => Encoded::fixed(kind::DOMAIN, 0, [pair(id.0, name.0)]),
            Record::Category { domain, category, name } => {
                Encoded::fixed(kind::CATEGORY, 0, [pair(domain.0, category), pair(name.0, 0)])
            }
            Record::ApiName { api, name } => {
                Encoded::fixed(kind::API_NAME, driver_flag(api), [pair(name.0, u32::from(api.cbid))])
            }
            Record::RangePush { t_ns, ref attributes } => {
                Encoded::fixed(kind::RANGE_PUSH, 0, [t_ns]).attributes(attributes)
            }
            Record::RangePop { t_ns, domain } => {
                Encoded::fixed(kind::RANGE_POP, 0, [t_ns, pair(domain.0, 0)])
            }
            Record::RangeStart { t_ns, range, ref attributes } => {
                Encoded::fixed(kind::RANGE_START, 0, [t_ns, range]).attributes(attributes)
            }
            Record::RangeEnd { t_ns, range, domain } => {
                Encoded::fixed(kind::RANGE_END, 0, [t_ns, range, pair(domain.0, 0)])
            }
            Record::Mark { t_ns, ref attributes } => {
                Encoded::fixed(kind::MARK, 0, [t_ns]).attributes(attributes)
            }
            Record::CallEnter(CallEnter { enter_ns, api, correlation, stack, py_stack }) => Encoded::fixed(
                kind::CALL_ENTER,
                driver_flag(api),
                [enter_ns, pair(correlation, u32::from(api.cbid)), pair(stack.0, py_stack.0)],
            ),
            Record::Call(ref call) => {
                let duration_ns = call.exit_ns.saturating_sub(call.enter_ns);
                let long = duration_ns >> DURATION_BITS != 0;
                let fixed = [
                    call.enter_ns,
                    if long { 0 } else { duration_ns }
                        | u64::from(call.nested_calls) << DURATION_BITS
                        | u64::from(call.nested_cbid) << 48,
                    pair(call.correlation, u32::from(call.api.cbid) | u32::from(call.result) << 16),
                    call.stream,
                    call.bytes,
                    call.object,
                    pair(call.stack.0, call.py_stack.0),
                ];
                let flags = driver_flag(call.api) | (call.copy_kind & COPY_KIND_MASK);
                let mut encoded = Encoded::fixed(kind::CALL, flags, fixed);
                if long {
                    encoded.flags |= FLAG_LONG;
                    encoded.push(duration_ns);
                }
                encoded
            }
            Record::QueryRun(ref run) => {
                let fixed = [
                    run.first_enter_ns,
                    run.last_exit_ns,
                    run.object,
                    pair(run.run, u32::from(run.api.cbid)),
                    pair(run.count, run.not_ready),
                    pair(run.stack.0, run.py_stack.0),
                ];
                Encoded::fixed(kind::QUERY_RUN, driver_flag(run.api), fixed)
            }
            Record::Memcpy(ref copy) => {
                let kinds = u32::from_le_bytes([copy.copy_kind, copy.src_kind, copy.dst_kind, copy.flags]);
                let fixed = [
                    pair(copy.correlation, kinds),
                    copy.bytes,
                    copy.start_cupti_ns,
                    copy.end_cupti_ns,
                    pair(copy.device, copy.context),
                    pair(copy.stream, copy.graph),
                    copy.graph_node,
                ];
                Encoded::fixed(kind::MEMCPY, 0, fixed)
            }
            Record::Memset(ref set) => {
                let fixed = [
                    pair(set.correlation, u32::from(set.memory_kind) | u32::from(set.flags) << 16),
                    set.bytes,
                    set.start_cupti_ns,
                    set.end_cupti_ns,
                    pair(set.device, set.context),
                    pair(set.stream, set.graph),
                    set.graph_node,
                ];
                Encoded::fixed(kind::MEMSET, 0, fixed)
            }
            Record::Synchronization(ref sync) => {
                let fixed = [
                    pair(sync.correlation, sync.sync_type),
                    sync.start_cupti_ns,
                    sync.end_cupti_ns,
                    pair(sync.context, sync.stream),
                    pair(sync.event, 0),
                ];
                Encoded::fixed(kind::SYNC, 0, fixed)
            }
            Record::Kernel(ref kernel) => {
                let fixed = [
                    pair(kernel.correlation, kernel.name.0),
                    kernel.start_cupti_ns,
                    kernel.end_cupti_ns,
                    pair(kernel.device, kernel.context),
                    pair(kernel.stream, kernel.graph),
                    kernel.graph_node,
                ];
                Encoded::fixed(kind::KERNEL, 0, fixed)
            }
            Record::Overhead(ref overhead) => {
                let fixed = [
                    pair(overhead.correlation, overhead.overhead_kind),
                    overhead.start_cupti_ns,
                    overhead.end_cupti_ns,
                ];
                Encoded::fixed(kind::OVERHEAD, 0, fixed)
            }
            Record::Clock(clock) => {
                Encoded::fixed(kind::CLOCK, 0, [clock.monotonic_ns, clock.realtime_ns, clock.cupti_ns])
            }
            Record::Note { t_ns, level, text } => {
                let (text, cut) = clip(text, MAX_TAIL_BYTES);
                let level = match level {
                    NoteLevel::Info => 0,
                    NoteLevel::Warning => 1,
                    NoteLevel::Problem => 2,
                };
                Encoded::fixed(kind::NOTE, level, [t_ns, pair(text.len() as u32, 0)]).with_bytes(text, cut)
            }
            Record::Fork { t_ns, child_pid } => Encoded::fixed(kind::FORK, 0, [t_ns, pair(child_pid, 0)]),
            Record::End { t_ns, reason, code } => {
                let reason = match reason {
                    EndReason::Exit => 0,
                    EndReason::Exec => 1,
                    EndReason::Disarmed => 2,
                };
                Encoded::fixed(kind::END, reason, [t_ns, pair(code, 0)])
            }
        }
    }

    /// The record in `payload` (everything behind the record header). `None` when the bytes don't have that kind's shape.
    #[inline]
    pub(crate) fn decode(kind: u8, flags: u8, payload: &'a [u8]) -> Option<Record<'a>> {
        let mut fields = Fields(payload);
        let record = match kind {
            kind::META => {
                let (key, value) = fields.pair()?;
                let key = std::str::from_utf8(fields.bytes(key)?).ok()?;
                Record::Meta { key, value: fields.bytes(value)? }
            }
            kind::STR => {
                let (id, length) = fields.pair()?;
                Record::Str { id: StrId(id), text: fields.bytes(length)? }
            }
            kind::MODULE => {
                let (id, path) = fields.pair()?;
                let (loaded_ns, base, end, bias) =
                    (fields.word()?, fields.word()?, fields.word()?, fields.word()?);
                let (length, _) = fields.pair()?;
                let build_id = fields.bytes(length)?;
                Record::Module { id: ModuleId(id), loaded_ns, base, end, bias, path: StrId(path), build_id }
            }
            kind::STACK => {
                let (id, count) = fields.pair()?;
                Record::Stack { id: StackId(id), addresses: fields.words(count)? }
            }
            kind::PY_CODE => {
                let (id, length) = fields.pair()?;
                let (filename, qualname) = fields.pair()?;
                let (first_line, minor) = fields.pair()?;
                Record::PyCode {
                    id: PyCodeId(id),
                    python_minor: u16::try_from(minor).ok()?,
                    first_line,
                    filename: StrId(filename),
                    qualname: StrId(qualname),
                    line_table: fields.bytes(length)?,
                }
            }
            kind::PY_STACK => {
                let (id, count) = fields.pair()?;
                Record::PyStack { id: PyStackId(id), frames: fields.words(count)? }
            }
            kind::THREAD => Record::Thread { os_tid: fields.word()? },
            kind::THREAD_NAME => Record::ThreadName { name: StrId(fields.pair()?.0) },
            kind::DOMAIN => {
                let (id, name) = fields.pair()?;
                Record::Domain { id: DomainId(id), name: StrId(name) }
            }
            kind::CATEGORY => {
                let (domain, category) = fields.pair()?;
                Record::Category { domain: DomainId(domain), category, name: StrId(fields.pair()?.0) }
            }
            kind::API_NAME => {
                let (name, cbid) = fields.pair()?;
                Record::ApiName { api: api(flags, u16::try_from(cbid).ok()?), name: StrId(name) }
            }
            kind::RANGE_PUSH => {
                Record::RangePush { t_ns: fields.word()?, attributes: fields.attributes(flags)? }
            }
            kind::RANGE_POP => Record::RangePop { t_ns: fields.word()?, domain: DomainId(fields.pair()?.0) },
            kind::RANGE_START => Record::RangeStart {
                t_ns: fields.word()?,
                range: fields.word()?,
                attributes: fields.attributes(flags)?,
            },
            kind::RANGE_END => Record::RangeEnd {
                t_ns: fields.word()?,
                range: fields.word()?,
                domain: DomainId(fields.pair()?.0),
            },
            kind::MARK => Record::Mark { t_ns: fields.word()?, attributes: fields.attributes(flags)? },
            kind::CALL_ENTER => {
                let enter_ns = fields.word()?;
                let (correlation, cbid) = fields.pair()?;
                let (stack, py_stack) = fields.pair()?;
                Record::CallEnter(CallEnter {
                    enter_ns,
                    api: api(flags, u16::try_from(cbid).ok()?),
                    correlation,
                    stack: StackId(stack),
                    py_stack: PyStackId(py_stack),
                })
            }
            kind::CALL => {
                let enter_ns = fields.word()?;
                let packed = fields.word()?;
                let (correlation, function) = fields.pair()?;
                let (stream, bytes, object) = (fields.word()?, fields.word()?, fields.word()?);
                let (stack, py_stack) = fields.pair()?;
                let duration_ns = match flags & FLAG_LONG {
                    0 => packed & ((1 << DURATION_BITS) - 1),
                    _ => fields.word()?,
                };
                Record::Call(Call {
                    enter_ns,
                    exit_ns: enter_ns.checked_add(duration_ns)?,
                    api: api(flags, function as u16),
                    correlation,
                    result: (function >> 16) as u16,
                    copy_kind: flags & COPY_KIND_MASK,
                    stream,
                    bytes,
                    object,
                    stack: StackId(stack),
                    py_stack: PyStackId(py_stack),
                    nested_calls: (packed >> DURATION_BITS) as u8,
                    nested_cbid: (packed >> 48) as u16,
                })
            }
            kind::QUERY_RUN => {
                let (first_enter_ns, last_exit_ns, object) = (fields.word()?, fields.word()?, fields.word()?);
                let (run, cbid) = fields.pair()?;
                let (count, not_ready) = fields.pair()?;
                let (stack, py_stack) = fields.pair()?;
                Record::QueryRun(QueryRun {
                    first_enter_ns,
                    last_exit_ns,
                    api: api(flags, u16::try_from(cbid).ok()?),
                    object,
                    run,
                    count,
                    not_ready,
                    stack: StackId(stack),
                    py_stack: PyStackId(py_stack),
                })
            }
            kind::MEMCPY => {
                let (correlation, kinds) = fields.pair()?;
                let [copy_kind, src_kind, dst_kind, flags] = kinds.to_le_bytes();
                let (bytes, start_cupti_ns, end_cupti_ns) = (fields.word()?, fields.word()?, fields.word()?);
                let ((device, context), (stream, graph)) = (fields.pair()?, fields.pair()?);
                Record::Memcpy(Memcpy {
                    correlation,
                    copy_kind,
                    src_kind,
                    dst_kind,
                    flags,
                    bytes,
                    start_cupti_ns,
                    end_cupti_ns,
                    device,
                    context,
                    stream,
                    graph,
                    graph_node: fields.word()?,
                })
            }
            kind::MEMSET => {
                let (correlation, kinds) = fields.pair()?;
                let (bytes, start_cupti_ns, end_cupti_ns) = (fields.word()?, fields.word()?, fields.word()?);
                let ((device, context), (stream, graph)) = (fields.pair()?, fields.pair()?);
                Record::Memset(Memset {
                    correlation,
                    memory_kind: kinds as u16,
                    flags: (kinds >> 16) as u16,
                    bytes,
                    start_cupti_ns,
                    end_cupti_ns,
                    device,
                    context,
                    stream,
                    graph,
                    graph_node: fields.word()?,
                })
            }
            kind::SYNC => {
                let (correlation, sync_type) = fields.pair()?;
                let (start_cupti_ns, end_cupti_ns) = (fields.word()?, fields.word()?);
                let ((context, stream), (event, _)) = (fields.pair()?, fields.pair()?);
                Record::Synchronization(Synchronization {
                    correlation,
                    sync_type,
                    start_cupti_ns,
                    end_cupti_ns,
                    context,
                    stream,
                    event,
                })
            }
            kind::KERNEL => {
                let (correlation, name) = fields.pair()?;
                let (start_cupti_ns, end_cupti_ns) = (fields.word()?, fields.word()?);
                let ((device, context), (stream, graph)) = (fields.pair()?, fields.pair()?);
                Record::Kernel(Kernel {
                    name: StrId(name),
                    correlation,
                    start_cupti_ns,
                    end_cupti_ns,
                    device,
                    context,
                    stream,
                    graph,
                    graph_node: fields.word()?,
                })
            }
            kind::OVERHEAD => {
                let (correlation, overhead_kind) = fields.pair()?;
                Record::Overhead(Overhead {
                    overhead_kind,
                    correlation,
                    start_cupti_ns: fields.word()?,
                    end_cupti_ns: fields.word()?,
                })
            }
            kind::CLOCK => Record::Clock(Clock {
                monotonic_ns: fields.word()?,
                realtime_ns: fields.word()?,
                cupti_ns: fields.word()?,
            }),
            kind::NOTE => {
                let t_ns = fields.word()?;
                let (length, _) = fields.pair()?;
                let level = match flags & !FLAG_TRUNCATED {
                    0 => NoteLevel::Info,
                    1 => NoteLevel::Warning,
                    _ => NoteLevel::Problem,
                };
                Record::Note { t_ns, level, text: fields.bytes(length)? }
            }
            kind::FORK => Record::Fork { t_ns: fields.word()?, child_pid: fields.pair()?.0 },
            kind::END => {
                let reason = match flags {
                    0 => EndReason::Exit,
                    1 => EndReason::Exec,
                    _ => EndReason::Disarmed,
                };
                Record::End { t_ns: fields.word()?, reason, code: fields.pair()?.0 }
            }
            _ => return None,
        };
        Some(record)
    }
}

/// What is left of a record's payload.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    #[inline(always)]
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    #[inline(always)]
    fn pair(&mut self) -> Option<(u32, u32)> {
        self.word().map(split)
    }

    fn bytes(&mut self, length: u32) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    fn words(&mut self, count: u32) -> Option<Words<'a>> {
        self.bytes(count.checked_mul(8)?).map(Words::Raw)
    }

    #[inline(always)]
    fn attributes(&mut self, flags: u8) -> Option<RangeAttributes> {
        let (domain, name) = self.pair()?;
        let (category, short) = if flags & FLAG_CATEGORY != 0 { self.pair()? } else { (0, 0) };
        let payload = match flags & PAYLOAD_MASK {
            0 => Payload::None,
            1 => Payload::U64(self.word()?),
            2 => Payload::I64(self.word()? as i64),
            3 => Payload::F64(f64::from_bits(self.word()?)),
            4 => Payload::U32(short),
            5 => Payload::I32(short as i32),
            6 => Payload::F32(f32::from_bits(short)),
            _ => return None,
        };
        Some(RangeAttributes { domain: DomainId(domain), name: StrId(name), category, payload })
    }
}
