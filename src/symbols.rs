//! Names and lines for native frames.
