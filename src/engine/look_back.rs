//! What was said at a place before the agent was called there. Owns when it is given up. Must not
//! know what the turn does with it.

use super::{Engine, lanes, log};
use crate::core::earlier::{self, Earlier, Said};
use crate::core::execution::Address;
use crate::core::id::{EntryNo, Nonce, SessionId};
use crate::core::limits::EARLIER_MS_MAX;
use crate::core::transcript::Entry;
use crate::core::turn::Input;

/// Reads it for a turn whose log begins with these entries: what was said, or that nobody can say
/// so in time.
pub(super) async fn read(
    engine: &Engine,
    (session, address): (&SessionId, &Address),
    own: &[(EntryNo, Entry)],
) -> Input {
    let Some(channel) = engine.channel(&address.surface) else {
        return Input::Earlier(None);
    };
    let clock = &engine.ports.clock;
    let began = log::began(engine, session, own).await;
    let nonce = Nonce::new(lanes::nonce(engine));
    let (Ok(Some(before)), Ok(nonce)) = (began, nonce) else { return Input::Earlier(None) };
    let earlier = tokio::select! {
        earlier = channel.earlier(address, before) => earlier,
        () = clock.sleep_until(clock.now().plus_ms(EARLIER_MS_MAX)) => {
            let unread = Some("it takes too long".to_owned());
            Earlier { unread, ..Earlier::default() }
        }
    };
    if let Some(why) = &earlier.unread {
        tracing::info!(session.id = %session, why = %why,
            "what was said before the agent was called is not known whole");
    }
    let redact = |text: &str| engine.ports.redactor.redact(text).into_owned();
    let said = earlier.said.into_iter();
    let said = said.map(|said| Said { text: redact(&said.text), ..said }).collect();
    Input::Earlier(earlier::notice(&nonce, &Earlier { said, ..earlier }))
}
