//! Is there a GPU with a driver, and which device does the program get?
//!
//! In: `--device` and this machine. Out: a choice with its reason. Looks at files only; the driver is never loaded into
//! the command.

use crate::cli::Device;
use crate::trouble::Trouble;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What this machine has of a CUDA driver.
#[derive(Debug, Clone, Default)]
pub struct Driver {
    /// `/dev/nvidia0` and the like; `/dev/dxg` under WSL.
    pub device_nodes: Vec<PathBuf>,
    /// First `libcuda.so.1` that the loader would find.
    pub libcuda: Option<PathBuf>,
    /// Of the kernel module, from `/proc/driver/nvidia/version`.
    pub kernel_module: Option<String>,
}

impl Driver {
    pub fn look() -> Driver {
        let numbered =
            |name: &str| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
        let mut device_nodes: Vec<PathBuf> = fs::read_dir("/dev")
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| numbered(name) || name == "dxg"))
            .map(|entry| entry.path())
            .collect();
        device_nodes.sort();
        Driver {
            device_nodes,
            libcuda: locate("libcuda.so.1").into_iter().next(),
            kernel_module: fs::read_to_string("/proc/driver/nvidia/version")
                .ok()
                .and_then(|text| module_version(&text)),
        }
    }

    /// What is missing for a run on the GPU, as a clause.
    fn missing(&self) -> Option<&'static str> {
        match (self.device_nodes.is_empty(), self.libcuda.is_none()) {
            (false, false) => None,
            (true, true) => Some("there is neither a GPU device (/dev/nvidia*) nor a driver (libcuda.so.1)"),
            (true, false) => Some("there is no GPU device (/dev/nvidia*)"),
            (false, true) => Some("there is a GPU device but no driver (libcuda.so.1)"),
        }
    }
}

/// The version in the first line of `/proc/driver/nvidia/version`, which reads
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue ...` (open modules: `... Open Kernel Module for x86_64  ...`).
fn module_version(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    let looks_like_one = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_whitespace().find(looks_like_one).map(str::to_owned)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    Cuda,
    Emulated,
}

impl Chosen {
    pub fn name(self) -> &'static str {
        match self {
            Chosen::Cuda => "cuda",
            Chosen::Emulated => "emulated",
        }
    }
}

/// The device and, where nobody asked for it by name, a sentence that says what was taken and why.
pub fn choose(asked: Device, driver: &Driver) -> Result<(Chosen, Option<String>), Trouble> {
    match (asked, driver.missing()) {
        (Device::Emulated, _) => Ok((Chosen::Emulated, None)),
        (Device::Cuda | Device::Auto, None) => Ok((Chosen::Cuda, None)),
        (Device::Cuda, Some(missing)) => Err(Trouble::new(
            "run on the GPU",
            missing,
            "run on a machine with a GPU, or with --device emulated (counts and places are real, times are not)",
        )),
        (Device::Auto, Some(missing)) => Ok((
            Chosen::Emulated,
            Some(format!(
                "{missing}: using the emulated device; counts and places of waits are real, times are not"
            )),
        )),
    }
}

/// Where the loader would find `soname`: `LD_LIBRARY_PATH`, its cache, its default folders, in this order.
pub fn locate(soname: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        if path.is_file() && !found.contains(&path) {
            found.push(path);
        }
    };
    if let Some(folders) = std::env::var_os("LD_LIBRARY_PATH") {
        for folder in std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()) {
            add(folder.join(soname));
        }
    }
    for path in loader_cache(soname) {
        add(path);
    }
    let arch = std::env::consts::ARCH;
    for folder in [
        format!("/lib/{arch}-linux-gnu"),
        format!("/usr/lib/{arch}-linux-gnu"),
        "/lib64".into(),
        "/usr/lib64".into(),
        "/lib".into(),
        "/usr/lib".into(),
        "/usr/lib/wsl/lib".into(),
    ] {
        add(Path::new(&folder).join(soname));
    }
    found
}

/// `ldconfig -p` lists the cache as `name (libc6,x86-64) => path`. A machine without it just has one place less.
fn loader_cache(soname: &str) -> Vec<PathBuf> {
    let tool = if Path::new("/sbin/ldconfig").exists() { "/sbin/ldconfig" } else { "ldconfig" };
    let Ok(output) = Command::new(tool).arg("-p").env_remove("LD_PRELOAD").output() else {
        return Vec::new();
    };
    entries_of(&String::from_utf8_lossy(&output.stdout), soname)
}

fn entries_of(listing: &str, soname: &str) -> Vec<PathBuf> {
    let wide = match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "aarch64" => "AArch64",
        _ => "",
    };
    listing
        .lines()
        .filter_map(|line| {
            let (name, path) = line.trim().split_once(" => ")?;
            let (name, flags) = name.split_once(' ')?;
            (name == soname && flags.contains(wide)).then(|| PathBuf::from(OsStr::new(path)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(node: bool, lib: bool) -> Driver {
        Driver {
            device_nodes: if node { vec!["/dev/nvidia0".into()] } else { vec![] },
            libcuda: lib.then(|| "/usr/lib/libcuda.so.1".into()),
            kernel_module: None,
        }
    }

    #[test]
    fn auto_takes_the_gpu_only_when_driver_and_device_are_there() {
        assert_eq!(choose(Device::Auto, &driver(true, true)).unwrap(), (Chosen::Cuda, None));
        for (node, lib) in [(false, false), (true, false), (false, true)] {
            let (chosen, why) = choose(Device::Auto, &driver(node, lib)).unwrap();
            assert_eq!(chosen, Chosen::Emulated);
            assert!(why.unwrap().contains("emulated"));
            assert!(choose(Device::Cuda, &driver(node, lib)).is_err());
        }
    }

    #[test]
    fn what_was_asked_for_needs_no_explanation() {
        assert_eq!(choose(Device::Emulated, &driver(true, true)).unwrap(), (Chosen::Emulated, None));
        assert_eq!(choose(Device::Cuda, &driver(true, true)).unwrap(), (Chosen::Cuda, None));
    }

    #[test]
    fn the_module_version_is_read_from_both_flavours() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\nGCC version: 12.2.0\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x)\n";
        assert_eq!(module_version(closed).as_deref(), Some("550.163.01"));
        assert_eq!(module_version(open).as_deref(), Some("580.65.06"));
        assert_eq!(module_version("nothing here"), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_loader_cache_is_filtered_by_name_and_width() {
        let listing = "2 libs found in cache\n\tlibcuda.so.1 (libc6,x86-64) => /a/libcuda.so.1\n\
                       \tlibcuda.so.1 (libc6) => /b/libcuda.so.1\n\tlibcuda.so (libc6,x86-64) => /a/libcuda.so\n";
        assert_eq!(entries_of(listing, "libcuda.so.1"), [PathBuf::from("/a/libcuda.so.1")]);
    }
}
