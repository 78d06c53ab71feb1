//! Lock files: entering one, reading it, replacing what stands in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hold::{failed, is_at};
use super::slots::Slots;
use crate::error::{Error, Result};
use crate::model::Moment;
use crate::op::State;
use crate::store::Clock;

/// How often a busy file is tried again at once. Most are busy for some microseconds.
const AT_ONCE: u32 = 8;
/// The pause between two tries after that: the shortest that a timer of the runtime can do.
const PAUSE: Duration = Duration::from_millis(1);
/// How much of a name is seen in the name of its file.
const READABLE: usize = 40;

/// What a lock file holds.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// The boot in which it was written. Its times mean nothing in another, nor do its holders
    /// live; its numbers stand.
    boot: String,
    pub(super) state: State,
    /// The sockets of those who listen, by channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) waiters: BTreeMap<String, BTreeSet<String>>,
}

impl Record {
    fn is_empty(&self) -> bool {
        self.state.is_empty() && self.waiters.is_empty()
    }

    /// Whether the socket was not listening to the channel before.
    pub(super) fn register(&mut self, channel: &str, socket: &str) -> bool {
        let here = self.waiters.entry(channel.to_owned()).or_default();
        here.insert(socket.to_owned())
    }

    /// Takes sockets that are `gone` from every channel.
    pub(super) fn forget(&mut self, gone: impl Fn(&str) -> bool) {
        self.waiters.retain(|_, sockets| {
            sockets.retain(|socket| !gone(socket));
            !sockets.is_empty()
        });
    }

    /// Takes the socket from every channel but those that are `kept`.
    pub(super) fn unregister(&mut self, socket: &str, kept: impl Fn(&str) -> bool) {
        self.waiters.retain(|channel, sockets| {
            if !kept(channel) {
                sockets.remove(socket);
            }
            !sockets.is_empty()
        });
    }
}

/// Where the state under a hash tag stands: a readable part, and a checksum that tells apart what
/// that leaves out. Tags that share a file do no harm to each other.
pub(super) fn name_for(tag: &str) -> String {
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => c,
        '.' => '.',
        _ => '_',
    };
    let readable: String = tag.chars().take(READABLE).map(plain).collect();
    let hidden = readable.strip_prefix('.').map(|rest| format!("_{rest}"));
    let readable = hidden.unwrap_or(readable);
    format!("{readable}-{:08x}", crc32fast::hash(tag.as_bytes()))
}

/// Whether a file in the directory may be a lock file.
pub(super) fn is_lock_file(name: &str) -> bool {
    name.rsplit_once('-')
        .is_some_and(|(_, crc)| crc.len() == 8 && crc.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A lock file that is locked: what stands in it, until this is dropped.
#[derive(Debug)]
pub(super) struct Session {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    slots: Slots,
}

/// What came of trying to enter a lock file.
pub(super) enum Entry {
    Entered(Session),
    /// Somebody is in it.
    Busy,
    /// There is no such file, and none was to be made.
    Missing,
}

/// Why a record could not be kept.
#[derive(Debug)]
pub(super) enum Unkept {
    /// The old one stands.
    Refused(Error),
    /// The old or the new one stands.
    Unknown(Error),
}

impl Session {
    /// Enters if nobody is in the file.
    pub(super) fn try_enter(path: &Path, create: bool) -> Result<Entry> {
        loop {
            let Some(file) = open(path, create)? else {
                return Ok(Entry::Missing);
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => return Self::load(path, file).map(Entry::Entered),
                // It was removed before it was locked.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Entry::Busy),
                Err(TryLockError::Error(error)) => return Err(trouble(path, error)),
            }
        }
    }

    /// Enters, waiting no longer than `until`. Dropping the future leaves the file alone.
    ///
    /// The OS lock is had within one poll only, and nobody waits for it in the kernel: a worker
    /// that is blocked when it gets the lock would shut every other process out.
    pub(super) async fn enter(path: &Path, create: bool, until: Moment) -> Result<Option<Self>> {
        let mut tries = 0;
        loop {
            match Self::try_enter(path, create)? {
                Entry::Entered(session) => return Ok(Some(session)),
                Entry::Missing => return Ok(None),
                Entry::Busy => {}
            }
            let now = Clock::Boot.now();
            if now >= until {
                let why = format!("another process keeps {} busy", path.display());
                return Err(Error::unavailable(why));
            }
            tries += 1;
            if tries <= AT_ONCE {
                tokio::task::yield_now().await;
            } else {
                Clock::Boot.sleep_until(now.after(PAUSE).min(until)).await;
            }
        }
    }

    fn load(path: &Path, mut file: File) -> Result<Self> {
        let regular = file
            .metadata()
            .map_err(|error| trouble(path, error))?
            .is_file();
        if !regular {
            return Err(Error::protocol(format!("{} is no file", path.display())));
        }
        let mut bytes = vec![];
        file.read_to_end(&mut bytes)
            .map_err(|error| trouble(path, error))?;
        let slots = Slots::read(&bytes).map_err(|error| located(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            slots,
        })
    }

    /// What stands in the file; of what was written before this boot, what outlives that.
    pub(super) fn record(&self, boot: &str) -> Result<Record> {
        let fresh = || Record {
            boot: boot.to_owned(),
            ..Record::default()
        };
        if self.payload().is_empty() {
            return Ok(fresh());
        }
        let record: Record = serde_json::from_slice(self.payload())
            .map_err(|error| located(&self.path, Error::protocol(error.to_string())))?;
        Ok(if record.boot == boot {
            record
        } else {
            Record {
                state: record.state.outlive(),
                ..fresh()
            }
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Which write of the file stands.
    fn generation(&self) -> u64 {
        self.slots.generation
    }

    /// Puts `record` into the file if it is another one, or removes the file if it is empty.
    /// Which write of the file stands then.
    pub(super) fn keep(self, record: &Record) -> Result<u64, Unkept> {
        // A file that cannot be removed can still be written.
        if record.is_empty() && fs::remove_file(&self.path).is_ok() {
            return Ok(0);
        }
        let payload = serde_json::to_vec(record)
            .map_err(|error| Unkept::Refused(Error::protocol(error.to_string())))?;
        if payload == self.payload() {
            return Ok(self.generation());
        }
        let [(at, body), (pointer, descriptor)] = self.slots.replace(&payload);
        self.write(at, &body)
            .map_err(|error| Unkept::Refused(trouble(&self.path, error)))?;
        self.write(pointer, &descriptor).map_err(|error| {
            Unkept::Unknown(Error::Unavailable {
                message: format!("{}: {error}", self.path.display()),
                source: Some(Arc::new(error)),
                outcome_unknown: true,
            })
        })?;
        Ok(self.generation().max(1) + 1)
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        self.file.write_all_at(bytes, offset)
    }

    fn payload(&self) -> &[u8] {
        self.slots.payload(&self.bytes)
    }
}

fn open(path: &Path, create: bool) -> Result<Option<File>> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600);
    match options.custom_flags(no_link).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !create => Ok(None),
        Err(error) if path.is_symlink() || path.is_dir() => {
            Err(located(path, Error::protocol(error.to_string())))
        }
        Err(error) => Err(trouble(path, error)),
    }
}

fn trouble(path: &Path, error: io::Error) -> Error {
    failed(&path.display().to_string(), error)
}

fn located(path: &Path, error: Error) -> Error {
    match error {
        Error::Protocol(why) => Error::protocol(format!("{}: {why}", path.display())),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::state::Value;

    fn entered(path: &Path) -> Session {
        match Session::try_enter(path, true).unwrap() {
            Entry::Entered(session) => session,
            Entry::Busy | Entry::Missing => panic!("not entered"),
        }
    }

    fn some(session: &Session, boot: &str) -> Record {
        let mut record = session.record(boot).unwrap();
        record.state.set_field("key", "field", 1).unwrap();
        record
    }

    #[test]
    fn a_record_reads_back_within_one_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a-00000000");
        let session = entered(&path);
        let record = some(&session, "boot");
        assert_eq!(session.keep(&record).unwrap(), 2);
        assert_eq!(entered(&path).record("boot").unwrap(), record);
        assert!(entered(&path).record("another").unwrap().is_empty());
        let generation = entered(&path).keep(&record).unwrap();
        assert_eq!(generation, 2, "what is the same is not written");
    }

    #[test]
    fn a_token_outlives_the_boot_and_a_hold_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a-00000000");
        let session = entered(&path);
        let mut record = some(&session, "boot");
        let number = Value::Text("1901234567890123".to_owned());
        record.state.put("token", number.clone());
        record.state.put("plain", Value::Text("a:1".to_owned()));
        record.state.put("leased", number.clone());
        record.state.prolong("leased", 1_000, 0);
        session.keep(&record).unwrap();
        let after = entered(&path).record("another").unwrap();
        assert_eq!(after.state.names().collect::<Vec<_>>(), ["token"]);
        assert_eq!(after.state.value("token"), Some(&number));
        entered(&path).keep(&after).unwrap();
        assert_eq!(entered(&path).record("another").unwrap(), after);
    }

    #[test]
    fn an_empty_record_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a-00000000");
        let session = entered(&path);
        let record = session.record("boot").unwrap();
        assert!(path.exists());
        session.keep(&record).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_is_entered_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a-00000000");
        let session = entered(&path);
        let busy = Session::try_enter(&path, true).unwrap();
        assert!(matches!(busy, Entry::Busy));
        drop(session);
        entered(&path);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_waited_for_a_removed_file_enters_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a-00000000");
        let session = entered(&path);
        let nothing = session.record("boot").unwrap();
        let waits = path.clone();
        let waiter =
            tokio::spawn(async move { Session::enter(&waits, true, Moment::NEVER).await.unwrap() });
        session.keep(&nothing).unwrap();
        let session = waiter.await.unwrap().unwrap();
        let record = some(&session, "boot");
        session.keep(&record).unwrap();
        assert_eq!(entered(&path).record("boot").unwrap(), record);
    }

    #[tokio::test]
    async fn a_busy_file_is_given_up_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a-00000000");
        let _session = entered(&path);
        let until = Clock::Boot.now().after(Duration::from_millis(5));
        let error = Session::enter(&path, true, until).await.unwrap_err();
        assert!(error.is_retryable() && !error.outcome_is_unknown());
    }

    #[test]
    fn what_is_no_lock_file_is_reported_and_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a-00000000");
        fs::write(&path, "somebody's notes").unwrap();
        let link = dir.path().join("b-00000000");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for path in [&path, &link, &dir.path().to_owned()] {
            let error = Session::try_enter(path, true).err();
            assert!(matches!(error, Some(Error::Protocol(_))), "{error:?}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's notes");
    }

    #[test]
    fn file_names_are_readable_and_tell_tags_apart() {
        assert_eq!(name_for("orders:42"), "orders_42-0cff44c5");
        assert_ne!(name_for("a/b"), name_for("a:b"));
        for odd in ["..", ".hidden", "/", "\u{1F512}", &"x".repeat(300)] {
            let name = name_for(odd);
            assert!(is_lock_file(&name) && !name.starts_with('.') && !name.contains('/'));
            assert!(name.len() < 60);
        }
        assert!(!is_lock_file("holds") && !is_lock_file("w"));
    }
}
