use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_000_000 + ms)
}

fn thread(n: usize) -> Thread {
    Thread::new("T1", "C1", &format!("{n}.000100")).unwrap()
}

#[test]
fn slack_34_programs_may_say_so_much_in_a_thread_and_no_more() {
    let mut bots = Bots::default();
    for n in 0..SLACK_BOT_MESSAGES_MAX {
        assert!(bots.may_speak(at(0), &thread(1), &n.to_string()));
        // Twins and repeats are one message.
        assert!(bots.may_speak(at(1), &thread(1), &n.to_string()));
    }
    assert!(!bots.may_speak(at(2), &thread(1), "more"));
    assert!(!bots.may_speak(at(2), &thread(1), "more"));
    assert!(bots.may_speak(at(2), &thread(2), "more"), "another thread has its own count");
    assert!(!bots.may_speak(at(SLACK_BOTS_WINDOW_MS - 1), &thread(1), "more"));
    assert!(bots.may_speak(at(SLACK_BOTS_WINDOW_MS), &thread(1), "more"));
}

#[test]
fn what_is_remembered_of_programs_and_commands_is_bounded() {
    let mut bots = Bots::default();
    for n in 0..SLACK_BOT_THREADS_MAX {
        assert!(bots.may_speak(at(0), &thread(n), "x"));
    }
    assert!(!bots.may_speak(at(1), &thread(SLACK_BOT_THREADS_MAX), "x"));
    assert!(bots.may_speak(at(SLACK_BOTS_WINDOW_MS), &thread(SLACK_BOT_THREADS_MAX), "x"));
    assert_eq!(bots.threads.len(), 1);

    let mut commands = Commands::default();
    let first = commands.cell("0");
    assert!(Arc::ptr_eq(&first, &commands.cell("0")));
    for n in 1..=SLACK_COMMANDS_KEPT_MAX {
        commands.cell(&n.to_string());
    }
    assert_eq!(commands.cells.len(), SLACK_COMMANDS_KEPT_MAX);
    assert!(!Arc::ptr_eq(&first, &commands.cell("0")), "the oldest is forgotten");
}
