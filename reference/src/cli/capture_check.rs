//! `dflash-train capture-check`: a training step captured as a CUDA graph.
//!
//! A call that would wait for the device fails while a stream captures, so a step that can be captured has no wait in it. That
//! is the driver's own word, independent of any tool. The step is a log step, the copy of the metrics ring included; with
//! `--waits` it makes the historical calls too, and the capture must fail.

use super::train::{Plan, TrainArgs, plan};
use clap::Args;
use dflash_train::device::{Device, Graph, Pinned};
use dflash_train::error::{Error, Result};
use dflash_train::model::Batch;
use dflash_train::train::step::Compute;
use dflash_train::train::{Settings, compute};
use dflash_train::waits::acks::ObjectGather;
use dflash_train::waits::{Source, batch_copy, metrics};
use std::process::ExitCode;

/// Options of the check: those of a training run.
#[derive(Args)]
pub struct CaptureCheckArgs {
    #[command(flatten)]
    train: TrainArgs,
}

/// Captures one step, replays it, and prints how many nodes it has.
pub fn run(args: &CaptureCheckArgs) -> Result<ExitCode> {
    let device = Device::open(args.train.gpu.unwrap_or(0))?;
    let Plan { settings, target, .. } = plan(&args.train)?;
    let compute = compute(&device, &settings, &target, 0)?;
    let stream = compute.stream.clone();
    let mut step = Step {
        batch: Batch::zeros(&device, &settings.config, settings.batch, settings.sequence)?,
        ring: Pinned::zeros(&device, compute.optimizer.ring().len())?,
        gather: ObjectGather::new(&device, 1, 1)?,
        compute,
        settings,
    };
    // Once for real: what is loaded on first use would not be allowed during a capture.
    step.issue()?;
    stream.synchronize()?;

    let mut failure = None;
    let graph = Graph::capture(&stream, || {
        step.issue().map_err(|error| {
            failure = Some(error.to_string());
            dflash_train::device::Error::Misuse { reason: error.to_string() }
        })
    });
    let waits = step.settings.waits;
    let graph = graph.map_err(|error| {
        let reason = failure.unwrap_or_else(|| error.to_string());
        Error::new(format!("a step with waits: {waits} can't be captured: {reason}"))
    })?;
    if graph.nodes() == 0 {
        return Err(Error::new("the captured step has no nodes: this device does not capture"));
    }
    graph.launch(&stream)?;
    stream.synchronize()?;
    println!(
        "captured one step (waits: {waits}) as a graph of {} nodes and replayed it: nothing in it waits",
        graph.nodes()
    );
    Ok(ExitCode::SUCCESS)
}

struct Step {
    settings: Settings,
    compute: Compute,
    batch: Batch,
    ring: Pinned<f32>,
    gather: ObjectGather,
}

impl Step {
    fn issue(&mut self) -> Result<()> {
        let stream = self.compute.stream.clone();
        let waits = self.settings.waits;
        self.compute.begin(0)?;
        for _ in 0..self.settings.accumulate {
            if waits.has(Source::BatchCopy) {
                let ids = vec![0; self.batch.input_ids.len()];
                let hidden = vec![0.0; self.batch.hidden_states.len()];
                batch_copy::copy(&stream, &self.batch, &ids, &hidden, &vec![0.0; ids.len()])?;
            }
            self.compute.micro_batch(&self.batch, 1.0 / self.settings.accumulate as f32)?;
        }
        self.compute.update()?;
        if waits.has(Source::Acks) {
            self.gather.gather(&stream, None, &[0])?;
        }
        if waits.has(Source::Metrics) {
            metrics::read(&stream, &self.compute.optimizer, 0)?;
        }
        stream.download(&mut self.ring, self.compute.optimizer.ring().view())?;
        Ok(())
    }
}
