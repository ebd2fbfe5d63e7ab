//! The operations of the ledger, one by one: every refusal, every repeat, every bound, and the
//! cases of delivery that others got wrong.

// The attribute tells the lints that all of it is test code.
#[cfg(test)]
mod ledger {
    mod bench;
    mod bounds;
    mod delivery;
    mod early;
    mod installations;
    mod open;
    mod owners;
    mod people;
    mod refusals;
    mod repeats;
    mod surface;
}
