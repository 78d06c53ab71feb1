//! Holds that end behind their holder's back.

use std::time::Duration;

use leasehold::testing::stats;
use leasehold::{Error, LeaseState};
use leasehold_test::{Backend, Kind, eventually};
use tokio::time::{Instant, timeout};

const TTL: Duration = Duration::from_millis(1_500);

pub(super) async fn a_removed_lock_is_lost_within_a_third_of_its_ttl(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let guard = client.mutex("m").ttl(TTL).lock().await.unwrap();
    store.remove("m").await;
    let begun = Instant::now();
    guard.lost().await;
    let took = begun.elapsed();
    // Past that, only the end of the lease would have told.
    assert!(took < TTL / 3 + Duration::from_millis(300), "{took:?}");
    assert_eq!(guard.lease().state(), LeaseState::Lost);
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
}

pub(super) async fn a_loss_is_latched(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let guard = client.mutex("m").ttl(TTL).lock().await.unwrap();
    let lease = guard.lease();
    store.remove("m").await;
    let two = guard.reenter();
    tokio::join!(
        guard.lost(),
        two.lost(),
        lease.lost(),
        lease.ends_within(TTL / 100)
    );
    guard.lost().await;
    assert_eq!(lease.state(), LeaseState::Lost);
    assert_eq!(lease.remaining(), Duration::ZERO);
    let next = client.mutex("m").lock().await.unwrap();
    assert_eq!(lease.state(), LeaseState::Lost);
    assert_eq!(next.lease().state(), LeaseState::Held);
    drop((guard, two));
    next.release().await.unwrap();
}

pub(super) async fn a_loss_ends_the_work_under_it(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").ttl(TTL);
    let remove = async {
        eventually("it is held", async || mutex.is_locked().await.unwrap()).await;
        store.remove("m").await;
    };
    let work = mutex.with(async |_lease| std::future::pending::<()>().await);
    let (ended, ()) = tokio::join!(timeout(TTL, work), remove);
    assert!(matches!(ended.unwrap(), Err(Error::Lost(_))));

    let guard = mutex.lock().await.unwrap();
    store.remove("m").await;
    let work = guard.while_held(std::future::pending::<()>());
    let ended = timeout(TTL, work).await.unwrap();
    assert!(matches!(ended, Err(Error::Lost(_))));
    // Latched: work that is done at once comes too late.
    let late = guard.while_held(async { 7 }).await;
    assert!(matches!(late, Err(Error::Lost(_))));
}

pub(super) async fn work_that_ends_in_time_gives_its_result(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    let inside = async |lease: leasehold::Lease| {
        assert_eq!(lease.state(), LeaseState::Held);
        assert!(mutex.try_lock().await.unwrap().is_none());
        6 * 7
    };
    assert_eq!(mutex.with(inside).await.unwrap(), 42);
    assert!(!mutex.is_locked().await.unwrap());
    let guard = mutex.lock().await.unwrap();
    assert_eq!(guard.while_held(async { 43 }).await.unwrap(), 43);
    guard.release().await.unwrap();
}

pub(super) async fn renewal_never_brings_a_removed_lock_back(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").ttl(Duration::from_millis(300));
    for _ in 0..5 {
        let guard = mutex.lock().await.unwrap();
        store.remove("m").await;
        guard.lost().await;
        assert!(!mutex.is_locked().await.unwrap());
        assert_eq!(stats(&client).watched, 0);
        drop(guard);
    }
}

pub(super) async fn one_lost_lock_does_not_stop_the_renewal_of_others(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let ttl = Duration::from_millis(900);
    let mut guards = vec![];
    for number in 0..20 {
        let mutex = client.mutex(&format!("m:{number}")).ttl(ttl);
        guards.push(mutex.lock().await.unwrap());
    }
    store.remove("m:7").await;
    guards[7].lost().await;
    tokio::time::sleep(2 * ttl).await;
    for (number, guard) in guards.into_iter().enumerate() {
        let released = guard.release().await;
        match number {
            7 => assert!(matches!(released, Err(Error::Lost(_)))),
            _ => released.unwrap(),
        }
    }
}

pub(super) async fn the_same_name_locks_again_after_a_loss(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let ttl = Duration::from_millis(900);
    let mutex = client.mutex("m").ttl(ttl);
    let lost = mutex.lock().await.unwrap();
    store.remove("m").await;
    let next = mutex.lock().await.unwrap();
    lost.lost().await;
    // What is left of the first hold neither ends nor stops the second.
    assert!(matches!(lost.release().await, Err(Error::Lost(_))));
    tokio::time::sleep(2 * ttl).await;
    assert_eq!(next.lease().state(), LeaseState::Held);
    assert_eq!(mutex.hold_count(next.hold_id()).await.unwrap(), 1);
    next.release().await.unwrap();
}

pub(super) async fn breaking_a_lock_frees_it_and_wakes_a_waiter(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let broken = one.mutex("m").ttl(TTL).lock().await.unwrap();
    let mutex = two.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("it listens", async || stats(&two).listening == 1).await;
    assert!(
        store
            .client()
            .await
            .mutex("m")
            .force_unlock()
            .await
            .unwrap()
    );
    let next = waiter.await.unwrap();
    assert_eq!(stats(&two).woken_by_timer, 0);
    broken.lost().await;
    assert!(matches!(broken.release().await, Err(Error::Lost(_))));
    next.release().await.unwrap();
}

pub(super) async fn breaking_a_free_lock_says_that_it_was_free(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    assert!(!mutex.force_unlock().await.unwrap());
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.force_unlock().await.unwrap());
    assert!(!mutex.force_unlock().await.unwrap());
    drop(guard);
}
