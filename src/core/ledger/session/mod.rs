//! Operations of a session.
