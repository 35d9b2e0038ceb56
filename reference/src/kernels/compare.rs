//! Does each kernel compute on a device what its host implementation computes?
//!
//! In: a device. Out: per kernel and case the largest relative error of its outputs against the host implementation, from the
//! same random inputs. Never: a kernel left out; sizes and contents go by parameter name, and a name without a value is an error.

use std::fmt;
use std::sync::Arc;

use super::anchors::random_key;
use super::gemm::to_bf16;
use super::{Access, Kernel, Param, Plain};
use crate::device::{Buffer, Device, Error, Result, Stream};
use crate::verify::relative_error;

/// Largest relative error between a GPU and the host: different `exp`, different order of sums, fused multiply-add.
pub const DEFAULT_TOLERANCE: f64 = 1e-5;

/// One kernel with complete inputs.
#[derive(Debug, Clone)]
pub struct Case {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// What is special about the case; empty for a kernel with one case.
    pub label: &'static str,
    /// Raw values of the plain parameters, in order.
    pub values: Vec<u64>,
    /// Contents of each pointer parameter, in order; none where the pointer is null.
    pub contents: Vec<Option<Vec<u32>>>,
}

/// The outcome of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Kernel and case.
    pub name: String,
    /// Elements of all outputs.
    pub elements: usize,
    /// Largest relative error `||a - b|| / ||b||` of an output; infinite when integers differ or something is not a number.
    pub relative_error: f64,
}

/// The outcome of all cases on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// The device ran the host implementations themselves, so equality proves nothing about CUDA C.
    pub emulated: bool,
    /// Largest relative error that counts as equal.
    pub tolerance: f64,
    /// One per case.
    pub differences: Vec<Difference>,
}

impl Report {
    /// True when every case is within the tolerance (a NaN is not).
    #[must_use]
    pub fn is_match(&self) -> bool {
        !self.differences.is_empty() && self.differences.iter().all(|d| d.relative_error <= self.tolerance)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.differences.iter().map(|d| d.name.len()).max().unwrap_or(0);
        writeln!(f, "{:width$}  {:>9}  {:>18}", "kernel", "elements", "max relative error")?;
        for d in &self.differences {
            let mark = if d.relative_error <= self.tolerance { "" } else { "  beyond tolerance" };
            writeln!(f, "{:width$}  {:>9}  {:>18.2e}{mark}", d.name, d.elements, d.relative_error)?;
        }
        let within = self.differences.iter().filter(|d| d.relative_error <= self.tolerance).count();
        let (total, tolerance) = (self.differences.len(), self.tolerance);
        writeln!(
            f,
            "{}: {within} of {total} cases within {tolerance:.1e} of the host implementations",
            self.device
        )?;
        if self.emulated {
            writeln!(
                f,
                "no GPU here: this device runs the host implementations, so the table says nothing about the CUDA C"
            )?;
        }
        Ok(())
    }
}

/// Runs every case on `device` and on the host, and compares.
///
/// # Errors
/// The device's.
pub fn compare(device: &Arc<Device>, tolerance: f64) -> Result<Report> {
    let mut differences = Vec::new();
    for case in cases()? {
        let (found, expected) = (case.run(device)?, case.run(&Device::in_process())?);
        differences.push(case.difference(&found, &expected));
    }
    Ok(Report { device: device.name().to_owned(), emulated: device.is_emulated(), tolerance, differences })
}

impl Case {
    /// Kernel and label.
    #[must_use]
    pub fn name(&self) -> String {
        if self.label.is_empty() {
            self.kernel.name.to_owned()
        } else {
            format!("{} ({})", self.kernel.name, self.label)
        }
    }

    /// Launches on `device` and reads every pointer parameter back, outputs and (unchanged) inputs.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self, device: &Arc<Device>) -> Result<Vec<Option<Vec<u32>>>> {
        let stream = Stream::new(device)?;
        let mut buffers = Vec::new();
        for contents in &self.contents {
            buffers.push(contents.as_ref().map(|c| Buffer::from_slice(device, c)).transpose()?);
        }
        let addresses =
            buffers.iter().map(|b: &Option<Buffer<u32>>| b.as_ref().map_or(0, |b| b.view().address()));
        let mut arguments: Vec<u64> = addresses.chain(self.values.iter().copied()).collect();
        let geometry = (self.kernel.geometry)(&self.values);
        stream.launch(self.kernel, geometry.grid, geometry.block, geometry.shared_bytes, &mut arguments)?;
        stream.synchronize()?;
        buffers.iter().map(|b| b.as_ref().map(Buffer::to_vec).transpose()).collect()
    }

    /// Compares what the outputs hold.
    #[must_use]
    pub fn difference(&self, found: &[Option<Vec<u32>>], expected: &[Option<Vec<u32>>]) -> Difference {
        let (mut elements, mut relative) = (0, 0.0_f64);
        for ((param, found), expected) in self.kernel.params.iter().zip(found).zip(expected) {
            let (Access::Write, Some(found), Some(expected)) = (param.access, found, expected) else {
                continue;
            };
            elements += expected.len();
            let error = if param.element == "f32" {
                let doubles =
                    |bits: &[u32]| bits.iter().map(|b| f64::from(f32::from_bits(*b))).collect::<Vec<_>>();
                relative_error(doubles(found).into_iter(), doubles(expected).into_iter())
            } else if found == expected {
                0.0
            } else {
                f64::INFINITY
            };
            // A NaN is worse than anything; `max` would lose it.
            if error.is_nan() || error > relative {
                relative = if error.is_nan() { f64::INFINITY } else { error };
            }
        }
        Difference { name: self.name(), elements, relative_error: relative }
    }
}

/// At least one case for every kernel of the registry; several where a parameter selects a path.
///
/// # Errors
/// A parameter whose name has no value here.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for kernel in super::all() {
        let variants: &[(&'static str, &[(&str, usize)])] = match kernel.name {
            "gemm" | "gemm_bf16" => &[
                ("A B", &[("am", 70), ("ak", 1), ("bk", 45), ("bn", 1), ("accumulate", 0)]),
                ("A B^T", &[("am", 70), ("ak", 1), ("bk", 1), ("bn", 70), ("accumulate", 0)]),
                ("+= A^T B", &[("am", 1), ("ak", 37), ("bk", 45), ("bn", 1), ("accumulate", 1)]),
            ],
            "rms_norm_backward" => &[("set", &[("accumulate", 0)]), ("add", &[("accumulate", 1)])],
            "anchor_draw" => &[
                ("device width, literals", &[("host_width", 0), ("pointers", 0)]),
                ("host width, device scalars", &[("host_width", 3), ("pointers", 1)]),
            ],
            "noise_embed" => &[("literal", &[("pointers", 0)]), ("device scalar", &[("pointers", 1)])],
            "rotary" => &[("context", &[("pointers", 0)]), ("draft", &[("pointers", 1)])],
            "loss_weights" => {
                &[("decay", &[("gamma", 7)]), ("no decay", &[("gamma", 0)]), ("shifted", &[("shift", 1)])]
            }
            "attention"
            | "attention_backward_query"
            | "attention_backward_draft"
            | "attention_backward_context" => &[("full", &[("window", 0)]), ("window", &[("window", 4)])],
            "loss_shares" | "loss_finish" => {
                &[("one loss", &[("pointers", 0)]), ("base and final", &[("pointers", 1)])]
            }
            "cross_entropy_gradient" => &[("alone", &[("pointers", 0)]), ("sum", &[("pointers", 1)])],
            "dpace_shares" => &[
                ("whole", &[("kind", 0)]),
                ("cumulative confidence only", &[("kind", 1)]),
                ("continuation value only", &[("kind", 2)]),
            ],
            "step_scalars" => &[("warm-up", &[("warmup_steps", 100)]), ("cosine", &[("warmup_steps", 2)])],
            _ => &[("", &[])],
        };
        for (label, fixed) in variants {
            cases.push(case(kernel, label, fixed)?);
        }
    }
    Ok(cases)
}

/// Sizes are odd on purpose: no tile, warp or chunk divides them.
const SEQUENCES: usize = 2;
const SEQ_LEN: usize = 23;
const BLOCKS: usize = 5;
const SLOTS: usize = 3;
const HEADS: usize = 4;
const VOCABULARY: usize = 301;

fn case(kernel: &'static Kernel, label: &'static str, fixed: &[(&str, usize)]) -> Result<Case> {
    let fixed = |name: &str| fixed.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
    let mut values = Vec::new();
    for param in kernel.params.iter().filter(|p| p.access == Access::Value) {
        values.push(value(kernel, param, fixed(param.name))?);
    }
    let lengths = (kernel.geometry)(&values).lengths;
    let pointers = kernel.params.iter().filter(|p| p.access != Access::Value);
    let contents = pointers.zip(lengths).enumerate().map(|(salt, (param, n))| {
        let null = param.access == Access::ReadOrNull && fixed("pointers") != Some(1);
        (!null).then(|| contents(param, salt, n))
    });
    Ok(Case { kernel, label, contents: contents.collect(), values })
}

fn value(kernel: &Kernel, param: &Param, fixed: Option<usize>) -> Result<u64> {
    let size = |n: usize| n.encode(param.name);
    if let Some(n) = fixed {
        return if param.element == "f32" { (n as f32).encode(param.name) } else { size(n) };
    }
    match (kernel.name, param.name) {
        ("gemm" | "gemm_bf16", "m") => size(37),
        ("gemm" | "gemm_bf16", "n") => size(45),
        ("gemm" | "gemm_bf16", "k") => size(70),
        ("rotary", "rows") => size(SEQUENCES * BLOCKS * SLOTS),
        ("square_sums", "n") => size(1003),
        ("square_sums", "chunk") => size(300),
        ("rms_norm_weight_partial", "chunk") => size(4),
        (_, "sequences") => size(SEQUENCES),
        (_, "seq_len" | "period") => size(SEQ_LEN),
        (_, "candidates") => size(SEQ_LEN - SLOTS + 1),
        (_, "blocks" | "most") => size(BLOCKS),
        (_, "slots") => size(SLOTS),
        (_, "heads") => size(HEADS),
        (_, "kv_heads") => size(2),
        // More than one warp's worth of lanes, and not a multiple.
        (_, "head_dim") => size(40),
        (_, "hidden" | "width") => size(70),
        (_, "vocabulary") => size(VOCABULARY),
        (_, "rows") => size(21),
        (_, "rows_each") => size(10),
        (_, "state" | "right") => size(21),
        (_, "left") => size(40),
        (_, "first" | "suffix") => size(1),
        (_, "decay_steps") => size(30),
        (_, "n") => size(1003),
        (_, "chunks") => size(300),
        (_, "mask_token") => size(VOCABULARY - 1),
        (_, "position_sentinel") => size(SEQ_LEN + 1),
        (_, "key_sentinel") => 2.0_f32.encode(param.name),
        (_, "pad_position" | "shift") => size(0),
        (_, "seed") => Ok(0x0123_4567_89ab_cdef),
        (_, "warmup_steps") => size(2),
        (_, "total_steps") => size(100),
        (_, "eps") => 1e-6_f32.encode(param.name),
        (_, "start" | "alpha") => 0.7_f32.encode(param.name),
        (_, "denominator") => 2.0_f32.encode(param.name),
        (_, "scale" | "factor") => 0.3_f32.encode(param.name),
        (_, "theta") => 10_000.0_f32.encode(param.name),
        (_, "direction") => (-1.0_f32).encode(param.name),
        (_, "gamma") => 7.0_f32.encode(param.name),
        (_, "max_norm" | "peak") => 0.5_f32.encode(param.name),
        (_, "beta1") => 0.9_f32.encode(param.name),
        (_, "beta2") => 0.999_f32.encode(param.name),
        (_, "weight_decay") => 0.1_f32.encode(param.name),
        (kernel, name) => Err(Error::misuse(format!("no value to compare kernel {kernel} with for {name}"))),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // random numbers in small positive ranges
fn contents(param: &Param, salt: usize, n: usize) -> Vec<u32> {
    let random = |i: usize| random_key(77, 0, salt, i);
    let below = |limit: usize| move |i: usize| (random(i) * limit as f32) as u32;
    let words = |f: &dyn Fn(usize) -> u32| (0..n).map(f).collect::<Vec<u32>>();
    let floats = |f: &dyn Fn(usize) -> f32| (0..n).map(|i| f(i).to_bits()).collect::<Vec<u32>>();
    match (param.element, param.name) {
        // Two to a word; that they fill only half of the memory does not matter.
        ("u16", _) => words(&|i| {
            let half = |i| u32::from(to_bf16(2.0 * random(i) - 1.0));
            half(2 * i) | half(2 * i + 1) << 16
        }),
        ("i32", "input_ids" | "labels" | "noise_ids" | "mask_token_at") => words(&below(VOCABULARY)),
        ("i32", "anchors") => words(&below(SEQ_LEN)),
        ("i32", "keep") => words(&|i| u32::from(random(i) < 0.7)),
        ("i32", "counts") => words(&|_| 4),
        ("i32", "width") => words(&|_| 2),
        ("i32" | "u32", _) => words(&below(20)),
        ("f32", "key_sentinel_at") => floats(&|_| 2.0),
        // Masks: 0 or 1.
        ("f32", "loss_mask" | "mask" | "correct" | "base_correct") => {
            floats(&|i| if random(i) < 0.6 { 1.0 } else { 0.0 })
        }
        // Quantities that can't be negative.
        ("f32", "lambda") => floats(&|_| 0.35),
        ("f32", "losses" | "base_losses") => floats(&|i| 3.0 * random(i)),
        ("f32", "weights" | "share") => floats(&|i| (random(i) - 0.3).max(0.0)),
        ("f32", "second" | "sums" | "rstd" | "scalars" | "totals" | "partial") => {
            floats(&|i| 0.1 + random(i))
        }
        // Of the order of a log of a sum of exponentials, so that probabilities are of order 1.
        ("f32", "lse") => floats(&|i| 2.0 + random(i)),
        _ => floats(&|i| 2.0 * random(i) - 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_the_registry_has_a_case_and_they_agree_with_themselves() {
        let device = Device::in_process();
        let report = compare(&device, 0.0).unwrap();
        assert!(report.is_match(), "{report}");
        for kernel in super::super::all() {
            assert!(report.differences.iter().any(|d| d.name.starts_with(kernel.name)), "{}", kernel.name);
        }
        assert!(report.to_string().contains("says nothing about the CUDA C"));
    }

    /// An output that no element of which moves would hide a kernel that does nothing.
    #[test]
    fn every_case_changes_every_output() {
        for case in cases().unwrap() {
            let after = case.run(&Device::in_process()).unwrap();
            for ((param, before), after) in case.kernel.params.iter().zip(&case.contents).zip(&after) {
                match param.access {
                    Access::Write => assert_ne!(before, after, "{} of {}", param.name, case.name()),
                    _ => assert_eq!(before, after, "{} of {}", param.name, case.name()),
                }
            }
        }
    }

    #[test]
    fn a_wrong_number_a_wrong_integer_and_a_nan_are_beyond_tolerance() {
        let case = cases().unwrap().into_iter().find(|c| c.kernel.name == "noise_embed").unwrap();
        let good = case.run(&Device::in_process()).unwrap();
        assert_eq!(case.difference(&good, &good).relative_error, 0.0);
        for (param, bits) in [("x", 0.25_f32.to_bits()), ("x", f32::NAN.to_bits()), ("noise_ids", 299)] {
            let mut bad = good.clone();
            let at = case.kernel.params.iter().position(|p| p.name == param).unwrap();
            bad[at].as_mut().unwrap()[3] = bits;
            let difference = case.difference(&bad, &good);
            assert!(difference.relative_error > DEFAULT_TOLERANCE, "{param}: {difference:?}");
        }
    }
}
