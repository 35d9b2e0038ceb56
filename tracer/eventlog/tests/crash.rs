//! Whatever happens to the writing process, what was written can be read, and the process is not harmed.
//!
//! The writing side runs in a process of its own: this test binary, started again with the name of a role. It
//! acknowledges each record on stderr after writing it.
#![cfg(unix)]

mod common;

use common::Random;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use syncaudit_eventlog::*;

const ROLE: &str = "EVENTLOG_TEST_ROLE";
const FOLDER: &str = "EVENTLOG_TEST_FOLDER";
/// Exit status of a role that this machine can't play.
const CANNOT: i32 = 77;

fn start(role: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a role to its end; returns its status and what it said on stderr.
fn run(role: &str, folder: &Path) -> (ExitStatus, Vec<u8>) {
    let output = start(role, folder).wait_with_output().unwrap();
    (output.status, output.stderr)
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "salog"));
    paths.sort();
    paths
}

/// The numbered records of each thread.
fn numbers(file: &LogFile) -> BTreeMap<u64, Vec<u64>> {
    let mut numbers = BTreeMap::new();
    for thread in file.threads() {
        let of_thread: &mut Vec<u64> = numbers.entry(thread.os_tid()).or_default();
        for record in thread.records() {
            if let Record::Mark { t_ns, attributes } = record {
                let text = file.str(attributes.name).expect("a name that was defined before its use");
                assert!(text.starts_with(b"record "));
                of_thread.push(t_ns);
            }
        }
    }
    numbers
}

fn write_number(log: &mut ThreadLog<'_>, number: u64) -> bool {
    // A new text now and then, so that definitions are in the race too.
    let name = log.str(format!("record {}", number / 16).as_bytes());
    let attributes = RangeAttributes { name, payload: Payload::U64(number), ..Default::default() };
    log.write(&Record::Mark { t_ns: number, attributes })
}

fn acknowledge(number: u64) {
    let mut message = [0; 16];
    message[..8].copy_from_slice(&os_thread_id().to_le_bytes());
    message[8..].copy_from_slice(&number.to_le_bytes());
    std::io::stderr().write_all(&message).unwrap();
}

fn acknowledged(bytes: &[u8]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for message in bytes.as_chunks::<16>().0 {
        let tid = u64::from_le_bytes(message[..8].try_into().unwrap());
        let number = u64::from_le_bytes(message[8..].try_into().unwrap());
        let count = counts.entry(tid).or_insert(0);
        assert_eq!(number, *count, "acknowledgements of a thread come in order");
        *count += 1;
    }
    counts
}

/// Everything acknowledged is there, in order, without a hole.
fn assert_holds(file: &LogFile, acknowledged: &BTreeMap<u64, u64>) {
    assert_eq!(file.warnings(), []);
    assert_eq!(file.header().losses, []);
    let numbers = numbers(file);
    for (tid, count) in acknowledged {
        let read = &numbers[tid];
        assert!(read.len() as u64 >= *count, "{} of {count} records of thread {tid}", read.len());
        assert!(read.iter().copied().eq(0..read.len() as u64));
    }
}

/// The writing side. Does nothing when the tests run as usual.
#[test]
fn role() {
    let (Ok(role), Some(folder)) = (std::env::var(ROLE), std::env::var_os(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    // Leaving this function would let the test harness say something.
    let code = match role.as_str() {
        "write for ever" => write_for_ever(&folder),
        "abort" | "_exit" | "exit" => end_by(&role, &folder),
        "fork" => fork(&folder),
        "file size limit" => file_size_limit(&folder),
        "close everything" => close_everything(&folder),
        "full disk" => full_disk(&folder),
        _ => panic!("no role {role}"),
    };
    exit_now(code);
}

#[allow(unsafe_code)]
fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process without running anything further.
    unsafe { libc::_exit(code) }
}

fn write_for_ever(folder: &Path) -> i32 {
    let writer = LogWriter::create(folder, Options::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut log = writer.thread();
                for number in 0.. {
                    assert!(write_number(&mut log, number));
                    acknowledge(number);
                }
            });
        }
    });
    0
}

#[test]
fn sigkill_at_any_moment_loses_no_acknowledged_record() {
    let mut random = Random(2024);
    for _ in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = start("write for ever", folder.path());
        let mut pipe = child.stderr.take().unwrap();
        // Some kills fall into the first chunk, some far behind the first growth of the file.
        let most = if random.below(2) == 0 { 100 } else { 12_000 };
        let mut said = vec![0; 16 * (1 + random.below(most))];
        pipe.read_exact(&mut said).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        pipe.read_to_end(&mut said).unwrap();
        let paths = logs(folder.path());
        assert_eq!(paths.len(), 1);
        let file = LogFile::open(&paths[0]).unwrap();
        assert!(!file.header().sealed);
        assert_holds(&file, &acknowledged(&said));
    }
}

const RECORDS: u64 = 5000;

fn end_by(how: &str, folder: &Path) -> i32 {
    let writer = LogWriter::create(folder, Options::default()).unwrap();
    let mut log = writer.thread();
    for number in 0..RECORDS {
        assert!(write_number(&mut log, number));
    }
    match how {
        "abort" => std::process::abort(),
        "_exit" => exit_now(3),
        _ => log.end(EndReason::Exit, 0),
    }
    0
}

#[test]
fn abort_and_underscore_exit_lose_nothing_and_only_a_proper_end_seals() {
    for (how, sealed) in [("abort", false), ("_exit", false), ("exit", true)] {
        let folder = tempfile::tempdir().unwrap();
        let (status, _) = run(how, folder.path());
        assert_eq!(status.success(), sealed, "{how}");
        let file = LogFile::open(&logs(folder.path())[0]).unwrap();
        assert_eq!(file.header().sealed, sealed, "{how}");
        assert_eq!(file.warnings(), []);
        let numbers: Vec<u64> = numbers(&file).into_values().flatten().collect();
        assert!(numbers.into_iter().eq(0..RECORDS), "{how}");
    }
}

#[allow(unsafe_code)]
fn fork(folder: &Path) -> i32 {
    let writer = LogWriter::create(folder, Options::default()).unwrap();
    let mut log = writer.thread();
    (0..100).for_each(|number| assert!(write_number(&mut log, number)));
    // SAFETY: this thread is the only one that uses anything that a fork could leave locked.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // No fork handler has told the child anything.
        let ok = !writer.is_alive() && !write_number(&mut log, 666) && {
            writer.count_loss(LossReason::Tracer, 666);
            writer.seal();
            log.end(EndReason::Exit, 0);
            let own = LogWriter::create(folder, Options::default()).unwrap();
            let mut log = own.thread();
            (0..50).all(|number| write_number(&mut log, number))
        };
        exit_now(if ok { 0 } else { 1 });
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the write.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    log.write(&Record::Fork { t_ns: monotonic_ns(), child_pid: pid as u32 });
    (100..200).for_each(|number| assert!(write_number(&mut log, number)));
    log.end(EndReason::Exit, 0);
    i32::from(status != 0)
}

#[test]
fn a_forked_child_never_writes_to_its_parents_log() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = run("fork", folder.path());
    assert!(status.success(), "{}", String::from_utf8_lossy(&said));
    let files: Vec<_> = logs(folder.path()).iter().map(|path| LogFile::open(path).unwrap()).collect();
    let child = files.iter().find(|file| !file.header().sealed).unwrap();
    let parent = files.iter().find(|file| file.header().sealed).unwrap();
    assert_eq!(files.len(), 2);
    assert_eq!(child.header().ppid, parent.header().pid);
    assert!(parent.threads().next().unwrap().records().any(|record| {
        matches!(record, Record::Fork { child_pid, .. } if child_pid == child.header().pid)
    }));
    for (file, count) in [(parent, 200), (child, 50)] {
        assert_eq!(file.warnings(), []);
        assert_eq!(file.header().losses, []);
        assert!(numbers(file).into_values().flatten().eq(0..count));
    }
}

/// Writes until `attempts`, then seals; returns how many records got in.
fn write_into_a_limit(writer: &LogWriter, attempts: u64) -> u64 {
    let mut log = writer.thread();
    let name = StrId::NONE;
    let attributes = RangeAttributes { name, ..Default::default() };
    (0..attempts).filter(|t_ns| log.write(&Record::Mark { t_ns: *t_ns, attributes })).count() as u64
}

fn marks(file: &LogFile) -> u64 {
    let records = file.threads().flat_map(|thread| thread.records());
    records.filter(|record| matches!(record, Record::Mark { .. })).count() as u64
}

#[test]
fn at_the_size_limit_every_record_is_either_read_or_counted() {
    let folder = tempfile::tempdir().unwrap();
    let max_bytes = 1_000_000;
    let writer = LogWriter::create(folder.path(), Options { max_bytes }).unwrap();
    let written = write_into_a_limit(&writer, 100_000);
    writer.seal();
    let file = LogFile::open(writer.path()).unwrap();
    assert!(file.summary().file_bytes <= max_bytes);
    assert!(file.summary().file_bytes > max_bytes - format::SLOT_BYTES as u64, "the limit is used up");
    assert_eq!(marks(&file), written);
    assert_eq!(file.header().losses, [(LossReason::MaxBytes, 100_000 - written)]);
    assert_eq!(file.warnings(), []);
}

#[allow(unsafe_code)]
fn file_size_limit(folder: &Path) -> i32 {
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: `limit` is valid for the read. SIGXFSZ keeps its default action, which is to kill.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    let writer = LogWriter::create(folder, Options::default()).unwrap();
    let written = write_into_a_limit(&writer, 100_000);
    writer.seal();
    acknowledge(written);
    0
}

#[test]
fn a_file_size_limit_does_not_kill_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = run("file size limit", folder.path());
    assert!(status.success(), "{status}");
    let written = u64::from_le_bytes(said[8..16].try_into().unwrap());
    let file = LogFile::open(&logs(folder.path())[0]).unwrap();
    assert_eq!(marks(&file), written);
    assert_eq!(file.header().losses, [(LossReason::FileSizeLimit, 100_000 - written)]);
    assert_eq!(file.warnings(), []);
}

#[allow(unsafe_code)]
fn close_everything(folder: &Path) -> i32 {
    let writer = LogWriter::create(folder, Options::default()).unwrap();
    let mut log = writer.thread();
    (0..10).for_each(|number| assert!(write_number(&mut log, number)));
    for descriptor in 3..1024 {
        // SAFETY: as a program does that becomes a daemon; the log must bear it.
        unsafe { libc::close(descriptor) };
    }
    // All the numbers are taken by a file of the program.
    let theirs = std::fs::File::create(folder.join("theirs")).unwrap();
    let copies: Vec<_> = (0..900).map(|_| theirs.try_clone().unwrap()).collect();
    (10..200_000).for_each(|number| assert!(write_number(&mut log, number)));
    log.end(EndReason::Exit, 0);
    drop(copies);
    i32::from(theirs.metadata().unwrap().len() != 0)
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_files_and_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = run("close everything", folder.path());
    assert!(status.success(), "{}", String::from_utf8_lossy(&said));
    let file = LogFile::open(&logs(folder.path())[0]).unwrap();
    assert_eq!(file.warnings(), []);
    assert_eq!(file.header().losses, []);
    assert!(numbers(&file).into_values().flatten().eq(0..200_000));
}

/// Mounts a small file system that only this process sees.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn mount_small(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).unwrap();
    // SAFETY: all pointers are to NUL-terminated strings that outlive the calls; the name space is this process' own.
    unsafe {
        let own = libc::unshare(libc::CLONE_NEWNS) == 0
            || libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUSER) == 0;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        own && libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
            && libc::mount(c"none".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=2m".as_ptr().cast())
                == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn mount_small(_: &Path) -> bool {
    false
}

fn full_disk(folder: &Path) -> i32 {
    if !mount_small(folder) {
        return CANNOT;
    }
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let writer = LogWriter::create(folder, Options::default()).unwrap();
    let full = write_into_a_limit(&writer, 100_000);
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(marks(&file), full);
    assert_eq!(file.header().losses, [(LossReason::DiskFull, 100_000 - full)]);
    // Room again: the log goes on after a while.
    std::fs::remove_file(ballast).unwrap();
    let more = write_into_a_limit(&writer, 10_000);
    assert!(more > 5000, "{more}");
    writer.seal();
    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(marks(&file), full + more);
    assert_eq!(file.header().losses, [(LossReason::DiskFull, 110_000 - full - more)]);
    assert_eq!(file.warnings(), []);
    // A disk without room for the first chunk: an error, no crash.
    std::fs::write(folder.join("ballast"), vec![1; 4 << 20]).unwrap_err();
    let message = LogWriter::create(folder, Options::default()).unwrap_err().to_string();
    assert!(message.contains("full"), "{message}");
    assert_eq!(logs(folder), [writer.path()], "no empty log is left");
    0
}

#[test]
fn on_a_full_disk_the_program_goes_on_and_the_loss_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = run("full disk", folder.path());
    if status.code() == Some(CANNOT) {
        eprintln!("skipped: a small file system can't be mounted here");
        return;
    }
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    for bad in [&missing, &file] {
        let message = LogWriter::create(bad, Options::default()).unwrap_err().to_string();
        assert!(message.contains(bad.to_str().unwrap()), "{message}");
    }
}

#[test]
fn existing_files_and_links_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let target = folder.path().join("target");
    std::os::unix::fs::symlink(&target, folder.path().join(format!("{pid}-0.salog"))).unwrap();
    std::fs::write(folder.path().join(format!("{pid}-1.salog")), b"old").unwrap();
    let writer = LogWriter::create(folder.path(), Options::default()).unwrap();
    assert_eq!(writer.path(), folder.path().join(format!("{pid}-2.salog")));
    assert!(!target.exists());
    assert_eq!(std::fs::read(folder.path().join(format!("{pid}-1.salog"))).unwrap(), b"old");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(writer.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_log_can_be_read_while_threads_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(folder.path(), Options::default()).unwrap();
    let total = 60_000;
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut log = writer.thread();
                for number in 0..total {
                    assert!(write_number(&mut log, number));
                }
                done.fetch_add(1, std::sync::atomic::Ordering::Release);
            });
        }
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        loop {
            let last = done.load(std::sync::atomic::Ordering::Acquire) == 4;
            let file = LogFile::open(writer.path()).unwrap();
            for warning in file.warnings() {
                // A definition may be written into a part of the file that has been read already.
                assert!(!last && matches!(warning, Warning::Undefined { .. }), "{warning}");
            }
            for thread in file.threads() {
                let mut count = 0;
                for record in thread.records() {
                    if let Record::Mark { t_ns, .. } = record {
                        assert_eq!(t_ns, count as u64, "no hole");
                        count += 1;
                    }
                }
                let before = seen.insert(thread.os_tid(), count).unwrap_or(0);
                assert!(count >= before, "a log only grows");
            }
            if last {
                break;
            }
        }
        assert_eq!(seen.values().sum::<usize>(), 4 * total as usize);
    });
}
