//! Structures of cuda.h that callers pass by pointer, field for field; a test compares their layout with cudarc's.

use crate::context::CONTEXTS;
use crate::error::{Error, Result};

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memcpy2D {
    pub src: Side2,
    pub dst: Side2,
    pub width: usize,
    pub height: usize,
}

/// One side of `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Side2 {
    pub x: usize,
    pub y: usize,
    pub memory_type: u32,
    pub host: u64,
    pub device: u64,
    pub array: usize,
    pub pitch: usize,
}

/// `CUDA_MEMCPY3D_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memcpy3D {
    pub src: Side3,
    pub dst: Side3,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One side of `CUDA_MEMCPY3D_v2` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Side3 {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub lod: usize,
    pub memory_type: u32,
    pub host: u64,
    pub device: u64,
    pub array: usize,
    /// Reserved, or the context of a peer copy.
    pub context: usize,
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D_PEER`: the same fields, its contexts in use.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MemcpyPeer(Memcpy3D);

impl MemcpyPeer {
    /// The copy, once its contexts are known to exist.
    pub fn checked(self) -> Result<Memcpy3D> {
        for context in [self.0.src.context, self.0.dst.context] {
            if context != 0 && CONTEXTS.get(context).is_none() {
                return Err(Error::INVALID_CONTEXT);
            }
        }
        Ok(self.0)
    }
}

impl From<Memcpy2D> for Memcpy3D {
    fn from(c: Memcpy2D) -> Self {
        let side = |s: Side2| Side3 {
            x: s.x,
            y: s.y,
            z: 0,
            lod: 0,
            memory_type: s.memory_type,
            host: s.host,
            device: s.device,
            array: s.array,
            context: 0,
            pitch: s.pitch,
            height: 0,
        };
        Self { src: side(c.src), dst: side(c.dst), width: c.width, height: c.height, depth: 1 }
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: usize,
    pub attributes: *const u8,
    pub n_attributes: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`; version 1 is its prefix up to `extra`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelNode {
    pub function: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub pointers: *const *const libc::c_void,
    pub extra: *const *const libc::c_void,
    pub kernel: usize,
    pub context: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemsetNode {
    pub dst: u64,
    pub pitch: usize,
    pub value: u32,
    pub element: u32,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostNode {
    pub function: Option<extern "C" fn(*mut libc::c_void)>,
    pub user: usize,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UpdateInfo {
    pub result: u32,
    pub error_node: usize,
    pub error_from_node: usize,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InstantiateParams {
    pub flags: u64,
    pub upload_stream: usize,
    pub error_node: usize,
    pub result: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    #[test]
    fn structures_are_laid_out_as_in_cuda_h() {
        macro_rules! same {
            ($ours:ty, $theirs:ty, $($($field:ident).+ = $their:ident),*) => {
                assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
                $(assert_eq!(
                    std::mem::offset_of!($ours, $($field).+),
                    std::mem::offset_of!($theirs, $their),
                    stringify!($theirs::$their)
                );)*
            };
        }
        same!(
            Memcpy2D,
            sys::CUDA_MEMCPY2D,
            src.memory_type = srcMemoryType,
            src.host = srcHost,
            src.device = srcDevice,
            src.array = srcArray,
            src.pitch = srcPitch,
            dst.x = dstXInBytes,
            dst.y = dstY,
            dst.memory_type = dstMemoryType,
            dst.host = dstHost,
            dst.pitch = dstPitch,
            width = WidthInBytes,
            height = Height
        );
        same!(
            Memcpy3D,
            sys::CUDA_MEMCPY3D,
            src.memory_type = srcMemoryType,
            src.host = srcHost,
            src.device = srcDevice,
            src.pitch = srcPitch,
            src.height = srcHeight,
            dst.x = dstXInBytes,
            dst.z = dstZ,
            dst.memory_type = dstMemoryType,
            dst.device = dstDevice,
            dst.height = dstHeight,
            width = WidthInBytes,
            depth = Depth
        );
        same!(MemcpyPeer, sys::CUDA_MEMCPY3D_PEER,);
        assert_eq!(
            std::mem::offset_of!(Memcpy3D, dst.context),
            std::mem::offset_of!(sys::CUDA_MEMCPY3D_PEER, dstContext)
        );
        same!(
            LaunchConfig,
            sys::CUlaunchConfig,
            grid = gridDimX,
            block = blockDimX,
            shared_bytes = sharedMemBytes,
            stream = hStream,
            attributes = attrs,
            n_attributes = numAttrs
        );
        same!(
            KernelNode,
            sys::CUDA_KERNEL_NODE_PARAMS,
            function = func,
            grid = gridDimX,
            pointers = kernelParams,
            extra = extra,
            kernel = kern,
            context = ctx
        );
        same!(
            MemsetNode,
            sys::CUDA_MEMSET_NODE_PARAMS,
            dst = dst,
            pitch = pitch,
            value = value,
            element = elementSize,
            width = width,
            height = height
        );
        same!(HostNode, sys::CUDA_HOST_NODE_PARAMS, user = userData);
        same!(UpdateInfo, sys::CUgraphExecUpdateResultInfo, result = result, error_node = errorNode);
        same!(
            InstantiateParams,
            sys::CUDA_GRAPH_INSTANTIATE_PARAMS,
            upload_stream = hUploadStream,
            error_node = hErrNode_out,
            result = result_out
        );
    }
}
