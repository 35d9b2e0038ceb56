//! What an API function is, from its name: CUDA runtime, CUDA driver and HIP alike.
//!
//! In: a name as any source spells it. Out: the name as reports print it, the name that fingerprints use, and what it
//! does in general. Whether a *call* of it is a wait is decided in `audit/waits.rs`, never here.
//! Names: `cupti_driver_cbid.h`, `cupti_runtime_cbid.h` (CUDA 12.1 to 13.5), HIP API reference.

use super::CopyDirection;

/// What an API function does, as far as waits are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApiClass {
    StreamSync,
    EventSync,
    DeviceSync,
    /// Copy without `Async` in its name.
    Copy,
    CopyAsync,
    /// `hipMemcpyWithStream`: copy and stream synchronise in one call.
    CopyAndSync,
    Memset,
    MemsetAsync,
    StreamQuery,
    EventQuery,
    EventRecord,
    /// A device-side wait: the host goes on.
    StreamWaitEvent,
    DeviceAlloc,
    DeviceFree,
    HostAlloc,
    HostFree,
    HostRegister,
    HostUnregister,
    /// Stream-ordered allocation: by documentation never holds the host.
    StreamOrderedMemory,
    /// Gives pool memory back to the operating system.
    PoolRelease,
    /// `cuMemCreate`, `cuMemMap`, `cuMemUnmap`, ...
    VirtualMemory,
    /// `cuCtxDestroy`, `cudaDeviceReset`: waits for the device, then destroys.
    ContextDestroy,
    ModuleLoad,
    ModuleUnload,
    /// Looking a function up may load it.
    FunctionLookup,
    Launch,
    GraphLaunch,
    HostFunction,
    #[default]
    Other,
}

/// An API function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// As reports print it: `cudaMemcpyAsync`, `cuMemcpyDtoHAsync_v2`.
    pub name: String,
    /// As fingerprints use it, without version and stream-mode suffixes: `cuMemcpyDtoHAsync`.
    pub base: String,
    pub class: ApiClass,
    /// Direction that the name itself fixes (`cuMemcpyDtoH`).
    pub direction: CopyDirection,
}

/// What [`super::Trace::api`] answers for an id it doesn't know.
pub(super) static UNKNOWN: Api = Api {
    name: String::new(),
    base: String::new(),
    class: ApiClass::Other,
    direction: CopyDirection::Unknown,
};

/// Describes the API function of that name. Any text is accepted; an unknown one is [`ApiClass::Other`].
#[must_use]
pub fn classify(name: &str) -> Api {
    let printed = strip_runtime_version(name.trim());
    let base = strip_suffixes(printed);
    // What `<<<...>>>` calls since CUDA 13 has two underscores in front.
    let plain = base.strip_prefix("__").unwrap_or(base);
    let stem =
        plain.strip_prefix("cuda").or_else(|| plain.strip_prefix("hip")).or_else(|| plain.strip_prefix("cu"));
    let (class, direction) = stem.map_or((ApiClass::Other, CopyDirection::Unknown), class_of);
    Api { name: printed.to_owned(), base: base.to_owned(), class, direction }
}

/// `cudaMemcpyAsync_v3020` -> `cudaMemcpyAsync`; driver suffixes (`_v2`) are part of the real name and stay.
fn strip_runtime_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((head, digits)) if digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit()) => head,
        _ => name,
    }
}

fn strip_suffixes(mut name: &str) -> &str {
    loop {
        let shorter = name
            .strip_suffix("_ptsz")
            .or_else(|| name.strip_suffix("_ptds"))
            .or_else(|| name.strip_suffix("_spt"))
            .or_else(|| name.strip_suffix("_v2"))
            .or_else(|| name.strip_suffix("_v3"))
            .or_else(|| name.strip_suffix("_v4"));
        match shorter {
            Some(shorter) => name = shorter,
            None => return name,
        }
    }
}

/// `stem` is the base name without `cuda`, `cu` or `hip` in front.
fn class_of(stem: &str) -> (ApiClass, CopyDirection) {
    use ApiClass as C;
    let plain = |class| (class, CopyDirection::Unknown);
    match stem {
        "StreamSynchronize" => return plain(C::StreamSync),
        "EventSynchronize" => return plain(C::EventSync),
        "DeviceSynchronize" | "CtxSynchronize" | "ThreadSynchronize" | "ExecutionCtxSynchronize" => {
            return plain(C::DeviceSync);
        }
        "StreamQuery" => return plain(C::StreamQuery),
        "EventQuery" => return plain(C::EventQuery),
        "EventRecord" | "EventRecordWithFlags" => return plain(C::EventRecord),
        "StreamWaitEvent" => return plain(C::StreamWaitEvent),
        "MemcpyWithStream" => return plain(C::CopyAndSync),
        "MemAlloc"
        | "MemAllocPitch"
        | "Malloc"
        | "MallocPitch"
        | "MallocArray"
        | "Malloc3D"
        | "Malloc3DArray"
        | "MallocMipmappedArray"
        | "MemAllocManaged"
        | "MallocManaged"
        | "ArrayCreate"
        | "Array3DCreate"
        | "ExtMallocWithFlags" => return plain(C::DeviceAlloc),
        "MemFree" | "Free" | "FreeArray" | "FreeMipmappedArray" | "ArrayDestroy" => {
            return plain(C::DeviceFree);
        }
        "MemAllocHost" | "MemHostAlloc" | "MallocHost" | "HostAlloc" | "HostMalloc" => {
            return plain(C::HostAlloc);
        }
        "MemFreeHost" | "FreeHost" | "HostFree" => return plain(C::HostFree),
        "MemHostRegister" | "HostRegister" => return plain(C::HostRegister),
        "MemHostUnregister" | "HostUnregister" => return plain(C::HostUnregister),
        "MemAllocAsync"
        | "MallocAsync"
        | "MemFreeAsync"
        | "FreeAsync"
        | "MemAllocFromPoolAsync"
        | "MallocFromPoolAsync" => return plain(C::StreamOrderedMemory),
        "MemPoolTrimTo" | "MemPoolDestroy" => return plain(C::PoolRelease),
        "MemCreate" | "MemRelease" | "MemMap" | "MemUnmap" | "MemSetAccess" | "MemAddressReserve"
        | "MemAddressFree" => return plain(C::VirtualMemory),
        "CtxDestroy"
        | "DeviceReset"
        | "DevicePrimaryCtxReset"
        | "DevicePrimaryCtxRelease"
        | "GreenCtxDestroy"
        | "ExecutionCtxDestroy" => return plain(C::ContextDestroy),
        "ModuleLoad"
        | "ModuleLoadData"
        | "ModuleLoadDataEx"
        | "ModuleLoadFatBinary"
        | "LibraryLoadData"
        | "LibraryLoadFromFile"
        | "LinkComplete" => return plain(C::ModuleLoad),
        "ModuleUnload" | "LibraryUnload" => return plain(C::ModuleUnload),
        "ModuleGetFunction"
        | "LibraryGetKernel"
        | "LibraryGetModule"
        | "KernelGetFunction"
        | "FuncGetAttributes"
        | "FuncGetAttribute"
        | "GetFuncBySymbol"
        | "LibraryGetUnifiedFunction" => {
            return plain(C::FunctionLookup);
        }
        "GraphLaunch" | "GraphLaunchWithArguments" => return plain(C::GraphLaunch),
        "LaunchHostFunc" | "StreamAddCallback" => return plain(C::HostFunction),
        _ => {}
    }
    // Graph* builds graphs (GraphAddMemcpyNode); nothing is copied by the call.
    if stem.starts_with("Graph") {
        return plain(C::Other);
    }
    if let Some(rest) = stem.strip_prefix("Memcpy").or_else(|| stem.strip_prefix("64Memcpy")) {
        let class = if rest.contains("Async") { C::CopyAsync } else { C::Copy };
        return (class, direction_of(rest));
    }
    if let Some(rest) = stem.strip_prefix("Memset") {
        return plain(if rest.contains("Async") { C::MemsetAsync } else { C::Memset });
    }
    if stem.starts_with("Launch") || stem == "ModuleLaunchKernel" || stem == "ExtModuleLaunchKernel" {
        return plain(C::Launch);
    }
    plain(C::Other)
}

fn direction_of(rest: &str) -> CopyDirection {
    use CopyDirection as D;
    // Arrays live on the device: `AtoH` reads back, `HtoA` uploads. `ToSymbol`, `FromArray` and the like say one side
    // only, the other may be host or device memory.
    for (word, direction) in [
        ("HtoD", D::HostToDevice),
        ("HtoA", D::HostToDevice),
        ("DtoH", D::DeviceToHost),
        ("AtoH", D::DeviceToHost),
        ("DtoD", D::DeviceToDevice),
        ("DtoA", D::DeviceToDevice),
        ("AtoD", D::DeviceToDevice),
        ("AtoA", D::DeviceToDevice),
        ("Peer", D::DeviceToDevice),
    ] {
        if rest.starts_with(word) || (word == "Peer" && rest.contains(word)) {
            return direction;
        }
    }
    D::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_three_interfaces_are_understood() {
        use ApiClass as C;
        use CopyDirection as D;
        for (name, printed, base, class, direction) in [
            ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", "cudaMemcpyAsync", C::CopyAsync, D::Unknown),
            (
                "cuMemcpyDtoHAsync_v2",
                "cuMemcpyDtoHAsync_v2",
                "cuMemcpyDtoHAsync",
                C::CopyAsync,
                D::DeviceToHost,
            ),
            ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD", C::Copy, D::HostToDevice),
            (
                "cudaMemcpyPeerAsync",
                "cudaMemcpyPeerAsync",
                "cudaMemcpyPeerAsync",
                C::CopyAsync,
                D::DeviceToDevice,
            ),
            (
                "cudaStreamSynchronize_ptsz_v7000",
                "cudaStreamSynchronize_ptsz",
                "cudaStreamSynchronize",
                C::StreamSync,
                D::Unknown,
            ),
            ("cuCtxSynchronize_v2", "cuCtxSynchronize_v2", "cuCtxSynchronize", C::DeviceSync, D::Unknown),
            ("hipMemcpyWithStream", "hipMemcpyWithStream", "hipMemcpyWithStream", C::CopyAndSync, D::Unknown),
            (
                "hipExtModuleLaunchKernel",
                "hipExtModuleLaunchKernel",
                "hipExtModuleLaunchKernel",
                C::Launch,
                D::Unknown,
            ),
            ("cuLaunchHostFunc", "cuLaunchHostFunc", "cuLaunchHostFunc", C::HostFunction, D::Unknown),
            (
                "cudaGraphAddMemcpyNode_v10000",
                "cudaGraphAddMemcpyNode",
                "cudaGraphAddMemcpyNode",
                C::Other,
                D::Unknown,
            ),
            ("cuMemFree_v2", "cuMemFree_v2", "cuMemFree", C::DeviceFree, D::Unknown),
            ("cudaFreeHost", "cudaFreeHost", "cudaFreeHost", C::HostFree, D::Unknown),
            ("__cudaLaunchKernel", "__cudaLaunchKernel", "__cudaLaunchKernel", C::Launch, D::Unknown),
            ("custom_op", "custom_op", "custom_op", C::Other, D::Unknown),
            ("", "", "", C::Other, D::Unknown),
        ] {
            let api = classify(name);
            assert_eq!((api.name.as_str(), api.base.as_str()), (printed, base), "{name}");
            assert_eq!((api.class, api.direction), (class, direction), "{name}");
        }
    }
}
