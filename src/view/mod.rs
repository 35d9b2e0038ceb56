//! The terminal timeline: where a step waits, in one screen.
//!
//! In: a trace and its audit. Out: a screen, and what keys do to it. [`state`] is what the user looks at, [`widgets`] how it is
//! drawn (one file each), [`lod`] what a column shows at any zoom, [`keys`] which key does what, [`terminal`] the loop around it.
//! No rule of the audit is in here, and no time of an emulated run is ever shown as one.

pub mod axis;
pub mod follow;
pub mod keys;
pub mod lod;
pub mod recording;
pub mod save;
pub mod search;
pub mod settings;
pub mod sources;
pub mod state;
pub mod terminal;
pub mod theme;
pub mod widgets;

pub use recording::Recording;
pub use state::App;
pub use theme::Theme;
