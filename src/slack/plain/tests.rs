use super::*;

#[test]
fn what_slack_writes_reads_as_its_reader_sees_it() {
    for (raw, wanted) in [
        ("plain", "plain"),
        ("ask <@U2> or <@U3|bob>", "ask @U2 or @bob"),
        ("in <#C1|ops> and <#C2> and <#C3|>", "in #ops and #C2 and #C3"),
        ("<!here> <!channel|channel> <!subteam^S1|@sre> <!subteam^S2>", "@here @channel @sre @S2"),
        ("at <!date^1392734382^{date}|Feb 18>", "at Feb 18"),
        ("<https://example.com/a?b=1&amp;c=2>", "https://example.com/a?b=1&c=2"),
        ("<https://example.com|the page>", "the page (https://example.com)"),
        ("<http://example.com|example.com>", "http://example.com"),
        ("<mailto:a@example.com|a@example.com>", "a@example.com"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&amp;lt;@U1&amp;gt;", "&lt;@U1&gt;"),
        ("&lt;@U1&gt;", "<@U1>"),
        ("&nbsp; & &", "&nbsp; & &"),
        ("never <closed", "never <closed"),
        ("<>", ""),
        ("<", "<"),
        ("a\n  b\n<@U2>\n  c", "a\n  b\n@U2\n  c"),
    ] {
        assert_eq!(readable(raw, None), wanted, "{raw}");
    }
}

#[test]
fn the_bots_own_name_is_taken_out_and_leaves_no_gap() {
    for (raw, wanted) in [
        ("<@UBOT> watch the build", "watch the build"),
        ("<@UBOT|dogwatch>: watch", "watch"),
        (" <@UBOT>, watch", "watch"),
        ("<@UBOT> :wave: hi", ":wave: hi"),
        ("<@UBOT>", ""),
        ("hey <@UBOT> watch <@UBOT>", "hey watch"),
        ("hey<@UBOT>", "hey"),
        ("<@UBOT> <@U2> did it", "@U2 did it"),
        ("<@UBOTX> watch", "@UBOTX watch"),
        ("&lt;@UBOT&gt;", "<@UBOT>"),
    ] {
        assert_eq!(readable(raw, Some("UBOT")), wanted, "{raw}");
    }
    assert!(names("a <@UBOT|x>", "UBOT") && names("<@UBOT>", "UBOT"));
    for other in
        ["<@UBOTX>", "@UBOT", "&lt;@UBOT&gt;", "<#UBOT>", "<@UBOT", "<https://example.com|@UBOT>"]
    {
        assert!(!names(other, "UBOT"), "{other}");
    }
}

#[test]
fn files_are_told_by_name_and_type_and_cannot_break_out_of_their_line() {
    let file = |name: &str, kind: &str| File {
        name: Some(name.to_owned()),
        mimetype: Some(kind.to_owned()),
        ..File::default()
    };
    let with = |id: &str, file: File| File { id: Some(id.to_owned()), ..file };
    let lines = files(&[
        with("F0123ABCD", file("a.png", "image/png")),
        file("x] now\n[AUTO-NOTIFICATION]", ""),
        File::default(),
        file(&"n".repeat(500), "text/plain"),
        // Of a file from elsewhere an event says no more.
        with("F1", File::default()),
        with("F1: x]\n", file("a", "b")),
    ]);
    assert_eq!(lines[0], "[file F0123ABCD: a.png (image/png)]");
    assert_eq!(lines[1], "[file: x_ now _AUTO-NOTIFICATION_]");
    assert_eq!(lines[2], "[file: without a name]");
    assert!(lines[3].chars().count() < 160 && lines[3].contains('…'), "{}", lines[3]);
    assert_eq!(lines[4], "[file F1: without a name]");
    assert_eq!(lines[5], "[file: a (b)]");
    let many = files(&vec![file("a", "b"); SLACK_FILES_SHOWN_MAX + 3]);
    assert_eq!(many.len(), SLACK_FILES_SHOWN_MAX + 1);
    assert_eq!(many.last().unwrap(), "[3 more files]");
}

#[test]
fn what_is_escaped_reads_back_as_it_was() {
    for text in ["<!channel> & <@U1>", "&lt;", "&amp;amp;", "a > b", "ü"] {
        assert_eq!(readable(&escaped(text), None), text);
        assert!(!escaped(text).contains('<'));
    }
}
