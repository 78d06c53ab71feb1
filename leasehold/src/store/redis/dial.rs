//! From a URL to a connection: look-up, connect, socket options, TLS, log-in, under one limit.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use redis::{PushInfo, RedisConnectionInfo};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::tls::{self, Tls};
use super::{Settings, error};
use crate::error::{Error, Result};
use crate::model::Moment;
use crate::store::{Clock, Introduction};

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
pub(super) struct Endpoint {
    place: Place,
    login: RedisConnectionInfo,
    limit: Duration,
    /// What operators see in the server's list of clients.
    pub(super) name: String,
    /// What is said of this client on a connection for commands.
    pub(super) introduction: Arc<Introduction>,
}

/// Where a server listens.
enum Place {
    Tcp {
        host: String,
        port: u16,
        tls: Option<Tls>,
    },
    Unix(PathBuf),
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
    pub(super) fn parse(url: &str, settings: &Settings) -> Result<Self> {
        check_marks(url)?;
        // TLS is ours: the parser that follows reads the rest of such a URL as any other.
        let secure = url
            .strip_prefix("rediss:")
            .map(|rest| format!("redis:{rest}"));
        let info = secure
            .as_deref()
            .unwrap_or(url)
            .into_connection_info()
            .map_err(|bad| Error::config(description(&bad)))?;
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Place::Tcp {
                tls: match secure {
                    Some(_) => Some(Tls::new(host, &settings.trust)?),
                    None => None,
                },
                host: host.clone(),
                port: *port,
            },
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(Error::config("the URL names no server that can be reached")),
        };
        if secure.is_none() && settings.trust.is_set() {
            return Err(Error::config(
                "certificates are set, but only a rediss: URL uses TLS",
            ));
        }
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
            place,
            login,
            limit: settings.connect_timeout,
            name: settings.name.clone(),
            introduction: Arc::clone(&settings.introduction),
        })
    }

    /// Connects and logs in, then lets `greet` say whatever else has to be said first.
    pub(super) async fn dial<T>(
        &self,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
        greet: impl AsyncFnOnce(&Self, &mut MultiplexedConnection) -> Result<T>,
    ) -> Result<(Connection, T)> {
        let end = Clock::Boot.now().after(self.limit);
        let shaking = AtomicBool::new(false);
        let set_up = async {
            let mut connection = self.open(pushes, end, &shaking).await?;
            let greeting = greet(self, &mut connection.handle).await?;
            Ok((connection, greeting))
        };
        Clock::Boot.limit(end, set_up).await.unwrap_or_else(|| {
            let hint = if shaking.load(Ordering::Relaxed) {
                ": it takes connections, but does not answer in TLS"
            } else {
                ""
            };
            Err(Error::unavailable(format!(
                "cannot connect to {self} within {:?}{hint}",
                self.limit
            )))
        })
    }

    async fn open(
        &self,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
        end: Moment,
        shaking: &AtomicBool,
    ) -> Result<Connection> {
        let unreachable = |cause| error::unreachable(&self.to_string(), cause);
        let (host, port, tls) = match &self.place {
            Place::Tcp { host, port, tls } => (host.as_str(), *port, tls),
            Place::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                return self.log_in(stream, pushes).await;
            }
        };
        let found = tokio::net::lookup_host((host, port)).await;
        let addresses: Vec<_> = found.map_err(unreachable)?.collect();
        let stream = connect(&addresses, end).await.map_err(unreachable)?;
        set_options(&stream).map_err(unreachable)?;
        let Some(tls) = tls else {
            return self.log_in(stream, pushes).await;
        };
        shaking.store(true, Ordering::Relaxed);
        let stream = tls.wrap(stream, &self.to_string()).await?;
        shaking.store(false, Ordering::Relaxed);
        self.log_in(stream, pushes).await
    }

    async fn log_in(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
    ) -> Result<Connection> {
        // Every command has a limit of its own, on a clock that counts suspend.
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        if let Some(pushes) = pushes {
            config = config.set_push_sender(pushes);
        }
        let (handle, task) = MultiplexedConnection::new_with_config(&self.login, stream, config)
            .await
            .map_err(|refused| {
                // A server may look at the client's certificate after the handshake only.
                let server = self.to_string();
                tls::refusal(&refused, &server)
                    .unwrap_or_else(|| error::refused_connection(refused, &server))
            })?;
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

/// What follows these marks would be taken for a host and a port, and be shown as such.
fn check_marks(url: &str) -> Result<()> {
    let (front, query) = url.split_once('?').unwrap_or((url, ""));
    let unix = url.starts_with("unix:");
    if front.contains('#') || query.contains('#') || (!unix && query.contains('@')) {
        return Err(Error::config(
            "the URL cannot be used: in a user name or password, write # as %23 and ? as %3F",
        ));
    }
    let known = |pair: &str| {
        let key = pair.split('=').next().unwrap_or_default();
        ["", "db", "user", "pass", "protocol"].contains(&key)
    };
    // A word that is passed over might have been a password.
    if unix && !query.split('&').all(known) {
        return Err(Error::config(
            "the URL cannot be used: behind the path of a socket stand db, user and pass only",
        ));
    }
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
        match &self.place {
            Place::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
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
    use crate::model::{ClientId, Ttl};
    use crate::op::record::{Card, WriteRecord};

    fn parse(url: &str) -> Result<Endpoint> {
        let card = Card {
            host: "here".to_owned(),
            pid: 1,
            program: "test".to_owned(),
            label: String::new(),
        };
        let record = WriteRecord::new(ClientId::random(), card, Ttl::DEFAULT);
        let settings = Settings {
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            trust: tls::Trust::default(),
            name: "test".to_owned(),
            introduction: Arc::new(Introduction::new(record)),
        };
        Endpoint::parse(url, &settings)
    }

    #[test]
    fn a_url_gives_server_user_password_and_database() {
        let endpoint = parse("redis://ann:s%40cret@[::1]:7000/3").unwrap();
        assert_eq!(endpoint.to_string(), "[::1]:7000");
        assert_eq!(endpoint.login.username(), Some("ann"));
        assert_eq!(endpoint.login.password(), Some("s@cret"));
        assert_eq!(endpoint.login.db(), 3);
        assert!(!format!("{endpoint:?}").contains("cret"));
    }

    #[test]
    fn a_socket_is_named_by_its_path_and_what_follows_it() {
        let endpoint = parse("unix:///run/a%20b.sock?db=3&user=ann&pass=s%26%40cret").unwrap();
        assert_eq!(endpoint.to_string(), "/run/a b.sock");
        assert_eq!(endpoint.login.username(), Some("ann"));
        assert_eq!(endpoint.login.password(), Some("s&@cret"));
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
            "unix:///run/s?pass=hunter2&db=x",
            "unix:///run/s?password=hunter2",
            "unix:///run/s?user=ann&pass=1#hunter2",
            "unix://hunter2/s",
            "rediss://ann:hunter2@host/hunter2",
            "rediss://:hunter2@host/#insecure",
            "rediss://:x@host..hunter2/",
            "redis://ann:1#hunter2@host/",
            "redis://ann:1?hunter2@host/",
            "redis://:hunter2?@host/",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{bad}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
