//! What several tests of this room show.

use super::place::Thread;
use crate::core::egress::Access;
use crate::core::execution::{Execution, Home, HumanReceipt, Kind, ModelReceipt, Notify, State};
use crate::core::id::{BootId, ExecutionId, Principal};
use crate::core::time::Timestamp;

/// A watcher of `slack/T1/U7`, in a thread of C2, that was started when that began.
pub(super) fn execution(id: &str, name: &str, state: State) -> Execution {
    let boot = BootId::new("01BOOT").unwrap();
    let at = Timestamp::from_ms(1_700_000_000_000);
    Execution {
        id: ExecutionId::new(id).unwrap(),
        kind: Kind::Script,
        name: name.to_owned(),
        turn: 1,
        call: (1, 0),
        owner: Principal::new("slack/T1/U7").unwrap(),
        generation: 1,
        chain: 1,
        address: Thread::new("T1", "C2", "1700000000.000100").unwrap().address(),
        home: Home::Process(boot.clone()),
        boot,
        notify: Notify::Agent,
        key: None,
        timeout_ms: 600_000,
        state,
        cancel: None,
        registered_at: at,
        started_at: Some(at),
        ended_at: None,
        due_at: Timestamp::MAX,
        unattended: false,
        model: ModelReceipt::None,
        human: HumanReceipt::None,
        late: vec![],
        shown: false,
        shared: false,
        access: Access::default(),
    }
}
