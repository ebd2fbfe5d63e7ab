use proptest::prelude::*;

use super::*;

fn plain(text: &str) -> String {
    text.to_owned()
}

/// Captures a whole stream as the rings would.
fn captured(stream: &[u8]) -> Captured {
    let mut kept = HeadTail::new(HALF_BYTES);
    kept.push(stream);
    kept.captured(&plain)
}

fn head_and_tail(stream: &[u8], each: usize) -> (Vec<u8>, Vec<u8>) {
    let head = stream[..stream.len().min(each)].to_vec();
    let rest = &stream[head.len()..];
    (head, rest[rest.len().saturating_sub(each)..].to_vec())
}

proptest! {
    #[test]
    fn b60_head_and_tail_are_exact_however_the_stream_is_cut(
        stream in prop::collection::vec(any::<u8>(), 0..300),
        each in 0..64usize,
        cuts in prop::collection::vec(0..300usize, 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut kept = HeadTail::new(each);
        for pair in cuts.windows(2) {
            kept.push(&stream[pair[0]..pair[1]]);
            prop_assert!(kept.head.len() + kept.tail.len() <= 2 * each);
        }
        let (head, tail) = head_and_tail(&stream, each);
        prop_assert_eq!(kept.head(), &head[..]);
        prop_assert_eq!(kept.tail(), tail);
        prop_assert_eq!(kept.bytes(), stream.len() as u64);
    }

    #[test]
    fn b74_any_bytes_become_bounded_text_without_controls(
        stream in prop::collection::vec(any::<u8>(), 0..40_000),
    ) {
        let kept = captured(&stream);
        prop_assert!(kept.head.len() + kept.tail.len() <= OUTPUT_BYTES_MAX);
        let text = kept.text();
        prop_assert!(text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        prop_assert_eq!(clean(&text), text.clone());
        let json = serde_json::to_string(&kept).unwrap();
        prop_assert_eq!(serde_json::from_str::<Captured>(&json).unwrap(), kept);
    }

    #[test]
    fn b74_cleaning_twice_changes_nothing(text in any::<String>()) {
        let once = clean(&text);
        prop_assert_eq!(clean(&once), once);
    }

    #[test]
    fn b74_cleaning_of_escapes_twice_changes_nothing(
        text in "[\u{1b}\u{9b}\u{9d}\u{7}\u{9c}\\[\\]P\\\\;0-9mAK\r\n é]{0,40}",
    ) {
        let once = clean(&text);
        prop_assert!(once.chars().all(|c| c == '\n' || !c.is_control()));
        prop_assert_eq!(clean(&once), once);
    }

    #[test]
    fn b73_cut_is_bounded_and_says_what_is_missing(text in any::<String>(), max in 0..200usize) {
        let short = cut(&text, max);
        prop_assert!(short.len() <= max.max(GAP_BYTES_MAX));
        if text.len() <= max {
            prop_assert_eq!(short, text);
        } else {
            let (head, rest) = short.split_once("\n… ").unwrap();
            let (missing, tail) = rest.split_once(" bytes not shown …\n").unwrap();
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            let missing: usize = missing.parse().unwrap();
            prop_assert_eq!(missing + head.len() + tail.len(), text.len());
        }
    }
}

#[test]
fn b73_three_byte_characters_are_cut_between_characters() {
    let kept = captured("€".repeat(40_000).as_bytes());
    assert!(kept.head.chars().chain(kept.tail.chars()).all(|c| c == '€'));
    let shown = (kept.head.len() + kept.tail.len()) as u64;
    assert_eq!(shown + kept.missing_bytes, 120_000);
}

#[test]
fn b73_a_four_byte_character_across_either_edge_is_dropped_whole() {
    for shift in 0..4 {
        let mut stream = "x".repeat(shift);
        stream.push_str(&"🐕".repeat(10_000));
        stream.push_str(&"y".repeat(3 - shift));
        let kept = captured(stream.as_bytes());
        assert!(!kept.text().contains(char::REPLACEMENT_CHARACTER), "shift {shift}");
        let shown = (kept.head.len() + kept.tail.len()) as u64;
        assert_eq!(shown + kept.missing_bytes, stream.len() as u64, "shift {shift}");
    }
}

#[test]
fn b73_a_character_across_the_border_of_head_and_tail_is_whole_when_nothing_is_missing() {
    let mut stream = "x".repeat(HALF_BYTES - 1);
    stream.push_str("🐕 done");
    let kept = captured(stream.as_bytes());
    assert!(kept.text().ends_with("🐕 done"));
    assert_eq!((kept.missing_bytes, kept.tail.as_str()), (0, ""));
}

#[test]
fn b74_all_byte_values_and_separators() {
    let mut stream: Vec<u8> = (0..=255).collect();
    stream.extend("a\u{2028}b\u{2029}c\u{85}d\u{202e}e\u{0}f\u{e0041}g".as_bytes());
    let text = captured(&stream).text();
    assert!(text.ends_with("a\nb\nc\ndefg"), "{text:?}");
    assert!(!text.contains('\0'));
}

#[test]
fn b74_terminal_sequences_leave_the_words() {
    let cases = [
        ("\u{1b}[1;31mred\u{1b}[0m", "red"),
        ("\u{1b}]0;title\u{7}text", "text"),
        ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
        ("\u{9b}2Jcleared", "cleared"),
        ("\u{1b}(Bcharset", "charset"),
        ("\u{1b}P1$r0m\u{1b}\\device", "device"),
        ("never ended \u{1b}]0;kept\nnext", "never ended 0;kept\nnext"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("cut \u{1b}[3", "cut "),
    ];
    for (raw, expected) in cases {
        assert_eq!(clean(raw), expected, "{raw:?}");
    }
}

#[test]
fn b80_a_word_that_the_cut_tore_is_not_kept() {
    let secret = "Zx9Kq2LmNv7Rt4Wb8Yc1";
    for shift in 1..secret.len() {
        let mut stream = "a ".repeat((HALF_BYTES - shift) / 2 + 1);
        stream.truncate(HALF_BYTES - shift);
        stream.push_str(secret);
        stream.push_str(&" b".repeat(20_000));
        stream.push_str(secret);
        stream.push_str(&" c".repeat(HALF_BYTES));
        stream.truncate(HALF_BYTES - shift + secret.len() + 40_000 + shift + HALF_BYTES);
        let kept = captured(stream.as_bytes());
        for n in 8..=secret.len() {
            assert!(!kept.head.contains(&secret[..n]), "head, shift {shift}");
            assert!(!kept.tail.contains(&secret[secret.len() - n..]), "tail, shift {shift}");
        }
        let shown = (kept.head.len() + kept.tail.len()) as u64;
        assert_eq!(shown + kept.missing_bytes, stream.len() as u64, "shift {shift}");
    }
}

#[test]
fn b80_the_rest_of_a_private_key_is_not_kept() {
    let mut stream = "x\n".repeat(20_000);
    stream.push_str(&"MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n".repeat(100));
    stream.push_str("-----END PRIVATE KEY-----\nready\n");
    let kept = captured(stream.as_bytes());
    assert!(kept.text().ends_with("ready\n"));
    let mut torn = stream.split_off(40_000);
    torn.insert_str(0, &"x".repeat(20_000));
    assert!(!captured(torn.as_bytes()).tail.contains("MIIE"));
}

#[test]
fn text_says_what_is_missing_and_emptiness_is_seen() {
    let kept =
        Captured { head: "a".into(), tail: "b".into(), bytes: 12_347, missing_bytes: 12_345 };
    assert_eq!(kept.text(), "a\n… 12345 bytes not shown …\nb");
    assert!(!kept.is_empty());
    assert!(captured(b"").is_empty());
    assert!(captured(b" \r\n\x1b[0m").is_empty());
}

#[test]
fn one_line_has_no_line_ends() {
    assert_eq!(one_line(" a\u{2028}b\r\n\tc\u{0} "), "a b c");
}
