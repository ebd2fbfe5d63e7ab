//! Tests of engine.
