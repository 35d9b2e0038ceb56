//! Memory: device buffers, views into them, page-locked host memory.
//!
//! Everything here is allocated before the first step. A [`View`] is what kernels and copies take: an address and a length in
//! elements, checked at every launch and copy.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Backend, Device, Error, Result, Stream, driver, in_process};

/// Plain values that may be copied to the device byte by byte.
///
/// # Safety
/// Every bit pattern must be a valid value, there must be no padding, and no drop glue.
pub unsafe trait Pod: Copy + Default + Send + Sync + 'static {}

// SAFETY: plain numbers.
unsafe impl Pod for f32 {}
// SAFETY: plain numbers.
unsafe impl Pod for i32 {}
// SAFETY: as above.
unsafe impl Pod for u16 {}
// SAFETY: plain numbers.
unsafe impl Pod for u32 {}
// SAFETY: plain numbers.
unsafe impl Pod for u64 {}
// SAFETY: plain numbers.
unsafe impl Pod for u8 {}

/// `len` elements at a device address. Copyable; does not keep its buffer alive (see the module above).
#[derive(Debug)]
pub struct View<T> {
    address: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<T> {}

impl<T: Pod> View<T> {
    pub(crate) fn address(self) -> u64 {
        self.address
    }

    /// Length in elements.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> usize {
        self.len
    }

    /// The elements in `range` of this view.
    ///
    /// # Panics
    /// When `range` reaches beyond the view: a mistake in the caller's plan, not a run-time condition.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "view of {} sliced by {range:?}",
            self.len
        );
        Self {
            address: self.address + (range.start * size_of::<T>()) as u64,
            len: range.end - range.start,
            element: PhantomData,
        }
    }
}

/// Owned device memory, zeroed at allocation. Freed on drop, which may wait for the device: keep buffers to the end.
#[derive(Debug)]
pub struct Buffer<T> {
    view: View<T>,
    device: Arc<Device>,
}

impl<T: Pod> Buffer<T> {
    /// Allocates `len` zeroed elements. Set-up only: allocation may hold the host, and the zeroing is waited for.
    ///
    /// # Errors
    /// The driver's, out of memory above all.
    pub fn zeros(device: &Arc<Device>, len: usize) -> Result<Self> {
        let bytes = (len * size_of::<T>()).max(1);
        let address = match device.backend {
            Backend::Driver { .. } => {
                let address = driver::mem_alloc(bytes)?;
                let stream = driver::StreamHandle::new()?;
                stream.memset_zero(address, bytes)?;
                stream.synchronize()?;
                address
            }
            Backend::InProcess => in_process::alloc(bytes),
        };
        device.allocated.fetch_add(bytes, Ordering::Relaxed);
        Ok(Self { view: View { address, len, element: PhantomData }, device: device.clone() })
    }

    /// Allocates and fills from host values. Set-up only; returns when the copy is done.
    ///
    /// # Errors
    /// The driver's.
    pub fn from_slice(device: &Arc<Device>, values: &[T]) -> Result<Self> {
        let buffer = Self::zeros(device, values.len())?;
        Stream::new(device)?.upload_blocking(buffer.view(), values)?;
        Ok(buffer)
    }

    /// Reads everything back. Waits for the copy (not for other streams): set-up, checkpoints and tests only.
    ///
    /// # Errors
    /// The driver's.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.len()];
        Stream::new(&self.device)?.download_blocking(&mut values, self.view())?;
        Ok(values)
    }

    /// The device that holds it.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The whole buffer as a view.
    #[must_use]
    pub fn view(&self) -> View<T> {
        self.view
    }

    /// The elements in `range` as a view.
    ///
    /// # Panics
    /// When `range` reaches beyond the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> View<T> {
        self.view.slice(range)
    }

    /// Length in elements.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.view.len
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let bytes = (self.view.len * size_of::<T>()).max(1);
        self.device.allocated.fetch_sub(bytes, Ordering::Relaxed);
        match self.device.backend {
            Backend::Driver { .. } => driver::mem_free(self.view.address),
            Backend::InProcess => in_process::free(self.view.address),
        }
    }
}

/// Page-locked host memory for asynchronous copies, accessed without any implied wait.
///
/// The owner keeps the rule that the driver cannot: between an asynchronous copy and the completion of an event recorded after
/// it, do not write to memory being uploaded and do not read memory being downloaded.
#[derive(Debug)]
pub struct Pinned<T> {
    start: NonNull<T>,
    len: usize,
    device: Arc<Device>,
}

// SAFETY: owns its memory like a Box<[T]>; T is plain data.
unsafe impl<T: Pod> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T: Pod> Sync for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    /// Allocates `len` zeroed elements. Set-up only.
    ///
    /// # Errors
    /// The driver's.
    pub fn zeros(device: &Arc<Device>, len: usize) -> Result<Self> {
        let bytes = (len * size_of::<T>()).max(1);
        let start = match device.backend {
            Backend::Driver { .. } => driver::host_alloc(bytes)?.cast::<T>(),
            Backend::InProcess => std::ptr::with_exposed_provenance_mut(in_process::alloc(bytes) as usize),
        };
        let start =
            NonNull::new(start).ok_or_else(|| Error::misuse("the driver returned a null pinned pointer"))?;
        // SAFETY: freshly allocated, at least `bytes` long, aligned for any Pod type.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { start, len, device: device.clone() })
    }

    /// The memory, to read.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `len` initialised elements owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The memory, to write.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised elements owned by self, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Length in elements.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(super) fn pointer(&self) -> *mut T {
        self.start.as_ptr()
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        match self.device.backend {
            Backend::Driver { .. } => driver::host_free(self.start.as_ptr().cast()),
            Backend::InProcess => in_process::free(self.start.as_ptr().expose_provenance() as u64),
        }
    }
}
