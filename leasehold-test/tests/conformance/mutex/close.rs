//! The end of a client.

use std::time::Duration;

use leasehold::testing::stats;
use leasehold::{Error, LeaseState};
use leasehold_test::{Backend, Kind, eventually};
use tokio::time::Instant;

pub(super) async fn waiters_end_when_their_client_is_closed(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let mut waiters = vec![];
    for number in 0..20 {
        let mutex = two.mutex("m");
        waiters.push(tokio::spawn(async move {
            match number % 2 {
                0 => mutex.lock().await.err(),
                _ => mutex.try_lock_for(Duration::from_secs(50)).await.err(),
            }
        }));
    }
    eventually("they wait", async || stats(&two).listening == 1).await;
    let probe = two.clone();
    let begun = Instant::now();
    let report = two.close().await;
    for waiter in waiters {
        assert!(matches!(waiter.await.unwrap(), Some(Error::Closed(_))));
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!((report.unreleased, report.outstanding), (0, 0));
    let seen = stats(&probe);
    assert_eq!((seen.listening, seen.lines, seen.owed), (0, 0, 0));
    guard.release().await.unwrap();
}

pub(super) async fn calls_after_the_close_say_closed(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    let guard = client.mutex("f").fixed_lease(Duration::from_secs(60));
    let guard = guard.lock().await.unwrap();
    client.clone().close().await;
    let answers = [
        mutex.lock().await.err(),
        mutex.try_lock().await.err(),
        mutex.try_lock_for(Duration::from_secs(1)).await.err(),
        mutex.with(async |_| ()).await.err(),
        mutex.force_unlock().await.err(),
        mutex.status().await.err(),
        mutex.is_locked().await.err(),
        mutex.hold_count(guard.hold_id()).await.err(),
        client.list("*").await.err(),
        guard.extend(Duration::from_secs(60)).await.err(),
        guard.release().await.err(),
    ];
    for (number, answer) in answers.iter().enumerate() {
        assert!(
            matches!(answer, Some(Error::Closed(_))),
            "{number} {answer:?}"
        );
    }
}

pub(super) async fn queued_releases_are_sent_by_the_close(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    for number in 0..10 {
        drop(one.mutex(&format!("m:{number}")).lock().await.unwrap());
    }
    let report = one.close().await;
    let told = (report.released, report.unreleased, report.outstanding);
    assert_eq!(told, (10, 0, 0));
    assert_eq!(two.list("*").await.unwrap(), []);
}

pub(super) async fn outstanding_holds_are_reported_and_left_alone(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let other = one.mutex("n").lock().await.unwrap();
    let report = one.close().await;
    let told = (report.released, report.unreleased, report.outstanding);
    assert_eq!(told, (0, 0, 2));
    assert_eq!(guard.lease().state(), LeaseState::Held);
    let status = two.mutex("m").status().await.unwrap().unwrap();
    assert_eq!(&status.hold, guard.hold_id());
    assert!(two.mutex("n").is_locked().await.unwrap());
    drop((guard, other));
}

pub(super) async fn a_releasing_close_tells_the_loss_and_frees_at_once(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let mut guards = vec![];
    for number in 0..10 {
        let mutex = one.mutex(&format!("m:{number}"));
        guards.push(mutex.lock().await.unwrap());
    }
    let leases: Vec<_> = guards.iter().map(|guard| guard.lease()).collect();
    let mutex = two.mutex("m:0");
    let waiter = tokio::spawn(async move {
        let guard = mutex.lock().await.unwrap();
        // By the time that another has the lock, the first knows that it does not.
        assert!(leases.iter().all(|lease| lease.state() == LeaseState::Lost));
        guard
    });
    eventually("it listens", async || stats(&two).listening == 1).await;
    let begun = Instant::now();
    let report = one.close_and_release().await;
    assert_eq!((report.released, report.outstanding), (10, 0));
    let guard = waiter.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    for number in 0..10 {
        let mutex = two.mutex(&format!("m:{number}"));
        assert_eq!(mutex.is_locked().await.unwrap(), number == 0);
    }
    for guard in guards {
        assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    }
    guard.release().await.unwrap();
}

pub(super) async fn nothing_is_renewed_after_the_close(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let ttl = Duration::from_millis(600);
    let guard = one.mutex("m").ttl(ttl).lock().await.unwrap();
    let probe = one.clone();
    assert_eq!(one.close().await.outstanding, 1);
    let begun = Instant::now();
    let sent = stats(&probe).renewal_batches;
    guard.lost().await;
    let next = two.mutex("m").lock().await.unwrap();
    assert!(begun.elapsed() < ttl + store.slack());
    assert_eq!(stats(&probe).renewal_batches, sent);
    next.release().await.unwrap();
}
