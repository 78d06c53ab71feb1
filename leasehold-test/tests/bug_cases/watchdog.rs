//! WD: the watchdog renews what is held, all of it, and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{LeaseState, testing};
use leasehold_test::{Backend, Random, Server, eventually};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::on_stores;

const TTL: Duration = Duration::from_millis(900);

on_stores! {
    memory: Memory [
        wd_02_renewal_never_brings_a_vanished_lock_back, wd_03_a_lock_after_a_loss_is_renewed,
        wd_05_no_hold_is_immortal_and_none_goes_unrenewed, wd_06_nesting_leaves_others_renewed,
        wd_07_a_poisoned_lock_stops_no_other, wd_09_a_lease_stays_with_its_hold,
        wd_13_a_release_is_no_loss,
    ]
    local: Local [
        wd_02_renewal_never_brings_a_vanished_lock_back, wd_03_a_lock_after_a_loss_is_renewed,
        wd_05_no_hold_is_immortal_and_none_goes_unrenewed, wd_06_nesting_leaves_others_renewed,
        wd_09_a_lease_stays_with_its_hold, wd_13_a_release_is_no_loss,
    ]
    redis: Redis [
        wd_02_renewal_never_brings_a_vanished_lock_back, wd_03_a_lock_after_a_loss_is_renewed,
        wd_05_no_hold_is_immortal_and_none_goes_unrenewed, wd_06_nesting_leaves_others_renewed,
        wd_07_a_poisoned_lock_stops_no_other, wd_08_ten_thousand_holds_are_renewed_in_batches,
        wd_09_a_lease_stays_with_its_hold, wd_13_a_release_is_no_loss,
    ]
}

async fn wd_02_renewal_never_brings_a_vanished_lock_back(backend: Backend) {
    let (a, b) = backend.clients().await;
    let lost = a.mutex("x").ttl(TTL).lock().await.unwrap();
    backend.remove("x").await;
    timeout(TTL / 3 + backend.slack(), lost.lost())
        .await
        .expect("the loss is told");
    let renewals = testing::stats(&a).renewal_batches;
    let watched_until = Instant::now() + TTL * 2;
    while Instant::now() < watched_until {
        assert!(
            !b.mutex("x").is_locked().await.unwrap(),
            "the lock came back"
        );
        sleep(Duration::from_millis(50)).await;
    }
    assert!(
        testing::stats(&a).renewal_batches <= renewals,
        "a lost hold is renewed"
    );

    let again = a.mutex("x").ttl(TTL).lock().await.unwrap();
    backend.remove("x").await;
    let lease = Duration::from_secs(1);
    let begun = Instant::now();
    let _ = b
        .mutex("x")
        .fixed_lease(lease)
        .lock()
        .await
        .unwrap()
        .forget();
    let next = b.mutex("x").lock().await.unwrap();
    let waited = begun.elapsed();
    assert!(
        waited < lease + backend.slack(),
        "{waited:?}: somebody prolonged a foreign lease"
    );
    assert_eq!(again.lease().state(), LeaseState::Lost);
    assert!(again.release().await.is_err());
    next.release().await.unwrap();
}

async fn wd_03_a_lock_after_a_loss_is_renewed(backend: Backend) {
    let client = backend.client().await;
    let mutex = client.mutex("x").ttl(Duration::from_millis(600));
    for release_first in [true, false] {
        let lost = mutex.lock().await.unwrap();
        backend.remove("x").await;
        let kept = if release_first {
            let _ = lost.release().await;
            None
        } else {
            Some(lost)
        };
        let held = mutex.lock().await.unwrap();
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(held.lease().state(), LeaseState::Held);
        assert_eq!(mutex.hold_count(held.hold_id()).await.unwrap(), 1);
        assert_eq!(testing::stats(&client).watched, 1, "one renewal stream");
        held.release().await.unwrap();
        drop(kept);
        assert!(!mutex.is_locked().await.unwrap());
    }
}

async fn wd_05_no_hold_is_immortal_and_none_goes_unrenewed(backend: Backend) {
    let client = backend.client().await;
    let holders: Arc<[AtomicU32; 4]> = Arc::default();
    let mut random = Random::seeded("wd_05");
    let end = Instant::now() + Duration::from_secs(6);
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (client, holders) = (client.clone(), Arc::clone(&holders));
        let mut random = Random::fixed(random.number());
        tasks.spawn(async move {
            let mut rounds = 0_u32;
            while Instant::now() < end {
                rounds += 1;
                let name = usize::try_from(random.between(0, 4)).unwrap();
                let mutex = client
                    .mutex(&format!("n{name}"))
                    .ttl(Duration::from_millis(600));
                let guard = mutex.lock().await.unwrap();
                assert_eq!(
                    holders[name].fetch_add(1, Ordering::SeqCst),
                    0,
                    "two holders"
                );
                let long = rounds.is_multiple_of(50);
                let most = Duration::from_millis(5);
                sleep(if long {
                    Duration::from_millis(1500)
                } else {
                    random.up_to(most)
                })
                .await;
                assert_eq!(
                    mutex.hold_count(guard.hold_id()).await.unwrap(),
                    1,
                    "not renewed"
                );
                holders[name].fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(client.list("*").await.unwrap(), vec![]);
    let stats = testing::stats(&client);
    assert_eq!(
        (stats.watched, stats.listening, stats.lines, stats.owed),
        (0, 0, 0, 0)
    );
    sleep(Duration::from_millis(700)).await;
    assert_eq!(
        testing::stats(&client).renewal_batches,
        stats.renewal_batches
    );
}

async fn wd_06_nesting_leaves_others_renewed(backend: Backend) {
    let client = backend.client().await;
    let held = async |name: &str| client.mutex(name).ttl(TTL).lock().await.unwrap();
    let x = held("x").await;
    drop(x.reenter());
    let y = held("y").await;
    sleep(TTL * 2).await;
    for guard in [&x, &y] {
        assert_eq!(guard.lease().state(), LeaseState::Held);
    }
    x.release().await.unwrap();
    let z = held("z").await;
    sleep(TTL * 2).await;
    for (name, guard) in [("y", y), ("z", z)] {
        assert_eq!(
            client
                .mutex(name)
                .hold_count(guard.hold_id())
                .await
                .unwrap(),
            1
        );
        guard.release().await.unwrap();
    }
}

async fn wd_07_a_poisoned_lock_stops_no_other(backend: Backend) {
    let client = backend.client().await;
    let ttl = Duration::from_millis(1500);
    let mut guards = HashMap::new();
    for number in 0..50 {
        let name = format!("l{number}");
        guards.insert(
            name.clone(),
            client.mutex(&name).ttl(ttl).lock().await.unwrap(),
        );
    }
    backend.remove("l7").await;
    backend.plant("l7", "a text").await;
    backend.remove("l8").await;
    let busy = client.mutex("busy").ttl(ttl);
    let end = Instant::now() + ttl * 2;
    while Instant::now() < end {
        busy.lock().await.unwrap().release().await.unwrap();
        sleep(Duration::from_millis(1)).await;
    }
    for (name, guard) in guards {
        if name == "l7" || name == "l8" {
            assert_eq!(guard.lease().state(), LeaseState::Lost, "{name}");
        } else {
            assert_eq!(guard.lease().state(), LeaseState::Held, "{name}");
            guard.release().await.unwrap();
        }
    }
}

async fn wd_08_ten_thousand_holds_are_renewed_in_batches(backend: Backend) {
    let Backend::Redis(server) = &backend else {
        panic!("this fact counts a server's commands")
    };
    let client = backend.client().await;
    let ttl = Duration::from_secs(6);
    let mut takers = JoinSet::new();
    for taker in 0..100 {
        let client = client.clone();
        takers.spawn(async move {
            let mut guards = Vec::new();
            for number in 0..100 {
                let mutex = client.mutex(&format!("l{taker}:{number}")).ttl(ttl);
                guards.push(mutex.lock().await.unwrap());
            }
            guards
        });
    }
    let guards: Vec<_> = takers.join_all().await.into_iter().flatten().collect();
    let before = (
        server.calls("evalsha").await,
        testing::stats(&client).renewal_batches,
    );
    sleep(ttl * 3 / 2).await;
    let after = (
        server.calls("evalsha").await,
        testing::stats(&client).renewal_batches,
    );
    assert!(
        guards
            .iter()
            .all(|guard| guard.lease().state() == LeaseState::Held)
    );
    assert_eq!(server.query::<u32>(&["DBSIZE"]).await, 10_000);
    // Four and a half periods: each hold is renewed four or five times, a hundred at a time, and
    // a few batches are not full.
    let (commands, batches) = (after.0 - before.0, after.1 - before.1);
    assert!(batches >= 400, "{batches}: not everything was renewed");
    assert!(commands <= 100 * 5 + 25, "{commands} commands");
    drop(guards);
    eventually("every lock is free", async || {
        server.query::<u32>(&["DBSIZE"]).await == 0
    })
    .await;
    assert_eq!(testing::stats(&client).watched, 0);
}

async fn wd_09_a_lease_stays_with_its_hold(backend: Backend) {
    let client = backend.client().await;
    let mutex = client.mutex("x").ttl(Duration::from_secs(3));
    let long = mutex.clone().fixed_lease(Duration::from_secs(60));
    long.lock().await.unwrap().release().await.unwrap();
    let renewed = mutex.lock().await.unwrap();
    assert!(mutex.remaining().await.unwrap().unwrap() <= Duration::from_secs(3));
    renewed.release().await.unwrap();
    let fixed = long.lock().await.unwrap();
    fixed.reenter().release().await.unwrap();
    let left = mutex.remaining().await.unwrap().unwrap();
    assert!(left > Duration::from_secs(55), "{left:?}");
    fixed.release().await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 1..=20_u64 {
        let own = client.mutex(&format!("y{number}"));
        let lease = Duration::from_secs(number * 10);
        let own = if number.is_multiple_of(2) {
            own.fixed_lease(lease)
        } else {
            own.ttl(lease)
        };
        tasks.spawn(async move {
            let guard = own.lock().await.unwrap();
            let left = own.remaining().await.unwrap().unwrap();
            assert!(
                left <= lease && left > lease - Duration::from_secs(5),
                "{left:?} {lease:?}"
            );
            guard.release().await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn wd_13_a_release_is_no_loss(backend: Backend) {
    let client = backend.client().await;
    let mut random = Random::seeded("wd_13");
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let mutex = client
            .mutex(&format!("l{number}"))
            .ttl(Duration::from_millis(600));
        let mut random = Random::fixed(random.number());
        tasks.spawn(async move {
            for _ in 0..25 {
                let guard = mutex.lock().await.unwrap();
                let lease = guard.lease();
                let watcher = tokio::spawn(async move { lease.lost().await });
                sleep(Duration::from_millis(170) + random.up_to(Duration::from_millis(60))).await;
                guard.release().await.unwrap();
                assert!(!watcher.is_finished(), "a release was told as a loss");
                watcher.abort();
                assert!(watcher.await.is_err(), "a release was told as a loss");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let stats = testing::stats(&client);
    assert_eq!(stats.watched, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wd_03_a_lock_after_a_cut_connection_is_renewed() {
    let server = Server::start().await;
    let client = leasehold::Client::connect(&server.url()).await.unwrap();
    let mutex = client.mutex("x").ttl(Duration::from_millis(900));
    for _ in 0..3 {
        let held = mutex.lock().await.unwrap();
        server
            .query::<u32>(&["CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES"])
            .await;
        sleep(Duration::from_millis(2000)).await;
        assert_eq!(held.lease().state(), LeaseState::Held);
        assert_eq!(testing::stats(&client).watched, 1);
        held.release().await.unwrap();
        assert!(!mutex.is_locked().await.unwrap());
    }
}
