//! The model against golden files: the public trainer's (when the shared folder is there) and our own.

use std::path::{Path, PathBuf};

use dflash_train::device::Device;
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
    let bytes = std::fs::read(golden.join("dflash_basic.safetensors")).unwrap();
    let report = verify_on(&Device::in_process(), &bytes, DEFAULT_TOLERANCE).unwrap();
    println!("{report}");
    assert!(report.is_match(), "{report}");
    assert_eq!(report.comparisons.len(), 3 + 25, "loss, accuracy, denominator and every trainable tensor");
}

/// Made by `golden/make.py`: 64-bit numpy, differentiated automatically. Dense masks; masks sparser than the anchors with an
/// empty sequence and blocks beyond the end; no decay, one key head, odd sizes.
#[test]
fn loss_metrics_and_every_gradient_match_an_independent_differentiation() {
    for name in ["dense", "sparse", "plain"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.safetensors"));
        let report = verify_on(&Device::in_process(), &std::fs::read(path).unwrap(), 1e-5).unwrap();
        println!("{name}\n{report}");
        assert!(report.is_match(), "{name}\n{report}");
    }
}

#[test]
fn a_file_of_another_algorithm_is_refused_by_name() {
    let Some(golden) = shared() else { return };
    let bytes = std::fs::read(golden.join("domino_shift.safetensors")).unwrap();
    let error = verify_on(&Device::in_process(), &bytes, DEFAULT_TOLERANCE).unwrap_err();
    assert!(error.to_string().contains("domino"), "{error}");
}

#[test]
fn what_is_no_golden_file_is_an_error_that_says_so() {
    for bytes in [&b""[..], b"not safetensors at all", &[0; 64]] {
        let error = verify_on(&Device::in_process(), bytes, DEFAULT_TOLERANCE).unwrap_err();
        assert!(matches!(error, VerifyError::File(_)), "{error}");
    }
}
