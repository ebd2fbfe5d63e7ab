//! The text of notices.
