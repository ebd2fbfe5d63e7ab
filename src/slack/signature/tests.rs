use super::*;

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
                    &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA\
                    &user_name=roadrunner&command=%2Fwebhook-collect&text=\
                    &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F\
                    397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
                    &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
const TIME: &[u8] = b"1531420618";
const RIGHT: &[u8] = b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
const NOW: Timestamp = Timestamp::from_ms(1_531_420_618_000);

fn judge(time: &[&[u8]], signature: &[&[u8]], now: Timestamp) -> Result<(), SignatureError> {
    let signed = Signed { time: time.to_vec(), signature: signature.to_vec() };
    check(&signed, BODY.as_bytes(), &SecretString::from(SECRET), now)
}

#[test]
fn the_example_that_slack_publishes_is_right() {
    assert_eq!(judge(&[TIME], &[RIGHT], NOW), Ok(()));
    assert_eq!(
        judge(&[TIME], &[RIGHT.to_ascii_uppercase().as_slice()], NOW),
        Err(SignatureError::Form)
    );
    let upper = [b"v0=".as_slice(), RIGHT[3..].to_ascii_uppercase().as_slice()].concat();
    assert_eq!(judge(&[TIME], &[&upper], NOW), Ok(()), "digits have no case");
}

#[test]
fn every_other_signature_is_refused() {
    let wrong = [b"v0=".as_slice(), &[b'0'; 64]].concat();
    let mut last = RIGHT.to_vec();
    last[66] ^= 1;
    for signature in [wrong, last] {
        assert_eq!(judge(&[TIME], &[&signature], NOW), Err(SignatureError::Wrong));
    }
    for signature in
        [&b""[..], b"v0=", b"v1=00", &RIGHT[3..], &RIGHT[..66], b"v0=zz", "v0=ä".as_bytes()]
    {
        assert_eq!(judge(&[TIME], &[signature], NOW), Err(SignatureError::Form));
    }
    let long = [RIGHT, b"00"].concat();
    assert_eq!(judge(&[TIME], &[&long], NOW), Err(SignatureError::Form));
}

#[test]
fn each_header_stands_there_once() {
    let none: &[&[u8]] = &[];
    for (time, signature) in
        [(none, none), (none, &[RIGHT][..]), (&[TIME][..], none), (&[TIME, TIME][..], &[RIGHT][..])]
    {
        assert_eq!(judge(time, signature, NOW), Err(SignatureError::Form));
    }
    assert_eq!(judge(&[TIME], &[RIGHT, RIGHT], NOW), Err(SignatureError::Form));
}

#[test]
fn a_signature_is_good_for_five_minutes_in_both_directions() {
    let at = |s: u64| Timestamp::from_ms(s * 1_000);
    for (now, fine) in [
        (at(1_531_420_618 - 300), true),
        (at(1_531_420_618 + 300), true),
        (at(1_531_420_618 - 301), false),
        (at(1_531_420_618 + 301), false),
    ] {
        assert_eq!(judge(&[TIME], &[RIGHT], now).is_ok(), fine, "{now:?}");
    }
    for time in
        [&b""[..], b"now", b"-1", b"1531420618.0", b" 1531420618", b"9999999999999", b"\xff"]
    {
        assert_eq!(judge(&[time], &[RIGHT], NOW), Err(SignatureError::Form));
    }
    assert_eq!(
        judge(&[b"999999999999"], &[RIGHT], NOW),
        Err(SignatureError::Time(998_468_579_381))
    );
}

#[test]
fn the_body_counts_byte_by_byte_and_an_empty_secret_opens_nothing() {
    let signed = || Signed { time: vec![TIME], signature: vec![RIGHT] };
    let changed = BODY.replace("roadrunner", "coyote");
    let secret = SecretString::from(SECRET);
    assert_eq!(check(&signed(), changed.as_bytes(), &secret, NOW), Err(SignatureError::Wrong));
    assert_eq!(check(&signed(), &[], &secret, NOW), Err(SignatureError::Wrong));
    let empty = SecretString::from("");
    assert_eq!(check(&signed(), BODY.as_bytes(), &empty, NOW), Err(SignatureError::Secret));
}
