//! What the reader says about damaged logs and about files that are none.
#![cfg(unix)]

use syncaudit_eventlog::format::*;
use syncaudit_eventlog::*;

fn attributes(name: StrId) -> RangeAttributes {
    RangeAttributes { name, ..Default::default() }
}

/// A sealed log whose only lane has more than two chunks.
fn log() -> (Vec<u8>, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(folder.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    let name = log.str(b"step");
    let times: Vec<u64> = (0..6000).collect();
    for t_ns in &times {
        assert!(log.write(&Record::Mark { t_ns: *t_ns, attributes: attributes(name) }));
    }
    log.end(EndReason::Exit, 0);
    (std::fs::read(writer.path()).unwrap(), times)
}

fn times(file: &LogFile) -> Vec<u64> {
    let records = file.threads().flat_map(|thread| thread.records());
    records
        .filter_map(|record| match record {
            Record::Mark { t_ns, .. } => Some(t_ns),
            _ => None,
        })
        .collect()
}

fn open(bytes: Vec<u8>) -> LogFile {
    LogFile::from_bytes(bytes).unwrap()
}

#[test]
fn a_flipped_bit_costs_the_rest_of_the_lane_and_is_told() {
    let (mut bytes, all) = log();
    let at = SLOT_BYTES + CHUNK_HEADER_BYTES + 30_000;
    bytes[at] ^= 4;
    let file = open(bytes);
    let read = times(&file);
    assert!(!read.is_empty() && read.len() < 1500);
    assert_eq!(read, all[..read.len()]);
    assert!(matches!(file.warnings(), [Warning::DamagedRecord { offset }, Warning::UnusedEvents { .. }]
            if *offset as usize <= at && at < *offset as usize + 24));
}

#[test]
fn a_damaged_committed_length_costs_nothing() {
    for length in [0, 24, 25, 60_000u32] {
        let (mut bytes, all) = log();
        bytes[SLOT_BYTES + AT_CHUNK_COMMITTED..][..4].copy_from_slice(&length.to_le_bytes());
        let file = open(bytes);
        assert_eq!(times(&file), all);
        assert_eq!(file.warnings(), []);
    }
}

#[test]
fn records_lost_between_two_chunks_are_a_gap() {
    let (mut bytes, all) = log();
    // The end of the first chunk is zeros, as after a power failure, and its length agrees.
    let start = SLOT_BYTES + CHUNK_HEADER_BYTES;
    let keep = 16 + 24 + 24 * 100;
    bytes[start + keep..2 * SLOT_BYTES].fill(0);
    bytes[SLOT_BYTES + AT_CHUNK_COMMITTED..][..4].copy_from_slice(&(keep as u32).to_le_bytes());
    let file = open(bytes);
    assert_eq!(times(&file), all[..100]);
    assert!(matches!(file.warnings(), [Warning::Gap { offset }, Warning::UnusedEvents { .. }]
            if *offset as usize == start + keep));
}

#[test]
fn chunks_that_changed_places_are_not_believed() {
    let (mut bytes, _) = log();
    let copy = bytes[SLOT_BYTES..2 * SLOT_BYTES].to_vec();
    bytes.copy_within(2 * SLOT_BYTES..3 * SLOT_BYTES, SLOT_BYTES);
    bytes[2 * SLOT_BYTES..3 * SLOT_BYTES].copy_from_slice(&copy);
    let file = open(bytes);
    assert!(times(&file).is_empty());
    assert!(file.warnings().contains(&Warning::DamagedChunk { offset: SLOT_BYTES as u64 }));
}

#[test]
fn a_record_that_was_copied_to_another_place_is_not_believed() {
    let (mut bytes, all) = log();
    // Marks are 24 bytes; the first is behind the thread record and the text.
    let mark = |index: usize| SLOT_BYTES + CHUNK_HEADER_BYTES + 16 + 24 + 24 * index;
    bytes.copy_within(mark(3)..mark(4), mark(10));
    let file = open(bytes);
    assert_eq!(times(&file), all[..10]);
    assert!(file.warnings().contains(&Warning::DamagedRecord { offset: mark(10) as u64 }));
}

#[test]
fn a_chunk_of_another_log_is_not_believed() {
    let (mut bytes, all) = log();
    let (other, _) = log();
    bytes[2 * SLOT_BYTES..3 * SLOT_BYTES].copy_from_slice(&other[2 * SLOT_BYTES..3 * SLOT_BYTES]);
    let file = open(bytes);
    let read = times(&file);
    assert_eq!(read, all[..read.len()]);
    assert!(file.warnings().contains(&Warning::DamagedChunk { offset: 2 * SLOT_BYTES as u64 }));
    assert!(file.warnings().contains(&Warning::MissingChunk { lane: 0, sequence: 1 }));
}

#[test]
fn every_truncation_yields_a_prefix_and_says_so() {
    let (bytes, all) = log();
    for length in (HEADER_BYTES..bytes.len()).step_by(1237).chain([SLOT_BYTES, 2 * SLOT_BYTES]) {
        let file = open(bytes[..length].to_vec());
        let read = times(&file);
        assert_eq!(read, all[..read.len()]);
        assert_eq!(read.len() < all.len(), !file.warnings().is_empty(), "cut to {length} bytes");
    }
}

#[test]
fn definitions_behind_damage_still_count() {
    let folder = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(folder.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    for t_ns in 0..300 {
        log.write(&Record::Mark { t_ns, attributes: attributes(StrId::NONE) });
    }
    // The next chunk of the same lane.
    log.str(&vec![b'x'; 60_000]);
    let late = log.str(b"late");
    log.str(&vec![b'y'; 60_000]);
    let mut bytes = std::fs::read(writer.path()).unwrap();
    bytes[SLOT_BYTES + CHUNK_HEADER_BYTES + 500] ^= 1;
    let file = open(bytes);
    assert!(file.warnings().iter().any(|warning| matches!(warning, Warning::DamagedRecord { .. })));
    assert_eq!(file.str(late), Some(&b"late"[..]));
}

#[test]
fn an_id_that_nothing_defines_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(folder.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    log.write(&Record::Mark { t_ns: 1, attributes: attributes(StrId(5)) });
    log.write(&Record::ThreadName { name: StrId(u32::MAX) });
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.str(StrId(5)), None);
    assert_eq!(
        file.warnings(),
        [Warning::Undefined { what: "text", uses: 1 }, Warning::Undefined { what: "thing", uses: 1 }]
    );
}

#[test]
fn a_kind_from_the_future_is_skipped_and_counted() {
    let (mut bytes, all) = log();
    // The first mark, behind the thread record and the text.
    bytes[SLOT_BYTES + CHUNK_HEADER_BYTES + 16 + 24] = 200;
    testing::make_checks_right(&mut bytes);
    let file = open(bytes);
    assert_eq!(times(&file), all[1..]);
    assert_eq!(file.warnings(), [Warning::UnknownKind { kind: 200, records: 1 }]);
}

#[test]
fn files_that_are_no_log_are_named() {
    let elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let cases: [(&[u8], &str); 11] = [
        (b"", "it is empty"),
        (b"\x1f\x8b\x08\x00rest", "gzip"),
        (b"SQLite format 3\0rest", "SQLite"),
        (b"  {\"traceEvents\": []}", "JSON"),
        (b"[1]", "JSON"),
        (b"PK\x03\x04", "zip"),
        (&elf, "ELF"),
        (&[0; 5000], "zero bytes"),
        (b"hello\nworld\n", "text"),
        (b"\x00\x01\x02\xff", "unknown kind"),
        (b"SALOG\n\x1a", "text-mode transfer"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for (bytes, said) in cases {
        std::fs::write(&path, bytes).unwrap();
        let message = LogFile::open(&path).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }
    assert!(matches!(LogFile::open(folder.path()), Err(OpenError::NotAFile)));
    assert!(matches!(LogFile::open(&folder.path().join("missing")), Err(OpenError::Io(_))));
}

#[test]
fn damaged_cut_off_and_newer_headers_are_told_apart() {
    let (bytes, _) = log();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        LogFile::from_bytes(bytes).unwrap_err()
    };
    assert!(matches!(with(&|bytes| bytes[AT_PID] ^= 1), OpenError::HeaderDamaged));
    assert!(matches!(with(&|bytes| bytes.truncate(100)), OpenError::HeaderCutOff { bytes: 100 }));
    let newer = with(&|bytes| bytes[AT_VERSION] = 9);
    assert!(matches!(newer, OpenError::NewerVersion { found: 9 }));
    assert!(newer.to_string().contains("version 9"), "{newer}");
}
