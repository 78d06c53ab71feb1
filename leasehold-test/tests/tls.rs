//! Servers under TLS, with certificates of the test's own. Needs a server that was built with TLS.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of these tests are tests, too"
)]

use std::path::Path;
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Error, LeaseState, Refusal};
use leasehold_test::authority::{Authority, Pair};
use leasehold_test::{Server, eventually};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

/// Long enough for everything that must happen, short of any TTL in these tests.
const SOON: Duration = Duration::from_secs(8);

/// A server that speaks TLS on a port of its own.
struct Tls {
    server: Server,
    port: u16,
    _files: TempDir,
}

impl Tls {
    /// `clients`: whose certificate a client has to show, if any.
    async fn start(pair: &Pair, clients: Option<&Authority>, more: &[&str]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let (certificate, key) = pair.write(files.path(), "server");
        let ca = files.path().join("clients.pem");
        let authority = clients.map_or(pair.certificate.as_str(), |clients| &clients.pem);
        std::fs::write(&ca, authority).unwrap();
        let port = free_port();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (certificate, key, ca) = (text(&certificate), text(&key), text(&ca));
        let number = port.to_string();
        let mut options = vec!["--tls-port", number.as_str()];
        options.extend(["--tls-cert-file", &certificate, "--tls-key-file", &key]);
        options.extend(["--tls-ca-cert-file", &ca, "--tls-auth-clients"]);
        options.push(if clients.is_some() { "yes" } else { "no" });
        options.extend(more);
        Self {
            server: Server::start_with(&options).await,
            port,
            _files: files,
        }
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}/", self.port)
    }
}

fn free_port() -> u16 {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    probe.local_addr().unwrap().port()
}

fn trusting(authority: &Authority) -> ClientBuilder {
    Client::builder().ca_certificate(authority.pem.as_str())
}

/// What was said about TLS, in an error that repeating does not help.
fn refused(result: leasehold::Result<Client>) -> String {
    match result {
        Err(error @ Error::Refused(Refusal::Tls(_))) => {
            assert!(!error.is_retryable() && !error.outcome_is_unknown());
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn under_tls_a_lock_is_taken_waited_for_and_handed_on() {
    let authority = Authority::new();
    let pair = authority.sign(&["localhost", "127.0.0.1"]);
    let tls = Tls::start(&pair, None, &[]).await;
    let by_name = trusting(&authority).connect(&tls.url("localhost")).await;
    let by_address = trusting(&authority).connect(&tls.url("127.0.0.1")).await;
    let (one, two) = (by_name.unwrap(), by_address.unwrap());
    let guard = one.mutex("m").lock().await.unwrap();
    let mutex = two.mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    eventually("the waiter listens", async || {
        let channels: Vec<String> = tls.server.query(&["PUBSUB", "CHANNELS"]).await;
        channels == ["redisson_lock__channel:{m}"]
    })
    .await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(leasehold::testing::stats(&two).woken_by_timer, 0);
    // The connection that follows a lost one is under TLS as well.
    tls.server
        .query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"])
        .await;
    eventually("the hold is certain", async || {
        guard.lease().state() == LeaseState::Held
    })
    .await;
    guard.release().await.unwrap();
    assert!(tls.server.keys().await.is_empty());
}

#[tokio::test]
async fn user_password_and_database_number_are_used_under_tls() {
    let authority = Authority::new();
    let tls = Tls::start(&authority.sign(&["127.0.0.1"]), None, &[]).await;
    let user = [
        "ACL",
        "SETUSER",
        "ann",
        "on",
        ">hun?ter#2",
        "~*",
        "&*",
        "+@all",
    ];
    tls.server.query::<()>(&user).await;
    let url = |password| format!("rediss://ann:{password}@127.0.0.1:{}/3", tls.port);
    let client = trusting(&authority).connect(&url("hun%3Fter%232")).await;
    let guard = client.unwrap().mutex("third").lock().await.unwrap();
    assert!(tls.server.keys().await.is_empty(), "database 0");
    guard.release().await.unwrap();
    let error = trusting(&authority)
        .connect(&url("hunter2"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::Auth(_))),
        "{error:?}"
    );
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn each_thing_that_is_wrong_with_a_server_has_its_words() {
    let (authority, other) = (Authority::new(), Authority::new());
    let good = authority.sign(&["127.0.0.1"]);
    let tls = Tls::start(&good, None, &[]).await;
    let unknown = refused(trusting(&other).connect(&tls.url("127.0.0.1")).await);
    assert!(
        unknown.contains("no authority that this client trusts"),
        "{unknown}"
    );
    // The system's own authorities do not know it either.
    let unknown = refused(Client::connect(&tls.url("127.0.0.1")).await);
    assert!(
        unknown.contains("no authority that this client trusts"),
        "{unknown}"
    );
    let name = refused(trusting(&authority).connect(&tls.url("localhost")).await);
    assert!(name.contains("for another name"), "{name}");

    let tls = Tls::start(&authority.sign_expired(&["127.0.0.1"]), None, &[]).await;
    let expired = refused(trusting(&authority).connect(&tls.url("127.0.0.1")).await);
    assert!(expired.contains("has expired"), "{expired}");
    assert!(
        expired.contains(&format!("127.0.0.1:{}", tls.port)),
        "{expired}"
    );
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_it_or_is_told_apart() {
    let (authority, clients) = (Authority::new(), Authority::new());
    for version in ["TLSv1.2", "TLSv1.3"] {
        let pair = authority.sign(&["127.0.0.1"]);
        let tls = Tls::start(&pair, Some(&clients), &["--tls-protocols", version]).await;
        let url = tls.url("127.0.0.1");
        let shows = |pair: &Pair| {
            trusting(&authority).client_certificate(pair.certificate.as_str(), pair.key.as_str())
        };
        let client = shows(&clients.sign(&["me"])).connect(&url).await.unwrap();
        client
            .mutex("m")
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();

        let none = refused(trusting(&authority).connect(&url).await);
        assert!(
            none.contains("asks for a client certificate"),
            "{version}: {none}"
        );
        let foreign = refused(shows(&authority.sign(&["me"])).connect(&url).await);
        assert!(
            foreign.contains("the client certificate"),
            "{version}: {foreign}"
        );
        let expired = refused(shows(&clients.sign_expired(&["me"])).connect(&url).await);
        assert!(
            expired.contains("client certificate has expired"),
            "{version}: {expired}"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_goes_bad_fails_calls_at_once_until_it_is_good_again() {
    let authority = Authority::new();
    let tls = Tls::start(&authority.sign(&["127.0.0.1"]), None, &[]).await;
    let client = trusting(&authority).connect(&tls.url("127.0.0.1")).await;
    let mutex = client.unwrap().mutex("m");
    let files = tempfile::tempdir().unwrap();
    let install = async |pair: Pair, name: &str| {
        let (certificate, key) = pair.write(files.path(), name);
        let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
        let both = [
            "CONFIG",
            "SET",
            "tls-cert-file",
            certificate,
            "tls-key-file",
            key,
        ];
        tls.server.query::<()>(&both).await;
    };
    install(authority.sign_expired(&["127.0.0.1"]), "old").await;
    tls.server
        .query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"])
        .await;
    let begun = Instant::now();
    let error = mutex.lock().await.unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::Tls(_))),
        "{error:?}"
    );
    assert!(begun.elapsed() < SOON);
    install(authority.sign(&["127.0.0.1"]), "new").await;
    eventually("the client connects again", async || {
        mutex.try_lock().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

#[tokio::test]
async fn a_server_without_tls_is_told_in_time() {
    let server = Server::start().await;
    let quick = || {
        let authority = Authority::new();
        trusting(&authority).connect_timeout(Duration::from_millis(500))
    };
    let url = format!("rediss://127.0.0.1:{}/", server.port());
    // It takes the first bytes of TLS for a line of its own, and answers only if that has an end.
    for _ in 0..8 {
        let begun = Instant::now();
        let error = quick().connect(&url).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(2));
        let words = error.to_string();
        let told =
            words.contains("it does not speak TLS") || words.contains("does not answer in TLS");
        assert!(told, "{error:?}");
    }
    // Somebody who never says a word.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}/", mute.local_addr().unwrap());
    let error = quick().connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(
        error.to_string().contains("does not answer in TLS"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_answers_in_plain_text_does_not_speak_tls() {
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}/", listener.local_addr().unwrap());
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"-ERR unknown command\r\n").await.unwrap();
        stream
    });
    let words = refused(trusting(&Authority::new()).connect(&url).await);
    assert!(words.contains("it does not speak TLS"), "{words}");
    drop(plain.await.unwrap());
}

#[tokio::test]
async fn without_tls_a_server_with_tls_is_unavailable_at_once() {
    let authority = Authority::new();
    let tls = Tls::start(&authority.sign(&["127.0.0.1"]), None, &[]).await;
    let begun = Instant::now();
    let error = Client::connect(&format!("redis://127.0.0.1:{}/", tls.port)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn certificates_that_cannot_be_read_or_used_are_bad_settings() {
    let authority = Authority::new();
    let pair = authority.sign(&["me"]);
    let other = authority.sign(&["me"]);
    let bad = async |builder: ClientBuilder, url: &str| match builder.connect(url).await {
        Err(Error::Config(words)) => words,
        other => panic!("{other:?}"),
    };
    let url = "rediss://127.0.0.1:1/";
    let builder = Client::builder;
    bad(builder().ca_certificate("no certificate"), url).await;
    bad(builder().ca_certificate(pair.key.as_str()), url).await;
    bad(builder().client_certificate("none", pair.key.as_str()), url).await;
    let certificate = pair.certificate.as_str();
    bad(builder().client_certificate(certificate, "hunter2"), url).await;
    bad(builder().client_certificate(certificate, certificate), url).await;
    let foreign = other.key.as_str();
    bad(builder().client_certificate(certificate, foreign), url).await;
    for url in ["redis://127.0.0.1:1/", "unix:///run/s", "local:/tmp"] {
        // Who sets certificates must not get a connection without TLS.
        let words = bad(trusting(&authority), url).await;
        assert!(words.contains("certificates are set"), "{url}: {words}");
    }
}

#[tokio::test]
async fn a_private_key_is_never_shown() {
    let authority = Authority::new();
    let pair = authority.sign(&["127.0.0.1"]);
    let secret: Vec<_> = pair.key.lines().skip(1).take(1).collect();
    let tls = Tls::start(&pair, Some(&authority), &[]).await;
    let builder =
        trusting(&authority).client_certificate(pair.certificate.as_str(), pair.key.as_str());
    let shown = format!("{builder:?} {builder:#?}");
    let client = builder.connect(&tls.url("127.0.0.1")).await.unwrap();
    let shown = format!("{shown} {client:?} {client:#?}");
    let bytes = format!("{:?}", &pair.key.as_bytes()[..8]);
    assert!(!shown.contains(secret[0]) && !shown.contains(&bytes[1..bytes.len() - 1]));
}
