//! The async driver of core.
