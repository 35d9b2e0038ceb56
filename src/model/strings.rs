//! Interned strings: each distinct text once, ids of 32 bits.
//!
//! In: texts of a trace. Out: [`StrId`]s. Ids are only good for the table that gave them; a foreign id reads as "".

use std::hash::{BuildHasher, RandomState};

use rustc_hash::FxHashMap;

use super::StrId;

/// A table of distinct strings, stored back to back.
#[derive(Default)]
pub struct Strings {
    text: String,
    /// End of string `i` in `text`; it starts where `i - 1` ends.
    ends: Vec<usize>,
    /// Hash of a text -> ids with that hash (nearly always one).
    by_hash: FxHashMap<u64, StrId>,
    /// Ids whose hash was already taken by another text.
    collided: Vec<StrId>,
    hasher: RandomState,
}

impl std::fmt::Debug for Strings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Strings({} texts, {} bytes)", self.ends.len(), self.text.len())
    }
}

impl Strings {
    /// The id of `text`, adding it if it is new. A table that is full (2^32 - 1 texts) answers [`StrId::NONE`].
    pub fn intern(&mut self, text: &str) -> StrId {
        let hash = self.hasher.hash_one(text);
        if let Some(&id) = self.by_hash.get(&hash) {
            if self.get(id) == text {
                return id;
            }
            if let Some(&id) = self.collided.iter().find(|&&id| self.get(id) == text) {
                return id;
            }
            let id = self.push(text);
            self.collided.push(id);
            return id;
        }
        let id = self.push(text);
        self.by_hash.insert(hash, id);
        id
    }

    fn push(&mut self, text: &str) -> StrId {
        let Ok(id) = u32::try_from(self.ends.len()) else { return StrId::NONE };
        self.text.push_str(text);
        self.ends.push(self.text.len());
        StrId(id)
    }

    /// The text of `id`; "" for none and for ids that this table never gave.
    #[must_use]
    pub fn get(&self, id: StrId) -> &str {
        let Some(index) = id.get() else { return "" };
        let Some(&end) = self.ends.get(index) else { return "" };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..end]
    }

    /// Number of distinct texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no text was interned yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_an_id_and_foreign_ids_read_as_nothing() {
        let mut strings = Strings::default();
        let (a, b, empty) = (strings.intern("step"), strings.intern("forward"), strings.intern(""));
        assert_eq!(strings.intern("step"), a);
        assert_ne!(a, b);
        assert_eq!((strings.get(a), strings.get(b), strings.get(empty)), ("step", "forward", ""));
        assert_eq!((strings.get(StrId::NONE), strings.get(StrId(99))), ("", ""));
        assert_eq!(strings.len(), 3);
    }
}
