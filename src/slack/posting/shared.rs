//! Files that people share. Owns which of them may be read in a thread: those that were shared in
//! that very thread, whatever id the model gives. Must not know what their text is for.

use serde_json::{Value, json};

use super::Posting;
use crate::core::execution::Address;
use crate::core::id::FileId;
use crate::core::limits::FILE_BYTES_MAX;
use crate::ports::{FileError, FileText};
use crate::slack::pace::{Pass, Rank};
use crate::slack::place::{self, Thread};
use crate::slack::verdict;
use crate::slack::web::{CallError, Download, DownloadError};

const INFO: &str = "files.info";
/// What the bot needs for it.
const SCOPE: &str = "files:read";
/// Shown of its type.
const KIND_CHARS_MAX: usize = 100;

impl Posting {
    /// A text file that was shared in the thread of this address.
    pub(super) async fn read_shared(
        &self,
        address: &Address,
        id: &FileId,
    ) -> Result<FileText, FileError> {
        let thread = Thread::of(address).map_err(|_| FileError::Unknown)?;
        if !place::is_word(id.as_str()) {
            return Err(FileError::Unknown);
        }
        let answer = self.file_info(&thread, id).await?;
        let file = answer.get("file").unwrap_or(&Value::Null);
        if file.get("id").and_then(Value::as_str) != Some(id.as_str()) || !is_in(file, &thread) {
            return Err(FileError::Unknown);
        }
        let kind = kind(file)?;
        let size = file.get("size").and_then(Value::as_u64);
        if let Some(bytes) = size.filter(|bytes| *bytes > FILE_BYTES_MAX as u64) {
            return Err(FileError::Large { bytes, max: FILE_BYTES_MAX });
        }
        let word = |key: &str| file.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
        let url = word("url_private_download").or_else(|| word("url_private"));
        let token = self.keyring.token(thread.installation()).await;
        let token = token.map_err(|error| FileError::Away { what: error.to_string() })?;
        let got = self.web.download(&token, url.ok_or(FileError::Gone)?, FILE_BYTES_MAX).await;
        let Download { bytes, is_page } = got.map_err(not_downloaded)?;
        let as_long = size.is_none_or(|size| size == bytes.len() as u64);
        if is_page && !(kind == "text/html" && as_long) {
            return Err(forbidden());
        }
        let bytes_count = bytes.len() as u64;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let text = text.ok_or_else(|| FileError::NotText { kind: kind.clone() })?;
        let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        let name = word("name").or_else(|| word("title")).unwrap_or("without a name").to_owned();
        Ok(FileText { name, kind, bytes: bytes_count, text })
    }

    async fn file_info(&self, thread: &Thread, id: &FileId) -> Result<Value, FileError> {
        let away = |what: String| FileError::Away { what };
        let whereto = (INFO, thread.channel());
        let now = self.clock.now();
        if let Pass::Wait(at) = self.pace().ask(now, whereto, Rank::Quiet) {
            return Err(away(format!("Slack limits {INFO} for {} ms", at.since_ms(now))));
        }
        let token = self.keyring.token(thread.installation()).await;
        let token = token.map_err(|error| away(error.to_string()))?;
        let answer = self.web.call(&token, INFO, &json!({ "file": id.as_str() })).await;
        answer.map_err(|error| match &error {
            CallError::Refused { error: word, needed, .. } => match word.as_str() {
                "file_deleted" => FileError::Gone,
                "missing_scope" => forbidden(),
                // Slack would tell apart what is elsewhere and what is nowhere.
                "file_not_found" | "access_denied" | "not_in_channel" | "channel_not_found"
                | "not_visible" => FileError::Unknown,
                word => match verdict::of(INFO, word, needed.as_deref()) {
                    verdict::Verdict::Never(what)
                    | verdict::Verdict::Mend(what)
                    | verdict::Verdict::Smaller(what) => FileError::Forbidden { what },
                },
            },
            CallError::Limited { after_ms, .. } => {
                self.pace().limited(self.clock.now(), whereto, *after_ms);
                away(error.to_string())
            }
            CallError::Unreached { .. } | CallError::Unknown { .. } => away(error.to_string()),
        })
    }
}

fn forbidden() -> FileError {
    let what = format!("the app has no scope {SCOPE}: add it and install the app again");
    FileError::Forbidden { what }
}

fn not_downloaded(error: DownloadError) -> FileError {
    match error {
        DownloadError::Elsewhere => FileError::Elsewhere,
        DownloadError::Large(bytes) => FileError::Large { bytes, max: FILE_BYTES_MAX },
        DownloadError::Denied => forbidden(),
        DownloadError::Gone => FileError::Gone,
        DownloadError::Call(error) => FileError::Away { what: error.to_string() },
    }
}

/// Was it shared in the thread? The bot may see every file of every channel that it is in; a
/// guessed id must not carry one of them here.
fn is_in(file: &Value, thread: &Thread) -> bool {
    let shares = ["/shares/public", "/shares/private"].map(|all| file.pointer(all));
    let shares = shares.into_iter().flatten().filter_map(Value::as_object).flatten();
    let shares: Vec<_> = shares.collect();
    if !shares.is_empty() {
        let here = shares.into_iter().filter(|(channel, _)| *channel == thread.channel());
        return here.filter_map(|(_, all)| all.as_array()).flatten().any(|share| {
            let word = |key: &str| share.get(key).and_then(Value::as_str);
            // A message without a thread begins its own.
            word("thread_ts").or_else(|| word("ts")) == Some(thread.root())
        });
    }
    // Slack does not always say by which message; then the channel has to do.
    ["channels", "groups", "ims"].iter().any(|key| {
        let channels = file.get(key).and_then(Value::as_array);
        channels.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(thread.channel())))
    })
}

/// Its type, unless that says that it is no text or that it is not here.
fn kind(file: &Value) -> Result<String, FileError> {
    let word = |key: &str| file.get(key).and_then(Value::as_str).unwrap_or_default();
    match word("mode") {
        "tombstone" | "hidden_by_limit" => return Err(FileError::Gone),
        "external" => return Err(FileError::Elsewhere),
        _ => {}
    }
    if file.get("is_external").and_then(Value::as_bool) == Some(true) {
        return Err(FileError::Elsewhere);
    }
    let kind = match (word("mimetype"), word("filetype")) {
        ("", "") => "of an unknown type",
        ("", kind) | (kind, _) => kind,
    };
    let kind: String = kind.to_ascii_lowercase().chars().take(KIND_CHARS_MAX).collect();
    // What is left is looked at: many texts come without a type of theirs.
    let pictures = kind.starts_with("image/") && kind != "image/svg+xml";
    let others = ["audio/", "video/", "font/", "application/pdf", "application/zip"];
    if pictures || others.iter().any(|other| kind.starts_with(other)) {
        return Err(FileError::NotText { kind });
    }
    Ok(kind)
}
