//! One row of each kind and of each shape that a kind has, as golden samples are made of them.

use std::collections::BTreeMap;

use dogwatch::core::arrival::{Arrival, Body as Arrived, Standing};
use dogwatch::core::egress::{Access, CredentialName, HostRule};
use dogwatch::core::execution::{
    Address, CancelledBy, Execution, Exit, Fate, Home, HumanReceipt, Kind, LateFact, ModelReceipt,
    Notify, Outcome, PostSort, Start, State, Status,
};
use dogwatch::core::id::{
    BootId, ClaimId, ExecutionId, ItemId, LeaseId, Nonce, PressId, Principal, SessionId, SpoolId,
    StopId, SupersessionKey,
};
use dogwatch::core::installation::{
    Departure, Grant, Installation, Invitation, Invitations, Leaving, Presence, Refresh,
};
use dogwatch::core::ledger::Row;
use dogwatch::core::ledger::row::{
    Beat, Carried, Chain, Dedupe, Early, Errand, Head, Holder, Inbox, Item, ItemState, Lane, Live,
    Opening, Place, Places, Recent, StartKey, Summary, Surface, SurfaceForm, Tails, Turn,
    TurnState, Unread,
};
use dogwatch::core::output::Captured;
use dogwatch::core::time::Timestamp;
use dogwatch::core::transcript::{Body, Call, Entry, Finish, Notice, Origin, Usage};
use serde_json::json;

macro_rules! id {
    ($type:ident, $text:literal) => {
        $type::new($text).expect("an id")
    };
}

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_700_000_000_000 + ms)
}

fn address() -> Address {
    Address { surface: "console".into(), thread: "main".into() }
}

fn lena() -> Principal {
    id!(Principal, "console/lena")
}

/// Every sample with its name.
pub(super) fn all() -> Vec<(&'static str, Row)> {
    let mut all = vec![
        ("head_new", Row::Head(Head::default())),
        ("head_busy", Row::Head(head())),
        ("inbox", Row::Inbox(Inbox { people: vec![person()], notices: vec![notice()] })),
        ("recent", Row::Recent(Recent(vec![id!(ExecutionId, "1")]))),
        ("live", Row::Live(Live(vec![id!(ExecutionId, "1"), id!(ExecutionId, "2")]))),
        ("tails", Row::Tails(Tails(BTreeMap::from([("console/main".into(), id!(ItemId, "p/1"))])))),
        ("summary", Row::Summary(Summary { upto: 7, text: "Ärger „…“ \u{1f415}".into() })),
        ("start_key", Row::StartKey(start_key())),
        ("start_key_void", Row::StartKey(StartKey { execution: None, ..start_key() })),
        ("holder", Row::Holder(Holder { execution: id!(ExecutionId, "1"), at: at(1) })),
        ("dedupe", Row::Dedupe(Dedupe { seq: 3, at: at(2), early: None })),
        ("dedupe_early", Row::Dedupe(early())),
        ("chain", Row::Chain(chain())),
        ("beat", Row::Beat(beat(None))),
        ("beat_buried", Row::Beat(beat(Some(at(9))))),
        ("installation_gone", Row::Installation(gone())),
        ("installation_granted", Row::Installation(granted())),
        ("invitations", Row::Invitations(invitations())),
        ("places", Row::Places(Places { taken: 2 })),
        ("place", Row::Place(place())),
    ];
    all.extend(arrivals());
    all.extend(turns());
    all.extend(entries());
    all.extend(executions());
    all.push(("execution_networked", networked()));
    all.extend(items());
    all
}

fn early() -> Dedupe {
    let early = Some(Early { text: Some("zwei".into()), source_at: at(1) });
    Dedupe { seq: 0, at: at(2), early }
}

fn head() -> Head {
    Head {
        generation: 2,
        stopped: true,
        stopped_until: Some(at(1)),
        fence: 9,
        lane: Some(Lane {
            boot: id!(BootId, "01BOOT"),
            turn: 4,
            fence: 9,
            claim: id!(ClaimId, "01CLAIM"),
            until: at(15_000),
            alone: false,
        }),
        open: Some(4),
        turns: 4,
        arrivals: 12,
        executions: 3,
        chains: 2,
        chain: 2,
        tlen: 20,
        log_first: 0,
        log_from: 5,
        not_before: at(5),
        stops: vec![id!(StopId, "01STOP")],
        released: 8,
        inbox_at: Some(at(400)),
        wake_at: Some(at(15_000)),
    }
}

fn person() -> Unread {
    Unread {
        seq: 11,
        wakes: true,
        solo: false,
        principal: lena(),
        ready_at: at(400),
        bytes: 42,
        execution: None,
        chain: 2,
        shared: false,
    }
}

fn notice() -> Unread {
    let execution = Some(id!(ExecutionId, "2"));
    Unread { seq: 12, wakes: false, solo: true, execution, ..person() }
}

fn start_key() -> StartKey {
    StartKey { execution: Some(id!(ExecutionId, "1")), request: "9f86d081".into(), at: at(3) }
}

fn place() -> Place {
    let start = Start { turn: 4, entry: 21, call: 1 };
    Place { session: id!(SessionId, "console/main"), start, at: at(4), check_at: at(600_004) }
}

fn chain() -> Chain {
    Chain { no: 2, opened_at: at(0), wakes: 49, tokens: 1_999_000, spawns: 99 }
}

fn gone() -> Installation {
    let leaving = Leaving { source_at: at(8), upto: Some(id!(SessionId, "slack/T1/C1/1.1")) };
    Installation {
        presence: Presence::Gone { why: Departure::Uninstalled, noted_at: at(9) },
        since: at(1),
        departures: 1,
        leaving: Some(leaving),
        grant: None,
    }
}

fn granted() -> Installation {
    let refresh = Refresh {
        expires_at: at(7),
        at: at(6),
        lease: Some((id!(LeaseId, "01LEASE"), at(8))),
        failures: 1,
        void: Some("invalid_refresh_token".into()),
    };
    let grant = Grant {
        name: "Acme".into(),
        user: "U0BOT".into(),
        bot: Some("B0BOT".into()),
        app: Some("A1".into()),
        scopes: "chat:write".into(),
        sealed: "1:00".into(),
        refresh: Some(refresh),
    };
    let (presence, grant) = (Presence::Here, Some(grant));
    Installation { presence, since: at(1), departures: 0, leaving: None, grant }
}

fn invitations() -> Invitations {
    Invitations(vec![Invitation { hash: "ab".into(), at: at(1), used: true }])
}

fn beat(buried_at: Option<Timestamp>) -> Beat {
    Beat { counter: 77, spool: Some(id!(SpoolId, "01SPOOL")), at: at(5_000), buried_at }
}

fn arrivals() -> Vec<(&'static str, Row)> {
    let arrival = |body, standing| {
        Row::Arrival(Arrival {
            seq: 11,
            body,
            principal: lena(),
            address: address(),
            source_at: at(0),
            accepted_at: at(1),
            settled_at: None,
            generation: 2,
            chain: 2,
            solo: false,
            standing,
            shared: false,
        })
    };
    let text = || "watch the deploy".to_owned();
    let settled = |fate| Standing::Settled { fate, turn: 4 };
    let done = || Arrived::Completion { execution: id!(ExecutionId, "1") };
    vec![
        ("arrival_message", arrival(Arrived::Message { text: text() }, Standing::Pending)),
        ("arrival_remark", arrival(Arrived::Remark { text: text() }, Standing::Offered(4))),
        ("arrival_withdrawn", arrival(Arrived::Message { text: text() }, Standing::Withdrawn)),
        ("arrival_acked", arrival(done(), settled(Fate::Acked))),
        ("arrival_collected", arrival(done(), settled(Fate::Collected))),
        ("arrival_superseded", arrival(done(), settled(Fate::Superseded))),
        ("arrival_stopped", arrival(done(), settled(Fate::Stopped))),
        ("arrival_dead", arrival(done(), settled(Fate::Dead("no answer".into())))),
        ("arrival_waived", arrival(done(), settled(Fate::Waived))),
    ]
}

fn turn(origin: Origin, state: TurnState) -> Turn {
    Turn {
        no: 4,
        origin,
        principal: lena(),
        address: address(),
        chain: 2,
        solo: false,
        attempt: 1,
        failures: 2,
        outage_since: Some(at(3)),
        base: 20,
        len: 3,
        seen_len: 2,
        carried: vec![
            Carried { seq: 11, execution: None, collect: false },
            Carried { seq: 12, execution: Some(id!(ExecutionId, "1")), collect: true },
        ],
        seen: 1,
        fence: 9,
        opened_at: at(2),
        ended_at: Some(at(8)),
        state,
        shared: false,
        others: vec![],
        surface: None,
    }
}

fn turns() -> Vec<(&'static str, Row)> {
    let shown = |form, place| {
        let (boot, mark) = (id!(BootId, "b1"), "0a1b".into());
        let surface = Surface { boot, form, mark, opened_at: at(4), at: place };
        Row::Turn(Turn { surface: Some(surface), ..turn(Origin::Human, TurnState::Open) })
    };
    let turn = |origin, state| Row::Turn(turn(origin, state));
    vec![
        ("turn_open", turn(Origin::Human, TurnState::Open)),
        ("turn_committed", turn(Origin::Synthetic, TurnState::Committed)),
        ("turn_dead", turn(Origin::Human, TurnState::Dead("five attempts".into()))),
        ("turn_stopped", turn(Origin::Human, TurnState::Stopped)),
        ("turn_streamed", shown(SurfaceForm::Stream, None)),
        ("turn_drafted", shown(SurfaceForm::Draft, Some("1700000000.000100".into()))),
    ]
}

fn entries() -> Vec<(&'static str, Row)> {
    let entry =
        |body| Row::Entry(Entry { turn: 4, fence: 9, at: at(3), body, carries: vec![11, 12] });
    let notice = || Notice { nonce: id!(Nonce, "k3x"), text: "[AUTO-NOTIFICATION] …".into() };
    let call = Call { id: "call_1".into(), name: "stay_silent".into(), arguments: "{\"a\"".into() };
    let model = |finish| Body::Model {
        text: "on it".into(),
        calls: vec![call.clone()],
        finish,
        usage: Usage { input_tokens: 10, output_tokens: 2, reported: true },
    };
    let result = json!({"z": 1, "a": [null, true, -2, "x"]});
    vec![
        (
            "entry_heard",
            entry(Body::Heard {
                principal: lena(),
                text: "hello".into(),
                at: at(1),
                unanswered: true,
            }),
        ),
        ("entry_remark", entry(Body::Remark { text: "deleted".into() })),
        ("entry_notice", entry(Body::Notice(notice()))),
        ("entry_earlier", entry(Body::Earlier(notice()))),
        ("entry_model_stop", entry(model(Finish::Stop))),
        ("entry_model_tools", entry(model(Finish::ToolCalls))),
        ("entry_model_length", entry(model(Finish::Length))),
        ("entry_model_filtered", entry(model(Finish::Filtered))),
        ("entry_tool", entry(Body::Tool { entry: 21, call: 0, result, notice: Some(notice()) })),
        ("entry_note", entry(Body::Note { text: "turn broke off".into() })),
        ("entry_closing", entry(Body::Closing { text: "the budget is spent".into() })),
    ]
}

fn outcome(status: Status, exit: Option<Exit>) -> Outcome {
    Outcome {
        status,
        exit,
        reason: Some("shim-killed".into()),
        stdout: Captured {
            head: "{\"ok\":true}\n".into(),
            tail: "end".into(),
            bytes: 99_999,
            missing_bytes: 99_000,
        },
        stderr: Captured::default(),
        elapsed_ms: 1_234,
        leftovers_killed: 1,
    }
}

fn execution(state: State, notify: Notify) -> Execution {
    Execution {
        id: id!(ExecutionId, "1"),
        kind: Kind::Script,
        name: "Watch deployment abc123".into(),
        turn: 4,
        call: (21, 0),
        owner: lena(),
        generation: 2,
        chain: 2,
        address: address(),
        home: Home::Spool(id!(SpoolId, "01SPOOL")),
        boot: id!(BootId, "01BOOT"),
        notify,
        key: Some(id!(SupersessionKey, "deploy")),
        timeout_ms: 60_000,
        state,
        cancel: None,
        registered_at: at(3),
        started_at: None,
        ended_at: None,
        due_at: at(75_000),
        unattended: false,
        model: ModelReceipt::None,
        human: HumanReceipt::None,
        late: vec![],
        shown: false,
        shared: false,
        access: Access::default(),
    }
}

fn networked() -> Row {
    let hosts = ["api.github.com", "*.example.com:8443"];
    let access = Access {
        hosts: hosts.map(|host| HostRule::parse(host).unwrap()).to_vec(),
        credentials: vec![CredentialName::parse("github").unwrap()],
    };
    Row::Execution(Execution { access, ..execution(State::Running, Notify::Agent) })
}

fn executions() -> Vec<(&'static str, Row)> {
    let ended = |status, exit, model, human| {
        Row::Execution(Execution {
            model,
            human,
            started_at: Some(at(4)),
            ended_at: Some(at(5)),
            ..execution(State::Ended(outcome(status, exit)), Notify::Both)
        })
    };
    let press = CancelledBy::Person { principal: lena(), press: id!(PressId, "01PRESS") };
    let fate = ModelReceipt::Fate;
    vec![
        ("execution_registered", Row::Execution(execution(State::Registered, Notify::Agent))),
        (
            "execution_running",
            Row::Execution(Execution {
                home: Home::Process(id!(BootId, "01BOOT")),
                unattended: true,
                ..execution(State::Running, Notify::Silent)
            }),
        ),
        (
            "execution_cancelling",
            Row::Execution(Execution {
                cancel: Some(press),
                human: HumanReceipt::Owed,
                ..execution(State::Cancelling, Notify::Human)
            }),
        ),
        (
            "execution_completed",
            ended(
                Status::Completed,
                Some(Exit::Code(0)),
                ModelReceipt::Arrival(12),
                HumanReceipt::Done("console:7".into()),
            ),
        ),
        (
            "execution_failed",
            ended(
                Status::Failed,
                Some(Exit::Signal(9)),
                fate(Fate::Waived),
                HumanReceipt::Dead("gone".into()),
            ),
        ),
        (
            "execution_timed_out",
            ended(Status::TimedOut, None, fate(Fate::Stopped), HumanReceipt::None),
        ),
        (
            "execution_cancelled",
            Row::Execution(Execution {
                cancel: Some(CancelledBy::Model),
                ..execution(State::Ended(outcome(Status::Cancelled, None)), Notify::Agent)
            }),
        ),
        (
            "execution_superseded",
            ended(Status::Superseded, None, fate(Fate::Superseded), HumanReceipt::None),
        ),
        (
            "execution_lost",
            Row::Execution(Execution {
                late: vec![LateFact { at: at(9), outcome: outcome(Status::Completed, None) }],
                ..execution(State::Ended(outcome(Status::Lost, None)), Notify::Agent)
            }),
        ),
    ]
}

fn items() -> Vec<(&'static str, Row)> {
    let item = |errand, state| {
        Row::Item(Item {
            id: id!(ItemId, "post/4/0"),
            errand,
            receipt_of: Some(id!(ExecutionId, "1")),
            created_at: at(5),
            at: Some(at(6)),
            next: Some(id!(ItemId, "post/5/0")),
            tries: 1,
            uncertain: true,
            ended_at: Some(at(7)),
            state,
        })
    };
    let post = |sort| Errand::Post { address: address(), text: "done".into(), sort };
    let kill = |spool| Errand::Kill { execution: id!(ExecutionId, "1"), spool };
    let free = Errand::Free { owner: lena(), start: place().start };
    let show = |of| Errand::Show { address: address(), execution: id!(ExecutionId, "1"), of };
    let root = |shared| {
        let (principal, text, said_at) = (lena(), "what broke?".into(), at(4));
        let opening = Opening { principal, text, said_at, shared };
        Errand::Root { address: address(), opening, behind: 2 }
    };
    let leased = ItemState::Leased {
        lease: id!(LeaseId, "01LEASE"),
        boot: id!(BootId, "01BOOT"),
        until: at(30_000),
    };
    vec![
        ("item_answer", item(post(PostSort::Answer), ItemState::Pending)),
        ("item_woken", item(post(PostSort::Woken), leased)),
        ("item_human", item(post(PostSort::Human), ItemState::Done("console:8".into()))),
        ("item_failure", item(post(PostSort::Failure), ItemState::Dead("48 hours".into()))),
        ("item_kill", item(kill(Some(id!(SpoolId, "01SPOOL"))), ItemState::Pending)),
        ("item_kill_process", item(kill(None), ItemState::Pending)),
        ("item_free", item(free, ItemState::Pending)),
        ("item_show", item(show(None), ItemState::Done("slack:C2/1700000000.000200".into()))),
        ("item_finish", item(show(Some(id!(ItemId, "show/1"))), ItemState::Pending)),
        ("item_root", item(root(true), ItemState::Done("T1/C2/1700000000.000200".into()))),
        ("item_root_alone", item(root(false), ItemState::Pending)),
        ("item_begin", item(Errand::Begin { of: id!(ItemId, "root/1") }, ItemState::Pending)),
    ]
}
