//! `dflash-train capture-check`: a training step captured as a CUDA graph.
//!
//! A call that would wait for the device fails while a stream captures, so a step that can be captured has no wait in it. That
//! is the driver's own word, independent of any tool.

use super::train::{Plan, TrainArgs, plan};
use clap::Args;
use dflash_train::device::{Device, Graph};
use dflash_train::error::{Error, Result};
use dflash_train::model::Batch;
use dflash_train::train::step::Compute;
use dflash_train::train::{Settings, compute};
use std::process::ExitCode;

/// Options of the check: those of a training run.
#[derive(Args)]
pub struct CaptureCheckArgs {
    #[command(flatten)]
    train: TrainArgs,
}

/// Captures one step, replays it, and prints how many nodes it has.
pub fn run(args: &CaptureCheckArgs) -> Result<ExitCode> {
    let device = Device::open(args.train.gpu)?;
    let Plan { settings, target, .. } = plan(&args.train)?;
    let mut compute = compute(&device, &settings, &target)?;
    let batch = Batch::zeros(&device, &settings.config, settings.batch, settings.sequence)?;
    // Once for real: what is loaded on first use would not be allowed during a capture.
    step(&mut compute, &batch, &settings)?;
    compute.stream.synchronize()?;

    let stream = compute.stream.clone();
    let graph = Graph::capture(&stream, || step(&mut compute, &batch, &settings)).map_err(|error| {
        Error::new(format!("a step with waits: {} can't be captured: {error}", settings.waits))
    })?;
    let nodes = graph.nodes();
    if nodes == 0 {
        return Err(Error::new("the captured step has no nodes: this device does not capture"));
    }
    graph.launch(&stream)?;
    stream.synchronize()?;
    println!(
        "captured one step (waits: {}) as a graph of {nodes} nodes and replayed it: nothing in it waits",
        settings.waits
    );
    Ok(ExitCode::SUCCESS)
}

fn step(
    compute: &mut Compute,
    batch: &Batch,
    settings: &Settings,
) -> Result<(), dflash_train::device::Error> {
    compute.begin()?;
    for _ in 0..settings.accumulate {
        compute.micro_batch(batch, 1.0 / settings.accumulate as f32)?;
    }
    compute.update()
}
