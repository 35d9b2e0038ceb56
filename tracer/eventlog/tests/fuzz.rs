//! A few seconds of the mutation engine; `--example fuzz` runs it for as long as one likes. Alone in this binary, since it
//! counts memory.
#![cfg(unix)]

mod common;
#[path = "common/fuzz.rs"]
mod fuzz;

#[global_allocator]
static COUNTING: fuzz::Counting = fuzz::Counting;

#[test]
fn the_reader_keeps_its_promises_on_damaged_logs() {
    let mut fuzzer = fuzz::Fuzzer::new(1);
    let inputs = if cfg!(debug_assertions) { 300 } else { 20_000 };
    for _ in 0..inputs {
        fuzzer.step();
    }
    let totals = fuzzer.totals;
    for count in [
        totals.refused,
        totals.warned,
        totals.clean,
        totals.checks_made_right,
        totals.single_damage,
        totals.records_walked,
    ] {
        assert!(count > 0, "{totals:?}");
    }
}
