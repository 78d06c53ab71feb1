//! A real server on a free loopback port.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How long a command of a test's own may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a lost race for a port is run again.
const TRIES: u32 = 10;

/// A `redis-server` of one test: own port, own directory, nothing kept on disk unless asked.
///
/// The binary is that of `LEASEHOLD_REDIS_SERVER`, else `redis-server` from the `PATH`.
/// Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
    args: Vec<String>,
    dir: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When there is no server to start, or it does not answer.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further arguments, as on its command line.
    ///
    /// # Panics
    ///
    /// As [`Server::start`].
    pub async fn start_with(args: &[&str]) -> Self {
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        for _ in 0..TRIES {
            let dir = TempDir::new().expect("a temporary directory can be made");
            let port = free_port();
            let child = spawn(port, &args, dir.path());
            let args = args.clone();
            let mut server = Self {
                child,
                port,
                args,
                dir,
            };
            if server.ready().await {
                return server;
            }
        }
        panic!("no free port found for a server in {TRIES} tries");
    }

    /// The URL for a client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's own directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// Stops the process without ending it: connections stay, answers do not come.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills the process as a power cut would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same port, killing it first if it runs.
    ///
    /// # Panics
    ///
    /// When it does not answer, or another process took the port meanwhile.
    pub async fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.port, &self.args, self.dir.path());
        assert!(
            self.ready().await,
            "the server's port was taken during a restart:\n{}",
            self.log()
        );
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    ///
    /// When the server does not take it.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("the URL is well formed");
        // A machine that is busy with other tests must not fail this one.
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
            .expect("the server takes a connection")
    }

    /// Runs one command, on a connection of its own.
    ///
    /// # Panics
    ///
    /// When the command fails, or the reply is of another type.
    pub async fn query<T: FromRedisValue>(&self, command: &[&str]) -> T {
        ask(&mut self.connection().await, command).await
    }

    /// Every key but the records of clients, sorted.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"]).await;
        keys.retain(|key| !key.starts_with("leasehold:client:"));
        keys.sort();
        keys
    }

    /// How often a command was called since the server started.
    pub async fn calls(&self, command: &str) -> u64 {
        let info: String = self.query(&["INFO", "commandstats"]).await;
        let prefix = format!("cmdstat_{command}:calls=");
        let count = info.lines().find_map(|line| line.strip_prefix(&prefix));
        let digits = count.and_then(|rest| rest.split(',').next());
        digits.map_or(0, |digits| digits.parse().expect("a count is a number"))
    }

    /// Listens to one channel over a connection of its own.
    ///
    /// # Panics
    ///
    /// When the server does not take it.
    pub async fn listen(&self, channel: &str) -> Listener {
        let stream = TcpStream::connect(("127.0.0.1", self.port))
            .await
            .expect("the server takes a connection");
        let mut listener = Listener(BufReader::new(stream));
        let command = format!(
            "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{channel}\r\n",
            channel.len()
        );
        listener
            .0
            .write_all(command.as_bytes())
            .await
            .expect("the command is sent");
        let kind = listener.array().await;
        assert_eq!(kind, "subscribe");
        listener
    }

    fn signal(&self, signal: Signal) {
        kill(pid(&self.child), signal).expect("the server's process can be signalled");
    }

    /// Whether it answers; not so when the port was taken.
    async fn ready(&mut self) -> bool {
        for _ in 0..2_000 {
            if let Ok(Some(status)) = self.child.try_wait() {
                let log = self.log();
                assert!(
                    log.contains("Address already in use"),
                    "the server ended at once, {status}:\n{log}"
                );
                return false;
            }
            if self.answers().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the server does not answer:\n{}", self.log());
    }

    /// Whether this very process answers, not another one on the same port.
    async fn answers(&self) -> bool {
        let info = async {
            let client = redis::Client::open(self.url())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            let info: RedisResult<String> = redis::cmd("INFO")
                .arg("server")
                .query_async(&mut connection)
                .await;
            info
        };
        match tokio::time::timeout(Duration::from_secs(2), info).await {
            Ok(Ok(info)) => {
                let mine = format!("process_id:{}", self.child.id());
                info.lines().any(|line| line == mine)
            }
            Ok(Err(error)) => error.code() == Some("NOAUTH"),
            Err(_) => false,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill(pid(&self.child), Signal::SIGCONT);
        self.kill();
    }
}

/// Who hears what is published on one channel.
#[derive(Debug)]
pub struct Listener(BufReader<TcpStream>);

impl Listener {
    /// The next message.
    ///
    /// # Panics
    ///
    /// When none comes.
    pub async fn next(&mut self) -> String {
        let wait = tokio::time::timeout(Duration::from_secs(10), self.array());
        let kind = wait.await.expect("a message comes");
        assert_eq!(kind.split(' ').next(), Some("message"));
        kind.split_once(' ')
            .map(|(_, payload)| payload.to_owned())
            .expect("a message has a payload")
    }

    /// Reads an array of three: its first item, and its last unless that is a number.
    async fn array(&mut self) -> String {
        assert_eq!(self.line().await, "*3");
        let kind = self.item().await;
        self.item().await;
        let last = self.item().await;
        if kind == "subscribe" {
            return kind;
        }
        format!("{kind} {last}")
    }

    async fn item(&mut self) -> String {
        let head = self.line().await;
        if head.starts_with('$') {
            return self.line().await;
        }
        head
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).await;
        assert!(
            read.expect("the server can be read") > 0,
            "the server hung up"
        );
        line.trim_end().to_owned()
    }
}

/// Runs one command on a connection.
///
/// # Panics
///
/// When the command fails, or the reply is of another type.
pub async fn ask<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &[&str]) -> T {
    let mut cmd = redis::Cmd::new();
    for word in command {
        cmd.arg(word);
    }
    match cmd.query_async(connection).await {
        Ok(reply) => reply,
        Err(error) => panic!("{command:?} failed: {error}"),
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a process id fits"))
}

fn free_port() -> u16 {
    let probe = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port can be had");
    probe.local_addr().expect("a bound port is known").port()
}

fn spawn(port: u16, args: &[String], dir: &Path) -> Child {
    let binary = std::env::var("LEASEHOLD_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let port = port.to_string();
    let mut command = Command::new(&binary);
    command
        .args(["--port", &port, "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        // In full: some versions open it before they go to their directory.
        .arg("--logfile")
        .arg(dir.join("log"))
        .arg("--dir")
        .arg(dir)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => child,
        Err(error) => panic!(
            "tests need a Redis or Valkey server: {binary:?} cannot be started ({error}); \
             install redis-server, or name one in LEASEHOLD_REDIS_SERVER"
        ),
    }
}
