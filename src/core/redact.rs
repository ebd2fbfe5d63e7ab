//! Secrets taken out of text.
