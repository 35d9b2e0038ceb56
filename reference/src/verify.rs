//! `dflash-train verify`: does this crate compute what the public trainer computes?
//!
//! In: a golden file (safetensors; configuration in its `config` metadata; inputs `in.*`, weights `w.*`, frozen tables `frozen.*`,
//! expected `out.*`, `metric.*` and gradients `g.*`). Out: the relative error `||a - b|| / ||b||` of each expectation.
//! Never: a pass for an expectation that was not computed; every `out.*`, `metric.*` and `g.*` of the file must be matched.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors};

use crate::device::{self, Buffer, Device, Stream};
use crate::kernels::loss::METRICS;
use crate::model::{Batch, Config, DominoHead, Frozen, Model, Precision, Scalar};

/// The tolerance when the caller names none: what 32-bit arithmetic reaches against 64-bit expectations.
pub const DEFAULT_TOLERANCE: f64 = 1e-4;

/// What [`Model::metrics`] holds from its fourth element on.
const DOMINO_METRICS: [&str; METRICS - 3] =
    ["final_loss", "base_loss", "base_accuracy", "accept_len", "base_accept_len", "lambda_base"];

/// One compared quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// As the golden file names it.
    pub name: String,
    /// Number of elements.
    pub elements: usize,
    /// `||found - expected|| / ||expected||`; the plain norm of the difference where the expectation is zero. Not finite when
    /// anything found was not.
    pub relative_error: f64,
}

/// What [`verify`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// Largest relative error that counts as a match.
    pub tolerance: f64,
    /// In the file's order: outputs, metrics, gradients.
    pub comparisons: Vec<Comparison>,
}

impl Report {
    /// True when every quantity is within the tolerance (a NaN is not).
    #[must_use]
    pub fn is_match(&self) -> bool {
        !self.comparisons.is_empty() && self.comparisons.iter().all(|c| c.relative_error <= self.tolerance)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.comparisons.iter().map(|c| c.name.len()).max().unwrap_or(0);
        writeln!(f, "{:width$}  {:>9}  {:>14}", "quantity", "elements", "relative error")?;
        for c in &self.comparisons {
            let mark = if c.relative_error <= self.tolerance { "" } else { "  beyond tolerance" };
            writeln!(f, "{:width$}  {:>9}  {:>14.2e}{mark}", c.name, c.elements, c.relative_error)?;
        }
        let within = self.comparisons.iter().filter(|c| c.relative_error <= self.tolerance).count();
        let total = self.comparisons.len();
        write!(f, "{}: ", self.device)?;
        if self.is_match() {
            writeln!(f, "all {total} quantities within {:.1e}", self.tolerance)
        } else {
            writeln!(f, "{} of {total} quantities beyond {:.1e}", total - within, self.tolerance)
        }
    }
}

/// Why a golden file could not be checked.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerifyError {
    /// The file could not be read.
    Io(std::io::Error),
    /// The file is not a golden file of this trainer, with what is wrong.
    File(String),
    /// The device failed.
    Device(device::Error),
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "could not read the golden file: {e}"),
            Self::File(reason) => write!(f, "not a golden file of this trainer: {reason}"),
            Self::Device(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for VerifyError {}

impl From<device::Error> for VerifyError {
    fn from(error: device::Error) -> Self {
        Self::Device(error)
    }
}

/// Opens device 0 and checks the golden file at `path`.
///
/// # Errors
/// No device, an unreadable or foreign file. A mismatch is not an error: ask [`Report::is_match`].
pub fn verify(path: &Path, precision: Precision, tolerance: f64) -> Result<Report, VerifyError> {
    // The file first: a wrong path should be reported as such on a machine without a device too.
    let bytes = std::fs::read(path).map_err(VerifyError::Io)?;
    Golden::parse(&bytes)?;
    verify_on(&Device::open(0)?, &bytes, precision, tolerance)
}

/// Checks a golden file's contents on `device`.
///
/// # Errors
/// A foreign file, or the device's.
pub fn verify_on(
    device: &Arc<Device>,
    bytes: &[u8],
    precision: Precision,
    tolerance: f64,
) -> Result<Report, VerifyError> {
    let golden = Golden::parse(bytes)?;
    let config = golden.config.clone();
    let vocabulary = config.vocab_size;
    let stream = Stream::new(device)?;
    let frozen = Frozen {
        embed_tokens: Buffer::from_slice(device, &golden.floats("frozen.embed_tokens")?)?,
        lm_head: Buffer::from_slice(device, &golden.floats("frozen.lm_head")?)?,
    };
    let mut model = Model::new(device, config, golden.batch, golden.seq_len, frozen, precision, 0)?;
    let names: Vec<String> = model.params().table.iter().map(|p| p.name.clone()).collect();
    for name in &names {
        model.set_weight(name, &golden.floats(&format!("w.{name}"))?)?;
    }

    let ids = golden.integers("in.input_ids")?;
    if let Some(bad) =
        ids.iter().find(|id| usize::try_from(**id).is_ok_and(|id| id >= vocabulary) || **id < 0)
    {
        return Err(VerifyError::File(format!("token {bad} is outside the vocabulary of {vocabulary}")));
    }
    let batch = Batch::zeros(device, model.config(), golden.batch, golden.seq_len)?;
    fill(&stream, &batch.input_ids, &ids, "in.input_ids")?;
    fill(&stream, &batch.hidden_states, &golden.floats("in.hidden_states")?, "in.hidden_states")?;
    fill(&stream, &batch.loss_mask, &golden.floats("in.loss_mask")?, "in.loss_mask")?;
    let keep: Vec<bool> = golden.integers("in.block_keep_mask")?.iter().map(|k| *k != 0).collect();
    model.set_anchors(&stream, &golden.integers("in.anchor_positions")?, &keep)?;

    if let (Some(lambda), Some(value)) = (model.lambda_base(), golden.lambda_base) {
        stream.upload_blocking(lambda, &[value])?;
    }
    model.zero_gradients(&stream)?;
    model.forward(&stream, &batch, Scalar::Literal)?;
    model.backward(&stream, &batch, 1.0)?;
    let mut metrics = [0.0; METRICS];
    stream.download_blocking(&mut metrics, model.metrics())?;
    let grads = model.params().grads.to_vec()?;

    let mut comparisons = Vec::new();
    for name in golden.expectations() {
        let found: &[f32] = match name.split_once('.') {
            Some(("out", "loss")) => &metrics[0..1],
            Some(("out", "accuracy")) => &metrics[1..2],
            Some(("metric", "accuracy_denom")) => &metrics[2..3],
            Some(("metric", metric)) => match DOMINO_METRICS.iter().position(|m| *m == metric) {
                Some(i) if model.config().domino.is_some() => &metrics[3 + i..4 + i],
                _ => return Err(VerifyError::File(format!("{name}: the objective has no such metric"))),
            },
            Some(("g", tensor)) => match model.params().find(tensor) {
                Some(param) => param.of(&grads),
                None => return Err(VerifyError::File(format!("{name}: the model has no such tensor"))),
            },
            _ => return Err(VerifyError::File(format!("{name}: the trainer computes no such quantity"))),
        };
        comparisons.push(compare(&name, found, &golden.doubles(&name)?)?);
    }
    Ok(Report { device: device.name().to_owned(), tolerance, comparisons })
}

fn fill<T: device::Pod>(
    stream: &Stream,
    buffer: &Buffer<T>,
    values: &[T],
    name: &str,
) -> Result<(), VerifyError> {
    if buffer.len() != values.len() {
        return Err(VerifyError::File(format!(
            "{name} has {} elements, the configuration needs {}",
            values.len(),
            buffer.len()
        )));
    }
    Ok(stream.upload_blocking(buffer.view(), values)?)
}

fn compare(name: &str, found: &[f32], expected: &[f64]) -> Result<Comparison, VerifyError> {
    if found.len() != expected.len() {
        return Err(VerifyError::File(format!(
            "{name} has {} elements, the trainer computes {}",
            expected.len(),
            found.len()
        )));
    }
    Ok(Comparison {
        name: name.to_owned(),
        elements: found.len(),
        relative_error: relative_error(found.iter().map(|f| f64::from(*f)), expected.iter().copied()),
    })
}

/// `||a - b|| / ||b||`, or `||a||` where b is zero.
pub(crate) fn relative_error(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (a, b) in a.zip(b) {
        difference += (a - b) * (a - b);
        norm += b * b;
    }
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}

struct Golden<'a> {
    tensors: SafeTensors<'a>,
    config: Config,
    batch: usize,
    seq_len: usize,
    /// Domino's weight of the base loss.
    lambda_base: Option<f32>,
}

#[derive(serde::Deserialize)]
struct Header {
    algorithm: String,
    batch: usize,
    seq_len: usize,
    lambda_base: Option<f32>,
    #[serde(flatten)]
    config: Config,
}

impl<'a> Golden<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, VerifyError> {
        let file = |reason: String| VerifyError::File(reason);
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| file(e.to_string()))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| file(e.to_string()))?;
        let text = metadata
            .metadata()
            .as_ref()
            .and_then(|m| m.get("config"))
            .ok_or_else(|| file("no `config` in the safetensors metadata".to_owned()))?;
        let metadata = |e: serde_json::Error| file(format!("`config` metadata: {e}"));
        let mut header: Header = serde_json::from_str(text).map_err(metadata)?;
        match header.algorithm.as_str() {
            "dflash" => {}
            "domino" => {
                // The head's sizes stand beside the model's.
                header.config.domino = Some(serde_json::from_str::<DominoHead>(text).map_err(metadata)?);
                if header.lambda_base.is_none() {
                    return Err(file("`config` metadata: a domino file without `lambda_base`".to_owned()));
                }
            }
            other => {
                return Err(file(format!(
                    "algorithm {other:?}; this trainer computes \"dflash\" and \"domino\""
                )));
            }
        }
        header.config.validate().map_err(|e| file(e.to_string()))?;
        Ok(Self {
            tensors,
            config: header.config,
            batch: header.batch,
            seq_len: header.seq_len,
            lambda_base: header.lambda_base,
        })
    }

    /// Names of everything to be matched, in a stable order.
    fn expectations(&self) -> Vec<String> {
        let rank = |name: &str| ["out.", "metric.", "g."].iter().position(|p| name.starts_with(p));
        let mut names: Vec<String> =
            self.tensors.names().into_iter().filter(|n| rank(n).is_some()).map(ToString::to_string).collect();
        names.sort_by(|a, b| (rank(a), a).cmp(&(rank(b), b)));
        names
    }

    fn tensor(&self, name: &str) -> Result<safetensors::tensor::TensorView<'a>, VerifyError> {
        self.tensors.tensor(name).map_err(|e| VerifyError::File(format!("{name}: {e}")))
    }

    #[allow(clippy::cast_possible_truncation)] // stored as 32-bit floats by the maker of the file
    fn floats(&self, name: &str) -> Result<Vec<f32>, VerifyError> {
        Ok(self.doubles(name)?.into_iter().map(|v| v as f32).collect())
    }

    fn doubles(&self, name: &str) -> Result<Vec<f64>, VerifyError> {
        let tensor = self.tensor(name)?;
        let data = tensor.data();
        match tensor.dtype() {
            Dtype::F32 => Ok(chunks(data).map(|b| f64::from(f32::from_le_bytes(b))).collect()),
            Dtype::F64 => Ok(chunks(data).map(f64::from_le_bytes).collect()),
            other => Err(VerifyError::File(format!("{name} is {other:?}, expected F32 or F64"))),
        }
    }

    fn integers(&self, name: &str) -> Result<Vec<i32>, VerifyError> {
        let tensor = self.tensor(name)?;
        let data = tensor.data();
        let wide: Vec<i64> = match tensor.dtype() {
            Dtype::I64 => chunks(data).map(i64::from_le_bytes).collect(),
            Dtype::I32 => chunks(data).map(|b| i64::from(i32::from_le_bytes(b))).collect(),
            Dtype::U8 | Dtype::BOOL => data.iter().map(|b| i64::from(*b)).collect(),
            other => return Err(VerifyError::File(format!("{name} is {other:?}, expected integers"))),
        };
        wide.into_iter()
            .map(|v| i32::try_from(v).map_err(|_| VerifyError::File(format!("{name} holds {v}"))))
            .collect()
    }
}

fn chunks<const N: usize>(data: &[u8]) -> impl Iterator<Item = [u8; N]> {
    data.as_chunks::<N>().0.iter().copied()
}
