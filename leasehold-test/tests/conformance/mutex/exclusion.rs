//! One hold at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_test::{Backend, Kind};
use tokio::time::Instant;

pub(super) async fn two_clients_exclude_each_other(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    assert!(two.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = two.mutex("m").try_lock().await.unwrap();
    assert!(one.mutex("m").try_lock().await.unwrap().is_none());
    guard.unwrap().release().await.unwrap();
}

pub(super) async fn two_takers_in_one_client_exclude_each_other(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(client.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_some());
}

pub(super) async fn work_under_the_lock_never_overlaps(kind: Kind) {
    const ROUNDS: u64 = 25;
    let store = Backend::start(kind).await;
    let (inside, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = store.client().await;
        let (inside, total) = (Arc::clone(&inside), Arc::clone(&total));
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = client.mutex("m").lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                let seen = total.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                total.store(seen + 1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
            client.close().await;
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(total.load(Ordering::SeqCst), 4 * ROUNDS);
}

pub(super) async fn a_try_on_a_busy_lock_answers_none_at_once(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let _guard = one.mutex("m").lock().await.unwrap();
    let begun = Instant::now();
    assert!(two.mutex("m").try_lock().await.unwrap().is_none());
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(leasehold::testing::stats(&two).listening, 0);
}

pub(super) async fn a_bounded_try_gives_up_in_its_time(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let _guard = one.mutex("m").lock().await.unwrap();
    let wait = Duration::from_millis(200);
    for client in [&one, &two] {
        let begun = Instant::now();
        let got = client.mutex("m").try_lock_for(wait).await.unwrap();
        assert!(got.is_none());
        let took = begun.elapsed();
        assert!(took >= wait && took < wait + store.slack(), "{took:?}");
    }
}

pub(super) async fn a_bounded_try_gets_a_lock_that_is_freed_in_its_time(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").lock().await.unwrap();
    let mutex = two.mutex("m");
    let (got, ()) = tokio::join!(mutex.try_lock_for(Duration::from_secs(20)), async {
        leasehold_test::eventually("it listens", async || {
            leasehold::testing::stats(&two).listening == 1
        })
        .await;
        guard.release().await.unwrap();
    });
    assert!(got.unwrap().is_some());
}

pub(super) async fn a_bounded_try_of_no_time_is_one_try(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let guard = one.mutex("m").try_lock_for(Duration::ZERO).await.unwrap();
    assert!(guard.is_some());
    let other = two.mutex("m").try_lock_for(Duration::ZERO).await.unwrap();
    assert!(other.is_none());
    assert_eq!(leasehold::testing::stats(&two).lines, 0);
}

pub(super) async fn names_do_not_block_each_other(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let name = |n: u32| format!("name:{n}");
    let mut guards = vec![];
    for n in 0..100 {
        guards.push(client.mutex(&name(n)).try_lock().await.unwrap().unwrap());
    }
    for n in 0..100 {
        let again = client.mutex(&name(n)).try_lock().await.unwrap();
        assert!(again.is_none(), "{n}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(client.list("*").await.unwrap(), []);
}

pub(super) async fn a_name_with_a_hash_tag_is_a_lock_like_any_other(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let names = [
        "app:{u1}:lock",
        "{u1}",
        "app:{u1}:{x}",
        "\u{1F512} {a} b",
        " ",
    ];
    let mut guards = vec![];
    for name in names {
        guards.push(one.mutex(name).try_lock().await.unwrap().unwrap());
        assert!(
            two.mutex(name).try_lock().await.unwrap().is_none(),
            "{name}"
        );
    }
    let waiters = names.map(|name| {
        let mutex = two.mutex(name);
        tokio::spawn(async move { mutex.lock().await.unwrap().release().await })
    });
    for guard in guards {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}

pub(super) async fn branches_of_one_task_are_two_owners(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m");
    let inside = AtomicU64::new(0);
    let branch = async || {
        let guard = mutex.lock().await.unwrap();
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        tokio::task::yield_now().await;
        inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    };
    tokio::join!(branch(), branch(), branch());
}
