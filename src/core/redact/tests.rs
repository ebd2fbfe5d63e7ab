use proptest::prelude::*;

use super::*;

const LITERAL: &str = "hunter2/Zx+9&qu\"ote";

fn redactor() -> Redactor {
    Redactor::new(vec![LITERAL.into(), "first line of it\nsecond line of it".into(), "abc".into()])
}

#[test]
fn b80_what_looks_like_a_secret_is_taken_out() {
    let cases = [
        ("xoxb-1234567890-abcdefghij", "[redacted]"),
        ("xapp-1-A0123-99887766", "[redacted]"),
        (
            "https://hooks.slack.com/services/T0/B0/abcdefgh",
            "https://hooks.slack.com/services/[redacted]",
        ),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [redacted]"),
        ("{\"authorization\":\"Basic dXNlcjpwYXNz\"}", "{\"authorization\":\"Basic [redacted]\"}"),
        ("curl -H 'bearer 0123456789abcdef'", "curl -H 'bearer [redacted]'"),
        ("key sk-proj-AbCd0123456789EfGh end", "key [redacted] end"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "[redacted]"),
        ("github_pat_11ABCDEFG0123456789_abcdef", "[redacted]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [redacted]",
        ),
        ("postgres://bob:s3cr3t@db:5432/x", "postgres://bob:[redacted]@db:5432/x"),
        (
            "https://x.test/?a=1&access_token=abc&b=2",
            "https://x.test/?a=1&access_token=[redacted]&b=2",
        ),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl.", "jwt [redacted]."),
        ("DB_PASSWORD=hunter2 next", "DB_PASSWORD=[redacted] next"),
        ("{\"password\": \"two words\", \"n\": 1}", "{\"password\": \"[redacted]\", \"n\": 1}"),
        (r#"{\"password\":\"hunter2\"}"#, r#"{\"password\":\"[redacted]\"}"#),
        ("token=abcdefgh", "token=[redacted]"),
        ("api_key: 'Ab3dEf6hIj'", "api_key: '[redacted]'"),
        ("Set-Cookie: sid=abcdef; Path=/", "Set-Cookie: [redacted]"),
    ];
    for (text, expected) in cases {
        assert_eq!(redactor().redact(text), expected, "{text}");
    }
}

#[test]
fn b80_ordinary_text_stays() {
    for text in [
        "{\"deployment_id\":\"abc123\",\"status\":\"healthy\"}",
        "used input_tokens: 1234, max_tokens=500",
        "PWD=/home/bob",
        "a task-force of ten; basic internationalization",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "execution auto-notify-watc-0001 in console/main",
        "https://example.test/path?page=2#top",
    ] {
        assert!(matches!(redactor().redact(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn b80_a_known_value_is_found_in_every_form() {
    let percent = "hunter2%2FZx%2B9%26qu%22ote";
    let json = serde_json::to_string(LITERAL).unwrap();
    for form in
        [LITERAL, percent, &percent.to_lowercase().replace("zx", "Zx"), json.trim_matches('"')]
    {
        let text = redactor().redact(&format!("<<{form}>>")).into_owned();
        assert_eq!(text, "<<[redacted]>>", "{form}");
    }
    // base64 of "u:LITERAL", "ux:LITERAL" and "uxy:LITERAL": the value at each offset.
    for encoded in [
        "dTpodW50ZXIyL1p4KzkmcXUib3Rl",
        "dXg6aHVudGVyMi9aeCs5JnF1Im90ZQ==",
        "dXh5Omh1bnRlcjIvWngrOSZxdSJvdGU=",
    ] {
        let text = redactor().redact(encoded).into_owned();
        assert!(text.contains(REDACTED) && text.len() < REDACTED.len() + 10, "{text}");
    }
    assert_eq!(redactor().redact("a first line of it b"), "a [redacted] b");
    assert_eq!(redactor().redact("abc"), "abc");
}

#[test]
fn b80_a_piece_of_a_known_value_at_either_end_is_taken_out() {
    let r = redactor();
    for n in 8..LITERAL.len() {
        assert_eq!(r.redact(&format!("x {}", &LITERAL[..n])), "x [redacted]", "{n}");
        assert_eq!(
            r.redact(&format!("{} x", &LITERAL[LITERAL.len() - n..])),
            "[redacted] x",
            "{n}"
        );
    }
}

#[test]
fn b80_private_keys_are_taken_out_whole() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";
    let r = redactor();
    let key =
        format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n{body}=\n-----END RSA PRIVATE KEY-----");
    assert_eq!(r.redact(&format!("a\n{key}\nb")), "a\n[redacted]\nb");
    assert_eq!(r.redact(&format!("k={}!", key.replace('\n', "\\n"))), "k=[redacted]!");
    let cut = format!("a\n-----BEGIN PRIVATE KEY-----\n{body}\n{body}");
    assert_eq!(r.redact(&cut), "a\n[redacted]");
    let prose = "a -----BEGIN PRIVATE KEY----- starts it.\nNothing more, really.";
    assert_eq!(r.redact(prose), "a [redacted] starts it.\nNothing more, really.");
    let twice = format!("-----BEGIN PRIVATE KEY-----: -----BEGIN PRIVATE KEY-----{body}");
    assert!(!r.redact(&twice).contains(body));
}

#[test]
fn b80_debug_hides_the_values() {
    let shown = format!("{:?} {:?}", redactor(), RedactStream::new(&redactor()));
    assert!(!shown.contains("hunter2") && !shown.contains("first line"), "{shown}");
}

#[test]
fn b80_a_value_across_the_pieces_of_a_line_without_end_is_found() {
    let r = redactor();
    for shift in (0..40).step_by(3) {
        let before = LINE_BYTES_MAX - HOLD_BYTES - shift;
        let text = format!("{}{LITERAL}{}", "x".repeat(before), "y".repeat(LINE_BYTES_MAX));
        let safe = r.redact(&text);
        assert_eq!(safe.matches(REDACTED).count(), 1, "shift {shift}");
        assert!(!safe.contains("hunter2") && !safe.contains("qu\"ote"), "shift {shift}");
    }
}

fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9 =:é\n\"-]{0,12}",
        Just(LITERAL.to_owned()),
        Just("xoxb-1234567890-abcdef".to_owned()),
        Just("password=hunter2\n".to_owned()),
        Just("-----BEGIN PRIVATE KEY-----\n".to_owned()),
        Just("MIIEvQIBADANBgkqhkiG9w0BAQ\n".to_owned()),
        Just("-----END PRIVATE KEY-----\n".to_owned()),
        Just("https://u:pw12345@h/".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn b80_any_chunking_redacts_like_the_whole(
        parts in prop::collection::vec(fragment(), 0..10),
        cuts in prop::collection::vec(0..200usize, 0..12),
    ) {
        let text = parts.concat();
        let r = redactor();
        let whole = r.redact(&text).into_owned();
        let mut cuts: Vec<usize> =
            cuts.into_iter().map(|c| text.floor_char_boundary(c)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut stream = RedactStream::new(&r);
        let mut pieces = String::new();
        for pair in cuts.windows(2) {
            pieces.push_str(&stream.push(&text[pair[0]..pair[1]]));
        }
        pieces.push_str(&stream.finish());
        prop_assert_eq!(&pieces, &whole);
        prop_assert!(!whole.contains(LITERAL));
        prop_assert!(!whole.contains("xoxb-1234567890"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn b80_long_lines_redact_the_same_in_any_chunking(
        runs in prop::collection::vec((0..40_000usize, any::<bool>()), 1..6),
        step in 1_000..90_000usize,
    ) {
        let mut text = String::new();
        for (n, end) in runs {
            text.push_str(&"ab.".repeat(n / 3));
            text.push_str(LITERAL);
            if end {
                text.push('\n');
            }
        }
        let r = redactor();
        let whole = r.redact(&text).into_owned();
        let mut stream = RedactStream::new(&r);
        let mut pieces = String::new();
        for piece in text.as_bytes().chunks(step) {
            pieces.push_str(&stream.push(std::str::from_utf8(piece).unwrap()));
        }
        pieces.push_str(&stream.finish());
        prop_assert!(pieces == whole);
        prop_assert!(!whole.contains(LITERAL));
    }
}
