//! `dflash-train verify`: a golden file against this trainer on this device. The table goes to stdout.

use clap::Args;
use dflash_train::model::Precision;
use dflash_train::verify::{DEFAULT_TOLERANCE, verify};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of the check.
#[derive(Args)]
pub struct VerifyArgs {
    /// Golden file: inputs, weights, expected loss, metrics and gradients
    file: PathBuf,
    /// Largest relative error ||a - b|| / ||b|| that counts as equal
    #[arg(long, default_value_t = DEFAULT_TOLERANCE)]
    tolerance: f64,
    /// Operands of matrix products; bf16 needs a tolerance of its own
    #[arg(long, value_enum, default_value = "f32")]
    precision: Precision,
}

/// Exit 0: everything within the tolerance. 1: something beyond. 2: the file can't be used, or there is no device.
pub fn run(args: &VerifyArgs) -> ExitCode {
    match verify(&args.file, args.precision, args.tolerance) {
        Ok(report) => {
            print!("{report}");
            if report.is_match() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("dflash-train verify: {}: {error}", args.file.display());
            ExitCode::from(2)
        }
    }
}
