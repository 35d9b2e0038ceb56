//! The writer: one log per process image, one lane of chunks per thread.
//!
//! In: records. Out: a mapped file that is readable at any moment, whatever kills the process. Must never panic, block
//! on another thread on the way of an ordinary record, allocate there, or touch a page without reserved disk space.
//! When the file can't grow, records are dropped and counted in the header by reason; the program goes on.
//!
//! A *lane* is a row of chunks with one writer at a time. A thread that ends leaves its half-full lane to the next new
//! one, so that a program with many short threads does not pay 64 KiB for each.

use crate::check::Check;
use crate::format::*;
use crate::intern::Interned;
use crate::loss::LossReason;
use crate::map::{
    ForkWord, LogHandle, Segment, SlotPart, monotonic_ns, os_thread_id, random_u64, realtime_ns,
};
use crate::record::{Api, Encoded, EndReason, PyCodeId, PyStackId, Record, StackId, StrId, Tail, Words};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// First growth step; doubles up to [`MAX_GROWTH_SLOTS`]. Small, since many traced processes write next to nothing.
const FIRST_GROWTH_SLOTS: usize = 4;
const MAX_GROWTH_SLOTS: usize = 64;
/// While the file can't grow, it is tried again once in so many requests.
const RETRY_AFTER: u32 = 4096;
/// Highest `N` in `PID-N.salog`.
const MAX_IMAGES: u32 = 10_000;

/// What a log may cost.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Largest size of the file, in bytes.
    pub max_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { max_bytes: u64::MAX }
    }
}

/// A log could not be created.
#[derive(Debug)]
pub struct CreateError {
    path: PathBuf,
    what: &'static str,
    source: Option<io::Error>,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write the event log {}: {}", self.path.display(), self.what)?;
        match &self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CreateError {}

/// The log of this process image. Shared by all threads; each writes through a [`ThreadLog`] of its own.
pub struct LogWriter {
    alive: ForkWord,
    header: Segment,
    nonce: u64,
    path: PathBuf,
    space: Mutex<Space>,
    pub(crate) interned: Interned,
    next_range: AtomicU64,
}

struct Space {
    handle: LogHandle,
    /// Where the next chunks come from, and how many of it are handed out.
    segment: Option<Arc<Segment>>,
    used: usize,
    growth: usize,
    max_bytes: u64,
    lanes: u32,
    free_lanes: Vec<Lane>,
    refusal: Option<LossReason>,
    refused: u32,
    sealed: bool,
    chunks: u32,
}

struct Lane {
    number: u32,
    next_sequence: u32,
    chunk: Option<SlotPart>,
    /// Bytes of records committed in `chunk`.
    committed: usize,
}

impl LogWriter {
    /// Creates `PID-N.salog` in `directory` with the first free `N`. The file is created with mode 0600, never opened
    /// through a symbolic link and never shared with anything that existed before.
    ///
    /// # Errors
    /// When the directory can't be written, has no room for the first chunks, or can't map files.
    pub fn create(directory: &Path, options: Options) -> Result<LogWriter, CreateError> {
        let pid = std::process::id();
        for image in 0..MAX_IMAGES {
            let path = directory.join(format!("{pid}-{image}.salog"));
            match LogHandle::create(&path) {
                Ok(handle) => {
                    return LogWriter::start(handle, options).inspect_err(|_| {
                        // An empty log would be taken for one of a killed process.
                        let _ = std::fs::remove_file(&path);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(source) => {
                    return Err(CreateError {
                        path,
                        what: "the file can't be created",
                        source: Some(source),
                    });
                }
            }
        }
        Err(CreateError {
            path: directory.to_owned(),
            what: "it already holds 10000 logs of this process id",
            source: None,
        })
    }

    fn start(mut handle: LogHandle, options: Options) -> Result<LogWriter, CreateError> {
        let path = handle.path().to_owned();
        let error = |what, source: Option<io::Error>| CreateError { path: path.clone(), what, source };
        let alive = ForkWord::new().map_err(|source| error("no memory", Some(source)))?;
        let header = handle.grow(SLOT_BYTES).map_err(|reason| error(reason.text(), None))?;
        let nonce = random_u64();
        let written = handle.write_at(&header_bytes(nonce), 0);
        written.map_err(|source| error("the header can't be written", Some(source)))?;
        let space = Space {
            handle,
            segment: None,
            used: 0,
            growth: FIRST_GROWTH_SLOTS,
            max_bytes: options.max_bytes,
            lanes: 0,
            free_lanes: Vec::new(),
            refusal: None,
            refused: 0,
            sealed: false,
            chunks: 0,
        };
        Ok(LogWriter {
            alive,
            header,
            nonce,
            path: path.clone(),
            space: Mutex::new(space),
            interned: Interned::default(),
            next_range: AtomicU64::new(1),
        })
    }

    /// Where the log is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `false` in a forked child (and after [`LogWriter::abandon`]): the log is then the parent's, every write through
    /// it is ignored, and the child should create a log of its own.
    #[inline(always)]
    pub fn is_alive(&self) -> bool {
        self.alive.is_set()
    }

    /// Stops all writing through this value for good without touching the file. For fork handlers in the child, on
    /// systems that can't wipe memory on fork; harmless elsewhere.
    pub fn abandon(&self) {
        self.alive.clear();
    }

    /// Adds to the counter of lost events in the file header. Needs no space, works at any time.
    pub fn count_loss(&self, reason: LossReason, events: u64) {
        if !self.is_alive() {
            return;
        }
        if let Some(counter) = self.header.atomic_u64(AT_LOSSES + 8 * reason as usize) {
            counter.fetch_add(events, Ordering::Relaxed);
        }
    }

    /// A number for an NVTX start/end range that is unique in this process.
    pub fn next_range_id(&self) -> u64 {
        self.next_range.fetch_add(1, Ordering::Relaxed)
    }

    /// A handle for the calling thread. Cheap; the first record claims space.
    pub fn thread(&self) -> ThreadLog<'_> {
        ThreadLog { writer: self, lane: None, os_tid: os_thread_id(), cache: Default::default() }
    }

    /// Marks the log as complete and gives unused space back. Threads that still run may fill their current chunks;
    /// what needs a new one is counted as lost. The last call of the tracer, after its `End` record.
    pub fn seal(&self) {
        if !self.is_alive() {
            return;
        }
        let mut space = self.lock();
        if space.sealed {
            return;
        }
        space.sealed = true;
        // Whole slots are given back only when nobody can get them any more, which `sealed` says from here on.
        let end = match &space.segment {
            Some(segment) => segment.offset() + (space.used * SLOT_BYTES) as u64,
            None => space.handle.length(),
        };
        space.segment = None;
        space.handle.shrink(end);
        if let Some(state) = self.header.atomic_u32(AT_STATE) {
            state.store(STATE_SEALED.to_le(), Ordering::Release);
        }
    }

    /// The lock is for claiming chunks and lanes only. Nothing in there can panic, so poisoning means nothing.
    fn lock(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim_lane(&self) -> Lane {
        let mut space = self.lock();
        if let Some(lane) = space.free_lanes.pop() {
            return lane;
        }
        let number = space.lanes;
        space.lanes = number.saturating_add(1);
        Lane { number, next_sequence: 0, chunk: None, committed: 0 }
    }

    fn claim_chunk(&self, lane: &mut Lane) -> Result<(), LossReason> {
        let part = {
            let mut space = self.lock();
            let part = space.claim()?;
            space.chunks = space.chunks.saturating_add(1);
            if let Some(chunks) = self.header.atomic_u32(AT_CHUNKS) {
                chunks.store(space.chunks.to_le(), Ordering::Relaxed);
            }
            part
        };
        let slot = part.offset() / SLOT_BYTES as u64;
        let fields = [u64::from(lane.number) | u64::from(lane.next_sequence) << 32];
        let mut check = Check::new(self.nonce, part.offset());
        check.word(u64::from(CHUNK_MAGIC) | slot << 32);
        check.word(fields[0]);
        part.put_words(AT_CHUNK_LANE, &fields);
        part.put_words(AT_CHUNK_CHECK, &[u64::from(check.finish())]);
        part.publish_u32(AT_CHUNK_SLOT, slot as u32);
        // Last, so that a chunk with a magic has a whole header.
        part.publish_u32(AT_CHUNK_MAGIC, CHUNK_MAGIC);
        lane.next_sequence = lane.next_sequence.saturating_add(1);
        lane.committed = 0;
        lane.chunk = Some(part);
        Ok(())
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter").field("path", &self.path).field("alive", &self.is_alive()).finish()
    }
}

impl Space {
    #[allow(unsafe_code)]
    fn claim(&mut self) -> Result<SlotPart, LossReason> {
        if self.sealed {
            return Err(LossReason::AfterSeal);
        }
        let segment = match &self.segment {
            Some(segment) if self.used < segment.slots() => segment.clone(),
            _ => self.next_segment()?,
        };
        // SAFETY: `used` counts up under the lock and starts at 0 with each new segment, so every index is given once;
        // the header is not among these segments.
        let part = unsafe { SlotPart::new(segment, self.used) };
        self.used += 1;
        part.ok_or(LossReason::Io)
    }

    fn next_segment(&mut self) -> Result<Arc<Segment>, LossReason> {
        if let Some(reason) = self.refusal {
            self.refused = self.refused.wrapping_add(1);
            if !self.refused.is_multiple_of(RETRY_AFTER) {
                return Err(reason);
            }
        }
        // Near a limit, take what is left: down to a single chunk.
        let mut slots = self.growth;
        let grown = loop {
            let grown = match self.max_bytes.checked_sub((slots * SLOT_BYTES) as u64) {
                Some(most) if self.handle.length() <= most => self.handle.grow(slots * SLOT_BYTES),
                _ => Err(LossReason::MaxBytes),
            };
            if grown.is_ok() || slots == 1 {
                break grown;
            }
            slots /= 2;
        };
        match grown {
            Ok(segment) => {
                let segment = Arc::new(segment);
                self.segment = Some(segment.clone());
                self.used = 0;
                self.growth = (slots * 2).min(MAX_GROWTH_SLOTS);
                self.refusal = None;
                Ok(segment)
            }
            Err(reason) => {
                self.refusal = Some(reason);
                Err(reason)
            }
        }
    }
}

fn header_bytes(nonce: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = header.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(AT_MAGIC, &MAGIC);
    put(AT_VERSION, &VERSION.to_le_bytes());
    put(AT_SLOT_BYTES, &(SLOT_BYTES as u32).to_le_bytes());
    put(AT_NONCE, &nonce.to_le_bytes());
    put(AT_PID, &std::process::id().to_le_bytes());
    put(AT_PPID, &std::os::unix::process::parent_id().to_le_bytes());
    put(AT_REALTIME_NS, &realtime_ns().to_le_bytes());
    put(AT_MONOTONIC_NS, &monotonic_ns().to_le_bytes());
    let check = Check::of(nonce, 0, header.get(..AT_HEADER_CHECK).unwrap_or_default());
    if let Some(place) = header.get_mut(AT_HEADER_CHECK..AT_HEADER_CHECK + 4) {
        place.copy_from_slice(&check.to_le_bytes());
    }
    header
}

/// What one thread writes through. Not shared; keep it in a thread-local.
pub struct ThreadLog<'w> {
    writer: &'w LogWriter,
    lane: Option<Lane>,
    os_tid: u64,
    cache: crate::intern::ThreadCache,
}

impl<'w> ThreadLog<'w> {
    /// The log that this writes to.
    pub fn writer(&self) -> &'w LogWriter {
        self.writer
    }

    /// Appends a record. When this returns `true` the record survives anything that happens to the process; `false`
    /// means that it was lost and counted (or that this is a forked child, where nothing is counted).
    #[inline]
    pub fn write(&mut self, record: &Record<'_>) -> bool {
        self.append(&record.encode())
    }

    /// The id of a text, defining it on first use. [`StrId::NONE`] for an empty text and when the definition is lost.
    pub fn str(&mut self, text: &[u8]) -> StrId {
        // In a forked child the interner's locks may be held for ever, hence the second condition.
        if text.is_empty() || !self.writer.is_alive() {
            return StrId::NONE;
        }
        let writer = self.writer;
        if let Some(id) = writer.interned.strings.find(&mut self.cache.strings, text) {
            return StrId(id);
        }
        let id = writer.interned.strings.next_id();
        if !self.write(&Record::Str { id: StrId(id), text }) {
            return StrId::NONE;
        }
        StrId(writer.interned.strings.publish(&mut self.cache.strings, text, id))
    }

    /// The id of a native stack of return addresses, innermost first.
    pub fn stack(&mut self, addresses: &[u64]) -> StackId {
        if addresses.is_empty() || !self.writer.is_alive() {
            return StackId::NONE;
        }
        let writer = self.writer;
        if let Some(id) = writer.interned.stacks.find(&mut self.cache.stacks, addresses) {
            return StackId(id);
        }
        let id = writer.interned.stacks.next_id();
        if !self.write(&Record::Stack { id: StackId(id), addresses: Words::Native(addresses) }) {
            return StackId::NONE;
        }
        StackId(writer.interned.stacks.publish(&mut self.cache.stacks, addresses, id))
    }

    /// The id of a Python code object, told by words that no other code object has. `define` writes its [`Record::PyCode`] and
    /// says whether that is in the log; it is called for what is new.
    pub fn py_code(
        &mut self,
        identity: &[u64],
        define: impl FnOnce(&mut Self, PyCodeId) -> bool,
    ) -> PyCodeId {
        if !self.writer.is_alive() {
            return PyCodeId::NONE;
        }
        let writer = self.writer;
        if let Some(id) = writer.interned.py_codes.find(&mut self.cache.py_codes, identity) {
            return PyCodeId(id);
        }
        let id = writer.interned.py_codes.next_id();
        if !define(self, PyCodeId(id)) {
            return PyCodeId::NONE;
        }
        PyCodeId(writer.interned.py_codes.publish(&mut self.cache.py_codes, identity, id))
    }

    /// The id of a Python stack of packed [`crate::PyFrame`]s, innermost first.
    pub fn py_stack(&mut self, frames: &[u64]) -> PyStackId {
        if frames.is_empty() || !self.writer.is_alive() {
            return PyStackId::NONE;
        }
        let writer = self.writer;
        if let Some(id) = writer.interned.py_stacks.find(&mut self.cache.py_stacks, frames) {
            return PyStackId(id);
        }
        let id = writer.interned.py_stacks.next_id();
        if !self.write(&Record::PyStack { id: PyStackId(id), frames: Words::Native(frames) }) {
            return PyStackId::NONE;
        }
        PyStackId(writer.interned.py_stacks.publish(&mut self.cache.py_stacks, frames, id))
    }

    /// Names a function once per process; `name` is asked for only when it is new.
    pub fn api_name<'n>(&mut self, api: Api, name: impl FnOnce() -> &'n [u8]) {
        let writer = self.writer;
        if writer.interned.api_is_named(api) || !writer.is_alive() {
            return;
        }
        let name = self.str(name());
        if !name.is_none() && self.write(&Record::ApiName { api, name }) {
            writer.interned.api_named(api);
        }
    }

    /// Writes the `End` record and seals the log.
    pub fn end(&mut self, reason: EndReason, code: u32) {
        self.write(&Record::End { t_ns: monotonic_ns(), reason, code });
        self.writer.seal();
    }

    #[inline]
    fn append(&mut self, encoded: &Encoded<'_>) -> bool {
        if !self.writer.is_alive() {
            return false;
        }
        let words = 1 + encoded.count + encoded.tail.bytes().div_ceil(8);
        match &mut self.lane {
            Some(lane) if lane.has_room(words) => {}
            _ => {
                if !self.make_room(words) {
                    return false;
                }
            }
        }
        let Some(lane) = &mut self.lane else { return false };
        if encoded.flags & FLAG_TRUNCATED != 0 && !matches!(encoded.tail, Tail::None) {
            self.writer.count_loss(LossReason::Truncated, 1);
        }
        lane.append(self.writer.nonce, encoded, words)
    }

    #[cold]
    fn make_room(&mut self, words: usize) -> bool {
        let writer = self.writer;
        let lane = match &mut self.lane {
            Some(lane) => lane,
            None => {
                // The first record of a thread in a lane says whose the lane is now.
                let mut lane = writer.claim_lane();
                let thread = Record::Thread { os_tid: self.os_tid }.encode();
                if !lane.has_room(2)
                    && let Err(reason) = writer.claim_chunk(&mut lane)
                {
                    writer.count_loss(reason, 1);
                    writer.lock().free_lanes.push(lane);
                    return false;
                }
                lane.append(writer.nonce, &thread, 2);
                self.lane.insert(lane)
            }
        };
        if lane.has_room(words) {
            return true;
        }
        if let Err(reason) = writer.claim_chunk(lane) {
            writer.count_loss(reason, 1);
            return false;
        }
        lane.has_room(words)
    }
}

impl Drop for ThreadLog<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            match self.writer.is_alive() {
                true => self.writer.lock().free_lanes.push(lane),
                // In a forked child the lock may be held for ever by a thread that does not exist here.
                false => std::mem::forget(lane),
            }
        }
    }
}

impl Lane {
    #[inline(always)]
    fn has_room(&self, words: usize) -> bool {
        self.chunk.is_some() && self.committed + words * 8 <= CHUNK_CAPACITY
    }

    /// Writes a record behind the committed ones and publishes it. The caller has made sure that there is room.
    #[inline(always)]
    fn append(&mut self, nonce: u64, encoded: &Encoded<'_>, words: usize) -> bool {
        let Some(chunk) = &self.chunk else { return false };
        let at = CHUNK_HEADER_BYTES + self.committed;
        let head = u64::from(encoded.kind) | u64::from(encoded.flags) << 8 | (words as u64) << 16;
        let mut check = Check::new(nonce, chunk.offset() + at as u64);
        check.word(head);
        let fixed = encoded.words.get(..encoded.count).unwrap_or_default();
        for word in fixed {
            check.word(*word);
        }
        chunk.put_words(at + 8, fixed);
        if !matches!(encoded.tail, Tail::None) {
            put_tail(chunk, at + 8 + fixed.len() * 8, &encoded.tail, &mut check);
        }
        chunk.put_words(at, &[head | u64::from(check.finish()) << 32]);
        self.committed += words * 8;
        chunk.publish_u32(AT_CHUNK_COMMITTED, self.committed as u32);
        true
    }
}

fn put_tail(chunk: &SlotPart, at: usize, tail: &Tail<'_>, check: &mut Check) {
    match tail {
        Tail::None => {}
        Tail::Bytes(first, second) => {
            chunk.put_bytes(at, first);
            chunk.put_bytes(at + first.len(), second);
        }
        Tail::Words(words) => chunk.put_words(at, words),
        Tail::RawWords(bytes) => chunk.put_bytes(at, bytes),
    }
    // The padding is zero already: chunks are never used twice.
    for word in chunk.bytes(at, tail.bytes().next_multiple_of(8)).as_chunks::<8>().0 {
        check.word(u64::from_le_bytes(*word));
    }
}
