//! Named owners: who enters again, what the store counts, and what is left of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::testing::stats;
use leasehold::{Client, Error, LeaseState, Mutex, MutexGuard};
use leasehold_test::{Backend, Kind, Random, eventually};
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_millis(900);

/// The count that anybody sees.
async fn count(mutex: &Mutex) -> u64 {
    let status = mutex.status().await.unwrap();
    status.map_or(0, |status| status.count)
}

async fn entered(mutex: &Mutex, times: usize) -> Vec<MutexGuard> {
    let mut guards = vec![];
    for _ in 0..times {
        guards.push(mutex.lock().await.unwrap());
    }
    guards
}

pub(super) async fn an_owner_enters_again_and_the_store_counts(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let (owner, seen) = (one.owner(), two.mutex("m"));
    let mutex = one.mutex("m").owner(&owner);
    let outer = mutex.lock().await.unwrap();
    assert_eq!(count(&seen).await, 1);
    let inner = mutex.lock().await.unwrap();
    assert_eq!(inner.hold_id(), outer.hold_id());
    assert_eq!(count(&seen).await, 2);
    let tried = mutex.try_lock().await.unwrap().expect("it holds");
    assert_eq!(count(&seen).await, 3);
    let waited = mutex.try_lock_for(Duration::from_secs(9)).await.unwrap();
    assert_eq!(count(&seen).await, 4);
    // Showing a guard stays local.
    let shown = inner.reenter();
    assert_eq!(count(&seen).await, 4);
    if let Backend::Redis(server) = &store {
        let fields: Vec<String> = server.query(&["HGETALL", "m"]).await;
        assert_eq!(fields, [outer.hold_id().as_str(), "4"]);
    }
    tried.release().await.unwrap();
    assert_eq!(count(&seen).await, 3);
    waited.unwrap().release().await.unwrap();
    inner.release().await.unwrap();
    assert_eq!(count(&seen).await, 2);
    shown.release().await.unwrap();
    assert_eq!(count(&seen).await, 1);
    assert!(seen.try_lock().await.unwrap().is_none());
    outer.release().await.unwrap();
    assert!(!seen.is_locked().await.unwrap());
    assert_eq!((stats(&one).owners, stats(&one).owed), (0, 0));
}

pub(super) async fn every_first_entry_has_a_hold_of_its_own(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").owner(&client.owner());
    let first = mutex.lock().await.unwrap();
    let hold = first.hold_id().clone();
    first.release().await.unwrap();
    let second = mutex.lock().await.unwrap();
    assert_ne!(second.hold_id(), &hold);
    second.release().await.unwrap();
}

pub(super) async fn two_owners_exclude_each_other(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let (one, two) = (client.owner(), client.owner());
    assert_ne!(one, two);
    let (mine, yours) = (client.mutex("m").owner(&one), client.mutex("m").owner(&two));
    let guard = mine.lock().await.unwrap();
    assert!(yours.try_lock().await.unwrap().is_none());
    assert!(client.mutex("m").try_lock().await.unwrap().is_none());
    let waiter = tokio::spawn({
        let yours = yours.clone();
        async move { yours.lock().await.unwrap() }
    });
    eventually("it waits", async || stats(&client).listening == 1).await;
    // The holder goes past those in line.
    let inner = timeout(Duration::from_secs(5), mine.lock()).await;
    let inner = inner.expect("it waits for nobody").unwrap();
    guard.release().await.unwrap();
    assert!(mine.is_held_by(&one).await.unwrap());
    assert!(!mine.is_held_by(&two).await.unwrap());
    inner.release().await.unwrap();
    let next = waiter.await.unwrap();
    assert!(mine.try_lock().await.unwrap().is_none());
    assert_eq!(mine.hold_count(&two).await.unwrap(), 1);
    next.release().await.unwrap();
}

pub(super) async fn tasks_of_one_owner_enter_together(kind: Kind) {
    let store = Backend::start(kind).await;
    let (client, other) = store.clients().await;
    let owner = client.owner();
    let mutex = client.mutex("m").owner(&owner);
    // From free, from busy, by waiting and by trying: the second enters what the first has.
    let (a, b) = tokio::join!(mutex.try_lock(), mutex.try_lock());
    let (a, b) = (a.unwrap().unwrap(), b.unwrap().unwrap());
    assert_eq!(mutex.hold_count(&owner).await.unwrap(), 2);
    a.release().await.unwrap();
    b.release().await.unwrap();
    let busy = other.mutex("m").lock().await.unwrap();
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        })
        .collect();
    eventually("they wait", async || stats(&client).listening == 1).await;
    let strangers: Vec<_> = (0..3)
        .map(|_| {
            let mutex = client.mutex("m");
            tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    busy.release().await.unwrap();
    let mut inside = vec![];
    for waiter in waiters {
        inside.push(waiter.await.unwrap());
    }
    assert_eq!(other.mutex("m").status().await.unwrap().unwrap().count, 5);
    drop(inside);
    for stranger in strangers {
        stranger.await.unwrap();
    }
}

pub(super) async fn a_free_lock_that_an_owner_takes_while_it_waits_lets_the_waiter_in(kind: Kind) {
    let store = Backend::start(kind).await;
    let (client, other) = store.clients().await;
    let mutex = client.mutex("m").owner(&client.owner());
    let busy = other.mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.unwrap() }
    });
    eventually("it waits", async || stats(&client).listening == 1).await;
    // Where nothing is announced, only the other entry can tell.
    store.remove("m").await;
    let tried = mutex.try_lock().await.unwrap();
    let waited = timeout(Duration::from_secs(5), waiter).await;
    let waited = waited.expect("the waiter enters").unwrap();
    if let Some(tried) = tried {
        assert_eq!(tried.hold_id(), waited.hold_id());
        assert_eq!(count(&mutex).await, 2);
        tried.release().await.unwrap();
    } else {
        assert_eq!(
            kind,
            Kind::Local,
            "only there the waiter is told and may come first"
        );
    }
    waited.release().await.unwrap();
    drop(busy);
    assert!(!mutex.is_locked().await.unwrap());
}

pub(super) async fn a_thousand_entries_are_counted_at_every_step(kind: Kind) {
    let store = Backend::start(kind).await;
    let (client, other) = store.clients().await;
    let (owner, seen) = (client.owner(), other.mutex("m"));
    let mutex = client.mutex("m").owner(&owner);
    let mut guards = vec![];
    for depth in 1..=1000 {
        guards.push(mutex.lock().await.unwrap());
        assert_eq!(count(&seen).await, depth);
    }
    for depth in (1..1000).rev() {
        guards.pop().unwrap().release().await.unwrap();
        assert_eq!(mutex.hold_count(&owner).await.unwrap(), depth);
    }
    assert!(seen.try_lock().await.unwrap().is_none());
    guards.pop().unwrap().release().await.unwrap();
    assert!(!seen.is_locked().await.unwrap());
    assert!(seen.try_lock().await.unwrap().is_some());
}

pub(super) async fn guards_may_go_in_any_order(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").owner(&client.owner());
    for order in [[0, 0, 0], [2, 1, 0], [1, 0, 0], [0, 1, 0]] {
        let mut guards = entered(&mutex, 3).await;
        for (gone, at) in order.into_iter().enumerate() {
            drop(guards.remove(at));
            let left = 2 - gone as u64;
            eventually("it is counted", async || count(&mutex).await == left).await;
            eventually("nothing is owed", async || stats(&client).owed == 0).await;
            // A step ties the hold to this process as before.
            assert!(guards.iter().all(|guard| guard.hold_file().is_ok()));
        }
    }
    // All at once: what is left is what the last one leaves.
    drop(entered(&mutex, 50).await);
    eventually("it is free", async || count(&mutex).await == 0).await;
    eventually("nothing is owed", async || stats(&client).owed == 0).await;
    assert_eq!((stats(&client).owners, stats(&client).watched), (0, 0));
}

pub(super) async fn a_hold_lost_in_the_middle_is_lost_for_every_entry(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let owner = client.owner();
    let mutex = client.mutex("m").owner(&owner).ttl(Duration::from_secs(60));
    let guards = entered(&mutex, 3).await;
    store.remove("m").await;
    // The next entry finds it gone, makes nothing of it, and starts anew.
    let fresh = timeout(Duration::from_secs(5), mutex.lock()).await;
    let fresh = fresh.expect("it needs no renewal to find out").unwrap();
    assert_ne!(fresh.hold_id(), guards[0].hold_id());
    assert_eq!(count(&mutex).await, 1);
    for guard in &guards {
        assert_eq!(guard.lease().state(), LeaseState::Lost);
        timeout(TTL, guard.lost()).await.expect("it is latched");
    }
    for guard in guards {
        assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    }
    eventually("nothing is owed", async || stats(&client).owed == 0).await;
    assert_eq!(mutex.hold_count(&owner).await.unwrap(), 1);
    fresh.release().await.unwrap();
    assert!(!mutex.is_locked().await.unwrap());
}

pub(super) async fn a_step_down_finds_the_loss(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client
        .mutex("m")
        .owner(&client.owner())
        .ttl(Duration::from_secs(60));
    let mut guards = entered(&mutex, 3).await;
    store.remove("m").await;
    let released = guards.pop().unwrap().release().await;
    assert!(matches!(released, Err(Error::Lost(_))));
    assert!(!mutex.is_locked().await.unwrap(), "a step made a lock");
    assert_eq!(guards[0].lease().state(), LeaseState::Lost);
}

pub(super) async fn random_entries_leave_nothing(kind: Kind) {
    let store = Backend::start(kind).await;
    let (client, other) = store.clients().await;
    let mut random = Random::seeded("random_entries_leave_nothing");
    let (owner, inside) = (client.owner(), Arc::new(AtomicU64::new(0)));
    let mutex = client.mutex("m").owner(&owner);
    let end = Instant::now() + Duration::from_secs(2);
    let mut tasks = vec![];
    for _ in 0..6 {
        let random = Random::fixed(random.number());
        tasks.push(tokio::spawn(churn(
            mutex.clone(),
            Arc::clone(&inside),
            random,
            end,
        )));
    }
    let strange = tokio::spawn(async move {
        let mutex = other.mutex("m");
        while Instant::now() < end {
            let Some(guard) = mutex.try_lock().await.unwrap() else {
                sleep(Duration::from_millis(1)).await;
                continue;
            };
            assert_eq!(inside.load(Ordering::SeqCst), 0, "two owners are in");
            guard.release().await.unwrap();
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    strange.await.unwrap();
    eventually("nothing is owed", async || stats(&client).owed == 0).await;
    eventually("it is free", async || !mutex.is_locked().await.unwrap()).await;
    assert_eq!(mutex.hold_count(&owner).await.unwrap(), 0);
    let seen = stats(&client);
    assert_eq!((seen.owners, seen.watched, seen.lines), (0, 0, 0));
    if let Backend::Redis(server) = &store {
        assert!(server.keys().await.is_empty());
    }
}

/// Enters and leaves, in every way and at any moment.
async fn churn(mutex: Mutex, inside: Arc<AtomicU64>, mut random: Random, end: Instant) {
    let mut guards: Vec<MutexGuard> = vec![];
    while Instant::now() < end {
        let cut = random.up_to(Duration::from_micros(700));
        match random.between(0, 8) {
            // A future that is dropped at any moment.
            0 | 1 => {
                if let Ok(guard) = timeout(cut, mutex.lock()).await {
                    inside.fetch_add(1, Ordering::SeqCst);
                    guards.push(guard.unwrap());
                }
            }
            2 => {
                if let Some(guard) = mutex.try_lock().await.unwrap() {
                    inside.fetch_add(1, Ordering::SeqCst);
                    guards.push(guard);
                }
            }
            3 | 4 if !guards.is_empty() => {
                inside.fetch_sub(1, Ordering::SeqCst);
                guards.pop().unwrap().release().await.unwrap();
            }
            5 if !guards.is_empty() => {
                inside.fetch_sub(1, Ordering::SeqCst);
                let _ = timeout(cut, guards.remove(0).release()).await;
            }
            6 => {
                inside.fetch_sub(guards.len() as u64, Ordering::SeqCst);
                guards.clear();
            }
            _ => sleep(cut).await,
        }
        for guard in &guards {
            assert_eq!(guard.lease().state(), LeaseState::Held);
        }
    }
    inside.fetch_sub(guards.len() as u64, Ordering::SeqCst);
}

pub(super) async fn no_entry_shortens_the_lease(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let owner = client.owner();
    let left = async |low: u64, high: u64| {
        let left = client.mutex("m").remaining().await.unwrap().unwrap();
        assert!(
            left > Duration::from_secs(low) && left <= Duration::from_secs(high),
            "{left:?}"
        );
    };
    let with = |seconds| {
        client
            .mutex("m")
            .owner(&owner)
            .fixed_lease(Duration::from_secs(seconds))
    };
    let outer = with(60).lock().await.unwrap();
    let inner = with(1).lock().await.unwrap();
    left(55, 60).await;
    assert!(outer.lease().remaining() > Duration::from_secs(55));
    inner.release().await.unwrap();
    left(55, 60).await;
    let longer = with(90).lock().await.unwrap();
    left(85, 90).await;
    assert!(outer.lease().remaining() > Duration::from_secs(85));
    longer.release().await.unwrap();
    left(85, 90).await;
    let renewed = client
        .mutex("m")
        .owner(&owner)
        .ttl(Duration::from_secs(120));
    let renewed = renewed.lock().await.unwrap();
    left(115, 120).await;
    assert!(matches!(outer.extend(TTL).await, Err(Error::Config(_))));
    drop((outer, renewed));
}

pub(super) async fn what_cannot_work_with_an_owner_is_refused(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let foreign = two.owner();
    let config = |error: Option<Error>| assert!(matches!(error, Some(Error::Config(_))));
    let mutex = one.mutex("m").owner(&foreign);
    config(mutex.lock().await.err());
    config(mutex.try_lock().await.err());
    config(one.mutex("m").is_held_by(&foreign).await.err());
    config(one.mutex("m").hold_count(&foreign).await.err());
    let longest = Duration::from_secs(60);
    config(
        one.mutex("m")
            .owner(&one.owner())
            .max_hold(longest)
            .lock()
            .await
            .err(),
    );
    assert!(!one.mutex("m").is_locked().await.unwrap());
}

pub(super) async fn a_forgotten_entry_is_forgotten_by_all(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let owner = client.owner();
    let mutex = client.mutex("m").owner(&owner);
    let (one, two) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    let hold = one.forget();
    two.release().await.unwrap();
    assert_eq!(mutex.hold_count(&hold).await.unwrap(), 2);
    assert!(
        mutex.try_lock().await.unwrap().is_none(),
        "it is nobody's any more"
    );
    let plain = client.mutex("m");
    plain.adopt(hold).await.unwrap().release().await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

pub(super) async fn a_releasing_close_frees_what_was_entered_often(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let mut guards = vec![];
    for number in 0..5 {
        let mutex = one.mutex(&format!("m:{number}")).owner(&one.owner());
        guards.extend(entered(&mutex, number + 1).await);
    }
    let report = one.close_and_release().await;
    assert_eq!(
        (report.released, report.unreleased, report.outstanding),
        (5, 0, 0)
    );
    assert_eq!(two.list("*").await.unwrap(), []);
    for guard in guards {
        assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    }
}

pub(super) async fn a_closed_client_lets_nobody_in_again(kind: Kind) {
    let store = Backend::start(kind).await;
    let client = store.client().await;
    let mutex = client.mutex("m").owner(&client.owner());
    let guard = mutex.lock().await.unwrap();
    let inner = mutex.lock().await.unwrap();
    assert_eq!(client.clone().close().await.outstanding, 1);
    assert!(matches!(mutex.lock().await, Err(Error::Closed(_))));
    assert!(matches!(inner.release().await, Err(Error::Closed(_))));
    drop(guard);
    let seen = store.client().await.mutex("m");
    eventually("it is free", async || !seen.is_locked().await.unwrap()).await;
}

/// A taker whose field is a Java thread's.
async fn foreign(client: &Client, name: &str) -> leasehold::HoldId {
    let hold: leasehold::HoldId = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:-12".parse().unwrap();
    for count in 1..=3 {
        let call = leasehold::testing::Call::Acquire {
            name: name.to_owned(),
            hold: hold.clone(),
            count,
            ttl: Duration::from_secs(20),
        };
        assert_eq!(
            leasehold::testing::call(client, &call).await.unwrap().text,
            "Held"
        );
    }
    hold
}

pub(super) async fn an_adopted_hold_is_renewed_and_released_here(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let hold = one.mutex("m").ttl(TTL).lock().await.unwrap().forget();
    let adopted = two.mutex("m").ttl(TTL).adopt(hold.clone()).await.unwrap();
    assert_eq!(adopted.hold_id(), &hold);
    sleep(2 * TTL).await;
    assert_eq!(adopted.lease().state(), LeaseState::Held);
    assert!(two.mutex("m").is_held_by(&hold).await.unwrap());
    assert!(one.mutex("m").try_lock().await.unwrap().is_none());
    let again = two.mutex("m").adopt(hold.clone()).await;
    assert!(
        matches!(again, Err(Error::Config(_))),
        "it has that already"
    );
    adopted.release().await.unwrap();
    assert!(!one.mutex("m").is_locked().await.unwrap());
    let late = two.mutex("m").adopt(hold).await;
    assert!(matches!(late, Err(Error::Lost(_))));
    assert!(!one.mutex("m").is_locked().await.unwrap());
}

pub(super) async fn a_java_threads_holds_are_adopted_whole(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    // The same field under two names, as one thread has it.
    let hold = foreign(&one, "m").await;
    foreign(&one, "n").await;
    assert_eq!(two.mutex("m").hold_count(&hold).await.unwrap(), 3);
    let m = two.mutex("m").adopt(hold.clone()).await.unwrap();
    let n = two.mutex("n").ttl(TTL).adopt(hold.clone()).await.unwrap();
    assert_eq!(stats(&two).watched, 2);
    let left = one.mutex("m").remaining().await.unwrap().unwrap();
    assert!(left > Duration::from_secs(25), "{left:?}");
    m.release().await.unwrap();
    assert!(!one.mutex("m").is_locked().await.unwrap());
    assert_eq!(n.lease().state(), LeaseState::Held);
    store.remove("n").await;
    timeout(TTL, n.lost()).await.expect("the loss is told");
    assert!(matches!(n.release().await, Err(Error::Lost(_))));
}

pub(super) async fn a_fixed_adopter_takes_what_is_left(kind: Kind) {
    let store = Backend::start(kind).await;
    let (one, two) = store.clients().await;
    let hold = foreign(&one, "m").await;
    let mutex = two.mutex("m").fixed_lease(Duration::from_secs(3600));
    let guard = mutex.adopt(hold.clone()).await.unwrap();
    let left = guard.lease().remaining();
    assert!(
        left > Duration::from_secs(15) && left < Duration::from_secs(20),
        "{left:?}"
    );
    let there = one.mutex("m").remaining().await.unwrap().unwrap();
    assert!(left < there + Duration::from_secs(1) && there <= Duration::from_secs(20));
    guard.extend(Duration::from_secs(60)).await.unwrap();
    assert!(guard.lease().remaining() > Duration::from_secs(55));
    drop(guard);
    eventually("it is free", async || {
        !one.mutex("m").is_locked().await.unwrap()
    })
    .await;
    let other = two.mutex("m").lock().await.unwrap();
    assert!(matches!(mutex.adopt(hold).await, Err(Error::Lost(_))));
    let owned = two.mutex("n").owner(&two.owner());
    let refused = owned.adopt(other.hold_id().clone()).await;
    assert!(matches!(refused, Err(Error::Config(_))));
    other.release().await.unwrap();
}
