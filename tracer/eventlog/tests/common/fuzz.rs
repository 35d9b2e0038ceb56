//! The mutation engine: damages valid logs in many ways and holds the reader to its promises.
//!
//! For every input: no panic; what is handed out can be walked and looked up; memory stays within a small multiple of the
//! file. Where the damage is left to the checks, in addition: the reader hands out a prefix of what each thread wrote and
//! nothing else, and after one single damage to a sealed log it never loses a record without a warning.
#![allow(unsafe_code)]

use crate::common::{KINDS, Random, build};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use syncaudit_eventlog::*;

/// Counts what is allocated, to hold the reader to its memory bound.
pub struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grew(bytes: usize) {
    PEAK.fetch_max(NOW.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
}

// SAFETY: hands everything to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grew(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Memory that the reader may use per byte of the file, the file itself included, and beside that.
const MEMORY_FACTOR: usize = 8;
const MEMORY_BASE: usize = 256 * 1024;

/// A valid log and what is in it.
struct Original {
    bytes: Vec<u8>,
    file: LogFile,
    lengths: BTreeMap<u64, usize>,
    records: usize,
    sealed: bool,
}

pub struct Fuzzer {
    originals: Vec<Original>,
    random: Random,
    pub totals: Totals,
    /// The input being tried.
    input: Vec<u8>,
}

impl Drop for Fuzzer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = std::env::temp_dir().join(format!("eventlog-fuzz-{}.salog", std::process::id()));
            std::fs::write(&path, &self.input).unwrap();
            eprintln!("the input that broke a promise is in {}", path.display());
        }
    }
}

/// What the inputs came to. A run in which one of these stays 0 has not tested what it says.
#[derive(Debug, Default, Clone, Copy)]
pub struct Totals {
    pub inputs: u64,
    /// Not accepted as a log.
    pub refused: u64,
    /// Accepted with a warning that tells of the damage.
    pub warned: u64,
    /// Accepted without: the damage hit nothing that is in use, or the checks were made right.
    pub clean: u64,
    /// Inputs whose checks were made right after the damage.
    pub checks_made_right: u64,
    /// Inputs that were held to the "no silent loss" promise.
    pub single_damage: u64,
    pub records_walked: u64,
}

impl Fuzzer {
    pub fn new(seed: u64) -> Fuzzer {
        let mut random = Random(seed);
        let originals = vec![
            original(&mut random, 3, 120, true),
            original(&mut random, 2, 300, true),
            original(&mut random, 2, 300, false),
            original(&mut random, 1, 1, false),
        ];
        Fuzzer { originals, random, totals: Totals::default(), input: Vec::new() }
    }

    /// Makes one input and tries it. Panics with the number of the input when the reader breaks a promise.
    pub fn step(&mut self) {
        let number = self.totals.inputs;
        self.totals.inputs += 1;
        let random = &mut self.random;
        let which = random.below(self.originals.len());
        let original = &self.originals[which];
        let mut bytes = original.bytes.clone();
        let damages = match random.below(4) {
            0 | 1 => 1,
            _ => 1 + random.below(6),
        };
        let mut header_touched = false;
        for _ in 0..damages {
            let other = &self.originals[random.below(self.originals.len())].bytes;
            header_touched |= damage(&mut bytes, other, random) < format::HEADER_BYTES;
        }
        let checks_made_right = random.below(2) == 0;
        if checks_made_right {
            testing::make_checks_right(&mut bytes);
            self.totals.checks_made_right += 1;
        }

        self.input.clone_from(&bytes);
        let length = bytes.len();
        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let result = LogFile::from_bytes(bytes);
        let used = PEAK.load(Ordering::Relaxed) - before + length;
        assert!(used <= MEMORY_FACTOR * length + MEMORY_BASE, "input {number}: {used} bytes for {length}");
        let file = match result {
            Ok(file) => file,
            Err(error) => {
                black_box(error.to_string());
                self.totals.refused += 1;
                return;
            }
        };
        match file.warnings().iter().any(tells_damage) {
            true => self.totals.warned += 1,
            false => self.totals.clean += 1,
        }
        let walked = walk(&file);
        self.totals.records_walked += walked as u64;
        let unknown: u64 = file
            .warnings()
            .iter()
            .map(|warning| match warning {
                Warning::UnknownKind { records, .. } => *records,
                _ => 0,
            })
            .sum();
        let counted = file.summary().records;
        assert!(
            walked as u64 <= counted && walked as u64 + unknown >= counted,
            "input {number}: wrong count"
        );
        if checks_made_right {
            return;
        }
        for thread in file.threads() {
            let known = original.file.threads().find(|known| known.os_tid() == thread.os_tid());
            let known = known.unwrap_or_else(|| panic!("input {number}: a thread that never was"));
            let mut wrote = known.records();
            for record in thread.records() {
                assert_eq!(Some(record), wrote.next(), "input {number}: a record that was never written");
            }
            assert!(thread.records().count() <= original.lengths[&thread.os_tid()]);
        }
        if damages == 1 && original.sealed && !header_touched {
            self.totals.single_damage += 1;
            assert!(
                walked == original.records || file.warnings().iter().any(tells_damage),
                "input {number}: {} records lost in silence",
                original.records - walked
            );
        }
    }
}

/// A log with records of all kinds in as many lanes as `threads`, each used by two threads one after the other.
fn original(random: &mut Random, threads: usize, records: usize, sealed: bool) -> Original {
    let folder = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(folder.path(), Options::default()).unwrap();
    for _ in 0..2 {
        write_nested(&writer, random, records, threads);
    }
    if sealed {
        writer.seal();
    }
    let mut bytes = std::fs::read(writer.path()).unwrap();
    // Reserved space at the end of an open log says nothing; less to copy a million times.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if !sealed {
        bytes.truncate(used.next_multiple_of(format::SLOT_BYTES));
    }
    let file = LogFile::from_bytes(bytes.clone()).unwrap();
    let strange =
        |warning: &&Warning| !matches!(warning, Warning::Undefined { .. } | Warning::DoubleDefinition { .. });
    assert_eq!(file.warnings().iter().find(strange), None);
    let lengths: BTreeMap<u64, usize> =
        file.threads().map(|thread| (thread.os_tid(), thread.records().count())).collect();
    let records = file.threads().map(|thread| thread.records().count()).sum();
    Original { bytes, file, lengths, records, sealed }
}

/// The records have ids from a random generator, so the undamaged logs have warnings about these already.
fn tells_damage(warning: &Warning) -> bool {
    !matches!(warning, Warning::Undefined { .. } | Warning::DoubleDefinition { .. })
}

/// Threads within threads: each keeps its lane until those inside it are done, so there is a lane per level, and the
/// layout does not depend on timing.
fn write_nested(writer: &LogWriter, random: &mut Random, records: usize, depth: usize) {
    std::thread::scope(|scope| {
        let work = || {
            let mut log = writer.thread();
            write_records(&mut log, random, records);
            if depth > 1 {
                write_nested(writer, random, records, depth - 1);
            }
            write_records(&mut log, random, records / 4);
        };
        scope.spawn(work).join().unwrap();
    });
}

fn write_records(log: &mut ThreadLog<'_>, random: &mut Random, records: usize) {
    let stack: Vec<u64> = (0..20).map(|_| random.next()).collect();
    let (name, stack) = (log.str(b"step"), log.stack(&stack));
    for index in 0..records {
        let mut from = random.ingredients(600, 60);
        // Small numbers, so that references meet definitions.
        if index % 2 == 0 {
            from.words.iter_mut().for_each(|word| *word %= 16);
        }
        // Thread records are the writer's own business.
        let kind = match random.below(KINDS) {
            6 => 7,
            kind => kind,
        };
        log.write(&build(kind, &from));
        let attributes = RangeAttributes { name, ..Default::default() };
        log.write(&Record::RangePush { t_ns: index as u64, attributes });
        log.write(&Record::CallEnter(CallEnter {
            enter_ns: index as u64,
            api: Api { domain: ApiDomain::Driver, cbid: 279 },
            correlation: 1,
            stack,
            py_stack: PyStackId::NONE,
        }));
    }
}

/// Changes something; returns the lowest offset that it touched.
fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) -> usize {
    const WORDS: [u64; 8] =
        [0, 1, u64::MAX, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_0000, 0x1_0000_0000];
    if bytes.is_empty() {
        bytes.extend((0..random.below(100)).map(|_| random.next() as u8));
        return 0;
    }
    let slots = bytes.len() / format::SLOT_BYTES;
    let slot = |random: &mut Random| random.below(slots.max(2) - 1) + 1;
    let range = |slot: usize| slot * format::SLOT_BYTES..(slot + 1) * format::SLOT_BYTES;
    // Most of the file is records; the headers are small and matter much.
    let place = |random: &mut Random, bytes: &[u8]| {
        let at = match random.below(8) {
            0 => random.below(format::AT_LOSSES + 16),
            1 => slot(random) * format::SLOT_BYTES + random.below(format::CHUNK_HEADER_BYTES + 64),
            _ => random.below(bytes.len().saturating_sub(format::SLOT_BYTES)) + format::SLOT_BYTES,
        };
        at.min(bytes.len() - 1)
    };
    match random.below(15) {
        0..=2 => {
            let at = place(random, bytes);
            bytes[at] ^= 1 << random.below(8);
            at
        }
        3 => {
            let at = place(random, bytes);
            bytes[at] = random.next() as u8;
            at
        }
        4 => {
            let length = match random.below(4) {
                0 => random.below(format::HEADER_BYTES + 64).min(bytes.len()),
                1 => (random.below(slots + 1) * format::SLOT_BYTES).min(bytes.len()),
                _ => random.below(bytes.len()),
            };
            bytes.truncate(length);
            length
        }
        5 if slots > 2 => {
            let (one, two) = (slot(random), slot(random));
            let copy = bytes[range(one)].to_vec();
            bytes.copy_within(range(two), range(one).start);
            bytes[range(two)].copy_from_slice(&copy);
            range(one.min(two)).start
        }
        6 if slots > 2 => {
            let (from, to) = (slot(random), slot(random));
            bytes.copy_within(range(from), range(to).start);
            range(to).start
        }
        7 if slots > 1 && other.len() >= 2 * format::SLOT_BYTES => {
            let from = range(random.below(other.len() / format::SLOT_BYTES));
            let to = range(slot(random));
            let start = to.start;
            bytes[to].copy_from_slice(&other[from]);
            start
        }
        8 => {
            let at = place(random, bytes);
            let end = (at + 1 + random.below(64)).min(bytes.len());
            bytes[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
            at
        }
        9 => {
            let at = place(random, bytes);
            let most = 1 << random.below(17);
            let end = (at + 1 + random.below(most)).min(bytes.len());
            bytes[at..end].fill(0);
            at
        }
        10 => {
            let at = place(random, bytes) & !7;
            let word =
                WORDS[random.below(WORDS.len())] ^ if random.below(2) == 0 { 0 } else { random.next() % 9 };
            if let Some(place) = bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            at
        }
        11 => {
            // The length of a record.
            let mut at = slot(random) * format::SLOT_BYTES + format::CHUNK_HEADER_BYTES;
            for _ in 0..random.below(200) {
                let Some([_, _, low, high, ..]) = bytes.get(at..) else { break };
                let length = usize::from(u16::from_le_bytes([*low, *high])) * 8;
                if length == 0 || at + length + 8 > bytes.len() {
                    break;
                }
                at += length;
            }
            let length = match random.below(3) {
                0 => random.below(12) as u16,
                1 => u16::MAX,
                _ => random.next() as u16,
            };
            if let Some(place) = bytes.get_mut(at + 2..at + 4) {
                place.copy_from_slice(&length.to_le_bytes());
            }
            at
        }
        12 => {
            let length = bytes.len();
            bytes.extend((0..random.below(3000)).map(|_| random.next() as u8));
            length
        }
        13 => {
            // Bytes fall out or come in, as in a transfer that went wrong.
            let at = place(random, bytes);
            let count = 1 + random.below(16);
            if random.below(2) == 0 {
                bytes.drain(at..(at + count).min(bytes.len()));
            } else {
                bytes.splice(at..at, std::iter::repeat_n(random.next() as u8, count));
            }
            at
        }
        _ => {
            // Words move within a chunk.
            let from = place(random, bytes) & !7;
            let length = (8 * (1 + random.below(32))).min(bytes.len() - from);
            let to = (place(random, bytes) & !7).min(bytes.len() - length);
            bytes.copy_within(from..from + length, to);
            to
        }
    }
}

/// Touches everything that a log can be asked for; returns how many records it handed out.
fn walk(file: &LogFile) -> usize {
    let mut walked = 0;
    let mut out = String::new();
    file.warnings().iter().for_each(|warning| write!(out, "{warning}").unwrap());
    for key in file.meta_keys() {
        black_box(file.meta(key));
    }
    black_box(file.modules().count());
    for thread in file.threads() {
        black_box(thread.name());
        for record in thread.records() {
            walked += 1;
            match record {
                Record::RangePush { attributes, .. }
                | Record::RangeStart { attributes, .. }
                | Record::Mark { attributes, .. } => {
                    black_box(file.str(attributes.name));
                    black_box(file.domain(attributes.domain));
                    black_box(file.category(attributes.domain, attributes.category));
                }
                Record::Call(call) => {
                    black_box(file.api_name(call.api));
                    black_box(file.stack(call.stack).map(|stack| stack.iter().fold(0, u64::wrapping_add)));
                    black_box(file.py_stack(call.py_stack).map(|stack| {
                        stack.iter().filter_map(|frame| file.py_code(PyFrame::unpack(frame).code)).count()
                    }));
                }
                Record::Stack { addresses, .. } => {
                    black_box(addresses.len());
                }
                other => {
                    black_box(other);
                }
            }
        }
    }
    walked
}
