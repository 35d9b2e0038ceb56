//! Events: points in a stream that other streams, and other threads, can refer to.

use std::sync::Arc;

use super::{Backend, Device, Result, driver};

/// A point in a stream. Timing is off; a thread that waits for it sleeps.
#[derive(Debug)]
pub struct Event {
    pub(super) handle: Option<driver::EventHandle>,
    _device: Arc<Device>,
}

impl Event {
    /// A new event that counts as completed until it is first recorded.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let handle = match device.backend {
            Backend::Driver { .. } => Some(driver::EventHandle::new()?),
            Backend::InProcess => None,
        };
        Ok(Self { handle, _device: device.clone() })
    }

    /// As [`Event::new`], and the device notes the time at which it passes the point. For measurements.
    ///
    /// # Errors
    /// The driver's.
    pub fn timed(device: &Arc<Device>) -> Result<Self> {
        let handle = match device.backend {
            Backend::Driver { .. } => Some(driver::EventHandle::timed()?),
            Backend::InProcess => None,
        };
        Ok(Self { handle, _device: device.clone() })
    }

    /// Milliseconds from `earlier` to this point; the device must have passed both. Both are [`Event::timed`].
    ///
    /// # Errors
    /// The driver's.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f32> {
        match (&self.handle, &earlier.handle) {
            (Some(handle), Some(earlier)) => handle.milliseconds_since(earlier),
            _ => Ok(0.0),
        }
    }

    /// Has the device passed the last recorded point? Never waits. Do not call it in a loop: that is a wait in disguise.
    ///
    /// # Errors
    /// The driver's, earlier asynchronous failures included.
    pub fn is_complete(&self) -> Result<bool> {
        self.handle.as_ref().map_or(Ok(true), driver::EventHandle::query)
    }

    /// **Waits** until the device has passed the last recorded point. Not for the training thread.
    ///
    /// # Errors
    /// The driver's, earlier asynchronous failures included.
    pub fn synchronize(&self) -> Result<()> {
        self.handle.as_ref().map_or(Ok(()), driver::EventHandle::synchronize)
    }
}
