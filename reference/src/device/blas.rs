//! Matrix products: cuBLAS on a GPU that has it, the own kernels everywhere else. In 32-bit floats, never TF32; or from bf16
//! operands with 32-bit sums and results, which tensor cores compute.
#![allow(unsafe_code)]

use std::sync::Mutex;

use cudarc::cublas::{result as cublas, sys};

use super::{Error, Result, Stream, View, driver};
use crate::kernels;

/// Device memory that cuBLAS may scribble in. Given once, so that it never allocates inside a step or under capture.
const WORKSPACE_BYTES: usize = 64 << 20;

/// Which operands of `C = A B` are stored transposed. All matrices are row-major and dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A is m x k, B is k x n.
    Nn,
    /// A is m x k, B is stored n x k: `C = A B^T`. The shape of a linear layer, y = x W^T.
    Nt,
    /// A is stored k x m, B is k x n: `C = A^T B`. The shape of a weight gradient, dW = dy^T x.
    Tn,
}

/// Sizes of one product: C is m x n, k is summed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the three letters of every GEMM
pub struct GemmShape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

#[derive(Debug)]
pub enum Gemm {
    Kernel,
    Cublas(Cublas),
}

/// A cuBLAS handle; the mutex keeps "set stream, multiply" together.
pub struct Cublas {
    handle: Mutex<sys::cublasHandle_t>,
    workspace: u64,
}

impl std::fmt::Debug for Cublas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cublas")
    }
}

// SAFETY: a cuBLAS handle may move between threads; concurrent use is excluded by the mutex.
unsafe impl Send for Cublas {}
// SAFETY: as above.
unsafe impl Sync for Cublas {}

fn failed(call: &'static str) -> impl FnOnce(cublas::CublasError) -> Error {
    move |error| Error::Blas { call, status: format!("{:?}", error.0) }
}

impl Gemm {
    /// cuBLAS if its library can be loaded, else the own kernel. The context must be current.
    pub fn find() -> Result<Self> {
        // SAFETY: only asks the dynamic loader.
        if !unsafe { sys::is_culib_present() } {
            return Ok(Self::Kernel);
        }
        let handle = cublas::create_handle().map_err(failed("cublasCreate"))?;
        let workspace = driver::mem_alloc(WORKSPACE_BYTES)?;
        // SAFETY: the handle is alive; the workspace is device memory of that size and lives as long as the handle.
        unsafe {
            // Without a math mode that allows TF32, single-precision products stay single precision.
            sys::cublasSetMathMode(handle, sys::cublasMath_t::CUBLAS_DEFAULT_MATH)
                .result()
                .map_err(failed("cublasSetMathMode"))?;
        }
        Ok(Self::Cublas(Cublas { handle: Mutex::new(handle), workspace }))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Kernel => "own gemm kernel",
            Self::Cublas(_) => "cuBLAS",
        }
    }
}

/// The operands of a product, both in the same precision.
#[derive(Debug, Clone, Copy)]
enum Operands {
    F32(View<f32>, View<f32>),
    Bf16(View<u16>, View<u16>),
}

impl Stream {
    /// `c = a b` or, with `accumulate`, `c += a b`, with the operands laid out as `layout` says.
    ///
    /// # Errors
    /// [`Error::Length`] when a view is too short; the driver's or cuBLAS'.
    pub fn gemm(
        &self,
        layout: Layout,
        shape: GemmShape,
        a: View<f32>,
        b: View<f32>,
        c: View<f32>,
        accumulate: bool,
    ) -> Result<()> {
        self.product(layout, shape, Operands::F32(a, b), c, accumulate)
    }

    /// As [`Stream::gemm`], from bf16 operands (see `kernels::gemm::round_bf16`).
    ///
    /// # Errors
    /// As [`Stream::gemm`].
    pub fn gemm_bf16(
        &self,
        layout: Layout,
        shape: GemmShape,
        a: View<u16>,
        b: View<u16>,
        c: View<f32>,
        accumulate: bool,
    ) -> Result<()> {
        self.product(layout, shape, Operands::Bf16(a, b), c, accumulate)
    }

    fn product(
        &self,
        layout: Layout,
        shape: GemmShape,
        operands: Operands,
        c: View<f32>,
        accumulate: bool,
    ) -> Result<()> {
        let GemmShape { m, n, k } = shape;
        let (a_len, b_len) = match operands {
            Operands::F32(a, b) => (a.len(), b.len()),
            Operands::Bf16(a, b) => (a.len(), b.len()),
        };
        Error::check_length(|| format!("gemm {layout:?} {shape:?}, A"), m * k, a_len)?;
        Error::check_length(|| format!("gemm {layout:?} {shape:?}, B"), k * n, b_len)?;
        Error::check_length(|| format!("gemm {layout:?} {shape:?}, C"), m * n, c.len())?;
        if m == 0 || n == 0 || k == 0 {
            return if accumulate { Ok(()) } else { self.zero(c.slice(0..m * n)) };
        }
        if let Gemm::Cublas(blas) = &self.device().gemm {
            return blas.multiply(self, layout, shape, operands, c, accumulate);
        }
        // Strides between neighbours along m and k of A, and along k and n of B.
        let ((am, ak), (bk, bn)) = match layout {
            Layout::Nn => ((k, 1), (n, 1)),
            Layout::Nt => ((k, 1), (1, k)),
            Layout::Tn => ((1, m), (n, 1)),
        };
        let add = i32::from(accumulate);
        match operands {
            Operands::F32(a, b) => kernels::gemm::gemm::launch(self, a, b, c, m, n, k, am, ak, bk, bn, add),
            Operands::Bf16(a, b) => {
                kernels::gemm::gemm_bf16::launch(self, a, b, c, m, n, k, am, ak, bk, bn, add)
            }
        }
    }
}

impl Cublas {
    fn multiply(
        &self,
        stream: &Stream,
        layout: Layout,
        shape: GemmShape,
        operands: Operands,
        c: View<f32>,
        accumulate: bool,
    ) -> Result<()> {
        use sys::cublasOperation_t::{CUBLAS_OP_N as N, CUBLAS_OP_T as T};
        use sys::cudaDataType_t::{CUDA_R_16BF as BF16, CUDA_R_32F as F32};
        let narrow = |v: usize| i32::try_from(v).map_err(|_| Error::misuse(format!("gemm size {v}")));
        let (m, n, k) = (narrow(shape.m)?, narrow(shape.n)?, narrow(shape.k)?);
        // cuBLAS is column-major: row-major C = A B is column-major C^T = B^T A^T, so B goes first.
        let (op_b, ld_b) = if layout == Layout::Nt { (T, k) } else { (N, n) };
        let (op_a, ld_a) = if layout == Layout::Tn { (T, m) } else { (N, k) };
        let (a, b, element) = match operands {
            Operands::F32(a, b) => (a.address(), b.address(), F32),
            Operands::Bf16(a, b) => (a.address(), b.address(), BF16),
        };
        let (alpha, beta) = (1.0_f32, if accumulate { 1.0_f32 } else { 0.0 });
        let stream_handle =
            stream.handle.as_ref().ok_or_else(|| Error::misuse("cuBLAS without a driver stream"))?;
        let handle = self.handle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: handle and stream are alive; lengths were checked by the caller; alpha and beta are read before return.
        unsafe {
            cublas::set_stream(*handle, stream_handle.0.cast()).map_err(failed("cublasSetStream"))?;
            // Setting the stream resets the workspace.
            sys::cublasSetWorkspace_v2(
                *handle,
                std::ptr::with_exposed_provenance_mut(self.workspace as usize),
                WORKSPACE_BYTES,
            )
            .result()
            .map_err(failed("cublasSetWorkspace"))?;
            cublas::gemm_ex(
                *handle,
                op_b,
                op_a,
                n,
                m,
                k,
                (&raw const alpha).cast(),
                std::ptr::with_exposed_provenance(b as usize),
                element,
                ld_b,
                std::ptr::with_exposed_provenance(a as usize),
                element,
                ld_a,
                (&raw const beta).cast(),
                std::ptr::with_exposed_provenance_mut(c.address() as usize),
                F32,
                n,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
            .map_err(failed("cublasGemmEx"))
        }
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        let handle = self.handle.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: created in `find`, destroyed once, before its workspace.
        let _ = unsafe { cublas::destroy_handle(*handle) };
        driver::mem_free(self.workspace);
    }
}
