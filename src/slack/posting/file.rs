//! A post that is too long for messages: its beginning, and the whole as a file in the thread. Owns
//! the steps of an upload. Must not know what is in it.

use serde_json::{Value, json};

use super::{FILE, INTRO, Stop, Try, stop};
use crate::core::execution::PostSort;
use crate::core::limits::SLACK_MARK_CHARS_MAX;
use crate::ports::ChannelError;
use crate::slack::pace::Rank;
use crate::slack::text::Part;

const PREPARE: &str = "files.getUploadURLExternal";
const COMPLETE: &str = "files.completeUploadExternal";

impl Try<'_> {
    /// Answers whether that is done; where Slack takes no file, all of it goes as messages.
    pub(super) async fn send_as_file(
        &mut self,
        intro: &Part,
        whole: String,
    ) -> Result<bool, ChannelError> {
        // First what nobody sees, so that nothing speaks of a file that cannot come.
        let mut file = None;
        if !self.sent.contains_key(FILE) {
            // An earlier try went the other way.
            if self.sent.keys().any(|label| !label.starts_with(INTRO)) {
                return Ok(false);
            }
            match self.upload(whole).await {
                Ok(id) => file = Some(id),
                Err(error) => return self.without_file(error),
            }
        }
        self.send(INTRO, intro).await?;
        let Some(id) = file else { return Ok(true) };
        let body = json!({
            "files": [{ "id": id, "title": self.title() }],
            "channel_id": self.thread.channel(),
            "thread_ts": self.thread.root(),
        });
        match self.call(COMPLETE, Rank::Answer, &body).await {
            Ok(_) => {
                self.sent.insert(FILE.to_owned(), id);
                Ok(true)
            }
            Err(error) => self.without_file(error),
        }
    }

    async fn upload(&self, whole: String) -> Result<String, Stop> {
        let name = if self.post.sort == PostSort::Failure { "output.txt" } else { "answer.md" };
        let body = json!({ "filename": name, "length": whole.len() });
        let answer = self.call(PREPARE, Rank::Quiet, &body).await?;
        let word = |key: &str| answer.get(key).and_then(Value::as_str);
        let (Some(url), Some(id)) = (word("upload_url"), word("file_id")) else {
            let what = "Slack does not say where the file goes".to_owned();
            return Err(Stop::Over(ChannelError::Retry { what, after_ms: 0 }));
        };
        let upload = self.posting.web.upload(url, whole.into_bytes());
        // Until it is completed nobody sees it, so it may as well not be there.
        match self.in_time(PREPARE, upload).await.map_err(stop) {
            Err(Stop::Over(ChannelError::Unknown { what, after_ms })) => {
                Err(Stop::Over(ChannelError::Retry { what, after_ms }))
            }
            done => done.map(|()| id.to_owned()),
        }
    }

    fn without_file(&self, error: Stop) -> Result<bool, ChannelError> {
        match error {
            Stop::Refused(why) => {
                let item = &self.post.item;
                tracing::warn!(item.id = %item, why = ?why, "Slack takes no file: it is posted as \
                    messages instead");
                Ok(false)
            }
            Stop::Over(error) => Err(error),
        }
    }

    /// By this a file is known again: it has no other place for it.
    pub(super) fn title(&self) -> String {
        let title = format!("All of it ({})", self.post.item);
        title.chars().take(2 * SLACK_MARK_CHARS_MAX).collect()
    }
}
