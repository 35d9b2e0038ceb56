//! `cuGetProcAddress`: from a name without version suffix to the function of the CUDA version the caller was built for.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::args::{Out, Text};
use crate::error::{Error, Result};
use crate::{
    capture, context, copy, device, event, graph, launch, memory, module, process, stream, unsupported,
};

entry_points! {
    cuGetProcAddress(symbol: Text, pfn: Out<*const ()>, version: i32, flags: u64) [anywhere]
        => find(symbol, pfn, version, flags, Out(std::ptr::null_mut()));
    cuGetProcAddress_v2(symbol: Text, pfn: Out<*const ()>, version: i32, flags: u64, status: Out<u32>) [anywhere]
        => find(symbol, pfn, version, flags, status);
}

/// Every exported function of the driver API by its exported name.
static BY_NAME: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(|| {
    let files = [
        capture::FUNCTIONS,
        context::FUNCTIONS,
        copy::FUNCTIONS,
        device::FUNCTIONS,
        event::FUNCTIONS,
        graph::FUNCTIONS,
        launch::FUNCTIONS,
        memory::FUNCTIONS,
        module::FUNCTIONS,
        process::FUNCTIONS,
        stream::FUNCTIONS,
        unsupported::FUNCTIONS,
        FUNCTIONS,
    ];
    files.into_iter().flatten().map(|(name, address)| (*name, address.0 as usize)).collect()
});

/// True for functions that the emulated device implements.
pub fn is_implemented(name: &str) -> bool {
    BY_NAME.contains_key(name) && !unsupported::FUNCTIONS.iter().any(|(n, _)| *n == name)
}

/// Newest version suffix first: callers get the newest form that exists for their CUDA version, and every version
/// this library claims to be has them all.
const SUFFIXES: [&str; 4] = ["_v4", "_v3", "_v2", ""];

/// Suffixes that came after version 12.0, with the version that made them the default of the plain name.
const SINCE: &[(&str, i32)] = &[
    ("cuCtxCreate_v3", 11040),
    ("cuCtxCreate_v4", 12050),
    ("cuEventElapsedTime_v2", 12080),
    ("cuMemAdvise_v2", 12020),
    ("cuMemPrefetchAsync_v2", 12020),
    ("cuStreamGetCaptureInfo_v3", 12030),
    ("cuStreamGetCaptureInfo_v2", 11030),
    ("cuGetProcAddress_v2", 12000),
    ("cuGraphAddKernelNode_v2", 12000),
    ("cuGraphExecUpdate_v2", 12000),
    ("cuGraphGetEdges_v2", 12030),
    ("cuGraphAddDependencies_v2", 12030),
    ("cuGraphRemoveDependencies_v2", 12030),
    ("cuGraphNodeGetDependencies_v2", 12030),
    ("cuGraphNodeGetDependentNodes_v2", 12030),
    ("cuGraphAddNode_v2", 12030),
    ("cuStreamUpdateCaptureDependencies_v2", 12030),
    ("cuStreamGetCtx_v2", 12050),
    ("cuDeviceGetUuid_v2", 11040),
];

/// These version-2 forms belong to CUDA 13: to a 12.8 driver the plain name is the first form.
const FROM_13: &[&str] = &[
    "cuEventElapsedTime_v2",
    "cuGraphAddNode_v2",
    "cuGraphGetEdges_v2",
    "cuGraphAddDependencies_v2",
    "cuGraphRemoveDependencies_v2",
    "cuGraphNodeGetDependencies_v2",
    "cuGraphNodeGetDependentNodes_v2",
    "cuStreamUpdateCaptureDependencies_v2",
    "cuStreamGetCtx_v2",
    "cuMemAdvise_v2",
    "cuMemPrefetchAsync_v2",
    "cuCtxCreate_v4",
    "cuDeviceGetUuid_v2",
];

fn find(symbol: Text, pfn: Out<*const ()>, version: i32, flags: u64, status: Out<u32>) -> Result {
    pfn.set(std::ptr::null())?;
    let symbol = symbol.get()?;
    if flags > 2 {
        return Err(Error::INVALID_VALUE);
    }
    let per_thread = flags == 2;
    let answer = address(&symbol, version, per_thread);
    status.set_if_wanted(u32::from(answer.is_none()));
    match answer {
        Some(found) => pfn.set(found as *const ()),
        // The version with a status reports through it; the first form through its result.
        None if status.is_null() => Err(Error::NOT_FOUND),
        None => Ok(()),
    }
}

fn address(symbol: &str, version: i32, per_thread: bool) -> Option<usize> {
    let usable = |name: &str| {
        let since = SINCE.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
        since <= version && !FROM_13.contains(&name)
    };
    for suffix in SUFFIXES {
        let name = format!("{symbol}{suffix}");
        if !usable(&name) {
            continue;
        }
        let twins = [format!("{name}_ptsz"), format!("{name}_ptds")];
        let twin = twins.iter().filter(|_| per_thread).find_map(|t| BY_NAME.get(t.as_str()));
        if let Some(found) = twin.or_else(|| BY_NAME.get(name.as_str())) {
            return Some(*found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(symbol: &str, version: i32, per_thread: bool) -> Option<&'static str> {
        let found = address(symbol, version, per_thread)?;
        BY_NAME.iter().find(|(_, a)| **a == found).map(|(n, _)| *n)
    }

    #[test]
    fn plain_names_resolve_to_the_form_the_version_knows() {
        assert_eq!(called("cuMemAlloc", 12080, false), Some("cuMemAlloc_v2"));
        assert_eq!(called("cuMemcpyHtoD", 12080, false), Some("cuMemcpyHtoD_v2"));
        assert_eq!(called("cuStreamSynchronize", 12080, false), Some("cuStreamSynchronize"));
        assert_eq!(called("cuGetProcAddress", 12080, false), Some("cuGetProcAddress_v2"));
        assert_eq!(called("cuGetProcAddress", 11030, false), Some("cuGetProcAddress"));
        assert_eq!(called("cuMemPrefetchAsync", 12080, false), Some("cuMemPrefetchAsync"));
        assert_eq!(called("cuNoSuchThing", 12080, false), None);
    }

    #[test]
    fn the_per_thread_flag_gives_the_twins() {
        assert_eq!(called("cuMemcpyHtoD", 12080, true), Some("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(called("cuStreamSynchronize", 12080, true), Some("cuStreamSynchronize_ptsz"));
        assert_eq!(called("cuMemAlloc", 12080, true), Some("cuMemAlloc_v2"));
    }
}
