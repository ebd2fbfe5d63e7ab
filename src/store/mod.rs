//! Keeps rows.
