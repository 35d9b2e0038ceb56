//! What makes the host wait on the emulated device: one table.
//!
//! Every entry point that may hold the host asks this table and does what it says, so changing a row changes the
//! device. Each row names its source; `docs/emulator.md` prints the table, and a test proves each row by holding the
//! device with a gated kernel and looking whether the call came back.
//!
//! Sources: `SYNC` = "API synchronization behavior" of the CUDA driver API documentation (12.4 and later),
//! `SYNC-OLD` = its wording in 11.1, `PG` = CUDA C Programming Guide on concurrent host execution, `DRV` = comments in
//! cuda.h, `IMPL` = Programming Guide on implicit synchronisation, `CHOICE` = undocumented, decided here.

use std::sync::Arc;

use crate::context::Context;
use crate::worker::{Stream, Ticket};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named after the driver's functions
pub enum Call {
    /// A copy whose name has no `Async`.
    CopySync,
    CopyAsync,
    MemsetSync,
    MemsetAsync,
    StreamSynchronize,
    EventSynchronize,
    CtxSynchronize,
    StreamWaitEvent,
    Query,
    EventRecord,
    MemAlloc,
    MemFree,
    /// `cuMemFree` of memory from `cuMemAllocAsync`.
    MemFreeOfPool,
    MemAllocAsync,
    MemFreeAsync,
    MemPoolTrim,
    MemHostAlloc,
    MemFreeHost,
    MemHostRegister,
    MemHostUnregister,
    ModuleLoad,
    ModuleUnload,
    Launch,
    GraphLaunch,
    HostFunction,
    StreamDestroy,
    EventDestroy,
    CtxDestroy,
}

/// Direction of a copy. Managed memory counts as the device's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    HostToHost,
}

/// The memory that decides: a copy's host side, a memset's target, or managed memory on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Memory {
    Pageable,
    Pinned,
    Device,
    Managed,
    /// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS on either side, or CU_CTX_SYNC_MEMOPS on the context.
    SyncMemops,
}

/// Size of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// At most [`STAGED_BYTES`].
    Small,
    /// More than that.
    Large,
}

/// Largest pageable upload that the driver takes into its command buffer (`PG`: "64 KB or less").
pub const STAGED_BYTES: usize = 64 << 10;

/// For how long a call holds the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Not at all (a launch waits for space when its stream's queue is full).
    No,
    /// Until its stream has drained up to this point.
    Stream,
    /// Until the event has happened.
    Event,
    /// Until everything in the context is done.
    Device,
    /// Until this operation is done, and so everything before it on its stream.
    Operation,
    /// Until its stream has drained and the source was copied away; the transfer itself goes on.
    Staging,
}

/// One row; `None` matches everything.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The kind of call.
    pub call: Call,
    /// Only for copies in this direction.
    pub direction: Option<Direction>,
    /// Only for this memory.
    pub memory: Option<Memory>,
    /// Only for copies of this size.
    pub size: Option<Size>,
    /// For how long it holds the host.
    pub blocks: Blocks,
    /// Where that is written.
    pub source: &'static str,
}

const fn row(call: Call, blocks: Blocks, source: &'static str) -> Row {
    Row { call, direction: None, memory: None, size: None, blocks, source }
}

const fn copy(
    call: Call,
    direction: Option<Direction>,
    memory: Option<Memory>,
    size: Option<Size>,
    blocks: Blocks,
    source: &'static str,
) -> Row {
    Row { call, direction, memory, size, blocks, source }
}

use Blocks::{Device as DrainsDevice, No, Operation, Staging};
use Call::*;
use Direction::*;
use Memory::{Device, Managed, Pageable, Pinned, SyncMemops};

/// The table. The first row that matches counts.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    copy(CopySync, None, Some(SyncMemops), None, Operation, "DRV: CU_CTX_SYNC_MEMOPS, SYNC_MEMOPS"),
    copy(CopySync, None, Some(Managed), None, Operation, "SYNC-OLD: unified memory"),
    copy(CopySync, Some(HostToDevice), Some(Pageable), None, Staging, "SYNC 1"),
    copy(CopySync, Some(HostToDevice), Some(Pinned), None, Operation, "SYNC 2"),
    copy(CopySync, Some(DeviceToHost), None, None, Operation, "SYNC 3"),
    copy(CopySync, Some(DeviceToDevice), None, None, No, "SYNC 4"),
    copy(CopySync, Some(HostToHost), None, None, Operation, "SYNC 5"),
    copy(CopyAsync, None, Some(Managed), None, No, "CHOICE: the current SYNC page no longer says so"),
    copy(CopyAsync, Some(HostToDevice), Some(Pageable), Some(Size::Small), No, "PG: 64 KB or less"),
    copy(CopyAsync, Some(HostToDevice), Some(Pageable), Some(Size::Large), Operation, "CHOICE within SYNC async 1: may stage"),
    copy(CopyAsync, Some(DeviceToHost), Some(Pageable), None, Operation, "SYNC-OLD: returns once the copy has completed"),
    copy(CopyAsync, Some(HostToHost), None, None, Operation, "SYNC async 2"),
    copy(CopyAsync, None, None, None, No, "SYNC async 4"),
    copy(MemsetSync, None, Some(Pinned), None, Operation, "SYNC: pinned host target"),
    copy(MemsetSync, None, Some(Managed), None, Operation, "SYNC-OLD: unified memory target"),
    copy(MemsetSync, None, Some(Device), None, No, "SYNC: asynchronous with respect to the host"),
    row(MemsetAsync, No, "SYNC"),
    row(StreamSynchronize, Blocks::Stream, "DRV"),
    row(EventSynchronize, Blocks::Event, "DRV"),
    row(CtxSynchronize, DrainsDevice, "DRV"),
    row(StreamWaitEvent, No, "DRV: performed on the device"),
    row(Query, No, "DRV"),
    row(EventRecord, No, "DRV"),
    row(MemAlloc, No, "CHOICE: IMPL only names lost concurrency"),
    row(MemFree, DrainsDevice, "DRV: may perform implicit synchronisation"),
    row(MemFreeOfPool, No, "DRV: no implicit synchronisation"),
    row(MemAllocAsync, No, "DRV"),
    row(MemFreeAsync, No, "DRV"),
    row(MemPoolTrim, No, "CHOICE"),
    row(MemHostAlloc, No, "CHOICE: IMPL only names lost concurrency"),
    row(MemFreeHost, DrainsDevice, "CHOICE: headers are silent"),
    row(MemHostRegister, No, "CHOICE: headers are silent"),
    row(MemHostUnregister, DrainsDevice, "CHOICE: headers are silent"),
    row(ModuleLoad, No, "CHOICE: may require context synchronisation"),
    row(ModuleUnload, No, "CHOICE"),
    row(Launch, No, "DRV; waits for space when the launch queue is full"),
    row(GraphLaunch, No, "DRV"),
    row(HostFunction, No, "DRV"),
    row(StreamDestroy, No, "DRV: released asynchronously"),
    row(EventDestroy, No, "DRV: released asynchronously"),
    row(CtxDestroy, DrainsDevice, "DRV"),
];

fn matches<T: PartialEq>(wanted: Option<T>, given: Option<T>) -> bool {
    wanted.is_none() || wanted == given
}

fn look_up(call: Call, direction: Option<Direction>, memory: Option<Memory>, size: Option<Size>) -> Blocks {
    let row = TABLE.iter().find(|r| {
        r.call == call
            && matches(r.direction, direction)
            && matches(r.memory, memory)
            && matches(r.size, size)
    });
    // No row: the cautious answer. A test proves that it is never needed.
    row.map_or(Operation, |r| r.blocks)
}

/// What a call that is neither a copy nor a memset does.
pub(crate) fn rule(call: Call) -> Blocks {
    look_up(call, None, None, None)
}

/// What a copy does.
pub(crate) fn copy_rule(call: Call, direction: Direction, memory: Memory, bytes: usize) -> Blocks {
    let size = if bytes <= STAGED_BYTES { Size::Small } else { Size::Large };
    look_up(call, Some(direction), Some(memory), Some(size))
}

/// What a memset does.
pub(crate) fn memset_rule(call: Call, memory: Memory) -> Blocks {
    look_up(call, None, Some(memory), None)
}

impl Blocks {
    /// Holds the host as long as the rule says. `stream` is the call's stream, `ticket` its operation or event.
    pub(crate) fn wait(self, context: &Context, stream: Option<&Arc<Stream>>, ticket: Option<&Ticket>) {
        match self {
            Blocks::No => {}
            Blocks::Stream | Blocks::Staging => {
                if let Some(stream) = stream {
                    stream.last().wait();
                }
            }
            Blocks::Event | Blocks::Operation => {
                if let Some(ticket) = ticket {
                    ticket.wait();
                }
            }
            Blocks::Device => context.drain(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_and_memset_that_can_be_made_has_a_row_of_its_own() {
        let memories = [Pageable, Pinned, Device, Managed, SyncMemops];
        for call in [CopySync, CopyAsync] {
            for direction in [HostToDevice, DeviceToHost, DeviceToDevice, HostToHost] {
                for memory in memories {
                    for size in [Size::Small, Size::Large] {
                        let found = TABLE.iter().any(|r| {
                            r.call == call
                                && matches(r.direction, Some(direction))
                                && matches(r.memory, Some(memory))
                                && matches(r.size, Some(size))
                        });
                        let possible = !(call == CopySync && direction == HostToDevice && memory == Device);
                        assert_eq!(found, possible, "{call:?} {direction:?} {memory:?} {size:?}");
                    }
                }
            }
        }
    }
}
