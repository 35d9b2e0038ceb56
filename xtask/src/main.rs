//! Repository chores, as `cargo xtask NAME`. Each one builds what it needs.
//!
//! A chore prints what it does, and fails loudly: its exit status is 0 only if what it claims is true.

mod bench;
mod build;
mod demo;
mod price;
mod reports;

use clap::{Parser, Subcommand};
use std::process::{Command, ExitCode};

#[derive(Parser)]
#[command(about = "Repository chores", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Train the reference trainer twice under audit: with its waits of old (must fail) and as it is (must pass)
    Demo {
        /// Steps of each training
        #[arg(long, default_value_t = 24)]
        steps: u32,
    },
    /// Measure what tracing and auditing cost
    Bench {
        /// Runs of the trainer per side; the median counts
        #[arg(long, default_value_t = 5)]
        rounds: u32,
    },
    /// Predict the reference trainer's step time without each set of its waits, from the legacy trace alone, and train each set
    Price {
        /// Steps of each training
        #[arg(long, default_value_t = 20)]
        steps: u32,
        /// Time model of the emulated device
        #[arg(long, default_value = "400us")]
        kernel_time: String,
        /// Where the table goes
        #[arg(long, default_value = "reports/what-if-trainer.md")]
        output: std::path::PathBuf,
    },
    /// Write reports/ anew: the reference trainer's job audited before and after, baselines, benchmark, the story
    Reports {
        /// Write nothing; fail if a count or a place in reports/ is not what the trainer has now
        #[arg(long)]
        check: bool,
    },
    /// Throw damaged event logs at the reader
    Fuzz {
        #[arg(long, default_value_t = 1_000_000)]
        inputs: u64,
    },
    /// What `bench` measures: one process, with or without the tracer
    #[command(hide = true)]
    BenchProbe {
        /// `costs` or `million`
        what: String,
    },
    /// Write the pages of the rules, docs/rules/, anew
    Docs,
    /// Fetch the official SARIF schema, for the test that validates against it
    SarifSchema,
    /// Fetch NVIDIA's libraries for the tests that use them; nothing is installed
    Vendor,
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Demo { steps } => demo::demo(steps),
        Chore::Bench { rounds } => bench::bench(rounds),
        Chore::Price { steps, kernel_time, output } => price::price(steps, &kernel_time, &output),
        Chore::Reports { check } => reports::reports(check),
        Chore::Fuzz { inputs } => build::cargo(&[
            "run",
            "--release",
            "--quiet",
            "--package=syncaudit-eventlog",
            "--example=fuzz",
            "--",
            "--inputs",
            &inputs.to_string(),
        ]),
        Chore::BenchProbe { what } => bench::probe(&what),
        Chore::Docs => build::cargo(&[
            "run",
            "--quiet",
            "--package=syncaudit",
            "--example=rule_pages",
            "--",
            "docs/rules",
        ]),
        Chore::SarifSchema => build::succeed(Command::new("bash").arg("scripts/fetch-sarif-schema.sh")),
        Chore::Vendor => build::succeed(Command::new("bash").arg("scripts/fetch-vendor-libs.sh")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
