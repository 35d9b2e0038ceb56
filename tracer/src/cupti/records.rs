//! Activity records on their way from CUPTI's buffers into the log.
//!
//! In: the filled part of a buffer, on a thread of CUPTI's or of the program. Out: records in that thread's lane, with
//! CUPTI's own times. Must never hold on to the buffer.

use std::ffi::CStr;

use cupti_sys::records::{self as raw, Records};
use cupti_sys::{CuptiResult, synchronization};
use syncaudit_eventlog::{Kernel, LossReason, Memcpy, Memset, Overhead, Record, Synchronization, ThreadLog};

use crate::thread;

/// Writes all records of a buffer to the log.
pub fn write(buffer: &[u8]) {
    let Some(library) = super::library() else { return };
    let mut records = Records::new(library, buffer);
    thread::with(|thread| {
        let Some(session) = thread.session() else { return };
        let Some(log) = thread.log() else { return };
        for record in records.by_ref() {
            write_one(log, record);
        }
        if records.ended_with() != Some(CuptiResult::MAX_LIMIT_REACHED) {
            session.writer.count_loss(LossReason::Unreadable, 1);
        }
    });
}

fn write_one(log: &mut ThreadLog<'static>, record: raw::Record<'_>) {
    match record {
        raw::Record::Memcpy(copy) => {
            // The log has the outermost call. By the headers `correlation_id` is the driver call's and
            // `runtime_correlation_id` that of the runtime call around it, if there is one.
            let correlation = match copy.runtime_correlation_id {
                0 => copy.correlation_id,
                outer => outer,
            };
            log.write(&Record::Memcpy(Memcpy {
                correlation,
                copy_kind: copy.copy_kind,
                src_kind: copy.src_kind,
                dst_kind: copy.dst_kind,
                flags: copy.flags,
                bytes: copy.bytes,
                start_cupti_ns: copy.start_ns,
                end_cupti_ns: copy.end_ns,
                device: copy.device_id,
                context: copy.context_id,
                stream: copy.stream_id,
                graph: copy.graph_id,
                graph_node: copy.graph_node_id,
            }));
        }
        raw::Record::MemcpyPeer(copy) => {
            log.write(&Record::Memcpy(Memcpy {
                correlation: copy.correlation_id,
                copy_kind: copy.copy_kind,
                src_kind: copy.src_kind,
                dst_kind: copy.dst_kind,
                flags: copy.flags,
                bytes: copy.bytes,
                start_cupti_ns: copy.start_ns,
                end_cupti_ns: copy.end_ns,
                device: copy.device_id,
                context: copy.context_id,
                stream: copy.stream_id,
                graph: copy.graph_id,
                graph_node: copy.graph_node_id,
            }));
        }
        raw::Record::Memset(set) => {
            log.write(&Record::Memset(Memset {
                correlation: set.correlation_id,
                memory_kind: set.memory_kind,
                flags: set.flags,
                bytes: set.bytes,
                start_cupti_ns: set.start_ns,
                end_cupti_ns: set.end_ns,
                device: set.device_id,
                context: set.context_id,
                stream: set.stream_id,
                graph: set.graph_id,
                graph_node: set.graph_node_id,
            }));
        }
        // The device waits there, not the host; programs with many streams make thousands of them.
        raw::Record::Synchronization(sync) if sync.type_ == synchronization::STREAM_WAIT_EVENT => {}
        raw::Record::Synchronization(sync) => {
            log.write(&Record::Synchronization(Synchronization {
                correlation: sync.correlation_id,
                sync_type: sync.type_,
                start_cupti_ns: sync.start_ns,
                end_cupti_ns: sync.end_ns,
                context: sync.context_id,
                stream: sync.stream_id,
                event: sync.cuda_event_id,
            }));
        }
        raw::Record::Overhead(overhead, correlation) => {
            log.write(&Record::Overhead(Overhead {
                overhead_kind: overhead.overhead_kind,
                correlation,
                start_cupti_ns: overhead.start_ns,
                end_cupti_ns: overhead.end_ns,
            }));
        }
        raw::Record::Kernel(kernel) => {
            let name = if kernel.name.is_null() {
                c""
            } else {
                // SAFETY: CUPTI's kernel names are NUL-terminated and live as long as the library.
                unsafe { CStr::from_ptr(kernel.name) }
            };
            let name = log.str(name.to_bytes());
            log.write(&Record::Kernel(Kernel {
                name,
                correlation: kernel.correlation_id,
                start_cupti_ns: kernel.start_ns,
                end_cupti_ns: kernel.end_ns,
                device: kernel.device_id,
                context: kernel.context_id,
                stream: kernel.stream_id,
                graph: kernel.graph_id,
                graph_node: kernel.graph_node_id,
            }));
        }
        // Made for their correlation ids only; the callbacks say the rest, on our clock.
        raw::Record::Api(_) | raw::Record::Other(_) => {}
    }
}
