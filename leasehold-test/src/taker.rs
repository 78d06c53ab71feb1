//! A process that takes a lock and can be stopped and killed.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a line of the process may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running lock-taker: see `src/bin/taker.rs`. Killed when dropped.
#[derive(Debug)]
pub struct Taker {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Taker {
    /// Starts it; `binary` is `env!("CARGO_BIN_EXE_taker")`, `options` go behind URL and name.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(binary: &str, url: &str, name: &str, options: &[&str]) -> Self {
        let mut child = Command::new(binary)
            .args([url, name])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the lock-taker can be started");
        let stdin = child.stdin.take().expect("its input is a pipe");
        let stdout = child.stdout.take().expect("its output is a pipe");
        let lines = BufReader::new(stdout).lines();
        Self {
            child,
            stdin,
            lines,
        }
    }

    /// Its next line.
    ///
    /// # Panics
    ///
    /// When none comes.
    pub async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.expect("the lock-taker says something in time");
        let line = line.expect("the lock-taker can be read");
        line.expect("the lock-taker goes on")
    }

    /// Waits until it has the lock; the identity of its hold.
    ///
    /// # Panics
    ///
    /// When it says something else.
    pub async fn held(&mut self) -> String {
        let line = self.line().await;
        let hold = line.strip_prefix("held ").map(str::to_owned);
        hold.unwrap_or_else(|| panic!("the lock-taker says {line:?}, not that it holds"))
    }

    /// Tells it to release.
    ///
    /// # Panics
    ///
    /// When it is gone.
    pub async fn tell_release(&mut self) {
        let told = self.stdin.write_all(b"release\n").await;
        told.expect("the lock-taker listens");
    }

    /// Tells it to release, and waits until it did.
    ///
    /// # Panics
    ///
    /// When it says something else.
    pub async fn release(&mut self) {
        self.tell_release().await;
        assert_eq!(self.line().await, "released");
    }

    /// Stops the process without ending it.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a stopped process go on.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When it cannot be killed.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("the lock-taker runs");
        let id = Pid::from_raw(i32::try_from(id).expect("a process id fits"));
        kill(id, signal).expect("a child can be signalled");
    }
}
