//! What tests share: fakes at the wire and real processes.

pub(crate) mod fake_llm;
pub(crate) mod manual_clock;
pub(crate) mod real_bot;
