//! Training runs as a whole, on the in-process device: what is learned, and that nothing but the seed decides it.

use dflash_train::data::Dataset;
use dflash_train::data::tokenizer::Tokenizer;
use dflash_train::device::Device;
use dflash_train::model::{DominoHead, Precision};
use dflash_train::optim::{Curriculum, Metrics, OptimizerConfig, Schedule};
use dflash_train::preset::Preset;
use dflash_train::rollout::target::{Target, taps};
use dflash_train::rollout::worker::Source;
use dflash_train::train::{self, Outcome, Settings, Team, ledger};
use dflash_train::waits::{self, Waits};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A model that trains in milliseconds.
fn settings(steps: u32) -> Settings {
    let tokenizer = Tokenizer::Bytes;
    let mut config = Preset::Tiny.sizes(tokenizer.vocabulary(), tokenizer.mask_id()).draft;
    config.hidden_size = 16;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.head_dim = 8;
    config.intermediate_size = 24;
    config.num_hidden_layers = 1;
    config.block_size = 4;
    config.num_anchors = 4;
    Settings {
        config,
        batch: 2,
        sequence: 24,
        accumulate: 1,
        steps,
        log_every: 4,
        seed: 3,
        precision: Precision::F32,
        waits: Waits::NONE,
        optimizer: OptimizerConfig {
            schedule: Schedule { peak: 3e-3, warmup_steps: 2, total_steps: 20 },
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            max_grad_norm: 1.0,
        },
        curriculum: Curriculum::new(1.0, 20, 0.5),
        checkpoint: None,
        checkpoint_every: None,
        run_ahead: 2,
        graph: false,
        ack_lag: 4,
        data_wait: Duration::ZERO,
        clock: None,
    }
}

fn domino(steps: u32) -> Settings {
    let mut settings = settings(steps);
    settings.config.domino =
        Some(DominoHead { emb_dim: 6, gru_hidden_dim: 10, shift_label: true, pure_draft_prefix_len: 1 });
    settings
}

fn train(settings: &Settings) -> (Outcome, Vec<Metrics>) {
    train_until(settings, u32::MAX)
}

/// Trains; behind step `stop_at`'s metrics, asks to stop as Ctrl-C does.
fn train_until(settings: &Settings, stop_at: u32) -> (Outcome, Vec<Metrics>) {
    let tokenizer = Tokenizer::Bytes;
    let mut shape = Preset::Tiny.sizes(tokenizer.vocabulary(), tokenizer.mask_id()).target;
    shape.hidden = settings.config.hidden_size;
    (shape.heads, shape.kv_heads, shape.head_dim, shape.mlp) = (2, 1, 8, 16);
    let taps = taps(shape.layers, settings.config.num_context_features);
    let target = Arc::new(Target::seeded(shape, taps, settings.seed));
    let data = Dataset::open(None, &tokenizer, settings.sequence, settings.seed).unwrap();
    let source = Source::Rollout(data, target.clone());
    let (stop, mut rows) = (AtomicBool::new(false), Vec::new());
    let outcome =
        train::run(&Device::in_process(), settings, &target, Team::Alone(Some(source)), &stop, &mut |row| {
            rows.push(*row);
            stop.fetch_or(row.step + 1 >= stop_at, Ordering::Relaxed);
            Ok(())
        });
    (outcome.unwrap(), rows)
}

fn losses(rows: &[Metrics]) -> Vec<u32> {
    rows.iter().map(|row| row.loss.to_bits()).collect()
}

#[test]
fn every_combination_of_waits_gives_the_same_losses_bit_for_bit() {
    [settings(6), domino(6)].into_iter().for_each(every_combination);
}

fn every_combination(settings: Settings) {
    let (_, expected) = train(&settings);
    assert_eq!(expected.len(), 6);
    assert!(expected.windows(2).all(|pair| pair[0].loss != pair[1].loss), "{expected:?}");
    for bits in 0..32u8 {
        let sources = waits::Source::ALL.into_iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0);
        let waits = sources.fold(Waits::NONE, |waits, (_, source)| waits.with(source));
        for accumulate in [1, 2] {
            let (_, rows) = train(&Settings { waits, accumulate, batch: 2 / accumulate, ..settings.clone() });
            if accumulate == 1 {
                assert_eq!(rows, expected, "waits: {waits}");
            } else {
                let (_, plain) = train(&Settings { accumulate, batch: 1, ..settings.clone() });
                assert_eq!(rows, plain, "waits: {waits}, two micro-batches");
            }
        }
    }
}

#[test]
fn every_step_reports_its_metrics_once_and_in_order_whatever_the_log_interval() {
    for (steps, log_every) in [(7, 1), (7, 3), (8, 4), (5, 100)] {
        let (outcome, rows) = train(&Settings { log_every, ..settings(steps) });
        assert_eq!(outcome, Outcome { steps, resumed_from: 0, stopped: false });
        assert_eq!(rows.iter().map(|row| row.step).collect::<Vec<_>>(), (0..steps).collect::<Vec<_>>());
    }
}

#[test]
fn a_resumed_run_gives_the_losses_of_one_that_was_not_interrupted() {
    for settings in [settings(20), domino(20)] {
        let (_, whole) = train(&settings);
        for waits in [Waits::NONE, Waits::LEGACY] {
            let directory = tempfile::tempdir().unwrap();
            let checkpoint = Some(directory.path().to_owned());
            let part = |steps| Settings { checkpoint: checkpoint.clone(), waits, steps, ..settings.clone() };
            let (_, first) = train(&part(10));
            let (outcome, second) = train(&part(20));
            assert_eq!(outcome, Outcome { steps: 20, resumed_from: 10, stopped: false });
            assert_eq!([first, second].concat(), whole);
            assert_ledger(directory.path(), 20);
        }
    }
}

#[test]
fn a_stopped_run_keeps_what_it_did_and_goes_on_from_there() {
    let (_, whole) = train(&settings(12));
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { checkpoint: Some(directory.path().to_owned()), ..settings(12) };
    let (outcome, first) = train_until(&settings, 4);
    assert!(outcome.stopped && (4..12).contains(&outcome.steps), "{outcome:?}");
    assert_eq!(first.len() as u32, outcome.steps);
    assert_ledger(directory.path(), outcome.steps);
    let (_, second) = train(&settings);
    assert_eq!(losses(&[first, second].concat()), losses(&whole));
}

/// Two samples a step, in order and each once.
fn assert_ledger(directory: &Path, steps: u32) {
    let rows = ledger::read(directory).unwrap();
    let found: Vec<(u64, u32)> = rows.iter().map(|row| (row.sample, row.step)).collect();
    assert_eq!(found, (0..steps * 2).map(|sample| (u64::from(sample), sample / 2 + 1)).collect::<Vec<_>>());
}

#[test]
fn a_checkpoint_of_something_else_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { checkpoint: Some(directory.path().to_owned()), ..settings(2) };
    train(&settings);
    let refusal = |settings: Settings| {
        std::panic::catch_unwind(|| train(&settings))
            .expect_err("refused")
            .downcast_ref::<String>()
            .cloned()
            .unwrap()
    };
    assert!(refusal(Settings { seed: 4, ..settings.clone() }).contains("--seed 3"));
    let mut other = settings.clone();
    other.config.intermediate_size = 32;
    assert!(refusal(other).contains("another model configuration"));
    let domino = Settings { config: domino(2).config, ..settings };
    assert!(refusal(domino).contains("another model configuration"));
}

#[test]
fn checkpoints_along_the_way_change_nothing() {
    let (_, plain) = train(&settings(7));
    let directory = tempfile::tempdir().unwrap();
    let (_, rows) = train(&Settings {
        checkpoint: Some(directory.path().to_owned()),
        checkpoint_every: Some(3),
        ..settings(7)
    });
    assert_eq!(rows, plain);
}

#[test]
fn domino_reports_all_its_metrics_and_its_lambda_follows_the_curriculum() {
    let settings = domino(12);
    let (_, rows) = train(&settings);
    for row in &rows {
        let d = row.domino.expect("Domino's metrics");
        assert_eq!(d.lambda_base, settings.curriculum.lambda(row.step));
        let mixed = (1.0 - d.lambda_base) * d.final_loss + d.lambda_base * d.base_loss;
        assert!((row.loss - mixed).abs() < 1e-5, "{row:?}");
        // Four slots a block, all scored.
        assert!((0.99..=5.0).contains(&d.accept_len) && (0.99..=5.0).contains(&d.base_accept_len), "{row:?}");
    }
    assert!(rows[0].domino.unwrap().lambda_base > 0.9 && rows[11].domino.unwrap().lambda_base == 0.0);
    assert!(rows.iter().any(|row| row.domino.unwrap().final_loss != row.domino.unwrap().base_loss));
    let (_, dflash) = train(&self::settings(2));
    assert!(dflash.iter().all(|row| row.domino.is_none()));
}

#[test]
fn loss_goes_down_on_the_built_in_text() {
    for mut settings in [settings(60), domino(60)] {
        settings.optimizer.schedule = Schedule { peak: 1e-2, warmup_steps: 5, total_steps: 60 };
        let (_, rows) = train(&settings);
        let mean = |rows: &[Metrics]| rows.iter().map(|row| row.loss).sum::<f32>() / rows.len() as f32;
        let (first, last) = (mean(&rows[..10]), mean(&rows[50..]));
        assert!(last < first - 0.5, "mean loss of the first ten steps {first}, of the last ten {last}");
    }
}
