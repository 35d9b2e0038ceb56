//! The model against golden files: the public trainer's (when the shared folder is there) and our own.

use std::path::{Path, PathBuf};

use dflash_train::device::Device;
use dflash_train::model::Precision;
use dflash_train::verify::{DEFAULT_TOLERANCE, VerifyError, verify_on};

fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("SYNCAUDIT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let found = folder.join("golden").is_dir();
    if !found {
        println!("skipped: no shared folder at {}", folder.display());
    }
    found.then(|| folder.join("golden"))
}

#[test]
fn loss_metrics_and_every_gradient_match_the_public_trainer() {
    let Some(golden) = shared() else { return };
    // DFlash: loss, accuracy, denominator and 25 tensors; Domino: six metrics and four tensors more.
    for (name, quantities) in [("dflash_basic", 3 + 25), ("domino_shift", 3 + 6 + 25 + 4)] {
        let bytes = std::fs::read(golden.join(format!("{name}.safetensors"))).unwrap();
        let report = verify_on(&Device::in_process(), &bytes, Precision::F32, DEFAULT_TOLERANCE).unwrap();
        println!("{name}\n{report}");
        assert!(report.is_match(), "{name}\n{report}");
        assert_eq!(report.comparisons.len(), quantities, "{name}");
    }
}

/// Made by `golden/make.py`: 64-bit numpy, differentiated automatically. Dense masks; masks sparser than the anchors with an
/// empty sequence and blocks beyond the end; no decay, one key head, odd sizes; a sliding layer below a full one; the three
/// D-PACE losses; Domino with and without shifted labels, uncorrected first slots, and sparse masks.
#[test]
fn loss_metrics_and_every_gradient_match_an_independent_differentiation() {
    for name in [
        "dense",
        "sparse",
        "plain",
        "sliding",
        "dpace",
        "dpace_cumulative",
        "dpace_continuation",
        "domino_unshifted",
        "domino_sparse",
        "domino_sliding",
    ] {
        let report = verify_on(&Device::in_process(), &own(name), Precision::F32, 1e-5).unwrap();
        println!("{name}\n{report}");
        assert!(report.is_match(), "{name}\n{report}");
    }
}

/// Operands rounded to bf16 carry 8 bits. Where little is scored and the rest cancels (the gradients of queries in
/// `domino_sparse`, three slots), that is 7 %; elsewhere less.
#[test]
fn with_bf16_operands_every_gradient_is_right_to_bf16_precision() {
    for name in ["dense", "sliding", "dpace", "domino_unshifted", "domino_sparse"] {
        let report = verify_on(&Device::in_process(), &own(name), Precision::Bf16, 1e-1).unwrap();
        println!("{name}\n{report}");
        assert!(report.is_match(), "{name}\n{report}");
        assert!(report.comparisons.iter().any(|c| c.relative_error > 1e-4), "{name}: nothing was rounded");
    }
}

fn own(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.safetensors"));
    std::fs::read(path).unwrap()
}

/// The same file with another text in its `config` metadata.
fn with_config(name: &str, from: &str, to: &str) -> Vec<u8> {
    let bytes = own(name);
    let (length, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let config = metadata.metadata().as_ref().unwrap()["config"].replace(from, to);
    assert!(length > 0 && config.contains(to), "{config}");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let notes = std::collections::HashMap::from([("config".to_owned(), config)]);
    safetensors::serialize(tensors.tensors(), Some(notes)).unwrap()
}

#[test]
fn a_configuration_that_can_not_be_computed_is_refused_with_the_reason() {
    for (name, from, to, reason) in [
        ("dense", "\"dflash\"", "\"eagle3\"", "algorithm \"eagle3\""),
        ("domino_sparse", "\"emb_dim\"", "\"emb\"", "missing field `emb_dim`"),
        ("domino_sparse", "\"lambda_base\"", "\"lambda\"", "without `lambda_base`"),
        (
            "domino_sparse",
            "\"pure_draft_prefix_len\": 1",
            "\"pure_draft_prefix_len\": 4",
            "no slot of a block",
        ),
        ("sliding", "\"sliding_window\"", "\"window\"", "without a positive sliding_window"),
        ("dpace", "\"dpace_alpha\": 0.5", "\"dpace_alpha\": 1.5", "not within 0 to 1"),
    ] {
        let error =
            verify_on(&Device::in_process(), &with_config(name, from, to), Precision::F32, 1e-5).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn what_is_no_golden_file_is_an_error_that_says_so() {
    for bytes in [&b""[..], b"not safetensors at all", &[0; 64]] {
        let error = verify_on(&Device::in_process(), bytes, Precision::F32, DEFAULT_TOLERANCE).unwrap_err();
        assert!(matches!(error, VerifyError::File(_)), "{error}");
    }
}
