//! Runs scripts, each under a shim of its own.
