//! Runs the mutation engine of the tests: `cargo run --release -p syncaudit-eventlog --example fuzz -- --inputs 1000000 --seed 1`.
//!
//! Ends with a panic that names the input when the reader breaks one of its promises (`tests/common/fuzz.rs` lists them).

#[cfg(unix)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(unix)]
#[path = "../tests/common/fuzz.rs"]
mod fuzz;

#[cfg(unix)]
#[global_allocator]
static COUNTING: fuzz::Counting = fuzz::Counting;

#[cfg(not(unix))]
fn main() {
    eprintln!("the engine needs the writer, which exists on unix only");
}

#[cfg(unix)]
fn main() {
    let (mut inputs, mut seed) = (100_000u64, 1u64);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next().and_then(|value| value.parse().ok())) {
            ("--inputs", Some(value)) => inputs = value,
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("usage: fuzz [--inputs N] [--seed N]");
                std::process::exit(2);
            }
        }
    }
    let mut fuzzer = fuzz::Fuzzer::new(seed);
    for done in 1..=inputs {
        fuzzer.step();
        if done % 100_000 == 0 {
            eprintln!("{done} inputs");
        }
    }
    println!("{:#?}", fuzzer.totals);
}
