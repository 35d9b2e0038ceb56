//! The frozen target: a causal transformer of the Qwen3 family, evaluated on the host.
//!
//! In: token ids [S]. Out: hidden states of the tapped layers, [S, T*H]; and, for the draft model, the embedding table and
//! the LM head, both [V, H]. Must never call CUDA, and gives the same bits for the same input on one machine.
//!
//! Weights come from a seed (a stand-in that needs no download: its hidden states are a fixed random function of the text
//! so far, which is enough to train and to measure on) or from safetensors files with the usual names.

use super::tensor_file::TensorFile;
use crate::data::random::SplitMix;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::path::Path;

/// The shape of a target model.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetShape {
    /// V
    pub vocabulary: usize,
    /// H
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Size of a head.
    pub head_dim: usize,
    /// Inner size of the MLP.
    pub mlp: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f32,
    /// Added to the mean square in RMSNorm.
    pub norm_epsilon: f32,
}

/// A frozen target model.
pub struct Target {
    shape: TargetShape,
    taps: Vec<usize>,
    embedding: Vec<f32>,
    head: Option<Vec<f32>>,
    layers: Vec<Layer>,
}

/// Weights of one layer; matrices are [out, in].
struct Layer {
    attention_norm: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    query_norm: Vec<f32>,
    key_norm: Vec<f32>,
    output: Vec<f32>,
    mlp_norm: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
}

/// Which layers the published recipe taps: the second, the third from the end, and the rest evenly between. A target with too
/// few layers for that is tapped evenly from its first to its last.
pub fn taps(layers: usize, count: usize) -> Vec<usize> {
    let (first, last) = if layers >= count + 3 { (1, layers - 3) } else { (0, layers - 1) };
    match count {
        1 => vec![layers / 2],
        _ => (0..count)
            .map(|i| (first as f64 + i as f64 * (last - first) as f64 / (count - 1) as f64).round() as usize)
            .collect(),
    }
}

impl Target {
    /// A target with weights drawn from `seed`.
    pub fn seeded(shape: TargetShape, taps: Vec<usize>, seed: u64) -> Self {
        let mut draws = 0;
        let mut matrix = |rows: usize, columns: usize| {
            draws += 1;
            let mut random = SplitMix::of(&[seed, draws]);
            let scale = 1.0 / (columns as f32).sqrt();
            (0..rows * columns).map(|_| random.normal() * scale).collect::<Vec<f32>>()
        };
        let (h, q, kv) = (shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        // Embeddings of unit size per element: what the first norm would make of any other size.
        let embedding: Vec<f32> =
            matrix(shape.vocabulary, h).into_iter().map(|value| value * (h as f32).sqrt()).collect();
        // Twice as large as a fresh head: the draft's hidden states are normalised, and with a small head no direction of
        // theirs could be sure of a token.
        let head = Some(matrix(shape.vocabulary, h).into_iter().map(|value| value * 2.0).collect());
        let layers = (0..shape.layers)
            .map(|_| Layer {
                attention_norm: vec![1.0; h],
                query: matrix(q, h),
                key: matrix(kv, h),
                value: matrix(kv, h),
                query_norm: vec![1.0; shape.head_dim],
                key_norm: vec![1.0; shape.head_dim],
                output: matrix(h, q),
                mlp_norm: vec![1.0; h],
                gate: matrix(shape.mlp, h),
                up: matrix(shape.mlp, h),
                down: matrix(h, shape.mlp),
            })
            .collect();
        Target { shape, taps, embedding, head, layers }
    }

    /// A target from a `.safetensors` file, or a directory of them, with its `config.json` beside them. Taps `taps` layers.
    pub fn open(path: &Path, taps_count: usize) -> Result<Self> {
        let shape = read_config(path)?;
        let files = TensorFile::open_all(path)?;
        let tensor = |name: &str, dimensions: &[usize]| match files.iter().find(|file| file.contains(name)) {
            Some(file) => file.f32(name, dimensions),
            // The first file's own message lists what it holds instead.
            None => files[0].f32(name, dimensions),
        };
        let (h, q, kv) = (shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let embedding = tensor("model.embed_tokens.weight", &[shape.vocabulary, h])?;
        let tied = !files.iter().any(|file| file.contains("lm_head.weight"));
        let head = if tied { None } else { Some(tensor("lm_head.weight", &[shape.vocabulary, h])?) };
        let layers = (0..shape.layers)
            .map(|index| {
                let get = |name: &str, dimensions: &[usize]| {
                    tensor(&format!("model.layers.{index}.{name}.weight"), dimensions)
                };
                Ok(Layer {
                    attention_norm: get("input_layernorm", &[h])?,
                    query: get("self_attn.q_proj", &[q, h])?,
                    key: get("self_attn.k_proj", &[kv, h])?,
                    value: get("self_attn.v_proj", &[kv, h])?,
                    query_norm: get("self_attn.q_norm", &[shape.head_dim])?,
                    key_norm: get("self_attn.k_norm", &[shape.head_dim])?,
                    output: get("self_attn.o_proj", &[h, q])?,
                    mlp_norm: get("post_attention_layernorm", &[h])?,
                    gate: get("mlp.gate_proj", &[shape.mlp, h])?,
                    up: get("mlp.up_proj", &[shape.mlp, h])?,
                    down: get("mlp.down_proj", &[h, shape.mlp])?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let taps = taps(shape.layers, taps_count);
        Ok(Target { shape, taps, embedding, head, layers })
    }

    /// Its shape.
    pub fn shape(&self) -> &TargetShape {
        &self.shape
    }

    /// The embedding table, [V, H].
    pub fn embedding(&self) -> &[f32] {
        &self.embedding
    }

    /// The LM head, [V, H]; the embedding table where the two are tied.
    pub fn head(&self) -> &[f32] {
        self.head.as_deref().unwrap_or(&self.embedding)
    }

    /// Hidden states of the tapped layers for one sequence: [S, T*H].
    pub fn hidden_states(&self, input_ids: &[i32]) -> Result<Vec<f32>> {
        let (s, h) = (input_ids.len(), self.shape.hidden);
        let mut x = Vec::with_capacity(s * h);
        for &id in input_ids {
            let row = usize::try_from(id).ok().filter(|&id| id < self.shape.vocabulary).ok_or_else(|| {
                Error::new(format!(
                    "token {id} is outside the target's vocabulary of {}; use the tokenizer that belongs to the target",
                    self.shape.vocabulary
                ))
            })?;
            x.extend_from_slice(&self.embedding[row * h..(row + 1) * h]);
        }
        let width = self.taps.len() * h;
        let mut tapped = vec![0.0; s * width];
        let last = self.taps.iter().max().copied().unwrap_or(0);
        for (index, layer) in self.layers.iter().enumerate().take(last + 1) {
            self.attention(layer, &mut x);
            self.mlp(layer, &mut x);
            for (slot, _) in self.taps.iter().enumerate().filter(|&(_, &tap)| tap == index) {
                for (row, from) in x.chunks_exact(h).enumerate() {
                    let start = row * width + slot * h;
                    tapped[start..start + h].copy_from_slice(from);
                }
            }
        }
        Ok(tapped)
    }

    fn attention(&self, layer: &Layer, x: &mut [f32]) {
        let TargetShape { hidden: h, heads, kv_heads, head_dim, .. } = self.shape;
        let s = x.len() / h;
        let normed = self.rms_norm(x, &layer.attention_norm);
        let mut query = linear(&normed, &layer.query, s, h, heads * head_dim);
        let mut key = linear(&normed, &layer.key, s, h, kv_heads * head_dim);
        let value = linear(&normed, &layer.value, s, h, kv_heads * head_dim);
        self.norm_and_rotate(&mut query, &layer.query_norm, heads);
        self.norm_and_rotate(&mut key, &layer.key_norm, kv_heads);

        let scale = 1.0 / (head_dim as f32).sqrt();
        let mut mixed = vec![0.0; s * heads * head_dim];
        let mut scores = vec![0.0; s * s];
        for head in 0..heads {
            let kv = head / (heads / kv_heads);
            let q = Matrix { data: &query[head * head_dim..], row: heads * head_dim, column: 1 };
            let k = Matrix { data: &key[kv * head_dim..], row: 1, column: kv_heads * head_dim };
            multiply(q, k, &mut scores, s, s, head_dim, s);
            for (position, row) in scores.chunks_exact_mut(s).enumerate() {
                softmax(&mut row[..=position], scale);
                row[position + 1..].fill(0.0);
            }
            let p = Matrix { data: &scores, row: s, column: 1 };
            let v = Matrix { data: &value[kv * head_dim..], row: kv_heads * head_dim, column: 1 };
            multiply(p, v, &mut mixed[head * head_dim..], s, head_dim, s, heads * head_dim);
        }
        add(x, &linear(&mixed, &layer.output, s, heads * head_dim, h));
    }

    fn mlp(&self, layer: &Layer, x: &mut [f32]) {
        let TargetShape { hidden: h, mlp, .. } = self.shape;
        let s = x.len() / h;
        let normed = self.rms_norm(x, &layer.mlp_norm);
        let mut gate = linear(&normed, &layer.gate, s, h, mlp);
        let up = linear(&normed, &layer.up, s, h, mlp);
        for (gate, up) in gate.iter_mut().zip(&up) {
            *gate = *gate / (1.0 + (-*gate).exp()) * up;
        }
        add(x, &linear(&gate, &layer.down, s, mlp, h));
    }

    fn rms_norm(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mut out = x.to_vec();
        for row in out.chunks_exact_mut(weight.len()) {
            normalise(row, weight, self.shape.norm_epsilon);
        }
        out
    }

    /// RMSNorm per head, then the rotary embedding (half-rotation) at positions 0..S. `x` is [S, heads, head_dim].
    fn norm_and_rotate(&self, x: &mut [f32], weight: &[f32], heads: usize) {
        let TargetShape { head_dim, rope_theta, norm_epsilon, .. } = self.shape;
        let half = head_dim / 2;
        for (position, row) in x.chunks_exact_mut(heads * head_dim).enumerate() {
            for head in row.chunks_exact_mut(head_dim) {
                normalise(head, weight, norm_epsilon);
                for i in 0..half {
                    let angle = position as f32 * rope_theta.powf(-2.0 * i as f32 / head_dim as f32);
                    let (sin, cos) = angle.sin_cos();
                    let (a, b) = (head[i], head[i + half]);
                    head[i] = a * cos - b * sin;
                    head[i + half] = b * cos + a * sin;
                }
            }
        }
    }
}

fn normalise(row: &mut [f32], weight: &[f32], epsilon: f32) {
    let mean_square = row.iter().map(|value| value * value).sum::<f32>() / row.len() as f32;
    let scale = 1.0 / (mean_square + epsilon).sqrt();
    row.iter_mut().zip(weight).for_each(|(value, weight)| *value *= scale * weight);
}

fn softmax(row: &mut [f32], scale: f32) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut().for_each(|value| *value = ((*value - max) * scale).exp());
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|value| *value /= sum);
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// `x` [rows, inputs] times the transpose of `weight` [outputs, inputs].
fn linear(x: &[f32], weight: &[f32], rows: usize, inputs: usize, outputs: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * outputs];
    let x = Matrix { data: x, row: inputs, column: 1 };
    let weight = Matrix { data: weight, row: 1, column: inputs };
    multiply(x, weight, &mut out, rows, outputs, inputs, outputs);
    out
}

/// Values of a matrix and the distances between its rows and between its columns.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

/// `out` [m, n] = `a` [m, k] times `b` [k, n]; the rows of `out` are `out_row` values apart.
#[allow(unsafe_code)]
fn multiply(a: Matrix, b: Matrix, out: &mut [f32], m: usize, n: usize, k: usize, out_row: usize) {
    let last =
        |matrix: Matrix, rows: usize, columns: usize| (rows - 1) * matrix.row + (columns - 1) * matrix.column;
    assert!(m > 0 && n > 0 && k > 0, "empty matrix product");
    assert!(
        last(a, m, k) < a.data.len() && last(b, k, n) < b.data.len() && (m - 1) * out_row + n <= out.len()
    );
    // SAFETY: the assertion above keeps every access of the three matrices inside its slice; `out` is borrowed exclusively.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.data.as_ptr(),
            a.row as isize,
            a.column as isize,
            b.data.as_ptr(),
            b.row as isize,
            b.column as isize,
            0.0,
            out.as_mut_ptr(),
            out_row as isize,
            1,
        );
    }
}

#[derive(Deserialize)]
struct ConfigFile {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    #[serde(default = "default_theta")]
    rope_theta: f32,
    #[serde(default = "default_epsilon")]
    rms_norm_eps: f32,
}

fn default_theta() -> f32 {
    10_000.0
}

fn default_epsilon() -> f32 {
    1e-6
}

fn read_config(path: &Path) -> Result<TargetShape> {
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let config = directory.join("config.json");
    let text = std::fs::read_to_string(&config).map_err(|error| {
        Error::new(format!(
            "cannot read {} ({error}); the target's shape is read from the config.json beside its weights",
            config.display()
        ))
    })?;
    let file: ConfigFile = serde_json::from_str(&text).map_err(|error| {
        Error::new(format!("{} does not describe a target model: {error}", config.display()))
    })?;
    let heads = file.num_attention_heads;
    let shape = TargetShape {
        vocabulary: file.vocab_size,
        hidden: file.hidden_size,
        layers: file.num_hidden_layers,
        heads,
        kv_heads: file.num_key_value_heads.unwrap_or(heads),
        head_dim: file.head_dim.unwrap_or(file.hidden_size / heads.max(1)),
        mlp: file.intermediate_size,
        rope_theta: file.rope_theta,
        norm_epsilon: file.rms_norm_eps,
    };
    let sizes =
        [shape.vocabulary, shape.hidden, shape.layers, heads, shape.kv_heads, shape.head_dim, shape.mlp];
    if sizes.contains(&0) || !heads.is_multiple_of(shape.kv_heads) || !shape.head_dim.is_multiple_of(2) {
        return Err(Error::new(format!(
            "{} describes no usable target: sizes must not be 0, heads a multiple of kv heads, head_dim even",
            config.display()
        )));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> TargetShape {
        TargetShape {
            vocabulary: 16,
            hidden: 8,
            layers: 4,
            heads: 2,
            kv_heads: 1,
            head_dim: 4,
            mlp: 12,
            rope_theta: 10_000.0,
            norm_epsilon: 1e-6,
        }
    }

    #[test]
    fn the_published_recipe_taps_these_layers() {
        assert_eq!(taps(36, 5), [1, 9, 17, 25, 33]);
        assert_eq!(taps(6, 2), [1, 3]);
        assert_eq!(taps(4, 2), [0, 3]);
        assert_eq!(taps(1, 1), [0]);
    }

    #[test]
    fn a_token_changes_only_what_comes_after_it() {
        let target = Target::seeded(shape(), vec![1, 3], 5);
        let a = target.hidden_states(&[1, 2, 3, 4, 5]).unwrap();
        let b = target.hidden_states(&[1, 2, 9, 4, 5]).unwrap();
        let rows = |x: &[f32], range: std::ops::Range<usize>| x[range.start * 16..range.end * 16].to_vec();
        assert_eq!(rows(&a, 0..2), rows(&b, 0..2));
        for row in 2..5 {
            assert_ne!(rows(&a, row..row + 1), rows(&b, row..row + 1));
        }
        assert!(a.iter().all(|value| value.is_finite()));
    }

    #[test]
    fn equal_seeds_give_equal_bits_and_others_do_not() {
        let states = |seed| Target::seeded(shape(), vec![2], seed).hidden_states(&[3, 1, 4]).unwrap();
        assert_eq!(states(1), states(1));
        assert_ne!(states(1), states(2));
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_refused() {
        let target = Target::seeded(shape(), vec![2], 0);
        for id in [16, -1] {
            assert!(
                target
                    .hidden_states(&[id])
                    .unwrap_err()
                    .to_string()
                    .contains("outside the target's vocabulary of 16")
            );
        }
    }
}
