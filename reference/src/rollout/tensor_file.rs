//! Safetensors files, read tensor by tensor so that a file need not fit into memory.
//!
//! In: a path. Out: tensors as `f32` or `i64`, whatever the file stores them as, checked against the shape the caller needs.
//! Must never trust the file: every length is checked before it is used.

use crate::error::{Error, Result};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An open safetensors file.
pub struct TensorFile {
    path: PathBuf,
    file: File,
    data_start: u64,
    metadata: Metadata,
}

impl TensorFile {
    /// Opens the file and reads its header.
    pub fn open(path: &Path) -> Result<Self> {
        let fail =
            |what: String| Error::new(format!("cannot read the safetensors file {}: {what}", path.display()));
        let mut file = File::open(path).map_err(|error| fail(error.to_string()))?;
        let length = file.metadata().map_err(|error| fail(error.to_string()))?.len();
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(|_| fail(format!("it has only {length} bytes")))?;
        let header_length = u64::from_le_bytes(head);
        if header_length > length.saturating_sub(8) {
            return Err(fail(format!("its header claims {header_length} bytes, but the file has {length}")));
        }
        let mut header = vec![0; header_length as usize];
        file.read_exact(&mut header).map_err(|error| fail(error.to_string()))?;
        // Parsing checks that the tensors follow each other without gaps and are as long as their shapes say.
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| fail(format!("its header is not valid ({error})")))?;
        let data_start = 8 + header_length;
        let data_end = metadata.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
        if data_start + data_end > length {
            let missing = data_start + data_end - length;
            return Err(fail(format!("it is cut short: {missing} bytes of tensor data are missing")));
        }
        Ok(TensorFile { path: path.to_owned(), file, data_start, metadata })
    }

    /// Opens `path`, or every `.safetensors` file of the directory `path`, in the order of their names.
    pub fn open_all(path: &Path) -> Result<Vec<Self>> {
        if !path.is_dir() {
            return Ok(vec![Self::open(path)?]);
        }
        let entries = std::fs::read_dir(path)
            .map_err(|error| Error::new(format!("cannot list the directory {}: {error}", path.display())))?;
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
            .collect();
        paths.sort();
        if paths.is_empty() {
            return Err(Error::new(format!("the directory {} holds no .safetensors file", path.display())));
        }
        paths.iter().map(|path| Self::open(path)).collect()
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A value of the file's own metadata.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Whether the file holds a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.metadata.info(name).is_some()
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> Result<&[usize]> {
        Ok(&self.info(name)?.shape)
    }

    fn info(&self, name: &str) -> Result<&TensorInfo> {
        self.metadata.info(name).ok_or_else(|| {
            let mut names: Vec<String> = self.metadata.tensors().into_keys().collect();
            names.sort();
            names.truncate(8);
            Error::new(format!(
                "{} holds no tensor `{name}`; it begins with: {}",
                self.path.display(),
                names.join(", ")
            ))
        })
    }

    /// All values of a tensor whose shape must be `shape`.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let found = self.shape(name)?;
        if found != shape {
            return Err(Error::new(format!(
                "tensor `{name}` of {} has the shape {found:?}, expected {shape:?}",
                self.path.display()
            )));
        }
        self.f32_range(name, 0, shape.iter().product())
    }

    /// `count` values of a tensor from element `first` on, as `f32`.
    pub fn f32_range(&self, name: &str, first: usize, count: usize) -> Result<Vec<f32>> {
        let (dtype, bytes) = self.bytes(name, first, count)?;
        Ok(match dtype {
            Dtype::F32 => chunks(&bytes).map(f32::from_le_bytes).collect(),
            Dtype::F64 => chunks(&bytes).map(|b| f64::from_le_bytes(b) as f32).collect(),
            Dtype::BF16 => {
                chunks(&bytes).map(|b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)).collect()
            }
            Dtype::F16 => chunks(&bytes).map(|b| half_to_f32(u16::from_le_bytes(b))).collect(),
            Dtype::I64 => chunks(&bytes).map(|b| i64::from_le_bytes(b) as f32).collect(),
            Dtype::I32 => chunks(&bytes).map(|b| i32::from_le_bytes(b) as f32).collect(),
            Dtype::U8 | Dtype::BOOL => bytes.iter().map(|&b| f32::from(b)).collect(),
            other => return Err(self.unsupported(name, other)),
        })
    }

    /// `count` values of an integer tensor from element `first` on.
    pub fn i64_range(&self, name: &str, first: usize, count: usize) -> Result<Vec<i64>> {
        let (dtype, bytes) = self.bytes(name, first, count)?;
        Ok(match dtype {
            Dtype::I64 => chunks(&bytes).map(i64::from_le_bytes).collect(),
            Dtype::I32 => chunks(&bytes).map(|b| i64::from(i32::from_le_bytes(b))).collect(),
            Dtype::U32 => chunks(&bytes).map(|b| i64::from(u32::from_le_bytes(b))).collect(),
            other => return Err(self.unsupported(name, other)),
        })
    }

    fn unsupported(&self, name: &str, dtype: Dtype) -> Error {
        Error::new(format!(
            "tensor `{name}` of {} has the type {dtype:?}, which is not read here",
            self.path.display()
        ))
    }

    fn bytes(&self, name: &str, first: usize, count: usize) -> Result<(Dtype, Vec<u8>)> {
        let info = self.info(name)?;
        let elements: usize = info.shape.iter().product();
        if first.checked_add(count).is_none_or(|end| end > elements) {
            return Err(Error::new(format!(
                "tensor `{name}` of {} has {elements} values; {count} from number {first} on were asked for",
                self.path.display()
            )));
        }
        // Types below one byte never get here: their length in bytes is not a multiple of their number.
        let size = (info.data_offsets.1 - info.data_offsets.0).checked_div(elements).unwrap_or(0);
        let mut bytes = vec![0; count * size];
        let start = self.data_start + (info.data_offsets.0 + first * size) as u64;
        self.file.read_exact_at(&mut bytes, start).map_err(|error| {
            Error::new(format!("cannot read tensor `{name}` of {}: {error}", self.path.display()))
        })?;
        Ok((info.dtype, bytes))
    }
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// IEEE 754 half precision, subnormals, infinities and NaN included.
fn half_to_f32(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let (exponent, fraction) = (u32::from(half >> 10) & 31, u32::from(half) & 1023);
    match exponent {
        0 => f32::from_bits(sign) + if sign == 0 { 1.0 } else { -1.0 } * fraction as f32 * 2f32.powi(-24),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    fn write(tensors: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)>) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.safetensors");
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        (directory, path)
    }

    #[test]
    fn half_precision_is_exact() {
        let cases =
            [(0x3c00, 1.0), (0xc000, -2.0), (0x3555, 0.333_251_95), (0x0001, 5.960_464_5e-8), (0x8000, -0.0)];
        for (half, value) in cases {
            assert_eq!(half_to_f32(half).to_bits(), f32::to_bits(value), "{half:#x}");
        }
        assert_eq!(half_to_f32(0x7c00), f32::INFINITY);
        assert!(half_to_f32(0x7e00).is_nan());
    }

    #[test]
    fn values_come_back_whatever_they_are_stored_as() {
        let bf16 = [1.5f32, -2.0].iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
        let (_directory, path) = write(vec![
            ("bf16", Dtype::BF16, vec![2], bf16),
            ("mask", Dtype::BOOL, vec![3], vec![1, 0, 1]),
            ("ids", Dtype::I32, vec![2], [7i32, -1].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ]);
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.f32("bf16", &[2]).unwrap(), [1.5, -2.0]);
        assert_eq!(file.f32_range("mask", 1, 2).unwrap(), [0.0, 1.0]);
        assert_eq!(file.i64_range("ids", 0, 2).unwrap(), [7, -1]);
    }

    #[test]
    fn bad_files_and_wrong_shapes_are_refused_by_name() {
        let (_directory, path) = write(vec![("w", Dtype::F32, vec![2, 2], vec![0; 16])]);
        let file = TensorFile::open(&path).unwrap();
        assert!(file.f32("w", &[4]).unwrap_err().to_string().contains("shape [2, 2], expected [4]"));
        assert!(file.f32("v", &[4]).unwrap_err().to_string().contains("no tensor `v`; it begins with: w"));
        assert!(file.f32_range("w", 3, 2).unwrap_err().to_string().contains("has 4 values"));

        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(TensorFile::open(&path).is_err(), "{length} of {} bytes were accepted", whole.len());
        }
        std::fs::write(&path, b"\xff\xff\xff\xff\xff\xff\xff\x7fxxxx").unwrap();
        assert!(TensorFile::open(&path).err().unwrap().to_string().contains("its header claims"));
    }
}
