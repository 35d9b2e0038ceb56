//! Where things lie in a log file. Constants only; docs/trace-format.md is the prose for them.
//!
//! All numbers are little-endian. The file is a row of 64 KiB slots: slot 0 is the file header, every other slot is a
//! chunk that belongs to one lane. 64 KiB is also the largest page size in use (aarch64), so that each slot can be
//! mapped on its own everywhere.

/// First bytes of a log. The line end and the control-Z show damage by text-mode transfers.
pub const MAGIC: [u8; 8] = *b"SALOG\r\n\x1a";
/// Version of the layout. A reader refuses a higher one; unknown record kinds need no new version.
pub const VERSION: u32 = 1;

/// Size of a slot: of the file header (mostly unused) and of each chunk.
pub const SLOT_BYTES: usize = 64 * 1024;
/// Used part of slot 0.
pub const HEADER_BYTES: usize = 4096;

pub const AT_MAGIC: usize = 0;
pub const AT_VERSION: usize = 8;
pub const AT_SLOT_BYTES: usize = 12;
/// Random per file; part of every check, so that a chunk of another file is recognised.
pub const AT_NONCE: usize = 16;
pub const AT_PID: usize = 24;
pub const AT_PPID: usize = 28;
pub const AT_REALTIME_NS: usize = 32;
pub const AT_MONOTONIC_NS: usize = 40;
/// Check over everything before it.
pub const AT_HEADER_CHECK: usize = 48;
/// The fields from here on change while the file is written and are outside the check.
/// u32, see [`STATE_OPEN`] and [`STATE_SEALED`].
pub const AT_STATE: usize = 56;
/// u32: how many chunks were handed out. Tells a truncated file from a short one.
pub const AT_CHUNKS: usize = 60;
/// u64 per loss reason.
pub const AT_LOSSES: usize = 128;
pub const LOSS_SLOTS: usize = 32;

pub const STATE_OPEN: u32 = 0;
pub const STATE_SEALED: u32 = 1;

pub const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"SACH");
pub const CHUNK_HEADER_BYTES: usize = 32;
pub const AT_CHUNK_MAGIC: usize = 0;
/// Slot number of the chunk itself; a moved chunk is recognised.
pub const AT_CHUNK_SLOT: usize = 4;
pub const AT_CHUNK_LANE: usize = 8;
/// Counts from 0 within the lane.
pub const AT_CHUNK_SEQUENCE: usize = 12;
pub const AT_CHUNK_CHECK: usize = 16;
/// u32: bytes of records behind the chunk header that are complete.
pub const AT_CHUNK_COMMITTED: usize = 24;

/// Room for records in one chunk.
pub const CHUNK_CAPACITY: usize = SLOT_BYTES - CHUNK_HEADER_BYTES;
/// Longest variable part (text, line table, addresses) of one record; what is longer is cut and flagged.
pub const MAX_TAIL_BYTES: usize = 60 * 1024;

/// Longest record without a variable part.
pub const MAX_EVENT_BYTES: usize = 72;

/// Set in the flags of a record with a variable part when that part was cut.
pub const FLAG_TRUNCATED: u8 = 0x80;

const _: () = assert!(MAX_TAIL_BYTES + 256 <= CHUNK_CAPACITY && MAX_TAIL_BYTES.is_multiple_of(8));
const _: () = assert!(
    AT_LOSSES + 8 * LOSS_SLOTS <= HEADER_BYTES && AT_STATE.is_multiple_of(4) && AT_CHUNKS.is_multiple_of(4)
);
