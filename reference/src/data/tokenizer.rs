//! Text to token ids: bytes, or a `tokenizer.json`.

use crate::error::{Error, Result};
use std::path::Path;

/// How text becomes token ids.
pub enum Tokenizer {
    /// A token per byte, then the end token (256) and the mask token (257).
    Bytes,
    /// A Hugging Face `tokenizer.json`.
    #[cfg(feature = "tokenizers")]
    File(Box<FileTokenizer>),
}

/// A tokenizer read from a file, and the ids of the two tokens that training needs.
#[cfg(feature = "tokenizers")]
pub struct FileTokenizer {
    tokenizer: tokenizers::Tokenizer,
    vocabulary: usize,
    end_id: i32,
    mask_id: i32,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Where the vocabulary has no end or mask token, ids behind it are used.
    #[cfg(feature = "tokenizers")]
    pub fn open(path: &Path) -> Result<Self> {
        let tokenizer = tokenizers::Tokenizer::from_file(path)
            .map_err(|error| Error::new(format!("cannot read the tokenizer {}: {error}", path.display())))?;
        // Ids need not be dense, so the vocabulary ends behind the largest.
        let mut vocabulary = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        let mut find = |names: &[&str]| {
            let known = names.iter().find_map(|name| tokenizer.token_to_id(name));
            known.map(|id| id as i32).unwrap_or_else(|| {
                vocabulary += 1;
                vocabulary as i32 - 1
            })
        };
        let end_id = find(&["<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"]);
        let mask_id = find(&["<|MASK|>", "<|mask|>", "<mask>", "[MASK]"]);
        Ok(Tokenizer::File(Box::new(FileTokenizer { tokenizer, vocabulary, end_id, mask_id })))
    }

    /// This build can read no `tokenizer.json`.
    #[cfg(not(feature = "tokenizers"))]
    pub fn open(path: &Path) -> Result<Self> {
        Err(Error::new(format!(
            "cannot read the tokenizer {}: built without the `tokenizers` feature; build with it, or train on bytes",
            path.display()
        )))
    }

    /// The token ids of `text`.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        match self {
            Tokenizer::Bytes => Ok(text.bytes().map(i32::from).collect()),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => {
                let encoding = file
                    .tokenizer
                    .encode(text, false)
                    .map_err(|error| Error::new(format!("cannot tokenize the text: {error}")))?;
                Ok(encoding.get_ids().iter().map(|&id| id as i32).collect())
            }
        }
    }

    /// The number of ids, end and mask tokens included, rounded up to the multiple of 8 that matrix units like.
    pub fn vocabulary(&self) -> usize {
        let ids: usize = match self {
            Tokenizer::Bytes => 258,
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.vocabulary,
        };
        ids.next_multiple_of(8)
    }

    /// The token that closes a text or an answer.
    pub fn end_id(&self) -> i32 {
        match self {
            Tokenizer::Bytes => 256,
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.end_id,
        }
    }

    /// The token of the places to be predicted.
    pub fn mask_id(&self) -> i32 {
        match self {
            Tokenizer::Bytes => 257,
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.mask_id,
        }
    }

    /// What fills a sequence that is too short: the end token, unsupervised.
    pub fn pad_id(&self) -> i32 {
        self.end_id()
    }
}

#[cfg(all(test, feature = "tokenizers"))]
mod tests {
    use super::*;

    const WORDS: &str = r#"{
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 3, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"the": 0, "step": 1, "?": 2}, "unk_token": "?"}
    }"#;

    #[test]
    fn a_tokenizer_file_gives_its_ids_and_room_for_the_mask_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokenizer.json");
        std::fs::write(&path, WORDS).unwrap();
        let tokenizer = Tokenizer::open(&path).unwrap();
        assert_eq!(tokenizer.encode("the step waits").unwrap(), [0, 1, 2]);
        assert_eq!((tokenizer.end_id(), tokenizer.mask_id(), tokenizer.vocabulary()), (3, 4, 8));
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokenizer.json");
        std::fs::write(&path, "{}").unwrap();
        let message = Tokenizer::open(&path).err().unwrap().to_string();
        assert!(
            message.contains("cannot read the tokenizer") && message.contains("tokenizer.json"),
            "{message}"
        );
    }
}
