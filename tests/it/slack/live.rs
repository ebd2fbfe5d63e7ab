//! What people see of a turn while it runs.

use dogwatch::core::id::TurnNo;
use dogwatch::core::limits::{SLACK_STATUS_AGAIN_MS, SLACK_STATUS_MS};
use dogwatch::ports::Progress;
use pretty_assertions::assert_eq;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::support::fake_slack::Fault;

const SET: &str = "assistant.threads.setStatus";
const SESSION: &str = "agents.sessions.setStatus";

/// A stand whose statuses are shown until the test ends.
struct Shown {
    stand: Stand,
    ending: CancellationToken,
    tasks: TaskTracker,
}

impl Shown {
    async fn new() -> Self {
        let stand = Stand::new().await;
        let (ending, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(stand.posting.tell(ending.clone()));
        Self { stand, ending, tasks }
    }

    fn tell(&self, root: &str, progress: Progress) {
        self.stand.posting.progress(&session("C1", root), &address("C1", root), progress);
    }

    fn began(&self, root: &str) {
        let turn = TurnNo::default();
        self.tell(root, Progress::Began { turn, synthetic: false });
    }

    fn runs(&self, root: &str, name: &str) {
        self.tell(root, Progress::Tool { name: name.to_owned() });
    }

    async fn is(&self, root: &str, status: Option<&str>) {
        patiently(self.stand.slack.status_is("C1", root, status)).await;
    }

    async fn end(self) -> Stand {
        self.ending.cancel();
        self.tasks.close();
        patiently(self.tasks.wait()).await;
        self.stand
    }
}

#[tokio::test]
async fn slack_10_each_thread_has_its_own_status_and_it_ends_with_the_turn() {
    let shown = Shown::new().await;
    let (first, second) = (shown.stand.root.clone(), shown.stand.slack.root("C1"));
    shown.began(&first);
    shown.is(&first, Some("is thinking…")).await;
    shown.began(&second);
    pass(&shown.stand.clock, SLACK_STATUS_MS, shown.is(&second, Some("is thinking…"))).await;
    assert_eq!(shown.stand.slack.status("C1", &first).as_deref(), Some("is thinking…"));
    shown.tell(&first, Progress::Ended);
    pass(&shown.stand.clock, SLACK_STATUS_MS, shown.is(&first, None)).await;
    assert_eq!(shown.stand.slack.status("C1", &second).as_deref(), Some("is thinking…"));
    shown.tell(&second, Progress::Failed { what: "no".to_owned(), again_at: None });
    pass(&shown.stand.clock, SLACK_STATUS_MS, shown.is(&second, None)).await;
}

#[tokio::test]
async fn slack_10_an_end_of_the_bot_takes_every_status_away() {
    let shown = Shown::new().await;
    let root = shown.stand.root.clone();
    shown.began(&root);
    shown.is(&root, Some("is thinking…")).await;
    let stand = shown.end().await;
    assert_eq!(stand.slack.status("C1", &root), None);
}

#[tokio::test]
async fn slack_10_where_the_workspace_has_sessions_the_agent_works_until_its_turn_is_over() {
    let shown = Shown::new().await;
    let root = shown.stand.root.clone();
    let is = |status: &'static str| {
        let root = root.clone();
        shown.stand.slack.session_is("C1", root, Some(status))
    };
    shown.began(&root);
    patiently(is("processing")).await;
    // A message takes the line away, not that the agent works.
    shown.stand.post("in between").await.unwrap();
    for number in 0..10 {
        shown.runs(&root, &format!("tool_{number}"));
    }
    assert_eq!(shown.stand.slack.session("C1", &root).as_deref(), Some("processing"));
    shown.tell(&root, Progress::Ended);
    pass(&shown.stand.clock, SLACK_STATUS_MS, is("active")).await;
    assert_eq!(shown.stand.slack.count(SESSION), 2);
    // The end of the bot ends what it does.
    shown.began(&root);
    pass(&shown.stand.clock, SLACK_STATUS_MS, is("processing")).await;
    let slack = shown.end().await.slack;
    assert_eq!(slack.session("C1", &root).as_deref(), Some("active"));
}

#[tokio::test]
async fn where_it_has_none_that_is_asked_once_and_the_line_is_there_all_the_same() {
    let shown = Shown::new().await;
    let root = shown.stand.root.clone();
    shown.stand.slack.always(SESSION, Fault::Refuse("unknown_method"));
    for _ in 0..3 {
        shown.began(&root);
        let thinks = shown.is(&root, Some("is thinking…"));
        pass(&shown.stand.clock, SLACK_STATUS_MS, thinks).await;
        shown.tell(&root, Progress::Ended);
        pass(&shown.stand.clock, SLACK_STATUS_MS, shown.is(&root, None)).await;
    }
    assert_eq!(shown.stand.slack.count(SESSION), 1);
}

#[tokio::test]
async fn slack_11_a_long_tool_call_keeps_its_status() {
    let shown = Shown::new().await;
    let root = shown.stand.root.clone();
    shown.runs(&root, "watch__list");
    shown.is(&root, Some("runs watch__list…")).await;
    for count in 2..5 {
        let again = shown.stand.slack.called(SET, count);
        pass(&shown.stand.clock, SLACK_STATUS_AGAIN_MS, again).await;
    }
    assert_eq!(shown.stand.slack.status("C1", &root).as_deref(), Some("runs watch__list…"));
}

#[tokio::test]
async fn slack_22_a_storm_of_progress_is_two_calls_and_no_message() {
    let shown = Shown::new().await;
    let root = shown.stand.root.clone();
    shown.began(&root);
    shown.is(&root, Some("is thinking…")).await;
    for number in 0..1_000 {
        shown.tell(&root, Progress::Text("word ".to_owned()));
        shown.runs(&root, &format!("tool_{number}"));
    }
    let last = shown.is(&root, Some("runs tool_999…"));
    pass(&shown.stand.clock, SLACK_STATUS_MS, last).await;
    assert_eq!(shown.stand.slack.count(SET), 2);
    assert_eq!(shown.stand.slack.posted().len(), 0);
}

#[tokio::test]
async fn where_slack_shows_no_status_it_is_asked_once_and_answers_come_all_the_same() {
    for word in ["unknown_method", "missing_scope", "not_allowed"] {
        let shown = Shown::new().await;
        let root = shown.stand.root.clone();
        shown.stand.slack.always(SET, Fault::Refuse(word));
        shown.began(&root);
        patiently(shown.stand.slack.called(SET, 1)).await;
        shown.stand.post("the answer").await.unwrap();
        for number in 0..10 {
            shown.runs(&root, &format!("tool_{number}"));
            shown.stand.clock.advance(SLACK_STATUS_AGAIN_MS);
        }
        let stand = shown.end().await;
        assert_eq!(stand.slack.count(SET), 1);
        assert_eq!(stand.texts(), ["the answer"]);
    }
}

#[tokio::test]
async fn slack_21_an_answer_does_not_wait_for_statuses() {
    let shown = Shown::new().await;
    let root = shown.stand.root.clone();
    // The status hangs; what people wait for does not.
    shown.stand.slack.always(SET, Fault::Stall);
    shown.began(&root);
    patiently(shown.stand.slack.called(SET, 1)).await;
    shown.stand.post("the answer").await.unwrap();
    assert_eq!(shown.stand.texts(), ["the answer"]);
}
