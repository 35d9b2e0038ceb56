//! Training text as token sequences of one length.
//!
//! In: a text file, a JSONL file, or the texts that the binary carries; a tokenizer; a seed. Out: sequence number `index`
//! of an endless, reshuffled-per-epoch series. The series is a pure function of (data, seed, index), so the data position
//! of a checkpoint is one number. Must never depend on the working directory or on when it is called.

mod builtin;
mod jsonl;
pub mod random;
pub mod tokenizer;

use crate::error::{Error, Result};
use random::SplitMix;
use std::cell::RefCell;
use std::path::Path;
use tokenizer::Tokenizer;

/// Tokens of one sequence, and which of them are supervised. Both are as long as the data set's sequence length.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Token ids, [S].
    pub input_ids: Vec<i32>,
    /// 1 where the token is supervised, else 0, [S].
    pub loss_mask: Vec<f32>,
}

/// A token and whether it is supervised: what the readers of the file formats yield, one list per document.
type Marked = Vec<(i32, bool)>;

/// All sequences of the training data.
pub struct Dataset {
    sequences: Vec<Sequence>,
    seed: u64,
    /// The epoch last asked for and its order, because making one costs as much as the data set is long.
    order: RefCell<(u64, Vec<usize>)>,
}

impl Dataset {
    /// Reads `path` (the built-in texts when `None`): JSONL when its name ends in `.jsonl`, else UTF-8 text.
    pub fn open(
        path: Option<&Path>,
        tokenizer: &Tokenizer,
        sequence_length: usize,
        seed: u64,
    ) -> Result<Self> {
        let Some(path) = path else {
            let documents =
                builtin::TEXTS.iter().map(|text| plain(text, tokenizer)).collect::<Result<Vec<_>>>()?;
            return Self::pack("the built-in text", documents, tokenizer, sequence_length, seed);
        };
        let shown = path.display();
        let bytes = std::fs::read(path)
            .map_err(|error| Error::new(format!("cannot read the training data {shown}: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Error::new(format!(
                "the training data {shown} is not UTF-8 text (byte {at}); give a text file, or a .jsonl file of prompts and answers"
            ))
        })?;
        let documents = if path.extension().is_some_and(|extension| extension == "jsonl") {
            jsonl::documents(&text, tokenizer)
                .map_err(|error| Error::new(format!("the training data {shown}, {error}")))?
        } else {
            vec![plain(&text, tokenizer)?]
        };
        Self::pack(&format!("the training data {shown}"), documents, tokenizer, sequence_length, seed)
    }

    /// Plain documents are cut into sequences; a rest shorter than a sequence is padded, its padding unsupervised.
    fn pack(
        what: &str,
        documents: Vec<Marked>,
        tokenizer: &Tokenizer,
        length: usize,
        seed: u64,
    ) -> Result<Self> {
        let mut sequences = Vec::new();
        for document in documents {
            for piece in document.chunks(length) {
                let supervised = piece.iter().filter(|(_, supervised)| *supervised).count();
                // A piece with nothing to learn from would only cost a place in a batch.
                if supervised == 0 {
                    continue;
                }
                let padding = std::iter::repeat_n((tokenizer.pad_id(), false), length - piece.len());
                let (input_ids, loss_mask) = piece
                    .iter()
                    .copied()
                    .chain(padding)
                    .map(|(id, supervised)| (id, if supervised { 1.0 } else { 0.0 }))
                    .unzip();
                sequences.push(Sequence { input_ids, loss_mask });
            }
        }
        if sequences.is_empty() {
            return Err(Error::new(format!(
                "{what} holds no supervised token; give a text file that is not empty, or answers that are not"
            )));
        }
        let order = RefCell::new((0, epoch_order(sequences.len(), seed, 0)));
        Ok(Dataset { sequences, seed, order })
    }

    /// How many sequences one epoch has.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Never: a data set without a sequence is refused when opened.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Sequence `index` of the endless series: every epoch holds every sequence once, in an order of its own.
    pub fn sequence(&self, index: u64) -> &Sequence {
        let n = self.sequences.len() as u64;
        let mut order = self.order.borrow_mut();
        if order.0 != index / n {
            *order = (index / n, epoch_order(self.sequences.len(), self.seed, index / n));
        }
        &self.sequences[order.1[(index % n) as usize]]
    }
}

fn epoch_order(sequences: usize, seed: u64, epoch: u64) -> Vec<usize> {
    random::permutation(sequences, SplitMix::of(&[seed, epoch]))
}

/// Plain text is supervised throughout and closed by the end token.
fn plain(text: &str, tokenizer: &Tokenizer) -> Result<Marked> {
    let mut marked: Marked = tokenizer.encode(text)?.into_iter().map(|id| (id, true)).collect();
    if !marked.is_empty() {
        marked.push((tokenizer.end_id(), true));
    }
    Ok(marked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn text_file(name: &str, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        (directory, path)
    }

    fn open(path: &Path, length: usize) -> Result<Dataset> {
        Dataset::open(Some(path), &Tokenizer::Bytes, length, 7)
    }

    #[test]
    fn the_built_in_text_needs_no_file() {
        let data = Dataset::open(None, &Tokenizer::Bytes, 64, 0).unwrap();
        assert!(data.len() > 100, "only {} sequences", data.len());
    }

    #[test]
    fn every_epoch_holds_every_sequence_once_in_another_order() {
        let (_directory, path) =
            text_file("a.txt", (0..=255u8).filter(u8::is_ascii).collect::<Vec<_>>().as_slice());
        let data = open(&path, 4).unwrap();
        let n = data.len() as u64;
        let epoch = |e: u64| (0..n).map(|i| data.sequence(e * n + i).input_ids.clone()).collect::<Vec<_>>();
        let count = |e| {
            epoch(e).into_iter().fold(BTreeMap::new(), |mut m, s| {
                *m.entry(s).or_insert(0) += 1;
                m
            })
        };
        assert_eq!(count(0).len() as u64, n);
        assert_eq!(count(0), count(1));
        assert_ne!(epoch(0), epoch(1));
    }

    #[test]
    fn a_rest_is_padded_and_the_padding_is_not_supervised() {
        let (_directory, path) = text_file("a.txt", b"abcde");
        let data = open(&path, 8).unwrap();
        let sequence = data.sequence(0);
        assert_eq!(&sequence.input_ids[..6], &[97, 98, 99, 100, 101, Tokenizer::Bytes.end_id()]);
        assert_eq!(sequence.loss_mask, [1., 1., 1., 1., 1., 1., 0., 0.]);
    }

    #[test]
    fn only_answers_are_supervised() {
        let (_directory, path) = text_file("a.jsonl", b"{\"prompt\": \"ab\", \"answer\": \"c\"}\n\n");
        let data = open(&path, 8).unwrap();
        let sequence = data.sequence(0);
        assert_eq!(sequence.input_ids[..4], [97, 98, 99, Tokenizer::Bytes.end_id()]);
        assert_eq!(sequence.loss_mask, [0., 0., 1., 1., 0., 0., 0., 0.]);
    }

    #[test]
    fn bad_data_is_refused_with_the_place() {
        let message = |name: &str, content: &[u8]| {
            let (_directory, path) = text_file(name, content);
            open(&path, 8).err().expect("refused").to_string()
        };
        assert!(message("a.txt", b"ab\xff").contains("not UTF-8 text (byte 2)"));
        assert!(message("a.txt", b"").contains("no supervised token"));
        assert!(message("a.jsonl", b"{\"prompt\": \"a\", \"answer\": \"b\"}\n{").contains("line 2"));
        assert!(message("a.jsonl", b"{\"question\": \"a\"}").contains("line 1"));
        assert!(open(Path::new("/nowhere/a.txt"), 8).err().unwrap().to_string().contains("cannot read"));
    }
}
