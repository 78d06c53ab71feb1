//! From a URL to a connection: look-up, connect, socket options, log-in, under one limit.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use redis::{PushInfo, RedisConnectionInfo};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::error;
use crate::error::{Error, Result};
use crate::model::Moment;
use crate::store::Clock;

/// A silent connection is probed after this long.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// The pause between two probes.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(3);
/// So many probes without an answer end the connection.
const KEEPALIVE_PROBES: u32 = 3;
/// Sent bytes that the other host does not acknowledge for this long end the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);
/// How many commands may wait for the socket before their senders do.
const QUEUE: usize = 1024;

/// Where a server is and how to log in. Shows no password.
#[derive(Clone)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
    login: RedisConnectionInfo,
    limit: Duration,
}

/// One connection. Its task ends with the connection; dropping the task ends the connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) handle: MultiplexedConnection,
    pub(super) driver: JoinSet<()>,
    /// Ends the task.
    pub(super) abort: AbortHandle,
}

impl Endpoint {
    /// Reads a URL. The URL may hold a password, so nothing of it is repeated in an error.
    pub(super) fn parse(url: &str, limit: Duration) -> Result<Self> {
        // What follows would be taken for a host and a port, and be shown as such.
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        if front.contains('#') || query.contains(['#', '@']) {
            return Err(Error::config(
                "the URL cannot be used: in a user name or password, write # as %23 and ? as %3F",
            ));
        }
        let info = url
            .into_connection_info()
            .map_err(|bad| Error::config(description(&bad)))?;
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err(Error::config("the URL names no server that TCP reaches"));
        };
        let mut login = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        if login.username().is_some() && login.password().is_none() {
            // A user that needs no password still has to be named in the handshake.
            login = login.set_password("");
        }
        if login.db() < 0 {
            return Err(Error::config("the database number is negative"));
        }
        Ok(Self {
            host: host.clone(),
            port: *port,
            login,
            limit,
        })
    }

    /// Connects and logs in, then lets `greet` say whatever else has to be said first.
    pub(super) async fn dial<T>(
        &self,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
        greet: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T>,
    ) -> Result<(Connection, T)> {
        let end = Clock::Boot.now().after(self.limit);
        let set_up = async {
            let mut connection = self.open(pushes, end).await?;
            let greeting = greet(&mut connection.handle).await?;
            Ok((connection, greeting))
        };
        Clock::Boot.limit(end, set_up).await.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "cannot connect to {self} within {:?}",
                self.limit
            )))
        })
    }

    async fn open(
        &self,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
        end: Moment,
    ) -> Result<Connection> {
        let unreachable = |cause| error::unreachable(&self.to_string(), cause);
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let addresses: Vec<_> = found.map_err(unreachable)?.collect();
        let stream = connect(&addresses, end).await.map_err(unreachable)?;
        set_options(&stream).map_err(unreachable)?;
        // Every command has a limit of its own, on a clock that counts suspend.
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        if let Some(pushes) = pushes {
            config = config.set_push_sender(pushes);
        }
        let (handle, task) = MultiplexedConnection::new_with_config(&self.login, stream, config)
            .await
            .map_err(|refused| error::refused_connection(refused, &self.to_string()))?;
        let mut driver = JoinSet::new();
        let abort = driver.spawn(task);
        Ok(Connection {
            handle,
            driver,
            abort,
        })
    }
}

/// Tries the addresses of a host in turn, each for its share of the time until `end`: one that
/// never answers, as IPv6 behind many a firewall, must not hide the others.
async fn connect(addresses: &[SocketAddr], end: Moment) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let now = Clock::Boot.now();
        let share = end.since(now) / u32::try_from(left).unwrap_or(u32::MAX);
        let tried = Clock::Boot.limit(now.after(share), TcpStream::connect(address));
        match tried.await {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = error,
            None => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_PAUSE)
            .with_retries(KEEPALIVE_PROBES),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

/// What is wrong with a URL, in the parser's fixed words; what follows them may quote the URL.
fn description(bad: &redis::RedisError) -> String {
    let text = bad.to_string();
    let fixed = text.split(" - ").next().unwrap_or_default();
    format!("the URL cannot be used: {fixed}")
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_url_gives_server_user_password_and_database() {
        let endpoint = Endpoint::parse("redis://ann:s%40cret@[::1]:7000/3", SECOND).unwrap();
        assert_eq!(endpoint.to_string(), "[::1]:7000");
        assert_eq!(endpoint.login.username(), Some("ann"));
        assert_eq!(endpoint.login.password(), Some("s@cret"));
        assert_eq!(endpoint.login.db(), 3);
        assert!(!format!("{endpoint:?}").contains("cret"));
    }

    /// A listener that takes no more connections, nor refuses them.
    fn mute() -> (socket2::Socket, Vec<std::net::TcpStream>) {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let wait = Duration::from_millis(100);
        let next = || std::net::TcpStream::connect_timeout(&address, wait).ok();
        let queued = std::iter::from_fn(next).collect();
        (socket, queued)
    }

    #[tokio::test]
    async fn an_address_that_never_answers_does_not_hide_the_next() {
        let (mute, _queued) = mute();
        let mute = mute.local_addr().unwrap().as_socket().unwrap();
        let good = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let good = good.local_addr().unwrap();
        let soon = || Clock::Boot.now().after(Duration::from_millis(400));
        let stream = connect(&[mute, good], soon()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        let error = connect(&[mute], soon()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let none = connect(&[], soon()).await.unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_bad_url_is_not_repeated() {
        for bad in [
            "redis://ann:hunter2@host:port/",
            "redis://ann:hunter2@host/hunter2",
            "redis://:hunter2@/",
            "redis://ann:hunter2@host/-1",
            "redis://host/?protocol=hunter2",
            "unix:///hunter2",
            "redis://ann:1#hunter2@host/",
            "redis://ann:1?hunter2@host/",
            "redis://:hunter2?@host/",
        ] {
            let error = Endpoint::parse(bad, SECOND).unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{bad}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
