//! What tests share: fakes at the wire and real processes.
