//! The app's own tab: who opens it is shown it, and what is pressed there is carried out as
//! anywhere else. Owns which words a press is answered with. Must not know how the tab looks.

use super::{Answer, Reception, Reply, invalid, lock};
use crate::core::id::PressId;
use crate::ports::{Command, DeskError};
use crate::slack::hear::{HomePress, Visit};
use crate::slack::order::{self, Order};
use crate::slack::plain::escaped;

impl Reception {
    /// Somebody looks at it.
    pub(super) async fn visit(&self, visit: Visit) -> (Reply, Option<Answer>) {
        let Visit { visitor, press } = visit;
        if let Some(reply) = self.closed(&visitor.installation).await {
            return (reply, None);
        }
        let Some(press) = press else {
            return (Reply::TAKEN, Some(Answer::Show(visitor, None)));
        };
        let cell = lock(&self.commands).cell(&press.id);
        let mut said = None;
        let done = cell
            .get_or_try_init(|| async {
                said = Some(self.pressed_at_home(&press).await?);
                Ok::<(), DeskError>(())
            })
            .await;
        if let Err(error) = done {
            // Slack sends no press again: the person has to.
            said = Some(order::refused(&error));
        }
        (Reply::TAKEN, said.map(|said| Answer::Show(visitor, Some(order::bounded(&said)))))
    }

    async fn pressed_at_home(&self, press: &HomePress) -> Result<String, DeskError> {
        let HomePress { order, id, at } = press;
        let (Order::Cancel(execution), Some(at)) = (order, at) else {
            let Order::Wrong(what) = order else { return Ok(order::NO_THREAD.to_owned()) };
            return Ok(escaped(what));
        };
        let session = at.thread.session().map_err(|error| invalid(&error))?;
        let press = PressId::new(format!("slack/{id}")).map_err(|error| invalid(&error))?;
        let command = Command::Cancel { execution: execution.clone(), press };
        let done = self.reach.desk.command(&session, &at.by, command).await?;
        Ok(order::done_at_home(order, &done))
    }
}
