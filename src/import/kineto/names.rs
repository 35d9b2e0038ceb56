//! The words of profiler traces, of all versions.
//!
//! In: categories and names as they stand in a trace. Out: what they mean. Sources: Kineto's `ActivityType` names (2021:
//! `Operator`, `Runtime`, `Kernel`, ...; 2022: a mix; since then `cpu_op`, `cuda_runtime`, `kernel`, ...), and what recorded
//! traces show.

use crate::model::{CopyDirection, MemoryKind, OverheadKind};

/// What a category stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    /// A framework operator, or in 2021's vocabulary also an annotation.
    Op,
    Annotation,
    Python,
    /// A call of the runtime or driver, CUDA's or HIP's.
    Call,
    Kernel,
    Copy,
    Memset,
    /// A synchronise as the driver recorded it, besides the call itself.
    Sync,
    Overhead,
    /// The whole recording, as one event.
    Recording,
    /// Said elsewhere too: annotations as they fell on the device, flows, memory counters.
    Repeated,
    Unknown,
}

/// What the category of that name stands for.
#[inline]
pub(super) fn category(name: &[u8]) -> Category {
    match name {
        b"cpu_op" | b"Operator" | b"operator" => Category::Op,
        b"cuda_runtime" | b"cuda_driver" | b"Runtime" | b"runtime" | b"hip_runtime" | b"hip_driver" => {
            Category::Call
        }
        b"python_function" => Category::Python,
        b"user_annotation" => Category::Annotation,
        b"kernel" | b"Kernel" => Category::Kernel,
        b"gpu_memcpy" | b"Memcpy" => Category::Copy,
        b"gpu_memset" | b"Memset" => Category::Memset,
        b"cuda_sync" | b"hip_sync" => Category::Sync,
        b"overhead" => Category::Overhead,
        b"Trace" => Category::Recording,
        b"gpu_user_annotation"
        | b"ac2g"
        | b"async_cpu_to_gpu"
        | b"async"
        | b"fwdbwd"
        | b"forward_backward"
        | b"cpu_instant_event" => Category::Repeated,
        _ => Category::Unknown,
    }
}

/// In 2021's vocabulary annotations have the category of operators. These are the ones that PyTorch itself makes.
pub(in crate::import) fn is_annotation(op: &[u8]) -> bool {
    [
        &b"ProfilerStep#"[..],
        b"Optimizer.step#",
        b"Optimizer.zero_grad#",
        b"enumerate(DataLoader)#",
        b"DistributedDataParallel.",
    ]
    .iter()
    .any(|start| op.starts_with(start))
}

/// Direction and memory kinds from the name of a copy: `Memcpy DtoH (Device -> Pageable)`.
pub(super) fn copy(name: &str) -> (CopyDirection, MemoryKind, MemoryKind) {
    let (head, kinds) = name.split_once('(').unwrap_or((name, ""));
    let (from, to) = kinds.trim_end_matches(')').split_once("->").unwrap_or(("", ""));
    let (from, to) = (memory(from.trim()), memory(to.trim()));
    let direction = match head.trim().rsplit(' ').next().unwrap_or_default() {
        "HtoD" | "HtoA" => CopyDirection::HostToDevice,
        "DtoH" | "AtoH" => CopyDirection::DeviceToHost,
        "DtoD" | "PtoP" | "AtoA" | "AtoD" | "DtoA" => CopyDirection::DeviceToDevice,
        "HtoH" => CopyDirection::HostToHost,
        _ => CopyDirection::Unknown,
    };
    (direction, from, to)
}

fn memory(word: &str) -> MemoryKind {
    match word {
        "Pageable" => MemoryKind::Pageable,
        "Pinned" => MemoryKind::Pinned,
        "Device" | "Device Static" => MemoryKind::Device,
        "Array" => MemoryKind::Array,
        "Managed" | "Managed Static" => MemoryKind::Managed,
        // ROCm says `Host` and leaves open of which kind.
        _ => MemoryKind::Unknown,
    }
}

/// What the driver's own host time was spent on.
pub(super) fn overhead(name: &str) -> OverheadKind {
    match name {
        "Command Buffer Full" => OverheadKind::CommandBufferFull,
        "Lazy Function Loading" | "Runtime Triggered Module Loading" => OverheadKind::LazyLoading,
        _ => OverheadKind::Other,
    }
}

/// A Python function's name without what differs from run to run: `<built-in method item of Tensor object at 0x7ce2>`.
pub(super) fn without_address(name: &str) -> Option<String> {
    let (head, rest) = name.split_once(" at 0x")?;
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    Some(format!("{head}{digits}"))
}

/// Splits `torch/nn/modules/module.py(1051): _call_impl` into file, line and function. A frame without a file
/// (`<built-in function item>`, `nn.Module: Linear_0`) is all function.
pub(super) fn python_frame(name: &str) -> (&str, u32, &str) {
    let parts = name.rfind("): ").and_then(|close| {
        let open = name[..close].rfind('(')?;
        let line: u32 = name[open + 1..close].parse().ok()?;
        Some((&name[..open], line, &name[close + 3..]))
    });
    parts.unwrap_or(("", 0, name))
}

/// The rank in a file's name: `rank3_trace.json`, `trace-rank-3.json`, `rank_03.pt.trace.json`.
pub(in crate::import) fn rank_of_file(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    let mut rest = lower.as_str();
    while let Some((_, after)) = rest.split_once("rank") {
        let digits = after.trim_start_matches(['_', '-', '=', '.']);
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if let Ok(rank) = digits[..count].parse() {
            return Some(rank);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copys_name_says_direction_and_memory() {
        use {CopyDirection as D, MemoryKind as M};
        for (name, expected) in [
            ("Memcpy DtoH (Device -> Pageable)", (D::DeviceToHost, M::Device, M::Pageable)),
            ("Memcpy HtoD (Pinned -> Device)", (D::HostToDevice, M::Pinned, M::Device)),
            ("Memcpy DtoD (Device -> Device)", (D::DeviceToDevice, M::Device, M::Device)),
            ("Memcpy DtoH (Device -> Host)", (D::DeviceToHost, M::Device, M::Unknown)),
            ("Memcpy PtoP (Device -> Device)", (D::DeviceToDevice, M::Device, M::Device)),
            ("CopyHostToDevice", (D::Unknown, M::Unknown, M::Unknown)),
            ("", (D::Unknown, M::Unknown, M::Unknown)),
        ] {
            assert_eq!(copy(name), expected, "{name}");
        }
    }

    #[test]
    fn python_names_give_file_line_and_function() {
        for (name, expected) in [
            (
                "torch/nn/modules/module.py(1051): _call_impl",
                ("torch/nn/modules/module.py", 1051, "_call_impl"),
            ),
            ("a (old)/x.py(7): <module>", ("a (old)/x.py", 7, "<module>")),
            ("nn.Module: Linear_0", ("", 0, "nn.Module: Linear_0")),
            ("<built-in function item>", ("", 0, "<built-in function item>")),
            ("x.py(none): f", ("", 0, "x.py(none): f")),
        ] {
            assert_eq!(python_frame(name), expected);
        }
        assert_eq!(
            without_address("<built-in method item of Tensor object at 0x7ce27a325b80>").as_deref(),
            Some("<built-in method item of Tensor object>")
        );
        assert_eq!(without_address("x.py(1): f"), None);
    }

    #[test]
    fn a_rank_is_found_in_the_usual_file_names() {
        for (name, rank) in [
            ("rank3_trace.json.gz", Some(3)),
            ("trace-rank-12.json", Some(12)),
            ("rank_03.pt.trace.json", Some(3)),
            ("Rank=7.json", Some(7)),
            ("ranking_rank4.json", Some(4)),
            ("host_123.pt.trace.json", None),
            ("rank.json", None),
        ] {
            assert_eq!(rank_of_file(name), rank, "{name}");
        }
    }
}
