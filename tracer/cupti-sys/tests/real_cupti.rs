//! The real libcupti of several versions steps through hand-made buffers, our reader reads them. No GPU needed: this is
//! the one part of CUPTI that works without.

#![allow(unsafe_code)]

mod support;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use cupti_sys::records::{Record, Records};
use cupti_sys::{CuptiResult, Library, cbid, domain, kind};

/// Bytes of a record of each kind, by version, as measured from the libraries themselves.
fn stride(version: &str, kind: u32) -> usize {
    let column = match &version[..4] {
        "12.1" => 0,
        "12.4" => 1,
        "12.8" => 2,
        "13.0" => 3,
        "13.2" => 4,
        "13.5" => 5,
        other => panic!("no strides measured for {other}"),
    };
    let strides = match kind {
        kind::MEMCPY => [88, 88, 96, 96, 96, 112],
        kind::MEMSET => [88, 88, 88, 88, 88, 104],
        kind::RUNTIME => [40; 6],
        kind::CONCURRENT_KERNEL => [208, 208, 208, 216, 224, 248],
        kind::OVERHEAD => [40, 56, 56, 56, 56, 56],
        kind::MEMCPY2 => [96; 6],
        kind::SYNCHRONIZATION => [40, 40, 56, 56, 56, 56],
        MARKER => [56; 6],
        other => panic!("no strides measured for kind {other}"),
    };
    strides[column]
}

const MARKER: u32 = 12;

/// 8-byte aligned, as buffers are.
#[derive(Default)]
struct Buffer(Vec<u64>);

impl Buffer {
    /// Appends a record of `bytes` bytes; `fields` are (offset, size, value).
    fn record(&mut self, bytes: usize, fields: &[(usize, usize, u64)]) {
        let start = self.0.len() * 8;
        self.0.resize(self.0.len() + bytes / 8, 0);
        for (offset, size, value) in fields {
            let at = start + offset;
            self.bytes_mut()[at..at + size].copy_from_slice(&value.to_le_bytes()[..*size]);
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: plain integers, whole length.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 8) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 8) }
    }
}

fn filled(version: &str) -> Buffer {
    let mut buffer = Buffer::default();
    let mut add = |kind: u32, fields: &[(usize, usize, u64)]| {
        let mut all = vec![(0, 4, u64::from(kind))];
        all.extend_from_slice(fields);
        buffer.record(stride(version, kind), &all);
    };
    add(
        kind::MEMCPY,
        &[
            (4, 1, 2),
            (5, 1, 3),
            (6, 1, 1),
            (7, 1, 1),
            (8, 8, 4096),
            (16, 8, 100),
            (24, 8, 200),
            (40, 4, 7),
            (44, 4, 11),
        ],
    );
    add(kind::RUNTIME, &[(4, 4, 131), (8, 8, 1), (16, 8, 2), (32, 4, 12)]);
    add(
        kind::SYNCHRONIZATION,
        &[(4, 4, 3), (8, 8, 300), (16, 8, 400), (24, 4, 13), (32, 4, 7), (36, 4, 0xffff_ffff)],
    );
    add(MARKER, &[(16, 4, 1)]);
    let correlation: &[_] = if stride(version, kind::OVERHEAD) >= 48 { &[(40, 4, 14)] } else { &[] };
    add(kind::OVERHEAD, &[&[(4, 4, 6 << 16), (24, 8, 500), (32, 8, 600)], correlation].concat());
    add(kind::MEMCPY2, &[(4, 1, 10), (8, 8, 8192), (60, 4, 15)]);
    add(kind::MEMSET, &[(8, 8, 64), (44, 4, 16), (50, 2, 2)]);
    add(kind::CONCURRENT_KERNEL, &[(16, 8, 700), (24, 8, 800), (92, 4, 17), (144, 8, 5), (156, 4, 6)]);
    add(kind::MEMCPY, &[(8, 8, 1), (44, 4, 18), (64, 8, 9), (72, 4, 10)]);
    buffer
}

/// The driver first: 13.2 runs off its stack without one, 13.5 answers nothing.
fn map_driver() -> bool {
    let path = support::vendor().join("driver/libcuda.so.1");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: loading the driver runs its initialisers, which need no device.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null()
}

fn libraries() -> Vec<(String, Library)> {
    let folders = support::cupti_folders();
    let has_driver = !folders.is_empty() && map_driver();
    folders
        .into_iter()
        .filter_map(|(version, folder)| {
            if !has_driver && (version.starts_with("13.2") || version.starts_with("13.5")) {
                eprintln!(
                    "skipped {version}: it needs the driver; run scripts/fetch-vendor-libs.sh on Debian"
                );
                return None;
            }
            let major = &version[..2];
            let path = folder.join(format!("libcupti.so.{major}"));
            let library = Library::open(&path).unwrap_or_else(|error| panic!("{version}: {error}"));
            assert_eq!(library.path().canonicalize().unwrap(), path.canonicalize().unwrap());
            Some((version, library))
        })
        .collect()
}

#[test]
fn every_version_steps_through_its_own_strides_and_our_prefixes_read_right() {
    for (version, library) in libraries() {
        let buffer = filled(&version);
        let mut records = Records::new(&library, buffer.bytes());
        let mut seen = Vec::new();
        for record in records.by_ref() {
            seen.push(match record {
                Record::Memcpy(copy) if copy.correlation_id == 11 => {
                    assert_eq!(
                        (copy.copy_kind, copy.src_kind, copy.dst_kind, copy.flags),
                        (2, 3, 1, 1),
                        "{version}"
                    );
                    assert_eq!((copy.bytes, copy.start_ns, copy.end_ns, copy.stream_id), (4096, 100, 200, 7));
                    11
                }
                Record::Memcpy(copy) => {
                    assert_eq!((copy.bytes, copy.graph_node_id, copy.graph_id), (1, 9, 10), "{version}");
                    copy.correlation_id
                }
                Record::Api(api) => {
                    assert_eq!((api.cbid, api.start_ns, api.end_ns), (131, 1, 2), "{version}");
                    api.correlation_id
                }
                Record::Synchronization(sync) => {
                    assert_eq!((sync.type_, sync.start_ns, sync.end_ns), (3, 300, 400), "{version}");
                    assert_eq!((sync.stream_id, sync.cuda_event_id), (7, u32::MAX), "{version}");
                    sync.correlation_id
                }
                Record::Overhead(overhead, correlation) => {
                    assert_eq!(
                        (overhead.overhead_kind, overhead.start_ns, overhead.end_ns),
                        (6 << 16, 500, 600)
                    );
                    correlation
                }
                Record::MemcpyPeer(copy) => {
                    assert_eq!((copy.copy_kind, copy.bytes), (10, 8192), "{version}");
                    copy.correlation_id
                }
                Record::Memset(set) => {
                    assert_eq!((set.bytes, set.memory_kind), (64, 2), "{version}");
                    set.correlation_id
                }
                Record::Kernel(kernel) => {
                    assert_eq!((kernel.start_ns, kernel.end_ns), (700, 800), "{version}");
                    assert_eq!((kernel.graph_node_id, kernel.graph_id), (5, 6), "{version}");
                    kernel.correlation_id
                }
                Record::Other(kind) => kind,
            });
        }
        let overhead_correlation = if version.starts_with("12.1") { 0 } else { 14 };
        assert_eq!(seen, [11, 12, 13, MARKER, overhead_correlation, 15, 16, 17, 18], "{version}");
        assert_eq!(records.ended_with(), Some(CuptiResult::MAX_LIMIT_REACHED), "{version}");
        eprintln!("{version}: {} records", seen.len());
    }
}

#[test]
fn a_buffer_cut_anywhere_gives_its_whole_records_and_never_reads_beyond() {
    for (version, library) in libraries() {
        let whole = filled(&version);
        let mut ends = vec![0];
        let mut at = 0;
        while at < whole.bytes().len() {
            let kind = u32::from_le_bytes(whole.bytes()[at..at + 4].try_into().unwrap());
            at += stride(&version, kind);
            ends.push(at);
        }
        for length in (0..=whole.bytes().len()).step_by(8) {
            // A buffer of exactly this size, so that reading beyond it is reading another allocation.
            let cut = Buffer(whole.0[..length / 8].to_vec());
            let count = Records::new(&library, cut.bytes()).count();
            let complete = ends.iter().filter(|end| **end <= length).count() - 1;
            assert_eq!(count, complete, "{version} cut at {length}");
        }
    }
}

#[test]
fn garbage_ends_the_walk_with_a_reason() {
    for (version, library) in libraries() {
        let mut buffer = filled(&version);
        let first = stride(&version, kind::MEMCPY);
        buffer.bytes_mut()[first..first + 4].copy_from_slice(&9999u32.to_le_bytes());
        let mut records = Records::new(&library, buffer.bytes());
        assert_eq!(records.by_ref().count(), 1, "{version}");
        let reason = records.ended_with().unwrap();
        // By version; never the regular end.
        assert!([CuptiResult::INVALID_KIND, CuptiResult::UNKNOWN].contains(&reason), "{version}: {reason}");
    }
}

#[test]
fn every_version_calls_our_ids_by_our_names() {
    for (version, library) in libraries() {
        let get_name = library.get_callback_name.unwrap();
        let mut known = 0;
        for call in cbid::all() {
            let mut text = std::ptr::null();
            // SAFETY: writes a pointer to a constant string, or answers an error.
            let result = unsafe { get_name(call.domain, call.cbid, &mut text) };
            if !result.is_ok() {
                assert_eq!(result, CuptiResult::INVALID_PARAMETER, "{version} {}", call.name);
                continue;
            }
            // SAFETY: the answer was success.
            let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap();
            known += 1;
            // Runtime names carry the header version that the call first had; names that CUPTI does not tell yet or any
            // more are its placeholders.
            let plain = match call.domain {
                domain::RUNTIME_API => text.rsplit_once("_v").map_or(text, |(name, _)| name),
                _ => text,
            };

            let placeholder = plain.strip_prefix("cuda").is_some_and(|rest| rest.parse::<u32>().is_ok());
            assert!(
                plain == call.name || placeholder,
                "{version}: id {} is {text}, not {}",
                call.cbid,
                call.name
            );
        }
        assert!(known > 200, "{version} knows {known}");
        eprintln!("{version}: {known} of {} ids known", cbid::all().count());
    }
}
