//! What the repository says of itself is true.

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
