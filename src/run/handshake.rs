//! Did the tracer get into the program?
//!
//! In: the trace directory. Out: one [`Handshake`] per process image that loaded the tracer, in order. The tracer writes
//! `alive-PID-N` when it is loaded and again when it learns more; each is a list of `key=value` lines, and keys that this
//! version does not know are kept out.

use std::fs;
use std::path::Path;

/// What one process image said of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handshake {
    pub pid: u32,
    pub image: u32,
    /// Version of the CUDA driver API, once CUDA was initialised.
    pub cuda: Option<String>,
    /// Version of CUPTI, once it was subscribed to.
    pub cupti: Option<String>,
    pub nvtx: bool,
    pub emulated: bool,
    /// One sentence per thing that keeps the tracer from seeing everything.
    pub problems: Vec<String>,
}

pub fn read(trace: &Path) -> Vec<Handshake> {
    let mut found: Vec<Handshake> = fs::read_dir(trace)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (pid, image) = name.to_str()?.strip_prefix("alive-")?.split_once('-')?;
            let text = fs::read_to_string(entry.path()).ok()?;
            Some(parse(pid.parse().ok()?, image.parse().ok()?, &text))
        })
        .collect();
    found.sort_by_key(|handshake| (handshake.pid, handshake.image));
    found
}

fn parse(pid: u32, image: u32, text: &str) -> Handshake {
    let mut handshake = Handshake { pid, image, ..Handshake::default() };
    let known = |value: &str| (!matches!(value, "" | "0" | "no" | "none")).then(|| value.to_owned());
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        match key {
            "cuda" => handshake.cuda = known(value),
            "cupti" => handshake.cupti = known(value),
            "nvtx" => handshake.nvtx = known(value).is_some(),
            "emulated" => handshake.emulated = known(value).is_some(),
            "problem" => handshake.problems.extend(known(value)),
            _ => {}
        }
    }
    handshake
}

/// Processes that said hello, or were started to write into this trace and may say it yet, and are still there.
pub fn still_running(handshakes: &[Handshake], trace: &Path) -> Vec<u32> {
    let said_hello = handshakes.iter().map(|handshake| handshake.pid);
    let mut pids: Vec<u32> = said_hello.chain(started_for(trace)).filter(|&pid| is_running(pid)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Processes with this trace in their environment. Those of other users can't be looked at, and they could not write into it.
fn started_for(trace: &Path) -> Vec<u32> {
    let mut variable = b"SYNCAUDIT_TRACE_DIR=".to_vec();
    variable.extend(trace.as_os_str().as_encoded_bytes());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|entry| entry == variable)
        })
        .collect()
}

/// A zombie has ended; it only waits to be asked how.
fn is_running(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state follows the name, which may itself hold brackets and blanks.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_read_in_order_and_foreign_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("alive-20-0"), "tracer=0.1.0\nnvtx=1\ncuda=12080\ncupti=26\nemulated=1\n")
            .unwrap();
        fs::write(dir.path().join("alive-7-1"), "tracer=0.1.0\nproblem=no libcupti\nsomething=new\n")
            .unwrap();
        fs::write(dir.path().join("alive-x"), "").unwrap();
        fs::write(dir.path().join("7-1.salog"), "").unwrap();
        let found = read(dir.path());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].pid, found[0].image), (7, 1));
        assert_eq!(found[0].problems, ["no libcupti"]);
        assert_eq!(found[1].cuda.as_deref(), Some("12080"));
        assert!(found[1].nvtx && found[1].emulated);
    }

    #[test]
    fn a_process_that_was_started_for_the_trace_is_found_before_it_says_hello() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("cat")
            .env("SYNCAUDIT_TRACE_DIR", dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It answers: so it is `cat` by now, and not yet a copy of this program.
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert_eq!(still_running(&[], dir.path()), [child.id()]);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(still_running(&[], dir.path()), [0u32; 0]);
    }

    #[test]
    fn this_process_is_running_and_a_reaped_one_is_not() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let of = |pid| Handshake { pid, ..Handshake::default() };
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(still_running(&[of(std::process::id()), of(pid)], dir.path()), [std::process::id()]);
    }
}
