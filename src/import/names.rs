//! The file `symbols` of a trace directory: names of the native addresses in its logs.
//!
//! In: a trace that `syncaudit run` has just recorded, while the program's files are as they were when they ran. Out: a text that a later report
//! takes its names from, however often the program was built anew since. It is about the logs that it lists and no others, and a file
//! that was damaged gives no name at all: a wrong name would make another place of a known one.

use std::io::Read;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap as HashMap;
use serde::{Deserialize, Serialize};
use syncaudit_eventlog::format::{AT_NONCE, MAGIC};

use crate::audit::fnv1a;
use crate::model::{FrameName, ModuleId, Problem, ProblemKind, StrId, Trace, TraceBuilder};

/// Its name in the trace directory.
pub const FILE: &str = "symbols";
/// First word of the first line.
const WORD: &str = "syncaudit-symbols";
/// The version that is written, and the only one that is read.
const VERSION: &str = "1";

/// The second line.
#[derive(Serialize, Deserialize)]
struct Body {
    /// Name and nonce of each log.
    logs: Vec<(String, u64)>,
    /// What `function` and `file` stand for by number.
    texts: Vec<String>,
    modules: Vec<ModuleNames>,
}

#[derive(Serialize, Deserialize)]
struct ModuleNames {
    path: String,
    build_id: Vec<u8>,
    /// By address; for each the functions, what was inlined first.
    addresses: Vec<(u64, Vec<NameAt>)>,
}

/// Function, file (both by number), line.
type NameAt = (usize, usize, u32);

/// The text of the file for a trace that is in that directory and has its names; `None` where there is no name to keep.
#[must_use]
pub fn text(directory: &Path, trace: &Trace) -> Option<String> {
    let mut texts = Vec::new();
    let mut numbers: HashMap<StrId, usize> = HashMap::default();
    let mut number = |id: StrId| {
        *numbers.entry(id).or_insert_with(|| {
            texts.push(trace.str(id).to_owned());
            texts.len() - 1
        })
    };
    let mut keys: Vec<(ModuleId, u64)> = trace.names.keys().copied().collect();
    keys.sort_unstable();
    let mut modules = Vec::new();
    for of_module in keys.chunk_by(|a, b| a.0 == b.0) {
        let Some(module) = of_module[0].0.get().and_then(|index| trace.modules.get(index)) else { continue };
        let mut at = |key: &(ModuleId, u64)| {
            let names = trace.names[key].iter();
            (key.1, names.map(|name| (number(name.function), number(name.file), name.line)).collect())
        };
        modules.push(ModuleNames {
            path: trace.str(module.path).to_owned(),
            build_id: module.build_id.clone(),
            addresses: of_module.iter().map(&mut at).collect(),
        });
    }
    if modules.is_empty() {
        return None;
    }
    let logs = super::eventlog::logs_in(directory).ok()?;
    let logs = logs.iter().filter_map(|log| Some((name_of(log), nonce(log)?))).collect();
    let body = serde_json::to_string(&Body { logs, texts, modules }).ok()?;
    Some(format!("{WORD} {VERSION} {:016x}\n{body}\n", fnv1a(body.bytes())))
}

/// Gives the trace the names that lie beside these logs of it.
pub(super) fn read(directory: &Path, logs: &[PathBuf], trace: &mut TraceBuilder) {
    let Ok(bytes) = std::fs::read(directory.join(FILE)) else { return };
    match parse(&bytes).and_then(|body| body.fits(logs).map(|()| body)) {
        Ok(body) => body.give(trace),
        Err(why) => trace.problem(Problem::new(
            ProblemKind::Symbols,
            format!(
                "the file '{FILE}' in the trace can't be used: {why}; names are looked up in the program's own files instead"
            ),
        )),
    }
}

fn parse(bytes: &[u8]) -> Result<Body, String> {
    let damaged = || "it is damaged".to_owned();
    let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
    let (first, rest) = text.split_once('\n').ok_or_else(damaged)?;
    let mut words = first.split(' ');
    if words.next() != Some(WORD) {
        return Err(format!("it does not begin with '{WORD}'"));
    }
    match words.next() {
        Some(VERSION) => {}
        Some(other) => {
            return Err(format!("it is of version {other}, and this command reads version {VERSION}"));
        }
        None => return Err(damaged()),
    }
    let check = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
    let body = rest.strip_suffix('\n').ok_or_else(damaged)?;
    if check != Some(fnv1a(body.bytes())) {
        return Err(damaged());
    }
    serde_json::from_str(body).map_err(|_| damaged())
}

impl Body {
    /// Whether it is about these logs. What began after it was written is not in it, and needs not be.
    fn fits(&self, logs: &[PathBuf]) -> Result<(), String> {
        let listed: HashMap<&str, u64> =
            self.logs.iter().map(|(name, nonce)| (name.as_str(), *nonce)).collect();
        let foreign = |log: &&PathBuf| {
            let listed = listed.get(name_of(log).as_str());
            listed.is_some_and(|listed| nonce(log).is_some_and(|nonce| nonce != *listed))
        };
        let own = |log: &PathBuf| listed.get(name_of(log).as_str()).copied() == nonce(log);
        match logs.iter().find(foreign) {
            Some(log) => Err(format!("it is of another trace ({} is another log)", name_of(log))),
            None if !logs.is_empty() && !logs.iter().any(own) => {
                Err("it is of another trace (it names none of these logs)".to_owned())
            }
            None => Ok(()),
        }
    }

    fn give(&self, trace: &mut TraceBuilder) {
        let texts: Vec<StrId> = self
            .texts
            .iter()
            .map(|text| if text.is_empty() { StrId::NONE } else { trace.intern(text) })
            .collect();
        let text = |number: usize| texts.get(number).copied().unwrap_or_default();
        for module in &self.modules {
            let id = trace.module(&module.path, &module.build_id);
            for (address, names) in &module.addresses {
                let names = names.iter().map(|&(function, file, line)| FrameName {
                    function: text(function),
                    file: text(file),
                    line,
                });
                trace.names.insert((id, *address), names.collect());
            }
        }
    }
}

fn name_of(log: &Path) -> String {
    log.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What tells a log from all others.
pub(super) fn nonce(log: &Path) -> Option<u64> {
    let mut head = [0; AT_NONCE + 8];
    std::fs::File::open(log).ok()?.read_exact(&mut head).ok()?;
    let (magic, nonce) = (head.first_chunk()?, head.last_chunk()?);
    (*magic == MAGIC).then(|| u64::from_le_bytes(*nonce))
}
