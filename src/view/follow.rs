//! Reads a recording again while the program that makes it still runs.
//!
//! In: the paths of a trace and how to load it. Out: news for the view, whenever the files have grown, from a thread of its own. It
//! rests at least three times as long as reading takes: the traced program comes first.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::recording::Recording;
use super::terminal::News;

/// How often the files are looked at.
const REST: Duration = Duration::from_millis(300);

/// A thread that reads; it ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins to follow. `ended` says how the program has ended, if it has.
    #[must_use]
    pub fn start(
        tell: Sender<News>,
        paths: Vec<PathBuf>,
        load: impl Fn() -> Result<Recording, String> + Send + 'static,
        ended: impl Fn() -> Option<String> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut seen = u64::MAX;
            let mut rest = REST;
            loop {
                // Asked before reading: what is written until then is read.
                let over = ended();
                let size = paths.iter().map(|path| size(path)).sum();
                if size != seen {
                    seen = size;
                    let begun = Instant::now();
                    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&load))
                        .unwrap_or_else(|_| Err("reading the trace failed; it is tried again".to_owned()));
                    let item = match read {
                        Ok(recording) => News::Recording(Box::new(recording)),
                        Err(text) => News::Said(text),
                    };
                    if tell.send(item).is_err() {
                        return;
                    }
                    rest = REST.max(begun.elapsed() * 3);
                }
                if let Some(words) = over {
                    drop(tell.send(News::Ended(words)));
                    return;
                }
                match stopped.recv_timeout(rest) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// How much there is at a path: records of event logs where there are any, else bytes. What else is in the directory of a run, such as
/// the output of the program, changes no picture.
fn size(path: &Path) -> u64 {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "salog");
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    }
    if files.iter().any(is_log) {
        files.retain(is_log);
    }
    files
        .iter()
        .map(|path| match is_log(path) {
            true => syncaudit_eventlog::committed_bytes(path).unwrap_or(0),
            false => std::fs::metadata(path).map_or(0, |metadata| metadata.len()),
        })
        .sum()
}
