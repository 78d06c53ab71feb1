//! The thread that runs a blocking client, and the gate before it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{oneshot, watch};

use crate::client::{Client, CloseReport};
use crate::error::{Error, Result};

/// What a call says that comes after the end.
const CLOSED: Error = Error::Closed("it was closed");

/// A thread with a runtime, before there is a client for it. Dropping it ends the thread.
///
/// The thread owns the runtime: a runtime that is dropped in asynchronous code panics, and a value
/// that a user has may be dropped anywhere.
#[derive(Debug)]
pub(super) struct Thread {
    handle: Handle,
    gate: Arc<Gate>,
    order: oneshot::Sender<Order>,
    report: watch::Receiver<Option<CloseReport>>,
    joining: JoinHandle<()>,
}

/// How the client is to be ended.
#[derive(Debug)]
struct Order {
    client: Client,
    release: bool,
}

impl Thread {
    pub(super) fn start() -> Result<Self> {
        let failed = |cause: std::io::Error| Error::Unavailable {
            message: "the client's thread cannot be started".to_owned(),
            source: Some(Arc::new(cause)),
            outcome_unknown: false,
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("leasehold-blocking")
            .build()
            .map_err(failed)?;
        let (handle, gate) = (runtime.handle().clone(), Arc::new(Gate::new()));
        let ((order, orders), (tell, report)) = (oneshot::channel(), watch::channel(None));
        let at_gate = Arc::clone(&gate);
        let joining = std::thread::Builder::new()
            .name("leasehold".to_owned())
            .spawn(move || drive(runtime, &at_gate, orders, &tell))
            .map_err(failed)?;
        Ok(Self {
            handle,
            gate,
            order,
            report,
            joining,
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs this client, which was made on the thread's runtime.
    pub(super) fn drive(self, client: Client) -> Arc<Driver> {
        Arc::new(Driver {
            client,
            handle: self.handle,
            gate: self.gate,
            report: self.report,
            order: Mutex::new(Some(self.order)),
            joining: Mutex::new(Some(self.joining)),
        })
    }
}

/// The whole life of the thread.
fn drive(
    runtime: Runtime,
    gate: &Gate,
    orders: oneshot::Receiver<Order>,
    tell: &watch::Sender<Option<CloseReport>>,
) {
    // Parked here, it also turns the timers and sockets of calls on other threads.
    let report = runtime.block_on(async {
        let Order { client, release } = orders.await.ok()?;
        Some(match release {
            true => client.close_and_release().await,
            false => client.close().await,
        })
    });
    // A timer that outlives its runtime panics, so every call leaves first.
    gate.shut();
    // It waits for no look-up of a name that is still under way.
    runtime.shutdown_background();
    tell.send_replace(report);
}

/// One blocking client. Dropping it lets the thread close the client, and waits for nothing.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) client: Client,
    handle: Handle,
    gate: Arc<Gate>,
    report: watch::Receiver<Option<CloseReport>>,
    order: Mutex<Option<oneshot::Sender<Order>>>,
    joining: Mutex<Option<JoinHandle<()>>>,
}

impl Driver {
    /// Runs a call of the client on this thread.
    #[track_caller]
    pub(super) fn call<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.handle.block_on(async {
            let _inside = self.gate.enter()?;
            tokio::select! {
                biased;
                () = self.gate.shutting() => Err(CLOSED),
                done = work => done,
            }
        })
    }

    /// Closes the client and waits for its thread; whoever comes second gets the same report.
    #[track_caller]
    pub(super) fn close(&self, release: bool) -> CloseReport {
        let mut report = self.report.clone();
        let told = self.handle.block_on(async {
            self.end(release);
            report
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|report| *report)
        });
        let joining = lock(&self.joining).take();
        if let Some(Err(cause)) = joining.map(JoinHandle::join) {
            std::panic::resume_unwind(cause);
        }
        told.expect("the thread that closes a client says what it found")
    }

    fn end(&self, release: bool) {
        if let Some(order) = lock(&self.order).take() {
            let client = self.client.clone();
            // Fails only after a panic on the thread, which `close` passes on.
            let _ = order.send(Order { client, release });
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// Counts the calls that are under way, so that the runtime ends after the last of them.
#[derive(Debug)]
struct Gate {
    inside: Mutex<Inside>,
    left: Condvar,
    shutting: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Inside {
    calls: usize,
    shut: bool,
}

/// A call that is under way.
struct Entered<'a>(&'a Gate);

impl Gate {
    fn new() -> Self {
        Self {
            inside: Mutex::default(),
            left: Condvar::new(),
            shutting: watch::Sender::new(false),
        }
    }

    fn enter(&self) -> Result<Entered<'_>> {
        let mut inside = lock(&self.inside);
        if inside.shut {
            return Err(CLOSED);
        }
        inside.calls += 1;
        Ok(Entered(self))
    }

    /// Lets nobody in, tells those who are inside to leave, and waits for them.
    fn shut(&self) {
        lock(&self.inside).shut = true;
        self.shutting.send_replace(true);
        let inside = lock(&self.inside);
        let _empty = self
            .left
            .wait_while(inside, |inside| inside.calls > 0)
            .unwrap_or_else(PoisonError::into_inner);
    }

    async fn shutting(&self) {
        let _ = self
            .shutting
            .subscribe()
            .wait_for(|shutting| *shutting)
            .await;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut inside = lock(&self.0.inside);
        inside.calls -= 1;
        if inside.shut {
            self.0.left.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
