//! A store of one test, for threads.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use leasehold::blocking::{Client, ClientBuilder};
use leasehold_test::{Backend, Kind};
use tokio::runtime::Runtime;

/// Longer than any wake-up takes, shorter than any lease that would hide a missing one.
pub(crate) const SOON: Duration = Duration::from_secs(5);
/// Long enough to see that something does not happen.
pub(crate) const BRIEF: Duration = Duration::from_millis(150);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The present. The tests of this file measure how long threads wait.
#[expect(
    clippy::disallowed_methods,
    reason = "a test is over before a machine sleeps"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) struct Bench {
    runtime: Runtime,
    store: Backend,
}

impl Bench {
    pub(crate) fn new(kind: Kind) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let store = runtime.block_on(Backend::start(kind));
        Self { runtime, store }
    }

    pub(crate) fn client(&self) -> Client {
        self.build(Client::builder())
    }

    pub(crate) fn build(&self, builder: ClientBuilder) -> Client {
        match &self.store {
            Backend::Memory(memory) => builder.memory(memory),
            other => builder.connect(&other.url().unwrap()).unwrap(),
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        self.runtime.block_on(self.store.remove(name));
    }
}

/// Work on a thread of its own, and what it gave.
pub(crate) struct Work<T> {
    thread: JoinHandle<()>,
    done: mpsc::Receiver<T>,
}

pub(crate) fn work<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Work<T> {
    let (tell, done) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = tell.send(work());
    });
    Work { thread, done }
}

impl<T> Work<T> {
    /// Nothing, if it is not done by then.
    pub(crate) fn within(&self, wait: Duration) -> Option<T> {
        self.done.recv_timeout(wait).ok()
    }

    pub(crate) fn soon(self) -> T {
        let done = self.within(SOON).expect("the work ends soon");
        self.thread.join().unwrap();
        done
    }
}

/// Returns once `fact` is true.
pub(crate) fn eventually(what: &str, fact: impl Fn() -> bool) {
    let begun = now();
    while !fact() {
        assert!(begun.elapsed() < 2 * SOON, "it never came true that {what}");
        thread::park_timeout(ms(2));
    }
}
