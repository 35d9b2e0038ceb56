//! The device work of a training step.
//!
//! In: micro-batches in device memory. Out: new weights and a row in the metrics ring, all issued on one stream. With no
//! historical wait switched on it must never wait, copy to the host, allocate, or upload from pageable memory; capturing it
//! as a graph proves that (`dflash-train capture-check`).

use crate::device::{Communicator, Device, Result, Stream};
use crate::model::{AnchorScalars, AnchorWidth, Batch, Model, Scalar};
use crate::nvtx;
use crate::optim::{Curriculum, Optimizer};
use crate::waits::scalars::DeviceScalars;
use crate::waits::{Source, Waits, anchors};
use std::sync::Arc;

/// Model, optimiser and the stream they run on.
pub struct Compute {
    /// The compute stream. Shared, so that a capture can hold it while the step is issued.
    pub stream: Arc<Stream>,
    /// The draft model.
    pub model: Model,
    /// Its optimiser.
    pub optimizer: Optimizer,
    curriculum: Curriculum,
    /// The step that is being issued, from 0.
    step: u32,
    /// The other trainers of the job; none where this one is alone.
    pub group: Option<Communicator>,
    read_width: bool,
    scalars: Option<DeviceScalars>,
}

impl Compute {
    /// Puts the parts together. Set-up only.
    pub fn new(
        device: &Arc<Device>,
        model: Model,
        optimizer: Optimizer,
        curriculum: Curriculum,
        waits: Waits,
    ) -> Result<Self> {
        let scalars = waits.has(Source::Scalars).then(|| DeviceScalars::new(device)).transpose()?;
        Ok(Compute {
            stream: Arc::new(Stream::new(device)?),
            model,
            optimizer,
            curriculum,
            step: 0,
            group: None,
            read_width: waits.has(Source::Anchors),
            scalars,
        })
    }

    /// All of step `step` (from 0) over micro-batches that are in device memory.
    pub fn step<'a>(&mut self, step: u32, batches: impl ExactSizeIterator<Item = &'a Batch>) -> Result<()> {
        let scale = 1.0 / batches.len() as f32;
        self.begin(step)?;
        for batch in batches {
            self.micro_batch(batch, scale)?;
        }
        self.update()
    }

    /// Starts step `step`, counted from 0.
    pub fn begin(&mut self, step: u32) -> Result<()> {
        self.step = step;
        self.model.zero_gradients(&self.stream)?;
        if self.scalars.is_none() {
            self.model.schedule_lambda(
                &self.stream,
                self.optimizer.step_counter().view(),
                self.curriculum,
            )?;
        }
        Ok(())
    }

    /// Forward and backward of one micro-batch, whose gradients count `scale`.
    pub fn micro_batch(&mut self, batch: &Batch, scale: f32) -> Result<()> {
        let stream = &*self.stream;
        {
            let _forward = nvtx::range(c"forward");
            {
                let _anchors = nvtx::range(c"anchors");
                self.model.count_anchors(stream, batch)?;
                let width = if self.read_width {
                    anchors::read_width(stream, &self.model)?
                } else {
                    AnchorWidth::OnDevice
                };
                let scalars = match &self.scalars {
                    Some(scalars) => scalars.upload_anchor_scalars(stream, &self.model)?,
                    None => AnchorScalars::LITERAL,
                };
                self.model.draw_anchors(stream, batch, width, scalars)?;
            }
            let mask_token = match &self.scalars {
                Some(scalars) => {
                    scalars.upload_lambda(stream, &self.model, self.curriculum, self.step)?;
                    scalars.upload_mask_token(stream, &self.model)?
                }
                None => Scalar::Literal,
            };
            self.model.forward(stream, batch, mask_token)?;
        }
        let _backward = nvtx::range(c"backward");
        self.model.backward(stream, batch, scale)
    }

    /// Joins the trainers of a job, and makes their state that of rank 0. Set-up only.
    pub fn join(&mut self, group: Communicator) -> Result<()> {
        let (stream, params) = (&*self.stream, self.model.params());
        group.broadcast(stream, params.weights.view())?;
        group.broadcast(stream, self.optimizer.first_moments().view())?;
        group.broadcast(stream, self.optimizer.second_moments().view())?;
        group.broadcast(stream, self.optimizer.step_counter().view())?;
        group.broadcast(stream, self.model.draw_counter().view())?;
        stream.synchronize()?;
        self.group = Some(group);
        Ok(())
    }

    /// Ends a step: averages gradients and metrics over the trainers, clips, updates the weights, writes the metrics row.
    pub fn update(&mut self) -> Result<()> {
        if let Some(group) = &self.group {
            let _reduce = nvtx::range(c"all-reduce");
            group.average(&self.stream, self.model.params().grads.view())?;
            group.average(&self.stream, self.model.totals())?;
        }
        let _optimizer = nvtx::range(c"optimizer");
        self.optimizer.step(&self.stream, &self.model)
    }
}
