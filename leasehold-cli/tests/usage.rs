//! What is typed and what is told: usage, places, formats.

mod support;

use support::Place;

#[test]
fn this_machine_only_is_said_once_with_the_directory() {
    let place = Place::local();
    let done = place.run(&[], "true").done();
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
    assert!(done.err.contains("this machine only"), "{done:?}");
    assert!(
        done.err.contains(place.file("locks").to_str().unwrap()),
        "{done:?}"
    );
}

#[test]
fn a_local_url_is_silent() {
    let place = Place::local();
    let url = format!("local:{}", place.file("others").display());
    let done = place.done(&["--url", &url, "run", "job", "--", "true"]);
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    assert!(place.file("others").exists());
}

#[test]
fn what_cannot_work_gives_64() {
    let place = Place::local();
    for line in [
        "",
        "frobnicate",
        "run",
        "run job true",
        "run {x -- true",
        "run --ttl 100ms job -- true",
        "run --ttl 3s --grace 1500ms job -- true",
        "run --lease 1s --ttl 1s job -- true",
        "run --lease 0s job -- true",
        "run -E 0 job -- true",
        "run -n --wait 1s job -- true",
        "status {}",
        "unlock job",
        "--require-distributed run job -- true",
        "--url local: --require-distributed ls",
        "--url http://127.0.0.1 ls",
        "--url= ls",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = place.done(&words);
        assert_eq!(done.code, 64, "{line}: {done:?}");
        assert!(!done.err.is_empty(), "{line}: {done:?}");
    }
    assert!(!place.file("locks").exists(), "something was touched");
}

#[test]
fn help_and_version_give_0() {
    let place = Place::local();
    for line in ["--help", "--version", "run --help", "status -h"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = place.done(&words);
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{line}");
        assert!(!done.out.contains("supervise "), "{line}: {}", done.out);
    }
}

#[test]
fn unlock_without_force_says_what_it_does() {
    let done = Place::local().done(&["unlock", "job"]);
    assert!(done.err.contains("--force"), "{done:?}");
}

#[test]
fn a_server_that_cannot_be_reached_gives_69_and_runs_nothing() {
    let place = Place::local();
    // Port 1 of this machine: nobody listens there.
    let url = "redis://127.0.0.1:1";
    let done = place.done(&["--url", url, "run", "job", "--", "touch", "ran"]);
    assert_eq!(done.code, 69, "{done:?}");
    assert!(!place.file("ran").exists() && !place.file("locks").exists());
    assert_eq!(place.done(&["--url", url, "status", "job"]).code, 69);
}

#[test]
fn free_and_held_differ_in_code_and_json() {
    let place = Place::local();
    let free = place.done(&["status", "job", "--json"]);
    assert_eq!(free.code, 1);
    assert_eq!(free.out, "{\"held\":false,\"name\":\"job\"}\n");
    let held = place
        .run(&[], "$LEASEHOLD status job --json; $LEASEHOLD ls --json")
        .done();
    let lines: Vec<serde_json::Value> = held
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["held"], true, "{held:?}");
    assert_eq!(lines[0]["count"], 1);
    let left = lines[0]["remaining_ms"].as_u64().unwrap();
    assert!((20_000..=30_000).contains(&left), "{left}");
    assert_eq!(lines[1].as_array().unwrap().len(), 1);
    assert_eq!(lines[1][0]["name"], "job");
}

#[test]
fn ls_is_sorted_and_takes_a_pattern() {
    let place = Place::local();
    let script = "$LEASEHOLD run b:2 -- $LEASEHOLD run a:1 -- sh -c \
                  '$LEASEHOLD ls; echo; $LEASEHOLD ls \"a*\"; echo; $LEASEHOLD ls c'";
    let done = place.run(&[], script).done();
    let names: Vec<&str> = done
        .out
        .lines()
        .map(|line| line.split(": held").next().unwrap())
        .collect();
    assert_eq!(names, ["a:1", "b:2", "job", "", "a:1", ""], "{done:?}");
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let done = Place::local().done(&["status", "a\x1b[2Jb"]);
    assert_eq!(done.out, "a\\u{1b}[2Jb: free\n");
}

#[test]
fn output_that_nobody_reads_ends_a_command_quietly() {
    let place = Place::local();
    let url = format!("local:{}", place.file("locks").display());
    for line in ["status job", "ls --json", "unlock job --force"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = place.leasehold(&words);
        command.env("LEASEHOLD_URL", &url).stdout(writer);
        let done = support::Running::spawn(&mut command).done();
        assert_eq!((done.code, done.err.as_str()), (141, ""), "{line}");
    }
}

#[test]
fn who_kills_all_leaseholds_by_name_spares_the_supervisor() {
    let done = Place::local().run(&[], "cat /proc/$PPID/comm").done();
    assert_eq!(done.out, "hold-supervisor\n");
}

#[test]
fn a_surviving_grandchild_keeps_the_lock_of_this_machine() {
    let place = Place::local();
    let done = place
        .run(&[], "sleep 60 >/dev/null 2>&1 & echo $! > child")
        .done();
    assert_eq!(done.code, 0, "{done:?}");
    let child = place.read("child");
    assert!(support::alive(&child));
    assert!(!place.is_free("job"));
    assert_eq!(place.run(&["-n"], "true").done().code, 75);
    support::kill("TERM", &child);
    support::eventually("a free lock", || place.is_free("job"));
}
