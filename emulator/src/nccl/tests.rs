//! Ranks as threads of one process, each with a context of its own.

use super::*;
use crate::context::{cuCtxCreate_v2, cuCtxSynchronize};
use crate::copy::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use crate::memory::cuMemAlloc_v2;
use crate::stream::{cuStreamCreate, cuStreamSynchronize};
use crate::tests::{Device, get};

const F32: u32 = Number::Float32 as u32;
const U64: u32 = Number::Uint64 as u32;

/// What one rank works with.
struct Rank {
    number: usize,
    comm: usize,
    stream: usize,
}

impl Rank {
    fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let bytes = std::mem::size_of_val(values);
        let at = get(|out| cuMemAlloc_v2(out, bytes));
        assert_eq!(cuMemcpyHtoD_v2(at, values.as_ptr().cast_mut().cast(), bytes), 0);
        at
    }

    fn download<T: Copy + Default>(&self, at: u64, count: usize) -> Vec<T> {
        assert_eq!(cuStreamSynchronize(self.stream), 0);
        let mut values = vec![T::default(); count];
        assert_eq!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), at, count * size_of::<T>()), 0);
        values
    }
}

/// Runs `body` as every rank of a group.
fn as_ranks<R: Send>(ranks: usize, body: impl Fn(Rank) -> R + Sync) -> Vec<R> {
    let _turn = Device::new();
    let mut id = std::mem::MaybeUninit::uninit();
    assert_eq!(ncclGetUniqueId(Out(id.as_mut_ptr())), 0);
    // SAFETY: written by the call above.
    let id: UniqueId = unsafe { id.assume_init() };
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..ranks)
            .map(|number| {
                scope.spawn(move || {
                    get::<usize>(|out| cuCtxCreate_v2(out, 0, 0));
                    let comm = get(|out| ncclCommInitRank(out, ranks as i32, id, number as i32));
                    body(Rank { number, comm, stream: get(|out| cuStreamCreate(out, 0)) })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_rank_gets_the_same_sum_and_it_is_made_in_rank_order() {
    // In rank order (1e8 + 1) - 1e8 is 0 in single precision, in any other it is 1.
    let parts = [1e8f32, 1.0, -1e8];
    let sums = as_ranks(3, |rank| {
        let values: Vec<f32> = (0..64).map(|i| parts[rank.number] * (i % 2) as f32 + i as f32).collect();
        let at = rank.upload(&values);
        assert_eq!(ncclAllReduce(at, at, 64, F32, 0, rank.comm, rank.stream), 0);
        rank.download::<f32>(at, 64)
    });
    assert_eq!(sums[0], sums[1]);
    assert_eq!(sums[0], sums[2]);
    for (i, sum) in sums[0].iter().enumerate() {
        let i = i as f32;
        let odd = i as usize % 2 == 1;
        let expected = if odd { ((1e8 + i) + (1.0 + i)) + (-1e8 + i) } else { i + i + i };
        assert_eq!(*sum, expected, "number {i}");
    }
}

#[test]
fn averages_gathers_broadcasts_and_scatters_give_what_the_documentation_says() {
    as_ranks(3, |rank| {
        let own = rank.number as u64;
        let (comm, stream) = (rank.comm, rank.stream);
        let mean = rank.upload(&[rank.number as f32 * 3.0]);
        assert_eq!(ncclAllReduce(mean, mean, 1, F32, 4, comm, stream), 0);
        assert_eq!(rank.download::<f32>(mean, 1), [3.0]);

        let (send, recv) = (rank.upload(&[own, own + 10]), rank.upload(&[0u64; 6]));
        assert_eq!(ncclAllGather(send, recv, 2, U64, comm, stream), 0);
        assert_eq!(rank.download::<u64>(recv, 6), [0, 10, 1, 11, 2, 12]);

        let value = rank.upload(&[own + 7]);
        assert_eq!(ncclBroadcast(value, value, 1, U64, 2, comm, stream), 0);
        assert_eq!(rank.download::<u64>(value, 1), [9]);

        let largest = rank.upload(&[own]);
        assert_eq!(ncclReduce(largest, largest, 1, U64, 2, 1, comm, stream), 0);
        assert_eq!(rank.download::<u64>(largest, 1), [if own == 1 { 2 } else { own }]);

        let (send, recv) = (rank.upload(&[own, 10 * own, 100 * own]), rank.upload(&[0u64]));
        assert_eq!(ncclReduceScatter(send, recv, 1, U64, 0, comm, stream), 0);
        assert_eq!(rank.download::<u64>(recv, 1), [[3, 30, 300][rank.number]]);
    });
}

#[test]
fn bfloat16_is_rounded_to_nearest_even() {
    let halves = as_ranks(2, |rank| {
        // 1 and 1 + 2^-7, then 2^-8: the sums lie halfway, and go to the even neighbour.
        let at = rank.upload(if rank.number == 0 { &[0x3f80u16, 0x3f81] } else { &[0x3b80u16, 0x3b80] });
        assert_eq!(ncclAllReduce(at, at, 2, Number::Bfloat16 as u32, 0, rank.comm, rank.stream), 0);
        rank.download::<u16>(at, 2)
    });
    assert_eq!(halves, [[0x3f80, 0x3f82], [0x3f80, 0x3f82]]);
}

#[test]
fn the_call_returns_before_the_others_are_there() {
    let first_has_issued = std::sync::Barrier::new(2);
    as_ranks(2, |rank| {
        let at = rank.upload(&[1f32]);
        if rank.number == 1 {
            first_has_issued.wait();
        }
        assert_eq!(ncclAllReduce(at, at, 1, F32, 0, rank.comm, rank.stream), 0);
        if rank.number == 0 {
            first_has_issued.wait();
        }
        assert_eq!(rank.download::<f32>(at, 1), [2.0]);
    });
}

#[test]
fn a_rank_that_is_gone_is_an_error_on_the_others() {
    as_ranks(3, |rank| {
        let at = rank.upload(&[1f32]);
        if rank.number == 2 {
            assert_eq!(ncclCommAbort(rank.comm), 0);
            return;
        }
        assert_eq!(ncclAllReduce(at, at, 1, F32, 0, rank.comm, rank.stream), 0);
        assert_eq!(cuStreamSynchronize(rank.stream), crate::error::Error::LAUNCH_FAILED.0);
        assert_eq!(get::<u32>(|out| ncclCommGetAsyncError(rank.comm, out)), Code::RemoteError as u32);
        assert_ne!(cuCtxSynchronize(), 0, "the error stays");
    });
}

#[test]
fn ranks_that_do_different_things_are_told_so() {
    let codes = as_ranks(2, |rank| {
        let at = rank.upload(&[1f32, 2.0]);
        let count = 1 + rank.number;
        assert_eq!(ncclAllReduce(at, at, count, F32, 0, rank.comm, rank.stream), 0);
        assert_ne!(cuStreamSynchronize(rank.stream), 0);
        get::<u32>(|out| ncclCommGetAsyncError(rank.comm, out))
    });
    assert_eq!(codes, [Code::InvalidUsage as u32, Code::RemoteError as u32]);
}

#[test]
fn nonsense_is_refused_at_the_call_with_the_reason() {
    as_ranks(1, |rank| {
        let at = rank.upload(&[1f32]);
        let (comm, stream) = (rank.comm, rank.stream);
        let invalid = Code::InvalidArgument as u32;
        assert_eq!(ncclAllReduce(at, at, 2, F32, 0, comm, stream), invalid, "beyond the buffer");
        assert_eq!(ncclAllReduce(0x10, at, 1, F32, 0, comm, stream), invalid);
        assert_eq!(ncclAllReduce(at, at, 1, 77, 0, comm, stream), invalid);
        assert_eq!(ncclAllReduce(at, at, 1, F32, 9, comm, stream), invalid);
        assert_eq!(ncclAllReduce(at, at, 1, Number::Float16 as u32, 0, comm, stream), invalid);
        assert_eq!(ncclBroadcast(at, at, 1, F32, 1, comm, stream), invalid, "there is no rank 1");
        assert_eq!(ncclAllReduce(at, at, 1, F32, 0, comm + 1, stream), invalid);
        // SAFETY: NCCL's texts are NUL-terminated.
        let why = unsafe { CStr::from_ptr(ncclGetLastError(0)) }.to_str().unwrap();
        assert_eq!(why, "ncclAllReduce: there is no such communicator (destroyed?)");
        assert_eq!(ncclGroupEnd(), Code::InvalidUsage as u32);
        assert_eq!(ncclGroupStart(), 0);
        assert_eq!(ncclAllReduce(at, at, 1, 77, 0, comm, stream), invalid);
        assert_eq!(ncclGroupEnd(), invalid, "a group ends with its first failure");
        assert_eq!(ncclCommDestroy(comm), 0);
        assert_eq!(ncclCommDestroy(comm), invalid);
        assert_eq!(rank.download::<f32>(at, 1), [1.0], "nothing was touched");
    });
}

#[test]
fn a_captured_collective_runs_at_every_replay() {
    use crate::capture::{cuStreamBeginCapture_v2, cuStreamEndCapture};
    use crate::graph::{cuGraphInstantiateWithFlags, cuGraphLaunch};
    as_ranks(2, |rank| {
        let at = rank.upload(&[1f32]);
        assert_eq!(cuStreamBeginCapture_v2(rank.stream, 1), 0);
        assert_eq!(ncclAllReduce(at, at, 1, F32, 0, rank.comm, rank.stream), 0);
        let graph = get::<usize>(|out| cuStreamEndCapture(rank.stream, out));
        let ready = get::<usize>(|out| cuGraphInstantiateWithFlags(out, graph, 0));
        for _ in 0..3 {
            assert_eq!(cuGraphLaunch(ready, rank.stream), 0);
        }
        assert_eq!(rank.download::<f32>(at, 1), [8.0]);
    });
}
