//! Handles: numbers that a program holds for objects in here. They are never reused and never pointers, so a stale or
//! invented handle is an error and not a crash.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

/// First handle. Above the special stream handles (0, 1, 2), in a region no mapping of Linux uses.
const FIRST: usize = 0x0100_0000_0000;
static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A handle nobody has had.
pub fn fresh() -> usize {
    NEXT.fetch_add(0x40, Ordering::Relaxed)
}

/// Locks a mutex also after a panic elsewhere: every critical section leaves its data consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live objects of one kind.
pub struct Table<T>(LazyLock<RwLock<HashMap<usize, Arc<T>>>>);

impl<T> Table<T> {
    pub const fn new() -> Self {
        Self(LazyLock::new(RwLock::default))
    }

    /// Adds an object under `handle`.
    pub fn insert(&self, handle: usize, object: Arc<T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    /// Handle of an object for which `wanted` holds.
    pub fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<usize> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.iter().find(|(_, v)| wanted(v)).map(|(k, _)| *k)
    }

    /// Removes every object that `gone` names; for the end of a context.
    pub fn remove_where(&self, gone: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let handles: Vec<usize> = map.iter().filter(|(_, v)| gone(v)).map(|(k, _)| *k).collect();
        handles.into_iter().filter_map(|h| map.remove(&h)).collect()
    }
}
