use super::*;

#[test]
fn a_thread_is_written_as_its_session_and_its_address_and_read_back() {
    let thread = Thread::new("T1", "C2", "1700000000.000100").unwrap();
    assert_eq!(thread.session().unwrap().as_str(), "slack/T1/C2/1700000000.000100");
    assert_eq!(thread.address().surface, "slack");
    assert_eq!(Thread::of(&thread.address()), Ok(thread));
    assert_eq!(principal("T1", "U7").unwrap().as_str(), "slack/T1/U7");
}

#[test]
fn b36_what_names_no_thread_is_no_address() {
    for (installation, channel, root) in [
        ("", "C2", "1700000000.000100"),
        ("T1", "general", "1700000000.000100"),
        ("T1", "C2", ""),
        ("T1", "C2", "now"),
        ("T1", "C2", "1700000000"),
        ("T1", "C2", "1700000000.000100/x"),
        ("T/1", "C2", "1700000000.000100"),
        ("T1", "C\u{0410}", "1700000000.000100"),
    ] {
        assert!(
            Thread::new(installation, channel, root).is_err(),
            "{installation} {channel} {root}"
        );
    }
    for thread in ["T1/C2", "T1/C2/", "T1/C2/1.1/1.1", "C2/1700000000.000100"] {
        let address = Address { surface: SURFACE.into(), thread: thread.into() };
        assert!(Thread::of(&address).is_err(), "{thread}");
    }
    assert!(principal("T1", "U1/U2").is_err());
}
