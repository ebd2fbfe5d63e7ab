//! What Slack's refusals mean for a post. Owns which of its words can be mended, by whom, and how
//! that is said to a person. Must not know calls.

/// What follows from a refusal. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It will never be possible.
    Never(String),
    /// An operator can mend it.
    Mend(String),
    /// It may be possible in another form: smaller, and as plain text.
    Smaller(String),
}

/// What Slack's word means; `needed` is the scope that is missing.
pub(super) fn of(method: &'static str, error: &str, needed: Option<&str>) -> Verdict {
    let said = |what: &str| format!("{what} (Slack refused {method}: {error})");
    if error.starts_with("restricted_action") {
        return Verdict::Never(said(if error.ends_with("thread_locked") {
            "the thread is locked: nobody can answer in it"
        } else {
            "this workspace does not let the bot post here"
        }));
    }
    let never = match error {
        "not_in_channel" => "the bot is not in the channel: /invite it, then ask again",
        "channel_not_found" => "the channel is gone, or the bot cannot see it: /invite it",
        "is_archived" => "the channel is archived",
        "cannot_reply_to_message"
        | "thread_not_found"
        | "invalid_thread_ts"
        | "message_not_found" => {
            "the message that the thread hangs on is gone, or cannot be answered"
        }
        "edit_window_closed" | "cant_update_message" | "block_mismatch" => {
            "the message cannot be changed any more"
        }
        "thread_locked" => "the thread is locked: nobody can answer in it",
        "user_not_found" | "user_disabled" | "user_is_bot" | "cannot_dm_bot" => {
            "the person cannot be reached any more"
        }
        _ => "",
    };
    if !never.is_empty() {
        return Verdict::Never(said(never));
    }
    if let Some(scope) = needed {
        let what = format!("the app has no scope {scope}: add it and install the app again");
        return Verdict::Mend(said(&what));
    }
    match error {
        "invalid_auth"
        | "not_authed"
        | "token_revoked"
        | "token_expired"
        | "account_inactive"
        | "org_login_required"
        | "not_allowed_token_type" => Verdict::Mend(said(
            "the bot's token is not valid any more: install the app again; where [slack] bot_token \
             names the token, put the new one there",
        )),
        "msg_too_long"
        | "msg_blocks_too_long"
        | "msg_blocks_too_many"
        | "invalid_blocks"
        | "invalid_blocks_format"
        | "invalid_arguments"
        | "invalid_arg_name"
        | "invalid_array_arg"
        | "markdown_text_conflict"
        | "no_text"
        | "metadata_too_large"
        | "invalid_metadata_format"
        | "invalid_metadata_schema" => {
            Verdict::Smaller(said("Slack does not take the message as it is"))
        }
        _ => Verdict::Mend(said("Slack gave a reason that dogwatch does not know")),
    }
}

/// Is it this thread in which nothing can be said or shown, and not the bot that may not? A word
/// about a `recipient` is about one person.
pub(super) fn is_of_thread(error: &str) -> bool {
    let recipient = error.contains("recipient");
    !recipient && (error.contains("channel") || error.contains("thread") || error == "is_archived")
}

/// Does this word say that nothing can be done with this token, or just now? Then it says nothing
/// of what was asked for.
pub(super) fn is_of_now(error: &str) -> bool {
    matches!(
        error,
        "invalid_auth"
            | "not_authed"
            | "token_revoked"
            | "token_expired"
            | "account_inactive"
            | "org_login_required"
            | "internal_error"
            | "fatal_error"
            | "service_unavailable"
            | "request_timeout"
            | "team_added_to_org"
    )
}

#[cfg(test)]
mod tests;
