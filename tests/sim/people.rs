//! What people and turns do: messages, edits, stops, cancels, claims, driving turns.

use dogwatch::core::arrival::{Arrival, Body, Incoming, Standing, What};
use dogwatch::core::execution::{Address, Scope};
use dogwatch::core::id::{
    BootId, ClaimId, DedupeKey, Nonce, PressId, Principal, SessionId, StopId,
};
use dogwatch::core::ledger::row::Head;
use dogwatch::core::ledger::session::{
    Accept, Accepted, Allowance, Behalf, Cancel, Claim, Claimed, Compact, Stop,
};
use dogwatch::core::ledger::{Index, Key, Refusal};
use dogwatch::core::limits::LEASE_MS;
use dogwatch::core::time::Timestamp;

use super::driver::Driver;
use super::world::{Ran, World};

impl World {
    fn incoming(&mut self, session: &SessionId, what: What) -> Incoming {
        let mut keys = vec![DedupeKey::new(format!("ts-{}", self.fresh())).unwrap()];
        if self.rng.chance(50) {
            keys.push(DedupeKey::new(format!("id-{}", self.fresh())).unwrap());
        }
        // A repeat by one of its keys, with another one new.
        let known = self.keys.get(session).cloned().unwrap_or_default();
        if let Some(old) = self.rng.pick(&known)
            && self.rng.chance(20)
        {
            keys.push(old);
        }
        let back_ms = if self.rng.chance(20) { 60_000 } else { 0 };
        let who = if self.rng.chance(80) { "ann" } else { "bob" };
        // Channels are configured anew now and then.
        let shared = self.rng.chance(40);
        Incoming {
            keys,
            what,
            principal: Principal::new(who).unwrap(),
            address: Address { surface: "sim".into(), thread: session.to_string() },
            source_at: Timestamp::from_ms(self.now().as_ms() - back_ms),
            continues: false,
            shared,
        }
    }

    /// What became of it; `None` where nobody could take it.
    pub(super) fn accept(&mut self, session: &SessionId, incoming: &Incoming) -> Option<Accepted> {
        let node = self.up()?;
        let accept = Accept {
            session: session.clone(),
            incoming: incoming.clone(),
            chain: Allowance { wakes: 6, tokens: 2_000_000, spawns: 30 },
        };
        let known = self.keys.get(session).cloned().unwrap_or_default();
        let repeats = incoming.keys.iter().any(|key| known.contains(key));
        let is_message = matches!(incoming.what, What::Message { .. });
        let mut answer = self.run(node, &accept);
        let first = answer.clone();
        // A sender that got no answer sends again.
        while answer == Err(Ran::Lost) {
            let node = self.up()?;
            answer = self.run(node, &accept);
        }
        self.tell(&format!("accept {session} {:?} -> {answer:?}", incoming.what));
        match answer {
            Ok(Accepted::New(seq) | Accepted::Late(seq) | Accepted::Duplicate(seq)) => {
                self.history.accepted(session, seq);
                self.keys.entry(session.clone()).or_default().extend(incoming.keys.clone());
            }
            Ok(Accepted::Changed(_) | Accepted::Early | Accepted::Ignored) | Err(_) => {}
        }
        let new = matches!(answer, Ok(Accepted::New(_) | Accepted::Late(_)));
        let kept = self.history.forgotten.is_empty();
        assert!(!(new && repeats && kept), "{:?} was taken before", incoming.keys);
        match answer {
            Ok(Accepted::Duplicate(_)) if repeats && first == answer => {
                self.count("a duplicate by a second key");
            }
            Ok(Accepted::Late(_)) => self.count("a late message in the log"),
            Ok(Accepted::New(seq)) if is_message => {
                let inbox = self.row(session, &Key::inbox());
                let inbox: dogwatch::core::ledger::row::Inbox = inbox.unwrap_or_default();
                if inbox.people.iter().any(|unread| unread.seq == seq && !unread.wakes) {
                    self.count("a late message that rides");
                }
            }
            Ok(
                Accepted::New(_)
                | Accepted::Duplicate(_)
                | Accepted::Changed(_)
                | Accepted::Early
                | Accepted::Ignored,
            )
            | Err(_) => {}
        }
        answer.ok()
    }

    pub(super) fn say(&mut self) {
        let session = self.session();
        let words = ["poison", "poison", "deadly poison"];
        let poison = self.rng.pick(&words).filter(|_| self.rng.chance(5));
        let word = poison.unwrap_or("message");
        let text = format!("{word} {}", self.fresh());
        let incoming = self.incoming(&session, What::Message { text });
        let _taken = self.accept(&session, &incoming);
    }

    /// A message whose changes come before it.
    fn change_early(&mut self) {
        let session = self.session();
        let text = format!("message {}", self.fresh());
        let mut message = self.incoming(&session, What::Message { text });
        message.keys.truncate(1);
        let mut last: Option<(Timestamp, Option<String>)> = None;
        for _ in 0..=u64::from(self.rng.chance(50)) {
            let of = message.keys[0].clone();
            let text = self.rng.chance(60).then(|| format!("edited {}", self.fresh()));
            let what = match text.clone() {
                Some(text) => What::Edit { of, text },
                None => What::Deletion { of },
            };
            let change = self.incoming(&session, what);
            if self.accept(&session, &change) != Some(Accepted::Early) {
                continue;
            }
            let (at, older) = (change.source_at, last.as_ref());
            let stays =
                older.is_some_and(|(was, kept)| kept.is_none() || (text.is_some() && *was > at));
            if !stays {
                last = Some((at, text));
            }
        }
        let answer = self.accept(&session, &message);
        let Some((_, text)) = last else { return };
        let seq = match answer {
            Some(
                Accepted::New(seq)
                | Accepted::Late(seq)
                | Accepted::Duplicate(seq)
                | Accepted::Changed(seq),
            ) => seq,
            Some(Accepted::Early | Accepted::Ignored) | None => return,
        };
        let Some(arrival) = self.row::<Arrival>(&session, &Key::arrival(seq)) else { return };
        match text {
            None => {
                assert_eq!(arrival.standing, Standing::Withdrawn, "it was deleted: {arrival:?}");
                self.count("a deletion before its message");
            }
            Some(text) => {
                assert_eq!(arrival.body, Body::Message { text }, "it was edited");
                self.count("an edit before its message");
            }
        }
    }

    pub(super) fn change_message(&mut self) {
        if self.rng.chance(25) {
            return self.change_early();
        }
        let session = self.session();
        let known = self.keys.get(&session).cloned().unwrap_or_default();
        let Some(of) = self.rng.pick(&known) else { return };
        let what = if self.rng.chance(50) {
            What::Edit { of, text: format!("edited {}", self.fresh()) }
        } else {
            What::Deletion { of }
        };
        let incoming = self.incoming(&session, what);
        let _taken = self.accept(&session, &incoming);
    }

    pub(super) fn claim(&mut self) {
        let Some(node) = self.up() else { return };
        let now = self.now().as_ms();
        let early = self.setting.sole || self.rng.chance(5);
        let until = if early { now + LEASE_MS } else { now };
        let ready = self.members(&Index::Ready, until);
        let Some(member) = self.rng.pick(&ready) else { return };
        let session = member.aggregate.session().unwrap().clone();
        // One task of a boot runs a session.
        let boot = self.boot(node);
        if self.drivers.iter().any(|d| d.node == node && d.token.session == session && !d.over) {
            return;
        }
        // A turn that must be alone has all seats of its boot.
        if self.nodes[node].alone {
            return;
        }
        self.seats.push(boot.clone());
        if self.claim_of(node, &session, false) == Err(Ran::Refused(Refusal::Crowd)) {
            self.count("a claim that must be alone");
            let others = self.seats.iter().filter(|other| **other == boot).count() > 1
                || self.drivers.iter().any(|driver| driver.boot == boot && !driver.over);
            if !others && self.boot(node) == boot {
                self.nodes[node].alone = true;
                let alone = self.claim_of(node, &session, true);
                // A boot that came since knows nothing of it.
                if self.boot(node) == boot {
                    self.nodes[node].alone = matches!(alone, Ok(Claimed::Turn(..)));
                }
            }
        }
        let seat = self.seats.iter().rposition(|seat| *seat == boot).unwrap();
        self.seats.remove(seat);
    }

    /// Others may run in this boot again.
    pub(super) fn share(&mut self, node: usize, boot: &BootId) {
        if self.boot(node) == *boot {
            self.nodes[node].alone = false;
        }
    }

    fn claim_of(&mut self, node: usize, session: &SessionId, alone: bool) -> Result<Claimed, Ran> {
        let claim = Claim {
            session: session.clone(),
            boot: self.boot(node),
            alone,
            claim: ClaimId::new(self.fresh()).unwrap(),
            nonce: Nonce::new(format!("k{}", self.fresh())).unwrap(),
        };
        let mut answer = self.run(node, &claim);
        if answer == Err(Ran::Lost) {
            if self.rng.chance(30) || !self.nodes[node].up || self.boot(node) != claim.boot {
                return answer;
            }
            answer = self.run(node, &claim);
        }
        self.tell(&format!("claim {session} by {node}, alone {alone} -> {answer:?}"));
        match &answer {
            Ok(Claimed::Turn(token, row)) if self.boot(node) == claim.boot => {
                if alone {
                    self.count("a turn run alone");
                }
                let row = row.as_ref().clone();
                let driver = Driver::resume(self, node, alone, (token.clone(), row));
                self.drivers.push(driver);
            }
            Err(Ran::Refused(Refusal::NotYet(_))) => self.count("a claim too early"),
            Err(Ran::Refused(Refusal::Busy(_) | Refusal::Idle)) => self.count("a claim refused"),
            Ok(_) | Err(_) => {}
        }
        answer
    }

    pub(super) fn drive(&mut self) {
        if self.drivers.is_empty() {
            return self.claim();
        }
        let i = self.rng.below(self.drivers.len());
        let mut driver = self.drivers.swap_remove(i);
        self.seats.push(driver.boot.clone());
        for _ in 0..=self.rng.below(4) {
            if driver.over {
                break;
            }
            driver.act(self);
        }
        let seat = self.seats.iter().rposition(|seat| *seat == driver.boot).unwrap();
        self.seats.remove(seat);
        // The model has answered, or another attempt is due: others may run again.
        if driver.alone && (driver.over || driver.progressed(self)) {
            driver.alone = false;
            self.share(driver.node, &driver.boot);
        }
        // A boot that ended in between has taken its drivers along, where it was alone.
        let alive = self.nodes[driver.node].up && self.boot(driver.node) == driver.boot;
        if !driver.over && (alive || !self.setting.sole) {
            self.drivers.push(driver);
        }
    }

    pub(super) fn stop(&mut self) {
        let Some(node) = self.up() else { return };
        let session = self.session();
        let scope = if self.rng.chance(50) { Scope::All } else { Scope::Turn };
        let stop = Stop {
            session: session.clone(),
            scope,
            stop: StopId::new(self.fresh()).unwrap(),
            source_at: self.now(),
            by: Principal::new("ann").unwrap(),
            only: None,
        };
        if scope == Scope::All {
            *self.history.facts.stops_of_all.entry(session.clone()).or_default() += 1;
        }
        let mut answer = self.run(node, &stop);
        while answer == Err(Ran::Lost) {
            let Some(node) = self.up() else { return };
            answer = self.run(node, &stop);
        }
        self.tell(&format!("stop {scope:?} {session} -> {answer:?}"));
    }

    pub(super) fn cancel(&mut self) {
        let Some(node) = self.up() else { return };
        let session = self.session();
        let Some(execution) = self.rng_live(&session) else { return };
        let who = if self.rng.chance(80) { "ann" } else { "bob" };
        let behalf = Behalf::Person {
            principal: Principal::new(who).unwrap(),
            press: PressId::new(self.fresh()).unwrap(),
        };
        let answer = self.run(node, &Cancel { session, execution, behalf });
        if let Err(Ran::Refused(Refusal::Foreign(_))) = answer {
            self.count("a stranger's cancel refused");
        }
    }

    pub(super) fn compact(&mut self) {
        let Some(driver) = self.drivers.last() else { return };
        let (node, token) = (driver.node, driver.token.clone());
        let head: Head = self.row(&token.session, &Key::head()).unwrap_or_default();
        let upto = head.tlen - self.rng.below(3).min(usize::try_from(head.tlen).unwrap()) as u64;
        let compact = Compact { token: token.clone(), upto, summary: "so far".into() };
        let _ = self.run_as(node, Some(&token), &compact);
    }
}
