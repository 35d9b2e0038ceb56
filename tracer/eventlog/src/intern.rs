//! Gives the same id to the same text or stack.
//!
//! In: slices. Out: ids that count up from 1 in the file. A cache per thread answers the common case without any shared
//! memory; behind it is a map in shards. A definition is written to the log *before* its id is published to other
//! threads, so that no record can refer to an id whose definition a crash has swallowed; two threads that meet a new
//! text at once may both define it, and the first id published wins. No lock is held while writing.
//!
//! Memory is bounded: a full shard keeps what it has, and further texts are defined anew when a thread's cache forgets them.

use crate::check::{hash_bytes, hash_words};
use crate::record::{Api, ApiDomain};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const SHARDS: usize = 16;
const MAX_ENTRIES_PER_SHARD: usize = 16 * 1024;
const CACHE_SLOTS: usize = 256;

/// What can be interned: a slice of these.
pub(crate) trait Item: Copy + Eq {
    fn hash_of(slice: &[Self]) -> u64
    where
        Self: Sized;
}

impl Item for u8 {
    fn hash_of(slice: &[u8]) -> u64 {
        hash_bytes(slice)
    }
}

impl Item for u64 {
    fn hash_of(slice: &[u64]) -> u64 {
        hash_words(slice)
    }
}

/// The shared part.
pub(crate) struct Interner<T: Item> {
    shards: [Mutex<Shard<T>>; SHARDS],
    next_id: AtomicU32,
}

type Shard<T> = HashMap<u64, Vec<(Arc<[T]>, u32)>, BuildHasherDefault<AlreadyHashed>>;

impl<T: Item> Default for Interner<T> {
    fn default() -> Self {
        Interner { shards: Default::default(), next_id: AtomicU32::new(1) }
    }
}

type Cached<T> = (u64, Arc<[T]>, u32);

/// The part of one thread: direct-mapped, later entries push out earlier ones.
pub(crate) struct Cache<T: Item> {
    slots: Vec<Option<Cached<T>>>,
}

impl<T: Item> Default for Cache<T> {
    fn default() -> Self {
        Cache { slots: Vec::new() }
    }
}

impl<T: Item> Cache<T> {
    fn slot(hash: u64) -> usize {
        hash as usize % CACHE_SLOTS
    }

    fn keep(&mut self, hash: u64, slice: Arc<[T]>, id: u32) {
        if self.slots.is_empty() {
            self.slots.resize(CACHE_SLOTS, None);
        }
        if let Some(slot) = self.slots.get_mut(Self::slot(hash)) {
            *slot = Some((hash, slice, id));
        }
    }
}

impl<T: Item> Interner<T> {
    pub(crate) fn find(&self, cache: &mut Cache<T>, slice: &[T]) -> Option<u32> {
        let hash = T::hash_of(slice);
        if let Some(Some((cached, content, id))) = cache.slots.get(Cache::<T>::slot(hash))
            && *cached == hash
            && **content == *slice
        {
            return Some(*id);
        }
        let (content, id) = {
            let shard = self.shard(hash).lock().unwrap_or_else(PoisonError::into_inner);
            let (content, id) = shard.get(&hash)?.iter().find(|(content, _)| **content == *slice)?;
            (content.clone(), *id)
        };
        cache.keep(hash, content, id);
        Some(id)
    }

    /// A fresh id, to be defined in the log and then published.
    pub(crate) fn next_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes `id` known for `slice`, unless another thread was first; returns the id to use.
    pub(crate) fn publish(&self, cache: &mut Cache<T>, slice: &[T], id: u32) -> u32 {
        let hash = T::hash_of(slice);
        let content: Arc<[T]> = slice.into();
        let (content, id) = {
            let mut shard = self.shard(hash).lock().unwrap_or_else(PoisonError::into_inner);
            let is_full = shard.len() >= MAX_ENTRIES_PER_SHARD;
            match shard.get(&hash).and_then(|same| same.iter().find(|(known, _)| *known == content)) {
                Some((known, first)) => (known.clone(), *first),
                None => {
                    if !is_full {
                        shard.entry(hash).or_default().push((content.clone(), id));
                    }
                    (content, id)
                }
            }
        };
        cache.keep(hash, content, id);
        id
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<T>> {
        // `SHARDS` is a power of two smaller than the remainder's range, so the index always exists.
        &self.shards[(hash >> 56) as usize % SHARDS]
    }
}

/// All interned things of a log.
#[derive(Default)]
pub(crate) struct Interned {
    pub strings: Interner<u8>,
    pub stacks: Interner<u64>,
    pub py_codes: Interner<u64>,
    pub py_stacks: Interner<u64>,
    apis: NamedApis,
}

/// The caches of one thread.
#[derive(Default)]
pub(crate) struct ThreadCache {
    pub strings: Cache<u8>,
    pub stacks: Cache<u64>,
    pub py_codes: Cache<u64>,
    pub py_stacks: Cache<u64>,
}

impl Interned {
    pub(crate) fn api_is_named(&self, api: Api) -> bool {
        self.apis.bit(api).is_some_and(|(word, mask)| word.load(Ordering::Relaxed) & mask != 0)
    }

    pub(crate) fn api_named(&self, api: Api) {
        if let Some((word, mask)) = self.apis.bit(api) {
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }
}

/// One bit per function and domain; functions with a number beyond are named again at each use.
struct NamedApis {
    words: [[AtomicU64; 64]; 2],
}

impl Default for NamedApis {
    fn default() -> NamedApis {
        NamedApis { words: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))) }
    }
}

impl NamedApis {
    fn bit(&self, api: Api) -> Option<(&AtomicU64, u64)> {
        let [runtime, driver] = &self.words;
        let words = match api.domain {
            ApiDomain::Runtime => runtime,
            ApiDomain::Driver => driver,
        };
        Some((words.get(usize::from(api.cbid) / 64)?, 1 << (api.cbid % 64)))
    }
}

/// The keys are hashes already.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_bytes(bytes);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
