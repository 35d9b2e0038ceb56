//! Random programs on several streams against a sequential model; replayed from a graph against the same model; many
//! threads at once.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{Device, get, launch, pointer};
use crate::args::Out;
use crate::capture::{cuStreamBeginCapture_v2, cuStreamEndCapture};
use crate::context::cuCtxSynchronize;
use crate::copy::*;
use crate::event::*;
use crate::graph::{cuGraphInstantiateWithFlags, cuGraphLaunch};
use crate::heap;
use crate::memory::*;
use crate::stream::*;

const BUFFERS: usize = 4;
const WORDS: usize = 16;
const BYTES: usize = WORDS * 4;

/// One operation of a random program.
#[derive(Clone, Debug)]
enum Step {
    /// `dst[i] = dst[i] * 3 + src[i] + k`.
    Mix {
        dst: usize,
        src: usize,
        k: u32,
    },
    Copy {
        dst: usize,
        src: usize,
    },
    Fill {
        dst: usize,
        value: u32,
    },
    Upload {
        dst: usize,
        value: u32,
        pinned: bool,
    },
}

/// Stream of a step: 0 is the legacy default stream, 1 and 2 are blocking, 3 is not.
type Program = Vec<(usize, Step)>;

fn steps(streams: std::ops::Range<usize>) -> impl Strategy<Value = Program> {
    let step = prop_oneof![
        (0..BUFFERS, 0..BUFFERS, any::<u32>()).prop_map(|(dst, src, k)| Step::Mix { dst, src, k }),
        (0..BUFFERS, 0..BUFFERS).prop_map(|(dst, src)| Step::Copy { dst, src }),
        (0..BUFFERS, any::<u32>()).prop_map(|(dst, value)| Step::Fill { dst, value }),
        (0..BUFFERS, any::<u32>(), any::<bool>()).prop_map(|(dst, value, pinned)| Step::Upload {
            dst,
            value,
            pinned
        }),
    ];
    proptest::collection::vec((streams, step), 1..40)
}

type Model = [[u32; WORDS]; BUFFERS];

fn run_model(program: &Program, model: &mut Model) {
    for (_, step) in program {
        match *step {
            Step::Mix { dst, src, k } => {
                let source = model[src];
                for (d, s) in model[dst].iter_mut().zip(source) {
                    *d = d.wrapping_mul(3).wrapping_add(s).wrapping_add(k);
                }
            }
            Step::Copy { dst, src } => model[dst] = model[src],
            Step::Fill { dst, value } | Step::Upload { dst, value, .. } => model[dst] = [value; WORDS],
        }
    }
}

impl Step {
    fn touches(&self) -> Vec<usize> {
        match *self {
            Step::Mix { dst, src, .. } | Step::Copy { dst, src } => vec![dst, src],
            Step::Fill { dst, .. } | Step::Upload { dst, .. } => vec![dst],
        }
    }
}

/// The device side of a program.
struct Machine {
    device: Device,
    streams: [usize; 4],
    buffers: [u64; BUFFERS],
    mix: usize,
}

impl Machine {
    fn new(device: Device) -> Self {
        let streams = [0, device.stream(0), device.stream(0), device.stream(1)];
        let buffers = std::array::from_fn(|_| device.alloc(BYTES));
        let mix = device.kernel(&[8, 8, 4], |l| {
            let (dst, src) = (l.param::<u64>(0)?, l.param::<u64>(1)?);
            let source = if src == dst { None } else { Some(l.slice::<u32>(src, WORDS)?) };
            let k = l.param::<u32>(2)?;
            for (i, d) in l.slice_mut::<u32>(dst, WORDS)?.iter_mut().enumerate() {
                *d = d.wrapping_mul(3).wrapping_add(source.map_or(*d, |s| s[i])).wrapping_add(k);
            }
            Ok(())
        });
        for buffer in buffers {
            assert_eq!(cuMemsetD8_v2(buffer, 0, BYTES), 0);
        }
        assert_eq!(cuCtxSynchronize(), 0);
        Self { device, streams, buffers, mix }
    }

    /// Enqueues a program. Steps on different streams that touch a common buffer are ordered by an event, except where
    /// the rules of the legacy default stream must order them.
    fn enqueue(&self, program: &Program, mut lasting: Option<&mut Vec<Vec<u32>>>) {
        // Last event of each stream, and the streams that touched each buffer with the event behind that.
        let mut touched: HashMap<(usize, usize), usize> = HashMap::new();
        for (index, step) in program {
            let stream = self.streams[*index];
            for buffer in step.touches() {
                for other in (0..4).filter(|o| o != index) {
                    let implicit = (*index == 0 && other != 3) || (other == 0 && *index != 3);
                    if let Some(event) = touched.get(&(buffer, other)).filter(|_| !implicit) {
                        assert_eq!(cuStreamWaitEvent(stream, *event, 0), 0);
                    }
                }
            }
            self.one(stream, step, lasting.as_deref_mut());
            let event: usize = get(|o| cuEventCreate(o, 2));
            assert_eq!(cuEventRecord(event, stream), 0);
            for buffer in step.touches() {
                touched.insert((buffer, *index), event);
            }
        }
    }

    fn one(&self, stream: usize, step: &Step, lasting: Option<&mut Vec<Vec<u32>>>) {
        let at = |i: usize| self.buffers[i];
        let code = match *step {
            Step::Mix { dst, src, k } => {
                launch(self.mix, stream, &[pointer(&at(dst)), pointer(&at(src)), pointer(&k)])
            }
            Step::Copy { dst, src } => cuMemcpyDtoDAsync_v2(at(dst), at(src), BYTES, stream),
            Step::Fill { dst, value } => cuMemsetD32Async(at(dst), value, WORDS, stream),
            Step::Upload { dst, value, pinned: true } => {
                let source = self.device.pinned(BYTES) as *mut u32;
                // SAFETY: the pinned buffer has WORDS words and nothing reads it yet.
                unsafe { std::slice::from_raw_parts_mut(source, WORDS) }.fill(value);
                cuMemcpyHtoDAsync_v2(at(dst), source.cast(), BYTES, stream)
            }
            Step::Upload { dst, value, pinned: false } => {
                let mut source = vec![value; WORDS];
                let code = cuMemcpyHtoDAsync_v2(at(dst), source.as_mut_ptr().cast(), BYTES, stream);
                match lasting {
                    Some(lasting) => lasting.push(source), // a graph reads it at every replay
                    None => source.fill(!value),           // taken away as soon as the call is back
                }
                code
            }
        };
        assert_eq!(code, 0, "{step:?}");
    }

    fn read(&self) -> Model {
        assert_eq!(cuCtxSynchronize(), 0);
        std::array::from_fn(|i| {
            let mut words = [0u32; WORDS];
            assert_eq!(cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), self.buffers[i], BYTES), 0);
            words
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_give_what_a_sequential_machine_gives(program in steps(0..4)) {
        let machine = Machine::new(Device::new());
        machine.enqueue(&program, None);
        let mut model = Model::default();
        run_model(&program, &mut model);
        prop_assert_eq!(machine.read(), model);
    }

    #[test]
    fn a_replayed_graph_gives_what_running_its_program_again_gives(program in steps(1..4), replays in 1usize..4) {
        let machine = Machine::new(Device::alone());
        let origin = machine.streams[3];
        let mut sources = Vec::new();
        assert_eq!(cuStreamBeginCapture_v2(origin, 0), 0);
        let event = || get::<usize>(|o| cuEventCreate(o, 2));
        let fork = event();
        assert_eq!(cuEventRecord(fork, origin), 0);
        for branch in [1, 2] {
            assert_eq!(cuStreamWaitEvent(machine.streams[branch], fork, 0), 0);
        }
        // Pinned memory can't be allocated during a capture.
        let program: Program = program
            .into_iter()
            .map(|(s, step)| match step {
                Step::Upload { dst, value, .. } => (s, Step::Upload { dst, value, pinned: false }),
                other => (s, other),
            })
            .collect();
        machine.enqueue(&program, Some(&mut sources));
        for branch in [1, 2] {
            let join = event();
            assert_eq!(cuEventRecord(join, machine.streams[branch]), 0);
            assert_eq!(cuStreamWaitEvent(origin, join, 0), 0);
        }
        let graph: usize = get(|o| cuStreamEndCapture(origin, o));
        let exec: usize = get(|o| cuGraphInstantiateWithFlags(o, graph, 0));
        let mut model = Model::default();
        for _ in 0..replays {
            assert_eq!(cuGraphLaunch(exec, origin), 0);
            run_model(&program, &mut model);
        }
        prop_assert_eq!(machine.read(), model);
    }
}

#[test]
fn eight_threads_at_once_lose_nothing_and_leak_nothing() {
    let device = Device::new();
    let object = device.object();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let device = &device;
            scope.spawn(move || {
                device.make_current();
                let stream = device.stream(thread & 1);
                let event: usize = get(|o| cuEventCreate(o, 0));
                for round in 0..200u32 {
                    let bytes = 4 * (1 + (round as usize * 37 + thread as usize) % 2000);
                    let memory: u64 = if round % 3 == 0 {
                        device.alloc(bytes)
                    } else {
                        get(|o| cuMemAllocAsync(o, bytes, stream))
                    };
                    let value = thread * 1000 + round;
                    assert_eq!(cuMemsetD32Async(memory, value, bytes / 4, stream), 0);
                    assert_eq!(cuEventRecord(event, stream), 0);
                    let mut words = vec![0u32; bytes / 4];
                    if round % 2 == 0 {
                        assert_eq!(cuMemcpyDtoHAsync_v2(words.as_mut_ptr().cast(), memory, bytes, stream), 0);
                    } else {
                        assert_eq!(cuEventSynchronize(event), 0);
                        assert_eq!(cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), memory, bytes), 0);
                    }
                    assert!(words.iter().all(|w| *w == value), "thread {thread} round {round}");
                    let freed =
                        if round % 3 == 0 { cuMemFree_v2(memory) } else { cuMemFreeAsync(memory, stream) };
                    assert_eq!(freed, 0);
                }
                assert_eq!(
                    (cuStreamSynchronize(stream), cuEventDestroy_v2(event), cuStreamDestroy_v2(stream)),
                    (0, 0, 0)
                );
            });
        }
    });
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(heap::regions_of(object.uid), 0);
}

#[test]
fn copies_of_two_dimensions_move_exactly_their_rows() {
    use crate::abi::{Memcpy2D, Side2};
    let _device = Device::new();
    let (mut dptr, mut pitch) = (0u64, 0usize);
    assert_eq!(cuMemAllocPitch_v2(Out(&mut dptr), Out(&mut pitch), 10, 4, 4), 0);
    assert!(pitch >= 10 && pitch % 512 == 0);
    let source: Vec<u8> = (0..80).collect();
    let mut back = vec![0xffu8; 80];
    let host = |address: *const u8, x: usize, y: usize| Side2 {
        x,
        y,
        memory_type: 1,
        host: address as u64,
        device: 0,
        array: 0,
        pitch: 20,
    };
    let on_device = Side2 { x: 0, y: 0, memory_type: 2, host: 0, device: dptr, array: 0, pitch };
    let up = Memcpy2D { src: host(source.as_ptr(), 3, 1), dst: on_device, width: 10, height: 3 };
    let down = Memcpy2D { src: on_device, dst: host(back.as_mut_ptr(), 5, 0), width: 10, height: 3 };
    assert_eq!(cuMemcpy2D_v2(crate::args::In(&up)), 0);
    assert_eq!(cuMemcpy2D_v2(crate::args::In(&down)), 0);
    for (i, byte) in back.iter().enumerate() {
        let (y, x) = (i / 20, i % 20);
        let inside = y < 3 && (5..15).contains(&x);
        let expected = if inside { (20 * (y + 1) + 3 + x - 5) as u8 } else { 0xff };
        assert_eq!(*byte, expected, "row {y} column {x}");
    }
    let narrow = Memcpy2D { src: Side2 { pitch: 9, ..on_device }, ..down };
    assert_eq!(cuMemcpy2D_v2(crate::args::In(&narrow)), 1, "a pitch smaller than the row");
    let array = Memcpy2D { src: Side2 { memory_type: 3, ..on_device }, ..down };
    assert_eq!(cuMemcpy2D_v2(crate::args::In(&array)), 801, "no arrays here");
}

#[test]
fn each_threads_own_default_stream_is_its_own() {
    let device = Device::new();
    let gate = super::Gate::new(&device);
    gate.hold(2); // this thread's
    std::thread::scope(|scope| {
        scope.spawn(|| {
            device.make_current();
            let memory = device.alloc(4);
            assert_eq!(cuMemsetD32Async_ptsz(memory, 5, 1, 0), 0);
            assert_eq!(cuStreamSynchronize_ptsz(0), 0, "not held by the other thread's gate");
        });
    });
    assert_eq!(cuStreamQuery(2), 600);
    gate.open();
    assert_eq!(cuStreamSynchronize(2), 0);
}

#[test]
fn events_time_what_lies_between_them() {
    let device = Device::new();
    let stream = device.stream(1);
    let (start, end, untimed): (usize, usize, usize) =
        (get(|o| cuEventCreate(o, 0)), get(|o| cuEventCreate(o, 0)), get(|o| cuEventCreate(o, 2)));
    let mut ms = -1.0;
    assert_eq!(cuEventElapsedTime(Out(&mut ms), start, end), 400, "never recorded");
    assert_eq!(cuEventQuery(start), 0, "an event that was never recorded is complete");
    let gate = super::Gate::new(&device);
    assert_eq!(cuEventRecord(start, stream), 0);
    gate.hold(stream);
    assert_eq!(cuEventRecord(end, stream), 0);
    assert_eq!((cuEventSynchronize(start), cuEventQuery(end)), (0, 600));
    assert_eq!(cuEventElapsedTime(Out(&mut ms), start, end), 600, "not yet");
    gate.open();
    assert_eq!(cuEventSynchronize(end), 0);
    assert_eq!(cuEventElapsedTime(Out(&mut ms), start, end), 0);
    assert!(ms >= 0.0);
    assert_eq!(cuEventElapsedTime(Out(&mut ms), start, untimed), 400);
}
