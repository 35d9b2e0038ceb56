//! `dflash-train kernels`: what runs on the device, and whether it computes what the host implementations compute.

use clap::Args;
use dflash_train::device::Device;
use dflash_train::error::Result;
use dflash_train::kernels::compare::{DEFAULT_TOLERANCE, compare};
use dflash_train::kernels::{all, cuda_source};
use std::process::ExitCode;

/// Options of the command.
#[derive(Args)]
pub struct KernelsArgs {
    /// Run each kernel on the device and on the host with the same random inputs; exit 1 when one differs
    #[arg(long)]
    compare: bool,
    /// Largest relative error that counts as equal
    #[arg(long, default_value_t = DEFAULT_TOLERANCE, requires = "compare")]
    tolerance: f64,
    /// Print the CUDA C that a GPU would be given
    #[arg(long, conflicts_with = "compare")]
    source: bool,
    /// Which GPU
    #[arg(long, default_value_t = 0)]
    gpu: i32,
}

/// Lists the kernels, prints their source, or compares them.
pub fn run(args: &KernelsArgs) -> Result<ExitCode> {
    if args.source {
        print!("{}", cuda_source(all()));
        return Ok(ExitCode::SUCCESS);
    }
    if !args.compare {
        for kernel in all() {
            let params: Vec<String> =
                kernel.params.iter().map(|p| format!("{} {}", p.c_type, p.name)).collect();
            println!("{}({})", kernel.name, params.join(", "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let report = compare(&Device::open(args.gpu)?, args.tolerance)?;
    print!("{report}");
    Ok(if report.is_match() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
