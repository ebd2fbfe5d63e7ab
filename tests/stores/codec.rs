//! Rows as bytes: what version 1 wrote is in `tests/golden/rows-v1.txt` and must be readable for
//! ever. A later version adds a file of its own and leaves this one as it is; until version 1 is
//! released, new kinds of rows and errands are added to it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use dogwatch::core::ledger::Row;
use dogwatch::store::codec::{VERSION, decode, encode};
use pretty_assertions::assert_eq;

use super::samples;

const ROWS_V1: &str = include_str!("../golden/rows-v1.txt");

/// A new kind of row does not compile until it stands here, and fails until it has a sample.
fn kind(row: &Row) -> &'static str {
    match row {
        Row::Head(_) => "head",
        Row::Inbox(_) => "inbox",
        Row::Live(_) => "live",
        Row::Recent(_) => "recent",
        Row::Tails(_) => "tails",
        Row::Summary(_) => "summary",
        Row::Arrival(_) => "arrival",
        Row::Turn(_) => "turn",
        Row::Entry(_) => "entry",
        Row::Execution(_) => "execution",
        Row::StartKey(_) => "start_key",
        Row::Holder(_) => "holder",
        Row::Dedupe(_) => "dedupe",
        Row::Chain(_) => "chain",
        Row::Item(_) => "item",
        Row::Beat(_) => "beat",
        Row::Installation(_) => "installation",
        Row::Invitations(_) => "invitations",
        Row::Places(_) => "places",
        Row::Place(_) => "place",
    }
}

const KINDS: usize = 20;

#[test]
fn today_s_code_reads_what_version_1_wrote() {
    let samples = samples::all();
    assert_eq!(ROWS_V1.lines().count(), samples.len());
    for (line, (name, row)) in ROWS_V1.lines().zip(samples) {
        let (golden, bytes) = line.split_once(' ').unwrap();
        assert_eq!(golden, name);
        assert_eq!(decode(bytes.as_bytes()), Ok(row), "{name}");
    }
}

#[test]
fn what_is_written_today_is_what_version_1_wrote() {
    // When this fails a row's shape was changed: raise VERSION and teach `decode` the older one.
    assert_eq!(VERSION, 1);
    let mut today = String::new();
    for (name, row) in samples::all() {
        let bytes = encode(&row).unwrap();
        writeln!(today, "{name} {}", std::str::from_utf8(&bytes).unwrap()).unwrap();
    }
    assert_eq!(today, ROWS_V1);
}

#[test]
fn every_kind_of_row_has_a_sample_and_says_its_kind_first() {
    let samples = samples::all();
    let kinds: BTreeSet<&str> = samples.iter().map(|(_, row)| kind(row)).collect();
    assert_eq!(kinds.len(), KINDS);
    for (name, row) in samples {
        let bytes = encode(&row).unwrap();
        let start = format!("{VERSION} {{\"{}\":", kind(&row));
        assert!(bytes.starts_with(start.as_bytes()), "{name}");
    }
}

#[test]
fn the_same_data_of_a_newer_version_is_refused() {
    for (name, row) in samples::all() {
        let bytes = encode(&row).unwrap();
        let newer = [format!("{}", VERSION + 1).as_bytes(), &bytes[1..]].concat();
        let words = decode(&newer).unwrap_err().to_string();
        assert!(words.contains("version 2") && words.contains("up to 1"), "{name}: {words}");
    }
}

#[test]
fn a_field_that_is_not_known_is_ignored() {
    let Row::Summary(summary) =
        decode(br#"1 {"summary":{"upto":7,"text":"x","new":[1]}}"#).unwrap()
    else {
        panic!("another kind");
    };
    assert_eq!((summary.upto, summary.text.as_str()), (7, "x"));
}
