//! What tests share: fakes at the wire and real processes.

pub(crate) mod bot;
#[expect(clippy::expect_used, reason = "the tests of the stores share it")]
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod fake_llm;
pub(crate) mod fake_slack;
pub(crate) mod jump_clock;
pub(crate) mod killable;
pub(crate) mod manual_clock;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod rack;
pub(crate) mod real_bot;
pub(crate) mod records;
#[expect(dead_code, reason = "the tests of the stores use the rest")]
pub(crate) mod redis_server;
pub(crate) mod service;
pub(crate) mod slack_push;
pub(crate) mod slack_socket;
pub(crate) mod stage;
pub(crate) mod tap;
pub(crate) mod wire;
