//! What only a server can do to `leasehold run`.

mod support;

use std::time::Duration;

use support::{Place, alive, eventually, timed};

#[test]
fn a_silent_server_ends_the_command_before_the_lease_is_over() {
    let place = Place::redis();
    let run = place.run(&["--ttl", "3s"], "echo $$ > pid; exec sleep 60");
    let command = place.read("pid");
    place.server().signal("STOP");
    let ((), took) = timed(|| eventually("the end of the command", || !alive(&command)));
    // Time stands still for the server's keys as well, but not for a server that others would ask.
    assert!(took < Duration::from_secs(3), "{took:?}");
    let done = run.done();
    place.server().signal("CONT");
    assert_eq!(done.code, 76, "{done:?}");
    assert!(done.err.contains("about to end"), "{done:?}");
}

#[test]
fn a_deleted_key_ends_the_command_within_a_third_of_the_ttl() {
    let place = Place::redis();
    let run = place.run(&["--ttl", "3s"], "echo $$ > pid; exec sleep 60");
    let command = place.read("pid");
    assert_eq!(place.server().command("DEL job"), ":1\r\n");
    let ((), took) = timed(|| eventually("the end of the command", || !alive(&command)));
    assert!(took < Duration::from_millis(1300), "{took:?}");
    assert_eq!(run.done().code, 76);
}

#[test]
fn a_standard_error_that_nobody_reads_does_not_delay_the_end() {
    use std::io::Write;
    let place = Place::redis();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let script = "exec 2> log; echo $$ > pid; exec sleep 60";
    let options = ["run", "--ttl", "6s", "--grace", "100ms"];
    let words = [&options[..], &["job", "--", "sh", "-c", script]].concat();
    let mut command = place.leasehold(&words);
    let run = support::Running::spawn(command.stderr(writer.try_clone().unwrap()));
    let command = place.read("pid");
    // As much as a pipe takes.
    writer.write_all(&[0; 65_536]).unwrap();
    place.done(&["unlock", "job", "--force"]);
    let ((), took) = timed(|| eventually("the end of the command", || !alive(&command)));
    // A third of the TTL and a little, not all that is left of the lease.
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop(reader);
    assert_eq!(run.done().code, 76);
}

#[test]
fn a_refused_login_gives_77() {
    let place = Place::redis_with(&["--requirepass", "open sesame"]);
    let done = place.run(&[], "echo no").done();
    assert_eq!((done.code, done.out.as_str()), (77, ""), "{done:?}");
    let url = format!("redis://:wrong-one@127.0.0.1:{}", place.server().port());
    let done = place.done(&["--url", &url, "run", "job", "--", "true"]);
    assert_eq!(done.code, 77, "{done:?}");
    assert!(!done.err.contains("wrong-one"), "{done:?}");
}

#[test]
fn the_command_does_not_see_the_password() {
    let place = Place::redis_with(&["--requirepass", "sesame"]);
    let url = format!("redis://:sesame@127.0.0.1:{}", place.server().port());
    let mut command = place.leasehold(&["run", "job", "--", "sh", "-c", "env; $LEASEHOLD ls"]);
    let done = support::Running::spawn(command.env("LEASEHOLD_URL", url)).done();
    assert!(!done.out.contains("sesame"), "{done:?}");
    // The inner one is refused; it does not fall back to this machine.
    assert_eq!(done.code, 77, "{done:?}");
}

#[test]
fn a_key_of_another_type_gives_77_and_is_left_alone() {
    let place = Place::redis();
    place.server().command("SET job precious");
    assert_eq!(place.run(&["-n"], "true").done().code, 77);
    assert_eq!(place.done(&["unlock", "job", "--force"]).code, 77);
    assert!(place.server().command("GET job").contains("precious"));
}

#[test]
fn a_server_url_needs_no_remark() {
    let place = Place::redis();
    let done = place.done(&["--require-distributed", "run", "job", "--", "true"]);
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
}

#[test]
fn a_grandchild_does_not_keep_the_lock_of_a_server() {
    let place = Place::redis();
    let done = place
        .run(&[], "sleep 60 >/dev/null 2>&1 & echo $! > child")
        .done();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(alive(&place.read("child")));
    assert!(place.is_free("job"));
    support::kill("TERM", &place.read("child"));
}
