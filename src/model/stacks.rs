//! Interned stacks and the frames in them, innermost frame first. Symbolised later ([`crate::symbols`]).

use std::collections::HashMap;
use std::hash::Hash;

use super::{ModuleId, StackId, StrId};

/// An executable or shared object of a traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Module {
    /// Path as the process saw it.
    pub path: StrId,
    /// GNU build id, empty if it has none.
    pub build_id: Vec<u8>,
}

/// A native frame: which module, and the address in the module's own (unrelocated) address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NativeFrame {
    /// [`ModuleId::NONE`] for code that belongs to no known module; `address` is absolute then.
    pub module: ModuleId,
    pub address: u64,
    /// The address is a return address: the call is just before it. False only for the frame of a signal or the
    /// innermost one when taken by register.
    pub is_return: bool,
    /// Name given by the source itself (nsys, Kineto), when there is no module to look into.
    pub name: StrId,
}

/// A Python frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    pub file: StrId,
    pub function: StrId,
    /// 0 where unknown.
    pub line: u32,
}

/// A function at a native address, as it was found while the program's files were those that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameName {
    /// Without its mangling; [`StrId::NONE`] where the file has no name for it.
    pub function: StrId,
    /// Full path of the source file, [`StrId::NONE`] where unknown.
    pub file: StrId,
    /// 0 where unknown.
    pub line: u32,
}

/// Functions by module and address within it: what was inlined first, its caller behind it. An address that is not in there was not looked up.
pub type FrameNames = rustc_hash::FxHashMap<(ModuleId, u64), Box<[FrameName]>>;

/// Stacks of one kind of frame, each distinct stack once.
#[derive(Clone, Debug)]
pub struct Stacks<F> {
    frames: Vec<F>,
    ends: Vec<u32>,
}

impl<F> Default for Stacks<F> {
    fn default() -> Self {
        Self { frames: Vec::new(), ends: Vec::new() }
    }
}

impl<F> Stacks<F> {
    /// The frames of a stack, innermost first; empty for [`StackId::NONE`] and unknown ids.
    #[must_use]
    pub fn get(&self, id: StackId) -> &[F] {
        let Some(index) = id.get() else { return &[] };
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.frames[start as usize..end as usize]
    }

    /// The frames of all stacks, back to back.
    #[must_use]
    pub fn all(&self) -> &[F] {
        &self.frames
    }

    /// Number of distinct stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Builds a [`Stacks`].
#[derive(Debug)]
pub struct StackTable<F> {
    stacks: Stacks<F>,
    known: HashMap<Box<[F]>, StackId>,
}

impl<F> Default for StackTable<F> {
    fn default() -> Self {
        Self { stacks: Stacks::default(), known: HashMap::new() }
    }
}

impl<F: Copy + Eq + Hash> StackTable<F> {
    /// The id of a stack (innermost frame first), adding it if new. An empty stack is [`StackId::NONE`].
    pub fn intern(&mut self, frames: &[F]) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        if let Some(&id) = self.known.get(frames) {
            return id;
        }
        let (Ok(id), Ok(end)) =
            (u32::try_from(self.stacks.ends.len()), u32::try_from(self.stacks.frames.len() + frames.len()))
        else {
            return StackId::NONE;
        };
        self.stacks.frames.extend_from_slice(frames);
        self.stacks.ends.push(end);
        self.known.insert(frames.into(), StackId(id));
        StackId(id)
    }

    /// The frames of a stack, as [`Stacks::get`].
    #[must_use]
    pub fn get(&self, id: StackId) -> &[F] {
        self.stacks.get(id)
    }

    /// The finished table.
    #[must_use]
    pub fn finish(self) -> Stacks<F> {
        self.stacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_share_an_id_and_the_empty_one_is_none() {
        let mut table = StackTable::default();
        let a = table.intern(&[1, 2, 3]);
        let b = table.intern(&[1, 2]);
        assert_eq!(table.intern(&[1, 2, 3]), a);
        assert_ne!(a, b);
        assert_eq!(table.intern(&[]), StackId::NONE);
        let stacks = table.finish();
        assert_eq!((stacks.get(a), stacks.get(b)), (&[1, 2, 3][..], &[1, 2][..]));
        assert!(stacks.get(StackId::NONE).is_empty() && stacks.get(StackId(7)).is_empty());
    }
}
