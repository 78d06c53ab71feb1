//! `leasehold run` in a terminal, which script(1) provides.

mod support;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use support::{Done, Place, Running, eventually, in_time};

const INTERRUPT: &str = "\x03";
const SUSPEND: &str = "\x1a";
const END: &str = "\x04";

/// A terminal with something running in it.
struct Terminal {
    running: Running,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(place: &Place, command: &str) -> Self {
        let mut script = Command::new("script");
        place.settle(&mut script);
        script
            .args(["-qefc", command, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped());
        let mut running = Running::spawn(&mut script);
        let mut output = running.output();
        let screen = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut some) {
                let text = String::from_utf8_lossy(&some[..length]);
                written.lock().expect("no panic").push_str(&text);
            }
        });
        Self { running, screen }
    }

    /// A shell with job control, whose prompt is told from what is echoed.
    fn shell(place: &Place) -> Self {
        let mut terminal = Self::open(place, "exec sh -i");
        terminal.type_in("PS1=; set -m\n");
        terminal.type_in("echo sh''ell\n");
        terminal.shows("shell\r\n");
        terminal
    }

    fn type_in(&mut self, keys: &str) {
        self.running.say(keys);
    }

    /// Waits for `text`, and forgets what came up to it.
    fn shows(&self, text: &str) -> String {
        let mut seen = String::new();
        let shown = in_time(|| {
            let mut screen = self.screen.lock().expect("no panic");
            let Some(at) = screen.find(text) else {
                return false;
            };
            seen = screen.drain(..at + text.len()).collect();
            true
        });
        assert!(
            shown,
            "no {text:?} on {:?}",
            self.screen.lock().expect("no panic")
        );
        seen
    }

    fn done(self) -> Done {
        self.running.done()
    }
}

#[test]
fn a_command_reads_the_terminal_and_ctrl_c_ends_it() {
    let place = Place::local();
    let mut terminal = Terminal::open(&place, "$LEASEHOLD run job -- cat");
    terminal.type_in("hello\n");
    // Once echoed, once by cat.
    terminal.shows("hello\r\n");
    terminal.shows("hello\r\n");
    assert!(!place.is_free("job"));
    terminal.type_in(INTERRUPT);
    assert_eq!(terminal.done().code, 130);
    assert!(place.is_free("job"));
}

/// A script of two rounds in a terminal; Ctrl-C comes in the first.
fn interrupted_in_the_first_round(shell: &str, command: &str) {
    let place = Place::local();
    let script = format!("for i in 1 2; do {command}; done; touch survived");
    std::fs::write(place.file("script"), script).expect("a file");
    let mut terminal = Terminal::open(&place, &format!("exec {shell} script"));
    place.read("round");
    std::fs::remove_file(place.file("round")).expect("a file");
    terminal.type_in(INTERRUPT);
    assert_eq!(terminal.done().code, 130, "{shell}: {command}");
    assert!(!place.file("round").exists() && !place.file("survived").exists());
    assert!(place.is_free("job"));
}

#[test]
fn ctrl_c_ends_the_script_around_the_command() {
    let command = "$LEASEHOLD run job -- sh -c 'echo > round; exec sleep 60'";
    interrupted_in_the_first_round("bash", command);
    interrupted_in_the_first_round("dash", command);
    // Behind a pipe the command is not in front: then the key reaches everybody.
    interrupted_in_the_first_round("bash", &format!("{command} | cat"));
    let nested = format!("$LEASEHOLD run outer -- {command}");
    interrupted_in_the_first_round("bash", &nested);
}

#[test]
fn ctrl_c_in_a_wait_ends_the_script_around_it() {
    let place = Place::local();
    let mut holder = place.run(&[], "echo > held; exec sleep 60");
    place.read("held");
    let script = "for i in 1 2; do $LEASEHOLD run job -- true; done; touch survived";
    std::fs::write(place.file("script"), script).unwrap();
    let mut terminal = Terminal::open(&place, "exec bash script");
    terminal.shows("waiting for job");
    terminal.type_in(INTERRUPT);
    assert_eq!(terminal.done().code, 130);
    assert!(!place.file("survived").exists());
    holder.signal("TERM");
    assert_eq!(holder.done().code, 143);
}

#[test]
fn a_command_that_uses_ctrl_c_for_itself_does_not_end_the_script() {
    let place = Place::local();
    // Its own group is the one in front: from then on the key is its alone.
    let script = "trap 'exit 130' INT
        until [ $(cut -d' ' -f8 /proc/$$/stat) = $$ ]; do sleep 0.02; done
        echo > ready; while :; do sleep 0.02; done";
    std::fs::write(place.file("script"), script).unwrap();
    let command = "$LEASEHOLD run job -- sh script; echo 'co'de $?";
    let mut terminal = Terminal::open(&place, command);
    place.read("ready");
    terminal.type_in(INTERRUPT);
    terminal.shows("code 130\r\n");
    terminal.done();
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let place = Place::local();
    let mut terminal = Terminal::shell(&place);
    terminal.type_in("$LEASEHOLD run job -- cat; echo 'co'de $?\n");
    terminal.type_in("one\n");
    terminal.shows("one\r\n");
    terminal.shows("one\r\n");
    terminal.type_in(SUSPEND);
    terminal.shows("is not renewed meanwhile and ends in");
    terminal.type_in("echo ag''ain\n");
    terminal.shows("again\r\n");
    assert!(!place.is_free("job"));
    terminal.type_in("fg; echo 'fi'nal $?\n");
    terminal.type_in("two\n");
    terminal.shows("two\r\n");
    terminal.shows("two\r\n");
    terminal.type_in(END);
    terminal.shows("final 0\r\n");
    assert!(place.is_free("job"));
    terminal.type_in("exit 0\n");
    terminal.done();
}

#[test]
fn a_suspended_command_ends_with_its_lease() {
    let place = Place::local();
    let mut terminal = Terminal::shell(&place);
    terminal.type_in("$LEASEHOLD run --ttl 1200ms job -- sh -c 'echo $$ > pid; cat'\n");
    let command = place.read("pid");
    terminal.type_in("one\n");
    terminal.shows("one\r\n");
    terminal.shows("one\r\n");
    terminal.type_in(SUSPEND);
    terminal.shows("is not renewed meanwhile and ends in");
    eventually("the end of the command", || !support::alive(&command));
    terminal.type_in("fg; echo 'fi'nal $?\n");
    terminal.shows("final 76\r\n");
    assert!(place.is_free("job"));
    terminal.type_in("exit 0\n");
    terminal.done();
}

#[test]
fn a_job_in_the_background_leaves_the_terminal_to_the_shell() {
    let place = Place::local();
    let mut terminal = Terminal::shell(&place);
    terminal.type_in("$LEASEHOLD run job -- cat &\n");
    eventually("the hold", || !place.is_free("job"));
    // cat wants to read, so the job stops; brought to the front, it reads.
    terminal.shows("is not renewed meanwhile and ends in");
    terminal.type_in("echo st''ill\n");
    terminal.shows("still\r\n");
    terminal.type_in("fg\n");
    terminal.type_in("hello\n");
    terminal.shows("hello\r\n");
    terminal.shows("hello\r\n");
    terminal.type_in(INTERRUPT);
    eventually("the end of the hold", || place.is_free("job"));
    terminal.type_in("echo 'ne'xt\n");
    terminal.shows("next\r\n");
    terminal.type_in("exit 0\n");
    terminal.done();
}

#[test]
fn a_command_behind_a_pipe_gets_the_terminal_when_it_asks() {
    let place = Place::local();
    let run = "true | $LEASEHOLD run job -- sh -c 'read line < /dev/tty; echo got $line'";
    let mut terminal = Terminal::open(&place, run);
    terminal.type_in("hello\n");
    terminal.shows("got hello\r\n");
    assert_eq!(terminal.done().code, 0);
}

#[test]
fn a_pager_behind_the_command_keeps_the_terminal() {
    let place = Place::local();
    let run =
        "$LEASEHOLD run job -- sh -c 'echo text' | sh -c 'cat; read key < /dev/tty; echo key $key'";
    let mut terminal = Terminal::open(&place, run);
    terminal.shows("text\r\n");
    terminal.type_in("q\n");
    terminal.shows("key q\r\n");
    assert_eq!(terminal.done().code, 0);
}

#[test]
fn a_waiter_shows_who_holds_and_clears_the_line() {
    let place = Place::local();
    let mut holder = place.run(&[], "echo up > up; exec sleep 60");
    place.read("up");
    let pid = holder.pid();
    let terminal = Terminal::open(&place, "$LEASEHOLD run job -- echo got it");
    let line = terminal.shows(" left");
    assert!(
        line.contains(&format!(
            "waiting for job: held by leasehold, pid {pid}, on "
        )),
        "{line:?}"
    );
    holder.signal("TERM");
    let rest = terminal.shows("got it");
    assert!(rest.contains("\r\x1b[K"), "{rest:?}");
    assert_eq!(terminal.done().code, 0);
}
