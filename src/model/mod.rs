//! Talks to language models.
