//! What watchers may do in the network. Owns every decision about it: hosts and addresses, who may
//! reach what, what becomes of a request, how many there may be, and the words of refusals.
//! Must not know sockets, HTTP libraries or where a secret is kept.

mod access;
mod address;
mod host;

pub use self::access::{
    Access, AccessError, CredentialName, CredentialNameError, Destination, Grant, Policy, TLS_PORT,
};
pub use self::address::{AddressError, AddressRule, Closed, judge as judge_address};
pub use self::host::{Host, HostError, HostRule, PORTS_DEFAULT, split as split_authority};
