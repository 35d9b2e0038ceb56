//! Waits as a weighted call tree for speedscope (<https://www.speedscope.app/file-format-schema.json>): one sampled profile per
//! thread that waited. A wait weighs the time it held the host, or 1 where times mean nothing.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::stack_of;
use crate::view::lod::Intervals;
use crate::view::recording::Recording;

#[derive(Serialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes one profile per thread with waits.
///
/// # Errors
/// What `out` says.
pub fn speedscope(rec: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let measured = rec.axis.measured();
    let mut frames: Vec<Frame> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let stacks: Vec<Vec<usize>> = rec
        .judged
        .audit
        .sites
        .iter()
        .map(|site| {
            let mut id = |name: String| {
                *known.entry(name).or_insert_with_key(|name| {
                    frames.push(Frame { name: name.clone() });
                    frames.len() - 1
                })
            };
            stack_of(site).into_iter().map(&mut id).collect()
        })
        .collect();
    let profiles = rec
        .lanes
        .iter()
        .filter(|lane| !lane.waits.is_empty())
        .map(|lane| {
            let waits = || lane.waits.ids.iter().map(|&id| &rec.judged.audit.waits[id as usize]);
            let weights: Vec<u64> =
                waits().map(|wait| if measured { wait.blocked_ns.unwrap_or(0) } else { 1 }).collect();
            let name = format!("{}, {}", rec.process_name(lane.process), lane.name);
            Profile {
                kind: "sampled",
                name: if measured { name } else { format!("{name}: number of waits (emulated, no times)") },
                unit: if measured { "nanoseconds" } else { "none" },
                start_value: 0,
                end_value: weights.iter().sum(),
                samples: waits().map(|wait| stacks[wait.site as usize].clone()).collect(),
                weights,
            }
        })
        .collect();
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("syncaudit ", env!("CARGO_PKG_VERSION")),
        name: rec.judged.audit.source.program.join(" "),
        shared: Shared { frames },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}
