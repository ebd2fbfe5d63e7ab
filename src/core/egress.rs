//! What watchers may do in the network. Owns every decision about it: hosts and addresses, who may
//! reach what, what becomes of a request, how many there may be, and the words of refusals.
//! Must not know sockets, HTTP libraries or where a secret is kept.

mod access;
mod address;
mod budget;
mod denial;
mod host;
mod way;

pub use self::access::{
    Access, AccessError, CredentialName, CredentialNameError, Destination, Grant, Policy, TLS_PORT,
};
pub use self::address::{AddressError, AddressRule, Closed, judge as judge_address};
pub use self::budget::{Account, Asker, Budgets, Refusal, Ticket, Turn};
pub use self::denial::{Cap, Denial, Trouble};
pub use self::host::{Host, HostError, HostRule, PORTS_DEFAULT, split as split_authority};
pub use self::way::{Asked, Way, inward, inward_links, way};

#[cfg(test)]
mod tests;
