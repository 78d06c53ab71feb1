//! The command's processes: its group, and descendants that left the group.

use std::fs;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
};
use tokio::signal::unix::{SignalKind, signal};

/// A process as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    dead: bool,
}

/// All living descendants of this process.
///
/// Orphans among them are children of this process, a subreaper, so none escapes.
pub(super) fn descendants() -> Vec<Pid> {
    living_below(getpid().as_raw_nonzero().get(), &table())
        .into_iter()
        .filter_map(|process| Pid::from_raw(process.pid))
        .collect()
}

/// Sends `signal` to the group, if it is known, and to the descendants that are not in it.
pub(super) fn signal_all(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        signal_group(group, signal);
    }
    let number = group.map_or(0, |group| group.as_raw_nonzero().get());
    for process in living_below(getpid().as_raw_nonzero().get(), &table()) {
        if let Some(pid) = Pid::from_raw(process.pid).filter(|_| process.group != number) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Sends `signal` to the group. A group that has ended is no error.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// Leaves orphans to others from now on, and collects those that this process has already.
///
/// To be polled when no child is waited for by its number any more.
pub(crate) async fn bury_orphans() {
    let _ = set_child_subreaper(None);
    let Ok(mut ended) = signal(SignalKind::child()) else {
        return;
    };
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        ended.recv().await;
    }
}

fn table() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid: i32 = name.to_str()?.parse().ok()?;
            parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
        })
        .collect()
}

/// Reads a line of /proc/PID/stat. The name of the program may hold spaces and parentheses.
fn parse(stat: &[u8]) -> Option<Process> {
    let stat = String::from_utf8_lossy(stat);
    let (pid, rest) = stat.split_once(' ')?;
    let mut fields = rest[rest.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        dead: matches!(state, "Z" | "X"),
    })
}

fn living_below(root: i32, all: &[Process]) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            parents.push(process.pid);
            found.push(*process);
        }
    }
    found.retain(|process| !process.dead);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_parentheses_is_read() {
        let process = parse(b"42 (a) S (b) Z 7 40 1 0").unwrap();
        let (pid, parent, group) = (42, 7, 40);
        let dead = true;
        assert_eq!(
            process,
            Process {
                pid,
                parent,
                group,
                dead
            }
        );
    }

    #[test]
    fn descendants_of_the_dead_are_found() {
        let process = |pid, parent, dead| Process {
            pid,
            parent,
            group: 1,
            dead,
        };
        let all = [
            process(2, 1, true),
            process(3, 2, false),
            process(4, 9, false),
        ];
        let below: Vec<i32> = living_below(1, &all).iter().map(|p| p.pid).collect();
        assert_eq!(below, [3]);
    }
}
