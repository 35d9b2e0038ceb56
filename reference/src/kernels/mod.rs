//! Every computation of the training step, each as CUDA C beside its host implementation.
//!
//! In: device views and plain numbers. Out: launches. One `kernel!` block is the single place where a kernel's parameters,
//! shapes, launch size, CUDA C and host implementation stand together; the C signature, the typed `launch` function, its length
//! checks and the registration with the emulated device are all generated from it, so they can't disagree.
//!
//! Never: a floating-point atomic, or a reduction whose order depends on scheduling. The same inputs give the same bits, on a
//! GPU and on the host (not the same bits on both: their `exp` and summation trees differ).
//!
//! # Rules of the host implementations
//! They run once per launch (not per thread block), single-threaded, on slices that the emulated device has bounds-checked.
//!
//! # Trailing padding is neutral
//! Per sequence, rows of unused blocks come last. Sums over rows go sequence by sequence in row order, so that computing with
//! fewer blocks per sequence (the historical, host-known width) adds fewer exact zeros and changes no bit of any sum.

pub mod anchors;
pub mod attention;
pub mod compare;
pub mod domino;
pub mod elementwise;
pub mod gemm;
pub mod loss;
pub mod norm;
pub mod optimizer;
pub mod rotary;

pub(crate) mod support;

use support::Plain;
use syncaudit_emulator_api::{KernelError, LaunchArgs};

/// One kernel of the registry.
#[derive(Debug)]
pub struct Kernel {
    /// Its name in the module.
    pub name: &'static str,
    /// Its parameters in order.
    pub params: &'static [Param],
    /// The CUDA C of the function body, braces included.
    pub body: &'static str,
    /// The host implementation behind the launch's raw parameters.
    pub host: fn(&LaunchArgs<'_>) -> Result<(), KernelError>,
    /// Launch size and the pointers' lengths, from the plain parameters' raw values in order.
    pub geometry: fn(&[u64]) -> Geometry,
}

/// How a kernel is launched for given sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Elements behind each pointer parameter, in order.
    pub lengths: Vec<usize>,
    /// Thread blocks in x, y, z.
    pub grid: [usize; 3],
    /// Threads per block.
    pub block: usize,
    /// Dynamic shared memory per block.
    pub shared_bytes: usize,
}

/// What a kernel does with a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A plain number.
    Value,
    /// Reads through a pointer.
    Read,
    /// Writes (and maybe reads) through a pointer.
    Write,
    /// Reads through a pointer unless it is null.
    ReadOrNull,
}

impl Kernel {
    /// No kernel has more parameters than this.
    pub const MAX_PARAMS: usize = 24;

    /// The complete CUDA C definition.
    #[must_use]
    pub fn cuda_definition(&self) -> String {
        let params: Vec<String> = self.params.iter().map(|p| format!("{} {}", p.c_type, p.name)).collect();
        // The bound keeps registers few enough for the largest block, 32 slots of a warp each.
        format!(
            "extern \"C\" __global__ void __launch_bounds__(1024) {}({})\n{}\n",
            self.name,
            params.join(", "),
            self.body
        )
    }
}

/// One kernel parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Its name in both implementations.
    pub name: &'static str,
    /// Its C type.
    pub c_type: &'static str,
    /// Its size.
    pub bytes: usize,
    /// What happens to it.
    pub access: Access,
    /// The Rust type of the number, or of the elements pointed at.
    pub element: &'static str,
}

/// Helpers that the CUDA C bodies use.
const PRELUDE: &str = include_str!("prelude.cu");

/// The registry: every kernel of the crate.
#[must_use]
pub fn all() -> &'static [&'static Kernel] {
    static ALL: &[&Kernel] = &[
        &gemm::gemm::KERNEL,
        &gemm::gemm_bf16::KERNEL,
        &gemm::round_bf16::KERNEL,
        &anchors::anchor_count::KERNEL,
        &anchors::anchor_draw::KERNEL,
        &anchors::noise_embed::KERNEL,
        &norm::rms_norm::KERNEL,
        &norm::rms_norm_backward::KERNEL,
        &norm::rms_norm_weight_partial::KERNEL,
        &norm::column_sum::KERNEL,
        &rotary::rotary::KERNEL,
        &attention::attention::KERNEL,
        &attention::attention_delta::KERNEL,
        &attention::attention_backward_query::KERNEL,
        &attention::attention_backward_draft::KERNEL,
        &attention::attention_backward_context::KERNEL,
        &elementwise::add::KERNEL,
        &elementwise::scale::KERNEL,
        &elementwise::add_scaled::KERNEL,
        &elementwise::silu_gate::KERNEL,
        &elementwise::silu_gate_backward::KERNEL,
        &domino::previous_embed::KERNEL,
        &domino::gru::KERNEL,
        &domino::gru_backward::KERNEL,
        &domino::concat::KERNEL,
        &domino::concat_backward::KERNEL,
        &domino::suffix_silu::KERNEL,
        &domino::suffix_silu_backward::KERNEL,
        &loss::loss_weights::KERNEL,
        &loss::loss_sums::KERNEL,
        &loss::curriculum::KERNEL,
        &loss::loss_shares::KERNEL,
        &loss::dpace_shares::KERNEL,
        &loss::cross_entropy::KERNEL,
        &loss::cross_entropy_gradient::KERNEL,
        &loss::loss_finish::KERNEL,
        &optimizer::square_sums::KERNEL,
        &optimizer::step_scalars::KERNEL,
        &optimizer::adamw::KERNEL,
        &optimizer::step_finish::KERNEL,
    ];
    ALL
}

/// One translation unit with the given kernels.
#[must_use]
pub fn cuda_source(kernels: &[&Kernel]) -> String {
    let mut source = PRELUDE.to_owned();
    for kernel in kernels {
        source.push('\n');
        source.push_str(&kernel.cuda_definition());
    }
    source
}

/// Compiles kernels with the NVRTC that is loaded; returns the PTX text and the size of the machine code. No device needed.
///
/// # Errors
/// NVRTC's log.
pub fn compile_check(kernels: &[&Kernel], architecture: &str) -> crate::device::Result<(String, usize)> {
    let compiled = crate::device::compile(&cuda_source(kernels), architecture)?;
    Ok((compiled.ptx.to_string_lossy().into_owned(), compiled.machine_code.len()))
}
