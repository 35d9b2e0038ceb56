//! The numbers that NCCL reduces, and how.

use super::collective::Operator;
use super::{Code, Failure, Result};

/// `ncclDataType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // named as in nccl.h
pub enum Number {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
}

impl Number {
    pub fn of(code: u32) -> Result<Self> {
        use Number::*;
        [Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16]
            .into_iter()
            .find(|number| *number as u32 == code)
            .ok_or_else(|| Failure::new(Code::InvalidArgument, format!("unknown data type {code}")))
    }

    /// Size of one.
    pub fn bytes(self) -> usize {
        match self {
            Number::Int8 | Number::Uint8 => 1,
            Number::Float16 | Number::Bfloat16 => 2,
            Number::Int32 | Number::Uint32 | Number::Float32 => 4,
            Number::Int64 | Number::Uint64 | Number::Float64 => 8,
        }
    }

    /// As it stands in the names of NCCL's kernels.
    pub fn name(self) -> &'static str {
        match self {
            Number::Int8 => "i8",
            Number::Uint8 => "u8",
            Number::Int32 => "i32",
            Number::Uint32 => "u32",
            Number::Int64 => "i64",
            Number::Uint64 => "u64",
            Number::Float16 => "f16",
            Number::Float32 => "f32",
            Number::Float64 => "f64",
            Number::Bfloat16 => "bf16",
        }
    }

    /// Whether there is arithmetic for it here.
    pub fn reduces(self) -> bool {
        self != Number::Float16
    }

    /// `into = into (operator) with`, number by number. Both are packed and of one length.
    pub fn combine(self, operator: Operator, into: &mut [u8], with: &[u8]) {
        macro_rules! integer {
            ($ty:ty) => {
                each(into, with, |a, b| {
                    let (a, b) = (<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b));
                    match operator {
                        Operator::Sum | Operator::Avg => a.wrapping_add(b),
                        Operator::Prod => a.wrapping_mul(b),
                        Operator::Max => a.max(b),
                        Operator::Min => a.min(b),
                    }
                    .to_le_bytes()
                })
            };
        }
        match self {
            Number::Int8 => integer!(i8),
            Number::Uint8 => integer!(u8),
            Number::Int32 => integer!(i32),
            Number::Uint32 => integer!(u32),
            Number::Int64 => integer!(i64),
            Number::Uint64 => integer!(u64),
            Number::Float32 => each(into, with, |a, b| {
                operator.single(f32::from_le_bytes(a), f32::from_le_bytes(b)).to_le_bytes()
            }),
            Number::Float64 => each(into, with, |a, b| {
                operator.double(f64::from_le_bytes(a), f64::from_le_bytes(b)).to_le_bytes()
            }),
            Number::Bfloat16 => each(into, with, |a, b| bf16(operator.single(from_bf16(a), from_bf16(b)))),
            // Refused when the collective was made.
            Number::Float16 => {}
        }
    }

    /// Divides a sum by the number of ranks, for averages.
    pub fn divide(self, values: &mut [u8], ranks: usize) {
        macro_rules! number {
            ($ty:ty) => {
                each_alone(values, |a| (<$ty>::from_le_bytes(a) / ranks as $ty).to_le_bytes())
            };
        }
        match self {
            // In a wider type: the number of ranks may not fit a small one.
            Number::Int8 => {
                each_alone(values, |a| ((i64::from(i8::from_le_bytes(a)) / ranks as i64) as i8).to_le_bytes())
            }
            Number::Uint8 => {
                each_alone(values, |a| ((u64::from(u8::from_le_bytes(a)) / ranks as u64) as u8).to_le_bytes())
            }
            Number::Int32 => number!(i32),
            Number::Uint32 => number!(u32),
            Number::Int64 => number!(i64),
            Number::Uint64 => number!(u64),
            Number::Float32 => number!(f32),
            Number::Float64 => number!(f64),
            Number::Bfloat16 => each_alone(values, |a| bf16(from_bf16(a) / ranks as f32)),
            Number::Float16 => {}
        }
    }
}

impl Operator {
    fn single(self, a: f32, b: f32) -> f32 {
        match self {
            Operator::Sum | Operator::Avg => a + b,
            Operator::Prod => a * b,
            Operator::Max => a.max(b),
            Operator::Min => a.min(b),
        }
    }

    fn double(self, a: f64, b: f64) -> f64 {
        match self {
            Operator::Sum | Operator::Avg => a + b,
            Operator::Prod => a * b,
            Operator::Max => a.max(b),
            Operator::Min => a.min(b),
        }
    }
}

fn each<const N: usize>(into: &mut [u8], with: &[u8], f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    for (a, b) in into.as_chunks_mut::<N>().0.iter_mut().zip(with.as_chunks::<N>().0) {
        *a = f(*a, *b);
    }
}

fn each_alone<const N: usize>(values: &mut [u8], f: impl Fn([u8; N]) -> [u8; N]) {
    values.as_chunks_mut::<N>().0.iter_mut().for_each(|a| *a = f(*a));
}

fn from_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// Rounded to nearest, ties to even, as the device does it.
fn bf16(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let upper = if value.is_nan() { (bits >> 16) | 0x40 } else { (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 };
    (upper as u16).to_le_bytes()
}
