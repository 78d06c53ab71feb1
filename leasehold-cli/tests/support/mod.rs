//! The real binary, on a store of the test's own.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long anything may take; only a failing test takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(in_time(condition), "in vain: {what}");
}

/// Whether `condition` holds in time.
#[expect(
    clippy::disallowed_methods,
    reason = "a test waits for other processes"
)]
pub(crate) fn in_time(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// How long `work` takes.
#[expect(clippy::disallowed_methods, reason = "a test measures other processes")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

/// A store, and a directory for the files of the test.
pub(crate) struct Place {
    dir: TempDir,
    server: Option<Server>,
}

impl Place {
    /// The locks of this machine, in a directory of the test's own.
    pub(crate) fn local() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir, server: None }
    }

    /// The locks of a server of the test's own.
    pub(crate) fn redis() -> Self {
        Self {
            server: Some(Server::start(&[])),
            ..Self::local()
        }
    }

    pub(crate) fn redis_with(options: &[&str]) -> Self {
        Self {
            server: Some(Server::start(options)),
            ..Self::local()
        }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("a server")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The content of a file, once the last line is whole.
    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.file(name);
        let mut content = String::new();
        eventually(&format!("a line in {name}"), || {
            content = fs::read_to_string(&path).unwrap_or_default();
            content.ends_with('\n')
        });
        content.trim().to_owned()
    }

    /// `leasehold` with these arguments. Commands that it runs stand in the test's directory.
    pub(crate) fn leasehold(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        self.settle(&mut command);
        command.args(words);
        command
    }

    /// Lets `command` find the store, and the binary under test as `$LEASEHOLD`.
    pub(crate) fn settle(&self, command: &mut Command) {
        command
            .current_dir(self.dir.path())
            .env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"))
            .env("LEASEHOLD_DIR", self.file("locks"))
            .env_remove("LEASEHOLD_URL")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(server) = &self.server {
            command.env("LEASEHOLD_URL", server.url());
        }
    }

    /// Runs `leasehold` to its end.
    pub(crate) fn done(&self, words: &[&str]) -> Done {
        self.start(words).done()
    }

    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running::spawn(&mut self.leasehold(words))
    }

    /// `leasehold run OPTIONS job -- sh -c SCRIPT`.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Running {
        let words = [&["run"], options, &["job", "--", "sh", "-c", script]].concat();
        self.start(&words)
    }

    pub(crate) fn is_free(&self, name: &str) -> bool {
        self.done(&["status", name]).code == 1
    }
}

/// A process that does not outlive the test.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(Some(command.spawn().expect("it starts")))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }

    pub(crate) fn pid(&mut self) -> String {
        self.child().id().to_string()
    }

    pub(crate) fn signal(&mut self, signal: &str) {
        let pid = self.pid();
        kill(signal, &pid);
    }

    /// Standard output, for a reader of its own.
    pub(crate) fn output(&mut self) -> std::process::ChildStdout {
        self.child().stdout.take().expect("a standard output")
    }

    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.child().stdin.as_mut().expect("a standard input");
        stdin.write_all(text.as_bytes()).expect("it listens");
        stdin.flush().expect("it listens");
    }

    pub(crate) fn done(mut self) -> Done {
        eventually("the end of a process", || {
            self.child().try_wait().expect("a child").is_some()
        });
        let child = self.0.take().expect("a child");
        child.wait_with_output().expect("its output").into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Sends a signal. By the shell's own `kill`: a small system has no program of that name.
pub(crate) fn kill(signal: &str, pid: &str) {
    let kill = ["-c", "kill -s \"$0\" \"$1\"", signal, pid];
    let status = Command::new("sh").args(kill).status();
    assert!(status.expect("sh runs").success(), "kill {signal} {pid}");
}

/// Whether a process lives; a zombie does not.
pub(crate) fn alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

/// A redis-server on a free port.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        // Another process may take the port before the server does, so it is tried again.
        let mut attempts = (0..5).filter_map(|_| Self::attempt(options));
        attempts.next().expect("a server on a free port")
    }

    fn attempt(options: &[&str]) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let binary = std::env::var("LEASEHOLD_REDIS_SERVER");
        let child = Command::new(binary.as_deref().unwrap_or("redis-server"))
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let mut server = Self { child, port };
        let mut ended = false;
        eventually("a server that listens", || {
            ended = server.child.try_wait().expect("a child").is_some();
            ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(server).filter(|_| !ended)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> String {
        self.port.to_string()
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, &self.child.id().to_string());
    }

    /// Sends one command, and gives the first bytes of the reply.
    pub(crate) fn command(&self, line: &str) -> String {
        use std::io::Read;
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("a server");
        socket
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("it listens");
        let mut reply = [0; 1024];
        let length = socket.read(&mut reply).expect("a reply");
        String::from_utf8_lossy(&reply[..length]).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
