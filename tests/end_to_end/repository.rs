//! What the repository says of itself is true.

use crate::support::{Outcome, Place, built};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_crate_we_depend_on_is_explained_and_no_other() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let used: BTreeSet<String> = manifest["workspace"]["dependencies"]
        .as_table()
        .unwrap()
        .iter()
        .filter(|(_, value)| value.get("path").is_none())
        .map(|(name, _)| name.clone())
        .collect();
    let explained: BTreeSet<String> = read("docs/dependencies.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next().map(str::to_owned))
        .filter(|name| name != "crate")
        .collect();
    assert_eq!(used, explained);
}

#[test]
fn every_variable_that_the_command_sets_is_documented() {
    let environment = read("docs/environment.md");
    for variable in [
        "SYNCAUDIT_TRACE_DIR",
        "SYNCAUDIT_CUPTI",
        "SYNCAUDIT_GPU_TIMELINE",
        "SYNCAUDIT_EMU_KERNEL_TIME",
        "SYNCAUDIT_LIB_DIR",
        "CUDA_INJECTION64_PATH",
        "NVTX_INJECTION64_PATH",
        "LD_LIBRARY_PATH",
    ] {
        assert!(environment.contains(variable), "{variable} in docs/environment.md");
    }
}

/// The lines of each fenced block that begins with `$ syncaudit run`, the command without its first two words and all.
fn sessions() -> Vec<(String, Vec<String>)> {
    let readme = read("README.md");
    readme
        .split("```\n")
        .filter_map(|block| block.strip_prefix("$ syncaudit run "))
        .filter_map(|block| block.split_once('\n'))
        .map(|(command, output)| (command.to_owned(), output.lines().map(str::to_owned).collect()))
        .collect()
}

#[test]
fn the_readme_shows_what_the_commands_in_it_print() {
    let place = Place::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([built().to_path_buf()].into_iter().chain(std::env::split_paths(&path)))
        .unwrap();
    let sessions = sessions();
    assert_eq!(sessions.len(), 2);
    for (words, shown) in sessions {
        let report = place.path().join("report.txt");
        let mut command = place.command();
        // Source lines are shown relative to the repository, and read from it.
        command.current_dir(env!("CARGO_MANIFEST_DIR")).env("PATH", &path);
        command.arg("run").arg("-o").arg(&report).args(words.split(' '));
        let outcome = Outcome::of(command.output().unwrap());
        let printed = fs::read_to_string(&report).unwrap();
        let mut lines = printed.lines();
        for line in shown.iter().filter(|line| line.trim() != "...") {
            assert!(
                lines.any(|printed| printed == line),
                "README.md shows `{line}` for `{words}`, which prints\n{printed}\n{}",
                outcome.stderr
            );
        }
    }
}
