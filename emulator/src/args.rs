//! Arguments as C passes them, each with the one checked way to use it.
//!
//! The types are `repr(transparent)` over the C pointer, so a function of the driver API takes them directly. What a
//! C caller promises for a pointer (null, or valid for its type) is promised once, here.

use std::ffi::{CStr, c_char, c_void};

use crate::error::{Error, Result};

/// Where a caller wants a value written. May be null.
#[repr(transparent)]
pub struct Out<T>(pub(crate) *mut T);
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Refuses null; for calls that must check their outputs before they change anything.
    pub(crate) fn check(self) -> Result {
        if self.0.is_null() { Err(Error::INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes the value; null is an error.
    pub(crate) fn set(self, value: T) -> Result {
        self.check()?;
        self.set_if_wanted(value);
        Ok(())
    }

    /// Writes the value unless the caller passed null.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the C caller's contract: a non-null output pointer is valid for writing a T.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Reads an in/out argument; null is an error.
    pub(crate) fn get(self) -> Result<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: the C caller's contract: an in/out pointer holds an initialised T.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes element `index` of a caller's array.
    pub(crate) fn set_at(self, index: usize, value: T) {
        // SAFETY: callers pass an array of at least the length they also passed; `index` stays below it.
        unsafe { self.0.add(index).write_unaligned(value) }
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A structure or array that a caller passes by pointer. May be null.
#[repr(transparent)]
pub struct In<T>(pub(crate) *const T);
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The value; null is an error.
    pub(crate) fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the C caller's contract: a non-null input pointer holds an initialised T.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// `n` values; null is an error unless `n` is 0.
    pub(crate) fn list(self, n: usize) -> Result<Vec<T>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() || n > 1 << 24 {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the C caller's contract: the array holds `n` initialised values.
        Ok((0..n).map(|i| unsafe { self.0.add(i).read_unaligned() }).collect())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A NUL-terminated string. May be null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(pub(crate) *const c_char);

impl Text {
    /// The string; null and non-UTF-8 are errors.
    pub(crate) fn get(self) -> Result<String> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the C caller's contract: a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Error::INVALID_VALUE)
    }
}

/// Memory that a caller gives or wants, without a type.
pub type Memory = *mut c_void;
