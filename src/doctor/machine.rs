//! What can be seen by looking: our libraries, the driver, CUPTI, the environment, the clock.
//!
//! In: files and variables of this machine. Out: checks. Loads no CUDA library.

use super::Check;
use crate::run::device::{Chosen, Driver, locate};
use crate::run::{libraries, own_executable};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub fn checks(device: Chosen, driver: &Driver) -> Vec<Check> {
    let mut checks = our_libraries(device);
    checks.push(gpu(device, driver));
    checks.push(cupti(device));
    checks.extend(environment(device, |name| env::var_os(name)));
    checks.extend(other_tools(env::vars_os().map(|(name, _)| name)));
    checks.push(clock());
    checks
}

fn our_libraries(device: Chosen) -> Vec<Check> {
    let folders = match own_executable() {
        Ok(executable) => libraries::folders(&executable, env::var_os("SYNCAUDIT_LIB_DIR").as_deref()),
        Err(trouble) => return vec![Check::problem("libraries", trouble.to_string(), "see above")],
    };
    [libraries::TRACER, libraries::EMULATOR]
        .into_iter()
        .map(|name| match libraries::find(name, &folders) {
            Ok(path) => Check::ok("libraries", path.display().to_string()),
            Err(trouble) if name == libraries::EMULATOR && device == Chosen::Cuda => {
                Check::note("libraries", trouble.to_string(), "without it there is no --device emulated")
            }
            Err(trouble) => Check::problem("libraries", trouble.to_string(), "see above"),
        })
        .collect()
}

fn gpu(device: Chosen, driver: &Driver) -> Check {
    let mut parts = vec![match &driver.device_nodes[..] {
        [] => "no GPU device (/dev/nvidia*)".to_owned(),
        [one] => format!("one GPU device ({})", one.display()),
        several => format!("{} GPU devices (/dev/nvidia*)", several.len()),
    }];
    parts.push(match &driver.libcuda {
        Some(path) => format!("driver library {}", path.display()),
        None => "no driver library (libcuda.so.1)".to_owned(),
    });
    if let Some(version) = &driver.kernel_module {
        parts.push(format!("kernel module {version}"));
    }
    let found = parts.join(", ");
    match device {
        Chosen::Cuda => Check::ok("gpu", found),
        Chosen::Emulated => Check::note("gpu", found, "programs run on the emulated device"),
    }
}

/// CUPTI libraries on this machine: first the one named for the tracer, then those the loader finds, then those it would
/// only find when told to.
pub fn cupti_libraries() -> Vec<PathBuf> {
    const NAMES: [&str; 2] = ["libcupti.so.13", "libcupti.so.12"];
    let mut found: Vec<PathBuf> = env::var_os("SYNCAUDIT_CUPTI").map(PathBuf::from).into_iter().collect();
    for name in NAMES {
        found.extend(locate(name));
    }
    let mut toolkits: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(PathBuf::from).collect();
    toolkits.push("/usr/local/cuda".into());
    let target = format!("targets/{}-linux/lib", env::consts::ARCH);
    let folders = toolkits
        .iter()
        .flat_map(|toolkit| ["lib64", "extras/CUPTI/lib64", &target].map(|folder| toolkit.join(folder)))
        .chain(python_packages().into_iter().flat_map(|packages| {
            ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"].map(|folder| packages.join(folder))
        }));
    for folder in folders {
        found.extend(NAMES.map(|name| folder.join(name)));
    }
    let mut unique: Vec<PathBuf> = Vec::new();
    for path in found.iter().filter(|path| path.is_file()).filter_map(|path| path.canonicalize().ok()) {
        if !unique.contains(&path) {
            unique.push(path);
        }
    }
    unique
}

/// Where the Python on the PATH keeps its packages: CUPTI often comes as one (`nvidia-cuda-cupti`).
fn python_packages() -> Vec<PathBuf> {
    let script = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    let Ok(output) = Command::new("python3").args(["-I", "-c", script]).output() else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect()
}

/// A version where the place tells one, without asking the library: the package that brought it
/// (`nvidia_cuda_cupti-13.2.86.dist-info`), else the file's own name (`libcupti.so.2025.1.1`).
fn version_of(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let packages = path.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "nvidia"));
    let Some(packages) = packages.and_then(Path::parent) else { return file };
    let major = file.rsplit('.').next().unwrap_or_default();
    fs::read_dir(packages)
        .into_iter()
        .flatten()
        .flatten()
        .find_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(".dist-info")?.to_owned();
            let (package, version) = name.rsplit_once('-')?;
            let fits = package.starts_with("nvidia_cuda_cupti") && version.split('.').next() == Some(major);
            fits.then(|| version.to_owned())
        })
        .unwrap_or(file)
}

fn cupti(device: Chosen) -> Check {
    let found = cupti_libraries();
    let none = "no CUPTI outside of programs that bring their own";
    match (found.is_empty(), device) {
        (true, Chosen::Emulated) => Check::note("cupti", none, "the emulated device has its own"),
        (true, Chosen::Cuda) => Check::note(
            "cupti",
            none,
            "PyTorch brings one; for other programs install the CUDA toolkit or nvidia-cuda-cupti and name the library in \
             SYNCAUDIT_CUPTI",
        ),
        (false, _) => {
            let list: Vec<String> =
                found.iter().map(|path| format!("{} ({})", path.display(), version_of(path))).collect();
            Check::ok("cupti", list.join(", "))
        }
    }
}

/// Variables that change what is measured, or who measures it.
fn environment(device: Chosen, get: impl Fn(&str) -> Option<OsString>) -> Vec<Check> {
    let set = |name: &str| {
        get(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
    };
    let mut checks = Vec::new();
    for name in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"] {
        if let Some(value) = set(name) {
            checks.push(Check::note(
                "environment",
                format!("{name} is set to {value}"),
                "only one tool can be loaded that way: `syncaudit run` puts its own there for the program it starts",
            ));
        }
    }
    if set("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value != "0") {
        checks.push(Check::note(
            "environment",
            "CUDA_LAUNCH_BLOCKING is set: every kernel launch waits",
            "unset it, or the audit will be about that variable",
        ));
    }
    if let Some(value) = set("LD_PRELOAD") {
        checks.push(Check::note(
            "environment",
            format!("LD_PRELOAD is set to {value}"),
            "if it names a CUDA or CUPTI library, that one is used instead of the one found here",
        ));
    }
    if device == Chosen::Cuda
        && get("CUDA_VISIBLE_DEVICES").is_some_and(|value| value.is_empty() || value == "-1")
    {
        checks.push(Check::problem(
            "environment",
            "CUDA_VISIBLE_DEVICES hides every GPU",
            "unset it, or name a device in it",
        ));
    }
    checks
}

/// Profilers that start programs leave variables of their own in them.
fn other_tools(names: impl Iterator<Item = OsString>) -> Vec<Check> {
    const PREFIXES: [(&str, &str); 4] = [
        ("NSYS_", "Nsight Systems"),
        ("QUADD_", "Nsight Systems"),
        ("NV_COMPUTE_PROFILER_", "Nsight Compute"),
        ("NV_NSIGHT_INJECTION_", "an Nsight tool"),
    ];
    let mut tools: Vec<&str> = names
        .filter_map(|name| {
            let name = name.to_str()?.to_owned();
            PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, tool)| *tool)
        })
        .collect();
    tools.sort_unstable();
    tools.dedup();
    tools
        .into_iter()
        .map(|tool| {
            Check::note(
                "environment",
                format!("this looks like a shell under {tool}"),
                "CUPTI serves one tool at a time: start syncaudit outside of it",
            )
        })
        .collect()
}

/// The tracer reads the clock twice per call: a machine whose clock needs the kernel makes that dear.
fn clock() -> Check {
    const READS: u32 = 20_000;
    /// A reading through the vDSO takes tens of nanoseconds, one through the kernel hundreds.
    const FAST_NS: u128 = 150;
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .map_or_else(|_| "unknown".to_owned(), |source| source.trim().to_owned());
    let mut best_ns = u128::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..READS {
            std::hint::black_box(Instant::now());
        }
        best_ns = best_ns.min(start.elapsed().as_nanos());
    }
    let each_ns = best_ns / u128::from(READS);
    let found = format!("{each_ns} ns a reading (clock source {source})");
    if each_ns <= FAST_NS {
        Check::ok("clock", found)
    } else {
        Check::note(
            "clock",
            found,
            "slow, so the tracer costs more here; tsc and arch_sys_counter are fast sources",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    fn with(pairs: &[(&str, &str)]) -> Vec<Check> {
        environment(Chosen::Cuda, |name| {
            pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_clean_environment_has_nothing_to_say() {
        assert_eq!(with(&[]), []);
        assert_eq!(with(&[("CUDA_LAUNCH_BLOCKING", "0"), ("CUDA_VISIBLE_DEVICES", "1")]), []);
    }

    #[test]
    fn what_gets_in_the_way_is_named() {
        assert!(with(&[("CUDA_INJECTION64_PATH", "/x.so")])[0].found.contains("/x.so"));
        assert!(with(&[("CUDA_LAUNCH_BLOCKING", "1")])[0].found.contains("CUDA_LAUNCH_BLOCKING"));
        assert_eq!(with(&[("CUDA_VISIBLE_DEVICES", "")])[0].status, Status::Problem);
        let tools =
            other_tools(["NSYS_PROFILING_SESSION_ID", "NSYS_X", "HOME"].map(OsString::from).into_iter());
        assert_eq!(tools.len(), 1);
        assert!(tools[0].found.contains("Nsight Systems"));
    }

    #[test]
    fn versions_come_from_the_package_that_brought_the_file_or_from_its_name() {
        assert_eq!(version_of(Path::new("/usr/lib/libcupti.so.2025.1.1")), "libcupti.so.2025.1.1");
        let dir = tempfile::tempdir().unwrap();
        for package in ["nvidia_cuda_cupti_cu12-12.8.90", "nvidia_cuda_cupti-13.2.86", "nvidia_nvtx-13.2.86"]
        {
            fs::create_dir(dir.path().join(format!("{package}.dist-info"))).unwrap();
        }
        let version = |path: &str| version_of(&dir.path().join(path));
        assert_eq!(version("nvidia/cu13/lib/libcupti.so.13"), "13.2.86");
        assert_eq!(version("nvidia/cuda_cupti/lib/libcupti.so.12"), "12.8.90");
    }
}
