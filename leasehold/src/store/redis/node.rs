//! The supervisor of one server: keeps one connection for commands up, and says when it is not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::backoff::Backoff;
use super::dial::{Connection, Endpoint};
use super::{error, script};
use crate::error::{Error, Refusal, Result};
use crate::model::Moment;
use crate::op::Operation;
use crate::op::record::WriteRecord;
use crate::store::{Clock, Event, Events, Introduction, observe};

/// So many silences in a row, and the connection is replaced.
const SILENCES: u32 = 2;
/// How many old connections are remembered, for cutting them off.
const REMEMBERED: usize = 256;

/// One server and the connection to it. Dropping it ends both.
#[derive(Debug)]
pub(super) struct Node {
    state: watch::Receiver<State>,
    peers: Arc<Peers>,
    _supervisor: JoinSet<()>,
}

#[derive(Clone, Debug)]
enum State {
    Up(Arc<Line>),
    /// Why there is no connection.
    Down(Error),
}

/// One connection for commands. Later lines have higher numbers, the first has 1.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: u64,
    server: Arc<str>,
    handle: MultiplexedConnection,
    driver: AbortHandle,
    ended: AtomicBool,
    silences: Mutex<Silences>,
}

/// Commands that stayed without an answer since the last answer.
#[derive(Debug)]
struct Silences {
    count: u32,
    /// Silences that began before the last one ended are that same silence.
    last: Moment,
}

/// How the server knows each line: client id and address, for `CLIENT KILL`.
#[derive(Debug, Default)]
struct Peers(Mutex<BTreeMap<u64, Peer>>);

#[derive(Clone, Debug)]
struct Peer {
    id: String,
    address: String,
}

impl Node {
    /// Dials once; from then on the connection is kept up by a task.
    pub(super) async fn connect(endpoint: Arc<Endpoint>, events: Arc<dyn Events>) -> Result<Self> {
        let peers = Arc::new(Peers::default());
        let (connection, peer) = endpoint.dial(None, greet).await?;
        observe::Connection::Commands.connected(&endpoint);
        let mut supervisor = Supervisor {
            endpoint,
            events,
            peers: Arc::clone(&peers),
            number: 0,
        };
        let (line, driver) = supervisor.line(connection, peer);
        let (sender, state) = watch::channel(State::Up(line));
        let mut tasks = JoinSet::new();
        tasks.spawn(supervisor.run(driver, sender));
        Ok(Self {
            state,
            peers,
            _supervisor: tasks,
        })
    }

    /// The connection, waited for until `until` unless waiting cannot help.
    pub(super) async fn line(&self, until: Moment) -> Result<Arc<Line>> {
        if let State::Up(line) = &*self.state.borrow()
            && line.is_usable()
        {
            return Ok(Arc::clone(line));
        }
        let mut state = self.state.clone();
        let decided = state.wait_for(|state| match state {
            State::Up(line) => line.is_usable(),
            State::Down(error) => !error.is_retryable(),
        });
        match Clock::Boot.limit(until, decided).await {
            Some(Ok(state)) => match &*state {
                State::Up(line) => Ok(Arc::clone(line)),
                State::Down(error) => Err(error.clone()),
            },
            Some(Err(_)) => Err(Error::Closed("the runtime that made it has ended")),
            None => match &*self.state.borrow() {
                State::Up(line) => Err(Error::unavailable(format!(
                    "the connection to {} was lost",
                    line.server
                ))),
                State::Down(error) => Err(error.clone()),
            },
        }
    }

    /// Ends an old line and all between it and the present one at the server as well, as far as
    /// the server lets us: what was repeated may be on any of them.
    pub(super) async fn cut(&self, oldest: u64, limit: Duration) {
        let until = Clock::Boot.now().after(limit);
        let Ok(line) = self.line(until).await else {
            return;
        };
        let mut kills = redis::pipe();
        for peer in self.peers.between(oldest, line.number) {
            // Client ids begin anew when a server restarts; the address tells its clients apart.
            let kill = kills.cmd("CLIENT").arg("KILL");
            kill.arg("ID").arg(peer.id).arg("ADDR").arg(peer.address);
        }
        if !kills.is_empty() {
            let _ = line.ask_all(&kills, until, limit).await;
        }
    }
}

impl Line {
    fn is_usable(&self) -> bool {
        !self.ended.load(Ordering::Acquire) && !self.driver.is_finished()
    }

    /// Ends the connection: commands in flight fail, and the supervisor dials again.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.driver.abort();
    }

    /// Sends one command. An error of the server is a reply here.
    pub(super) async fn ask(
        &self,
        command: &redis::Cmd,
        until: Moment,
        limit: Duration,
    ) -> Result<Value> {
        let mut handle = self.handle.clone();
        self.exchange(handle.send_packed_command(command), until, limit)
            .await
    }

    /// Sends several commands in one piece.
    pub(super) async fn ask_all(
        &self,
        commands: &redis::Pipeline,
        until: Moment,
        limit: Duration,
    ) -> Result<Vec<Value>> {
        let mut handle = self.handle.clone();
        let sent = handle.send_packed_commands(commands, 0, commands.len());
        self.exchange(sent, until, limit).await
    }

    /// Waits for a reply until `until`, but no longer than `limit`. After an error the command
    /// may have run.
    async fn exchange<T>(
        &self,
        sent: impl Future<Output = Result<T, RedisError>>,
        until: Moment,
        limit: Duration,
    ) -> Result<T> {
        let begun = Clock::Boot.now();
        let end = begun.after(limit);
        match Clock::Boot.limit(end.min(until), sent).await {
            Some(Ok(reply)) => {
                self.silences().count = 0;
                Ok(reply)
            }
            Some(Err(cause)) => {
                self.end();
                Err(error::broken(&self.server, cause))
            }
            None => {
                // A caller in a hurry says nothing about the server.
                if end <= until {
                    self.silent_since(begun);
                }
                Err(Error::Timeout(end.min(until).since(begun)))
            }
        }
    }

    fn silent_since(&self, begun: Moment) {
        let mut silences = self.silences();
        if begun >= silences.last {
            silences.count += 1;
            silences.last = Clock::Boot.now();
        }
        if silences.count >= SILENCES {
            drop(silences);
            observe::silent(&self.server);
            self.end();
        }
    }

    fn silences(&self) -> std::sync::MutexGuard<'_, Silences> {
        self.silences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers {
    fn between(&self, oldest: u64, present: u64) -> Vec<Peer> {
        let peers = self.lock();
        let old = oldest.min(present)..present;
        peers.range(old).map(|(_, peer)| peer.clone()).collect()
    }

    fn remember(&self, number: u64, peer: Peer) {
        let mut peers = self.lock();
        peers.insert(number, peer);
        if peers.len() > REMEMBERED {
            peers.pop_first();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Peer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the task that keeps the connection up knows.
struct Supervisor {
    endpoint: Arc<Endpoint>,
    events: Arc<dyn Events>,
    peers: Arc<Peers>,
    number: u64,
}

impl Supervisor {
    async fn run(mut self, mut driver: JoinSet<()>, state: watch::Sender<State>) {
        let mut backoff = Backoff::default();
        backoff.connected();
        loop {
            driver.join_next().await;
            observe::Connection::Commands.disconnected(&self.endpoint, "it ended");
            let lost = format!("the connection to {} was lost", self.endpoint);
            state.send_replace(State::Down(Error::unavailable(lost)));
            let mut told = false;
            let (connection, peer) = loop {
                backoff.pause().await;
                match self.endpoint.dial(None, greet).await {
                    Ok(dialled) => break dialled,
                    Err(error) => {
                        if !std::mem::replace(&mut told, true) {
                            observe::Connection::Commands.unreachable(&self.endpoint, &error);
                        }
                        state.send_replace(State::Down(error));
                    }
                }
            };
            backoff.connected();
            let line;
            (line, driver) = self.line(connection, peer);
            observe::Connection::Commands.reconnected(&self.endpoint);
            state.send_replace(State::Up(line));
            self.events.heard(Event::Reset);
        }
    }

    fn line(&mut self, connection: Connection, peer: Option<Peer>) -> (Arc<Line>, JoinSet<()>) {
        let Connection {
            handle,
            driver,
            abort,
        } = connection;
        self.number += 1;
        if let Some(peer) = peer {
            self.peers.remember(self.number, peer);
        }
        let line = Line {
            number: self.number,
            server: self.endpoint.to_string().into(),
            handle,
            driver: abort,
            ended: AtomicBool::new(false),
            silences: Mutex::new(Silences {
                count: 0,
                last: Clock::Boot.now(),
            }),
        };
        (Arc::new(line), driver)
    }
}

/// What is said first on a connection for commands, all in one piece.
async fn greet(endpoint: &Endpoint, handle: &mut MultiplexedConnection) -> Result<Option<Peer>> {
    let mut hello = redis::pipe();
    hello.cmd("ROLE");
    hello.cmd("CLIENT").arg("INFO");
    hello.cmd("CLIENT").arg("SETNAME").arg(&endpoint.name);
    // Where loading is refused, the first call of a script says why.
    script::load_all(&mut hello);
    let record = endpoint.introduction.record();
    if let Some(record) = &record {
        hello.add_command(script::call(record)?);
    }
    let replies = handle
        .send_packed_commands(&hello, 0, hello.len())
        .await
        .map_err(|cause| {
            Error::unavailable(format!("the connection broke in the handshake: {cause}"))
        })?;
    check_role(replies.first())?;
    if let (Some(_), Some(reply)) = (record, replies.last()) {
        introduced(&endpoint.introduction, reply.clone());
    }
    Ok(replies.get(1).and_then(peer))
}

/// Takes the answer to the record. A user without the rights for it has locks all the same.
fn introduced(introduction: &Introduction, reply: Value) {
    match script::raw(reply).and_then(WriteRecord::parse) {
        Ok(since) => introduction.written(since),
        Err(error) => tracing::debug!(%error, "no record of this client was written"),
    }
}

/// Only a master may answer: a replica's absence of a lock says nothing.
fn check_role(reply: Option<&Value>) -> Result<()> {
    let role = match reply {
        Some(Value::Array(items)) => items.first().map(text).unwrap_or_default(),
        Some(Value::ServerError(refused)) => {
            // Where the user may not ask, each script's first call finds out.
            return match error::judge(refused, "").error {
                Error::Refused(Refusal::Permission(_) | Refusal::ScriptsDisabled(_)) => Ok(()),
                other => Err(other),
            };
        }
        _ => String::new(),
    };
    match role.as_str() {
        "master" => Ok(()),
        "slave" => Err(Error::Refused(Refusal::ReadOnly(
            "the server is a replica".to_owned(),
        ))),
        other => Err(Error::protocol(format!(
            "the server says that its role is {other:?}"
        ))),
    }
}

/// How the server knows this connection. None where the user may not ask.
fn peer(reply: &Value) -> Option<Peer> {
    let info = text(reply);
    let field = |name: &str| {
        let mut fields = info
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='));
        let (_, value) = fields.find(|(key, _)| *key == name)?;
        Some(value.to_owned())
    };
    Some(Peer {
        id: field("id")?,
        address: field("addr")?,
    })
}

/// The text of a reply that is one.
pub(super) fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_tells_who_we_are() {
        let info = Value::VerbatimString {
            format: redis::VerbatimFormat::Text,
            text: "id=7 addr=127.0.0.1:5001 laddr=127.0.0.1:6379 fd=8 name=\n".to_owned(),
        };
        let peer = peer(&info).unwrap();
        assert_eq!(
            (peer.id.as_str(), peer.address.as_str()),
            ("7", "127.0.0.1:5001")
        );
        assert!(super::peer(&Value::Nil).is_none());
    }

    #[test]
    fn only_a_master_will_do() {
        let role = |word: &str| Value::Array(vec![Value::BulkString(word.into()), Value::Int(0)]);
        assert!(check_role(Some(&role("master"))).is_ok());
        let replica = check_role(Some(&role("slave"))).unwrap_err();
        assert!(matches!(replica, Error::Refused(Refusal::ReadOnly(_))));
        assert!(check_role(Some(&role("sentinel"))).is_err());
        assert!(check_role(None).is_err());
    }
}
