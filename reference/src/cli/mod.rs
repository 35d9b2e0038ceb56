//! The command line.
//!
//! In: arguments. Out: an exit status: 0 done, 1 failed, 2 misused (clap's), 130 stopped by Ctrl-C. Everything said goes to
//! stderr, so that stdout is free for what a command is asked to print.

mod bench;
mod capture_check;
mod kernels;
mod train;
mod verify;

use clap::{Parser, Subcommand};
use dflash_train::error::Result;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "dflash-train",
    version,
    about = "Trains a DFlash or Domino draft model with a step in which the host never waits for the GPU",
    long_about = "Trains a DFlash or Domino draft model with a step in which the host never waits for the GPU.\n\n\
        It is syncaudit's worked example: --waits brings back, one by one, the blocking waits that a public trainer of the \
        same model had, so that you can see how a tool finds them and what removing each of them buys.",
    args_conflicts_with_subcommands = true,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    train: train::TrainArgs,
}

const EXAMPLES: &str = "\
Examples:
  dflash-train                                    train the tiny preset on built-in text (on a GPU)
  syncaudit run --device emulated -- dflash-train   the same without a GPU, audited
  syncaudit run -- dflash-train --waits legacy      every historical wait, audited
  dflash-train --waits metrics,acks               only these two
  dflash-train --algorithm domino                 the Domino objective
  dflash-train train --trainers 3 --rollouts 1      four processes on this host
  dflash-train --data chat.jsonl --steps 500 --checkpoint run1 --metrics run1.jsonl";

#[derive(Subcommand)]
enum Command {
    /// Train; the same as no command at all
    Train(Box<train::TrainArgs>),
    /// Capture one training step as a CUDA graph: proof that nothing in it waits for the device
    CaptureCheck(Box<capture_check::CaptureCheckArgs>),
    /// Measure what removing each set of historical waits buys
    Bench(Box<bench::BenchArgs>),
    /// Check loss, metrics and gradients against a golden file
    Verify(verify::VerifyArgs),
    /// List the device kernels, or compare each with its host implementation
    Kernels(kernels::KernelsArgs),
}

/// Parses the arguments and runs what they ask for.
pub fn run() -> Result<ExitCode> {
    let cli = Cli::parse();
    match cli.command {
        None => train::run(&cli.train),
        Some(Command::Train(args)) => train::run(&args),
        Some(Command::CaptureCheck(args)) => capture_check::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Verify(args)) => Ok(verify::run(&args)),
        Some(Command::Kernels(args)) => kernels::run(&args),
    }
}
