//! RE: counts, late releases, and names that have nothing to do with each other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::testing::{Call, call, stats};
use leasehold::{Error, HoldId};
use leasehold_test::{Backend, Random};
use tokio::time::Instant;

use crate::on_stores;

on_stores! {
    memory: Memory [
        re_03_a_second_release_finds_nothing, re_04_leases_that_end_all_the_time_never_overlap,
        re_05_a_late_release_hurts_no_successor, re_06_depth_counts_exactly,
        re_07_names_do_not_block_each_other,
    ]
    local: Local [
        re_03_a_second_release_finds_nothing, re_04_leases_that_end_all_the_time_never_overlap,
        re_05_a_late_release_hurts_no_successor, re_06_depth_counts_exactly,
        re_07_names_do_not_block_each_other,
    ]
    redis: Redis [
        re_03_a_second_release_finds_nothing, re_04_leases_that_end_all_the_time_never_overlap,
        re_05_a_late_release_hurts_no_successor, re_06_depth_counts_exactly,
        re_07_names_do_not_block_each_other,
    ]
}

fn hold(serial: u32) -> HoldId {
    format!("71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:{serial}")
        .parse()
        .unwrap()
}

fn acquire(count: u64) -> Call {
    Call::Acquire {
        name: "x".into(),
        hold: hold(1),
        count,
        ttl: Duration::from_secs(60),
    }
}

fn release(leave: u64) -> Call {
    Call::Release {
        name: "x".into(),
        hold: hold(1),
        leave,
        ttl: Duration::from_secs(60),
    }
}

async fn re_03_a_second_release_finds_nothing(backend: Backend) {
    let client = backend.client().await;
    assert_eq!(call(&client, &acquire(1)).await.unwrap().text, "Held");
    assert_eq!(
        call(&client, &release(0)).await.unwrap().text,
        "Freed { announced: true }"
    );
    assert_eq!(call(&client, &release(0)).await.unwrap().text, "Gone");
    assert!(!client.mutex("x").is_locked().await.unwrap());
}

async fn re_04_leases_that_end_all_the_time_never_overlap(backend: Backend) {
    type Claims = Arc<Mutex<Vec<(Instant, Instant)>>>;
    let (claims, mut random) = (Claims::default(), Random::seeded("re_04"));
    let end = Instant::now() + Duration::from_secs(3);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = backend.client().await;
        let (claims, mut random) = (Arc::clone(&claims), Random::fixed(random.number()));
        tasks.push(tokio::spawn(async move {
            let mutex = client.mutex("x").fixed_lease(Duration::from_millis(20));
            // On a busy machine few claims are made in that time: go on until there are enough.
            while Instant::now() < end || claims.lock().unwrap().len() <= 50 {
                let Some(guard) = mutex.try_lock().await.unwrap() else {
                    continue;
                };
                // The clock is read first, so that the claim is never made too long.
                let begun = Instant::now();
                let until = begun + guard.lease().remaining();
                let inner = guard.reenter();
                tokio::time::sleep(random.up_to(Duration::from_millis(30))).await;
                drop(inner);
                let released = Instant::now();
                let _ = guard.release().await;
                claims.lock().unwrap().push((begun, until.min(released)));
            }
        }));
    }
    let watcher = tokio::spawn(no_key_without_ttl(backend.client().await, end));
    for task in tasks {
        task.await.unwrap();
    }
    watcher.await.unwrap();
    let mut claims = claims.lock().unwrap().clone();
    claims.sort();
    for pair in claims.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two claims overlap: {pair:?}");
    }
}

async fn no_key_without_ttl(client: leasehold::Client, end: Instant) {
    while Instant::now() < end {
        if let Some(status) = client.mutex("x").status().await.unwrap() {
            assert!(status.remaining.is_some(), "a key without TTL");
        }
    }
}

async fn re_05_a_late_release_hurts_no_successor(backend: Backend) {
    let (a, b) = backend.clients().await;
    let late = a
        .mutex("x")
        .fixed_lease(Duration::from_millis(300))
        .lock()
        .await
        .unwrap();
    let successor = b
        .mutex("x")
        .fixed_lease(Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    let published = published(&backend).await;
    assert!(matches!(late.release().await, Err(Error::Lost(_))));
    leasehold_test::eventually("nothing is owed", async || stats(&a).owed == 0).await;
    assert_eq!(self::published(&backend).await, published);
    let left = b.mutex("x").remaining().await.unwrap().unwrap();
    assert!(left > Duration::from_secs(55), "{left:?}");
    assert_eq!(
        b.mutex("x").hold_count(successor.hold_id()).await.unwrap(),
        1
    );
    successor.release().await.unwrap();
    let nobody = a
        .mutex("x")
        .fixed_lease(Duration::from_millis(50))
        .lock()
        .await
        .unwrap();
    nobody.lost().await;
    assert!(matches!(nobody.release().await, Err(Error::Lost(_))));
}

async fn published(backend: &Backend) -> u64 {
    match backend {
        Backend::Redis(server) => server.calls("publish").await,
        Backend::Memory(_) | Backend::Local(_) => 0,
    }
}

async fn re_06_depth_counts_exactly(backend: Backend) {
    let (a, b) = backend.clients().await;
    let outer = a.mutex("y").lock().await.unwrap();
    let mut inner: Vec<_> = (1..1000).map(|_| outer.reenter()).collect();
    assert_eq!(b.mutex("y").hold_count(outer.hold_id()).await.unwrap(), 1);
    drop(outer);
    let last = inner.pop().unwrap();
    drop(inner);
    assert!(b.mutex("y").try_lock().await.unwrap().is_none());
    last.release().await.unwrap();
    assert!(b.mutex("y").try_lock().await.unwrap().is_some());

    let count = async || a.mutex("x").hold_count(&hold(1)).await.unwrap();
    for depth in 1..=1000 {
        assert_eq!(call(&a, &acquire(depth)).await.unwrap().text, "Held");
    }
    assert_eq!(count().await, 1000);
    for depth in (1..1000).rev() {
        assert_eq!(call(&a, &release(depth)).await.unwrap().text, "StillHeld");
    }
    assert_eq!(count().await, 1);
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert_eq!(
        call(&a, &release(0)).await.unwrap().text,
        "Freed { announced: true }"
    );
    assert_eq!(call(&a, &release(0)).await.unwrap().text, "Gone");
}

async fn re_07_names_do_not_block_each_other(backend: Backend) {
    let (a, mut random) = (backend.client().await, Random::seeded("re_07"));
    for _ in 0..500 {
        let (x, y) = (random.number(), random.number());
        let held = a.mutex(&format!("n{x}")).lock().await.unwrap();
        let other = a.mutex(&format!("n{y}")).try_lock().await.unwrap();
        assert!(other.is_some(), "{x} blocks {y}");
        other.unwrap().release().await.unwrap();
        held.release().await.unwrap();
    }
    let mut held = Vec::new();
    for number in 0..100 {
        held.push(a.mutex(&format!("held{number}")).lock().await.unwrap());
    }
    for number in 0..2000 {
        a.mutex(&format!("touched{number}"))
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    for number in 0..100 {
        assert!(
            a.mutex(&format!("held{number}"))
                .try_lock()
                .await
                .unwrap()
                .is_none()
        );
    }
}
