//! The numbers and words of Nsight Systems databases.
//!
//! In: values as they stand in a table. Out: what they mean. Sources: the SQLite schema reference of Nsight Systems ("Serialized
//! process and thread identifiers", "Common SQLite examples"), the ENUM tables of exports since schema 3, and what recorded
//! databases hold. Where a database has an ENUM table, its names decide; the numbers are those of all versions seen.

use std::collections::HashMap;

use crate::import::kineto::is_annotation;
use crate::model::{CopyDirection, DeviceOpKind, MemoryKind, OverheadKind, SpanKind};

/// Machine and process of a serialized identifier; equal for all threads of a process.
pub(super) fn process_of(global_id: i64) -> u64 {
    global_id.cast_unsigned() >> 24
}

/// The same as SQLite's `globalTid >> 24` gives it: with the topmost bit spread.
pub(super) fn process_bits(process: u64) -> i64 {
    (process << 24).cast_signed() >> 24
}

/// Process id as the operating system gave it.
pub(super) fn pid_of(process: u64) -> u64 {
    process & 0xff_ffff
}

/// Thread id as the operating system gave it.
pub(super) fn tid_of(global_tid: i64) -> u64 {
    global_tid.cast_unsigned() & 0xff_ffff
}

/// An ENUM table: names by number. Empty for databases before there were any.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(pub HashMap<i64, String>);

impl Names {
    fn get(&self, number: i64) -> Option<&str> {
        self.0.get(&number).map(String::as_str)
    }

    /// From where to where a copy goes (`ENUM_CUDA_MEMCPY_OPER`; the numbers are CUPTI's, then those of unified memory).
    pub(super) fn direction(&self, number: i64) -> CopyDirection {
        let by_number = || match number {
            11 => CopyDirection::HostToDevice,
            12 => CopyDirection::DeviceToHost,
            13 => CopyDirection::DeviceToDevice,
            _ => CopyDirection::from_cupti(u32::try_from(number).unwrap_or(0)),
        };
        match self.get(number).and_then(|name| name.rsplit('_').next()) {
            Some("HTOD" | "HTOA") => CopyDirection::HostToDevice,
            Some("DTOH" | "ATOH") => CopyDirection::DeviceToHost,
            Some("DTOD" | "DTOA" | "ATOD" | "ATOA" | "PTOP") => CopyDirection::DeviceToDevice,
            Some("HTOH") => CopyDirection::HostToHost,
            _ => by_number(),
        }
    }

    /// Kind of memory (`ENUM_CUDA_MEM_KIND`): CUPTI's numbers less one, so that 0 is pageable.
    pub(super) fn memory(&self, number: i64) -> MemoryKind {
        let by_number = || MemoryKind::from_cupti(u32::try_from(number.saturating_add(1)).unwrap_or(0));
        let Some(name) = self.get(number) else { return by_number() };
        match name.split_once("MEMORY_KIND_").map_or(name, |(_, kind)| kind) {
            "PAGEABLE" => MemoryKind::Pageable,
            "PINNED" => MemoryKind::Pinned,
            "DEVICE" | "DEVICE_STATIC" => MemoryKind::Device,
            "ARRAY" => MemoryKind::Array,
            "MANAGED" | "MANAGED_STATIC" => MemoryKind::Managed,
            "UNKNOWN" => MemoryKind::Unknown,
            _ => by_number(),
        }
    }

    /// What kind of synchronise (`ENUM_CUPTI_SYNC_TYPE`): one by the host, or by a stream for an event.
    pub(super) fn sync(&self, number: i64) -> DeviceOpKind {
        let on_device = self.get(number).map_or(number == 2, |name| name.contains("STREAM_WAIT_EVENT"));
        if on_device { DeviceOpKind::StreamWait } else { DeviceOpKind::Sync }
    }

    /// What the driver's own host time was spent on (`ENUM_CUPTI_OVERHEAD_TYPE`).
    pub(super) fn overhead(&self, number: i64) -> OverheadKind {
        match (self.get(number), number) {
            (Some(name), _) if name.contains("COMMAND_BUFFER_FULL") => OverheadKind::CommandBufferFull,
            (Some(name), _) if name.contains("MODULE_LOADING") || name.contains("LAZY_FUNCTION") => {
                OverheadKind::LazyLoading
            }
            (None, 8) => OverheadKind::CommandBufferFull,
            (None, 6 | 7) => OverheadKind::LazyLoading,
            _ => OverheadKind::Other,
        }
    }

    /// Number of the class of events that hold a call's backtrace (`ENUM_NSYS_EVENT_CLASS`).
    pub(super) fn backtrace_class(&self) -> i64 {
        let named = self.0.iter().find(|(_, name)| name.ends_with("EVENT_CUDABACKTRACE"));
        named.map_or(67, |(&number, _)| number)
    }
}

/// Kind of an NVTX event (`eventType`; the numbers are those of `ENUM_NSYS_EVENT_TYPE` in all versions seen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NvtxKind {
    Mark,
    /// Pushed and popped: nests on its thread.
    PushPop,
    /// Started and ended by handle.
    StartEnd,
    /// Names a thread.
    Thread,
    /// Categories, domains, resources: no events of the program.
    Definition,
    Unknown,
}

/// What an NVTX event of that type is.
pub(super) fn nvtx_kind(event_type: i64) -> NvtxKind {
    match event_type {
        34 => NvtxKind::Mark,
        // Older exports have pushes and starts whose end never came under types of their own.
        59 | 35 => NvtxKind::PushPop,
        60 | 37 => NvtxKind::StartEnd,
        39 => NvtxKind::Thread,
        // 33 category, 75 domain made, 76 domain destroyed; 36 and 38 are ends, whose start holds both times.
        33 | 36 | 38 | 75 | 76 => NvtxKind::Definition,
        _ => NvtxKind::Unknown,
    }
}

/// `eventType` of the event that names a domain.
pub(super) const DOMAIN_CREATE: i64 = 75;

/// What the text of a range says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RangeText<'a> {
    pub name: &'a str,
    pub kind: SpanKind,
    /// Autograd's sequence number.
    pub sequence: Option<i64>,
}

/// Takes apart what `torch.autograd.profiler.emit_nvtx` writes: `NAME, seq = N, op_id = N, sizes = [..]`, of which each
/// part but the name may be missing. Operators are told from annotations by their namespace or sequence number. Any other
/// text is the name of a range.
pub(super) fn range_text(text: &str) -> RangeText<'_> {
    let number = |rest: &str| -> Option<i64> {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    };
    let found = text.match_indices(',').find_map(|(at, _)| {
        let rest = &text[at..];
        let sequence = rest.strip_prefix(", seq = ").map(number);
        let op_id = rest.strip_prefix(", op_id = ").map(number);
        sequence.or(op_id).flatten().map(|number| (&text[..at], sequence.and(Some(number))))
    });
    let Some((name, sequence)) = found else {
        return RangeText { name: text, kind: SpanKind::Range, sequence: None };
    };
    let is_op = !is_annotation(name.as_bytes())
        && (sequence.is_some() || name.contains("::") || name == "record_param_comms");
    RangeText { name, kind: if is_op { SpanKind::Op } else { SpanKind::Range }, sequence }
}

/// Rank in a thread's name as the MPI tracing of Nsight Systems gives it.
pub(super) fn rank_of_thread(name: &str) -> Option<u32> {
    name.strip_prefix("MPI Rank ")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialized_identifiers_hold_process_and_thread() {
        let global_tid = 281_477_392_629_904;
        assert_eq!(pid_of(process_of(global_tid)), 144);
        assert_eq!(tid_of(global_tid), 144);
        assert_eq!(tid_of(281_477_392_630_005), 245);
        assert_eq!(process_of(global_tid), process_of(281_477_392_629_760));
        // The bits above tell machines apart; the topmost may be set.
        assert_ne!(process_of(global_tid), process_of(i64::MIN | global_tid));
        assert_eq!(pid_of(process_of(i64::MIN | global_tid)), 144);
        for id in [global_tid, i64::MIN | global_tid, -1, 0] {
            assert_eq!(process_bits(process_of(id)), id >> 24);
        }
    }

    #[test]
    fn memory_kinds_are_offset_by_one_from_cuptis_with_and_without_a_table() {
        let table = Names(HashMap::from([
            (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE".to_owned()),
            (6, "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC".to_owned()),
            (7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN".to_owned()),
        ]));
        for names in [table, Names::default()] {
            let kinds: Vec<MemoryKind> =
                [0, 1, 2, 3, 4, 5, 6, 7, 99, -1].map(|kind| names.memory(kind)).into();
            use MemoryKind as M;
            let expected = [
                M::Pageable,
                M::Pinned,
                M::Device,
                M::Array,
                M::Managed,
                M::Device,
                M::Managed,
                M::Unknown,
                M::Unknown,
                M::Unknown,
            ];
            assert_eq!(kinds, expected);
        }
        let renumbered = Names(HashMap::from([(1, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE".to_owned())]));
        assert_eq!(renumbered.memory(1), MemoryKind::Pageable);
        assert_eq!(Names::default().memory(i64::MAX), MemoryKind::Unknown);
    }

    #[test]
    fn copies_syncs_and_overheads_mean_the_same_with_and_without_a_table() {
        let none = Names::default();
        use CopyDirection as D;
        assert_eq!(
            [0, 1, 2, 8, 9, 10, 11, 12, 13, 14, -1].map(|kind| none.direction(kind)),
            [
                D::Unknown,
                D::HostToDevice,
                D::DeviceToHost,
                D::DeviceToDevice,
                D::HostToHost,
                D::DeviceToDevice,
                D::HostToDevice,
                D::DeviceToHost,
                D::DeviceToDevice,
                D::Unknown,
                D::Unknown
            ]
        );
        let named = |number, name: &str| Names(HashMap::from([(number, name.to_owned())]));
        assert_eq!(named(40, "CUDA_MEMCPY_KIND_UVM_DTOH").direction(40), D::DeviceToHost);
        assert_eq!([none.sync(2), none.sync(3)], [DeviceOpKind::StreamWait, DeviceOpKind::Sync]);
        let wait = named(7, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT");
        assert_eq!([wait.sync(7), wait.sync(2)], [DeviceOpKind::StreamWait, DeviceOpKind::StreamWait]);
        assert_eq!(none.overhead(8), OverheadKind::CommandBufferFull);
        assert_eq!(named(3, "OVERHEAD_COMMAND_BUFFER_FULL").overhead(3), OverheadKind::CommandBufferFull);
        assert_eq!(named(8, "OVERHEAD_SOMETHING_ELSE").overhead(8), OverheadKind::Other);
        assert_eq!(named(4, "TRACE_PROCESS_EVENT_CUDABACKTRACE").backtrace_class(), 4);
        assert_eq!(none.backtrace_class(), 67);
    }

    #[test]
    fn the_texts_of_emit_nvtx_are_operators_or_annotations_with_a_clean_name() {
        use SpanKind::{Op, Range};
        for (text, name, kind, sequence) in [
            ("aten::to, op_id = 990347", "aten::to", Op, None),
            ("aten::detach_, seq = 46174, op_id = 993404", "aten::detach_", Op, Some(46_174)),
            ("AddmmBackward0, seq = 5", "AddmmBackward0", Op, Some(5)),
            ("AllToAll4D, seq = 45440, op_id = 991132", "AllToAll4D", Op, Some(45_440)),
            ("aten::add, op_id = 3, sizes = [[2, 3], []], input_op_ids = [(1,0)]", "aten::add", Op, None),
            ("record_param_comms, op_id = 7", "record_param_comms", Op, None),
            ("train_step, op_id = 8", "train_step", Range, None),
            ("Optimizer.step#AdamW.step, op_id = 8", "Optimizer.step#AdamW.step", Range, None),
            ("ProfilerStep#4, op_id = 1", "ProfilerStep#4", Range, None),
            ("batch, sizes = [[2]]", "batch, sizes = [[2]]", Range, None),
            ("run, seq = first", "run, seq = first", Range, None),
            ("step 12", "step 12", Range, None),
            ("", "", Range, None),
        ] {
            assert_eq!(range_text(text), RangeText { name, kind, sequence }, "{text}");
        }
    }
}
