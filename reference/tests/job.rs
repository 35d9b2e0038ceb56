//! Jobs of several processes, as a user or a launcher starts them, on the emulated device.

mod support;

use dflash_train::rollout::tensor_file::TensorFile;
use rusqlite::{Connection, TransactionBehavior};
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};
use support::Bench;

/// Three trainers, small steps.
const JOB: &str = "train --trainers 3 --batch 1 --sequence 24 --log-every 2 --schedule-steps 1000000";

/// A job under way, and what it says.
struct Running {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

fn start(mut command: Command) -> Running {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines();
    Running { child, said }
}

impl Running {
    /// Reads until a line that starts so.
    fn until(&mut self, start: &str) -> String {
        let mut before = Vec::new();
        for line in self.said.by_ref().map(Result::unwrap) {
            if line.starts_with(start) {
                return line;
            }
            before.push(line);
        }
        panic!("it ended without saying `{start}`: {before:#?}");
    }

    /// Waits until every process of the job is gone (all of them hold the pipe); the status, and what was said.
    fn end(mut self) -> (Option<i32>, String) {
        let rest: Vec<String> = self.said.map(Result::unwrap).collect();
        (self.child.wait().unwrap().code(), rest.join("\n"))
    }

    /// The processes that it started, in the order of their ranks.
    fn ranks(&self) -> Vec<u32> {
        let pid = self.child.id();
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// What the ledger of `steps` steps of three trainers with one sample each must be.
fn shares(steps: u32) -> Vec<(u64, u32, usize)> {
    (0..u64::from(steps) * 3).map(|sample| (sample, sample as u32 / 3 + 1, sample as usize % 3)).collect()
}

#[test]
fn waits_transport_and_number_of_rollouts_change_no_loss_and_no_share() {
    let bench = Bench::new();
    bench.succeed(&format!("{JOB} --rollouts 1 --steps 6 --metrics default.jsonl --checkpoint default"));
    let legacy = "--rollouts 1 --steps 6 --waits legacy --metrics legacy.jsonl --checkpoint legacy";
    bench.succeed(&format!("{JOB} {legacy}"));
    let tcp = "--rollouts 2 --steps 6 --transport tcp --metrics tcp.jsonl --checkpoint tcp";
    bench.succeed(&format!("{JOB} {tcp}"));
    let losses = bench.losses("default.jsonl");
    assert_eq!(losses.iter().map(|line| line.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    for other in ["legacy", "tcp"] {
        assert_eq!(bench.losses(&format!("{other}.jsonl")), losses, "{other}");
        assert_eq!(bench.ledger(other), shares(6), "{other}");
    }
    assert_eq!(bench.ledger("default"), shares(6));
    // Other samples for every trainer: not what one of them alone would learn.
    bench.succeed("train --batch 1 --sequence 24 --schedule-steps 1000000 --steps 6 --metrics alone.jsonl");
    assert_ne!(bench.losses("alone.jsonl"), losses);
}

#[test]
fn micro_batches_of_all_trainers_are_one_step() {
    let bench = Bench::new();
    let options = "--rollouts 1 --steps 4 --accumulate 2";
    bench.succeed(&format!("{JOB} {options} --metrics default.jsonl --checkpoint state"));
    bench.succeed(&format!("{JOB} {options} --metrics legacy.jsonl --waits legacy"));
    assert_eq!(bench.losses("default.jsonl"), bench.losses("legacy.jsonl"));
    let expected: Vec<_> =
        (0..24).map(|sample| (sample, sample as u32 / 6 + 1, sample as usize % 6 / 2)).collect();
    assert_eq!(bench.ledger("state"), expected);
}

#[test]
fn another_launcher_may_start_them_one_by_one() {
    let bench = Bench::new();
    let rank = |rank: usize, port: &str, role: &str| {
        let mut command =
            bench.command(&format!("{JOB} --rollouts 1 --steps 4 --role {role} --metrics m.jsonl"));
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "4");
        command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", port);
        command.stdout(Stdio::piped());
        start(command)
    };
    let mut first = rank(0, "0", "trainer");
    let mut line = String::new();
    BufReader::new(first.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("MASTER_PORT=").expect("the port that it chose");
    // The rollout before the other trainers: any order will do.
    let others = [rank(3, port, "rollout"), rank(2, port, "by-rank"), rank(1, port, "trainer")];
    for process in [first].into_iter().chain(others) {
        let (status, said) = process.end();
        assert_eq!(status, Some(0), "{said}");
    }
    let alone = bench.losses("m.jsonl");
    bench.succeed(&format!("{JOB} --rollouts 1 --steps 4 --metrics m.jsonl"));
    assert_eq!(bench.losses("m.jsonl"), alone);
}

#[test]
fn a_process_that_was_started_differently_is_refused_with_the_option() {
    let bench = Bench::new();
    let rank = |rank: usize, port: &str, more: &str| {
        let mut command = bench.command(&format!("{JOB} --rollouts 1 --steps 4 --role by-rank {more}"));
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", "0").env("WORLD_SIZE", "4");
        command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", port);
        command.stdout(Stdio::piped());
        start(command)
    };
    let mut first = rank(0, "0", "");
    let mut line = String::new();
    BufReader::new(first.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let other = rank(2, line.trim().trim_start_matches("MASTER_PORT="), "--seed 5");
    for process in [first, other] {
        let (status, said) = process.end();
        assert_eq!(status, Some(1));
        assert!(said.contains("rank 2 was started with another --seed (5) than rank 0 (0)"), "{said}");
    }
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let bench = Bench::new();
    let mut command = bench.command(&format!("{JOB} --rollouts 1 --steps 4 --role trainer --join-timeout 0"));
    command.env("RANK", "0").env("LOCAL_RANK", "0").env("WORLD_SIZE", "4");
    command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", "0").stdout(Stdio::null());
    let (status, said) = start(command).end();
    assert_eq!(status, Some(1));
    assert!(said.contains("rank 1 (trainer), rank 2 (trainer), rank 3 (rollout) did not come"), "{said}");
}

#[test]
fn a_process_that_dies_ends_the_job_and_is_named() {
    let bench = Bench::new();
    for (rank, who) in [(0, "rank 0 (trainer)"), (2, "rank 2 (trainer)"), (3, "rank 3 (rollout)")] {
        let mut job = start(bench.command(&format!("{JOB} --rollouts 1 --steps 1000000")));
        job.until("step");
        signal("-KILL", job.ranks()[rank]);
        let (status, said) = job.end();
        assert_eq!(status, Some(128 + 9), "{said}");
        assert!(said.contains(&format!("{who} was killed by signal 9, so the job was ended")), "{said}");
    }
}

#[test]
fn no_process_outlives_the_one_that_started_it() {
    let bench = Bench::new();
    let mut job = start(bench.command(&format!("{JOB} --rollouts 1 --steps 1000000")));
    job.until("step");
    signal("-KILL", job.child.id());
    // The pipe ends with its last holder: this waits for ever if one stays.
    job.end();
}

#[test]
fn ctrl_c_ends_all_keeps_everything_and_the_job_goes_on_from_there() {
    let bench = Bench::new();
    let options = format!("{JOB} --rollouts 2 --checkpoint state");
    let mut job = start(bench.command(&format!("{options} --steps 1000000 --metrics first.jsonl")));
    job.until("step");
    signal("-INT", job.child.id());
    let (status, said) = job.end();
    assert_eq!(status, Some(130), "{said}");
    let done = bench.losses("first.jsonl").len() as u32;
    assert!(said.contains(&format!("stopped behind step {done} of 1000000")), "{said}");
    assert_eq!(bench.ledger("state"), shares(done));

    let steps = done + 4;
    bench.succeed(&format!("{options} --steps {steps} --metrics first.jsonl"));
    bench.succeed(&format!("{JOB} --rollouts 1 --steps {steps} --metrics whole.jsonl"));
    assert_eq!(bench.losses("first.jsonl"), bench.losses("whole.jsonl"));
    assert_eq!(bench.ledger("state"), shares(steps));
}

#[test]
fn a_second_ctrl_c_ends_all_at_once() {
    let bench = Bench::new();
    let mut job =
        start(bench.command(&format!("{JOB} --rollouts 1 --steps 1000000 --preset small --accumulate 1000")));
    job.until("train");
    // Two signals sent at once may arrive as one, so they are sent until one is the second.
    while job.child.try_wait().unwrap().is_none() {
        Command::new("kill")
            .args(["-INT", &job.child.id().to_string()])
            .stderr(Stdio::null())
            .status()
            .unwrap();
    }
    assert_eq!(job.end().0, Some(130));
}

#[test]
fn a_ledger_that_somebody_holds_stalls_the_producer_which_says_so_and_nothing_is_lost() {
    for team in [
        "--trainers 3 --rollouts 1",
        "--trainers 1 --rollouts 0",
        "--trainers 3 --rollouts 1 --checkpoint-every 1",
    ] {
        let bench = Bench::new();
        let options = "--batch 1 --sequence 24 --log-every 1 --ack-lag 4 --steps 1000000 --checkpoint state";
        let mut job = start(bench.command(&format!("train {team} {options}")));
        job.until("step");
        let mut database = Connection::open(bench.path("state/ledger.sqlite")).unwrap();
        let held = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let committed: u32 =
            held.query_row("SELECT COALESCE(MAX(step), 0) FROM trained", [], |row| row.get(0)).unwrap();
        let mut trained = 0;
        loop {
            let line = job.said.next().expect("it goes on").unwrap();
            match line.strip_prefix("step") {
                Some(rest) => trained = rest.split_whitespace().next().unwrap().parse().unwrap(),
                None => assert!(line.contains("rollout held back"), "{line}"),
            }
            if line.contains("held back") {
                break;
            }
        }
        assert!(trained <= committed + 4, "{trained} steps with {committed} in the ledger");
        // Nothing is saved that the ledger does not hold.
        let saved = bench.path("state/checkpoint.safetensors");
        if saved.exists() {
            let saved: u32 = TensorFile::open(&saved).unwrap().note("step").unwrap().parse().unwrap();
            assert!(saved <= committed, "a checkpoint of step {saved} with {committed} in the ledger");
        }
        held.rollback().unwrap();
        drop(database);
        job.until("rollout goes on");
        while job.until("step").split_whitespace().nth(1).unwrap().parse::<u32>().unwrap() <= committed + 4 {}
        signal("-INT", job.child.id());
        let (status, said) = job.end();
        assert_eq!(status, Some(130), "{said}");
        let done = said.rsplit_once("stopped behind step ").unwrap().1;
        let done: u32 = done.split(' ').next().unwrap().parse().unwrap();
        let ledger = bench.ledger("state");
        let trainers = ledger.len() / done as usize;
        assert_eq!(ledger.len(), done as usize * trainers);
        assert!(
            ledger
                .iter()
                .enumerate()
                .all(|(at, row)| row.0 == at as u64 && row.1 == (at / trainers) as u32 + 1)
        );
    }
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let bench = Bench::new();
    let mut job = start(bench.command(&format!("{JOB} --rollouts 1 --steps 1000000 --checkpoint state")));
    job.until("step");
    let said = bench.fail(&format!("{JOB} --rollouts 1 --steps 1000000 --checkpoint state"), 1);
    assert!(said.contains("the checkpoint directory state is in use by another run"), "{said}");
    let said = bench.fail("--checkpoint state", 1);
    assert!(said.contains("in use by another run"), "{said}");
    signal("-INT", job.child.id());
    assert_eq!(job.end().0, Some(130));
}

#[test]
fn mistakes_are_answered_once_with_what_to_do() {
    let bench = Bench::new();
    let cases = [
        ("--trainers 3", 1, "add --rollouts 1"),
        ("--trainers 0", 2, "expected a whole number above 0"),
        ("--trainers 2 --rollouts 1 --role trainer", 1, "RANK is not set"),
        ("--trainers 2 --rollouts 1 --data nowhere.txt", 1, "cannot read the training data nowhere.txt"),
        ("--ack-lag 0", 2, "--ack-lag"),
    ];
    for (arguments, code, expected) in cases {
        let said = bench.fail(&format!("train {arguments}"), code);
        assert_eq!(said.matches(expected).count(), 1, "dflash-train train {arguments} said: {said}");
    }
}
