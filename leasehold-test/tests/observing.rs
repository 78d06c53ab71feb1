//! What is told and measured, compared with the manual's page `observing`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

#[path = "observing/page.rs"]
mod page;
#[path = "observing/recorder.rs"]
mod recorder;
#[path = "observing/subscriber.rs"]
mod subscriber;

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{Client, Error, Memory, MutexGuard};
use leasehold_test::{Server, eventually, within};
use tokio::task::JoinHandle;

use recorder::Recorder;
use subscriber::Subscriber;

const PASSWORD: &str = "hunter2-is-secret";
const TTL: Duration = Duration::from_millis(600);

/// A listener to everything that the test's thread does, and so its runtime.
struct Heard {
    told: Subscriber,
    measured: Recorder,
}

impl Heard {
    async fn of<T>(script: impl AsyncFnOnce(&Self) -> T) -> (Self, T) {
        let heard = Self {
            told: Subscriber::default(),
            measured: Recorder::default(),
        };
        let done = {
            let _told = tracing::subscriber::set_default(heard.told.clone());
            let _measured = metrics::set_default_local_recorder(&heard.measured);
            within("the script", script(&heard)).await
        };
        (heard, done)
    }

    async fn event(&self, name: &str, having: &str) {
        let told = async || self.told.has(name, having);
        eventually(&format!("{name} {having} was told"), told).await;
    }
}

fn waiter(client: &Client, name: &str) -> JoinHandle<Result<MutexGuard, Error>> {
    let mutex = client.mutex(name).ttl(TTL);
    tokio::spawn(async move { mutex.lock().await })
}

/// Everything that the page lists happens at least once.
async fn everything(heard: &Heard) {
    let args = [
        "--user",
        "app",
        "on",
        &format!(">{PASSWORD}"),
        "~*",
        "&*",
        "+@all",
    ];
    let mut server = Server::start_with(&args).await;
    let url = format!("redis://app:{PASSWORD}@127.0.0.1:{}/", server.port());
    let builder = || Client::builder().response_timeout(Duration::from_millis(300));
    let one = builder().connect(&url).await.unwrap();
    let two = builder().connect(&url).await.unwrap();

    // Held, busy, waited for and woken.
    let mutex = one.mutex("m").ttl(TTL);
    let guard = mutex.lock().await.unwrap();
    assert!(two.mutex("m").try_lock().await.unwrap().is_none());
    let waiting = waiter(&two, "m");
    eventually("it waits", async || {
        heard.measured.value("leasehold_waiters") == 1.0
    })
    .await;
    heard.event("renewed", "m").await;
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    heard.event("woken", "message").await;

    // A dropped call, and a dropped guard, which the reaper gives back.
    let waiting = waiter(&one, "m");
    eventually("it waits", async || {
        heard.measured.value("leasehold_waiters") == 1.0
    })
    .await;
    waiting.abort();
    drop(guard);
    heard.event("released", "reaper").await;

    // Lost: found by the renewal, found by the release, and by the clock.
    let gone = mutex.lock().await.unwrap();
    server.query::<u64>(&["DEL", "m"]).await;
    gone.lost().await;
    assert!(gone.release().await.is_err());
    let late = one.mutex("late").ttl(TTL).lock().await.unwrap();
    server.query::<u64>(&["DEL", "late"]).await;
    assert!(matches!(late.release().await, Err(Error::Lost(_))));
    let short = one.mutex("short").fixed_lease(TTL).lock().await.unwrap();
    short.lost().await;
    drop(short);

    // An outage, under a waiter and a hold that is long enough for it.
    let long = Duration::from_secs(30);
    let held = one.mutex("held").ttl(long).lock().await.unwrap();
    let brief = one.mutex("brief").ttl(TTL).lock().await.unwrap();
    let waiting = waiter(&two, "held");
    eventually("it waits", async || {
        heard.measured.value("leasehold_waiters") == 1.0
    })
    .await;
    server.pause();
    heard.event("uncertain", "").await;
    heard.event("silent", "").await;
    server.kill();
    heard.event("disconnected", "announcements").await;
    heard.event("unreachable", "commands").await;
    let failed = mutex.clone().outage(Duration::from_millis(50)).lock().await;
    assert!(matches!(failed, Err(Error::Unavailable { .. })));
    brief.lost().await;
    drop(brief);
    server.restart().await;
    heard.event("reconnected", "commands").await;
    heard.event("reconnected", "announcements").await;
    held.lost().await;
    drop(held);
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // Closed under a hold.
    let closed = one.mutex("closed").ttl(TTL).lock().await.unwrap();
    one.close_and_release().await;
    closed.lost().await;
    two.close().await;
}

#[tokio::test]
async fn what_is_told_and_measured_is_what_the_manual_lists() {
    let (heard, ()) = Heard::of(everything).await;
    assert_eq!(heard.told.spans(), page::told("## Spans"));
    assert_eq!(heard.told.events(), page::told("## Events"));
    assert_eq!(heard.measured.measurements(), page::measured());
    assert_eq!(heard.measured.described(), heard.measured.units());

    let values = [
        ("acquire", "outcome", "held busy failed cancelled"),
        ("renew", "outcome", "answered unknown"),
        ("release", "outcome", "freed lost"),
        ("woken", "cause", "message gap"),
        ("lost", "reason", "expired gone closed"),
        ("reconnected", "connection", "commands announcements"),
    ];
    for (name, field, all) in values {
        let all: BTreeSet<_> = all.split(' ').map(str::to_owned).collect();
        let seen = heard.told.values(name, field);
        assert!(all.is_subset(&seen), "{name} {field}: {seen:?}");
    }
    for gauge in ["leasehold_waiters", "leasehold_holds"] {
        assert_eq!(
            heard.measured.value(gauge),
            0.0,
            "{gauge} does not return to zero"
        );
    }
    for counter in ["losses", "wakes", "reconnects"] {
        let name = format!("leasehold_{counter}_total");
        assert!(heard.measured.value(&name) > 0.0, "{name}");
    }
    for text in heard.told.texts().into_iter().chain(heard.measured.texts()) {
        assert!(!text.contains(PASSWORD), "{text}");
    }
    assert!(
        heard
            .told
            .texts()
            .iter()
            .any(|text| text.contains("127.0.0.1"))
    );
}

#[tokio::test(start_paused = true)]
async fn measurements_follow_a_hold_from_its_wait_to_its_end() {
    let (heard, ()) = Heard::of(async |heard: &Heard| {
        let memory = Memory::new();
        let one = Client::builder().memory(&memory);
        let two = Client::builder().memory(&memory);
        let lease = Duration::from_secs(30);
        let guard = one.mutex("m").lock().await.unwrap();
        let mutex = two.mutex("m");
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        tokio::time::sleep(lease).await;
        assert_eq!(heard.measured.value("leasehold_holds"), 1.0);
        assert_eq!(heard.measured.value("leasehold_waiters"), 1.0);
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap();
        assert_eq!(heard.measured.value("leasehold_waiters"), 0.0);
        assert_eq!(guard.reenter().hold_id(), guard.hold_id());
        assert_eq!(heard.measured.value("leasehold_holds"), 1.0);
        let _ = guard.forget();
        assert_eq!(heard.measured.value("leasehold_holds"), 0.0);
        assert_eq!(heard.measured.value("leasehold_losses_total"), 0.0);
        one.close().await;
        two.close().await;
    })
    .await;
    let waits = heard.measured.samples("leasehold_wait_seconds");
    assert_eq!(waits.len(), 2);
    assert!(waits[0] < 1.0 && waits[1] >= 30.0, "{waits:?}");
    let margins = heard.measured.samples("leasehold_renewal_margin_seconds");
    assert!(margins.len() >= 2, "{margins:?}");
    for margin in margins {
        // Two thirds of the TTL, less 1 % of it and 2 ms.
        assert!((margin - 19.698).abs() < 0.1, "{margin}");
    }
}

#[tokio::test]
async fn an_uncontended_lock_does_not_wait() {
    let (heard, ()) = Heard::of(async |_: &Heard| {
        let client = Client::memory();
        let guard = client.mutex("m").lock().await.unwrap();
        guard.release().await.unwrap();
        client.close().await;
    })
    .await;
    assert!(!heard.told.spans().keys().any(|name| name == "wait"));
    assert_eq!(heard.told.events().len(), 2, "acquired and released");
    assert_eq!(heard.measured.value("leasehold_wakes_total"), 0.0);
}

#[tokio::test]
async fn an_entry_that_is_dropped_while_others_are_in_frees_nothing() {
    let (heard, ()) = Heard::of(async |_: &Heard| {
        let client = Client::memory();
        let mutex = client.mutex("m").owner(&client.owner());
        let guard = mutex.lock().await.unwrap();
        drop(mutex.lock().await.unwrap());
        eventually("it has stepped back", async || {
            mutex.hold_count(guard.hold_id()).await.unwrap() == 1
        })
        .await;
        guard.release().await.unwrap();
        assert_eq!(client.close().await.unreleased, 0);
    })
    .await;
    let by = heard.told.values("released", "by");
    assert_eq!(by.into_iter().collect::<Vec<_>>(), ["caller"]);
}

#[tokio::test]
async fn a_call_that_takes_a_lock_is_small_although_it_is_observed() {
    let client = Client::memory();
    let mutex = client.mutex("m");
    let size = size_of_val(&mutex.lock());
    assert!(size <= 2048, "{size} bytes");
}
