//! The `kernel!` macro: one block per kernel, everything else generated.
//!
//! ```text
//! kernel! {
//!     /// What it computes.
//!     name(
//!         x: read f32 [rows * width],      // const float*, &[f32]
//!         y: write f32 [rows * width],     // float*, &mut [f32]
//!         s: maybe f32 [1];                // const float* or null, Option<&[f32]>
//!         rows: usize, width: usize, eps: f32   // int, int, float
//!     )
//!     grid [rows, 1, 1], block 256, shared 0;
//!     cuda "{ ... }"
//!     host { ... }
//! }
//! ```
//! Lengths, grid, block and shared bytes are expressions over the plain parameters (as `usize`).

pub use syncaudit_emulator_api::{KernelError, LaunchArgs};

pub use super::{Access, Geometry, Kernel, Param};
pub use crate::device::{Error, Result, Stream, View};

/// A plain kernel parameter: how it looks in C, in a launch and in the host implementation.
pub trait Plain: Copy {
    const C_TYPE: &'static str;
    const BYTES: usize;
    /// The value as the launch passes it, in the low bytes.
    fn encode(self, name: &'static str) -> Result<u64>;
    fn decode(launch: &LaunchArgs<'_>, index: usize) -> Result<Self, KernelError>;
    /// The inverse of `encode`.
    fn from_bits(bits: u64) -> Self;
    /// For use in length and grid expressions; meaningful for `usize` only.
    fn size(self) -> usize;
}

macro_rules! plain {
    ($t:ty, $c:literal, $bits:expr, $value:expr) => {
        impl Plain for $t {
            const C_TYPE: &'static str = $c;
            const BYTES: usize = size_of::<$t>();
            fn encode(self, _: &'static str) -> Result<u64> {
                let bits: fn($t) -> u64 = $bits;
                Ok(bits(self))
            }
            fn decode(launch: &LaunchArgs<'_>, index: usize) -> Result<Self, KernelError> {
                launch.param(index)
            }
            #[allow(clippy::cast_possible_truncation)]
            fn from_bits(bits: u64) -> Self {
                let value: fn(u64) -> $t = $value;
                value(bits)
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn size(self) -> usize {
                self as usize
            }
        }
    };
}

plain!(f32, "float", |v| u64::from(v.to_bits()), |b| f32::from_bits(b as u32));
plain!(i32, "int", |v| u64::from(v.cast_unsigned()), |b| (b as u32).cast_signed());
plain!(u32, "unsigned int", u64::from, |b| b as u32);
plain!(u64, "unsigned long long", |v| v, |b| b);

impl Plain for usize {
    const C_TYPE: &'static str = "int";
    const BYTES: usize = 4;
    fn encode(self, name: &'static str) -> Result<u64> {
        match i32::try_from(self) {
            Ok(v) => Ok(u64::from(v.cast_unsigned())),
            Err(_) => Err(Error::misuse(format!("kernel parameter {name} = {self} exceeds 31 bits"))),
        }
    }
    fn decode(launch: &LaunchArgs<'_>, index: usize) -> Result<Self, KernelError> {
        let value = launch.param::<i32>(index)?;
        usize::try_from(value).map_err(|_| KernelError::Failed(format!("size parameter {index} is {value}")))
    }
    fn from_bits(bits: u64) -> Self {
        usize::try_from(bits).unwrap_or(usize::MAX)
    }
    fn size(self) -> usize {
        self
    }
}

macro_rules! pointer {
    (c read f32) => { "const float* __restrict__" };
    (c read i32) => { "const int* __restrict__" };
    (c read u16) => { "const unsigned short* __restrict__" };
    (c read u32) => { "const unsigned int* __restrict__" };
    (c maybe f32) => { "const float*" };
    (c maybe i32) => { "const int*" };
    (c write f32) => { "float* __restrict__" };
    (c write i32) => { "int* __restrict__" };
    (c write u16) => { "unsigned short* __restrict__" };
    (c write u32) => { "unsigned int* __restrict__" };

    (access read) => { Access::Read };
    (access write) => { Access::Write };
    (access maybe) => { Access::ReadOrNull };

    (view read $t:ident) => { View<$t> };
    (view write $t:ident) => { View<$t> };
    (view maybe $t:ident) => { Option<View<$t>> };

    (slice read $t:ident) => { &[$t] };
    (slice write $t:ident) => { &mut [$t] };
    (slice maybe $t:ident) => { Option<&[$t]> };

    (some read $v:ident) => { Some($v) };
    (some write $v:ident) => { Some($v) };
    (some maybe $v:ident) => { $v };

    (borrow read $l:ident $a:ident $n:expr) => { $l.slice($a, $n)? };
    (borrow write $l:ident $a:ident $n:expr) => { $l.slice_mut($a, $n)? };
    (borrow maybe $l:ident $a:ident $n:expr) => { if $a == 0 { None } else { Some($l.slice($a, $n)?) } };
}
pub(crate) use pointer;

macro_rules! kernel {
    (
        $(#[$doc:meta])*
        $name:ident(
            $($p:ident : $mode:ident $t:ident [$len:expr]),+ ;
            $($s:ident : $st:ident),+ $(,)?
        )
        grid $grid:expr, block $block:expr, shared $shared:expr;
        cuda $cuda:literal
        host $body:block
    ) => {
        $(#[$doc])*
        pub mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[allow(unused_imports)]
            use $crate::kernels::support::{
                Access, Error, Geometry, Kernel, KernelError, LaunchArgs, Param, Plain, Result, Stream, View, pointer,
            };

            /// The registry entry.
            pub static KERNEL: Kernel = Kernel {
                name: stringify!($name),
                params: &[
                    $(Param {
                        name: stringify!($p),
                        c_type: pointer!(c $mode $t),
                        bytes: 8,
                        access: pointer!(access $mode),
                        element: stringify!($t),
                    },)+
                    $(Param {
                        name: stringify!($s),
                        c_type: <$st as Plain>::C_TYPE,
                        bytes: <$st as Plain>::BYTES,
                        access: Access::Value,
                        element: stringify!($st),
                    },)+
                ],
                body: $cuda,
                host: from_launch,
                geometry,
            };

            /// Launch size and the pointers' lengths, from the plain parameters' raw values.
            #[allow(unused_variables)]
            fn geometry(values: &[u64]) -> Geometry {
                let mut values = values.iter().copied();
                $(let $s = Plain::size(<$st as Plain>::from_bits(values.next().unwrap_or(0)));)+
                Geometry {
                    lengths: vec![$({ let n: usize = $len; n }),+],
                    grid: $grid,
                    block: $block,
                    shared_bytes: $shared,
                }
            }

            /// Checks lengths and launches; does not wait.
            ///
            /// # Errors
            /// A view that is too short; the driver's.
            #[allow(clippy::too_many_arguments, unused_variables)]
            pub fn launch(stream: &Stream, $($p: pointer!(view $mode $t),)+ $($s: $st),+) -> Result<()> {
                let values = [$(Plain::encode($s, stringify!($s))?),+];
                let geometry = geometry(&values);
                let mut arguments = Vec::with_capacity(KERNEL.params.len());
                let mut lengths = geometry.lengths.iter();
                $(
                    let needed = lengths.next().copied().unwrap_or(0);
                    arguments.push(match pointer!(some $mode $p) {
                        Some(view) => {
                            let what = || format!("kernel {}, {}", stringify!($name), stringify!($p));
                            Error::check_length(what, needed, view.len())?;
                            view.address()
                        }
                        None => 0,
                    });
                )+
                arguments.extend(values);
                stream.launch(&KERNEL, geometry.grid, geometry.block, geometry.shared_bytes, &mut arguments)
            }

            #[allow(unused_variables, unused_assignments)]
            fn from_launch(launch: &LaunchArgs<'_>) -> Result<(), KernelError> {
                let mut index = 0;
                $(let $p: u64 = launch.param(index)?; index += 1;)+
                $(let $s = <$st as Plain>::decode(launch, index)?; index += 1;)+
                let values = [$(Plain::encode($s, stringify!($s)).unwrap_or(0)),+];
                let mut lengths = geometry(&values).lengths.into_iter();
                $(
                    let n = lengths.next().unwrap_or(0);
                    let $p = pointer!(borrow $mode launch $p n);
                )+
                host($($p,)+ $($s),+);
                Ok(())
            }

            /// The host implementation.
            #[allow(clippy::too_many_arguments, unused_variables)]
            pub fn host($($p: pointer!(slice $mode $t),)+ $($s: $st),+) $body
        }
    };
}
pub(crate) use kernel;
