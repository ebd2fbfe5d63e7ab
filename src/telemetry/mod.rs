//! Logs and metrics. Owns the subscriber, the form of lines and where they go; every line passes
//! the redactor before it leaves the process. Must not know what is logged.

use std::path::PathBuf;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::core::redact::Redactor;

mod lines;
pub mod metrics;

use lines::{Lines, Target};

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Pretty,
    /// One JSON object a line; fields keep their dotted names.
    Json,
}

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// Beside the program's answer.
    Stderr,
    /// A file, which is made with its directory; at
    /// [`crate::core::limits::LOG_FILE_BYTES_MAX`] it is set aside as `FILE.1`.
    File(PathBuf),
}

/// What the log is made from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How lines look.
    pub format: Format,
    /// Which lines, in the syntax of `RUST_LOG`.
    pub filter: String,
    /// Where they go.
    pub sink: Sink,
    /// Colours; only for [`Format::Pretty`].
    pub color: bool,
    /// Takes secrets out of every line.
    pub redactor: Redactor,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Not in the syntax of `RUST_LOG`.
    #[error("the log filter '{filter}' cannot be read: {what}; write for example 'info'")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong.
        what: String,
    },
    /// It cannot be opened.
    #[error("the log file {} cannot be opened: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody was faster.
    #[error("the log is set up already")]
    Twice,
}

/// Keeps the log open. Dropped last, it writes what is left.
#[derive(Debug)]
pub struct Guard {
    lines: Lines,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.lines.flush();
    }
}

/// Sets up the log of this process, once, before anything is logged.
pub fn init(settings: Settings) -> Result<Guard, TelemetryError> {
    let (dispatch, guard) = build(settings)?;
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| TelemetryError::Twice)?;
    Ok(guard)
}

fn build(settings: Settings) -> Result<(Dispatch, Guard), TelemetryError> {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(&settings.filter)
        .map_err(|error| TelemetryError::Filter {
            filter: settings.filter.clone(),
            what: error.to_string(),
        })?;
    let target = match settings.sink {
        Sink::Stderr => Target::Stderr,
        Sink::File(file) => {
            Target::open(&file).map_err(|source| TelemetryError::File { file, source })?
        }
    };
    let lines = Lines::new(target, settings.redactor);
    let guard = Guard { lines: lines.clone() };
    Ok((dispatch(settings.format, settings.color, filter, lines), guard))
}

fn dispatch<W>(format: Format, color: bool, filter: EnvFilter, lines: W) -> Dispatch
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    let subscriber: Box<dyn Subscriber + Send + Sync> = match format {
        Format::Pretty => Box::new(builder.with_ansi(color).finish()),
        Format::Json => Box::new(builder.json().flatten_event(true).finish()),
    };
    Dispatch::new(subscriber)
}

#[cfg(test)]
mod tests;
