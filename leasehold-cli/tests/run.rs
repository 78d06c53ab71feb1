//! `leasehold run`, on each store.

mod support;

use std::time::Duration;
use support::{Place, Running, alive, eventually, timed};

/// Makes each fact a test on this machine's locks and on those of a server.
macro_rules! on_each_store {
    ($($fact:ident),* $(,)?) => {
        mod local {
            $(#[test] fn $fact() { super::$fact(&super::Place::local()); })*
        }
        mod redis {
            $(#[test] fn $fact() { super::$fact(&super::Place::redis()); })*
        }
    };
}

on_each_store![
    the_exit_code_is_that_of_the_command,
    a_signal_that_ends_the_command_gives_128_and_its_number,
    a_command_that_cannot_start_gives_126_or_127,
    a_busy_lock_gives_75_or_the_code_that_was_asked_for,
    the_command_sees_the_lock_and_the_hold,
    a_waiter_runs_after_the_holder,
    the_lock_is_free_when_the_command_has_ended,
    eight_processes_count_exactly,
    a_broken_lock_ends_the_command_and_gives_76,
    a_fixed_lease_ends_the_command_before_it_is_over,
    what_ignores_term_is_killed_before_the_lease_is_over,
    a_signal_is_passed_to_the_group_of_the_command,
    a_signal_ends_the_wait_and_leaves_nothing,
    the_death_of_run_ends_the_command_and_its_descendants,
    the_death_of_the_supervisor_ends_the_command,
    a_dead_supervisor_gives_the_command_no_time_beyond_the_lease,
    a_stopped_supervisor_cannot_keep_the_command_beyond_the_hold,
    a_hung_run_cannot_keep_the_command_beyond_the_lease,
    a_minimal_hold_outlasts_the_command,
    a_signal_cuts_a_minimal_hold_short,
    a_signal_that_the_command_got_cuts_a_minimal_hold_short,
    the_command_has_no_descriptors_of_ours,
    an_ignored_signal_stays_ignored,
];

fn the_exit_code_is_that_of_the_command(place: &Place) {
    let done = place.run(&[], "echo in; exit 7").done();
    assert_eq!((done.code, done.out.as_str()), (7, "in\n"), "{done:?}");
    assert_eq!(place.run(&[], "exit 255").done().code, 255);
    assert_eq!(place.run(&[], "true").done().code, 0);
}

fn a_signal_that_ends_the_command_gives_128_and_its_number(place: &Place) {
    assert_eq!(place.run(&[], "kill -TERM $$").done().code, 143);
    assert_eq!(place.run(&[], "kill -KILL $$").done().code, 137);
}

fn a_command_that_cannot_start_gives_126_or_127(place: &Place) {
    let missing = place.done(&["run", "job", "--", "/no/such/program"]);
    assert_eq!(missing.code, 127, "{missing:?}");
    assert!(missing.err.contains("/no/such/program"), "{missing:?}");
    let unfit = place.done(&["run", "job", "--", "/etc/passwd"]);
    assert_eq!(unfit.code, 126, "{unfit:?}");
    assert!(place.is_free("job"));
}

fn a_busy_lock_gives_75_or_the_code_that_was_asked_for(place: &Place) {
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    let busy = place.run(&["-n"], "echo no").done();
    assert_eq!((busy.code, busy.out.as_str()), (75, ""), "{busy:?}");
    assert_eq!(place.run(&["--wait", "50ms"], "true").done().code, 75);
    assert_eq!(place.run(&["-n", "-E", "9"], "true").done().code, 9);
    holder.signal("TERM");
    assert_eq!(holder.done().code, 143);
    assert_eq!(place.run(&["-n"], "true").done().code, 0);
}

fn the_command_sees_the_lock_and_the_hold(place: &Place) {
    let done = place
        .run(
            &[],
            "echo $LEASEHOLD_NAME; $LEASEHOLD status job; echo $LEASEHOLD_HOLD",
        )
        .done();
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "job"), "{done:?}");
    assert!(
        lines[1].contains(lines[2]) && !lines[2].is_empty(),
        "{done:?}"
    );
}

fn a_waiter_runs_after_the_holder(place: &Place) {
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    let waiter = place.run(&[], "echo > got");
    holder.signal("TERM");
    assert_eq!(waiter.done().code, 0);
    assert!(place.file("got").exists());
}

fn the_lock_is_free_when_the_command_has_ended(place: &Place) {
    let held = place.run(&[], "$LEASEHOLD status job").done();
    assert_eq!(held.code, 0, "{held:?}");
    assert!(place.is_free("job"));
    let list = place.done(&["ls"]);
    assert_eq!((list.code, list.out.as_str()), (0, ""), "{list:?}");
}

fn eight_processes_count_exactly(place: &Place) {
    std::fs::write(place.file("count"), "0\n").expect("a file");
    let step = "n=$(cat count); echo $((n + 1)) > count";
    let round = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do $LEASEHOLD run count -- sh -c '{step}' || exit 1; done"
    );
    let workers: Vec<Running> = (0..8)
        .map(|_| {
            let mut shell = std::process::Command::new("sh");
            place.settle(&mut shell);
            Running::spawn(shell.args(["-c", &round]))
        })
        .collect();
    for worker in workers {
        let done = worker.done();
        assert_eq!(done.code, 0, "{done:?}");
    }
    assert_eq!(place.read("count"), "80");
}

fn a_broken_lock_ends_the_command_and_gives_76(place: &Place) {
    let run = place.run(&["--ttl", "1500ms"], "echo $$ > pid; exec sleep 60");
    let command = place.read("pid");
    let broken = place.done(&["unlock", "job", "--force"]);
    assert!(broken.out.contains("was held"), "{broken:?}");
    let (done, took) = timed(|| run.done());
    assert_eq!(done.code, 76, "{done:?}");
    assert!(done.err.contains("the hold of job was lost"), "{done:?}");
    assert!(!alive(&command));
    assert!(took < Duration::from_millis(1500), "{took:?}");
    assert!(
        place
            .done(&["unlock", "job", "--force"])
            .out
            .contains("was free")
    );
}

fn a_fixed_lease_ends_the_command_before_it_is_over(place: &Place) {
    let (done, took) = timed(|| place.run(&["--lease", "900ms"], "sleep 60").done());
    assert_eq!(done.code, 76, "{done:?}");
    assert!(done.err.contains("about to end"), "{done:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

fn what_ignores_term_is_killed_before_the_lease_is_over(place: &Place) {
    let script = "trap '' TERM; setsid sleep 60 & echo $! > child; echo $$ > pid; \
                  while :; do $LEASEHOLD status job >/dev/null 2>&1 && echo held >> log; done";
    let done = place
        .run(&["--lease", "900ms", "--grace", "400ms"], script)
        .done();
    assert_eq!(done.code, 76, "{done:?}");
    assert!(!alive(&place.read("pid")) && !alive(&place.read("child")));
}

fn a_signal_is_passed_to_the_group_of_the_command(place: &Place) {
    for (signal, number) in [("TERM", 3), ("INT", 4), ("HUP", 5), ("USR1", 6)] {
        let _ = std::fs::remove_file(place.file("ready"));
        let script =
            format!("trap 'exit {number}' {signal}; echo > ready; while :; do sleep 0.02; done");
        let mut run = place.run(&[], &script);
        place.read("ready");
        run.signal(signal);
        let done = run.done();
        assert_eq!(done.code, number, "{signal}: {done:?}");
    }
    assert!(place.is_free("job"));
}

fn a_signal_ends_the_wait_and_leaves_nothing(place: &Place) {
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    let mut waiter = place.run(&[], "echo > got");
    let pid = waiter.pid();
    // Its handlers stand before it connects; it catches SIGTERM, number 15.
    eventually("the waiter's handler", || catches(&pid, 15));
    waiter.signal("TERM");
    assert_eq!(waiter.done().code, 143);
    holder.signal("TERM");
    assert_eq!(holder.done().code, 143);
    assert!(place.is_free("job"));
    assert!(!place.file("got").exists());
}

fn the_death_of_run_ends_the_command_and_its_descendants(place: &Place) {
    let script = "sleep 60 & echo $! > child; setsid sleep 60 & echo $! > session; \
                  (trap '' TERM; setsid sh -c 'echo $$ > stubborn; sleep 60; sleep 60') & \
                  echo $$ > pid; wait";
    let mut run = place.run(&["--grace", "300ms", "--ttl", "2s"], script);
    let everybody = ["pid", "child", "session", "stubborn"].map(|file| place.read(file));
    assert!(everybody.iter().all(|pid| alive(pid)));
    run.signal("KILL");
    eventually("the end of the command and its descendants", || {
        !everybody.iter().any(|pid| alive(pid))
    });
    eventually("a free lock", || place.is_free("job"));
}

fn the_death_of_the_supervisor_ends_the_command(place: &Place) {
    let run = place.run(
        &[],
        "echo $PPID > supervisor; sleep 60 & echo $! > child; echo $$ > pid; wait",
    );
    let everybody = ["pid", "child"].map(|file| place.read(file));
    support::kill("KILL", &place.read("supervisor"));
    let done = run.done();
    assert_eq!(done.code, 70, "{done:?}");
    assert!(!everybody.iter().any(|pid| alive(pid)));
    assert!(place.is_free("job"));
}

fn a_dead_supervisor_gives_the_command_no_time_beyond_the_lease(place: &Place) {
    let script = "trap 'echo > term' TERM; echo $PPID > supervisor; echo $$ > pid; \
                  while :; do sleep 0.02; done";
    let run = place.run(&["--lease", "4s", "--grace", "1900ms"], script);
    let (supervisor, command) = (place.read("supervisor"), place.read("pid"));
    eventually("a request to end", || place.file("term").exists());
    let ((), took) = timed(|| {
        support::kill("KILL", &supervisor);
        eventually("the end of the command", || !alive(&command));
    });
    assert!(took < Duration::from_millis(1900), "{took:?}");
    assert_eq!(run.done().code, 76);
}

fn a_stopped_supervisor_cannot_keep_the_command_beyond_the_hold(place: &Place) {
    let script = "echo $PPID > supervisor; echo $$ > pid; exec sleep 60";
    let run = place.run(&["--ttl", "1500ms"], script);
    let (supervisor, command) = (place.read("supervisor"), place.read("pid"));
    support::kill("STOP", &supervisor);
    place.done(&["unlock", "job", "--force"]);
    eventually("the end of the command", || !alive(&command));
    assert_eq!(run.done().code, 76);
}

fn a_hung_run_cannot_keep_the_command_beyond_the_lease(place: &Place) {
    let mut run = place.run(&["--ttl", "900ms"], "echo $$ > pid; exec sleep 60");
    let command = place.read("pid");
    run.signal("STOP");
    eventually("the end of the command", || !alive(&command));
    run.signal("CONT");
    assert_eq!(run.done().code, 76);
}

fn a_minimal_hold_outlasts_the_command(place: &Place) {
    let (done, took) = timed(|| place.run(&["--min-hold", "700ms"], "exit 3").done());
    assert_eq!(done.code, 3, "{done:?}");
    assert!(took >= Duration::from_millis(700), "{took:?}");
    assert!(place.is_free("job"));
}

fn a_signal_cuts_a_minimal_hold_short(place: &Place) {
    let mut run = place.run(&["--min-hold", "1h"], "echo $PPID > supervisor");
    let supervisor = place.read("supervisor");
    eventually("the end of the supervisor", || !alive(&supervisor));
    assert!(!place.is_free("job"));
    run.signal("TERM");
    assert_eq!(run.done().code, 0);
    assert!(place.is_free("job"));
}

fn a_signal_that_the_command_got_cuts_a_minimal_hold_short(place: &Place) {
    let mut run = place.run(&["--min-hold", "1h"], "echo > ready; exec sleep 60");
    place.read("ready");
    run.signal("TERM");
    assert_eq!(run.done().code, 143);
    assert!(place.is_free("job"));
}

fn the_command_has_no_descriptors_of_ours(place: &Place) {
    let done = place.run(&[], "ls -l /proc/$$/fd").done();
    assert!(!done.out.contains("socket:"), "{done:?}");
    // The hold file, which keeps the lock of this machine, it has once.
    assert!(done.out.matches("/holds/").count() <= 1, "{done:?}");
}

fn an_ignored_signal_stays_ignored(place: &Place) {
    let mut shell = std::process::Command::new("sh");
    place.settle(&mut shell);
    let run = "trap '' HUP; exec $LEASEHOLD run job -- sh -c 'kill -HUP $$ $PPID; exit 5'";
    assert_eq!(Running::spawn(shell.args(["-c", run])).done().code, 5);
}

/// Whether the process catches the signal of this number.
fn catches(pid: &str, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (number - 1)) != 0)
}
