//! The supervisor of the subscriptions: one connection for the channels that are listened to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::desk::{Desk, Order, Standing};
use super::dial::{Connection, Endpoint};
use super::error;
use super::node::text;
use crate::error::Result;
use crate::model::Moment;
use crate::store::{Clock, Events, observe};

/// So many commands are out at a time, so that many channels cost few round trips.
const ABREAST: usize = 64;
/// After this much silence the server is asked whether it is there.
const BEAT: Duration = Duration::from_secs(1);
/// How long a channel that was refused is left alone.
const REFUSED: Duration = Duration::from_secs(5);

/// What this client listens to. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct PubSub {
    orders: UnboundedSender<Order>,
    _supervisor: JoinSet<()>,
}

impl PubSub {
    /// Starts the task. It connects when something is first listened to.
    ///
    /// It connects anew whenever `moved` changes: then the commands go over a new connection, and
    /// that may be to another server.
    pub(super) fn start(
        endpoint: Arc<Endpoint>,
        limit: Duration,
        moved: watch::Receiver<()>,
        events: Arc<dyn Events>,
    ) -> Self {
        let (sender, orders) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            endpoint,
            limit,
            moved,
            orders,
            desk: Desk::new(events),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(supervisor.run());
        Self {
            orders: sender,
            _supervisor: tasks,
        }
    }

    pub(super) fn listen(&self, channel: &str) {
        let _ = self.orders.send(Order::Listen(channel.to_owned()));
    }

    pub(super) fn unlisten(&self, channel: &str) {
        let _ = self.orders.send(Order::Unlisten(channel.to_owned()));
    }
}

/// One connection for subscriptions, while it lasts.
struct Session {
    handle: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
    out: JoinSet<Answer>,
    limit: Duration,
    /// When the server was last heard.
    heard: Moment,
    /// The number of the last heartbeat, and whether it is out.
    beat: (u64, bool),
    refused: HashSet<String>,
    retry: Moment,
    warned: bool,
    _driver: JoinSet<()>,
}

/// What came of a command; none if nothing came in time.
struct Answer {
    to: Question,
    reply: Option<Result<Value, RedisError>>,
}

#[derive(Debug)]
enum Question {
    Subscribe(String),
    Unsubscribe(String),
    Beat(String),
}

impl Session {
    fn new(connection: Connection, pushes: UnboundedReceiver<PushInfo>, limit: Duration) -> Self {
        Self {
            handle: connection.handle,
            pushes,
            out: JoinSet::new(),
            limit,
            heard: Clock::Boot.now(),
            beat: (0, false),
            refused: HashSet::new(),
            retry: Moment::NEVER,
            warned: false,
            _driver: connection.driver,
        }
    }

    fn ask(&mut self, command: Cmd, to: Question) {
        let mut handle = self.handle.clone();
        let end = Clock::Boot.now().after(self.limit);
        self.out.spawn(async move {
            let sent = handle.send_packed_command(&command);
            let reply = Clock::Boot.limit(end, sent).await;
            Answer { to, reply }
        });
    }

    /// Moves as many channels as may be moved now.
    fn advance(&mut self, desk: &mut Desk) {
        while self.out.len() < ABREAST {
            let Some((name, subscribe)) = desk.next() else {
                return;
            };
            let verb = if subscribe {
                "SUBSCRIBE"
            } else {
                "UNSUBSCRIBE"
            };
            let mut command = redis::cmd(verb);
            command.arg(&name);
            let question = if subscribe {
                Question::Subscribe(name)
            } else {
                Question::Unsubscribe(name)
            };
            self.ask(command, question);
        }
    }

    /// When something is to be done although nothing is heard.
    fn due(&self) -> Moment {
        let beat = if self.beat.1 {
            Moment::NEVER
        } else {
            self.heard.after(BEAT)
        };
        beat.min(self.retry)
    }

    fn timer(&mut self, desk: &mut Desk) {
        let now = Clock::Boot.now();
        if now >= self.retry {
            self.retry = Moment::NEVER;
            desk.retry(self.refused.drain());
        }
        if !self.beat.1 && now >= self.heard.after(BEAT) {
            self.beat = (self.beat.0 + 1, true);
            let nonce = format!("leasehold-{}", self.beat.0);
            let mut ping = redis::cmd("PING");
            ping.arg(&nonce);
            self.ask(ping, Question::Beat(nonce));
        }
    }

    /// Takes an answer. An error says why the connection is of no more use.
    fn answered(&mut self, answer: Answer, desk: &mut Desk) -> Result<(), String> {
        let reply = match answer.reply {
            Some(Ok(reply)) => reply,
            Some(Err(cause)) => return Err(cause.to_string()),
            None => return Err("the server is silent".to_owned()),
        };
        self.heard = Clock::Boot.now();
        if let (Value::ServerError(refused), Question::Subscribe(name)) = (&reply, &answer.to) {
            self.refuse(name, refused);
            desk.refused(name);
            return Ok(());
        }
        match (&answer.to, confirmed(&reply)) {
            (Question::Subscribe(name), Some((PushKind::Subscribe, on))) if *name == on => {
                desk.stands(name, Standing::On);
            }
            (Question::Unsubscribe(name), Some((PushKind::Unsubscribe, off))) if *name == off => {
                desk.stands(name, Standing::Off);
            }
            (Question::Beat(nonce), None) if *nonce == text(&reply) => self.beat.1 = false,
            // A server that refuses is there: the user lacks the right, or a script is slow.
            (Question::Beat(_), None) if matches!(reply, Value::ServerError(_)) => {
                self.beat.1 = false;
            }
            (question, _) => return Err(format!("{question:?} was answered {reply:?}")),
        }
        Ok(())
    }

    fn refuse(&mut self, name: &str, refused: &redis::ServerError) {
        if !std::mem::replace(&mut self.warned, true) {
            let words = error::words(refused);
            tracing::warn!(
                channel = name,
                words,
                "cannot subscribe, so waiters look by themselves"
            );
        }
        self.refused.insert(name.to_owned());
        self.retry = self.retry.min(Clock::Boot.now().after(REFUSED));
    }
}

/// Which channel a confirmation is about, and of what.
fn confirmed(reply: &Value) -> Option<(PushKind, String)> {
    match reply {
        Value::Push { kind, data } => Some((kind.clone(), data.first().map(text)?)),
        _ => None,
    }
}

struct Supervisor {
    endpoint: Arc<Endpoint>,
    limit: Duration,
    moved: watch::Receiver<()>,
    orders: UnboundedReceiver<Order>,
    desk: Desk,
}

impl Supervisor {
    /// Runs until nobody can give orders any more.
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut again = false;
        loop {
            while self.desk.is_idle() {
                let Some(order) = self.orders.recv().await else {
                    return;
                };
                self.desk.take(order);
            }
            let Some(mut session) = self.connect(&mut backoff, again).await else {
                return;
            };
            again = true;
            let Err(reason) = self.serve(&mut session).await else {
                return;
            };
            observe::Connection::Announcements.disconnected(&self.endpoint, &reason);
            drop(session);
            self.desk.lost();
        }
    }

    /// Connects, however long it takes. None when nobody can give orders any more.
    async fn connect(&mut self, backoff: &mut Backoff, again: bool) -> Option<Session> {
        let Self {
            endpoint,
            limit,
            moved,
            orders,
            desk,
        } = self;
        let dialling = async {
            if again {
                backoff.pause().await;
            }
            let mut told = false;
            loop {
                let (sender, pushes) = mpsc::unbounded_channel();
                moved.mark_unchanged();
                match endpoint.dial(Some(sender), greet).await {
                    Ok((connection, ())) => {
                        backoff.connected();
                        return Session::new(connection, pushes, *limit);
                    }
                    Err(error) if !std::mem::replace(&mut told, true) => {
                        observe::Connection::Announcements.unreachable(endpoint, &error);
                    }
                    Err(_) => {}
                }
                backoff.pause().await;
            }
        };
        tokio::pin!(dialling);
        loop {
            tokio::select! {
                session = &mut dialling => {
                    match again {
                        true => observe::Connection::Announcements.reconnected(endpoint),
                        false => observe::Connection::Announcements.connected(endpoint),
                    }
                    return Some(session);
                }
                order = orders.recv() => desk.take(order?),
            }
        }
    }

    /// Serves one connection. The error says why it ended; without one, the orders ended.
    async fn serve(&mut self, session: &mut Session) -> Result<(), String> {
        let Self {
            moved,
            orders,
            desk,
            ..
        } = self;
        loop {
            session.advance(desk);
            let due = session.due();
            tokio::select! {
                Ok(()) = moved.changed() => {
                    return Err("the commands go over a new connection".to_owned());
                }
                push = session.pushes.recv() => match push {
                    Some(push) => {
                        session.heard = Clock::Boot.now();
                        hear(&push, desk)?;
                    }
                    None => return Err("it was closed".to_owned()),
                },
                order = orders.recv() => match order {
                    Some(order) => desk.take(order),
                    None => return Ok(()),
                },
                Some(answer) = session.out.join_next() => match answer {
                    Ok(answer) => session.answered(answer, desk)?,
                    Err(failed) => return Err(failed.to_string()),
                },
                () = Clock::Boot.sleep_until(due), if !desk.is_idle() => {
                    session.timer(desk);
                }
            }
        }
    }
}

/// Takes what the server sent without being asked. Confirmations arrive as answers, too.
fn hear(push: &PushInfo, desk: &Desk) -> Result<(), String> {
    match push.kind {
        PushKind::Message => {
            if let Some(channel) = push.data.first() {
                desk.message(&text(channel));
            }
            Ok(())
        }
        PushKind::Disconnection => Err("the server closed it".to_owned()),
        _ => Ok(()),
    }
}

/// Gives the connection a name for operators, where the user may.
async fn greet(endpoint: &Endpoint, handle: &mut MultiplexedConnection) -> Result<()> {
    let mut name = redis::cmd("CLIENT");
    name.arg("SETNAME").arg(&endpoint.name);
    match handle.send_packed_command(&name).await {
        Ok(_) => Ok(()),
        Err(cause) => Err(crate::error::Error::unavailable(format!(
            "the connection broke in the handshake: {cause}"
        ))),
    }
}
