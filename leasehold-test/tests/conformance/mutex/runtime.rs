//! Guards and clients away from their runtime, and runtimes that stall.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use leasehold::{Client, Error, LeaseState, MutexGuard};
use leasehold_test::{Backend, Kind};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_all();
    builder.build().expect("a runtime can be made")
}

/// A store with a lock `m` held by one client, and a second client.
fn held(runtime: &Runtime, kind: Kind) -> (Backend, Client, MutexGuard) {
    runtime.block_on(async {
        let store = Backend::start(kind).await;
        let (one, two) = store.clients().await;
        let guard = one.mutex("m").lock().await.unwrap();
        (store, two, guard)
    })
}

fn takes_over(runtime: &Runtime, client: &Client) {
    let mutex = client.mutex("m");
    let next = runtime.block_on(mutex.try_lock_for(Duration::from_secs(10)));
    runtime.block_on(next.unwrap().unwrap().release()).unwrap();
}

pub(super) fn a_guard_dropped_on_a_plain_thread_frees(kind: Kind) {
    let runtime = runtime();
    let (_store, two, guard) = held(&runtime, kind);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    takes_over(&runtime, &two);
}

pub(super) fn a_guard_dropped_while_unwinding_frees(kind: Kind) {
    let runtime = runtime();
    let (_store, two, guard) = held(&runtime, kind);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _held = guard;
        std::panic::resume_unwind(Box::new("the work failed"));
    }));
    assert!(panicked.is_err());
    takes_over(&runtime, &two);

    let mutex = two.mutex("m");
    let task = runtime.spawn(async move {
        let work = async |_| std::panic::resume_unwind(Box::new("the work failed"));
        mutex.with(work).await
    });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    takes_over(&runtime, &two);
}

pub(super) fn a_guard_dropped_after_its_runtime_is_harmless(kind: Kind) {
    let first = runtime();
    let store = first.block_on(Backend::start(kind));
    let client = first.block_on(store.client());
    let mutex = client.mutex("m").ttl(Duration::from_millis(900));
    let guard = first.block_on(mutex.lock()).unwrap();
    drop((first, client, mutex));
    let lease = guard.lease();
    drop(guard);
    assert_eq!(lease.remaining(), Duration::ZERO);
    // Nobody could send the release: the lock stays until its TTL, and no lease keeps it longer.
    let second = runtime();
    let client = second.block_on(store.client());
    takes_over(&second, &client);
    drop(lease);
}

pub(super) fn a_client_of_an_ended_runtime_says_closed(kind: Kind) {
    let first = runtime();
    let (_store, client, guard) = held(&first, kind);
    drop(first);
    let second = runtime();
    second.block_on(async {
        let begun = Instant::now();
        let mutex = client.mutex("n");
        let answers = [
            mutex.lock().await.err(),
            mutex.try_lock().await.err(),
            mutex.try_lock_for(Duration::from_secs(50)).await.err(),
            mutex.status().await.err(),
            client.list("*").await.err(),
            guard.release().await.err(),
        ];
        for (number, answer) in answers.iter().enumerate() {
            assert!(
                matches!(answer, Some(Error::Closed(_))),
                "{number} {answer:?}"
            );
        }
        client.close().await;
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}

pub(super) async fn a_blocked_thread_makes_holds_uncertain_and_then_lost(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let ttl = Duration::from_millis(3_000);
    let begun = Instant::now();
    let guard = client.mutex("m").ttl(ttl).lock().await.unwrap();
    let lease = guard.lease();
    assert_eq!(lease.state(), LeaseState::Held);
    // This thread is the whole runtime: nothing renews while it is blocked.
    block_until(begun + ttl * 6 / 10);
    assert_eq!(lease.state(), LeaseState::Uncertain);
    block_until(begun + ttl);
    assert_eq!(lease.state(), LeaseState::Lost);
    guard.lost().await;
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
}

fn block_until(moment: Instant) {
    while Instant::now() < moment {
        std::thread::park_timeout(moment - Instant::now());
    }
}
