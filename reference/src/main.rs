//! The `dflash-train` command: options in, exit status out. What it does is in the library.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dflash-train: {error}");
            ExitCode::FAILURE
        }
    }
}
