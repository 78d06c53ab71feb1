//! Ways to a server: Unix sockets, users and their rights, names. Against real servers.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests, too"
)]

use std::time::Duration;

use leasehold::{Client, Error, Refusal};
use leasehold_test::{Server, eventually};
use tokio::time::timeout;

/// Long enough for everything that must happen, short of any TTL in these tests.
const SOON: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_unix_socket_is_used_with_database_user_and_password() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a socket");
    let path = path.to_str().unwrap();
    let server = Server::start_with(&["--unixsocket", path]).await;
    let user = [
        "ACL",
        "SETUSER",
        "ann",
        "on",
        ">hun&ter@2",
        "~*",
        "&*",
        "+@all",
    ];
    server.query::<()>(&user).await;
    let place = format!("unix://{}", path.replace(' ', "%20"));
    let url = format!("{place}?db=3&user=ann&pass=hun%26ter@2");
    let (one, two) = (
        Client::connect(&url).await.unwrap(),
        Client::connect(&url).await.unwrap(),
    );
    let guard = one.mutex("m").lock().await.unwrap();
    assert!(server.keys().await.is_empty(), "database 0");
    let list: String = server.query(&["CLIENT", "LIST"]).await;
    assert_eq!(list.matches("user=ann").count(), 2, "{list}");
    let mutex = two.mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("the waiter listens", async || {
        server
            .query::<Vec<String>>(&["PUBSUB", "CHANNELS"])
            .await
            .len()
            == 1
    })
    .await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    // Connections that follow lost ones use all of it, too.
    server
        .query::<u64>(&["CLIENT", "KILL", "USER", "ann"])
        .await;
    guard.release().await.unwrap();
    assert!(!two.mutex("m").is_locked().await.unwrap());
    let plain = Client::connect(&place).await.unwrap();
    assert!(!plain.mutex("m").is_locked().await.unwrap());

    let wrong = Client::connect(&format!("{place}?user=ann&pass=hunter2")).await;
    let wrong = wrong.unwrap_err();
    assert!(
        matches!(wrong, Error::Refused(Refusal::Auth(_))),
        "{wrong:?}"
    );
    assert!(!format!("{wrong} {wrong:?}").contains("hunter2"));
    let nobody = Client::connect("unix:///nowhere/socket").await.unwrap_err();
    assert!(matches!(nobody, Error::Unavailable { .. }), "{nobody:?}");
}

#[tokio::test]
async fn connections_are_called_by_the_label() {
    let server = Server::start().await;
    let builder = || Client::builder().label("night ly\u{e9}");
    let (one, two) = (
        builder().connect(&server.url()).await.unwrap(),
        builder().connect(&server.url()).await.unwrap(),
    );
    let guard = one.mutex("m").lock().await.unwrap();
    let mutex = two.mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("all three connections have it", async || {
        let list: String = server.query(&["CLIENT", "LIST"]).await;
        list.matches("name=leasehold:night_ly_ ").count() == 3
    })
    .await;
    guard.release().await.unwrap();
    drop(timeout(SOON, waiting).await.unwrap().unwrap());
    for bad in ["a\nb", &"x".repeat(101)] {
        let error = Client::builder().label(bad).connect(&server.url()).await;
        assert!(matches!(error, Err(Error::Config(_))), "{error:?}");
    }
}

/// The command of the manual that makes a user.
fn manual_user() -> Vec<&'static str> {
    let page = include_str!("../../leasehold/src/manual/connecting.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER "));
    line.unwrap().split(' ').collect()
}

/// Everything that a client does, with names that begin with `app:`.
async fn everything(port: u16) -> leasehold::Result<()> {
    let url = format!("redis://locks:change-me@127.0.0.1:{port}/2");
    let builder = || Client::builder().prefix("app:").label("all");
    let (one, two) = (
        builder().connect(&url).await?,
        builder().connect(&url).await?,
    );
    let mutex = one.mutex("m").fixed_lease(Duration::from_secs(60));
    let guard = mutex.lock().await?;
    guard.extend(Duration::from_secs(90)).await?;
    let holder = two.mutex("m").holders().await?.remove(0);
    assert_eq!(&holder.hold, guard.hold_id());
    assert_eq!(two.list("*").await?.len(), 1);
    let waiting = two.mutex("m");
    let waiting = tokio::spawn(async move { waiting.lock().await });
    eventually("it waits", async || {
        waiting.is_finished() || leasehold::testing::stats(&two).listening == 1
    })
    .await;
    guard.release().await?;
    let guard = waiting.await.unwrap()?;
    assert!(two.mutex("m").force_unlock().await?);
    drop(guard);
    assert_eq!(one.close().await.unreleased, 0);
    two.close().await;
    Ok(())
}

#[tokio::test]
async fn the_user_of_the_manual_does_everything_and_needs_each_right() {
    let server = Server::start().await;
    let make = manual_user();
    let known = async |right: &str| {
        // Not every version has every subcommand.
        let try_it = ["ACL", "SETUSER", "probe", right];
        let mut connection = server.connection().await;
        let mut command = redis::Cmd::new();
        command.arg(&try_it);
        command.query_async::<()>(&mut connection).await.is_ok()
    };
    let mut user = vec![];
    for word in make {
        if !word.starts_with('+') || known(word).await {
            user.push(word);
        }
    }
    server.query::<()>(&user).await;
    everything(server.port()).await.unwrap();
    // Without these nothing fails; what is missing then has tests of its own.
    let helpful = |right: &str| {
        let helpful = [
            "+publish",
            "+subscribe",
            "+unsubscribe",
            "+ping",
            "+role",
            "+time",
        ];
        right.starts_with("+client|") || helpful.contains(&right)
    };
    let without = async |right: &str| {
        server.query::<()>(&["ACL", "DELUSER", "locks"]).await;
        let fewer: Vec<_> = user.iter().copied().filter(|word| *word != right).collect();
        server.query::<()>(&fewer).await;
    };
    let mut refused = 0;
    server.query::<()>(&["SCRIPT", "FLUSH"]).await;
    for right in user.iter().copied().filter(|word| word.starts_with('+')) {
        without(right).await;
        // The log-in itself is not yet by this user.
        if helpful(right) || right == "+hello" {
            continue;
        }
        let answer = timeout(SOON, everything(server.port())).await.unwrap();
        let denied = matches!(answer, Err(Error::Refused(Refusal::Permission(_))));
        assert!(denied, "without {right}: {answer:?}");
        refused += 1;
        server.query::<()>(&["FLUSHALL"]).await;
        server.query::<()>(&["SCRIPT", "FLUSH"]).await;
    }
    assert!(refused >= 12, "{refused}");
    for keys in ["~app:*", "&redisson_lock__channel:{app:*}"] {
        without(keys).await;
        let url = format!("redis://locks:change-me@127.0.0.1:{}/", server.port());
        let client = Client::builder()
            .prefix("app:")
            .connect(&url)
            .await
            .unwrap();
        let lock = client.mutex("m").lock().await;
        if keys.starts_with('~') {
            let denied = matches!(lock, Err(Error::Refused(Refusal::Permission(_))));
            assert!(denied, "without {keys}: {lock:?}");
        } else {
            // Without its channel a release frees all the same.
            lock.unwrap().release().await.unwrap();
            assert!(server.keys().await.is_empty());
        }
    }
}

#[tokio::test]
async fn the_user_of_the_manual_does_nothing_outside_of_its_prefix() {
    let server = Server::start().await;
    let user = manual_user();
    let user: Vec<_> = user
        .into_iter()
        .filter(|word| !word.ends_with("setinfo"))
        .collect();
    server.query::<()>(&user).await;
    let url = format!("redis://locks:change-me@127.0.0.1:{}/", server.port());
    let client = Client::connect(&url).await.unwrap();
    let error = client.mutex("other").lock().await.unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::Permission(_))),
        "{error:?}"
    );
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn kn_07_each_key_and_channel_has_the_prefix_once() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let server = Server::start().await;
    let builder = || Client::builder().prefix("p:");
    let (one, two) = (
        builder().connect(&server.url()).await.unwrap(),
        builder().connect(&server.url()).await.unwrap(),
    );
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await;
    let mut monitor = BufReader::new(stream.unwrap());
    monitor.write_all(b"MONITOR\r\n").await.unwrap();
    let guard = one.mutex("m").lock().await.unwrap();
    let mutex = two.mutex("m").ttl(Duration::from_millis(300));
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("it listens", async || {
        leasehold::testing::stats(&two).listening == 1
    })
    .await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    eventually("it is renewed", async || {
        leasehold::testing::stats(&two).renewal_batches > 0
    })
    .await;
    assert!(two.mutex("m").is_locked().await.unwrap());
    assert!(two.mutex("m").force_unlock().await.unwrap());
    drop(guard);
    two.close().await;
    server.query::<()>(&["ECHO", "the end"]).await;
    let (mut seen, mut names) = (String::new(), 0);
    while !seen.contains("the end") {
        seen.clear();
        monitor.read_line(&mut seen).await.unwrap();
        // What names a key or channel of the lock: the words that end in its name.
        let words = seen.split('"').filter(|word| word.ends_with(['m', '}']));
        for word in words.filter(|word| !word.contains(' ') && word.contains([':', '{'])) {
            let good = ["p:m", "redisson_lock__channel:{p:m}"].contains(&word);
            assert!(good, "{word:?} in {seen}");
            names += 1;
        }
        assert!(!seen.contains("\"m\""), "{seen}");
    }
    assert!(names > 10, "{names}");
}
