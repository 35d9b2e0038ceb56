//! Which file will be started, and can the tracer be loaded into it?
//!
//! In: the program as the user typed it and the search path. Out: the file and what is known about loading into it, or
//! why it can't be started. Reads the head of files; never starts one.
//!
//! The tracer gets into a process through environment variables that libcuda and NVTX read, and on the emulated device
//! through the dynamic loader's search path. Programs for which the loader ignores its environment (set-user-ID,
//! capabilities: ld.so(8), "secure-execution mode") or that have no loader (static) can't be traced themselves.

use crate::trouble::Trouble;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Program {
    pub path: PathBuf,
    /// Why nothing can be loaded into this very program although it can be started. Programs that it starts in turn may
    /// still be traced (static launchers such as `uv` do that), so it is a reason for an empty trace and no error.
    pub not_traceable: Option<String>,
}

/// Scripts may name scripts as their interpreter; the kernel stops after four.
const MAX_INTERPRETERS: usize = 4;

/// Resolves `name` as `execvp` would. `search_path` is the value of `PATH`.
pub fn resolve(name: &OsStr, search_path: Option<&OsStr>) -> Result<Program, Trouble> {
    let path = find(name, search_path)?;
    let not_traceable = inspect(&path, MAX_INTERPRETERS)?;
    Ok(Program { path, not_traceable })
}

fn find(name: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, Trouble> {
    let shown = name.to_string_lossy();
    if name.is_empty() {
        return Err(Trouble::new(
            "start the program",
            "its name is empty",
            "write the program behind `--`: syncaudit run -- PROGRAM ARGS...",
        ));
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    // What execvp searches when PATH is not set (confstr(_CS_PATH)).
    let search_path = search_path.map_or_else(|| OsString::from("/bin:/usr/bin"), OsStr::to_os_string);
    let mut not_executable = None;
    for folder in std::env::split_paths(&search_path) {
        let candidate =
            if folder.as_os_str().is_empty() { Path::new(".").join(name) } else { folder.join(name) };
        if !candidate.is_file() {
            continue;
        }
        if is_executable(&candidate) {
            return Ok(candidate);
        }
        not_executable.get_or_insert(candidate);
    }
    if let Some(candidate) = not_executable {
        return Ok(candidate); // `inspect` says what is wrong with it
    }
    let todo = if Path::new(name).exists() {
        format!("there is a `{shown}` in this directory; to start it write `./{shown}`")
    } else {
        "check the spelling, or write the path of the program".to_owned()
    };
    Err(Trouble::new(format!("start `{shown}`"), "no such program in any directory of PATH", todo))
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// `Ok(Some(reason))`: can be started, but not traced.
fn inspect(path: &Path, interpreters_left: usize) -> Result<Option<String>, Trouble> {
    let shown = path.display();
    let trouble = |found: String, todo: String| Trouble::new(format!("start `{shown}`"), found, todo);

    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(trouble("there is no such file".into(), "check the path of the program".into()));
        }
        Err(error) => return Err(trouble(error.to_string(), "check the path and its permissions".into())),
    };
    if meta.is_dir() {
        return Err(trouble("it is a directory".into(), "name the program inside it".into()));
    }
    if !meta.is_file() {
        return Err(trouble("it is not a regular file".into(), "name a program".into()));
    }
    if !is_executable(path) {
        return Err(trouble(
            "it is not executable".into(),
            format!(
                "make it so (chmod +x {shown}), or start it through its interpreter, as in `-- python {shown}`"
            ),
        ));
    }
    if meta.mode() & 0o6000 != 0 {
        return Err(trouble(
            "it is set-user-ID or set-group-ID, and for such programs the loader ignores the environment through \
             which the tracer is loaded"
                .into(),
            "run a copy of it without that bit (cp does not keep it)".into(),
        ));
    }
    let mut capabilities = [0u8; 64];
    if rustix::fs::getxattr(path, c"security.capability", &mut capabilities[..]).is_ok() {
        return Err(trouble(
            "it has file capabilities (see getcap), and for such programs the loader ignores the environment through \
             which the tracer is loaded"
                .into(),
            "run a copy of it without them (cp does not keep them)".into(),
        ));
    }

    // An executable that may not be read runs, but we can't say more about it.
    let Ok(mut file) = File::open(path) else { return Ok(None) };
    let mut head = [0u8; 256];
    let mut filled = 0;
    while filled < head.len() {
        match file.read(&mut head[filled..]) {
            Ok(0) | Err(_) => break,
            Ok(n) => filled += n,
        }
    }
    let head = &head[..filled];

    if let Some(line) = head.strip_prefix(b"#!") {
        let Some(interpreter) = interpreter_of(line) else {
            return Err(trouble(
                "its first line names no interpreter".into(),
                "write one, as in `#!/usr/bin/env python3`".into(),
            ));
        };
        if interpreters_left == 0 {
            return Err(trouble(
                "its interpreter is a script whose interpreter is a script, and so on, too often for the kernel".into(),
                "start the last interpreter itself".into(),
            ));
        }
        return inspect(&interpreter, interpreters_left - 1).map_err(|inner| {
            trouble(format!("its first line names `{}`: {inner}", interpreter.display()), "see above".into())
        });
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(trouble(
            "it is neither an ELF program nor a script with a `#!` line".into(),
            format!("start it through its interpreter, as in `-- sh {shown}`"),
        ));
    }
    inspect_elf(&file, head).map_err(|(found, todo)| trouble(found, todo))
}

/// The first word behind `#!`.
fn interpreter_of(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|&byte| byte == b'\n').next()?;
    let word = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// `Err` is what was found and what to do.
fn inspect_elf(file: &File, head: &[u8]) -> Result<Option<String>, (String, String)> {
    let rebuild = || "use a build of it for this machine".to_owned();
    if head.get(4) == Some(&elf::ELFCLASS32.0) {
        return Err((
            "it is a 32-bit program, and the tracer, like the CUDA driver, is 64-bit only".into(),
            "use a 64-bit build of it".into(),
        ));
    }
    let data = ReadCache::new(file);
    let broken = |error: object::read::Error| (format!("its ELF header is damaged ({error})"), rebuild());
    let header = elf::FileHeader64::<Endianness>::parse(&data).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    let machine = header.e_machine(endian);
    if let Some(expected) = this_machine()
        && machine != expected
    {
        return Err((format!("it is built for another machine (ELF machine {})", machine.0), rebuild()));
    }
    let segments = header.program_headers(endian, &data).map_err(broken)?;
    let interpreter = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_INTERP);
    let Some(interpreter) = interpreter else {
        return Ok(Some(
            "it is statically linked, so no library can be loaded into it and only programs that it starts can be \
             traced"
                .into(),
        ));
    };
    let loader = (&data)
        .read_bytes_at(interpreter.p_offset(endian), interpreter.p_filesz(endian))
        .map_err(|()| ("its ELF header is damaged (PT_INTERP)".to_owned(), rebuild()))?;
    let loader = Path::new(OsStr::from_bytes(loader.split(|&byte| byte == 0).next().unwrap_or_default()));
    if !loader.exists() {
        return Err((
            format!("its loader `{}` is not on this machine", loader.display()),
            "install the C library that it was built for, or rebuild it here".into(),
        ));
    }
    let is_musl = loader.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-musl"));
    Ok(is_musl.then(|| {
        "it is linked with musl, and the tracer, like the CUDA driver, needs glibc; only programs that it starts can \
         be traced"
            .into()
    }))
}

fn this_machine() -> Option<elf::Machine> {
    match std::env::consts::ARCH {
        "x86_64" => Some(elf::EM_X86_64),
        "aarch64" => Some(elf::EM_AARCH64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(dir: &Path, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn complaint(path: &Path) -> String {
        resolve(path.as_os_str(), None).expect_err("refused").to_string()
    }

    /// This test program: dynamic, 64-bit, of this machine.
    fn good() -> Vec<u8> {
        fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_dynamic_program_is_fine() {
        let program = resolve(std::env::current_exe().unwrap().as_os_str(), None).unwrap();
        assert_eq!(program.not_traceable, None);
    }

    #[test]
    fn the_search_path_is_searched_and_names_with_a_slash_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let there = file(dir.path(), "prog", 0o755, b"#!/bin/sh\n");
        assert_eq!(resolve(OsStr::new("prog"), Some(dir.path().as_os_str())).unwrap().path, there);
        assert!(resolve(OsStr::new("./prog"), Some(dir.path().as_os_str())).is_err());
        let complaint =
            resolve(OsStr::new("prog-that-is-not"), Some(dir.path().as_os_str())).unwrap_err().to_string();
        assert!(complaint.contains("no such program in any directory of PATH"), "{complaint}");
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(complaint(dir.path()).contains("directory"));
        assert!(complaint(&dir.path().join("gone")).contains("no such file"));
        assert!(complaint(&file(dir.path(), "data", 0o644, &good())).contains("chmod +x"));
        assert!(
            complaint(&file(dir.path(), "text", 0o755, b"echo hello\n")).contains("neither an ELF program")
        );
        assert!(complaint(&file(dir.path(), "empty", 0o755, b"")).contains("neither an ELF program"));
        assert!(complaint(&file(dir.path(), "cut", 0o755, b"\x7fELF\x02\x01\x01")).contains("damaged"));
    }

    #[test]
    fn set_user_id_programs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o4755, 0o2755] {
            assert!(complaint(&file(dir.path(), "suid", mode, &good())).contains("set-user-ID"));
        }
    }

    #[test]
    fn programs_of_other_machines_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = good();
        bytes[4] = elf::ELFCLASS32.0;
        assert!(complaint(&file(dir.path(), "narrow", 0o755, &bytes)).contains("32-bit"));
        let mut bytes = good();
        bytes[18..20].copy_from_slice(&elf::EM_S390.0.to_le_bytes());
        assert!(complaint(&file(dir.path(), "foreign", 0o755, &bytes)).contains("another machine"));
    }

    #[test]
    fn a_program_without_a_loader_runs_but_is_not_traceable() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = good();
        // Without its PT_INTERP a program is a static one as far as the kernel is concerned.
        let endian = Endianness::default();
        let (at, size, count) = {
            let header = elf::FileHeader64::<Endianness>::parse(&bytes[..]).unwrap();
            (
                header.e_phoff(endian) as usize,
                header.e_phentsize(endian) as usize,
                header.e_phnum(endian) as usize,
            )
        };
        for i in 0..count {
            let kind = &mut bytes[at + i * size..][..4];
            if kind == elf::PT_INTERP.0.to_ne_bytes() {
                kind.copy_from_slice(&elf::PT_NULL.0.to_ne_bytes());
            }
        }
        let path = file(dir.path(), "static", 0o755, &bytes);
        let reason = resolve(path.as_os_str(), None).unwrap().not_traceable.expect("not traceable");
        assert!(reason.contains("statically linked"), "{reason}");
    }

    #[test]
    fn scripts_are_followed_to_their_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        assert!(resolve(file(dir.path(), "ok", 0o755, b"#! /bin/sh -e\n").as_os_str(), None).is_ok());
        let text = complaint(&file(dir.path(), "bad", 0o755, b"#!/no/such/python\n"));
        assert!(text.contains("/no/such/python") && text.contains("no such file"), "{text}");
        assert!(complaint(&file(dir.path(), "none", 0o755, b"#!\n")).contains("names no interpreter"));
        let own = dir.path().join("loop");
        let text = complaint(&file(dir.path(), "loop", 0o755, format!("#!{}\n", own.display()).as_bytes()));
        assert!(text.contains("too often"), "{text}");
    }
}
