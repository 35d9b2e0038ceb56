//! The reader.
//!
//! In: the bytes of a log, from a running, finished, killed or damaged process, or of any other file. Out: the records
//! of every thread in order, the merged definitions, and typed warnings; or an error that says what the file is.
//! Must never panic, never believe a length, an id or a check it has not verified, and never use memory beyond a small
//! multiple of the file.
//!
//! Opening verifies everything once; what it then hands out is known to decode. In a damaged lane, records up to the
//! damage are handed out as events. Behind it only definitions are used: they stand for themselves, while an event's
//! meaning (thread, range stack) depends on what came before.

use crate::check::Check;
use crate::foreign;
use crate::format::*;
use crate::loss::LossReason;
use crate::record::*;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Seek};
use std::path::Path;

/// A file can't be read as an event log at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The file system said no.
    Io(io::Error),
    /// A folder, pipe or device.
    NotAFile,
    /// The file exists but has no byte: the process was killed at the moment of creating it.
    Empty,
    /// Something else than a log; the text says what it looks like.
    Foreign(&'static str),
    /// Begins as a log, but is shorter than its header.
    HeaderCutOff { bytes: u64 },
    /// Written by a later version.
    NewerVersion { found: u32 },
    /// The header's check is wrong.
    HeaderDamaged,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(error) => write!(f, "it can't be read: {error}"),
            OpenError::NotAFile => write!(f, "it is not a regular file"),
            OpenError::Empty => {
                write!(f, "it is empty; the process that created it was killed before it could write")
            }
            OpenError::Foreign(what) => write!(f, "it is not an event log; it looks like {what}"),
            OpenError::HeaderCutOff { bytes } => {
                write!(f, "it is cut off: {bytes} bytes are left of an event log, fewer than its header has")
            }
            OpenError::NewerVersion { found } => write!(
                f,
                "it is an event log of format version {found}, and this program reads up to version {VERSION}; \
                 read it with the syncaudit that recorded it, or a newer one"
            ),
            OpenError::HeaderDamaged => write!(f, "its header is damaged (the check over it is wrong)"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Something is wrong with a part of a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Warning {
    /// The file has fewer chunks than were handed out.
    CutOff { missing_chunks: u32 },
    /// The header of a chunk can't be right; what the chunk holds is not used.
    DamagedChunk { offset: u64 },
    /// A record can't be right; the rest of its lane is not used.
    DamagedRecord { offset: u64 },
    /// A chunk of a lane is missing; the rest of the lane is not used.
    MissingChunk { lane: u32, sequence: u32 },
    /// A chunk ends although the first record of the next one had fitted into it: what was between is lost.
    Gap { offset: u64 },
    /// Two chunks claim the same place in a lane; the first in the file is used.
    DoubleChunk { lane: u32, sequence: u32 },
    /// Readable events behind damage in their lane, which are not used.
    UnusedEvents { lane: u32, events: u64 },
    /// Records of kinds that this version does not know.
    UnknownKind { kind: u8, records: u64 },
    /// Definitions of ids that were defined already; the first in the file is used.
    DoubleDefinition { what: &'static str, definitions: u64 },
    /// Uses of ids that nothing defines.
    Undefined { what: &'static str, uses: u64 },
    /// A counter or flag in the header makes no sense.
    OddHeader { what: &'static str },
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::CutOff { missing_chunks } => write!(
                f,
                "the file is cut off: {} of {} KiB missing at its end",
                plural(u64::from(*missing_chunks), "chunk", "chunks"),
                SLOT_BYTES / 1024
            ),
            Warning::DamagedChunk { offset } => {
                write!(f, "the chunk at byte {offset} is damaged and was left out")
            }
            Warning::DamagedRecord { offset } => {
                write!(
                    f,
                    "the record at byte {offset} is damaged; what its thread wrote after it was left out"
                )
            }
            Warning::MissingChunk { lane, sequence } => write!(
                f,
                "chunk {sequence} of lane {lane} is missing; what its thread wrote after it was left out"
            ),
            Warning::Gap { offset } => {
                write!(
                    f,
                    "records are missing at byte {offset}; what their thread wrote after them was left out"
                )
            }
            Warning::DoubleChunk { lane, sequence } => {
                write!(f, "chunk {sequence} of lane {lane} is there twice; the first one was used")
            }
            Warning::UnusedEvents { lane, events } => {
                write!(f, "{} of lane {lane} behind damage left out", plural(*events, "event", "events"))
            }
            Warning::UnknownKind { kind, records } => write!(
                f,
                "{} of kind {kind}, which this version does not know; a newer syncaudit may",
                plural(*records, "record", "records")
            ),
            Warning::DoubleDefinition { what, definitions } => {
                write!(
                    f,
                    "{} of a {what} with an id that was taken; the first in the file was used",
                    plural(*definitions, "definition", "definitions")
                )
            }
            Warning::Undefined { what, uses } => {
                write!(f, "{} to a {what} that is not in the file", plural(*uses, "reference", "references"))
            }
            Warning::OddHeader { what } => write!(f, "the header's {what} makes no sense"),
        }
    }
}

/// What the file header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub pid: u32,
    pub ppid: u32,
    /// Wall clock at creation.
    pub created_realtime_ns: u64,
    /// The same moment on the clock of the events.
    pub created_monotonic_ns: u64,
    /// The tracer wrote its last word; otherwise the process was killed or is still running.
    pub sealed: bool,
    /// Events lost while writing, by reason; only counters that are not zero.
    pub losses: Vec<(LossReason, u64)>,
}

/// Totals of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub file_bytes: u64,
    /// Chunks with a readable header.
    pub chunks: u64,
    /// Records that are handed out.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// Records whose text or stack was cut when written.
    pub truncated_records: u64,
}

/// A log, verified and ready to be walked.
pub struct LogFile {
    bytes: Vec<u8>,
    header: Header,
    spans: Vec<Span>,
    threads: Vec<(u64, std::ops::Range<usize>)>,
    definitions: Definitions,
    warnings: Vec<Warning>,
    summary: Summary,
}

/// Records of one thread that lie together.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
}

/// Offsets of the defining records by id; 0 where there is none.
#[derive(Default)]
struct Definitions {
    strings: Vec<usize>,
    modules: Vec<usize>,
    stacks: Vec<usize>,
    py_codes: Vec<usize>,
    py_stacks: Vec<usize>,
    domains: Vec<usize>,
    categories: BTreeMap<(DomainId, u32), StrId>,
    apis: BTreeMap<Api, StrId>,
    /// Offset of the last record per key.
    meta: BTreeMap<String, usize>,
}

struct Chunk {
    lane: u32,
    sequence: u32,
    /// Of the first record.
    start: usize,
    /// Behind the last readable record.
    end: usize,
    events: u64,
    damaged: bool,
    /// Where in it a `Thread` record says that the lane has a new owner.
    owners: std::ops::Range<usize>,
}

impl LogFile {
    /// Reads and verifies a log.
    ///
    /// # Errors
    /// When the file can't be read or is no log that this version can read. Damage within a log is no error, see
    /// [`LogFile::warnings`].
    pub fn open(path: &Path) -> Result<LogFile, OpenError> {
        let metadata = std::fs::metadata(path).map_err(OpenError::Io)?;
        if !metadata.is_file() {
            return Err(OpenError::NotAFile);
        }
        let mut file = std::fs::File::open(path).map_err(OpenError::Io)?;
        // Look at the header before reading gigabytes of something else.
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(OpenError::Io)?;
        let (header, ..) = read_header(&bytes)?;
        // After the header, so that it covers all chunks that the header knows of.
        let length = file.metadata().map_err(OpenError::Io)?.len();
        let length = usize::try_from(length)
            .map_err(|_| OpenError::Io(io::Error::from(io::ErrorKind::FileTooLarge)))?
            .max(bytes.len());
        bytes
            .try_reserve_exact(length - bytes.len())
            .map_err(|_| OpenError::Io(io::Error::from(io::ErrorKind::OutOfMemory)))?;
        if header.sealed {
            let rest = (length - bytes.len()) as u64;
            Read::by_ref(&mut file).take(rest).read_to_end(&mut bytes).map_err(OpenError::Io)?;
        } else {
            bytes.resize(length, 0);
            read_backwards(&mut file, &mut bytes).map_err(OpenError::Io)?;
        }
        LogFile::from_bytes(bytes)
    }

    /// As [`LogFile::open`], for bytes in memory.
    ///
    /// # Errors
    /// When the bytes are no log that this version can read.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<LogFile, OpenError> {
        let (header, nonce, claimed) = read_header(&bytes)?;
        let mut scan = Scan::new(&bytes, nonce, header.sealed);
        if field(&bytes, AT_STATE) > STATE_SEALED {
            scan.warnings.push(Warning::OddHeader { what: "state" });
        }
        scan.chunks(claimed);
        let file_bytes = bytes.len() as u64;
        let Scan { spans, threads, definitions, mut warnings, mut summary, .. } = scan.finish();
        warnings.sort();
        summary.file_bytes = file_bytes;
        Ok(LogFile { bytes, header, spans, threads, definitions, warnings, summary })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The threads that wrote, in the order of their lanes in the file. Definitions are among the records.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = Thread<'_>> {
        self.threads.iter().map(|(os_tid, spans)| Thread {
            log: self,
            os_tid: *os_tid,
            spans: self.spans.get(spans.clone()).unwrap_or_default(),
        })
    }

    /// A fact about the process; keys in [`meta`].
    pub fn meta(&self, key: &str) -> Option<&[u8]> {
        match self.record_at(*self.definitions.meta.get(key)?)? {
            Record::Meta { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The keys of all facts, sorted.
    pub fn meta_keys(&self) -> impl Iterator<Item = &str> {
        self.definitions.meta.keys().map(String::as_str)
    }

    /// An interned text.
    pub fn str(&self, id: StrId) -> Option<&[u8]> {
        match self.definition(&self.definitions.strings, id.0)? {
            Record::Str { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Return addresses of a stack, innermost first.
    pub fn stack(&self, id: StackId) -> Option<Words<'_>> {
        match self.definition(&self.definitions.stacks, id.0)? {
            Record::Stack { addresses, .. } => Some(addresses),
            _ => None,
        }
    }

    /// Packed frames of a Python stack, innermost first; see [`PyFrame::unpack`].
    pub fn py_stack(&self, id: PyStackId) -> Option<Words<'_>> {
        match self.definition(&self.definitions.py_stacks, id.0)? {
            Record::PyStack { frames, .. } => Some(frames),
            _ => None,
        }
    }

    /// The [`Record::PyCode`] of a Python code object.
    pub fn py_code(&self, id: PyCodeId) -> Option<Record<'_>> {
        self.definition(&self.definitions.py_codes, id.0)
    }

    /// All [`Record::Module`]s by id.
    pub fn modules(&self) -> impl Iterator<Item = Record<'_>> {
        self.definitions.modules.iter().filter_map(|offset| self.record_at(*offset))
    }

    /// The name of an NVTX domain; `None` for the default domain.
    pub fn domain(&self, id: DomainId) -> Option<&[u8]> {
        match self.definition(&self.definitions.domains, id.0)? {
            Record::Domain { name, .. } => self.str(name),
            _ => None,
        }
    }

    /// The name of an NVTX category.
    pub fn category(&self, domain: DomainId, category: u32) -> Option<&[u8]> {
        self.str(*self.definitions.categories.get(&(domain, category))?)
    }

    /// The name of a CUDA function.
    pub fn api_name(&self, api: Api) -> Option<&[u8]> {
        self.str(*self.definitions.apis.get(&api)?)
    }

    fn definition(&self, table: &[usize], id: u32) -> Option<Record<'_>> {
        self.record_at(*table.get(id as usize)?)
    }

    /// Decodes the verified record at an offset; 0 is none.
    fn record_at(&self, offset: usize) -> Option<Record<'_>> {
        let raw = Raw::at(&self.bytes, offset, self.bytes.len())?;
        if offset == 0 { None } else { Record::decode(raw.kind, raw.flags, raw.payload) }
    }
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFile")
            .field("header", &self.header)
            .field("summary", &self.summary)
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// One thread of the traced process.
#[derive(Clone, Copy)]
pub struct Thread<'a> {
    log: &'a LogFile,
    os_tid: u64,
    spans: &'a [Span],
}

impl<'a> Thread<'a> {
    /// The kernel's thread id; 0 when its record is lost.
    pub fn os_tid(&self) -> u64 {
        self.os_tid
    }

    /// The last name that the thread was given.
    pub fn name(&self) -> Option<&'a [u8]> {
        let last = self.records().filter_map(|record| match record {
            Record::ThreadName { name } => Some(name),
            _ => None,
        });
        last.last().and_then(|name| self.log.str(name))
    }

    /// Its records in the order written.
    pub fn records(&self) -> Records<'a> {
        Records { bytes: &self.log.bytes, spans: self.spans.iter(), at: 0, end: 0 }
    }
}

/// Iterates over the records of a thread.
#[derive(Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    spans: std::slice::Iter<'a, Span>,
    at: usize,
    end: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            while self.at >= self.end {
                let span = self.spans.next()?;
                (self.at, self.end) = (span.start, span.end);
            }
            let Some(raw) = Raw::at(self.bytes, self.at, self.end) else {
                // Not reached: the span was verified. Going on to the next one is safe in any case.
                self.at = self.end;
                continue;
            };
            self.at += raw.length;
            // Unknown kinds were counted when the log was opened.
            if let Some(record) = Record::decode(raw.kind, raw.flags, raw.payload) {
                return Some(record);
            }
        }
    }
}

/// A record header and what belongs to it.
struct Raw<'a> {
    kind: u8,
    flags: u8,
    check: u32,
    length: usize,
    payload: &'a [u8],
}

impl<'a> Raw<'a> {
    /// `None` when there is no whole record between `at` and `end`.
    #[inline(always)]
    fn at(bytes: &'a [u8], at: usize, end: usize) -> Option<Raw<'a>> {
        let (head, rest) = bytes.get(at..end)?.split_first_chunk::<8>()?;
        let [kind, flags, low, high, check @ ..] = *head;
        let length = usize::from(u16::from_le_bytes([low, high])) * 8;
        let payload = rest.get(..length.checked_sub(8)?)?;
        Some(Raw { kind, flags, check: u32::from_le_bytes(check), length, payload })
    }

    #[inline(always)]
    fn is_whole(&self, nonce: u64, at: usize) -> bool {
        let mut check = Check::new(nonce, at as u64);
        check.word(u64::from(self.kind) | u64::from(self.flags) << 8 | (self.length as u64 / 8) << 16);
        for word in self.payload.as_chunks::<8>().0 {
            check.word(u64::from_le_bytes(*word));
        }
        check.finish() == self.check
    }
}

fn field(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |value| u32::from_le_bytes(*value))
}

fn wide_field(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map_or(0, |value| u64::from_le_bytes(*value))
}

/// Reads all slots but the first, the last one first. The process may still be writing: a lane's later chunks are then
/// read before its earlier ones, so what is read has no gap, as a lane never goes back to a chunk.
fn read_backwards(file: &mut std::fs::File, bytes: &mut [u8]) -> io::Result<()> {
    for (slot, part) in bytes.chunks_mut(SLOT_BYTES).enumerate().skip(1).rev() {
        file.seek(io::SeekFrom::Start((slot * SLOT_BYTES) as u64))?;
        match file.read_exact(part) {
            // Sealing has just given space back; it held nothing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => part.fill(0),
            result => result?,
        }
    }
    Ok(())
}

/// Header, nonce and number of chunks handed out.
fn read_header(bytes: &[u8]) -> Result<(Header, u64, u32), OpenError> {
    if bytes.is_empty() {
        return Err(OpenError::Empty);
    }
    if !bytes.starts_with(&MAGIC) {
        return Err(OpenError::Foreign(foreign::looks_like(bytes.get(..HEADER_BYTES).unwrap_or(bytes))));
    }
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Err(OpenError::HeaderCutOff { bytes: bytes.len() as u64 });
    };
    let version = field(header, AT_VERSION);
    if version > VERSION {
        return Err(OpenError::NewerVersion { found: version });
    }
    let nonce = wide_field(header, AT_NONCE);
    let checked = header.get(..AT_HEADER_CHECK).unwrap_or_default();
    if Check::of(nonce, 0, checked) != field(header, AT_HEADER_CHECK)
        || version == 0
        || field(header, AT_SLOT_BYTES) as usize != SLOT_BYTES
    {
        return Err(OpenError::HeaderDamaged);
    }
    let losses = LossReason::ALL
        .iter()
        .map(|reason| (*reason, wide_field(header, AT_LOSSES + 8 * *reason as usize)))
        .filter(|(_, count)| *count != 0)
        .collect();
    let result = Header {
        version,
        pid: field(header, AT_PID),
        ppid: field(header, AT_PPID),
        created_realtime_ns: wide_field(header, AT_REALTIME_NS),
        created_monotonic_ns: wide_field(header, AT_MONOTONIC_NS),
        sealed: field(header, AT_STATE) == STATE_SEALED,
        losses,
    };
    Ok((result, nonce, field(header, AT_CHUNKS)))
}

/// The pass over the file that verifies it.
struct Scan<'a> {
    bytes: &'a [u8],
    nonce: u64,
    sealed: bool,
    chunks: Vec<Chunk>,
    /// Offsets of `Thread` records with the thread id, in file order.
    owners: Vec<(usize, u64)>,
    uses: Uses,
    unknown: BTreeMap<u8, u64>,
    doubles: BTreeMap<&'static str, u64>,
    spans: Vec<Span>,
    threads: Vec<(u64, std::ops::Range<usize>)>,
    definitions: Definitions,
    warnings: Vec<Warning>,
    summary: Summary,
}

/// How often each id is used; ids beyond what a file of this size can define are counted together.
#[derive(Default)]
struct Uses {
    strings: Vec<u32>,
    stacks: Vec<u32>,
    py_stacks: Vec<u32>,
    py_codes: Vec<u32>,
    domains: Vec<u32>,
    beyond: u64,
}

impl<'a> Scan<'a> {
    fn new(bytes: &'a [u8], nonce: u64, sealed: bool) -> Scan<'a> {
        Scan {
            bytes,
            nonce,
            sealed,
            chunks: Vec::new(),
            owners: Vec::new(),
            uses: Uses::default(),
            unknown: BTreeMap::new(),
            doubles: BTreeMap::new(),
            spans: Vec::new(),
            threads: Vec::new(),
            definitions: Definitions::default(),
            warnings: Vec::new(),
            summary: Summary::default(),
        }
    }

    fn chunks(&mut self, claimed: u32) {
        let mut found = 0;
        for (slot, start) in (SLOT_BYTES..self.bytes.len()).step_by(SLOT_BYTES).enumerate() {
            let end = self.bytes.len().min(start + SLOT_BYTES);
            let header = self.bytes.get(start..end).unwrap_or_default();
            let magic = field(header, AT_CHUNK_MAGIC);
            if magic == 0 && slot as u64 >= u64::from(claimed) {
                // Reserved, not handed out.
                continue;
            }
            found = slot as u64 + 1;
            let mut check = Check::new(self.nonce, start as u64);
            check.word(wide_field(header, AT_CHUNK_MAGIC));
            check.word(wide_field(header, AT_CHUNK_LANE));
            if magic == CHUNK_MAGIC
                && header.len() >= CHUNK_HEADER_BYTES
                && field(header, AT_CHUNK_SLOT) as usize == slot + 1
                && field(header, AT_CHUNK_CHECK) == check.finish()
            {
                self.chunk(start, end);
            } else if self.sealed || header.iter().any(|byte| *byte != 0) {
                self.warnings.push(Warning::DamagedChunk { offset: start as u64 });
            }
            // Without a seal, a chunk of zeros was handed out at the moment of a kill.
        }
        let missing = u64::from(claimed).saturating_sub(found) as u32;
        if missing > 0 {
            self.warnings.push(Warning::CutOff { missing_chunks: missing });
        }
    }

    fn chunk(&mut self, base: usize, end: usize) {
        let lane = field(self.bytes, base + AT_CHUNK_LANE);
        let sequence = field(self.bytes, base + AT_CHUNK_SEQUENCE);
        let start = base + CHUNK_HEADER_BYTES;
        let committed = start.saturating_add(field(self.bytes, base + AT_CHUNK_COMMITTED) as usize);
        let owners = self.owners.len();
        let (mut at, mut events) = (start, 0);
        // Not only up to `committed`: a record with a right check was written, and thus a damaged length loses nothing.
        while let Some(raw) = Raw::at(self.bytes, at, end) {
            if !raw.is_whole(self.nonce, at) {
                break;
            }
            match Record::decode(raw.kind, raw.flags, raw.payload) {
                Some(record) => self.record(at, &record),
                None if kind::is_known(raw.kind) => break,
                None => *self.unknown.entry(raw.kind).or_default() += 1,
            }
            if raw.flags & FLAG_TRUNCATED != 0 {
                self.summary.truncated_records += 1;
            }
            events += 1;
            at += raw.length;
        }
        // In an open log, a record cut off by a kill may follow, of any length. When a log is sealed, every chunk is in use
        // and only a thread that outlived `exit` can have been cut off, in an event: anything more is damage that has hit
        // the committed length too.
        let rest = self.bytes.get(at + MAX_EVENT_BYTES..end).unwrap_or_default();
        let unclean = self.sealed && (at == start || rest.iter().any(|byte| *byte != 0));
        let damaged = at < committed || unclean;
        if damaged {
            self.warnings.push(Warning::DamagedRecord { offset: at as u64 });
        }
        self.summary.chunks += 1;
        let owners = owners..self.owners.len();
        self.chunks.push(Chunk { lane, sequence, start, end: at, events, damaged, owners });
    }

    #[inline]
    fn record(&mut self, at: usize, record: &Record<'_>) {
        // Every definition takes at least 16 bytes, so a larger id can't be the writer's.
        let most = self.bytes.len() / 16;
        let definitions = &mut self.definitions;
        let doubles = &mut self.doubles;
        let mut define = |table: &mut Vec<usize>, what, id: u32| {
            let index = id as usize;
            if index > most {
                return;
            }
            if table.len() <= index {
                table.resize(index + 1, 0);
            }
            match table.get_mut(index) {
                Some(place @ 0) => *place = at,
                _ => *doubles.entry(what).or_default() += 1,
            }
        };
        let uses = &mut self.uses;
        let beyond = &mut uses.beyond;
        let mut use_id = |table: &mut Vec<u32>, id: u32| {
            let index = id as usize;
            if index == 0 {
                return;
            }
            if index > most {
                *beyond += 1;
                return;
            }
            if table.len() <= index {
                table.resize(index + 1, 0);
            }
            if let Some(count) = table.get_mut(index) {
                *count = count.saturating_add(1);
            }
        };
        match *record {
            Record::Meta { key, .. } => {
                definitions.meta.insert(key.to_owned(), at);
            }
            Record::Str { id, .. } => define(&mut definitions.strings, "text", id.0),
            Record::Module { id, path, .. } => {
                define(&mut definitions.modules, "module", id.0);
                use_id(&mut uses.strings, path.0);
            }
            Record::Stack { id, .. } => define(&mut definitions.stacks, "stack", id.0),
            Record::PyCode { id, filename, qualname, .. } => {
                define(&mut definitions.py_codes, "Python code object", id.0);
                use_id(&mut uses.strings, filename.0);
                use_id(&mut uses.strings, qualname.0);
            }
            Record::PyStack { id, frames } => {
                define(&mut definitions.py_stacks, "Python stack", id.0);
                for frame in frames.iter() {
                    use_id(&mut uses.py_codes, PyFrame::unpack(frame).code.0);
                }
            }
            Record::Thread { os_tid } => self.owners.push((at, os_tid)),
            Record::ThreadName { name } => use_id(&mut uses.strings, name.0),
            Record::Domain { id, name } => {
                define(&mut definitions.domains, "domain", id.0);
                use_id(&mut uses.strings, name.0);
            }
            Record::Category { domain, category, name } => {
                definitions.categories.insert((domain, category), name);
                use_id(&mut uses.domains, domain.0);
                use_id(&mut uses.strings, name.0);
            }
            Record::ApiName { api, name } => {
                definitions.apis.entry(api).or_insert(name);
                use_id(&mut uses.strings, name.0);
            }
            Record::RangePush { attributes, .. }
            | Record::RangeStart { attributes, .. }
            | Record::Mark { attributes, .. } => {
                use_id(&mut uses.strings, attributes.name.0);
                use_id(&mut uses.domains, attributes.domain.0);
            }
            Record::RangePop { domain, .. } | Record::RangeEnd { domain, .. } => {
                use_id(&mut uses.domains, domain.0);
            }
            Record::CallEnter(CallEnter { stack, py_stack, .. })
            | Record::Call(Call { stack, py_stack, .. })
            | Record::QueryRun(QueryRun { stack, py_stack, .. }) => {
                use_id(&mut uses.stacks, stack.0);
                use_id(&mut uses.py_stacks, py_stack.0);
            }
            Record::Kernel(Kernel { name, .. }) => use_id(&mut uses.strings, name.0),
            Record::Memcpy(_)
            | Record::Memset(_)
            | Record::Synchronization(_)
            | Record::Overhead(_)
            | Record::Clock(_)
            | Record::Note { .. }
            | Record::Fork { .. }
            | Record::End { .. } => {}
        }
    }

    /// Puts the chunks of each lane in order and cuts them at changes of the thread.
    fn finish(mut self) -> Scan<'a> {
        let mut chunks = std::mem::take(&mut self.chunks);
        // Stable: of two chunks for one place the first in the file stays first.
        chunks.sort_by_key(|chunk| (chunk.lane, chunk.sequence));
        for lane in chunks.chunk_by(|one, next| one.lane == next.lane) {
            self.lane(lane);
        }
        for (kind, records) in std::mem::take(&mut self.unknown) {
            self.warnings.push(Warning::UnknownKind { kind, records });
        }
        for (what, definitions) in std::mem::take(&mut self.doubles) {
            self.warnings.push(Warning::DoubleDefinition { what, definitions });
        }
        let (uses, defined) = (&self.uses, &self.definitions);
        let undefined = |uses: &[u32], defined: &[usize]| {
            let of = |(id, uses): (usize, &u32)| match defined.get(id) {
                Some(offset) if *offset != 0 => 0,
                _ => u64::from(*uses),
            };
            uses.iter().enumerate().map(of).sum::<u64>()
        };
        for (what, uses) in [
            ("text", undefined(&uses.strings, &defined.strings)),
            ("stack", undefined(&uses.stacks, &defined.stacks)),
            ("Python stack", undefined(&uses.py_stacks, &defined.py_stacks)),
            ("Python code object", undefined(&uses.py_codes, &defined.py_codes)),
            ("domain", undefined(&uses.domains, &defined.domains)),
            ("thing", uses.beyond),
        ] {
            if uses > 0 {
                self.warnings.push(Warning::Undefined { what, uses });
            }
        }
        self
    }

    fn lane(&mut self, chunks: &[Chunk]) {
        let mut expected = 0;
        let mut broken = false;
        let mut unused = 0;
        let mut thread = None;
        let number = chunks.first().map_or(0, |chunk| chunk.lane);
        for (index, chunk) in chunks.iter().enumerate() {
            if chunk.sequence < expected {
                self.warnings.push(Warning::DoubleChunk { lane: number, sequence: chunk.sequence });
                continue;
            }
            if !broken && chunk.sequence != expected {
                self.warnings.push(Warning::MissingChunk { lane: number, sequence: expected });
                broken = true;
            }
            expected = chunk.sequence.saturating_add(1);
            if broken {
                unused += chunk.events;
                continue;
            }
            self.summary.records += chunk.events;
            self.summary.record_bytes += (chunk.end - chunk.start) as u64;
            let mut start = chunk.start;
            for index in chunk.owners.clone() {
                let Some((at, os_tid)) = self.owners.get(index).copied() else { break };
                self.span(start, at, &mut thread);
                thread = Some(os_tid);
                let from = self.spans.len();
                self.threads.push((os_tid, from..from));
                start = at;
            }
            self.span(start, chunk.end, &mut thread);
            broken = chunk.damaged;
            // A thread leaves a chunk only for a record that does not fit.
            let next = chunks.get(index + 1).and_then(|next| Raw::at(self.bytes, next.start, next.end));
            if let Some(next) = next
                && !broken
                && chunk.end - chunk.start + next.length <= CHUNK_CAPACITY
            {
                self.warnings.push(Warning::Gap { offset: chunk.end as u64 });
                broken = true;
            }
        }
        if unused > 0 {
            self.warnings.push(Warning::UnusedEvents { lane: number, events: unused });
        }
    }

    fn span(&mut self, start: usize, end: usize, thread: &mut Option<u64>) {
        if start >= end {
            return;
        }
        let from = self.spans.len();
        self.spans.push(Span { start, end });
        if thread.is_none() {
            *thread = Some(0);
            self.threads.push((0, from..from));
        }
        if let Some((_, spans)) = self.threads.last_mut() {
            spans.end = from + 1;
        }
    }
}
