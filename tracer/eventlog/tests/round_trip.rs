//! What is written is what is read.
#![cfg(unix)]

use syncaudit_eventlog::*;

fn sample(log: &mut ThreadLog<'_>) -> Vec<Call> {
    let name = log.str(b"step");
    let stack = log.stack(&[0x7f00_0000_1000, 0x7f00_0000_2000]);
    let api = Api { domain: ApiDomain::Driver, cbid: 279 };
    log.api_name(api, || b"cuStreamSynchronize");
    (0..10u32)
        .map(|index| {
            let t_ns = u64::from(index) * 1000;
            let attributes = RangeAttributes { name, payload: Payload::U64(t_ns), ..Default::default() };
            log.write(&Record::RangePush { t_ns, attributes });
            let call = Call {
                enter_ns: t_ns + 1,
                exit_ns: t_ns + 500,
                api,
                correlation: index,
                result: 0,
                copy_kind: 2,
                stream: 7,
                bytes: 4,
                object: 0xdead,
                stack,
                py_stack: PyStackId::NONE,
                nested_calls: 1,
                nested_cbid: 300,
            };
            log.write(&Record::Call(call));
            log.write(&Record::RangePop { t_ns: t_ns + 900, domain: DomainId::NONE });
            call
        })
        .collect()
}

#[test]
fn calls_names_and_stacks_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    log.write(&Record::Meta { key: meta::RANK, value: b"3" });
    let calls = sample(&mut log);
    log.end(EndReason::Exit, 0);

    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.warnings(), []);
    assert!(file.header().sealed);
    assert_eq!(file.header().pid, std::process::id());
    assert_eq!(file.meta(meta::RANK), Some(&b"3"[..]));
    let threads: Vec<_> = file.threads().collect();
    assert_eq!(threads.len(), 1);
    assert_eq!(threads[0].os_tid(), os_thread_id());
    let read: Vec<Call> = threads[0]
        .records()
        .filter_map(|record| match record {
            Record::Call(call) => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(read, calls);
    assert_eq!(file.api_name(calls[0].api), Some(&b"cuStreamSynchronize"[..]));
    let addresses: Vec<u64> = file.stack(calls[0].stack).unwrap().iter().collect();
    assert_eq!(addresses, [0x7f00_0000_1000, 0x7f00_0000_2000]);
}

mod common;

use common::{Ingredients, KINDS, build, kind_of};
use proptest::prelude::*;

fn ingredients() -> impl Strategy<Value = Ingredients> {
    let word = prop_oneof![any::<u64>(), 0..4u64, Just(u64::MAX), any::<u32>().prop_map(u64::from)];
    let text = proptest::collection::vec(any::<u8>(), 0..200);
    let list = proptest::collection::vec(any::<u64>(), 0..60);
    (proptest::array::uniform12(word), text, list).prop_map(|(words, text, list)| Ingredients {
        words,
        text,
        list,
    })
}

#[test]
fn the_builder_covers_every_kind() {
    let from = Ingredients { words: [3; 12], text: vec![1], list: vec![2] };
    for kind in 0..KINDS {
        assert_eq!(kind_of(&build(kind, &from)), kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn every_kind_round_trips(all in proptest::collection::vec((0..KINDS, ingredients()), 0..200)) {
        let directory = tempfile::tempdir().unwrap();
        let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
        let mut log = writer.thread();
        let records: Vec<Record<'_>> = all.iter().map(|(kind, from)| build(*kind, from)).collect();
        for record in &records {
            prop_assert!(log.write(record));
        }
        let file = LogFile::open(writer.path()).unwrap();
        let mut read = Vec::new();
        for thread in file.threads() {
            read.extend(thread.records());
        }
        // The log adds the record that names the thread.
        let added = usize::from(!records.is_empty());
        prop_assert_eq!(&read[added..], &records[..]);
        prop_assert_eq!(file.summary().records as usize, records.len() + added);
    }
}

#[test]
fn a_payload_that_is_not_a_number_keeps_its_bits() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let payload = Payload::F64(f64::from_bits(0x7ff8_dead_beef_0001));
    let attributes = RangeAttributes { payload, ..Default::default() };
    writer.thread().write(&Record::Mark { t_ns: 1, attributes });
    let file = LogFile::open(writer.path()).unwrap();
    let thread = file.threads().next().unwrap();
    match thread.records().nth(1) {
        Some(Record::Mark { attributes: RangeAttributes { payload: Payload::F64(value), .. }, .. }) => {
            assert_eq!(value.to_bits(), 0x7ff8_dead_beef_0001)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wait_of_hours_keeps_its_length() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut words = [0; 12];
    words[1] = 3 * 3600 * 1_000_000_000;
    let from = Ingredients { words, text: vec![], list: vec![] };
    let call = build(17, &from);
    writer.thread().write(&call);
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.threads().next().unwrap().records().nth(1), Some(call));
}

/// Bytes that a record takes in the file.
fn size_of(record: &Record<'_>) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    let size = || LogFile::open(writer.path()).unwrap().summary().record_bytes;
    log.write(&Record::Fork { t_ns: 0, child_pid: 0 });
    let before = size();
    log.write(record);
    size() - before
}

#[test]
fn events_are_no_larger_than_promised() {
    let from = Ingredients { words: [0xffff_ffff; 12], text: vec![], list: vec![] };
    let most = |name: &str| match name {
        "push" => 24,
        "pop" => 24,
        "enter" => 32,
        "query" => 56,
        _ => 64,
    };
    let named = RangeAttributes { name: StrId(7), ..Default::default() };
    assert_eq!(size_of(&Record::RangePush { t_ns: u64::MAX, attributes: named }), most("push"));
    assert_eq!(size_of(&Record::RangePop { t_ns: u64::MAX, domain: DomainId(1) }), most("pop"));
    assert_eq!(size_of(&build(16, &from)), most("enter"));
    assert_eq!(size_of(&build(17, &from)), most("call"));
    assert_eq!(size_of(&build(18, &from)), most("query"));
    for kind in 19..=24 {
        assert!(size_of(&build(kind, &from)) <= 64, "kind {kind}");
    }
}

#[test]
fn what_is_too_long_for_a_record_is_cut_flagged_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    let long = vec![b'x'; 100_000];
    let id = log.str(&long);
    assert_eq!(log.str(&long), id, "a cut text is interned under its whole content");
    let whole = vec![b'y'; format::MAX_TAIL_BYTES];
    let whole_id = log.str(&whole);
    let stack = log.stack(&vec![5; 20_000]);
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.str(id).unwrap(), &long[..format::MAX_TAIL_BYTES]);
    assert_eq!(file.str(whole_id).unwrap(), &whole[..]);
    assert_eq!(file.stack(stack).unwrap().len(), format::MAX_TAIL_BYTES / 8);
    assert_eq!(file.summary().truncated_records, 2);
    assert_eq!(file.header().losses, [(LossReason::Truncated, 2)]);
    assert_eq!(file.warnings(), []);
}

#[test]
fn the_same_text_has_one_id_on_all_threads_once_it_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let first = writer.thread().str(b"forward");
    let ids: Vec<StrId> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| writer.thread().str(b"forward"))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == first));
    assert_ne!(writer.thread().str(b"backward"), first);
    assert_eq!(writer.thread().str(b""), StrId::NONE);
}

#[test]
fn short_threads_share_lanes_and_stay_apart() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let tids: Vec<u64> = (0..100u64)
        .map(|index| {
            let work = || {
                writer.thread().write(&Record::Fork { t_ns: index, child_pid: 0 });
                os_thread_id()
            };
            std::thread::scope(|scope| scope.spawn(work).join().unwrap())
        })
        .collect();
    writer.seal();
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.warnings(), []);
    assert_eq!(file.summary().chunks, 1, "100 threads one after the other need one chunk");
    let read: Vec<u64> = file.threads().map(|thread| thread.os_tid()).collect();
    assert_eq!(read, tids);
    for (index, thread) in file.threads().enumerate() {
        let records: Vec<_> = thread.records().skip(1).collect();
        assert_eq!(records, [Record::Fork { t_ns: index as u64, child_pid: 0 }]);
    }
}

#[test]
fn sealing_gives_unused_space_back() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    log.str(b"one");
    let mut late = writer.thread();
    log.end(EndReason::Exit, 0);
    assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 2 * format::SLOT_BYTES as u64);
    // A thread with a chunk can go on, one without cannot, and that is counted.
    assert!(log.write(&Record::Fork { t_ns: 1, child_pid: 2 }));
    assert!(!late.write(&Record::Fork { t_ns: 1, child_pid: 2 }));
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.header().losses, [(LossReason::AfterSeal, 1)]);
    assert_eq!(file.warnings(), []);
}

#[test]
fn threads_that_meet_the_same_texts_and_stacks_at_once_all_get_ids_that_mean_them() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    // More than a thread's cache holds, in another order on each thread.
    let text = |number: u64| format!("range {number}");
    let stack = |number: u64| [number, number * 7, 5];
    let ids: Vec<(u64, StrId, StackId)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8u64)
            .map(|thread| {
                let writer = &writer;
                scope.spawn(move || {
                    let mut log = writer.thread();
                    let numbers = (0..1000).map(|step| (step * (2 * thread + 1)) % 1024);
                    let mut ask =
                        |number| (number, log.str(text(number).as_bytes()), log.stack(&stack(number)));
                    numbers.map(&mut ask).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.warnings(), []);
    for (number, text_id, stack_id) in ids {
        assert_eq!(file.str(text_id), Some(text(number).as_bytes()));
        assert!(file.stack(stack_id).unwrap().iter().eq(stack(number)));
    }
}
