//! Records of every kind from plain ingredients, for the property test and the mutation engine.
#![allow(dead_code)]

use syncaudit_eventlog::*;

pub const KINDS: usize = 28;

/// What a record is made of.
#[derive(Clone, Debug)]
pub struct Ingredients {
    pub words: [u64; 12],
    pub text: Vec<u8>,
    pub list: Vec<u64>,
}

/// Which of the [`KINDS`] a record is. No wildcard: a new kind must be added here to compile.
pub fn kind_of(record: &Record<'_>) -> usize {
    match record {
        Record::Meta { .. } => 0,
        Record::Str { .. } => 1,
        Record::Module { .. } => 2,
        Record::Stack { .. } => 3,
        Record::PyCode { .. } => 4,
        Record::PyStack { .. } => 5,
        Record::Thread { .. } => 6,
        Record::ThreadName { .. } => 7,
        Record::Domain { .. } => 8,
        Record::Category { .. } => 9,
        Record::ApiName { .. } => 10,
        Record::RangePush { .. } => 11,
        Record::RangePop { .. } => 12,
        Record::RangeStart { .. } => 13,
        Record::RangeEnd { .. } => 14,
        Record::Mark { .. } => 15,
        Record::CallEnter(_) => 16,
        Record::Call(_) => 17,
        Record::QueryRun(_) => 18,
        Record::Memcpy(_) => 19,
        Record::Memset(_) => 20,
        Record::Synchronization(_) => 21,
        Record::Kernel(_) => 22,
        Record::Overhead(_) => 23,
        Record::Clock(_) => 24,
        Record::Note { .. } => 25,
        Record::Fork { .. } => 26,
        Record::End { .. } => 27,
    }
}

/// A record of kind `kind` whose fields take their values from the ingredients, all bits in use.
pub fn build(kind: usize, from: &Ingredients) -> Record<'_> {
    let w = &from.words;
    let (short, half, byte) = (|at: usize| w[at] as u32, |at: usize| w[at] as u16, |at: usize| w[at] as u8);
    let api = |at: usize| Api {
        domain: if w[at] & 0x1_0000 == 0 { ApiDomain::Runtime } else { ApiDomain::Driver },
        cbid: half(at),
    };
    let attributes = RangeAttributes {
        domain: DomainId(short(4)),
        name: StrId(short(5)),
        category: if w[6] & 1 << 40 == 0 { 0 } else { short(6) },
        payload: match w[7] % 7 {
            0 => Payload::None,
            1 => Payload::U64(w[8]),
            2 => Payload::I64(w[8] as i64),
            // Not a number is not equal to itself; a test of its own covers it.
            3 => Payload::F64(f64::from_bits(w[8] & !(1 << 62))),
            4 => Payload::U32(short(8)),
            5 => Payload::I32(w[8] as i32),
            _ => Payload::F32(f32::from_bits(short(8) & !(1 << 30))),
        },
    };
    match kind {
        0 => Record::Meta { key: ["", "rank", "program", "clé"][w[0] as usize % 4], value: &from.text },
        1 => Record::Str { id: StrId(short(0)), text: &from.text },
        2 => Record::Module {
            id: ModuleId(short(0)),
            loaded_ns: w[1],
            base: w[2],
            end: w[3],
            bias: w[4],
            path: StrId(short(5)),
            build_id: &from.text[..from.text.len().min(256)],
        },
        3 => Record::Stack { id: StackId(short(0)), addresses: Words::Native(&from.list) },
        4 => Record::PyCode {
            id: PyCodeId(short(0)),
            python_minor: half(1),
            first_line: short(2),
            filename: StrId(short(3)),
            qualname: StrId(short(4)),
            line_table: &from.text,
        },
        5 => Record::PyStack { id: PyStackId(short(0)), frames: Words::Native(&from.list) },
        6 => Record::Thread { os_tid: w[0] },
        7 => Record::ThreadName { name: StrId(short(0)) },
        8 => Record::Domain { id: DomainId(short(0)), name: StrId(short(1)) },
        9 => Record::Category { domain: DomainId(short(0)), category: short(1), name: StrId(short(2)) },
        10 => Record::ApiName { api: api(0), name: StrId(short(1)) },
        11 => Record::RangePush { t_ns: w[0], attributes },
        12 => Record::RangePop { t_ns: w[0], domain: DomainId(short(1)) },
        13 => Record::RangeStart { t_ns: w[0], range: w[1], attributes },
        14 => Record::RangeEnd { t_ns: w[0], range: w[1], domain: DomainId(short(2)) },
        15 => Record::Mark { t_ns: w[0], attributes },
        16 => Record::CallEnter(CallEnter {
            enter_ns: w[0],
            api: api(1),
            correlation: short(2),
            stack: StackId(short(3)),
            py_stack: PyStackId(short(4)),
        }),
        17 => Record::Call(Call {
            enter_ns: w[0].min(w[1]),
            exit_ns: w[0].max(w[1]),
            api: api(2),
            correlation: short(3),
            result: half(4),
            copy_kind: byte(5) & 15,
            stream: w[6],
            bytes: w[7],
            object: w[8],
            stack: StackId(short(9)),
            py_stack: PyStackId(short(10)),
            nested_calls: byte(11),
            nested_cbid: (w[11] >> 32) as u16,
        }),
        18 => Record::QueryRun(QueryRun {
            first_enter_ns: w[0],
            last_exit_ns: w[1],
            api: api(2),
            object: w[3],
            run: short(4),
            count: short(5),
            not_ready: short(6),
            stack: StackId(short(7)),
            py_stack: PyStackId(short(8)),
        }),
        19 => Record::Memcpy(Memcpy {
            correlation: short(0),
            copy_kind: byte(1),
            src_kind: byte(2),
            dst_kind: byte(3),
            flags: byte(4),
            bytes: w[5],
            start_cupti_ns: w[6],
            end_cupti_ns: w[7],
            device: short(8),
            context: short(9),
            stream: short(10),
            graph: (w[10] >> 32) as u32,
            graph_node: w[11],
        }),
        20 => Record::Memset(Memset {
            correlation: short(0),
            memory_kind: half(1),
            flags: half(2),
            bytes: w[3],
            start_cupti_ns: w[4],
            end_cupti_ns: w[5],
            device: short(6),
            context: short(7),
            stream: short(8),
            graph: short(9),
            graph_node: w[10],
        }),
        21 => Record::Synchronization(Synchronization {
            correlation: short(0),
            sync_type: short(1),
            start_cupti_ns: w[2],
            end_cupti_ns: w[3],
            context: short(4),
            stream: short(5),
            event: short(6),
        }),
        22 => Record::Kernel(Kernel {
            name: StrId(short(0)),
            correlation: short(1),
            start_cupti_ns: w[2],
            end_cupti_ns: w[3],
            device: short(4),
            context: short(5),
            stream: short(6),
            graph: short(7),
            graph_node: w[8],
        }),
        23 => Record::Overhead(Overhead {
            overhead_kind: short(0),
            correlation: short(1),
            start_cupti_ns: w[2],
            end_cupti_ns: w[3],
        }),
        24 => Record::Clock(Clock { monotonic_ns: w[0], realtime_ns: w[1], cupti_ns: w[2] }),
        25 => Record::Note {
            t_ns: w[0],
            level: [NoteLevel::Info, NoteLevel::Warning, NoteLevel::Problem][w[1] as usize % 3],
            text: &from.text,
        },
        26 => Record::Fork { t_ns: w[0], child_pid: short(1) },
        _ => Record::End {
            t_ns: w[0],
            reason: [EndReason::Exit, EndReason::Exec, EndReason::Disarmed][w[1] as usize % 3],
            code: short(2),
        },
    }
}

/// A small pseudo-random generator (splitmix64), so that every run can be repeated from its seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn ingredients(&mut self, text: usize, list: usize) -> Ingredients {
        Ingredients {
            words: std::array::from_fn(|_| self.next() >> (self.next() % 64)),
            text: (0..self.below(text + 1)).map(|_| self.next() as u8).collect(),
            list: (0..self.below(list + 1)).map(|_| self.next()).collect(),
        }
    }
}
