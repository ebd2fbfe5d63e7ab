//! A watcher's message while it runs: its last line, and that its end stays whatever comes late.

use std::sync::Arc;

use dogwatch::core::id::ExecutionId;
use dogwatch::ports::{Clock, Launcher};
use dogwatch::slack::watching::Watching;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{address, session};
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::Reply;
use crate::support::fake_slack::{FakeSlack, Fault, Message};
use crate::support::process::said;
use crate::support::wire::trigger;

/// A bot with one watcher that has said `up`, and ends once `off` is read.
struct Stand {
    bot: Bot,
    slack: Arc<FakeSlack>,
    root: String,
    off: String,
}

async fn stand() -> Stand {
    let slack = Arc::new(FakeSlack::start().await);
    let bot = Bot::with(Setup { slack: Some(Arc::clone(&slack)), ..Setup::default() }).await;
    let (root, off) = watcher(&bot, &slack, "C1").await;
    bot.llm.will(Reply::text("It is done."));
    Stand { bot, slack, root, off }
}

/// A watcher in a new thread of this channel: the thread's root, and what it reads in the end.
async fn watcher(bot: &Bot, slack: &FakeSlack, channel: &str) -> (String, String) {
    let root = slack.root(channel);
    let (on, off) = (bot.fifo(&format!("on-{channel}")), bot.fifo(&format!("off-{channel}")));
    let script = format!(
        "print('up', flush=True)\nopen({on:?}, 'w').close()\nopen({off:?}, 'w').close()\nprint('down')"
    );
    bot.llm.will(trigger("deploy", &script, 600));
    bot.llm.will(Reply::text("I watch it."));
    let place = (&session(channel, &root), address(channel, &root));
    bot.deliver_at(place, "watch it", "watch it").await.unwrap();
    said(&on).await;
    // What was printed is seen a moment later.
    let (of, id) = (session(channel, &root), ExecutionId::new("auto-notify-depl-0001").unwrap());
    let seen = async {
        while bot.launcher_now().glance(&of, &id).await.is_none_or(|it| it.stdout.is_empty()) {
            crate::support::process::pause().await;
        }
    };
    bot.wait("its output", seen).await;
    bot.wait("two posts", slack.until(channel, &root, |all| all.len() == 2)).await;
    (root, off)
}

impl Stand {
    /// Begins to look, as a process does at its start: nobody tells of what runs already.
    fn look(&self, tasks: &TaskTracker, ending: &CancellationToken) {
        let clock: Arc<dyn Clock> = Arc::new(self.bot.clock.clone());
        let posting = Arc::new(self.slack.posting(Arc::clone(&clock)));
        let desk = Arc::new(self.bot.desk());
        tasks.spawn(Watching::new(desk, posting, clock).run(ending.clone()));
    }

    /// Waits until the watcher's message is like that.
    async fn card(&self, like: impl Fn(&Message) -> bool) {
        // The answer may stand before it.
        let is = |all: &[Message]| all.iter().any(&like);
        self.bot.wait("the card", self.slack.until("C1", &self.root, is)).await;
    }
}

fn says_up(message: &Message) -> bool {
    let shown = message.blocks.to_string();
    shown.contains("› up") && shown.contains("button")
}

fn is_over(message: &Message) -> bool {
    message.text.contains("completed") && !message.blocks.to_string().contains("button")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_line_of_a_watcher_is_shown_also_by_the_next_process() {
    let stand = stand().await;
    let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
    stand.look(&tasks, &ending);
    stand.card(says_up).await;
    // The same line is not drawn twice.
    let drawn = stand.slack.count("chat.update");
    stand.bot.pass(30_000).await;
    assert_eq!(stand.slack.count("chat.update"), drawn);
    said(&stand.off).await;
    stand.card(is_over).await;
    ending.cancel();
    tasks.close();
    stand.bot.wait("the end", tasks.wait()).await;
    stand.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drawing_that_comes_after_the_end_does_not_stay() {
    let stand = stand().await;
    let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
    let gate = CancellationToken::new();
    stand.slack.will("chat.update", Fault::Held(gate.clone()));
    stand.look(&tasks, &ending);
    stand.bot.wait("a drawing", stand.slack.called("chat.update", 1)).await;
    said(&stand.off).await;
    // Time stands, or the drawing would be given up.
    stand.card(is_over).await;
    let drawn = stand.slack.count("chat.update");
    gate.cancel();
    // It says "runs" for a moment, and then what is true.
    stand.bot.wait("a mend", stand.slack.called("chat.update", drawn + 1)).await;
    stand.card(is_over).await;
    ending.cancel();
    tasks.close();
    stand.bot.wait("the end", tasks.wait()).await;
    stand.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drawing_of_which_nobody_heard_does_not_stay_either() {
    let stand = stand().await;
    let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
    let gate = CancellationToken::new();
    stand.slack.will("chat.update", Fault::Held(gate.clone()));
    stand.look(&tasks, &ending);
    stand.bot.wait("a drawing", stand.slack.called("chat.update", 1)).await;
    said(&stand.off).await;
    stand.card(is_over).await;
    // It is given up; what it asked for is done all the same, later.
    stand.bot.clock.jump(10_000);
    stand.bot.wait("a mend", stand.slack.called("chat.update", 3)).await;
    gate.cancel();
    stand.card(is_over).await;
    let mended = stand.slack.count("chat.update");
    stand.bot.clock.jump(10_000);
    stand.bot.wait("one more", stand.slack.called("chat.update", mended + 1)).await;
    stand.card(is_over).await;
    ending.cancel();
    tasks.close();
    stand.bot.wait("the end", tasks.wait()).await;
    stand.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_call_for_one_message_holds_up_no_other() {
    let slack = Arc::new(FakeSlack::start().await);
    let bot = Bot::with(Setup { slack: Some(Arc::clone(&slack)), ..Setup::default() }).await;
    let (root, off) = watcher(&bot, &slack, "C1").await;
    let (other, other_off) = watcher(&bot, &slack, "C2").await;
    let stand = Stand { bot, slack, root, off };
    let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
    let gate = CancellationToken::new();
    stand.slack.will("chat.update", Fault::Held(gate.clone()));
    stand.look(&tasks, &ending);
    // Time stands: nothing is given up.
    stand.bot.wait("both", stand.slack.called("chat.update", 2)).await;
    let up =
        |channel: &str, root: &str| stand.slack.thread(channel, root).first().is_some_and(says_up);
    let one = stand.slack.until_any(|| up("C1", &stand.root) || up("C2", &other));
    stand.bot.wait("one of them", one).await;
    gate.cancel();
    let all = stand.slack.until_any(|| up("C1", &stand.root) && up("C2", &other));
    stand.bot.wait("both of them", all).await;
    ending.cancel();
    tasks.close();
    stand.bot.wait("the end", tasks.wait()).await;
    for _ in 0..2 {
        stand.bot.llm.will(Reply::text("It is done."));
    }
    said(&stand.off).await;
    said(&other_off).await;
    stand.bot.finish().await;
}
