//! Taking arrivals out of the inbox into entries of a turn. Owns what is taken together and in
//! which order. Must not know whether a turn begins or goes on.

use std::collections::BTreeSet;

use crate::core::arrival::{Arrival, Body as What, Standing};
use crate::core::envelope::{self, Completion};
use crate::core::execution::Execution;
use crate::core::id::{ChainNo, Nonce, Principal, Seq, TurnNo};
use crate::core::ledger::row::{Inbox, Turn, Unread};
use crate::core::ledger::{Key, Working};
use crate::core::limits::{PEOPLE_PER_TURN_MAX, TAKE_BYTES_MAX, TAKE_NOTICES_MAX, TAKE_PEOPLE_MAX};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Notice};

/// What is taken together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) people: Vec<Unread>,
    pub(super) notices: Vec<Unread>,
}

impl Selection {
    pub(super) fn is_empty(&self) -> bool {
        self.people.is_empty() && self.notices.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Unread> {
        self.people.iter().chain(&self.notices)
    }

    /// The rows that taking this must see.
    pub(super) fn keys(&self) -> Vec<Key> {
        let arrivals = self.all().map(|unread| Key::arrival(unread.seq));
        let executions = self.all().filter_map(|u| u.execution.as_ref().map(Key::execution));
        arrivals.chain(executions).collect()
    }

    /// The chain that the newest message of a person opened.
    pub(super) fn chain(&self) -> Option<ChainNo> {
        self.people.iter().rev().find(|unread| unread.wakes).map(|unread| unread.chain)
    }

    /// Entries it makes, at most.
    pub(super) fn entries(&self) -> u64 {
        self.people.len() as u64 + u64::from(!self.notices.is_empty())
    }
}

/// The first arrivals of a new turn: unread human text before notices; one principal, or what is
/// shared; what broke a turn off before goes alone.
pub(super) fn first(inbox: &Inbox) -> Selection {
    let lead = inbox.people.iter().chain(&inbox.notices).find(|unread| unread.wakes);
    let Some(lead) = lead else { return Selection::default() };
    if lead.solo {
        let alone = vec![lead.clone()];
        return if lead.execution.is_some() {
            Selection { people: vec![], notices: alone }
        } else {
            Selection { people: alone, notices: vec![] }
        };
    }
    let whose = Whose { principal: &lead.principal, shared: lead.shared, others: &[] };
    more(inbox, whose, TAKE_PEOPLE_MAX + TAKE_NOTICES_MAX)
}

/// Whose arrivals a turn takes: its principal's; or, where the first was shared, everything that
/// is shared. What asks for an answer and is not shared never stands beside another person's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whose<'a> {
    principal: &'a Principal,
    shared: bool,
    others: &'a [Principal],
}

impl<'a> Whose<'a> {
    pub(super) fn of(turn: &'a Turn) -> Self {
        Self { principal: &turn.principal, shared: turn.shared, others: &turn.others }
    }

    /// What only rides may come to its person's turn in any case: it asks for nothing, and would
    /// else wait for ever where everything is shared by now.
    pub(super) fn takes(&self, principal: &Principal, shared: bool, wakes: bool) -> bool {
        let own = principal == self.principal;
        if self.shared { shared || (own && !wakes) } else { own }
    }

    /// With this person in it, is it a turn of no more people than one may have?
    pub(super) fn has_room_for(&self, principal: &Principal) -> bool {
        let known = principal == self.principal || self.others.contains(principal);
        known || self.others.len() + 1 < PEOPLE_PER_TURN_MAX
    }
}

/// Whoever's arrival a turn takes is one of its people.
pub(super) fn join(turn: &mut Turn, principal: &Principal) {
    if *principal != turn.principal && !turn.others.contains(principal) {
        turn.others.push(principal.clone());
    }
}

/// What such a turn takes: from each list in order, up to the first that is to be answered and not
/// its own or is to be claimed alone, at most `room`. Riders that are not its own stay for their
/// turn.
pub(super) fn more<'a>(inbox: &'a Inbox, whose: Whose<'a>, room: usize) -> Selection {
    let mut bytes = 0_usize;
    let mut people: BTreeSet<&Principal> = whose.others.iter().chain([whose.principal]).collect();
    let mut choose = |list: &'a [Unread], max: usize| -> Vec<Unread> {
        let takes = |unread: &&Unread| whose.takes(&unread.principal, unread.shared, unread.wakes);
        let open =
            list.iter().take_while(|unread| !unread.solo && (!unread.wakes || takes(unread)));
        open.filter(takes)
            .take(max)
            .take_while(|unread| {
                people.insert(&unread.principal);
                people.len() <= PEOPLE_PER_TURN_MAX
            })
            .take_while(|unread| {
                let fits = bytes == 0 || bytes + bytes_of(unread) <= TAKE_BYTES_MAX;
                bytes += bytes_of(unread);
                fits
            })
            .cloned()
            .collect()
    };
    let people = choose(&inbox.people, TAKE_PEOPLE_MAX.min(room));
    let notices = choose(&inbox.notices, TAKE_NOTICES_MAX.min(room - people.len()));
    Selection { people, notices }
}

fn bytes_of(unread: &Unread) -> usize {
    usize::try_from(unread.bytes).unwrap_or(usize::MAX)
}

/// One entry that taking makes, with the arrivals it carries.
pub(super) struct Made {
    pub(super) body: Body,
    pub(super) carries: Vec<Seq>,
}

/// What was taken: people's entries, then the notice, for the caller to place.
pub(super) struct Taken {
    pub(super) people: Vec<Made>,
    pub(super) notice: Option<(Notice, Vec<Seq>)>,
}

/// Takes a selection: it leaves the inbox and is offered by this turn.
pub(super) fn take(
    rows: &mut Working,
    now: Timestamp,
    turn: TurnNo,
    nonce: &Nonce,
    selection: &Selection,
) -> Taken {
    let seqs: BTreeSet<Seq> = selection.all().map(|unread| unread.seq).collect();
    if !seqs.is_empty()
        && let Some(inbox) = rows.edit::<Inbox>(&Key::inbox())
    {
        inbox.people.retain(|unread| !seqs.contains(&unread.seq));
        inbox.notices.retain(|unread| !seqs.contains(&unread.seq));
    }
    for seq in &seqs {
        if let Some(arrival) = rows.edit::<Arrival>(&Key::arrival(*seq)) {
            arrival.standing = Standing::Offered(turn);
        }
    }
    let people = selection.people.iter().filter_map(|unread| {
        let arrival = rows.get::<Arrival>(&Key::arrival(unread.seq))?;
        Some(Made { body: heard(arrival, false)?, carries: vec![unread.seq] })
    });
    let people = people.collect();
    let executions: Vec<&Execution> = selection
        .notices
        .iter()
        .filter_map(|unread| rows.get(&Key::execution(unread.execution.as_ref()?)))
        .collect();
    let notice = (!selection.notices.is_empty()).then(|| {
        let carries = selection.notices.iter().map(|unread| unread.seq).collect();
        let completions: Vec<_> = executions.into_iter().filter_map(Completion::of).collect();
        (envelope::notice(now, nonce, &completions), carries)
    });
    Taken { people, notice }
}

/// The entry of a person's arrival; `None` for a completion.
pub(super) fn heard(arrival: &Arrival, unanswered: bool) -> Option<Body> {
    match &arrival.body {
        What::Message { text } => Some(Body::Heard {
            principal: arrival.principal.clone(),
            text: text.clone(),
            at: arrival.accepted_at,
            unanswered,
        }),
        What::Remark { text } => Some(Body::Remark { text: text.clone() }),
        What::Completion { .. } => None,
    }
}
