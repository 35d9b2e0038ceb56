//! The gate over made-up runs: what fails, what doesn't, and what survives a change of the code.

use std::path::Path;

use proptest::prelude::*;
use syncaudit::audit::{AuditOptions, Level, Verdict, WaitKind, audit};
use syncaudit::config;
use syncaudit::gate::{
    Against, Baseline, Code, Date, Entry, Judged, Place, Rules, Runs, Severity, judge, judge_runs,
    program_name,
};
use syncaudit::model::{CallData, PythonFrame, Source, TraceBuilder};
use syncaudit::{Audit, model::Trace};

/// One wait of every step (or of some).
#[derive(Clone, Debug)]
struct Wait {
    line: u32,
    function: &'static str,
    /// Around the wait, inside of the step; empty for none.
    range: &'static str,
    api: &'static str,
    /// Steps that have it; `None`: all.
    steps: Option<Vec<u64>>,
}

fn wait(line: u32, function: &'static str) -> Wait {
    Wait { line, function, range: "forward", api: "cudaDeviceSynchronize", steps: None }
}

#[derive(Clone, Debug)]
struct Program {
    waits: Vec<Wait>,
    folder: &'static str,
    /// Innermost frames, of the framework: function and line.
    library: Vec<(&'static str, u32)>,
    ranks: u32,
    /// How much later the clock of each further rank is.
    skew_ns: u64,
    range: &'static str,
}

fn program(waits: &[Wait]) -> Program {
    Program {
        waits: waits.to_vec(),
        folder: "/home/me/project",
        library: Vec::new(),
        ranks: 1,
        skew_ns: 0,
        range: "step",
    }
}

impl Program {
    /// Eight steps: two of warm-up, the last one logs.
    fn trace(&self) -> Trace {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = true;
        builder.source.program = vec!["python".into(), format!("{}/train.py", self.folder)];
        let file = builder.intern(&format!("{}/train.py", self.folder));
        let torch = builder.intern(&format!("{}/lib/python3.12/site-packages/torch/_tensor.py", self.folder));
        let stacks: Vec<_> = self
            .waits
            .iter()
            .map(|wait| {
                let mut frames: Vec<PythonFrame> = self
                    .library
                    .iter()
                    .map(|&(function, line)| PythonFrame {
                        file: torch,
                        function: builder.intern(function),
                        line,
                    })
                    .collect();
                let (function, main) = (builder.intern(wait.function), builder.intern("main"));
                frames.push(PythonFrame { file, function, line: wait.line });
                frames.push(PythonFrame { file, function: main, line: 500 + wait.line });
                builder.python.intern(&frames)
            })
            .collect();
        for rank in 0..self.ranks {
            let mut process = builder.process(u64::from(rank) + 1);
            if self.ranks > 1 {
                process.data().rank = Some(rank);
            }
            let mut thread = process.thread(u64::from(rank) + 1);
            // A program that never waits uses the device all the same.
            thread.call("cudaMalloc", 1, 2, CallData::default());
            for step in 0..8u64 {
                let start = u64::from(rank) * self.skew_ns + 1_000 * (step + 1);
                thread.push(start, &format!("{} {step}", self.range), None);
                if step == 7 {
                    thread.push(start + 1, "log", None);
                    thread.pop(start + 2);
                }
                for (at, (wait, &python)) in self.waits.iter().zip(&stacks).enumerate() {
                    if wait.steps.as_ref().is_some_and(|steps| !steps.contains(&step)) {
                        continue;
                    }
                    let start = start + 10 * (at as u64 + 1);
                    if !wait.range.is_empty() {
                        thread.push(start, wait.range, None);
                    }
                    thread.call(wait.api, start + 1, start + 2, CallData { python, ..CallData::default() });
                    if !wait.range.is_empty() {
                        thread.pop(start + 3);
                    }
                }
                thread.pop(start + 900);
            }
        }
        builder.finish()
    }

    fn audit(&self) -> Audit {
        let audit = audit(&self.trace(), &AuditOptions::default());
        audit.reconcile().unwrap();
        audit
    }

    fn baseline(&self) -> Baseline {
        Baseline::of(&self.audit(), |_| true)
    }

    fn fingerprints(&self) -> Vec<String> {
        let mut all: Vec<String> = self.audit().sites.into_iter().map(|site| site.fingerprint).collect();
        all.sort_unstable();
        all
    }

    fn against(&self, baseline: &Baseline) -> Judged {
        self.judged(&AuditOptions::default(), &Rules::default(), Some(baseline))
    }

    fn judged(&self, options: &AuditOptions, rules: &Rules, baseline: Option<&Baseline>) -> Judged {
        let against = baseline.map(|baseline| Against { baseline, path: Path::new("b") });
        let judged = judge(self.audit(), options, rules, against, day("2026-06-01"));
        judged.audit.reconcile().unwrap();
        judged
    }
}

fn day(text: &str) -> Date {
    text.parse().unwrap()
}

fn codes(judged: &Judged) -> Vec<Code> {
    judged.findings.iter().map(|finding| finding.code).collect()
}

fn new_ones(judged: &Judged) -> Vec<u32> {
    let new = judged.findings.iter().filter(|finding| finding.code == Code::NewWait);
    new.map(|finding| finding.place.as_ref().unwrap().line).collect()
}

#[test]
fn a_fingerprint_survives_moved_lines_another_machine_and_another_patch_of_the_framework() {
    let before = program(&[wait(10, "loss"), wait(12, "loss"), wait(40, "clip")]);
    let mut after = program(&[wait(110, "loss"), wait(119, "loss"), wait(7, "clip")]);
    after.folder = "/mnt/runner/work";
    assert_eq!(before.fingerprints(), after.fingerprints());
    assert_eq!(before.fingerprints().len(), 3, "two waits in one function stay two");
    let mut patched = before.clone();
    patched.library = vec![("item", 981)];
    let mut patched_again = before.clone();
    patched_again.library = vec![("_item_impl", 1204), ("item", 990)];
    assert_eq!(patched.fingerprints(), before.fingerprints());
    assert_eq!(patched_again.fingerprints(), before.fingerprints());
    assert_eq!(codes(&after.against(&before.baseline())), [Code::KnownWait; 3]);
}

/// A trace of what was typed, in which these command lines called CUDA.
fn named(typed: &[&str], traced: &[&[&str]]) -> String {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let source = Source {
        program: owned(typed),
        commands: traced.iter().map(|words| owned(words)).collect(),
        ..Source::default()
    };
    program_name(&source)
}

#[test]
fn a_program_has_one_name_however_it_is_started() {
    let train: &[&str] = &["/usr/bin/python3", "-u", "/b/train.py", "--rank"];
    let worker: &[&str] = &["/usr/bin/python3", "-c", "from multiprocessing.spawn import spawn_main"];
    for (typed, traced, name) in [
        (&["python", "train.py"][..], &[train][..], "train.py"),
        (&["python", "train.py"], &[worker], "train.py"),
        (&["torchrun", "--nproc", "2", "train.py"], &[train, train], "train.py"),
        (&["sh", "-c", "cd a && X=1 python train.py"], &[train, worker], "train.py"),
        (&["timeout", "60", "python", "train.py"], &[train], "train.py"),
        (&["./ci/train.sh"], &[&["/b/dflash-train", "--steps"]], "dflash-train"),
        (&["env", "X=1", "a"], &[&["helper"], &["a"], &["a"]], "a"),
        (&["env", "X=1", "a"], &[&["b"], &["a"]], "a"),
        (&["dflash-train"], &[&["/b/helper"], &["/b/dflash-train"]], "dflash-train"),
        // A script that a package installed.
        (&["finetune"], &[&["/venv/bin/python", "/venv/bin/finetune", "x"]], "finetune"),
        // Nothing better is known.
        (&["sh", "-c", "python -c ..."], &[worker], "sh"),
        (&["sh", "-c", "a"], &[], "sh"),
        (&[], &[], ""),
    ] {
        assert_eq!(named(typed, traced), name, "{typed:?} {traced:?}");
    }
}

#[test]
fn a_wait_added_above_others_of_its_function_is_exactly_one_new_one() {
    let before = program(&[wait(10, "loss"), wait(20, "loss")]);
    for line in [5, 15, 25] {
        let mut waits = before.waits.clone();
        waits.push(wait(line, "loss"));
        let judged = program(&waits).against(&before.baseline());
        assert_eq!(codes(&judged), [Code::NewWait, Code::KnownWait, Code::KnownWait], "at line {line}");
        assert_eq!(judged.audit.verdict, Verdict::Fail);
        let message = &judged.findings[0].message;
        assert!(message.contains("told apart by their order only"), "{message}");
    }
    let judged = program(&[wait(10, "loss")]).against(&before.baseline());
    assert_eq!(codes(&judged), [Code::FixedWait, Code::KnownWait]);
    assert_eq!(judged.audit.verdict, Verdict::Pass);
}

#[test]
fn more_of_a_known_wait_fails_and_less_of_it_asks_for_a_tighter_baseline() {
    let once = program(&[wait(10, "loss")]);
    let thrice = program(&[wait(10, "loss"), wait(10, "loss"), wait(10, "loss")]);
    let judged = thrice.against(&once.baseline());
    assert_eq!((codes(&judged), judged.audit.verdict), (vec![Code::GrownWait], Verdict::Fail));
    let judged = once.against(&thrice.baseline());
    assert_eq!((codes(&judged), judged.audit.verdict), (vec![Code::ShrunkWait], Verdict::Pass));
    assert!(judged.audit.next.iter().any(|next| next.contains("--update")), "{:?}", judged.audit.next);
}

#[test]
fn a_wait_whose_range_was_taken_away_is_moved_and_a_fixed_one_hides_no_new_one() {
    let before = program(&[wait(10, "loss")]);
    // The same function directly in the step: the range around it was taken away.
    let unwrapped = program(&[Wait { range: "", ..wait(10, "loss") }]);
    let judged = unwrapped.against(&before.baseline());
    assert_eq!((codes(&judged), judged.audit.verdict), (vec![Code::MovedWait], Verdict::Pass));
    let (updated, update) = before.baseline().updated(&unwrapped.baseline(), &unwrapped.audit(), None);
    assert_eq!((update.moved.len(), codes(&unwrapped.against(&updated))), (1, vec![Code::KnownWait]));
    // The same function in an unrelated range is another use of it.
    let used_elsewhere = program(&[Wait { range: "backward", ..wait(10, "loss") }]);
    assert_eq!(new_ones(&used_elsewhere.against(&before.baseline())), [10]);
    let elsewhere = program(&[wait(30, "metrics")]);
    let judged = elsewhere.against(&before.baseline());
    assert_eq!(codes(&judged), [Code::NewWait, Code::FixedWait]);
    assert_eq!(judged.audit.verdict, Verdict::Fail);
}

#[test]
fn waits_of_warm_up_log_steps_and_outside_never_fail_and_are_in_no_baseline() {
    let known = program(&[]).baseline();
    let beside = program(&[
        Wait { steps: Some(vec![0, 1]), ..wait(10, "warm") },
        Wait { steps: Some(vec![7]), ..wait(20, "log") },
    ]);
    let judged = beside.against(&known);
    assert_eq!((codes(&judged), judged.audit.verdict), (vec![], Verdict::Pass));
    assert_eq!(beside.baseline().entries, []);
    // And one that ordinary steps have as well is new however often the others have it.
    let everywhere = program(&[wait(10, "warm")]).against(&known);
    assert_eq!(codes(&everywhere), [Code::NewWait]);
}

#[test]
fn a_place_that_the_run_never_reached_is_neither_fixed_nor_taken_out() {
    // Only every other step evaluates, in a range of its own.
    let evaluates = program(&[Wait { steps: Some(vec![3, 5]), range: "eval", ..wait(10, "accuracy") }]);
    let baseline = evaluates.baseline();
    let short = program(&[]);
    assert_eq!(codes(&short.against(&baseline)), [Code::BaselineNotReached]);
    let (updated, update) = baseline.updated(&short.baseline(), &short.audit(), None);
    assert_eq!((updated.entries.len(), update.not_reached.len(), update.removed.len()), (1, 1, 0));
    // A wait of every step is gone when steps are there and it is not.
    let always = program(&[wait(10, "loss")]).baseline();
    assert_eq!(codes(&short.against(&always)), [Code::FixedWait]);
    let (updated, update) = always.updated(&short.baseline(), &short.audit(), None);
    assert_eq!((updated.entries.len(), update.removed.len()), (0, 1));
}

#[test]
fn a_trace_without_steps_says_nothing_about_the_baseline() {
    let baseline = program(&[wait(10, "loss")]).baseline();
    let mut nameless = program(&[wait(10, "loss")]);
    nameless.range = "something";
    let judged = nameless.against(&baseline);
    assert_eq!(judged.audit.verdict, Verdict::Inconclusive);
    assert_eq!(codes(&judged), [Code::Inconclusive, Code::BaselineNotReached]);
    let empty = judge(
        audit(&Trace::default(), &AuditOptions::default()),
        &AuditOptions::default(),
        &Rules::default(),
        None,
        day("2026-06-01"),
    );
    assert_eq!((codes(&empty), empty.audit.verdict), (vec![Code::Inconclusive], Verdict::Inconclusive));
}

#[test]
fn ranks_with_clocks_that_are_off_are_judged_as_if_they_were_not() {
    let mut here = program(&[wait(10, "loss"), wait(20, "clip")]);
    here.ranks = 3;
    let baseline = program(&[wait(10, "loss")]).baseline();
    let even = here.against(&baseline);
    here.skew_ns = 3_600_000_000_000;
    let skewed = here.against(&baseline);
    assert_eq!((&even.findings, even.audit.verdict), (&skewed.findings, skewed.audit.verdict));
    assert_eq!(codes(&skewed), [Code::NewWait, Code::KnownWait]);
}

#[test]
fn a_kind_that_only_warns_is_said_and_fails_nothing() {
    let mut options = AuditOptions::default();
    options.severity.insert(WaitKind::DeviceSync, Level::Warn);
    let empty = Baseline::default();
    let new = program(&[wait(10, "loss")]);
    let judged = new.judged(&options, &Rules::default(), Some(&empty));
    assert_eq!((judged.findings[0].code, judged.findings[0].severity), (Code::NewWait, Severity::Warn));
    assert_eq!(judged.audit.verdict, Verdict::Pass);
    options.severity.insert(WaitKind::DeviceSync, Level::Off);
    assert_eq!(codes(&new.judged(&options, &Rules::default(), Some(&empty))), []);
}

fn rules(text: &str) -> Rules {
    config::parse(Path::new("syncaudit.toml"), text).unwrap().rules
}

#[test]
fn entries_cover_by_fingerprint_or_by_all_of_their_patterns() {
    let two = program(&[wait(10, "loss"), wait(20, "clip")]);
    let fingerprint =
        two.audit().sites.iter().find(|site| site.functions[0] == "clip").unwrap().fingerprint.clone();
    let options = AuditOptions::default();
    for (text, covered) in [
        (format!("fingerprint = '{fingerprint}'"), vec![20]),
        ("function = 'clip'".to_owned(), vec![20]),
        ("function = 'cl*|lo*'".to_owned(), vec![10, 20]),
        ("function = 'clip'\nkind = 'polling'".to_owned(), vec![]),
        ("range = 'forward'\nkind = 'device-sync'".to_owned(), vec![10, 20]),
        ("range = 'step'".to_owned(), vec![10, 20]),
        ("function = 'cli'".to_owned(), vec![]),
        ("op = '*'".to_owned(), vec![]),
    ] {
        let judged = two.judged(&options, &rules(&format!("[[allow]]\n{text}\nreason = 'r'\n")), None);
        let allowed = judged.findings.iter().filter(|finding| finding.code == Code::AllowedWait);
        let mut lines: Vec<u32> = allowed.map(|finding| finding.place.as_ref().unwrap().line).collect();
        lines.sort_unstable();
        assert_eq!(lines, covered, "{text}");
        assert_eq!(judged.audit.verdict == Verdict::Pass, covered.len() == 2, "{text}");
    }
}

#[test]
fn an_entry_with_a_limit_is_judged_by_it_and_an_expired_one_is_not_made_up_for_by_the_baseline() {
    let twice = program(&[wait(10, "loss"), wait(10, "loss")]);
    let options = AuditOptions::default();
    let limited =
        |most: u64| rules(&format!("[[allow]]\nkind = 'device-sync'\nreason = 'r'\nmax-per-step = {most}\n"));
    assert_eq!(codes(&twice.judged(&options, &limited(2), None)), [Code::AllowedWait]);
    let judged = twice.judged(&options, &limited(1), None);
    assert_eq!((codes(&judged), judged.audit.verdict), (vec![Code::AllowExceeded], Verdict::Fail));
    let expired = rules("[[allow]]\nkind = 'device-sync'\nreason = 'r'\nexpires = 2026-05-31\n");
    let judged = twice.judged(&options, &expired, Some(&twice.baseline()));
    assert_eq!((codes(&judged), judged.audit.verdict), (vec![Code::AllowExpired], Verdict::Fail));
    let renewed = rules("[[allow]]\nkind = 'device-sync'\nreason = 'r'\nexpires = 2026-06-01\n");
    assert_eq!(codes(&twice.judged(&options, &renewed, None)), [Code::AllowedWait], "its last day counts");
}

#[test]
fn an_entry_that_covers_nothing_is_told_gone_from_not_reached() {
    let run = program(&[wait(10, "loss")]);
    let gone = program(&[wait(10, "loss"), wait(20, "clip")]);
    let baseline = gone.baseline();
    let fingerprint = baseline.entries.iter().find(|e| e.place.functions[0] == "clip").unwrap().fingerprint();
    let options = AuditOptions::default();
    let unmatched = |text: &str, baseline: Option<&Baseline>| {
        let rules =
            rules(&format!("[[allow]]\n{text}\nreason = 'r'\n[[allow]]\nfunction = 'loss'\nreason = 'r'\n"));
        let judged = run.judged(&options, &rules, baseline);
        let about =
            judged.findings.iter().find(|finding| finding.written.as_ref().is_some_and(|w| w.line == 1));
        about.map(|finding| (finding.code, finding.severity))
    };
    assert_eq!(
        unmatched("range = 'forward'\nkind = 'polling'", None),
        Some((Code::AllowGone, Severity::Warn))
    );
    assert_eq!(unmatched("range = 'eval'", None), Some((Code::AllowNotReached, Severity::Note)));
    assert_eq!(
        unmatched("range = 'forward'\nfunction = 'nobody'", None),
        Some((Code::AllowNotReached, Severity::Note))
    );
    assert_eq!(unmatched("kind = 'polling'", None), Some((Code::AllowGone, Severity::Warn)));
    let by_fingerprint = format!("fingerprint = '{fingerprint}'");
    assert_eq!(unmatched(&by_fingerprint, None), Some((Code::AllowNotReached, Severity::Note)));
    assert_eq!(
        unmatched(&by_fingerprint, Some(&baseline)),
        Some((Code::AllowGone, Severity::Warn)),
        "the baseline explains what the fingerprint is of"
    );
}

#[test]
fn what_flickers_between_runs_is_not_new_and_what_all_runs_have_is() {
    let (with, without) = (program(&[wait(10, "loss"), wait(20, "grow")]), program(&[wait(10, "loss")]));
    let baseline = program(&[]).baseline();
    let judged = |runs: &[&Program], mode: Runs| {
        let runs = runs.iter().map(|run| run.audit()).collect();
        let rules = Rules { runs: mode, ..Rules::default() };
        let against = Against { baseline: &baseline, path: Path::new("b") };
        let judged =
            judge_runs(runs, &AuditOptions::default(), &rules, Some(against), day("2026-06-01")).unwrap();
        judged.audit.reconcile().unwrap();
        judged
    };
    assert_eq!(codes(&judged(&[&with, &without], Runs::All)), [Code::NewWait, Code::FlickeringWait]);
    assert_eq!(codes(&judged(&[&without, &with], Runs::All)), [Code::NewWait, Code::FlickeringWait]);
    assert_eq!(codes(&judged(&[&with, &with], Runs::All)), [Code::NewWait; 2]);
    for order in [[&with, &without], [&without, &with]] {
        assert_eq!(codes(&judged(&order, Runs::Any)), [Code::NewWait; 2]);
    }
    // A run that says nothing leaves "all" without an answer, unless the others prove too much.
    let mut nameless = without.clone();
    nameless.range = "something";
    assert_eq!(judged(&[&program(&[]), &nameless], Runs::All).audit.verdict, Verdict::Inconclusive);
}

fn name() -> impl Strategy<Value = String> {
    // Anything that a program may call its ranges and functions, separators of the file included.
    prop_oneof![
        "[a-z]{1,8}",
        Just("-".to_owned()),
        Just("a > b".to_owned()),
        Just("operator<".to_owned()),
        Just("f < g".to_owned()),
        Just("tab\there\nand \\ there\r".to_owned()),
        Just("#x".to_owned()),
        Just("<<<<<<< ours".to_owned()),
        any::<String>().prop_filter("a name", |name| !name.is_empty()),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let place = (
        0..WaitKind::ALL.len(),
        prop::collection::vec(name(), 0..4),
        prop::collection::vec(name(), 0..5),
        prop::option::of(name()),
        prop::collection::vec(name(), 1..3),
    );
    let place = place.prop_map(|(kind, range, functions, op, calls)| Place {
        kind: WaitKind::ALL[kind],
        range,
        functions,
        op,
        calls,
    });
    let entry = (place, 0u32..3, 1u64..5, any::<bool>(), prop::option::of(name()));
    let entry = entry.prop_map(|(place, ordinal, per_step, every_step, reason)| Entry {
        place,
        ordinal,
        per_step,
        every_step,
        reason,
        line: 0,
    });
    prop::collection::vec(entry, 0..12)
}

proptest! {
    #[test]
    fn a_baseline_reads_back_as_it_was_written_and_again_as_the_same_bytes(entries in entries()) {
        let path = Path::new("b");
        let text = Baseline { program: "train.py".to_owned(), entries }.to_string();
        let read = Baseline::parse(path, &text).unwrap();
        let again = read.to_string();
        let twice = Baseline::parse(path, &again).unwrap();
        prop_assert_eq!(twice.to_string(), again);
        let places = |baseline: &Baseline| -> Vec<(Place, u32, u64)> {
            baseline.entries.iter().map(|e| (e.place.clone(), e.ordinal, e.per_step)).collect()
        };
        prop_assert_eq!(places(&read), places(&twice));
    }

    #[test]
    fn a_baseline_with_a_changed_byte_is_refused_or_accepts_no_other_place(
        entries in entries(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let path = Path::new("b");
        let text = Baseline { program: String::new(), entries }.to_string();
        let known: Vec<String> =
            Baseline::parse(path, &text).unwrap().entries.iter().map(Entry::fingerprint).collect();
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Baseline::parse(path, &String::from_utf8_lossy(&bytes)) {
            for entry in &read.entries {
                prop_assert!(known.contains(&entry.fingerprint()), "{}", entry.place);
            }
        }
    }

    #[test]
    fn an_update_never_loosens(old in prop::collection::vec((1u32..6, 0usize..3), 0..6), new in prop::collection::vec((1u32..6, 0usize..3), 0..6)) {
        const FUNCTIONS: [&str; 3] = ["loss", "clip", "metrics"];
        let program_of = |waits: &[(u32, usize)]| {
            program(&waits.iter().map(|&(line, function)| wait(line, FUNCTIONS[function])).collect::<Vec<_>>())
        };
        let (before, now) = (program_of(&old), program_of(&new));
        let baseline = before.baseline();
        let (updated, _) = baseline.updated(&now.baseline(), &now.audit(), None);
        // What fails against the old file fails against the new one, and what passes passes.
        let verdict = |baseline: &Baseline| now.against(baseline).audit.verdict;
        prop_assert_eq!(verdict(&baseline), verdict(&updated));
        let sum = |baseline: &Baseline| baseline.entries.iter().map(|entry| entry.per_step).sum::<u64>();
        prop_assert!(sum(&updated) <= sum(&baseline));
        // With a reason everything is accepted, and an update is then a fixed point.
        let (accepted, _) = baseline.updated(&now.baseline(), &now.audit(), Some("because"));
        prop_assert_eq!(verdict(&accepted), Verdict::Pass);
        let (again, _) = accepted.updated(&now.baseline(), &now.audit(), None);
        prop_assert_eq!(again.to_string(), accepted.to_string());
    }
}
