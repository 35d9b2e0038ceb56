//! Matrix products: cuBLAS on a GPU that has it, the own `gemm` kernel everywhere else. Always 32-bit floats, never TF32.
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
        let GemmShape { m, n, k } = shape;
        Error::check_length(|| format!("gemm {layout:?} {shape:?}, A"), m * k, a.len())?;
        Error::check_length(|| format!("gemm {layout:?} {shape:?}, B"), k * n, b.len())?;
        Error::check_length(|| format!("gemm {layout:?} {shape:?}, C"), m * n, c.len())?;
        if m == 0 || n == 0 || k == 0 {
            return if accumulate { Ok(()) } else { self.zero(c.slice(0..m * n)) };
        }
        match &self.device().gemm {
            Gemm::Cublas(blas) => blas.multiply(self, layout, shape, a, b, c, accumulate),
            Gemm::Kernel => {
                // Strides between neighbours along m and k of A, and along k and n of B.
                let ((am, ak), (bk, bn)) = match layout {
                    Layout::Nn => ((k, 1), (n, 1)),
                    Layout::Nt => ((k, 1), (1, k)),
                    Layout::Tn => ((1, m), (n, 1)),
                };
                kernels::gemm::gemm::launch(self, a, b, c, m, n, k, am, ak, bk, bn, i32::from(accumulate))
            }
        }
    }
}

impl Cublas {
    #[allow(clippy::too_many_arguments)]
    fn multiply(
        &self,
        stream: &Stream,
        layout: Layout,
        shape: GemmShape,
        a: View<f32>,
        b: View<f32>,
        c: View<f32>,
        accumulate: bool,
    ) -> Result<()> {
        use sys::cublasOperation_t::{CUBLAS_OP_N as N, CUBLAS_OP_T as T};
        let narrow = |v: usize| i32::try_from(v).map_err(|_| Error::misuse(format!("gemm size {v}")));
        let (m, n, k) = (narrow(shape.m)?, narrow(shape.n)?, narrow(shape.k)?);
        // cuBLAS is column-major: row-major C = A B is column-major C^T = B^T A^T, so B goes first.
        let (op_b, ld_b) = if layout == Layout::Nt { (T, k) } else { (N, n) };
        let (op_a, ld_a) = if layout == Layout::Tn { (T, m) } else { (N, k) };
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
            cublas::sgemm(
                *handle,
                op_b,
                op_a,
                n,
                m,
                k,
                &raw const alpha,
                std::ptr::with_exposed_provenance(b.address() as usize),
                ld_b,
                std::ptr::with_exposed_provenance(a.address() as usize),
                ld_a,
                &raw const beta,
                std::ptr::with_exposed_provenance_mut(c.address() as usize),
                n,
            )
            .map_err(failed("cublasSgemm"))
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
