//! One collective, as the stream's worker runs it.
//!
//! Rank 0 is the hub: the others send it what they contribute and read back what they get. It combines in the order of the
//! ranks. Each contribution starts with a header that says what its sender is doing, so that ranks that do different things
//! get an error that says so, and not each other's bytes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use super::communicator::Communicator;
use super::number::Number;
use super::{Code, Failure, Result};
use crate::error::Error;
use crate::heap;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // NCCL's names
pub enum Kind {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
}

/// `ncclRedOp_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // named as in nccl.h
pub enum Operator {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
    Avg = 4,
}

impl Operator {
    pub fn of(code: u32) -> Result<Self> {
        [Operator::Sum, Operator::Prod, Operator::Max, Operator::Min, Operator::Avg]
            .into_iter()
            .find(|operator| *operator as u32 == code)
            .ok_or_else(|| Failure::new(Code::InvalidArgument, format!("unknown reduction operator {code}")))
    }
}

/// A collective that was issued.
pub struct Collective {
    /// The kernel that a tool sees.
    pub name: Arc<str>,
    kind: Kind,
    send: u64,
    recv: u64,
    /// Numbers, as the caller counts them.
    count: usize,
    number: Number,
    operator: Operator,
    root: usize,
    communicator: Arc<Communicator>,
}

impl Collective {
    #[allow(clippy::too_many_arguments)] // NCCL's own
    pub fn new(
        kind: Kind,
        send: u64,
        recv: u64,
        count: usize,
        number: Number,
        operator: Operator,
        root: usize,
        communicator: Arc<Communicator>,
    ) -> Result<Self> {
        let reduces = matches!(kind, Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter);
        if reduces && !number.reduces() {
            return Err(Failure::new(
                Code::InvalidArgument,
                "the emulated NCCL has no half-precision arithmetic; reduce float or bfloat16",
            ));
        }
        let name = if reduces {
            format!("ncclDevKernel_{kind:?}_{operator:?}_{}_RING_LL", number.name())
        } else {
            format!("ncclDevKernel_{kind:?}_RING_LL")
        };
        let made = Self { name: name.into(), kind, send, recv, count, number, operator, root, communicator };
        // A bad pointer is an error of the call, as far as it can be seen now.
        let own = made.communicator.rank;
        let sends = kind != Kind::Broadcast || own == root;
        let receives = kind != Kind::Reduce || own == root;
        let bad = |at: u64, bytes: usize| bytes > 0 && heap::translate(at, bytes).is_none();
        if (sends && bad(send, made.sent_bytes())) || (receives && bad(recv, made.received_bytes())) {
            return Err(Failure::new(
                Code::InvalidArgument,
                format!("{kind:?} of {count} numbers: a buffer is too short or no memory of the device"),
            ));
        }
        Ok(made)
    }

    /// What each rank contributes.
    fn sent_bytes(&self) -> usize {
        let ranks = if self.kind == Kind::ReduceScatter { self.communicator.ranks } else { 1 };
        self.count * self.number.bytes() * ranks
    }

    /// What each rank gets.
    fn received_bytes(&self) -> usize {
        let ranks = if self.kind == Kind::AllGather { self.communicator.ranks } else { 1 };
        self.count * self.number.bytes() * ranks
    }

    /// Runs it, on the stream's worker.
    pub fn run(&self) -> crate::error::Result {
        let started = Instant::now();
        let outcome = self.exchange();
        crate::time_model::occupy(&self.name, started);
        outcome.map_err(|failure| {
            eprintln!(
                "syncaudit emulator: {:?} on rank {} of {} failed: {}",
                self.kind, self.communicator.rank, self.communicator.ranks, failure.why
            );
            self.communicator.fail(failure.code);
            Error::LAUNCH_FAILED
        })
    }

    fn exchange(&self) -> Result {
        let mut links = self.communicator.links()?;
        let result = if self.communicator.rank == 0 {
            self.as_hub(&mut links)
        } else {
            self.as_spoke(&mut links[0].1)
        };
        if result.is_err() {
            links.clear(); // the others read the end of the stream, and fail as well
        }
        result
    }

    fn as_spoke(&self, hub: &mut UnixStream) -> Result {
        let gone = |_| lost(0);
        hub.write_all(&self.header()).map_err(gone)?;
        if self.contributes(self.communicator.rank) {
            let bytes = self.memory(self.send, self.sent_bytes())?;
            hub.write_all(bytes.as_slice()).map_err(gone)?;
        }
        if self.receives(self.communicator.rank) {
            let mut bytes = self.memory(self.recv, self.received_bytes())?;
            hub.read_exact(bytes.as_mut_slice()).map_err(gone)?;
        }
        Ok(())
    }

    fn as_hub(&self, links: &mut [(usize, UnixStream)]) -> Result {
        let mut gathered: Vec<u8> = Vec::new();
        let mut take = |bytes: &[u8]| match self.kind {
            Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter if !gathered.is_empty() => {
                self.number.combine(self.operator, &mut gathered, bytes);
            }
            _ => gathered.extend_from_slice(bytes),
        };
        if self.contributes(0) {
            take(self.memory(self.send, self.sent_bytes())?.as_slice());
        }
        let mut part = vec![0; self.sent_bytes()];
        for (rank, link) in links.iter_mut() {
            let mut header = [0; HEADER];
            link.read_exact(&mut header).map_err(|_| lost(*rank))?;
            if header != self.header() {
                return Err(Failure::new(
                    Code::InvalidUsage,
                    format!("rank 0 does {}, rank {rank} does {}", said(&self.header()), said(&header)),
                ));
            }
            if self.contributes(*rank) {
                link.read_exact(&mut part).map_err(|_| lost(*rank))?;
                take(&part);
            }
        }
        if self.operator == Operator::Avg {
            self.number.divide(&mut gathered, self.communicator.ranks);
        }
        let share = |rank: usize| match self.kind {
            Kind::ReduceScatter => {
                &gathered[rank * self.received_bytes()..(rank + 1) * self.received_bytes()]
            }
            _ => &gathered[..],
        };
        for (rank, link) in links.iter_mut().filter(|(rank, _)| self.receives(*rank)) {
            link.write_all(share(*rank)).map_err(|_| lost(*rank))?;
        }
        if self.receives(0) {
            self.memory(self.recv, self.received_bytes())?.as_mut_slice().copy_from_slice(share(0));
        }
        Ok(())
    }

    fn contributes(&self, rank: usize) -> bool {
        self.kind != Kind::Broadcast || rank == self.root
    }

    fn receives(&self, rank: usize) -> bool {
        self.kind != Kind::Reduce || rank == self.root
    }

    fn memory(&self, at: u64, bytes: usize) -> Result<Memory> {
        if bytes == 0 {
            return Ok(Memory { bytes: None, len: 0 });
        }
        let found = heap::translate(at, bytes).ok_or_else(|| {
            Failure::new(Code::InvalidArgument, "its memory was freed before the stream got there")
        })?;
        Ok(Memory { bytes: Some(found), len: bytes })
    }

    fn header(&self) -> [u8; HEADER] {
        let words =
            [self.kind as u32, self.number as u32, self.operator as u32, self.root as u32, self.count as u32];
        let mut header = [0; HEADER];
        for (place, word) in header.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        header
    }
}

const HEADER: usize = 20;

/// A header in words.
fn said(header: &[u8; HEADER]) -> String {
    let word = |at: usize| u32::from_le_bytes(header.as_chunks::<4>().0[at]);
    let kind = ["AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter"].get(word(0) as usize);
    format!(
        "{} of {} numbers (data type {}, operator {}, root {})",
        kind.unwrap_or(&"something else"),
        word(4),
        word(1),
        word(2),
        word(3)
    )
}

fn lost(rank: usize) -> Failure {
    Failure::new(Code::RemoteError, format!("rank {rank} is gone"))
}

/// Device memory of a collective while it runs.
struct Memory {
    bytes: Option<heap::Bytes>,
    len: usize,
}

impl Memory {
    fn as_slice(&self) -> &[u8] {
        let Some(bytes) = &self.bytes else { return &[] };
        // SAFETY: `translate` checked that `len` bytes lie inside one region, which `bytes` keeps mapped. Who else accesses
        // them meanwhile is the program's business, as on a device.
        unsafe { std::slice::from_raw_parts(bytes.at, self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        let Some(bytes) = &self.bytes else { return &mut [] };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(bytes.at, self.len) }
    }
}
