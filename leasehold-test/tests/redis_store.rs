//! The Redis store against real servers, each test with one of its own.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests, too"
)]

use std::time::Duration;

use leasehold::testing::stats;
use leasehold::{Client, Error, LeaseState, Refusal};
use leasehold_test::{Server, eventually};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Long enough for everything that must happen, short of any TTL in these tests.
const SOON: Duration = Duration::from_secs(8);
const MILLI: Duration = Duration::from_millis(1);

async fn client(server: &Server) -> Client {
    Client::connect(&server.url()).await.unwrap()
}

async fn raw(server: &Server) -> Raw {
    Raw::connect(&server.url()).await
}

/// A connection beside the client under test.
struct Raw(MultiplexedConnection);

impl Raw {
    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        Self(client.get_multiplexed_async_connection().await.unwrap())
    }

    async fn ask<T: FromRedisValue>(&mut self, words: &str) -> T {
        self.try_ask(words).await.unwrap()
    }

    async fn try_ask<T: FromRedisValue>(&mut self, words: &str) -> RedisResult<T> {
        let mut words = words.split_whitespace();
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.0).await
    }
}

fn waiter(client: &Client, name: &str) -> tokio::task::JoinHandle<leasehold::MutexGuard> {
    let mutex = client.mutex(name);
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

async fn subscribed(raw: &mut Raw, name: &str) {
    let ask = format!("PUBSUB NUMSUB redisson_lock__channel:{{{name}}}");
    eventually("the waiter is subscribed", async || {
        raw.ask::<(String, u64)>(&ask).await.1 == 1
    })
    .await;
}

async fn commands(raw: &mut Raw) -> String {
    raw.ask("INFO commandstats").await
}

#[tokio::test]
async fn an_uncontended_lock_and_unlock_are_two_commands_and_no_subscription() {
    let server = Server::start().await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let mut monitor = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    monitor.write_all(b"MONITOR\r\n").await.unwrap();
    let mut lines = BufReader::new(monitor).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "+OK");

    let guard = client.mutex("once").lock().await.unwrap();
    let hash: Vec<(String, String)> = raw.ask("HGETALL once").await;
    assert_eq!(hash, [(guard.hold_id().to_string(), "1".to_owned())]);
    let (client_id, serial) = hash[0].0.split_once(':').unwrap();
    assert!(client_id.parse::<uuid::Uuid>().is_ok() && serial.parse::<u64>().is_ok());
    let pttl: u64 = raw.ask("PTTL once").await;
    assert!((20_001..=30_000).contains(&pttl), "{pttl}");
    guard.release().await.unwrap();
    assert_eq!(raw.ask::<u64>("EXISTS once").await, 0);

    let mut ours = Vec::new();
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if line.contains(" lua] ") {
            continue;
        }
        if line.contains("\"EXISTS\"") {
            break;
        }
        if !line.contains("\"HGETALL\"") && !line.contains("\"PTTL\"") {
            ours.push(line);
        }
    }
    let scripts = ours.iter().filter(|line| line.contains("\"EVALSHA\""));
    assert!(scripts.count() == 2 && ours.len() == 2, "{ours:#?}");
    let list: String = raw.ask("CLIENT LIST").await;
    assert_eq!(list.matches(" name=leasehold").count(), 1, "{list}");
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_client_long_before_the_ttl() {
    let server = Server::start().await;
    let (holder, other) = (client(&server).await, client(&server).await);
    let mut raw = raw(&server).await;
    let guard = holder.mutex("hand").lock().await.unwrap();
    let waiting = waiter(&other, "hand");
    subscribed(&mut raw, "hand").await;
    let begun = Instant::now();
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(stats(&other).woken_by_timer, 0);
    guard.release().await.unwrap();
    eventually("nobody is subscribed", async || {
        raw.ask::<Vec<String>>("PUBSUB CHANNELS").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn many_channels_are_listened_to_and_all_are_woken() {
    let server = Server::start().await;
    let (holder, other) = (client(&server).await, client(&server).await);
    let mut raw = raw(&server).await;
    let (mut guards, mut waiting) = (Vec::new(), Vec::new());
    for n in 0..200 {
        guards.push(holder.mutex(&format!("m{n}")).lock().await.unwrap());
        waiting.push(waiter(&other, &format!("m{n}")));
    }
    for kills in [0, 1] {
        eventually("all are subscribed", async || {
            raw.ask::<Vec<String>>("PUBSUB CHANNELS").await.len() == 200
        })
        .await;
        if kills == 0 {
            assert_eq!(raw.ask::<u64>("CLIENT KILL TYPE pubsub").await, 1);
        }
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    for waiting in waiting {
        drop(timeout(SOON, waiting).await.unwrap().unwrap());
    }
    assert_eq!(stats(&other).woken_by_timer, 0);
}

#[tokio::test]
async fn a_script_flush_between_any_two_commands_is_harmless() {
    let server = Server::start().await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let mutex = client.mutex("flush");
    for _ in 0..3 {
        let _: () = raw.ask("SCRIPT FLUSH").await;
        let guard = mutex.lock().await.unwrap();
        let _: () = raw.ask("SCRIPT FLUSH").await;
        assert!(mutex.try_lock().await.unwrap().is_none());
        let _: () = raw.ask("SCRIPT FLUSH").await;
        guard.release().await.unwrap();
    }
    assert_eq!(raw.ask::<u64>("EXISTS flush").await, 0);
}

#[tokio::test]
async fn a_hold_outlives_its_connection_and_is_certain_again() {
    let server = Server::start().await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let guard = client.mutex("cut").lock().await.unwrap();
    // The engine asks about the hold as soon as the store tells of the new connection.
    assert!(!commands(&mut raw).await.contains("cmdstat_hexists"));
    assert_eq!(
        raw.ask::<u64>("CLIENT KILL TYPE normal SKIPME yes").await,
        1
    );
    eventually("the hold was asked for again", async || {
        commands(&mut raw).await.contains("cmdstat_hexists")
    })
    .await;
    eventually("the hold is certain", async || {
        guard.lease().state() == LeaseState::Held
    })
    .await;
    guard.release().await.unwrap();
    assert_eq!(raw.ask::<u64>("EXISTS cut").await, 0);
}

#[tokio::test]
async fn a_waiter_is_woken_after_all_connections_were_killed() {
    let server = Server::start().await;
    let (holder, other) = (client(&server).await, client(&server).await);
    let mut raw = raw(&server).await;
    let guard = holder.mutex("kills").lock().await.unwrap();
    let waiting = waiter(&other, "kills");
    subscribed(&mut raw, "kills").await;
    assert_eq!(raw.ask::<u64>("CLIENT KILL TYPE pubsub").await, 1);
    assert_eq!(
        raw.ask::<u64>("CLIENT KILL TYPE normal SKIPME yes").await,
        2
    );
    subscribed(&mut raw, "kills").await;
    guard.release().await.unwrap();
    drop(timeout(SOON, waiting).await.unwrap().unwrap());
    assert_eq!(stats(&other).woken_by_timer, 0);
}

#[tokio::test]
async fn a_waiter_is_woken_though_its_connection_dies_at_the_moment_of_the_release() {
    let server = Server::start().await;
    let (holder, other) = (client(&server).await, client(&server).await);
    let mut raw = raw(&server).await;
    for _ in 0..8 {
        let guard = holder.mutex("gap").lock().await.unwrap();
        let waiting = waiter(&other, "gap");
        subscribed(&mut raw, "gap").await;
        let killed = raw.ask::<u64>("CLIENT KILL TYPE pubsub");
        let (_, released) = tokio::join!(killed, guard.release());
        released.unwrap();
        let guard = timeout(SOON, waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(stats(&other).woken_by_timer, 0);
}

#[tokio::test]
async fn a_server_that_forgot_is_noticed_and_gives_new_locks() {
    let mut server = Server::start().await;
    let client = client(&server).await;
    let mutex = client.mutex("forgot");
    let guard = mutex.lock().await.unwrap();
    server.kill();
    server.restart().await;
    timeout(SOON, guard.lost()).await.unwrap();
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    let guard = timeout(SOON, mutex.lock()).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_frozen_server_fails_the_call_in_time_and_keeps_nothing_when_it_thaws() {
    let server = Server::start().await;
    let client = Client::builder()
        .response_timeout(MILLI * 300)
        .connect_timeout(MILLI * 300)
        .call_timeout(MILLI * 2000)
        .connect(&server.url())
        .await
        .unwrap();
    let mut raw = raw(&server).await;
    server.pause();
    let begun = Instant::now();
    let error = client.mutex("frozen").try_lock().await.unwrap_err();
    let took = begun.elapsed();
    server.resume();
    assert!(took < MILLI * 2500, "{took:?}");
    let away = matches!(error, Error::Timeout(_) | Error::Unavailable { .. });
    assert!(away, "{error:?}");
    eventually("nothing is owed", async || stats(&client).owed == 0).await;
    assert_eq!(raw.ask::<u64>("EXISTS frozen").await, 0);
    // Whatever the old connection still had in it was cut off.
    let commands = commands(&mut raw).await;
    // Redis 6 does not count subcommands apart.
    let apart = commands.contains("cmdstat_client|");
    assert!(
        !apart || commands.contains("cmdstat_client|kill"),
        "{commands}"
    );
    assert!(client.mutex("frozen").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_frozen_server_does_not_leave_a_waiter_deaf() {
    let server = Server::start().await;
    let holder = client(&server).await;
    let other = Client::builder()
        .response_timeout(MILLI * 300)
        .connect(&server.url())
        .await
        .unwrap();
    let mut raw = raw(&server).await;
    let guard = holder.mutex("beat").lock().await.unwrap();
    let waiting = waiter(&other, "beat");
    subscribed(&mut raw, "beat").await;
    server.pause();
    // A heartbeat that is missed cuts the connection, and the waiter looks by itself.
    eventually("the waiter was told of a gap", async || {
        stats(&other).woken_by_gap > 0
    })
    .await;
    server.resume();
    guard.release().await.unwrap();
    drop(timeout(SOON, waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_user_that_may_not_ping_keeps_its_subscription() {
    let server = Server::start().await;
    let mut raw = raw(&server).await;
    let _: () = raw.ask("ACL SETUSER bob on nopass ~* &* +@all -ping").await;
    let holder = client(&server).await;
    let url = format!("redis://bob@127.0.0.1:{}", server.port());
    let other = Client::connect(&url).await.unwrap();
    let guard = holder.mutex("quiet").lock().await.unwrap();
    let waiting = waiter(&other, "quiet");
    subscribed(&mut raw, "quiet").await;
    eventually("two heartbeats were refused", async || {
        let all = commands(&mut raw).await;
        let line = all.lines().find(|line| line.starts_with("cmdstat_ping:"));
        line.is_some_and(|line| line.contains("rejected_calls=2,"))
    })
    .await;
    assert_eq!(stats(&other).woken_by_gap, 0);
    guard.release().await.unwrap();
    drop(timeout(SOON, waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_dead_server_is_unavailable_and_waited_for_when_it_comes_back() {
    let mut server = Server::start().await;
    let client = client(&server).await;
    server.kill();
    let lock = client.mutex("back").outage(MILLI * 200).lock().await;
    assert!(matches!(lock, Err(Error::Unavailable { .. })), "{lock:?}");
    let waiting = waiter(&client, "back");
    server.restart().await;
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    server.kill();
    let refused = Client::connect(&server.url()).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    assert!(!refused.outcome_is_unknown());
}

/// The password must not be seen in anything that is shown.
fn is_discreet(shown: &dyn std::fmt::Debug) {
    let shown = format!("{shown:?} {shown:#?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_an_authentication_error_that_hides_it() {
    let server = Server::start_with(&["--requirepass", "right"]).await;
    for log_in in ["", ":hunter2@", "nobody:hunter2@"] {
        let url = format!("redis://{log_in}127.0.0.1:{}", server.port());
        let error = Client::connect(&url).await.unwrap_err();
        let auth = matches!(error, Error::Refused(Refusal::Auth(_)));
        assert!(auth, "{log_in} {error:?}");
        assert!(!error.to_string().contains("hunter2"));
        is_discreet(&error);
    }
}

#[tokio::test]
async fn a_password_that_was_changed_fails_calls_at_once_after_a_reconnect() {
    let server = Server::start_with(&["--requirepass", "hunter2"]).await;
    let url = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    let client = Client::connect(&url).await.unwrap();
    is_discreet(&client);
    let mut raw = Raw::connect(&url).await;
    let _: () = raw.ask("CONFIG SET requirepass other").await;
    let _: u64 = raw.ask("CLIENT KILL TYPE normal SKIPME yes").await;
    let lock = timeout(SOON, client.mutex("x").lock()).await.unwrap();
    let error = lock.unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::Auth(_))),
        "{error:?}"
    );
    is_discreet(&error);
    let _: () = raw.ask("CONFIG SET requirepass hunter2").await;
    eventually("the client logs in again", async || {
        let lock = client.mutex("x").try_lock().await;
        lock.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

#[tokio::test]
async fn user_password_and_database_number_are_used() {
    let server = Server::start().await;
    let mut raw = raw(&server).await;
    let _: () = raw.ask("ACL SETUSER ann on >hunter2 ~* &* +@all").await;
    let url = format!("redis://ann:hunter2@127.0.0.1:{}/3", server.port());
    let client = Client::connect(&url).await.unwrap();
    is_discreet(&client);
    let guard = client.mutex("third").lock().await.unwrap();
    assert_eq!(raw.ask::<u64>("EXISTS third").await, 0);
    let mut third = Raw::connect(&format!("{}3", server.url())).await;
    assert_eq!(third.ask::<u64>("EXISTS third").await, 1);
    let list: String = raw.ask("CLIENT LIST").await;
    assert!(list.contains("user=ann"), "{list}");
    // The connection that follows uses them as well.
    assert_eq!(raw.ask::<u64>("CLIENT KILL USER ann").await, 1);
    guard.release().await.unwrap();
    assert_eq!(third.ask::<u64>("EXISTS third").await, 0);
    let error = Client::connect(&format!("{}99", server.url())).await;
    assert!(matches!(error, Err(Error::Config(_))), "{error:?}");
}

#[tokio::test]
async fn a_missing_right_is_a_permission_error() {
    let server = Server::start().await;
    let mut raw = raw(&server).await;
    let _: () = raw
        .ask("ACL SETUSER bob on >hunter2 ~* &* +@all -evalsha")
        .await;
    let url = format!("redis://bob:hunter2@127.0.0.1:{}", server.port());
    let client = Client::connect(&url).await.unwrap();
    let error = client.mutex("x").lock().await.unwrap_err();
    let denied = matches!(error, Error::Refused(Refusal::Permission(_)));
    assert!(denied, "{error:?}");
    is_discreet(&error);
    assert_eq!(client.close().await.unreleased, 0);
}

#[tokio::test]
async fn a_right_missed_half_way_leaves_no_lock_behind() {
    let server = Server::start().await;
    let mut raw = raw(&server).await;
    let _: () = raw
        .ask("ACL SETUSER bob on nopass ~* &* +@all -pexpire")
        .await;
    let url = format!("redis://bob@127.0.0.1:{}", server.port());
    let client = Client::connect(&url).await.unwrap();
    let error = client.mutex("half").lock().await.unwrap_err();
    let denied = matches!(error, Error::Refused(Refusal::Permission(_)));
    assert!(denied, "{error:?}");
    assert_eq!(raw.ask::<u64>("EXISTS half").await, 0);
}

/// A refusal says nothing of the hold, so it is neither a loss nor a renewal.
#[tokio::test]
async fn a_refused_renewal_makes_a_hold_uncertain_and_then_lost_by_time() {
    let server = Server::start().await;
    let mut raw = raw(&server).await;
    let _: () = raw.ask("ACL SETUSER cy on nopass ~* &* +@all").await;
    let url = format!("redis://cy@127.0.0.1:{}", server.port());
    let client = Client::connect(&url).await.unwrap();
    let ttl = MILLI * 3000;
    let guard = client.mutex("x").ttl(ttl).lock().await.unwrap();
    let _: () = raw.ask("ACL SETUSER cy -evalsha").await;
    eventually("the hold is uncertain", async || {
        guard.lease().state() == LeaseState::Uncertain
    })
    .await;
    assert!(guard.lease().remaining() > Duration::ZERO);
    timeout(SOON, guard.lost()).await.unwrap();
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));

    let _: () = raw.ask("ACL SETUSER cy +evalsha").await;
    let guard = client.mutex("y").ttl(ttl).lock().await.unwrap();
    let _: () = raw.ask("ACL SETUSER cy -evalsha").await;
    eventually("the hold is uncertain", async || {
        guard.lease().state() == LeaseState::Uncertain
    })
    .await;
    let _: () = raw.ask("ACL SETUSER cy +evalsha").await;
    eventually("the hold is certain again", async || {
        guard.lease().state() == LeaseState::Held
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn only_the_rights_that_are_used_are_needed() {
    let server = Server::start().await;
    let mut raw = raw(&server).await;
    let rights = "ACL SETUSER few on nopass ~* &* -@all +hello +evalsha +script|load +hdel +hget \
                  +hset +exists +pttl +pexpire +hexists +del +publish +subscribe \
                  +unsubscribe +ping";
    let _: () = raw.ask(rights).await;
    let url = format!("redis://few@127.0.0.1:{}", server.port());
    let client = Client::connect(&url).await.unwrap();
    let other = Client::connect(&url).await.unwrap();
    let guard = client.mutex("few").lock().await.unwrap();
    let waiting = waiter(&other, "few");
    subscribed(&mut raw, "few").await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn scripts_that_cannot_be_called_are_said_to_be_disabled() {
    let server = Server::start_with(&["--rename-command", "EVALSHA", "\"\""]).await;
    let client = client(&server).await;
    let error = client.mutex("x").lock().await.unwrap_err();
    let disabled = matches!(error, Error::Refused(Refusal::ScriptsDisabled(_)));
    assert!(disabled, "{error:?}");
}

#[tokio::test]
async fn a_waiter_that_may_not_subscribe_looks_by_itself() {
    let server = Server::start().await;
    let mut raw = raw(&server).await;
    let _: () = raw
        .ask("ACL SETUSER deaf on nopass ~* &* +@all -subscribe")
        .await;
    let url = format!("redis://deaf@127.0.0.1:{}", server.port());
    let (client, other) = (client(&server).await, Client::connect(&url).await.unwrap());
    let guard = client.mutex("deaf").lock().await.unwrap();
    let waiting = waiter(&other, "deaf");
    eventually("the subscription was refused", async || {
        commands(&mut raw).await.contains("cmdstat_subscribe")
    })
    .await;
    guard.release().await.unwrap();
    drop(timeout(SOON, waiting).await.unwrap().unwrap());
    let info = commands(&mut raw).await;
    let mut lines = info.lines();
    let line = lines.find(|line| line.starts_with("cmdstat_subscribe:"));
    let calm = ["rejected_calls=1,", "rejected_calls=2,"];
    assert!(
        calm.iter().any(|calm| line.unwrap().contains(calm)),
        "{line:?}"
    );
}

#[tokio::test]
async fn a_replica_is_refused_and_a_demoted_master_is_waited_for() {
    let server = Server::start().await;
    let port = server.port().to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    let error = Client::connect(&replica.url()).await.unwrap_err();
    let read_only = matches!(error, Error::Refused(Refusal::ReadOnly(_)));
    assert!(read_only, "{error:?}");

    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let _: () = raw.ask("REPLICAOF 127.0.0.1 1").await;
    let mutex = client.mutex("demoted").outage(MILLI * 300);
    let error = mutex.lock().await.unwrap_err();
    let read_only = matches!(error, Error::Refused(Refusal::ReadOnly(_)));
    assert!(read_only, "{error:?}");
    let waiting = waiter(&client, "demoted");
    let _: () = raw.ask("REPLICAOF NO ONE").await;
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_dropped_guard_is_released_once_its_server_takes_writes_again() {
    let server = Server::start().await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let guard = client.mutex("x").lock().await.unwrap();
    let _: () = raw.ask("REPLICAOF 127.0.0.1 1").await;
    drop(guard);
    eventually("the release is refused", async || {
        server.calls("evalsha").await > 1
    })
    .await;
    let _: () = raw.ask("REPLICAOF NO ONE").await;
    eventually("the lock is free", async || {
        raw.ask::<u64>("EXISTS x").await == 0
    })
    .await;
    assert_eq!(client.close().await.released, 1);
}

/// A script whose first call is a write that needs no memory is past the server's memory check.
#[tokio::test]
async fn a_full_server_refuses_locks_and_takes_releases() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let before = client.mutex("before").lock().await.unwrap();
    let _: () = raw.ask("CONFIG SET maxmemory 1").await;
    for answer in [
        client.mutex("after").lock().await.map(drop),
        client.mutex("after").try_lock().await.map(drop),
    ] {
        let full = matches!(answer, Err(Error::Refused(Refusal::OutOfMemory(_))));
        assert!(full, "{answer:?}");
    }
    before.release().await.unwrap();
    assert_eq!(raw.ask::<u64>("DBSIZE").await, 0);
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_left_alone() {
    let server = Server::start().await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let _: () = raw.ask("SET text hello").await;
    let error = client.mutex("text").lock().await.unwrap_err();
    let named = matches!(&error, Error::Protocol(words) if words.contains("\"text\""));
    assert!(named, "{error:?}");
    assert_eq!(raw.ask::<String>("GET text").await, "hello");
}

#[tokio::test]
async fn names_are_listed_by_star_and_question_mark_and_nothing_else_is_wild() {
    let server = Server::start().await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let _: () = raw.ask("SET a:text x").await;
    let mut guards = Vec::new();
    for name in ["a:1", "a:22", "a:[1]", "b:1", "a:\u{e9}"] {
        guards.push(client.mutex(name).lock().await.unwrap());
    }
    let listed = async |pattern: &str| {
        let found = client.list(pattern).await.unwrap();
        let names = found.into_iter().map(|status| status.name);
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(listed("a:*").await, "a:1 a:22 a:[1] a:\u{e9}");
    assert_eq!(listed("a:?").await, "a:1 a:\u{e9}");
    assert_eq!(listed("a:[1]*").await, "a:[1]");
    assert_eq!(listed("b:1").await, "b:1");
    assert_eq!(listed("none").await, "");
}

#[tokio::test]
async fn a_dropped_client_closes_both_connections() {
    let server = Server::start().await;
    let (client, holder) = (client(&server).await, client(&server).await);
    let mut raw = raw(&server).await;
    let guard = holder.mutex("drop").lock().await.unwrap();
    let waiting = waiter(&client, "drop");
    subscribed(&mut raw, "drop").await;
    let list: String = raw.ask("CLIENT LIST").await;
    assert_eq!(list.matches(" name=leasehold").count(), 3, "{list}");
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(client);
    eventually("only the holder is connected", async || {
        let list: String = raw.ask("CLIENT LIST").await;
        list.matches(" name=leasehold").count() == 1
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_killed_under_load_wedge_nothing_and_leave_nothing() {
    let server = Server::start().await;
    let client = client(&server).await;
    let mut raw = raw(&server).await;
    let end = Instant::now() + Duration::from_secs(2);
    let work = move |mutex: leasehold::Mutex| async move {
        let mut rounds = 0_u32;
        while Instant::now() < end {
            let guard = mutex.lock().await.unwrap();
            guard.release().await.unwrap();
            rounds += 1;
        }
        rounds
    };
    let mut tasks = Vec::new();
    for n in 0..64 {
        // Some alone, some contended, so that commands and subscriptions are both hit.
        let mutex = client.mutex(&format!("load{}", n % 48));
        tasks.push(tokio::spawn(work(mutex)));
    }
    while Instant::now() < end {
        let _: u64 = raw.ask("CLIENT KILL TYPE normal SKIPME yes").await;
        let _: u64 = raw.ask("CLIENT KILL TYPE pubsub").await;
        sleep(MILLI * 50).await;
    }
    for task in tasks {
        assert!(timeout(SOON, task).await.unwrap().unwrap() > 0);
    }
    eventually("nothing is owed", async || stats(&client).owed == 0).await;
    assert_eq!(raw.ask::<u64>("DBSIZE").await, 0);
}

#[test]
fn a_client_whose_runtime_ended_says_so_and_does_not_hang() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let first = runtime();
    let (server, client) = first.block_on(async {
        let server = Server::start().await;
        let client = client(&server).await;
        (server, client)
    });
    drop(first);
    runtime().block_on(async {
        let lock = timeout(SOON, client.mutex("x").lock()).await.unwrap();
        assert!(matches!(lock, Err(Error::Closed(_))), "{lock:?}");
    });
    drop(server);
}
