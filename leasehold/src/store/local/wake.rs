//! Wake-ups between processes: one datagram socket each, and who listens to what.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::path::{Path, PathBuf};

use tokio::net::UnixDatagram;

use crate::op::state::Announcement;

/// The longest announcement that is read; a longer name is found by looking.
const LONGEST: usize = 1 << 16;
/// After so many looks at a free lock its waiter is woken whatever was announced.
const STALE: u32 = 10;
/// How often another name is tried for a socket.
const TRIES: usize = 10;

/// The socket on which this process is woken. Its file goes when it is dropped.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) name: String,
    path: PathBuf,
}

impl Bell {
    /// Makes the socket. Its file gets its name when it can be reached, so that a sweep does not
    /// take it for that of a dead process.
    pub(super) fn hang(dir: &Path) -> io::Result<(Self, UnixDatagram)> {
        let mut last = io::Error::other("no try");
        for _ in 0..TRIES {
            // Random, since two containers may have the same process id.
            let (random, ..) = uuid::Uuid::new_v4().as_fields();
            let base = format!("{}-{random:08x}", std::process::id());
            let (unfinished, name) = (dir.join(format!("{base}.new")), format!("{base}.sock"));
            let path = dir.join(&name);
            let made = StdDatagram::bind(&unfinished).and_then(|socket| {
                fs::rename(&unfinished, &path)?;
                socket.set_nonblocking(true)?;
                UnixDatagram::from_std(socket)
            });
            match made {
                Ok(socket) => return Ok((Self { name, path }, socket)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Receives the next channel that something was announced on.
pub(super) async fn heard(socket: &UnixDatagram, buffer: &mut Vec<u8>) -> io::Result<String> {
    buffer.resize(LONGEST, 0);
    let length = socket.recv(buffer).await?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Rings other processes' bells.
#[derive(Debug)]
pub(super) struct Ringer {
    dir: PathBuf,
    socket: StdDatagram,
}

impl Ringer {
    pub(super) fn new(dir: PathBuf) -> io::Result<Self> {
        let socket = StdDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { dir, socket })
    }

    /// Tells of an announcement. Whether that socket still is somebody's.
    ///
    /// One that is full has enough to wake up for; whatever else goes wrong is found by looking.
    pub(super) fn ring(&self, name: &str, announcement: &Announcement) -> bool {
        let channel = announcement.channel.as_bytes();
        let sent = self.socket.send_to(channel, self.dir.join(name));
        !sent.is_err_and(|error| is_gone(&error))
    }

    /// Whether there is such a socket; that of a dead process goes in a sweep.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.dir.join(name).exists()
    }

    /// Removes the sockets of dead processes.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let probe = StdDatagram::unbound()?;
            if probe.connect(&path).is_err_and(|error| is_gone(&error)) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound)
}

/// The channels that this process listens to.
#[derive(Debug, Default)]
pub(super) struct Listening {
    channels: BTreeMap<String, Channel>,
    made: u64,
}

#[derive(Debug)]
struct Channel {
    /// Tells it from an earlier one of the same name.
    id: u64,
    /// How many ask for it: a late end of the last wait must not end the next one.
    wanted: usize,
    /// The lock file with the table, and the key whose release is waited for.
    file: String,
    key: String,
    live: bool,
    /// How many announcements came.
    heard: u64,
    last: Option<Look>,
}

/// What was seen of a channel in its lock file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Look {
    generation: u64,
    free: bool,
    heard: u64,
    /// How many looks in a row showed the same.
    streak: u32,
    /// An announcement came since the look before the first of them.
    told: bool,
}

/// A channel to look after.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) channel: String,
    pub(super) key: String,
    id: u64,
    /// Whether the table had us, as far as was known when it was entered.
    live: bool,
}

/// What a look into a lock file showed of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The table had us not: we are in it now.
    pub(super) fresh: bool,
    /// Nobody holds the lock.
    pub(super) free: bool,
    /// Which write of the file that was.
    pub(super) generation: u64,
    /// It was one of the regular looks, between which an announcement has time to come.
    pub(super) regular: bool,
}

/// What the listener is to be told after a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    Nothing,
    /// From now on nothing is missed.
    Live,
    /// Something may have been missed; from now on nothing is.
    Gap,
}

impl Listening {
    pub(super) fn add(&mut self, channel: &str, file: &str, key: &str) {
        self.made += 1;
        let id = self.made;
        let fresh = || Channel {
            id,
            wanted: 0,
            file: file.to_owned(),
            key: key.to_owned(),
            live: false,
            heard: 0,
            last: None,
        };
        let here = self
            .channels
            .entry(channel.to_owned())
            .or_insert_with(fresh);
        here.wanted += 1;
        // The new listener has not been told.
        here.live = false;
    }

    pub(super) fn remove(&mut self, channel: &str) {
        if let Some(here) = self.channels.get_mut(channel) {
            here.wanted -= 1;
            if here.wanted == 0 {
                self.channels.remove(channel);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// The lock files of all channels.
    pub(super) fn files(&self) -> Vec<String> {
        let mut files: Vec<_> = self.channels.values().map(|here| &here.file).collect();
        files.sort();
        files.dedup();
        files.into_iter().cloned().collect()
    }

    /// The channels of one lock file.
    pub(super) fn within(&self, file: &str) -> Vec<Wanted> {
        let within = self.channels.iter().filter(|(_, here)| here.file == file);
        within
            .map(|(channel, here)| Wanted {
                channel: channel.clone(),
                key: here.key.clone(),
                id: here.id,
                live: here.live,
            })
            .collect()
    }

    /// An announcement came. Whether somebody listens.
    pub(super) fn heard(&mut self, channel: &str) -> bool {
        let here = self.channels.get_mut(channel);
        here.is_some_and(|here| {
            here.heard += 1;
            true
        })
    }

    /// Takes a look into account. What the listener is to be told.
    pub(super) fn looked(&mut self, wanted: &Wanted, seen: Seen) -> News {
        let here = self.channels.get_mut(&wanted.channel);
        let Some(here) = here.filter(|here| here.id == wanted.id) else {
            return News::Nothing;
        };
        let missed = seen.regular && here.missed(seen);
        if !std::mem::replace(&mut here.live, true) {
            return News::Live;
        }
        if missed || (seen.fresh && wanted.live) {
            return News::Gap;
        }
        News::Nothing
    }
}

impl Channel {
    /// Whether a release may have been missed: the lock has been free for two looks, without an
    /// announcement. One look is not enough, for that may be on its way. An announcement may have
    /// been of an earlier release, so a lock that stays free is missed in the end.
    fn missed(&mut self, seen: Seen) -> bool {
        let Seen {
            generation, free, ..
        } = seen;
        let before = self.last;
        let same = before.filter(|last| last.generation == generation && last.free);
        let told = before.is_some_and(|last| last.heard != self.heard);
        let look = Look {
            generation,
            free,
            heard: self.heard,
            streak: same.map_or(1, |last| last.streak.saturating_add(1)),
            told: told || same.is_some_and(|last| last.told),
        };
        self.last = Some(look);
        free && (look.streak == STALE || (look.streak == 2 && !look.told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening() -> (Listening, Wanted) {
        let mut listening = Listening::default();
        listening.add("channel", "file", "key");
        let wanted = listening.within("file").remove(0);
        (listening, wanted)
    }

    fn seen(generation: u64, free: bool) -> Seen {
        Seen {
            fresh: false,
            free,
            generation,
            regular: true,
        }
    }

    #[test]
    fn a_release_without_an_announcement_is_told_once() {
        let (mut all, wanted) = listening();
        let mut look = |generation, free| all.looked(&wanted, seen(generation, free));
        assert_eq!(look(5, false), News::Live);
        assert_eq!(look(5, false), News::Nothing);
        assert_eq!(look(6, true), News::Nothing, "it may be on its way");
        assert_eq!(look(6, true), News::Gap);
        assert_eq!(look(6, true), News::Nothing);
        assert_eq!(look(6, true), News::Nothing);
        assert_eq!(look(7, false), News::Nothing);
        assert_eq!(look(8, true), News::Nothing);
        assert_eq!(look(8, true), News::Gap);
    }

    #[test]
    fn a_release_with_an_announcement_is_no_gap() {
        let (mut all, wanted) = listening();
        assert_eq!(all.looked(&wanted, seen(5, false)), News::Live);
        assert_eq!(all.looked(&wanted, seen(6, true)), News::Nothing);
        assert!(all.heard("channel"));
        assert_eq!(all.looked(&wanted, seen(6, true)), News::Nothing);
        assert_eq!(all.looked(&wanted, seen(6, true)), News::Nothing);
        assert_eq!(all.looked(&wanted, seen(7, false)), News::Nothing);
        assert!(all.heard("channel"));
        for _ in 1..STALE {
            assert_eq!(all.looked(&wanted, seen(8, true)), News::Nothing);
        }
        let last = all.looked(&wanted, seen(8, true));
        assert_eq!(last, News::Gap, "it may have been of an earlier release");
    }

    #[test]
    fn a_look_soon_after_another_says_nothing_about_announcements() {
        let (mut all, wanted) = listening();
        let mut soon = seen(6, true);
        assert_eq!(all.looked(&wanted, soon), News::Live);
        soon.regular = false;
        assert_eq!(all.looked(&wanted, soon), News::Nothing);
        assert_eq!(all.looked(&wanted, seen(6, true)), News::Gap);
    }

    #[test]
    fn a_lost_registration_is_a_gap() {
        let (mut all, first) = listening();
        let mut fresh = seen(5, false);
        fresh.fresh = true;
        assert_eq!(all.looked(&first, fresh), News::Live);
        let late = all.looked(&first, fresh);
        assert_eq!(late, News::Nothing, "it looked before the first was told");
        let second = all.within("file").remove(0);
        assert_eq!(all.looked(&second, fresh), News::Gap);
    }

    #[test]
    fn a_late_end_of_one_wait_does_not_end_the_next() {
        let (mut all, old) = listening();
        all.add("channel", "file", "key");
        all.remove("channel");
        assert!(all.heard("channel"));
        assert_eq!(all.looked(&old, seen(5, false)), News::Live);
        all.remove("channel");
        assert!(all.is_empty());
        all.add("channel", "file", "key");
        let stale = all.looked(&old, seen(5, false));
        assert_eq!(stale, News::Nothing, "that look was for another listener");
    }

    #[tokio::test]
    async fn a_bell_is_rung_until_it_is_taken_down() {
        let dir = tempfile::tempdir().unwrap();
        let ringer = Ringer::new(dir.path().to_owned()).unwrap();
        let (bell, socket) = Bell::hang(dir.path()).unwrap();
        let announcement = Announcement {
            channel: "channel".to_owned(),
            payload: "0".to_owned(),
        };
        assert!(ringer.ring(&bell.name, &announcement));
        assert_eq!(heard(&socket, &mut vec![]).await.unwrap(), "channel");
        ringer.sweep().unwrap();
        assert!(bell.path.exists(), "a sweep leaves the living alone");
        drop(socket);
        assert!(!ringer.ring(&bell.name, &announcement));
        ringer.sweep().unwrap();
        assert!(!bell.path.exists());
    }
}
