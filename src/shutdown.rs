//! Being asked to end. Owns the process's signals. Must not know what ends.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A token that is cancelled when this process is asked to end: by TERM, by HUP, and by INT where
/// no line editor reads `^C` itself.
pub(crate) fn on_signals(tasks: &TaskTracker) -> std::io::Result<CancellationToken> {
    let stopped = CancellationToken::new();
    let mut term = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = stopped.clone();
    tasks.spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            () = token.cancelled() => {}
        }
        token.cancel();
    });
    Ok(stopped)
}
