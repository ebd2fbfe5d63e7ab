//! The text of notices.

use crate::core::execution::Execution;
use crate::core::id::Nonce;
use crate::core::time::Timestamp;
use crate::core::transcript::Notice;

/// stub
pub fn human_line(execution: &Execution) -> String {
    execution.name.clone()
}

/// stub
pub fn late_line(execution: &Execution) -> String {
    execution.name.clone()
}

/// stub
pub fn notice(_now: Timestamp, nonce: &Nonce, executions: &[&Execution]) -> Notice {
    let names: Vec<_> = executions.iter().map(|e| e.id.to_string()).collect();
    Notice { nonce: nonce.clone(), text: names.join(",") }
}
