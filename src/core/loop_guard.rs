//! Repeated calls.
