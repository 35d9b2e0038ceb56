//! The command as a user runs it, on the emulated device.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::Bench;

const SHORT: &str = "--steps 6 --log-every 3 --schedule-steps 6";

#[test]
fn legacy_and_default_write_the_same_losses_for_every_step() {
    let bench = Bench::new();
    let said = bench.succeed(&format!("{SHORT} --metrics none.jsonl"));
    bench.succeed(&format!("{SHORT} --metrics legacy.jsonl --waits legacy"));
    assert_eq!(bench.losses("none.jsonl"), bench.losses("legacy.jsonl"));
    assert_eq!(bench.losses("none.jsonl").iter().map(|line| line.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert!(said.contains("emulated: losses are real, times are not"), "{said}");
    assert!(said.contains("step      3  loss") && said.contains("step      6  loss"), "{said}");
    assert!(!said.contains('\r'), "progress belongs on a terminal only");
}

#[test]
fn every_set_of_waits_writes_the_same_losses() {
    let bench = Bench::new();
    bench.succeed(&format!("{SHORT} --accumulate 2 --metrics none.jsonl"));
    let names = ["metrics", "anchors", "scalars", "acks", "batch-copy"];
    for bits in 1..32 {
        let on: Vec<_> = (0..5).filter(|i| bits & (1 << i) != 0).map(|i| names[i]).collect();
        let waits = on.join(",");
        bench.succeed(&format!("{SHORT} --accumulate 2 --metrics some.jsonl --waits {waits}"));
        assert_eq!(bench.losses("some.jsonl"), bench.losses("none.jsonl"), "{waits}");
    }
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let bench = Bench::new();
    // A step that takes far longer than two signals.
    let mut child =
        bench.command("--preset small --accumulate 1000 --steps 1").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.starts_with("train")));
    // Two signals sent at once may arrive as one, so they are sent until one is the second.
    while child.try_wait().unwrap().is_none() {
        Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(lines.collect::<Vec<_>>(), Vec::<String>::new(), "the step was finished first");
}

#[test]
fn ctrl_c_ends_the_step_keeps_everything_and_the_run_goes_on_from_there() {
    let bench = Bench::new();
    let options = "--log-every 2 --schedule-steps 1000000";
    let mut child = bench
        .command(&format!("{options} --steps 1000000 --checkpoint state --metrics first.jsonl"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let log_line = lines.by_ref().map(|line| line.unwrap()).find(|line| line.starts_with("step"));
    assert!(log_line.is_some(), "the run ended before its first log line");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");

    let first = bench.losses("first.jsonl");
    let done = first.len() as u64;
    assert!(rest.last().unwrap().contains(&format!("stopped behind step {done} of")), "{rest:?}");
    assert_eq!(bench.ledger("state").len() as u64, done * 2, "two samples a step");

    let steps = done + 4;
    bench.succeed(&format!("{options} --steps {steps} --checkpoint state --metrics first.jsonl"));
    bench.succeed(&format!("{options} --steps {steps} --metrics whole.jsonl"));
    assert_eq!(bench.losses("first.jsonl"), bench.losses("whole.jsonl"));
}

#[test]
fn a_killed_run_goes_on_from_its_last_checkpoint() {
    let bench = Bench::new();
    let options = "--log-every 1 --schedule-steps 1000000 --checkpoint-every 2 --checkpoint state";
    let mut child =
        bench.command(&format!("{options} --steps 1000000")).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("step      5")), "the run ended early");
    child.kill().unwrap();
    child.wait().unwrap();
    bench.succeed(&format!("{options} --steps 40 --metrics second.jsonl"));
    bench.succeed("--log-every 1 --schedule-steps 1000000 --steps 40 --metrics whole.jsonl");
    let (second, whole) = (bench.losses("second.jsonl"), bench.losses("whole.jsonl"));
    assert!(!second.is_empty() && second.len() < 40, "resumed behind step {}", 40 - second.len());
    assert!(whole.ends_with(&second));
}

#[test]
fn own_text_and_jsonl_are_trained_on() {
    let bench = Bench::new();
    std::fs::write(bench.path("a.txt"), "a man a plan a canal ".repeat(20)).unwrap();
    std::fs::write(
        bench.path("a.jsonl"),
        "{\"prompt\": \"why does it wait?\", \"answer\": \"because of .item()\"}\n",
    )
    .unwrap();
    bench.succeed(&format!("{SHORT} --data a.txt --metrics text.jsonl"));
    bench.succeed(&format!("{SHORT} --data a.jsonl --metrics jsonl.jsonl"));
    assert_ne!(bench.losses("text.jsonl"), bench.losses("jsonl.jsonl"));
}

#[test]
fn recorded_features_replace_the_target() {
    use safetensors::tensor::{Dtype, TensorView};
    let bench = Bench::new();
    let (rows, s, width) = (3, 64, 2 * 64);
    let ids: Vec<u8> = (0..rows * s).flat_map(|i| (i as i64 % 256).to_le_bytes()).collect();
    let hidden: Vec<u8> =
        (0..rows * s * width).flat_map(|i| ((i % 97) as f32 / 97.0).to_le_bytes()).collect();
    let mask: Vec<u8> = (0..rows * s).flat_map(|_| 1f32.to_le_bytes()).collect();
    let view = |dtype, shape, data| TensorView::new(dtype, shape, data).unwrap();
    let tensors = [
        ("input_ids", view(Dtype::I64, vec![rows, s], &ids)),
        ("hidden_states", view(Dtype::F32, vec![rows, s, width], &hidden)),
        ("loss_mask", view(Dtype::F32, vec![rows, s], &mask)),
    ];
    std::fs::write(bench.path("f.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    bench.succeed(&format!("{SHORT} --features f.safetensors --metrics none.jsonl"));
    bench.succeed(&format!("{SHORT} --features f.safetensors --waits legacy --metrics legacy.jsonl"));
    assert_eq!(bench.losses("none.jsonl"), bench.losses("legacy.jsonl"));
    let said = bench.fail(&format!("{SHORT} --features f.safetensors --sequence 32"), 1);
    assert!(said.contains("pass --sequence 64"), "{said}");
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let bench = Bench::new();
    std::fs::write(bench.path("broken.safetensors"), b"\x10\0\0\0\0\0\0\0{").unwrap();
    std::fs::write(bench.path("broken.jsonl"), "{").unwrap();
    std::fs::create_dir(bench.path("broken.d")).unwrap();
    std::fs::write(bench.path("broken.d/a.safetensors"), b"\x02\0\0\0\0\0\0\0[]").unwrap();
    let cases = [
        ("--waits item", 2, "use none, legacy, or a list of: metrics, anchors, scalars, acks, batch-copy"),
        ("--steps 0", 2, "--steps"),
        ("--preset huge", 2, "tiny"),
        ("--lambda-start 0.5", 1, "--lambda-start is an option of --algorithm domino"),
        ("--algorithm domino --lambda-start 2", 2, "expected a number from 0 to 1"),
        ("--algorithm domino --loss-type dpace", 1, "D-PACE weights are for the DFlash objective"),
        (
            "--algorithm domino --pure-draft-prefix-len 7 --no-shift-label",
            1,
            "leaves no slot of a block of 8",
        ),
        ("--graph --waits acks", 1, "one with waits: acks can't be captured"),
        ("--dpace-alpha 0.5", 1, "--dpace-alpha is an option of --loss-type dpace"),
        ("--data nowhere.txt", 1, "cannot read the training data nowhere.txt"),
        ("--data broken.jsonl", 1, "broken.jsonl, line 1"),
        ("--features broken.safetensors", 1, "its header claims 16 bytes, but the file has 9"),
        ("--features broken.d", 1, "not valid"),
        ("--target .", 1, "config.json"),
        ("--checkpoint /proc/nowhere", 1, "cannot make the checkpoint directory"),
        ("--preset qwen3-8b", 1, "use --preset tiny or small, or --force"),
    ];
    for (arguments, code, expected) in cases {
        let said = bench.fail(arguments, code);
        assert!(said.contains(expected), "dflash-train {arguments} said: {said}");
    }
}

#[test]
fn the_default_step_can_be_captured_and_no_historical_wait_can() {
    let bench = Bench::new();
    for algorithm in ["dflash", "domino"] {
        let output = bench.run(&format!("capture-check --algorithm {algorithm}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8(output.stdout).unwrap().contains("nothing in it waits"));
        for waits in ["metrics", "anchors", "scalars", "acks", "batch-copy", "legacy"] {
            let said = bench.fail(&format!("capture-check --algorithm {algorithm} --waits {waits}"), 1);
            assert!(said.contains("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"), "{waits}: {said}");
        }
    }
}

#[test]
fn a_replayed_step_writes_the_losses_of_one_issued_call_by_call_and_goes_on_from_its_checkpoint() {
    let bench = Bench::new();
    for algorithm in ["dflash", "domino"] {
        let run = format!("--algorithm {algorithm} --schedule-steps 14 --log-every 4 --accumulate 2");
        let text = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
        bench.succeed(&format!("{run} --steps 14 --metrics calls.jsonl"));
        bench.succeed(&format!(
            "{run} --steps 9 --graph --checkpoint {algorithm} --metrics {algorithm}.jsonl"
        ));
        bench.succeed(&format!(
            "{run} --steps 14 --graph --checkpoint {algorithm} --metrics {algorithm}.jsonl"
        ));
        assert_eq!(text(&format!("{algorithm}.jsonl")), text("calls.jsonl"));
        let bf16 = format!("{run} --precision bf16 --steps 6");
        let said = bench.succeed(&format!("{bf16} --metrics bf16.jsonl"));
        assert!(said.contains("bf16 operands"), "{said}");
        bench.succeed(&format!("{bf16} --graph --metrics graph.jsonl"));
        assert_eq!(text("bf16.jsonl"), text("graph.jsonl"));
        let (rounded, exact) = (bench.losses("bf16.jsonl"), bench.losses("calls.jsonl"));
        assert!(rounded != exact[..6] && (rounded[5].1 - exact[5].1).abs() < 0.2, "{rounded:?} {exact:?}");
    }
}

#[test]
fn domino_writes_all_its_metrics_and_the_same_ones_with_every_historical_wait() {
    let bench = Bench::new();
    for (name, options) in [
        ("shifted", "--accumulate 2"),
        ("unshifted", "--no-shift-label --pure-draft-prefix-len 0 --sliding-window 9"),
    ] {
        let run = format!("{SHORT} --algorithm domino {options}");
        let said = bench.succeed(&format!("{run} --metrics {name}.jsonl"));
        bench.succeed(&format!("{run} --metrics legacy.jsonl --waits legacy"));
        let text = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
        assert_eq!(text(&format!("{name}.jsonl")), text("legacy.jsonl"));
        assert_eq!(bench.losses("legacy.jsonl").len(), 6);
        for line in text("legacy.jsonl").lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            for key in
                ["final_loss", "base_loss", "base_accuracy", "accept_len", "base_accept_len", "lambda_base"]
            {
                assert!(line[key].is_f64(), "{key} in {line}");
            }
        }
        assert!(said.contains("base_loss") && said.contains("accept_len"), "{said}");
    }
    assert_ne!(bench.losses("shifted.jsonl"), bench.losses("unshifted.jsonl"));
}

#[test]
fn a_domino_run_goes_on_from_its_checkpoint_and_refuses_that_of_dflash() {
    let bench = Bench::new();
    let domino = "--algorithm domino --log-every 3 --schedule-steps 12 --checkpoint state";
    bench.succeed(&format!("{domino} --steps 6 --metrics part.jsonl"));
    bench.succeed(&format!("{domino} --steps 12 --metrics part.jsonl --waits legacy"));
    bench.succeed("--algorithm domino --log-every 3 --schedule-steps 12 --steps 12 --metrics whole.jsonl");
    assert_eq!(bench.losses("part.jsonl"), bench.losses("whole.jsonl"));
    let said = bench.fail("--steps 20 --checkpoint state", 1);
    assert!(said.contains("another model configuration"), "{said}");
}

#[test]
fn every_loss_of_d_pace_trains() {
    let bench = Bench::new();
    let mut losses = Vec::new();
    for kind in ["dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"] {
        bench.succeed(&format!("{SHORT} --loss-type {kind} --dpace-alpha 0.4 --metrics {kind}.jsonl"));
        losses.push(bench.losses(&format!("{kind}.jsonl")));
    }
    assert!(losses[0] != losses[1] && losses[1] != losses[2] && losses[0] != losses[2]);
}

#[test]
fn the_benchmark_has_a_row_for_every_set_with_its_exact_number_of_waits() {
    let bench = Bench::new();
    let mut command = bench.command("bench --measure 2 --data-wait 0 --accumulate 2 --format markdown");
    let output = command.env("SYNCAUDIT_EMU_KERNEL_TIME", "*=1us").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .map(|(name, rest)| (name, rest.split(" |").next().unwrap()))
        .skip(1)
        .collect();
    let expected = [
        ("legacy: all sources", "24"),
        ("without metrics", "20"),
        ("without anchors", "22"),
        ("without scalars", "16"),
        ("without acks", "20"),
        ("without batch-copy", "18"),
        ("only metrics", "4"),
        ("only anchors", "2"),
        ("only scalars", "8"),
        ("only acks", "4"),
        ("only batch-copy", "6"),
        ("none left", "0"),
    ];
    assert_eq!(rows, expected);
    assert!(table.contains("Times are modelled, not measured on a GPU"), "{table}");
    let said = bench.fail("bench --trainers 2 --rollouts 1", 1);
    assert!(said.contains("bench measures one process"), "{said}");
}

#[test]
fn without_a_driver_the_way_to_run_without_a_gpu_is_named() {
    // SAFETY: only loads the library the driver would be; nothing of it is called.
    #[allow(unsafe_code)]
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        println!("skipped: this machine has a driver");
        return;
    }
    let bench = Bench::new();
    let output = bench.command("").env_remove("LD_LIBRARY_PATH").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("syncaudit run --device emulated -- dflash-train"), "{said}");
}
