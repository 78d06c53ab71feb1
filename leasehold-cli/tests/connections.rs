//! Who holds, names with a prefix, TLS and sockets: what the command shows and how it ends.

mod support;

use std::net::TcpListener;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use support::{Place, Running};

#[test]
fn a_holder_is_shown_by_label_program_process_and_host() {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let host = host.trim();
    for place in [Place::local(), Place::redis()] {
        let mut run = place.run(&["--label", "nightly report"], "echo up > up; sleep 60");
        place.read("up");
        let pid = run.pid();
        let shown = format!("(nightly report, leasehold, pid {pid}, on {host})");
        for words in [&["status", "job"][..], &["ls"]] {
            let done = place.done(words);
            assert!(done.out.contains(&shown), "{done:?}");
            assert_eq!(done.out.lines().count(), 1, "{done:?}");
        }
        let done = place.done(&["status", "job", "--json"]);
        let seen: Value = serde_json::from_str(&done.out).expect("JSON");
        assert_eq!(seen["label"], "nightly report");
        assert_eq!(seen["program"], "leasehold");
        assert_eq!(seen["pid"].to_string(), pid);
        assert_eq!(seen["host"], host);
        assert!(
            seen["since_ms"].as_u64() > Some(1_700_000_000_000),
            "{seen}"
        );
        run.signal("TERM");
        run.done();
    }
}

#[test]
fn what_a_holder_does_not_say_is_null() {
    let place = Place::redis();
    let hold = "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:12";
    place.server().command(&format!("HSET job {hold} 1"));
    let done = place.done(&["ls", "--json"]);
    let seen: Value = serde_json::from_str(&done.out).expect("JSON");
    for field in [
        "label",
        "program",
        "pid",
        "host",
        "since_ms",
        "remaining_ms",
    ] {
        assert!(seen[0].get(field).is_some_and(Value::is_null), "{done:?}");
    }
    let done = place.done(&["status", "job"]);
    assert!(
        done.out.contains(&format!("held by {hold}, without")),
        "{done:?}"
    );
}

#[test]
fn a_label_that_cannot_be_is_told_before_anything_is_sent() {
    let place = Place::local();
    for label in ["a\nb", &"x".repeat(101)] {
        let done = place.run(&["--label", label], "true").done();
        assert_eq!(done.code, 64, "{done:?}");
    }
}

#[test]
fn a_prefix_stands_in_front_of_every_name_and_is_not_shown() {
    for place in [Place::local(), Place::redis()] {
        let words = ["--prefix", "app:", "run", "job", "--", "sh", "-c"];
        let script = "$LEASEHOLD ls --prefix ''; $LEASEHOLD ls; $LEASEHOLD status job --prefix ''";
        let done = place.done(&[&words[..], &[script]].concat());
        let lines: Vec<_> = done.out.lines().collect();
        assert!(lines[0].starts_with("app:job: held by"), "{done:?}");
        assert!(lines[1].starts_with("job: held by"), "{done:?}");
        assert_eq!(lines[2], "job: free");
        let done = place.done(&["--prefix", "}{", "run", "job", "--", "true"]);
        assert_eq!(done.code, 64, "{done:?}");
    }
}

/// An authority and a certificate of it: files `ca.pem`, `server.pem` and `server.key`.
fn certificates(place: &Place, name: &str) {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "authority");
    let key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, "server");
    let server = params.signed_by(&key, &issuer).expect("a certificate");
    let write = |file: &str, text: String| std::fs::write(place.file(file), text).expect("a file");
    write("ca.pem", ca.pem());
    write("server.pem", server.pem());
    write("server.key", key.serialize_pem());
}

#[test]
fn a_server_under_tls_is_used_or_refused_with_77() {
    let files = Place::local();
    certificates(&files, "127.0.0.1");
    let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = probe.local_addr().expect("an address").port();
    drop(probe);
    let path = |file: &str| files.file(file).to_str().expect("text").to_owned();
    let (ca, certificate, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let mut options = vec!["--tls-port".to_owned(), port.to_string()];
    for (option, value) in [
        ("--tls-ca-cert-file", &ca),
        ("--tls-cert-file", &certificate),
        ("--tls-key-file", &key),
    ] {
        options.extend([option.to_owned(), value.clone()]);
    }
    options.extend(["--tls-auth-clients".to_owned(), "yes".to_owned()]);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let place = Place::redis_with(&options);
    let url = format!("rediss://127.0.0.1:{port}/");
    let job = ["run", "job", "--", "true"];
    let with = |more: &[&str]| place.done(&[&["--url", &url], more, &job[..]].concat());
    let identity = ["--cert", &certificate, "--key", &key];
    let done = with(&[&["--cacert", &ca][..], &identity].concat());
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    let done = with(&identity);
    assert_eq!(done.code, 77, "{done:?}");
    assert!(
        done.err.contains("no authority that this client trusts"),
        "{done:?}"
    );
    let done = with(&["--cacert", &ca]);
    assert_eq!(done.code, 77, "{done:?}");
    assert!(
        done.err.contains("asks for a client certificate"),
        "{done:?}"
    );
    let done = with(&["--cacert", "/nowhere/ca.pem"]);
    assert_eq!(done.code, 64, "{done:?}");
    assert_eq!(with(&["--cert", &certificate]).code, 64);
    // What the system trusts is enough.
    let words = [&["--url", &url], &identity[..], &job].concat();
    let mut command = place.leasehold(&words);
    let done = Running::spawn(command.env("SSL_CERT_FILE", &ca)).done();
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
}

#[test]
fn a_socket_is_a_server_and_its_password_is_not_passed_on() {
    let files = Place::local();
    let socket = files.file("socket");
    let socket = socket.to_str().expect("text");
    let place = Place::redis_with(&["--unixsocket", socket]);
    place
        .server()
        .command("ACL SETUSER ann on >sesame ~* &* +@all");
    let url = format!("unix://{socket}?db=3&user=ann&pass=sesame");
    let words = ["--require-distributed", "run", "job", "--", "sh", "-c"];
    let mut command = place.leasehold(&[&words[..], &["env; exec $LEASEHOLD ls"]].concat());
    let done = Running::spawn(command.env("LEASEHOLD_URL", url)).done();
    assert!(
        done.out
            .contains(&format!("LEASEHOLD_URL=unix://{socket}?db=3&user=ann"))
    );
    assert!(!done.out.contains("sesame"), "{done:?}");
    assert_eq!(done.code, 77, "the inner one cannot log in: {done:?}");
}
