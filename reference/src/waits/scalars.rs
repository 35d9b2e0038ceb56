//! `--waits scalars`: constants of the step made as device scalars from host numbers, each a tiny upload from pageable memory
//! and a stream synchronise.

use crate::call_site;
use crate::device::{Buffer, Device, Result, Stream};
use crate::model::{AnchorScalars, Model, Scalar};
use crate::optim::Curriculum;
use std::sync::Arc;

/// Device memory for the four scalars of every objective; Domino's lambda has its place in the model.
pub struct DeviceScalars {
    position_sentinel: Buffer<i32>,
    key_sentinel: Buffer<f32>,
    pad_position: Buffer<i32>,
    mask_token: Buffer<i32>,
}

impl DeviceScalars {
    /// Allocates them. Set-up only.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        Ok(DeviceScalars {
            position_sentinel: Buffer::zeros(device, 1)?,
            key_sentinel: Buffer::zeros(device, 1)?,
            pad_position: Buffer::zeros(device, 1)?,
            mask_token: Buffer::zeros(device, 1)?,
        })
    }

    /// Uploads the three constants of anchor drawing: S+1, 2.0 and 0.
    #[inline(never)]
    pub fn upload_anchor_scalars(&self, stream: &Stream, model: &Model) -> Result<AnchorScalars> {
        {
            let _site = call_site!("upload position sentinel");
            stream.upload_blocking(self.position_sentinel.view(), &[model.position_sentinel()])?;
        }
        {
            let _site = call_site!("upload key sentinel");
            stream.upload_blocking(self.key_sentinel.view(), &[Model::KEY_SENTINEL])?;
        }
        {
            let _site = call_site!("upload pad position");
            stream.upload_blocking(self.pad_position.view(), &[Model::PAD_POSITION])?;
        }
        Ok(AnchorScalars {
            position_sentinel: Scalar::Device(self.position_sentinel.view()),
            key_sentinel: Scalar::Device(self.key_sentinel.view()),
            pad_position: Scalar::Device(self.pad_position.view()),
        })
    }

    /// Uploads the mask token of the noise ids.
    #[inline(never)]
    pub fn upload_mask_token(&self, stream: &Stream, model: &Model) -> Result<Scalar<i32>> {
        let _site = call_site!("upload mask token");
        stream.upload_blocking(self.mask_token.view(), &[model.config().mask_token_id])?;
        Ok(Scalar::Device(self.mask_token.view()))
    }

    /// Uploads Domino's weight of the base loss in optimiser step `step` (from 0), as the public trainer made it in every
    /// forward pass. Nothing to do without the Domino head.
    #[inline(never)]
    pub fn upload_lambda(
        &self,
        stream: &Stream,
        model: &Model,
        curriculum: Curriculum,
        step: u32,
    ) -> Result<()> {
        let Some(lambda) = model.lambda_base() else { return Ok(()) };
        let _site = call_site!("upload lambda_base");
        stream.upload_blocking(lambda, &[curriculum.lambda(step)])
    }
}
