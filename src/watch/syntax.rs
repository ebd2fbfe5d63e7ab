//! Checks that a script compiles, without running it: one warm Python process for all checks, and
//! a fresh one where that fails. Owns their protocol: a length in four bytes, then the source;
//! back come a length and JSON. Must not know what a script is for.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::spawn;
use crate::core::limits::SYNTAX_MS_MAX;
use crate::ports::{Clock, LaunchError, SyntaxFault};

/// Checks that may wait for the helper.
const QUEUE_MAX: usize = 64;
/// Longest answer of the helper; it keeps its messages far shorter.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Compiles what it is sent. Bytes, not text, so that Python treats them like a file.
const PROGRAM: &str = r#"
import json, sys, warnings
warnings.simplefilter("ignore")

def fault(source):
    try:
        compile(source, "watcher.py", "exec", dont_inherit=True)
    except SyntaxError as e:
        return e.lineno, e.msg
    except (MemoryError, RecursionError):
        return 0, "too deeply nested, or too large, for Python's compiler"
    except Exception as e:
        return 0, e

while len(head := sys.stdin.buffer.read(4)) == 4:
    found = fault(sys.stdin.buffer.read(int.from_bytes(head, "big")))
    if found is not None:
        line, message = found
        message = str(message)[:500].encode("utf-8", "replace").decode()
        found = {"line": max(line or 0, 0), "message": message}
    answer = json.dumps(found).encode()
    sys.stdout.buffer.write(len(answer).to_bytes(4, "big") + answer)
    sys.stdout.buffer.flush()
"#;

type Verdict = Result<Option<SyntaxFault>, LaunchError>;

struct Question {
    source: String,
    answer: oneshot::Sender<Verdict>,
}

/// Where checks are asked for.
#[derive(Debug, Clone)]
pub(super) struct Syntax {
    questions: mpsc::Sender<Question>,
}

impl Syntax {
    /// Starts the task; the helper starts with the first question.
    pub(super) fn start(
        python: PathBuf,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let (questions, mut asked) = mpsc::channel::<Question>(QUEUE_MAX);
        let mut checker = Checker { python, clock, helper: None };
        tasks.spawn(async move {
            while let Some(Some(question)) = stop.run_until_cancelled(asked.recv()).await {
                let verdict = checker.check(&question.source).await;
                let _asker_left = question.answer.send(verdict);
            }
        });
        Self { questions }
    }

    /// Compiles `source`.
    pub(super) async fn check(&self, source: &str) -> Verdict {
        let (answer, verdict) = oneshot::channel();
        let question = Question { source: source.to_owned(), answer };
        let ends = |what: &str| LaunchError { what: format!("its syntax is not checked: {what}") };
        self.questions.send(question).await.map_err(|_| ends("dogwatch is shutting down"))?;
        verdict.await.map_err(|_| ends("dogwatch is shutting down"))?
    }
}

/// Why a helper gave no answer.
#[derive(Debug)]
enum Trouble {
    /// It could not be started.
    Start(std::io::Error),
    /// It ended, or said nonsense.
    Died,
    /// It took too long.
    Slow,
}

struct Checker {
    python: PathBuf,
    clock: Arc<dyn Clock>,
    helper: Option<Helper>,
}

struct Helper {
    /// Killed when it is dropped.
    _process: Child,
    questions: ChildStdin,
    answers: ChildStdout,
}

impl Checker {
    async fn check(&mut self, source: &str) -> Verdict {
        if let Some(helper) = self.helper.take()
            && let Ok(verdict) = self.ask(helper, source).await
        {
            return Ok(verdict);
        }
        let asked = match self.fresh() {
            Ok(helper) => self.ask(helper, source).await,
            Err(trouble) => Err(trouble),
        };
        let what = match asked {
            Ok(verdict) => return Ok(verdict),
            Err(Trouble::Died) => {
                // A fresh one died of this very source.
                let message = "Python's compiler crashes on it; make it simpler".to_owned();
                return Ok(Some(SyntaxFault { line: 0, message }));
            }
            Err(Trouble::Slow) => format!("compiling it took more than {SYNTAX_MS_MAX} ms"),
            Err(Trouble::Start(e)) => {
                format!("{} does not start: {e}; set `watch.python`", self.python.display())
            }
        };
        Err(LaunchError { what })
    }

    fn fresh(&self) -> Result<Helper, Trouble> {
        let mut process = spawn::python(&self.python, PROGRAM).map_err(Trouble::Start)?;
        let questions = process.stdin.take().ok_or(Trouble::Died)?;
        let answers = process.stdout.take().ok_or(Trouble::Died)?;
        Ok(Helper { _process: process, questions, answers })
    }

    /// A helper that answered is kept for the next question, any other is dropped.
    async fn ask(
        &mut self,
        mut helper: Helper,
        source: &str,
    ) -> Result<Option<SyntaxFault>, Trouble> {
        let late = self.clock.sleep_until(self.clock.now().plus_ms(SYNTAX_MS_MAX));
        let verdict = tokio::select! {
            verdict = helper.ask(source) => verdict?,
            () = late => return Err(Trouble::Slow),
        };
        self.helper = Some(helper);
        Ok(verdict)
    }
}

impl Helper {
    async fn ask(&mut self, source: &str) -> Result<Option<SyntaxFault>, Trouble> {
        let length = u32::try_from(source.len()).map_err(|_| Trouble::Died)?;
        let mut answer = Vec::new();
        let mut exchange = async || {
            self.questions.write_u32(length).await?;
            self.questions.write_all(source.as_bytes()).await?;
            self.questions.flush().await?;
            let length = usize::try_from(self.answers.read_u32().await?).unwrap_or(usize::MAX);
            answer.resize(length.min(ANSWER_BYTES_MAX), 0);
            self.answers.read_exact(&mut answer).await
        };
        exchange().await.map_err(|_| Trouble::Died)?;
        serde_json::from_slice(&answer).map_err(|_| Trouble::Died)
    }
}
