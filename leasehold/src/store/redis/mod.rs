//! The Redis store: the only place that knows a server.
//!
//! One connection carries every command, pipelined; a second one, made when somebody first waits,
//! carries the announcements. Both are dialled and kept up here. The crate `redis` only encodes,
//! decodes and matches replies to commands: no command is ever sent twice by itself.

mod backoff;
mod desk;
mod dial;
mod error;
mod node;
mod pubsub;
mod script;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;

use super::{Clock, Event, Events, Flight, Introduction, Outcome};
use crate::error::{Error, Result};
use crate::model::Moment;
use crate::op::Operation;
use crate::planted::{Fault, planted};

use dial::Endpoint;
use error::Verdict;
use node::{Line, Node};
use pubsub::PubSub;

pub(crate) use tls::Trust;

/// How many keys the server looks at in one step of a walk.
const STEP: u32 = 500;

/// What a client brings along to one server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// For DNS, connect and handshake together.
    pub(crate) connect_timeout: Duration,
    /// For the answer to one command.
    pub(crate) response_timeout: Duration,
    /// For TLS.
    pub(crate) trust: Trust,
    /// How the connections are called.
    pub(crate) name: String,
    pub(crate) introduction: Arc<Introduction>,
}

/// One client's connections to one server. Dropping it closes them.
#[derive(Debug)]
pub(crate) struct RedisStore {
    node: Node,
    pubsub: PubSub,
    response_timeout: Duration,
}

/// Tells the engine and the subscriptions of a new connection for commands.
struct Both {
    events: Arc<dyn Events>,
    moved: watch::Sender<()>,
}

impl Events for Both {
    fn heard(&self, event: Event<'_>) {
        if matches!(event, Event::Reset) {
            self.moved.send_replace(());
        }
        self.events.heard(event);
    }
}

impl RedisStore {
    /// Connects, or says why not.
    pub(crate) async fn connect(
        url: &str,
        settings: Settings,
        events: Arc<dyn Events>,
    ) -> Result<Self> {
        let response_timeout = settings.response_timeout;
        let endpoint = Arc::new(Endpoint::parse(url, &settings)?);
        let (tell, moved) = watch::channel(());
        let both = Both {
            events: Arc::clone(&events),
            moved: tell,
        };
        let node = Node::connect(Arc::clone(&endpoint), Arc::new(both)).await?;
        let pubsub = PubSub::start(endpoint, response_timeout, moved, events);
        Ok(Self {
            node,
            pubsub,
            response_timeout,
        })
    }

    pub(crate) async fn run<O: Operation>(
        &self,
        op: &O,
        flight: &Flight,
        until: Moment,
    ) -> Outcome<O::Reply> {
        let (line, call) = match self.prepare(op, until).await {
            Ok(ready) => ready,
            Err(error) => return Outcome::Refused(error),
        };
        let earlier = flight.unanswered();
        flight.sent(line.number);
        let verdict = match self.evaluate::<O>(&line, call, until).await {
            Err(error) => return Outcome::Unknown(error),
            Ok(Ok(reply)) => {
                return match script::raw(reply).and_then(O::parse) {
                    Ok(reply) => {
                        // Replies come in order, so this one also settles what was sent before.
                        flight.answered(line.number);
                        Outcome::Done(reply)
                    }
                    // Asking again would bring the same reply, so it counts as refused. But what
                    // it means is not known, so the flight stays open for whoever cleans up.
                    Err(error) => Outcome::Refused(error),
                };
            }
            Ok(Err(verdict)) => verdict,
        };
        if verdict.redial {
            line.end();
        }
        // A refusal says nothing about what was sent before it and may have run.
        if verdict.untouched && earlier.is_none() {
            flight.answered(line.number);
        }
        Outcome::Refused(verdict.error)
    }

    /// The connection and the command, or why nothing is sent.
    async fn prepare<O: Operation>(&self, op: &O, until: Moment) -> Result<(Arc<Line>, Cmd)> {
        let line = self.node.line(until).await?;
        if Clock::Boot.now() >= until {
            return Err(Error::unavailable("no time was left to ask the server"));
        }
        Ok((line, script::call(op)?))
    }

    /// Calls the script, and loads it first where the server does not have it.
    ///
    /// An outer error leaves open whether the script ran.
    async fn evaluate<O: Operation>(
        &self,
        line: &Line,
        call: Cmd,
        until: Moment,
    ) -> Result<Result<Value, Verdict>> {
        let mut reply = line.ask(&call, until, self.response_timeout).await?;
        if script::is_missing(&reply) && planted(Fault::NoscriptIsBusy) {
            return Ok(Ok(Value::Int(30_000)));
        }
        if script::is_missing(&reply) {
            let both = script::load_and_call::<O>(&call);
            let mut replies = line
                .ask_all(&both, until, self.response_timeout)
                .await?
                .into_iter();
            let loaded = replies.next().unwrap_or_default();
            reply = replies.next().unwrap_or_default();
            if script::is_missing(&reply) {
                return Ok(Err(script::load_failed(&loaded)));
            }
        }
        Ok(match reply {
            Value::ServerError(refused) => Err(error::judge(&refused, &script::first_key(&call))),
            reply => Ok(reply),
        })
    }

    pub(crate) fn listen(&self, channel: &str) {
        self.pubsub.listen(channel);
    }

    pub(crate) fn unlisten(&self, channel: &str) {
        self.pubsub.unlisten(channel);
    }

    /// Names of hashes that match `pattern`; one may come twice.
    pub(crate) async fn names(&self, pattern: &str, until: Moment) -> Result<Vec<String>> {
        if !pattern.contains(['*', '?']) {
            return Ok(vec![pattern.to_owned()]);
        }
        let line = self.node.line(until).await?;
        let wide = server_pattern(pattern);
        let (mut cursor, mut names) = ("0".to_owned(), Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&wide);
            scan.arg("TYPE").arg("hash").arg("COUNT").arg(STEP);
            let reply = line.ask(&scan, until, self.response_timeout).await?;
            let (next, keys) = page(reply)?;
            names.extend(keys.into_iter().filter(|key| super::glob(pattern, key)));
            if next == "0" {
                return Ok(names);
            }
            cursor = next;
        }
    }

    /// Kills the connection that was `line`, so that nothing sent over it can run any more.
    pub(crate) async fn cut(&self, line: u64) {
        self.node.cut(line, self.response_timeout).await;
    }
}

/// A server's pattern that matches at least what ours matches. A server's `?` is one byte, ours
/// is one character, and brackets are no wildcards here.
fn server_pattern(pattern: &str) -> String {
    let mut wide = String::with_capacity(pattern.len());
    for character in pattern.chars() {
        match character {
            '?' => wide.push('*'),
            '[' | ']' | '\\' => wide.extend(['\\', character]),
            other => wide.push(other),
        }
    }
    wide
}

/// One step of a walk over the keys: where to go on, and what was found.
fn page(reply: Value) -> Result<(String, Vec<String>)> {
    let items = match reply {
        Value::Array(items) => items,
        Value::ServerError(refused) => return Err(error::judge(&refused, "").error),
        other => return Err(Error::protocol(format!("SCAN replied {other:?}"))),
    };
    let [cursor, Value::Array(keys)] = items.as_slice() else {
        return Err(Error::protocol("SCAN did not reply a cursor and keys"));
    };
    // A key that is no text is no lock of ours.
    let name = |key: &Value| match key {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    Ok((node::text(cursor), keys.iter().filter_map(name).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_star_and_question_mark_are_wild() {
        assert_eq!(server_pattern(r"a[b]\*?c"), r"a\[b\]\\**c");
    }
}
