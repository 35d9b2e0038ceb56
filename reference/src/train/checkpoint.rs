//! Checkpoints: everything that the next step depends on, in one safetensors file.
//!
//! In: the state between two steps. Out: `DIR/checkpoint.safetensors`, replaced whole or not at all. A run that starts from it
//! gives the same losses, bit for bit, as one that was never interrupted. Saving waits for the device; it is called between
//! steps, in a `checkpoint` range of its own.
//!
//! Holds: the weights under the names of the public draft model, AdamW's moments (flat, in the same order), the counters of
//! optimiser steps and anchor draws (all random numbers of the device follow from seed and counter), and in its metadata the
//! configuration, the seed, the step, and the number of the next sample.

use super::step::Compute;
use crate::device::{Buffer, Pod, Stream};
use crate::error::{Error, Result};
use crate::model::Config;
use crate::rollout::tensor_file::TensorFile;
use safetensors::tensor::{Dtype, View};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

const FORMAT: &str = "dflash-train checkpoint 1";

/// Where a run stands between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Steps done.
    pub step: u32,
    /// Number of the first sample not trained on.
    pub next_sample: u64,
    /// The run's seed.
    pub seed: u64,
}

/// A directory that belongs to this run for as long as this lives.
pub struct Claim {
    _lock: File,
}

/// Makes the directory and takes it: two runs would each remove what the other has acknowledged. The kernel gives it back
/// however the run ends.
pub fn claim(directory: &Path) -> Result<Claim> {
    let shown = directory.display();
    std::fs::create_dir_all(directory)
        .map_err(|error| Error::new(format!("cannot make the checkpoint directory {shown}: {error}")))?;
    let lock = File::options().create(true).truncate(false).write(true).open(directory.join("lock"));
    let lock =
        lock.map_err(|error| Error::new(format!("cannot use the checkpoint directory {shown}: {error}")))?;
    match lock.try_lock() {
        Ok(()) => Ok(Claim { _lock: lock }),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::new(format!(
            "the checkpoint directory {shown} is in use by another run; wait for it, or give another --checkpoint directory"
        ))),
        Err(std::fs::TryLockError::Error(error)) => {
            Err(Error::new(format!("cannot lock the checkpoint directory {shown}: {error}")))
        }
    }
}

/// The checkpoint file of a directory.
pub fn path(directory: &Path) -> PathBuf {
    directory.join("checkpoint.safetensors")
}

/// One tensor on its way into the file.
struct Tensor<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl View for Tensor<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes the state into `directory`. **Waits** for the device.
pub fn save(directory: &Path, compute: &Compute, position: Position) -> Result<()> {
    let stream = &compute.stream;
    let weights = floats(stream, &compute.model.params().weights)?;
    let mut tensors: Vec<(String, Tensor)> = compute
        .model
        .params()
        .table
        .iter()
        .map(|param| {
            let bytes = Cow::Borrowed(&weights[param.offset * 4..(param.offset + param.len()) * 4]);
            (param.name.clone(), Tensor { dtype: Dtype::F32, shape: param.shape.clone(), bytes })
        })
        .collect();
    for (name, buffer) in [
        ("adamw.first", compute.optimizer.first_moments()),
        ("adamw.second", compute.optimizer.second_moments()),
    ] {
        let bytes = Cow::Owned(floats(stream, buffer)?);
        tensors.push((name.to_owned(), Tensor { dtype: Dtype::F32, shape: vec![buffer.len()], bytes }));
    }
    for (name, buffer) in
        [("counter.steps", compute.optimizer.step_counter()), ("counter.draws", compute.model.draw_counter())]
    {
        let bytes = read(stream, buffer)?.iter().flat_map(|value| value.to_le_bytes()).collect();
        tensors
            .push((name.to_owned(), Tensor { dtype: Dtype::U32, shape: vec![1], bytes: Cow::Owned(bytes) }));
    }
    let notes = HashMap::from([
        ("format".to_owned(), FORMAT.to_owned()),
        ("config".to_owned(), config_json(compute.model.config())?),
        ("step".to_owned(), position.step.to_string()),
        ("next_sample".to_owned(), position.next_sample.to_string()),
        ("seed".to_owned(), position.seed.to_string()),
    ]);

    let (target, temporary) = (path(directory), directory.join("checkpoint.new"));
    let fail =
        |error: String| Error::new(format!("cannot write the checkpoint {}: {error}", target.display()));
    let io_fail = |error: std::io::Error| fail(error.to_string());
    std::fs::create_dir_all(directory).map_err(io_fail)?;
    safetensors::serialize_to_file(tensors, Some(notes), &temporary)
        .map_err(|error| fail(error.to_string()))?;
    File::open(&temporary).and_then(|file| file.sync_all()).map_err(io_fail)?;
    std::fs::rename(&temporary, &target).map_err(io_fail)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(io_fail)
}

/// Where the run in `directory` stands; `None` where there is no checkpoint. The checkpoint must be of this configuration and
/// seed.
pub fn position(directory: &Path, config: &Config, seed: u64) -> Result<Option<Position>> {
    Ok(open(directory, config, seed)?.map(|(_, position)| position))
}

fn open(directory: &Path, config: &Config, seed: u64) -> Result<Option<(TensorFile, Position)>> {
    let path = path(directory);
    if !path.exists() {
        return Ok(None);
    }
    let file = TensorFile::open(&path)?;
    let fail = |what: String| {
        Error::new(format!(
            "cannot resume from {}: {what}; give another --checkpoint directory",
            path.display()
        ))
    };
    let note = |key: &str| {
        file.note(key).ok_or_else(|| fail(format!("it has no `{key}`, so it is no checkpoint of ours")))
    };
    let number =
        |key: &str| note(key)?.parse::<u64>().map_err(|_| fail(format!("its `{key}` is not a number")));
    if note("format")? != FORMAT {
        return Err(fail(format!("it has the format `{}`, this build reads `{FORMAT}`", note("format")?)));
    }
    let (found, expected) = (note("config")?, config_json(config)?);
    if found != expected {
        return Err(fail(format!(
            "it was trained with another model configuration, {found}, not {expected}"
        )));
    }
    if number("seed")? != seed {
        return Err(fail(format!("it was trained with --seed {}", number("seed")?)));
    }
    let step = u32::try_from(number("step")?).map_err(|_| fail("its `step` is out of range".to_owned()))?;
    let position = Position { step, next_sample: number("next_sample")?, seed };
    Ok(Some((file, position)))
}

/// Restores the state in `directory`; `None` where there is no checkpoint. Set-up only.
pub fn restore(directory: &Path, compute: &mut Compute, seed: u64) -> Result<Option<Position>> {
    let Some((file, position)) = open(directory, compute.model.config(), seed)? else { return Ok(None) };
    let stream = &compute.stream;
    let params = compute.model.params();
    let mut weights = vec![0.0; params.weights.len()];
    for param in &params.table {
        weights[param.offset..param.offset + param.len()]
            .copy_from_slice(&file.f32(&param.name, &param.shape)?);
    }
    stream.upload_blocking(params.weights.view(), &weights)?;
    for (name, buffer) in [
        ("adamw.first", compute.optimizer.first_moments()),
        ("adamw.second", compute.optimizer.second_moments()),
    ] {
        stream.upload_blocking(buffer.view(), &file.f32(name, &[buffer.len()])?)?;
    }
    for (name, buffer) in
        [("counter.steps", compute.optimizer.step_counter()), ("counter.draws", compute.model.draw_counter())]
    {
        let value = file.i64_range(name, 0, 1)?[0] as u32;
        stream.upload_blocking(buffer.view(), &[value])?;
    }
    Ok(Some(position))
}

fn config_json(config: &Config) -> Result<String> {
    serde_json::to_string(config)
        .map_err(|error| Error::new(format!("cannot describe the model configuration: {error}")))
}

/// The values of a buffer as the compute stream leaves them.
fn read<T: Pod>(stream: &Stream, buffer: &Buffer<T>) -> Result<Vec<T>> {
    let mut values = vec![T::default(); buffer.len()];
    stream.download_blocking(&mut values, buffer.view())?;
    Ok(values)
}

fn floats(stream: &Stream, buffer: &Buffer<f32>) -> Result<Vec<u8>> {
    Ok(read(stream, buffer)?.iter().flat_map(|value| value.to_le_bytes()).collect())
}
