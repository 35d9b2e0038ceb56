//! Features recorded in safetensors files, in place of a live target.
//!
//! In: a file or a directory of files, each with `input_ids` [n, S] (or [S]), `hidden_states` [n, S, T*H] and `loss_mask`
//! [n, S]. Out: sample number `index` of an endless series that repeats the rows in file order. Rows are read one at a time.

use super::Features;
use super::tensor_file::TensorFile;
use crate::error::{Error, Result};
use std::path::Path;

/// Rows of recorded features.
pub struct FeatureFiles {
    files: Vec<(TensorFile, usize)>,
    sequence_length: usize,
    width: usize,
    vocabulary: usize,
    rows: usize,
}

impl FeatureFiles {
    /// Opens `path` and checks every file's shapes: sequences of `sequence_length` tokens, hidden states `width` = T*H wide.
    pub fn open(path: &Path, sequence_length: usize, width: usize, vocabulary: usize) -> Result<Self> {
        let mut files = Vec::new();
        for file in TensorFile::open_all(path)? {
            let fail =
                |what: String| Error::new(format!("the feature file {}: {what}", file.path().display()));
            let ids = file.shape("input_ids")?.to_vec();
            let rows = match ids[..] {
                [found] if found == sequence_length => 1,
                [rows, found] if found == sequence_length => rows,
                [.., found] if ids.len() <= 2 => {
                    return Err(fail(format!(
                        "sequences have {found} tokens, but the trainer is set to {sequence_length}; pass --sequence {found}"
                    )));
                }
                _ => return Err(fail(format!("`input_ids` has the shape {ids:?}, expected [n, S]"))),
            };
            let check = |name: &str, per_row: &[usize]| {
                let found = file.shape(name)?;
                let leading = &found[..found.len().saturating_sub(per_row.len())];
                if found.ends_with(per_row) && (leading == [rows] || (rows == 1 && leading.is_empty())) {
                    return Ok(());
                }
                let expected: Vec<usize> = std::iter::once(rows).chain(per_row.iter().copied()).collect();
                Err(fail(format!("`{name}` has the shape {found:?}, expected {expected:?}")))
            };
            check("hidden_states", &[sequence_length, width])?;
            check("loss_mask", &[sequence_length])?;
            files.push((file, rows));
        }
        let rows = files.iter().map(|(_, rows)| rows).sum();
        if rows == 0 {
            return Err(Error::new(format!("the feature files in {} hold no row", path.display())));
        }
        Ok(FeatureFiles { files, sequence_length, width, vocabulary, rows })
    }

    /// How many rows one pass over the files has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Sample `index` of the endless series.
    pub fn sample(&self, index: u64) -> Result<Features> {
        let mut row = (index % self.rows as u64) as usize;
        let mut files = self.files.iter();
        let file = loop {
            // The row is below the sum of all rows, so a file that holds it is found.
            let (file, rows) =
                files.next().ok_or_else(|| Error::new("the feature files changed while in use"))?;
            if row < *rows {
                break file;
            }
            row -= rows;
        };
        let s = self.sequence_length;
        let input_ids = file.i64_range("input_ids", row * s, s)?;
        if let Some(id) = input_ids.iter().find(|id| !(0..self.vocabulary as i64).contains(id)) {
            return Err(Error::new(format!(
                "the feature file {}, row {row}: token {id} is outside the vocabulary of {}",
                file.path().display(),
                self.vocabulary
            )));
        }
        Ok(Features {
            sample: index,
            input_ids: input_ids.into_iter().map(|id| id as i32).collect(),
            hidden_states: file.f32_range("hidden_states", row * s * self.width, s * self.width)?,
            loss_mask: file.f32_range("loss_mask", row * s, s)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{Dtype, TensorView};
    use std::path::PathBuf;

    fn write(directory: &Path, name: &str, rows: usize, first_token: i64, hidden_width: usize) -> PathBuf {
        let ids: Vec<u8> = (0..rows as i64 * 4).flat_map(|i| (first_token + i).to_le_bytes()).collect();
        let hidden: Vec<u8> = (0..rows * 4 * hidden_width).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mask: Vec<u8> = vec![1; rows * 4];
        let view = |dtype, shape, data| TensorView::new(dtype, shape, data).unwrap();
        let tensors = [
            ("input_ids", view(Dtype::I64, vec![rows, 4], &ids)),
            ("hidden_states", view(Dtype::F32, vec![rows, 4, hidden_width], &hidden)),
            ("loss_mask", view(Dtype::BOOL, vec![rows, 4], &mask)),
        ];
        let path = directory.join(name);
        std::fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
        path
    }

    #[test]
    fn rows_come_in_file_order_and_then_again() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "b.safetensors", 1, 100, 2);
        write(directory.path(), "a.safetensors", 2, 0, 2);
        let files = FeatureFiles::open(directory.path(), 4, 2, 200).unwrap();
        let first_tokens: Vec<i32> = (0..4).map(|i| files.sample(i).unwrap().input_ids[0]).collect();
        assert_eq!(first_tokens, [0, 4, 100, 0]);
        let second = files.sample(1).unwrap();
        assert_eq!(second.sample, 1);
        assert_eq!(second.hidden_states, [8., 9., 10., 11., 12., 13., 14., 15.]);
        assert_eq!(second.loss_mask, [1.0; 4]);
    }

    #[test]
    fn files_that_do_not_fit_are_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = write(directory.path(), "a.safetensors", 2, 0, 2);
        let message = |s, width, v| match FeatureFiles::open(&path, s, width, v) {
            Err(error) => error.to_string(),
            Ok(files) => files.sample(1).unwrap_err().to_string(),
        };
        assert!(message(8, 2, 200).contains("pass --sequence 4"));
        assert!(message(4, 3, 200).contains("`hidden_states` has the shape [2, 4, 2], expected [2, 4, 3]"));
        assert!(message(4, 2, 6).contains("token 6 is outside the vocabulary of 6"));
    }
}
