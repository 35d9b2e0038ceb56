//! Exactly once: processes of a job are killed at random moments and the job is started again, over and over, until its end.
//!
//! The proof is in what is left. After every kill the ledger, cut at the checkpoint's step, must be exactly the samples that the
//! checkpoint was trained on, each once, by the trainer and in the step that the shares say. At the end the weights and moments
//! must be, bit for bit, those of a run that nobody killed: a sample lost, or trained on twice, would change them.
//!
//! `DFLASH_KILLS=200` kills 200 times; by default it is a dozen.

mod support;

use dflash_train::data::random::SplitMix;
use dflash_train::rollout::tensor_file::TensorFile;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::Bench;

const TRAINERS: u64 = 3;
const ROLLOUTS: u64 = 2;

/// Every tensor of a checkpoint.
fn tensors(bench: &Bench, directory: &str) -> BTreeMap<String, Vec<u8>> {
    let bytes = std::fs::read(bench.path(directory).join("checkpoint.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect()
}

/// The step of the checkpoint; 0 where there is none yet.
fn checkpoint_step(bench: &Bench, directory: &str) -> u32 {
    let path = bench.path(directory).join("checkpoint.safetensors");
    if !path.exists() {
        return 0;
    }
    TensorFile::open(&path).unwrap().note("step").unwrap().parse().unwrap()
}

/// Steps 1 to `step` of the ledger are there, whole, each sample once. Answers how many steps more there are.
fn check_ledger(bench: &Bench, directory: &str, step: u32) -> u32 {
    if !bench.path(directory).join("ledger.sqlite").exists() {
        assert_eq!(step, 0, "a checkpoint without a ledger");
        return 0;
    }
    let rows = bench.ledger(directory);
    for (at, row) in rows.iter().enumerate() {
        let sample = at as u64;
        let expected = (sample, (sample / TRAINERS) as u32 + 1, (sample % TRAINERS) as usize);
        assert_eq!(*row, expected, "row {at} of the ledger");
    }
    let steps = (rows.len() as u64 / TRAINERS) as u32;
    assert_eq!(rows.len() as u64 % TRAINERS, 0, "half a step was committed");
    assert!(steps >= step, "a checkpoint of step {step}, acknowledged are {steps}");
    steps - step
}

/// Processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn every_sample_is_trained_on_once_however_often_processes_are_killed() {
    let kills: u32 = std::env::var("DFLASH_KILLS").map_or(12, |text| text.parse().expect("a number"));
    let bench = Bench::new();
    // How far it comes between two kills depends on the machine, so the end is fixed when the last kill is done.
    let options = format!(
        "train --trainers {TRAINERS} --rollouts {ROLLOUTS} --batch 1 --sequence 24 --log-every 1 --checkpoint-every 3 \
         --schedule-steps 1000000"
    );

    let mut random = SplitMix::of(&[u64::from(std::process::id())]);
    let (mut killed, mut of_parent, mut of_rank, mut resumed, mut undone) = (0, 0, [0; 5], 0, 0);
    while killed < kills {
        let mut job = bench
            .command(&format!("{options} --steps 1000000 --checkpoint killed"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(job.stderr.take().unwrap()).lines().map(Result::unwrap);
        // Some in the middle of the start, most some steps later, all at no particular moment.
        let after = random.below(6);
        for _ in 0..after {
            said.by_ref().find(|line| line.starts_with("step"));
        }
        let delay = if after == 0 { 400_000 } else { 30_000 };
        std::thread::sleep(Duration::from_micros(random.below(delay) as u64));
        let ranks = children(job.id());
        let victim = random.below(ranks.len() + 1);
        let pid = if victim == ranks.len() { job.id() } else { ranks[victim] };
        let hit = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        // All processes hold the pipe: its end is the end of all of them.
        let rest: Vec<String> = said.collect();
        let status = job.wait().unwrap();
        assert!(hit.unwrap().success(), "it ended by itself: {status}\n{}", rest.join("\n"));
        killed += 1;
        match of_rank.get_mut(victim).filter(|_| victim < ranks.len()) {
            Some(count) => *count += 1,
            None => of_parent += 1,
        }
        let step = checkpoint_step(&bench, "killed");
        undone += check_ledger(&bench, "killed", step);
        resumed += u32::from(step > 0);
    }
    let steps = checkpoint_step(&bench, "killed") + 10;
    println!(
        "{killed} kills: {of_parent} of the parent, by rank {of_rank:?}; {resumed} left a checkpoint, {undone} committed steps \
         were undone in all; {steps} steps of {TRAINERS} samples"
    );
    for directory in ["killed", "whole"] {
        bench.succeed(&format!("{options} --steps {steps} --checkpoint {directory}"));
        assert_eq!(check_ledger(&bench, directory, steps), 0);
    }
    assert_eq!(bench.ledger("killed"), bench.ledger("whole"));
    let (whole, resumed) = (tensors(&bench, "whole"), tensors(&bench, "killed"));
    assert!(whole.len() > 20 && whole.keys().eq(resumed.keys()));
    for (name, bytes) in &whole {
        assert!(bytes == &resumed[name], "{name} is not what it is without a kill");
    }
}
