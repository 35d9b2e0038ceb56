//! Claims about the model and the optimiser beyond the golden files, on the in-process device.

use std::sync::Arc;

use dflash_train::device::{Buffer, Device, Stream};
use dflash_train::kernels::anchors::random_key;
use dflash_train::model::{
    AnchorScalars, AnchorWidth, Batch, Config, DPACE_ALPHA, DominoHead, Frozen, LayerType, LossType, Model,
    Precision, Scalar,
};
use dflash_train::optim::{Curriculum, Metrics, Optimizer, OptimizerConfig, Schedule};
use proptest::prelude::*;

const BATCH: usize = 2;
const SEQUENCE: usize = 40;
const SEED: u64 = 0x5eed_0123_4567;

fn config() -> Config {
    Config {
        hidden_size: 32,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_context_features: 2,
        block_size: 4,
        num_anchors: 12,
        vocab_size: 61,
        mask_token_id: 60,
        loss_decay_gamma: Some(7.0),
        rms_norm_eps: 1e-6,
        rope_theta: 10_000.0,
        layer_types: Vec::new(),
        sliding_window: None,
        loss_type: LossType::Dflash,
        dpace_alpha: DPACE_ALPHA,
        domino: None,
    }
}

/// Every objective and kind of layer.
fn configs() -> Vec<Config> {
    let domino = |shift_label, pure_draft_prefix_len| {
        Some(DominoHead { emb_dim: 8, gru_hidden_dim: 12, shift_label, pure_draft_prefix_len })
    };
    vec![
        config(),
        Config { loss_type: LossType::Dpace, ..config() },
        Config { domino: domino(true, 1), ..config() },
        Config {
            domino: domino(false, 0),
            layer_types: vec![LayerType::SlidingAttention, LayerType::FullAttention],
            sliding_window: Some(6),
            ..config()
        },
    ]
}

struct Rig {
    stream: Stream,
    model: Model,
    batch: Batch,
}

/// Numbers in [-1, 1), different for every `salt`.
fn noise(salt: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| random_key(9, 0, salt, i) * 2.0 - 1.0).collect()
}

fn rig(loss_mask: &[f32]) -> Rig {
    rig_of(config(), loss_mask)
}

fn rig_of(config: Config, loss_mask: &[f32]) -> Rig {
    rig_in(Precision::F32, config, loss_mask)
}

fn rig_in(precision: Precision, config: Config, loss_mask: &[f32]) -> Rig {
    let device = Device::in_process();
    let table = config.vocab_size * config.hidden_size;
    let frozen = Frozen {
        embed_tokens: Buffer::from_slice(&device, &noise(1, table)).unwrap(),
        lm_head: Buffer::from_slice(&device, &noise(2, table)).unwrap(),
    };
    let mut model = Model::new(&device, config.clone(), BATCH, SEQUENCE, frozen, precision, SEED).unwrap();
    let names: Vec<(String, usize)> =
        model.params().table.iter().map(|p| (p.name.clone(), p.len())).collect();
    for (salt, (name, len)) in (10..).zip(names) {
        model.set_weight(&name, &noise(salt, len)).unwrap();
    }
    let ids: Vec<i32> = noise(3, BATCH * SEQUENCE).iter().map(|v| ((v + 1.0) * 30.0) as i32).collect();
    let hidden = noise(4, BATCH * SEQUENCE * config.num_context_features * config.hidden_size);
    let batch = Batch {
        input_ids: Buffer::from_slice(&device, &ids).unwrap(),
        hidden_states: Buffer::from_slice(&device, &hidden).unwrap(),
        loss_mask: Buffer::from_slice(&device, loss_mask).unwrap(),
    };
    let stream = Stream::new(&device).unwrap();
    if let Some(lambda) = model.lambda_base() {
        stream.upload_blocking(lambda, &[0.35]).unwrap();
    }
    Rig { stream, model, batch }
}

/// What a step leaves behind: metrics, gradients, and the kept anchors of each sequence.
#[derive(Debug, PartialEq)]
struct Result {
    metrics: Vec<u32>,
    grads: Vec<u32>,
    anchors: Vec<Vec<i32>>,
}

impl Rig {
    fn device(&self) -> Arc<Device> {
        self.stream.device().clone()
    }

    fn read(&self, view: dflash_train::device::View<f32>) -> Vec<f32> {
        let mut values = vec![0.0; view.len()];
        self.stream.download_blocking(&mut values, view).unwrap();
        values
    }

    fn width(&self) -> usize {
        let mut width = [0];
        self.stream.download_blocking(&mut width, self.model.anchor_width()).unwrap();
        usize::try_from(width[0]).unwrap()
    }

    fn anchors(&self) -> Vec<Vec<(i32, bool)>> {
        let (positions, keep) = self.model.anchors();
        let (mut p, mut k) = (vec![0; positions.len()], vec![0; keep.len()]);
        self.stream.download_blocking(&mut p, positions).unwrap();
        self.stream.download_blocking(&mut k, keep).unwrap();
        let both: Vec<(i32, bool)> = p.into_iter().zip(k.into_iter().map(|k| k != 0)).collect();
        both.chunks(both.len() / BATCH).map(<[_]>::to_vec).collect()
    }

    fn step(&mut self, host_width: bool, scalars: AnchorScalars, mask_token: Scalar<i32>) -> Result {
        let (stream, batch) = (&self.stream, &self.batch);
        self.model.zero_gradients(stream).unwrap();
        self.model.count_anchors(stream, batch).unwrap();
        let width = if host_width { AnchorWidth::Host(self.width()) } else { AnchorWidth::OnDevice };
        self.model.draw_anchors(stream, batch, width, scalars).unwrap();
        self.model.forward(stream, batch, mask_token).unwrap();
        self.model.backward(stream, batch, 1.0).unwrap();
        // +0.0 so that the sign of a zero, which adding zeros may change and nothing downstream can see, is not compared.
        let bits = |values: Vec<f32>| values.into_iter().map(|v| (v + 0.0).to_bits()).collect();
        Result {
            metrics: bits(self.read(self.model.metrics())),
            grads: bits(self.model.params().grads.to_vec().unwrap()),
            anchors: self.anchors().iter().map(|s| s.iter().filter(|a| a.1).map(|a| a.0).collect()).collect(),
        }
    }
}

fn mask(supervised: impl Fn(usize, usize) -> bool) -> Vec<f32> {
    (0..BATCH * SEQUENCE).map(|i| f32::from(u8::from(supervised(i / SEQUENCE, i % SEQUENCE)))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The rule, restated: limit = max(1, min(N, largest count - 1)); a sequence keeps min(count, limit) of its supervised
    /// positions up to S - B, sorted, each at most once; everything else is padding at position 0.
    #[test]
    fn drawn_anchors_follow_the_historical_rule(
        bits in prop::collection::vec(prop::bool::weighted(0.3), BATCH * SEQUENCE),
        draws in 1_usize..4,
    ) {
        let mask = mask(|s, j| bits[s * SEQUENCE + j]);
        let c = config();
        let supervised: Vec<Vec<i32>> = (0..BATCH)
            .map(|s| (0..=(SEQUENCE - c.block_size) as i32).filter(|j| bits[s * SEQUENCE + *j as usize]).collect())
            .collect();
        let largest = supervised.iter().map(Vec::len).max().unwrap();
        let limit = largest.saturating_sub(1).min(c.num_anchors).max(1);
        let mut rig = rig(&mask);
        for _ in 0..draws {
            rig.model.count_anchors(&rig.stream, &rig.batch).unwrap();
        }
        prop_assert_eq!(rig.width(), limit);
        rig.model.draw_anchors(&rig.stream, &rig.batch, AnchorWidth::OnDevice, AnchorScalars::LITERAL).unwrap();
        let on_device = rig.anchors();
        for (anchors, supervised) in on_device.iter().zip(&supervised) {
            let kept: Vec<i32> = anchors.iter().filter(|a| a.1).map(|a| a.0).collect();
            prop_assert_eq!(kept.len(), supervised.len().min(limit));
            prop_assert!(kept.is_sorted_by(|a, b| a < b), "{:?}", kept);
            prop_assert!(kept.iter().all(|k| supervised.contains(k)), "{:?} of {:?}", kept, supervised);
            prop_assert!(anchors[kept.len()..].iter().all(|a| *a == (0, false)), "{:?}", anchors);
        }
        rig.model.draw_anchors(&rig.stream, &rig.batch, AnchorWidth::Host(limit), AnchorScalars::LITERAL).unwrap();
        let by_host: Vec<_> = on_device.iter().map(|s| s[..limit].to_vec()).collect();
        prop_assert_eq!(rig.anchors(), by_host);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A step whose host knows the historical width, and one that computes N masked blocks: the same anchors, metrics and
    /// gradients, bit for bit, for every objective.
    #[test]
    fn legacy_and_default_steps_are_the_same_for_random_masks(
        bits in prop::collection::vec(prop::bool::weighted(0.2), BATCH * SEQUENCE),
    ) {
        let mask = mask(|s, j| bits[s * SEQUENCE + j]);
        for config in configs() {
            let default = rig_of(config.clone(), &mask).step(false, AnchorScalars::LITERAL, Scalar::Literal);
            let legacy = rig_of(config.clone(), &mask).step(true, AnchorScalars::LITERAL, Scalar::Literal);
            prop_assert!(default.metrics.iter().chain(&default.grads).all(|b| f32::from_bits(*b).is_finite()));
            prop_assert_eq!(default, legacy, "{:?}", config);
        }
    }
}

#[test]
fn every_draw_is_different_and_every_supervised_position_gets_its_turn() {
    let mut rig = rig(&mask(|_, j| (5..25).contains(&j)));
    let mut seen = [0; SEQUENCE];
    let mut before = None;
    for _ in 0..100 {
        rig.model.count_anchors(&rig.stream, &rig.batch).unwrap();
        rig.model
            .draw_anchors(&rig.stream, &rig.batch, AnchorWidth::OnDevice, AnchorScalars::LITERAL)
            .unwrap();
        let anchors = rig.anchors();
        assert_ne!(anchors[0], anchors[1], "sequences draw apart");
        anchors.iter().flatten().filter(|a| a.1).for_each(|a| seen[a.0 as usize] += 1);
        assert_ne!(before, Some(anchors.clone()));
        before = Some(anchors);
    }
    // 12 of 20 positions, 200 times: 120 each on average, deviation sqrt(200 * 0.6 * 0.4) = 7.
    for (j, n) in seen.iter().enumerate() {
        let expected = if (5..25).contains(&j) { 120 } else { 0 };
        assert!((expected - 35..=expected + 35).contains(n) && (*n > 0) == (expected > 0), "{j}: {n}");
    }
}

#[test]
fn a_width_known_to_the_host_changes_no_bit_of_loss_or_gradients() {
    // 6 and 4 supervised candidates: width 5 of 12; the second sequence has padding in both modes.
    let mask = mask(|s, j| if s == 0 { (5..11).contains(&j) } else { (20..24).contains(&j) });
    for config in configs() {
        let default = rig_of(config.clone(), &mask).step(false, AnchorScalars::LITERAL, Scalar::Literal);
        let legacy = rig_of(config.clone(), &mask).step(true, AnchorScalars::LITERAL, Scalar::Literal);
        assert_eq!(default.anchors.iter().map(Vec::len).collect::<Vec<_>>(), [5, 4]);
        assert!(default.grads.iter().any(|g| *g != 0));
        assert_eq!(default, legacy, "{config:?}");
    }
}

#[test]
fn rounded_operands_change_no_bit_with_the_width_and_do_change_the_gradients() {
    let mask = mask(|s, j| if s == 0 { (5..11).contains(&j) } else { (20..24).contains(&j) });
    for config in configs() {
        let step = |precision, host_width| {
            rig_in(precision, config.clone(), &mask).step(host_width, AnchorScalars::LITERAL, Scalar::Literal)
        };
        let rounded = step(Precision::Bf16, false);
        assert_eq!(rounded, step(Precision::Bf16, true), "{config:?}");
        assert_ne!(rounded.grads, step(Precision::F32, false).grads);
    }
}

#[test]
fn constants_read_from_device_memory_change_no_bit_and_are_really_read() {
    let mask = mask(|_, j| j % 2 == 0);
    let literal = rig(&mask).step(false, AnchorScalars::LITERAL, Scalar::Literal);
    let mut rig = rig(&mask);
    let device = rig.device();
    let ints = |v: i32| Buffer::from_slice(&device, &[v]).unwrap();
    let (sentinel, pad, token) = (ints(rig.model.position_sentinel()), ints(Model::PAD_POSITION), ints(60));
    let key = Buffer::from_slice(&device, &[Model::KEY_SENTINEL]).unwrap();
    let scalars = AnchorScalars {
        position_sentinel: Scalar::Device(sentinel.view()),
        key_sentinel: Scalar::Device(key.view()),
        pad_position: Scalar::Device(pad.view()),
    };
    assert_eq!(rig.step(false, scalars, Scalar::Device(token.view())), literal);
    let other_token = ints(7);
    rig.stream.zero_buffer(rig.model.draw_counter()).unwrap();
    assert_ne!(rig.step(false, scalars, Scalar::Device(other_token.view())).metrics, literal.metrics);
}

#[test]
fn the_same_step_twice_gives_the_same_bits() {
    let mask = mask(|s, j| (j + s) % 3 != 0);
    let step = || rig(&mask).step(false, AnchorScalars::LITERAL, Scalar::Literal);
    assert_eq!(step(), step());
}

#[test]
fn a_batch_without_supervision_gives_zero_loss_and_zero_gradients() {
    for config in configs() {
        let lambda = if config.domino.is_some() { 0.35_f32.to_bits() } else { 0 };
        let result = rig_of(config, &mask(|_, _| false)).step(false, AnchorScalars::LITERAL, Scalar::Literal);
        assert_eq!(result.metrics, [0, 0, 0, 0, 0, 0, 0, 0, lambda]);
        assert!(result.grads.iter().all(|g| *g == 0));
        assert!(result.anchors.iter().all(Vec::is_empty));
    }
}

#[test]
fn gradients_accumulate_over_micro_batches_with_their_scale() {
    configs().into_iter().for_each(gradients_accumulate);
}

fn gradients_accumulate(config: Config) {
    let mut rig = rig_of(config, &mask(|_, j| j % 2 == 0));
    let whole = rig.step(false, AnchorScalars::LITERAL, Scalar::Literal);
    rig.model.zero_gradients(&rig.stream).unwrap();
    for scale in [0.25, 0.75] {
        rig.model.forward(&rig.stream, &rig.batch, Scalar::Literal).unwrap();
        rig.model.backward(&rig.stream, &rig.batch, scale).unwrap();
    }
    let parts = rig.model.params().grads.to_vec().unwrap();
    let (mut difference, mut norm) = (0.0, 0.0);
    for (part, whole) in parts.iter().zip(&whole.grads) {
        let (part, whole) = (f64::from(*part), f64::from(f32::from_bits(*whole)));
        difference += (part - whole).powi(2);
        norm += whole.powi(2);
    }
    assert!(norm > 0.0 && difference < 1e-12 * norm, "{difference} {norm}");
}

/// Central differences of the loss along each tensor's own gradient and along a fixed random direction.
#[test]
fn every_gradient_predicts_how_the_loss_changes() {
    let mut rig = rig(&mask(|_, j| j % 2 == 0));
    // Smaller weights than the other tests': the loss must be smooth over the distance of the differences.
    let flat: Vec<f32> = rig.model.params().weights.to_vec().unwrap().iter().map(|w| w * 0.4).collect();
    rig.stream.upload_blocking(rig.model.params().weights.view(), &flat).unwrap();
    rig.step(false, AnchorScalars::LITERAL, Scalar::Literal);
    let grads = rig.model.params().grads.to_vec().unwrap();
    let table = rig.model.params().table.clone();
    let mut checked = 0;
    for (salt, param) in (500..).zip(&table) {
        let gradient: Vec<f64> = param.of(&grads).iter().map(|g| f64::from(*g)).collect();
        let random: Vec<f64> = noise(salt, param.len()).iter().map(|v| f64::from(*v)).collect();
        for direction in [gradient.clone(), random] {
            let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            let slope = direction.iter().zip(&gradient).map(|(d, g)| d * g).sum::<f64>() / norm;
            let mut loss_at = |distance: f64| {
                let mut weights = param.of(&flat).to_vec();
                for (w, d) in weights.iter_mut().zip(&direction) {
                    *w = (f64::from(*w) + distance * d / norm) as f32;
                }
                rig.model.set_weight(&param.name, &weights).unwrap();
                rig.model.forward(&rig.stream, &rig.batch, Scalar::Literal).unwrap();
                f64::from(rig.read(rig.model.metrics())[0])
            };
            let h = 4e-3;
            let difference = (loss_at(h) - loss_at(-h)) / (2.0 * h);
            loss_at(0.0);
            // 32-bit losses around 5 resolve 5e-7, hence 6e-5 of the difference quotient; the rest is curvature.
            assert!(
                (difference - slope).abs() <= 4e-4 + 4e-3 * slope.abs(),
                "{}: predicted {slope}, found {difference}",
                param.name
            );
            checked += 1;
        }
    }
    assert_eq!(checked, 2 * 25);
}

fn optimizer_config() -> OptimizerConfig {
    OptimizerConfig {
        schedule: Schedule { peak: 1e-2, warmup_steps: 3, total_steps: 10 },
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        max_grad_norm: 1.0,
    }
}

#[test]
fn adamw_with_clipping_follows_its_definition_in_double_precision() {
    let mut rig = rig(&mask(|_, _| true));
    let c = optimizer_config();
    let mut optimizer = Optimizer::new(&rig.device(), &rig.model, c, 3).unwrap();
    let n = rig.model.params().weights.len();
    let mut weights: Vec<f64> =
        rig.model.params().weights.to_vec().unwrap().iter().map(|w| f64::from(*w)).collect();
    let (mut first, mut second) = (vec![0.0; n], vec![0.0; n]);
    let beta = |b: f32| f64::from(b);
    for step in 0..5_u32 {
        let result = rig.step(false, AnchorScalars::LITERAL, Scalar::Literal);
        let grads: Vec<f64> = result.grads.iter().map(|g| f64::from(f32::from_bits(*g))).collect();
        let norm = grads.iter().map(|g| g * g).sum::<f64>().sqrt();
        let clip = (f64::from(c.max_grad_norm) / (norm + 1e-6)).min(1.0);
        let lr = f64::from(c.schedule.learning_rate(step));
        let power = |b: f32| 1.0 - beta(b).powi(i32::try_from(step).unwrap() + 1);
        for i in 0..n {
            let g = grads[i] * clip;
            first[i] = beta(c.beta1) * first[i] + (1.0 - beta(c.beta1)) * g;
            second[i] = beta(c.beta2) * second[i] + (1.0 - beta(c.beta2)) * g * g;
            weights[i] *= 1.0 - lr * f64::from(c.weight_decay);
            weights[i] -=
                lr * (first[i] / power(c.beta1)) / ((second[i] / power(c.beta2)).sqrt() + f64::from(c.eps));
        }
        optimizer.step(&rig.stream, &rig.model).unwrap();
        let row =
            Metrics::from_ring(&optimizer.ring().to_vec().unwrap(), step, false).expect("the step's row");
        assert_eq!(row.loss.to_bits(), result.metrics[0]);
        assert!((f64::from(row.grad_norm) - norm).abs() < 1e-5 * norm, "{} {norm}", row.grad_norm);
        assert_eq!(row.lr.to_bits(), c.schedule.learning_rate(step).to_bits());
        assert_eq!(rig.read(optimizer.grad_norm()), [row.grad_norm]);
        assert_eq!(rig.read(optimizer.learning_rate()), [row.lr]);
        // Continue from the device's weights: the two precisions must agree per step, not after diverging.
        let found = rig.model.params().weights.to_vec().unwrap();
        for (i, (w, expected)) in found.iter().zip(&weights).enumerate() {
            assert!((f64::from(*w) - expected).abs() < 3e-6, "step {step}, element {i}: {w} {expected}");
        }
        weights = found.iter().map(|w| f64::from(*w)).collect();
    }
    assert_eq!(optimizer.step_counter().to_vec().unwrap(), [5]);
    assert_eq!(
        Metrics::from_ring(&optimizer.ring().to_vec().unwrap(), 1, false),
        None,
        "overwritten by step 4"
    );
}

#[test]
fn the_learning_rate_rises_linearly_then_falls_as_a_cosine_to_zero() {
    let schedule = Schedule { peak: 0.5, warmup_steps: 4, total_steps: 12 };
    let expected = [0.125, 0.25, 0.375, 0.5, 0.5];
    for (step, expected) in (0..).zip(expected) {
        assert!((schedule.learning_rate(step) - expected).abs() < 1e-6, "{step}");
    }
    assert!((schedule.learning_rate(8) - 0.25).abs() < 1e-6);
    assert!(schedule.learning_rate(12).abs() < 1e-6);
    assert!(schedule.learning_rate(1000).abs() < 1e-6);
}

#[test]
fn a_zero_length_warm_up_starts_at_the_peak() {
    assert!((Schedule { peak: 0.5, warmup_steps: 0, total_steps: 0 }.learning_rate(0) - 0.5).abs() < 1e-6);
}

#[test]
fn the_weight_of_the_base_loss_falls_linearly_and_the_device_computes_the_hosts_bits() {
    let curriculum = Curriculum::new(0.8, 21, 0.5);
    assert_eq!(curriculum.decay_steps, 10);
    for (step, expected) in [(0, 0.8), (5, 0.4), (9, 0.08), (10, 0.0), (1000, 0.0)] {
        assert!((curriculum.lambda(step) - expected).abs() < 1e-6, "{step}");
    }
    assert!((Curriculum::new(3.0, 10, 1.0).lambda(0) - 1.0).abs() < 1e-6, "clamped");
    assert_eq!(Curriculum::new(1.0, 10, 0.0).lambda(1), 0.0, "one step at least");
    let mut rig = rig_of(configs()[2].clone(), &mask(|_, _| true));
    for step in 0..12_u32 {
        let steps = Buffer::from_slice(&rig.device(), &[step]).unwrap();
        rig.model.schedule_lambda(&rig.stream, steps.view(), curriculum).unwrap();
        assert_eq!(rig.read(rig.model.lambda_base().unwrap()), [curriculum.lambda(step)]);
    }
}
