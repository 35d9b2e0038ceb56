//! Streams: ordered device work. Everything here returns at once except where the name says otherwise.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::{Buffer, Pinned, Pod, View};
use super::{Backend, Device, Error, Event, Result, driver, in_process};
use crate::kernels::Kernel;

/// An ordered queue of device work, independent of the legacy default stream.
#[derive(Debug)]
pub struct Stream {
    pub(super) handle: Option<driver::StreamHandle>,
    device: Arc<Device>,
}

impl Stream {
    /// A new stream. Set-up only.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let handle = match device.backend {
            Backend::Driver { .. } => Some(driver::StreamHandle::new()?),
            Backend::InProcess => None,
        };
        Ok(Self { handle, device: device.clone() })
    }

    /// The device this stream belongs to.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// **Waits** until everything issued here has run.
    ///
    /// # Errors
    /// The driver's, earlier asynchronous failures included.
    pub fn synchronize(&self) -> Result<()> {
        self.handle.as_ref().map_or(Ok(()), driver::StreamHandle::synchronize)
    }

    /// Marks this point of the stream in `event`.
    ///
    /// # Errors
    /// The driver's.
    pub fn record(&self, event: &Event) -> Result<()> {
        match (&self.handle, &event.handle) {
            (Some(stream), Some(event)) => event.record(stream),
            _ => Ok(()),
        }
    }

    /// Holds later work of this stream, not the host, until `event` has completed.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self, event: &Event) -> Result<()> {
        match (&self.handle, &event.handle) {
            (Some(stream), Some(event)) => stream.wait(event),
            _ => Ok(()),
        }
    }

    /// Copies the first `target.len()` elements of `source` to the device, asynchronously.
    ///
    /// `source` must not be written before an event recorded after this call has completed (see [`Pinned`]).
    ///
    /// # Errors
    /// [`Error::Length`] when `source` is shorter than `target`; the driver's.
    pub fn upload<T: Pod>(&self, target: View<T>, source: &Pinned<T>) -> Result<()> {
        Error::check_length(|| "upload from pinned memory".to_owned(), target.len(), source.len())?;
        // SAFETY: page-locked memory that outlives the copy by the contract of `Pinned`.
        unsafe { self.copy_in(target, source.pointer()) }
    }

    /// Copies `source` into the first `source.len()` elements of `target`, asynchronously.
    ///
    /// `target` must not be read before an event recorded after this call has completed (see [`Pinned`]).
    ///
    /// # Errors
    /// [`Error::Length`] when `target` is shorter than `source`; the driver's.
    pub fn download<T: Pod>(&self, target: &mut Pinned<T>, source: View<T>) -> Result<()> {
        Error::check_length(|| "download to pinned memory".to_owned(), source.len(), target.len())?;
        // SAFETY: page-locked memory that outlives the copy by the contract of `Pinned`.
        unsafe { self.copy_out(target.pointer(), source) }
    }

    /// **Waits.** Copies from ordinary (pageable) memory and synchronises the stream: what a framework does for a plain
    /// host-to-device copy. Two driver calls, `cuMemcpyHtoDAsync` and `cuStreamSynchronize`.
    ///
    /// # Errors
    /// [`Error::Length`] when `target` is shorter than `source`; the driver's.
    pub fn upload_blocking<T: Pod>(&self, target: View<T>, source: &[T]) -> Result<()> {
        Error::check_length(|| "blocking upload".to_owned(), source.len(), target.len())?;
        // SAFETY: `source` is borrowed until the synchronise below has returned.
        unsafe { self.copy_in(target.slice(0..source.len()), source.as_ptr()) }?;
        self.synchronize()
    }

    /// **Waits.** Copies to ordinary (pageable) memory and synchronises the stream: what a framework does to read a scalar.
    /// Two driver calls, `cuMemcpyDtoHAsync` and `cuStreamSynchronize`.
    ///
    /// # Errors
    /// [`Error::Length`] when `source` is shorter than `target`; the driver's.
    pub fn download_blocking<T: Pod>(&self, target: &mut [T], source: View<T>) -> Result<()> {
        Error::check_length(|| "blocking download".to_owned(), target.len(), source.len())?;
        // SAFETY: `target` is borrowed mutably until the synchronise below has returned.
        unsafe { self.copy_out(target.as_mut_ptr(), source.slice(0..target.len())) }?;
        self.synchronize()
    }

    /// Copies `source` over `target` on the device.
    ///
    /// # Errors
    /// [`Error::Length`] when the lengths differ; the driver's.
    pub fn copy<T: Pod>(&self, target: View<T>, source: View<T>) -> Result<()> {
        Error::check_length(|| "device copy".to_owned(), target.len(), source.len())?;
        Error::check_length(|| "device copy".to_owned(), source.len(), target.len())?;
        match &self.handle {
            Some(handle) => handle.copy(target.address(), source.address(), target.len() * size_of::<T>()),
            None => in_process::copy(target.address(), source.address(), target.len() * size_of::<T>()),
        }
    }

    /// Sets every byte of `target` to zero.
    ///
    /// # Errors
    /// The driver's.
    pub fn zero<T: Pod>(&self, target: View<T>) -> Result<()> {
        match &self.handle {
            Some(handle) => handle.memset_zero(target.address(), target.len() * size_of::<T>()),
            None => in_process::zero(target.address(), target.len() * size_of::<T>()),
        }
    }

    /// Like [`Buffer`]'s whole view, zeroed here.
    ///
    /// # Errors
    /// The driver's.
    pub fn zero_buffer<T: Pod>(&self, target: &Buffer<T>) -> Result<()> {
        self.zero(target.view())
    }

    /// Calls `function` on a driver thread once everything issued before has run; later work of the stream waits for it.
    /// It must be short and must not call CUDA.
    ///
    /// # Errors
    /// The driver's.
    pub fn host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        match &self.handle {
            Some(handle) => handle.host_function(Box::new(function)),
            None => {
                function();
                Ok(())
            }
        }
    }

    /// Launches `kernel` with one raw value per parameter. Used by the typed `launch` functions of [`crate::kernels`] only.
    pub(crate) fn launch(
        &self,
        kernel: &'static Kernel,
        grid: [usize; 3],
        block: usize,
        shared_bytes: usize,
        arguments: &mut [u64],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        assert_eq!(arguments.len(), kernel.params.len(), "arguments of kernel {}", kernel.name);
        let narrow = |n: usize| {
            u32::try_from(n).map_err(|_| Error::misuse(format!("launch size {n} of kernel {}", kernel.name)))
        };
        let grid = [narrow(grid[0])?, narrow(grid[1])?, narrow(grid[2])?];
        let (block, shared_bytes) = (narrow(block)?, narrow(shared_bytes)?);
        self.device.launches.fetch_add(1, Ordering::Relaxed);
        match &self.handle {
            Some(handle) => {
                let mut pointers = [std::ptr::null_mut::<c_void>(); Kernel::MAX_PARAMS];
                for (pointer, argument) in pointers.iter_mut().zip(arguments.iter_mut()) {
                    *pointer = (argument as *mut u64).cast();
                }
                let function = self.device.function(kernel)?;
                // SAFETY: one value per parameter (asserted above), each at least as wide as the parameter, little-endian.
                unsafe {
                    handle.launch(function, grid, block, shared_bytes, &mut pointers[..arguments.len()])
                }
            }
            None => in_process::launch(kernel, grid, block, shared_bytes, arguments),
        }
    }

    /// # Safety
    /// `source` must hold `target.len()` elements and stay unchanged until the copy has run.
    unsafe fn copy_in<T: Pod>(&self, target: View<T>, source: *const T) -> Result<()> {
        let bytes = target.len() * size_of::<T>();
        match &self.handle {
            // SAFETY: passed on from the caller.
            Some(handle) => unsafe { handle.upload(target.address(), source.cast(), bytes) },
            None => in_process::copy(target.address(), source.expose_provenance() as u64, bytes),
        }
    }

    /// # Safety
    /// `target` must have room for `source.len()` elements and stay unread until the copy has run.
    unsafe fn copy_out<T: Pod>(&self, target: *mut T, source: View<T>) -> Result<()> {
        let bytes = source.len() * size_of::<T>();
        match &self.handle {
            // SAFETY: passed on from the caller.
            Some(handle) => unsafe { handle.download(target.cast(), source.address(), bytes) },
            None => in_process::copy(target.expose_provenance() as u64, source.address(), bytes),
        }
    }
}
