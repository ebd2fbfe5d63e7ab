//! Tests of console.
