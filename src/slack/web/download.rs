//! The bytes of a file in Slack. Owns to whom the bot's token is shown for them, and how much is
//! read. Must not know which file may be read where.

use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};

use super::{CallError, Web, after_ms, is_here, unsent};
use crate::core::limits::SLACK_FILE_STEPS_MAX;

/// How an error calls it.
const DOWNLOAD: &str = "the download of a file";

/// What came.
pub(in crate::slack) struct Download {
    /// All of it.
    pub(in crate::slack) bytes: Vec<u8>,
    /// It says that it is a web page: where a token may not read a file, Slack sends its sign-in.
    pub(in crate::slack) is_page: bool,
}

/// Why nothing came that can be used. None of these holds a URL, a token or a body.
pub(in crate::slack) enum DownloadError {
    /// It is not where Slack keeps files, or one is sent to somewhere else: the token was not shown
    /// there.
    Elsewhere,
    /// There is more than that.
    Large(u64),
    /// Not allowed.
    Denied,
    /// There is none.
    Gone,
    /// It did not come.
    Call(CallError),
}

impl From<CallError> for DownloadError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Web {
    /// Reads what is at `url`, at most `bytes_max` of it. The token is shown to Slack alone.
    pub(in crate::slack) async fn download(
        &self,
        token: &SecretString,
        url: &str,
        bytes_max: usize,
    ) -> Result<Download, DownloadError> {
        let asked = Box::pin(async {
            Ok(match self.fetched(token, url).await {
                Ok(response) => taken(response, bytes_max).await,
                Err(error) => Err(error),
            })
        });
        self.in_time(DOWNLOAD, asked).await?
    }

    async fn fetched(&self, token: &SecretString, url: &str) -> Result<Response, DownloadError> {
        let mut url = Url::parse(url).map_err(|_| DownloadError::Elsewhere)?;
        for _step in 0..=SLACK_FILE_STEPS_MAX {
            if !self.is_slack(&url) {
                return Err(DownloadError::Elsewhere);
            }
            let request = self.http.get(url.clone()).bearer_auth(token.expose_secret());
            let response = request.send().await.map_err(|error| unsent(DOWNLOAD, &error))?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let to = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let to = to.and_then(|to| url.join(to).ok());
            url = to.ok_or(DownloadError::Elsewhere)?;
        }
        // Slack sends whoever may not read in a circle, by its sign-in.
        Err(DownloadError::Denied)
    }

    /// Is it a place of Slack's, or where the tests play it?
    fn is_slack(&self, url: &Url) -> bool {
        let plain = url.username().is_empty() && url.password().is_none();
        let https = url.scheme() == "https" && url.port_or_known_default() == Some(443);
        let slack = url.host_str().is_some_and(|host| {
            let below = host.strip_suffix(".slack.com");
            host == "slack.com" || below.is_some_and(|below| !below.is_empty())
        });
        let same = is_here(&self.api)
            && url.scheme() == "http"
            && (url.host_str(), url.port()) == (self.api.host_str(), self.api.port());
        plain && (https && slack || same)
    }
}

async fn taken(mut response: Response, bytes_max: usize) -> Result<Download, DownloadError> {
    let status = response.status();
    if status == StatusCode::TOO_MANY_REQUESTS {
        let after_ms = after_ms(&response);
        return Err(CallError::Limited { method: DOWNLOAD, after_ms }.into());
    }
    match status.as_u16() {
        200..=299 => {}
        401 | 403 => return Err(DownloadError::Denied),
        404 | 410 => return Err(DownloadError::Gone),
        status => {
            let what = format!("HTTP {status}");
            return Err(CallError::Unknown { method: DOWNLOAD, what }.into());
        }
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_page = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"));
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= bytes_max => {
                bytes.extend_from_slice(&chunk);
            }
            Ok(Some(chunk)) => {
                return Err(DownloadError::Large((bytes.len() + chunk.len()) as u64));
            }
            Ok(None) => return Ok(Download { bytes, is_page }),
            Err(_) => {
                let what = "it broke off".to_owned();
                return Err(CallError::Unknown { method: DOWNLOAD, what }.into());
            }
        }
    }
}
