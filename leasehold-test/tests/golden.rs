//! Key states of the plain lock on a real server, as every Redisson client sees them.
//!
//! C is a client id, A = `C:1`, B = `C:2`. Where we deviate, and on purpose:
//!
//! | Redisson | we | why |
//! |---|---|---|
//! | an unlock leaves `redisson_unlock_latch:{name}:request` | no latch | a step names the count that it leaves, so repeating it changes nothing |
//! | re-entry sets the TTL, also to a shorter one | the longer TTL stays | no operation shortens the lease of another |
//! | a partial unlock sets the TTL to the internal lease | the longer TTL stays | the same |
//! | re-entry adds 1 to whatever is there | re-entry names the count to reach | a request may arrive twice |
//! | unlock of a lock that is not held is nil | it is -3, "no such hold" | it must differ from "held" |
//! | force-unlock deletes whatever is there | it refuses a key that is no lock | an operator's typing error |
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::time::Duration;

use leasehold::testing::{self, Call};
use leasehold::{Client, Error, HoldId};
use leasehold_test::Server;

const A: &str = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:1";
const B: &str = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:2";
const CHANNEL: &str = "redisson_lock__channel:{foo}";

struct Bench {
    server: Server,
    client: Client,
}

impl Bench {
    async fn new() -> Self {
        let server = Server::start().await;
        let client = Client::connect(&server.url()).await.unwrap();
        Self { server, client }
    }

    async fn call(&self, call: Call) -> (String, Option<Duration>) {
        let reply = testing::call(&self.client, &call).await.unwrap();
        (reply.text, reply.time)
    }

    async fn acquire(&self, hold: &str, count: u64, ttl: u64) -> (String, Option<Duration>) {
        let (name, ttl) = ("foo".to_owned(), Duration::from_millis(ttl));
        let hold: HoldId = hold.parse().unwrap();
        self.call(Call::Acquire {
            name,
            hold,
            count,
            ttl,
        })
        .await
    }

    async fn release(&self, hold: &str, leave: u64, ttl: u64) -> String {
        let (name, ttl) = ("foo".to_owned(), Duration::from_millis(ttl));
        let hold: HoldId = hold.parse().unwrap();
        let call = Call::Release {
            name,
            hold,
            leave,
            ttl,
        };
        self.call(call).await.0
    }

    async fn force_unlock(&self) -> String {
        let name = "foo".to_owned();
        self.call(Call::ForceUnlock { name }).await.0
    }

    /// The whole server holds `foo` with one field, and at most this TTL.
    async fn holds(&self, field: &str, count: &str, ttl: i64) {
        assert_eq!(self.server.keys().await, ["foo"]);
        let hash: Vec<(String, String)> = self.server.query(&["HGETALL", "foo"]).await;
        assert_eq!(hash, [(field.to_owned(), count.to_owned())]);
        let left: i64 = self.server.query(&["PTTL", "foo"]).await;
        assert!(left <= ttl && left > ttl - 2_000, "{left}");
    }

    async fn is_empty(&self) {
        assert_eq!(self.server.keys().await, Vec::<String>::new());
    }
}

fn held() -> (String, Option<Duration>) {
    ("Held".to_owned(), None)
}

#[tokio::test]
async fn an_acquire_makes_a_hash_of_one_field_with_a_ttl() {
    let bench = Bench::new().await;
    assert_eq!(bench.acquire(A, 1, 30_000).await, held());
    bench.holds(A, "1", 30_000).await;
}

#[tokio::test]
async fn a_shorter_re_entry_counts_and_keeps_the_longer_ttl() {
    let bench = Bench::new().await;
    assert_eq!(bench.acquire(A, 1, 30_000).await, held());
    assert_eq!(bench.acquire(A, 2, 10_000).await, held());
    bench.holds(A, "2", 30_000).await;
    assert_eq!(bench.acquire(A, 2, 10_000).await, held());
    bench.holds(A, "2", 30_000).await;
    assert_eq!(bench.acquire(A, 3, 60_000).await, held());
    bench.holds(A, "3", 60_000).await;
}

#[tokio::test]
async fn another_is_told_the_time_that_is_left() {
    let bench = Bench::new().await;
    assert_eq!(bench.acquire(A, 1, 10_000).await, held());
    let (text, left) = bench.acquire(B, 1, 30_000).await;
    assert_eq!(text, "Busy");
    let left = left.unwrap();
    assert!(left <= Duration::from_secs(10) && left > Duration::from_secs(8));
    bench.holds(A, "1", 10_000).await;
}

#[tokio::test]
async fn a_release_by_another_changes_nothing() {
    let bench = Bench::new().await;
    let mut heard = bench.server.listen(CHANNEL).await;
    assert_eq!(bench.acquire(A, 1, 30_000).await, held());
    assert_eq!(bench.release(B, 0, 30_000).await, "Gone");
    bench.holds(A, "1", 30_000).await;
    bench
        .server
        .query::<u64>(&["PUBLISH", CHANNEL, "end"])
        .await;
    assert_eq!(heard.next().await, "end");
}

#[tokio::test]
async fn a_partial_release_counts_down_leaves_no_latch_and_may_be_repeated() {
    let bench = Bench::new().await;
    bench.acquire(A, 1, 60_000).await;
    bench.acquire(A, 2, 60_000).await;
    for _ in 0..2 {
        assert_eq!(bench.release(A, 1, 30_000).await, "StillHeld");
        bench.holds(A, "1", 60_000).await;
    }
}

#[tokio::test]
async fn the_last_release_deletes_and_announces_once() {
    let bench = Bench::new().await;
    let mut heard = bench.server.listen(CHANNEL).await;
    bench.acquire(A, 1, 30_000).await;
    let freed = "Freed { announced: true }";
    assert_eq!(bench.release(A, 0, 30_000).await, freed);
    bench.is_empty().await;
    assert_eq!(bench.release(A, 0, 30_000).await, "Gone");
    assert_eq!(heard.next().await, "0");
    bench
        .server
        .query::<u64>(&["PUBLISH", CHANNEL, "end"])
        .await;
    assert_eq!(heard.next().await, "end");
}

#[tokio::test]
async fn breaking_a_lock_deletes_and_announces_once() {
    let bench = Bench::new().await;
    let mut heard = bench.server.listen(CHANNEL).await;
    bench.acquire(A, 1, 30_000).await;
    bench.acquire(A, 2, 30_000).await;
    assert_eq!(bench.force_unlock().await, "true");
    bench.is_empty().await;
    assert_eq!(bench.force_unlock().await, "false");
    assert_eq!(heard.next().await, "0");
    bench
        .server
        .query::<u64>(&["PUBLISH", CHANNEL, "end"])
        .await;
    assert_eq!(heard.next().await, "end");
}

#[tokio::test]
async fn breaking_refuses_what_is_no_lock() {
    let bench = Bench::new().await;
    let server = &bench.server;
    for (put, count) in [
        (&["SET", "foo", "text"][..], 1_u64),
        (&["HSET", "foo", "field", "1"], 1),
        (&["HSET", "foo", A, "x"], 1),
        (&["HSET", "foo", "7-1-1-1-1:3", "1"], 1),
        (&["HSET", "foo", A, "1", B, "1"], 2),
        (&["HSET", "foo", "mode", "write", A, "1"], 2),
        (&["RPUSH", "foo", A], 1),
    ] {
        server.query::<redis::Value>(put).await;
        assert_eq!(bench.force_unlock().await, "Protocol", "{put:?} {count}");
        assert_eq!(server.query::<u64>(&["DEL", "foo"]).await, 1, "{put:?}");
    }
}

#[tokio::test]
async fn a_step_without_its_base_makes_nothing() {
    let bench = Bench::new().await;
    assert_eq!(bench.acquire(A, 2, 30_000).await.0, "Gone");
    assert_eq!(bench.release(A, 1, 30_000).await, "Gone");
    bench.is_empty().await;
    bench.acquire(A, 1, 30_000).await;
    assert_eq!(bench.acquire(A, 3, 30_000).await.0, "Gone");
    bench.holds(A, "1", 30_000).await;
}

#[tokio::test]
async fn the_mutex_of_a_client_is_that_very_hash() {
    let bench = Bench::new().await;
    let mut heard = bench.server.listen(CHANNEL).await;
    let guard = bench.client.mutex("foo").lock().await.unwrap();
    bench.holds(guard.hold_id().as_str(), "1", 30_000).await;
    let (client, serial) = guard.hold_id().as_str().split_once(':').unwrap();
    assert!(uuid::Uuid::try_parse(client).is_ok());
    assert!(serial.bytes().all(|digit| digit.is_ascii_digit()));
    guard.release().await.unwrap();
    assert_eq!(heard.next().await, "0");
    bench.is_empty().await;
}

#[tokio::test]
async fn a_waiter_hears_a_foreign_release() {
    let bench = Bench::new().await;
    let server = &bench.server;
    server.query::<u64>(&["HSET", "foo", A, "1"]).await;
    server.query::<u64>(&["PEXPIRE", "foo", "30000"]).await;
    let mutex = bench.client.mutex("foo");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    leasehold_test::eventually("it listens", async || {
        let told: (String, u64) = server.query(&["PUBSUB", "NUMSUB", CHANNEL]).await;
        told.1 == 1
    })
    .await;
    server.query::<u64>(&["DEL", "foo"]).await;
    server.query::<u64>(&["PUBLISH", CHANNEL, "0"]).await;
    let guard = leasehold_test::within("the waiter", waiter).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(testing::stats(&bench.client).woken_by_timer, 0);
}

#[tokio::test]
async fn an_announcement_is_a_hint_and_no_grant() {
    let bench = Bench::new().await;
    let server = &bench.server;
    let guard = bench.client.mutex("foo").lock().await.unwrap();
    let other = Client::connect(&server.url()).await.unwrap();
    let mutex = other.mutex("foo");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    leasehold_test::eventually("it listens", async || {
        let told: (String, u64) = server.query(&["PUBSUB", "NUMSUB", CHANNEL]).await;
        told.1 == 1
    })
    .await;
    for (woken, payload) in ["0", "1", "", "x", "\u{1F512}", "-9223372036854775808"]
        .iter()
        .enumerate()
    {
        server.query::<u64>(&["PUBLISH", CHANNEL, payload]).await;
        leasehold_test::eventually("it is woken", async || {
            testing::stats(&other).woken_by_message > woken as u64
        })
        .await;
        assert!(!waiter.is_finished());
        bench.holds(guard.hold_id().as_str(), "1", 30_000).await;
    }
    guard.release().await.unwrap();
    let guard = leasehold_test::within("the waiter", waiter).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_script_that_the_server_forgot_is_no_busy_lock() {
    let bench = Bench::new().await;
    let mutex = bench.client.mutex("foo");
    for _ in 0..3 {
        bench.server.query::<()>(&["SCRIPT", "FLUSH"]).await;
        let guard = mutex.try_lock().await.unwrap().unwrap();
        bench.server.query::<()>(&["SCRIPT", "FLUSH"]).await;
        guard.release().await.unwrap();
        bench.is_empty().await;
    }
}

#[tokio::test]
async fn a_lock_without_a_ttl_is_held_and_its_time_is_unknown() {
    let bench = Bench::new().await;
    bench.server.query::<u64>(&["HSET", "foo", A, "3"]).await;
    let mutex = bench.client.mutex("foo");
    assert_eq!(bench.acquire(B, 1, 30_000).await, ("Busy".to_owned(), None));
    let status = mutex.status().await.unwrap().unwrap();
    assert_eq!((status.hold.as_str(), status.count), (A, 3));
    assert_eq!(status.remaining, None);
    let before = bench.server.calls("evalsha").await;
    let wait = Duration::from_millis(500);
    assert!(mutex.try_lock_for(wait).await.unwrap().is_none());
    let tries = bench.server.calls("evalsha").await - before;
    assert!(tries <= 4, "{tries}");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    leasehold_test::eventually("it listens", async || {
        let told: (String, u64) = bench.server.query(&["PUBSUB", "NUMSUB", CHANNEL]).await;
        told.1 == 1
    })
    .await;
    assert_eq!(bench.force_unlock().await, "true");
    let guard = leasehold_test::within("the waiter", waiter).await.unwrap();
    guard.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_key_of_another_type_is_told_apart_from_a_busy_lock() {
    let bench = Bench::new().await;
    bench.server.query::<u64>(&["RPUSH", "foo", "x"]).await;
    assert_eq!(bench.acquire(A, 1, 30_000).await.0, "Protocol");
    assert_eq!(bench.release(A, 0, 30_000).await, "Protocol");
    let taken = bench.client.mutex("foo").try_lock().await;
    assert!(matches!(taken, Err(Error::Protocol(_))));
    assert_eq!(bench.server.query::<u64>(&["LLEN", "foo"]).await, 1);
}
