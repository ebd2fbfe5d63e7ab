use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_000_000 + ms)
}

fn asker(execution: &str, per_minute: u32) -> Asker<'_> {
    Asker { execution, per_minute, wait_ms: 30_000 }
}

fn github() -> Account {
    Account::Credential(CredentialName::parse("github").unwrap())
}

/// Plays requests in order of time, and what they are told. Answers when each went.
fn play(budgets: &mut Budgets, requests: &[(u64, String)], per_minute: u32) -> Vec<(u64, String)> {
    let mut went = Vec::new();
    let mut waiting: BTreeMap<Ticket, String> = BTreeMap::new();
    let mut requests = requests.iter().peekable();
    loop {
        let turn = budgets.next();
        match (requests.peek(), turn) {
            (Some((ms, who)), turn) if turn.is_none_or(|turn| at(*ms) <= turn) => {
                match budgets.ask(&github(), asker(who, per_minute), at(*ms)) {
                    Turn::Go => went.push((*ms, who.clone())),
                    Turn::Wait(ticket) => {
                        waiting.insert(ticket, who.clone());
                    }
                    Turn::Refused(refusal) => assert!(refusal.until > at(*ms)),
                }
                requests.next();
            }
            (_, Some(turn)) => {
                for (ticket, told) in budgets.turn(turn) {
                    let who = waiting.remove(&ticket).expect("it waited");
                    if told.is_ok() {
                        went.push((turn.since_ms(at(0)), who));
                    }
                }
            }
            (_, None) => {
                assert!(waiting.is_empty(), "somebody waits for ever");
                return went;
            }
        }
    }
}

proptest! {
    /// In no minute, wherever it begins, are there more than the budget.
    #[test]
    fn b119_no_minute_has_more_than_the_budget(
        per_minute in 1_u32..90,
        mut times in prop::collection::vec((0_u64..180_000, 0_u8..4), 1..400),
    ) {
        times.sort_unstable();
        let requests: Vec<_> = times.iter().map(|(ms, who)| (*ms, format!("e{who}"))).collect();
        let went = play(&mut Budgets::new(7), &requests, per_minute);
        for (from, _) in &went {
            let count = went.iter().filter(|(ms, _)| (*from..from + 60_000).contains(ms)).count();
            prop_assert!(count <= per_minute as usize, "{count} of {per_minute} from {from}");
        }
        prop_assert!(!went.is_empty());
    }
}

#[test]
fn b119_eighteen_pollers_share_a_budget_evenly() {
    // Each asks every 15 s, which is 72 a minute of 60.
    let mut requests: Vec<(u64, String)> = (0..20)
        .flat_map(|round| (0..18).map(move |n| (round * 15_000 + n * 7, format!("poller-{n:02}"))))
        .collect();
    // One of them does not care.
    requests.extend((0..3_000).map(|n| (n * 100, "flood".to_owned())));
    requests.sort();
    let went = play(&mut Budgets::new(1), &requests, 60);
    let count = |who: &str| went.iter().filter(|(_, other)| other == who).count();
    let counts: Vec<usize> = (0..18).map(|n| count(&format!("poller-{n:02}"))).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 3, "{counts:?}");
    assert!(*least >= 10, "the flood got {}, the others {counts:?}", count("flood"));
    assert!(went.len() <= 60 * 6, "{} in five minutes and a wait", went.len());
}

#[test]
fn b119_a_pause_holds_all_back_and_says_until_when() {
    let mut budgets = Budgets::new(3);
    assert_eq!(budgets.ask(&github(), asker("a", 60), at(0)), Turn::Go);
    budgets.hold(&github(), at(100), 45_000);
    let mut untils = Vec::new();
    for n in 0..17 {
        let name = format!("e{n}");
        let turn = budgets.ask(&github(), asker(&name, 60), at(200));
        let Turn::Refused(refusal) = turn else { panic!("{turn:?}") };
        assert!(refusal.by_upstream && refusal.until >= at(45_100));
        assert!(refusal.until < at(45_100 + 2_000));
        untils.push(refusal.until);
    }
    untils.sort();
    untils.dedup();
    assert!(untils.len() > 8, "they come again together: {untils:?}");
    // Near its end they wait for it, and go one after the other.
    let turn = budgets.ask(&github(), asker("b", 60), at(20_000));
    let Turn::Wait(ticket) = turn else { panic!("{turn:?}") };
    assert_eq!(budgets.next(), Some(at(45_100)));
    assert_eq!(budgets.turn(at(45_099)), []);
    assert_eq!(budgets.turn(at(45_100)), [(ticket, Ok(()))]);
    // A longer pause that comes meanwhile tells those who wait at once.
    budgets.hold(&github(), at(45_200), 1_000);
    let Turn::Wait(ticket) = budgets.ask(&github(), asker("c", 60), at(45_300)) else { panic!() };
    budgets.hold(&github(), at(45_400), 600_000);
    let told = budgets.turn(at(45_400));
    assert!(matches!(told[..], [(other, Err(refusal))] if other == ticket && refusal.by_upstream));
    assert_eq!(budgets.next(), None);
    // Longer than an hour nobody can ask for.
    budgets.hold(&github(), at(50_000), u64::MAX);
    let Turn::Refused(refusal) = budgets.ask(&github(), asker("d", 60), at(50_000)) else {
        panic!()
    };
    assert!(refusal.until <= at(50_000 + 3_600_000 + 2_000));
}

#[test]
fn who_leaves_the_line_makes_room() {
    let mut budgets = Budgets::new(0);
    assert_eq!(budgets.ask(&github(), asker("a", 6), at(0)), Turn::Go);
    let Turn::Wait(first) = budgets.ask(&github(), asker("a", 6), at(0)) else { panic!() };
    let Turn::Wait(second) = budgets.ask(&github(), asker("b", 6), at(1)) else { panic!() };
    budgets.leave(&github(), first);
    assert_eq!(budgets.turn(at(10_000)), [(second, Ok(()))]);
    assert_eq!(budgets.next(), None);
    // Other accounts have their own budgets.
    let other = Account::Host(Host::parse("example.com").unwrap());
    assert_eq!(budgets.ask(&other, asker("a", 6), at(10_001)), Turn::Go);
}
