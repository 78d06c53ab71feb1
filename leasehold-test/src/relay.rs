//! A port that leads to a server, and can be made to lead to another: an address that fails over.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Passes on every connection to a server. Dropping it cuts them all.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    target: Arc<AtomicU16>,
    connections: Connections,
    _accepting: JoinSet<()>,
}

type Connections = Arc<Mutex<Vec<AbortHandle>>>;

impl Relay {
    /// Leads to the server on this port of the loopback interface.
    ///
    /// # Panics
    ///
    /// When no port can be had.
    pub async fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port can be had");
        let address = listener.local_addr().expect("a bound port is known");
        let (target, connections) = (Arc::new(AtomicU16::new(port)), Connections::default());
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(
            listener,
            Arc::clone(&target),
            Arc::clone(&connections),
        ));
        Self {
            address,
            target,
            connections,
            _accepting: accepting,
        }
    }

    /// The URL for a client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// New connections lead to another port from now on; those that are there stay.
    pub fn point_at(&self, port: u16) {
        self.target.store(port, Ordering::SeqCst);
    }

    /// Cuts a connection; the first one that was made is 0.
    ///
    /// # Panics
    ///
    /// When there is no such connection.
    pub fn cut(&self, number: usize) {
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections[number].abort();
    }
}

async fn accept(listener: TcpListener, target: Arc<AtomicU16>, connections: Connections) {
    let mut passing = JoinSet::new();
    while let Ok((mut inner, _)) = listener.accept().await {
        let port = target.load(Ordering::SeqCst);
        let handle = passing.spawn(async move {
            if let Ok(mut outer) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = copy_bidirectional(&mut inner, &mut outer).await;
            }
        });
        let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(handle);
    }
}
