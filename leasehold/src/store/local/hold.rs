//! Hold files: an OS lock that the kernel frees when the last process with it has ended.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::model::{HoldId, LeaseTerm, Name, Now, Ttl};
use crate::op::state::Value;
use crate::op::{Operation, State, mutex, plain};

/// How a hold file is called until it is locked.
const UNFINISHED: &str = ".new";
/// How often a hold file is made anew when a sweep takes it away before it is locked.
const TRIES: usize = 100;

/// The hold files of a directory.
#[derive(Clone, Debug)]
pub(super) struct Holds {
    dir: PathBuf,
}

/// The file whose OS lock keeps a hold alive.
///
/// Dropping it closes it and leaves it in its place, as the end of the process would: whoever
/// looks next frees the hold.
#[derive(Debug)]
pub(crate) struct HoldFile {
    path: PathBuf,
    bond: Bond,
    file: Mutex<Option<File>>,
}

/// What the OS lock means for the lease; stands in the hold file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bond {
    /// The TTL that a living holder is always given anew; none if the lease runs out by itself.
    renewed: Option<u64>,
    /// The OS lock changes hands at this moment: that nobody has it means nothing.
    yielding: bool,
}

/// What a hold file tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pulse {
    /// No file, or it changes hands: the TTL decides.
    Unbound,
    Alive(Bond),
    Dead,
}

impl Holds {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Makes and locks the hold file.
    pub(super) fn bind(&self, hold: &HoldId, term: LeaseTerm) -> Result<HoldFile> {
        let bond = Bond::new(term);
        let path = self.path(hold);
        let file = self
            .make(&path, bond)
            .map_err(|error| failed("a hold file cannot be made", error))?;
        Ok(HoldFile {
            path,
            bond,
            file: Mutex::new(Some(file)),
        })
    }

    /// Under its own name a hold file is locked from the first moment, so nobody takes it for
    /// that of a dead holder.
    fn make(&self, path: &Path, bond: Bond) -> io::Result<File> {
        for attempt in 0..TRIES {
            let mut unfinished = path.as_os_str().to_owned();
            unfinished.push(format!(".{attempt}{UNFINISHED}"));
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(0o600);
            let file = options.open(&unfinished)?;
            let finished = finish(&file, Path::new(&unfinished), path, bond);
            if matches!(finished, Ok(true)) {
                return Ok(file);
            }
            let _ = fs::remove_file(&unfinished);
            finished?;
        }
        Err(io::Error::other("it is taken away again and again"))
    }

    /// Brings the state up to what the kernel knows of the holders, then up to `now`: prolongs
    /// what living holders have, frees and announces what dead ones had, forgets what ran out.
    ///
    /// Returns the holds of the dead; their files are to be removed once the state is written.
    ///
    /// Where the kernel cannot be asked about a holder, nothing can be said of the lock: to go by
    /// the TTL would be to free what a living process has that renews nothing itself.
    pub(super) fn reclaim(&self, state: &mut State, now: Now) -> Result<Vec<HoldId>> {
        let mut dead = vec![];
        let keys: Vec<_> = state.names().map(str::to_owned).collect();
        for key in keys {
            for hold in state.holds(&key) {
                let pulse = self
                    .pulse(&hold)
                    .map_err(|error| failed("whether a holder lives cannot be found out", error))?;
                match pulse {
                    Pulse::Unbound => {}
                    Pulse::Alive(bond) => bond.prolong(state, &key, now),
                    Pulse::Dead => {
                        free(state, &key, &hold, now);
                        dead.push(hold);
                    }
                }
            }
        }
        state.expire(now.mono_ms);
        Ok(dead)
    }

    /// Removes the hold file of a dead holder.
    pub(super) fn remove(&self, hold: &HoldId) {
        let _ = fs::remove_file(self.path(hold));
    }

    /// The files that nobody has locked: of dead holders, or left unfinished.
    pub(super) fn stale(&self) -> io::Result<Vec<PathBuf>> {
        let mut stale = vec![];
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if File::open(&path).is_ok_and(|file| file.try_lock_shared().is_ok()) {
                stale.push(path);
            }
        }
        Ok(stale)
    }

    fn path(&self, hold: &HoldId) -> PathBuf {
        self.dir.join(hold.as_str())
    }

    fn pulse(&self, hold: &HoldId) -> io::Result<Pulse> {
        let mut file = match File::open(self.path(hold)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pulse::Unbound),
            opened => opened?,
        };
        // Shared, so that two who look never take each other for the holder.
        let alive = match file.try_lock_shared() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        let mut text = vec![];
        file.read_to_end(&mut text)?;
        let bond = Bond::parse(&String::from_utf8_lossy(&text));
        Ok(match alive {
            true => Pulse::Alive(bond),
            false if bond.yielding => Pulse::Unbound,
            false => Pulse::Dead,
        })
    }
}

/// Locks a hold file and gives it its name. False if a sweep came in between.
fn finish(file: &File, unfinished: &Path, path: &Path, bond: Bond) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => {}
        // A sweep looks at it, and is about to take it away.
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    bond.write(file)?;
    match fs::rename(unfinished, path) {
        Ok(()) => Ok(is_at(file, path)),
        // A sweep took it away before it was locked.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Frees what a dead holder had, as its own release would.
fn free(state: &mut State, key: &str, hold: &HoldId, now: Now) {
    let Ok(name) = Name::new(key) else { return };
    let hold = hold.clone();
    let released = match state.value(key) {
        Some(Value::Text(_)) => plain::Release { name, hold }.apply(state, now),
        Some(Value::Hash(_)) | None => {
            let (leave, ttl) = (0, Ttl::DEFAULT);
            let release = mutex::Release {
                name,
                hold,
                leave,
                ttl,
            };
            release.apply(state, now)
        }
    };
    if let Err(error) = released {
        tracing::warn!(lock = key, %error, "what a dead holder had could not be freed");
    }
}

impl HoldFile {
    /// A copy of the descriptor, for a child process to inherit.
    pub(crate) fn share(&self) -> Result<File> {
        let file = self.lock();
        let Some(file) = file.as_ref() else {
            return Err(Error::unavailable("the hold file was given up"));
        };
        let copy = file
            .try_clone()
            .map_err(|error| failed("the hold file cannot be copied", error))?;
        rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())
            .map_err(|error| failed("the hold file cannot be inherited", error.into()))?;
        Ok(copy)
    }

    /// Gives up this process's copy. Whether another process still has one.
    ///
    /// If none has, the hold lives by its TTL from here, so release it.
    pub(crate) fn yield_to_others(&self) -> bool {
        let mut ours = self.lock();
        let Some(file) = ours.take() else {
            return false;
        };
        // For a moment it may look as if the holder had died.
        let yielding = Bond {
            yielding: true,
            ..self.bond
        };
        if yielding.write(&file).is_err() {
            *ours = Some(file);
            return false;
        }
        drop(file);
        let Ok(again) = OpenOptions::new().read(true).write(true).open(&self.path) else {
            return false;
        };
        match again.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                // Without this the hold would last for its TTL when the others end.
                if let Err(error) = self.bond.write(&again) {
                    tracing::warn!(%error, "a hold file could not be handed over whole");
                }
                true
            }
            Ok(()) | Err(TryLockError::Error(_)) => {
                *ours = Some(again);
                false
            }
        }
    }

    /// The hold is over, or from now on lives by its TTL alone: removes the file.
    ///
    /// Does nothing to a file that other processes have by now.
    pub(crate) fn remove(&self) {
        if self.lock().take().is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bond {
    fn new(term: LeaseTerm) -> Self {
        let renewed = match term {
            LeaseTerm::Renewed {
                ttl,
                max_hold: None,
            } => Some(ttl.as_millis()),
            // The end of the longest hold is the holder's to keep.
            LeaseTerm::Renewed {
                max_hold: Some(_), ..
            }
            | LeaseTerm::Fixed(_) => None,
        };
        Self {
            renewed,
            yielding: false,
        }
    }

    fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let renewed = match words.next() {
            Some("renewed") => words.next().and_then(|ttl| ttl.parse().ok()),
            _ => None,
        };
        let yielding = words.next() == Some("yielding");
        Self { renewed, yielding }
    }

    fn write(self, file: &File) -> io::Result<()> {
        let lease = self
            .renewed
            .map_or_else(|| "fixed".to_owned(), |ttl| format!("renewed {ttl}"));
        let yielding = if self.yielding { " yielding" } else { "" };
        // Always of one length: cutting a file short makes some file systems write to the disk.
        file.write_all_at(
            format!("{:<40}\n", format!("{lease}{yielding}")).as_bytes(),
            0,
        )
    }

    /// Gives a living holder its TTL anew, before the last third of it begins: the kernel is the
    /// watchdog of a process that is stopped.
    fn prolong(self, state: &mut State, key: &str, now: Now) {
        let Some(ttl) = self.renewed else { return };
        let left = u64::try_from(state.pttl(key, now.mono_ms));
        if left.is_ok_and(|left| left < ttl / 3 * 2) {
            state.prolong(key, ttl, now.mono_ms);
        }
    }
}

/// Whether `path` still leads to this very file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |seen: fs::Metadata| (seen.dev(), seen.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(have), Ok(there)) => identity(have) == identity(there),
        _ => false,
    }
}

/// An I/O error before which nothing was changed.
pub(super) fn failed(what: &str, error: io::Error) -> Error {
    Error::Unavailable {
        message: format!("{what}: {error}"),
        source: Some(std::sync::Arc::new(error)),
        outcome_unknown: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ClientId;
    use std::time::Duration;

    const KEY: &str = "name";
    const TTL: u64 = 30_000;

    fn at(mono_ms: u64) -> Now {
        Now {
            mono_ms,
            epoch_ms: 0,
            epoch_us: 0,
        }
    }

    /// A hold taken at zero, with its file.
    fn held(holds: &Holds, max_hold: Option<Duration>) -> (State, HoldId, HoldFile) {
        let hold = ClientId::random().hold(1);
        let ttl = Ttl::DEFAULT;
        let file = holds
            .bind(&hold, LeaseTerm::Renewed { ttl, max_hold })
            .unwrap();
        let mut state = State::default();
        state.set_field(KEY, hold.as_str(), 1).unwrap();
        state.prolong(KEY, TTL, 0);
        (state, hold, file)
    }

    fn directory() -> (tempfile::TempDir, Holds) {
        let dir = tempfile::tempdir().unwrap();
        let holds = Holds::new(dir.path().to_owned());
        (dir, holds)
    }

    #[test]
    fn a_living_holder_keeps_a_renewed_lease_without_renewing_it() {
        let (_dir, holds) = directory();
        let (mut state, _, file) = held(&holds, None);
        assert!(holds.reclaim(&mut state, at(TTL * 5)).unwrap().is_empty());
        assert_eq!(state.pttl(KEY, TTL * 5), 30_000);
        drop(file);
    }

    #[test]
    fn a_lease_with_a_longest_hold_is_the_holders_to_renew() {
        let (_dir, holds) = directory();
        let (mut state, _, file) = held(&holds, Some(Duration::from_secs(60)));
        assert!(holds.reclaim(&mut state, at(TTL)).unwrap().is_empty());
        assert!(state.is_empty());
        drop(file);
    }

    #[test]
    fn what_a_dead_holder_had_is_freed_and_announced() {
        let (_dir, holds) = directory();
        let (mut state, hold, file) = held(&holds, None);
        drop(file);
        assert_eq!(holds.stale().unwrap(), [holds.path(&hold)]);
        assert_eq!(holds.reclaim(&mut state, at(1)).unwrap(), [hold]);
        assert!(state.is_empty());
        assert_eq!(state.take_outbox().len(), 1);
    }

    #[test]
    fn a_plain_lock_of_a_dead_holder_is_freed_too_and_a_living_one_keeps_it() {
        let (_dir, holds) = directory();
        let (mut state, hold, file) = held(&holds, None);
        state.put_text(KEY, hold.as_str());
        state.prolong(KEY, TTL, 0);
        assert!(holds.reclaim(&mut state, at(TTL * 5)).unwrap().is_empty());
        assert_eq!(state.pttl(KEY, TTL * 5), 30_000);
        drop(file);
        assert_eq!(holds.reclaim(&mut state, at(TTL * 5)).unwrap(), [hold]);
        assert!(state.is_empty());
        assert_eq!(state.take_outbox()[0].channel, "leasehold_plain:{name}");
    }

    #[test]
    fn a_detached_hold_lives_by_its_ttl_alone() {
        let (_dir, holds) = directory();
        let (mut state, _, file) = held(&holds, None);
        file.remove();
        file.remove();
        assert!(holds.reclaim(&mut state, at(TTL - 1)).unwrap().is_empty());
        assert_eq!(state.pttl(KEY, TTL - 1), 1);
        holds.reclaim(&mut state, at(TTL)).unwrap();
        assert!(state.is_empty());
    }

    #[test]
    fn a_hold_that_changes_hands_is_not_taken_for_a_dead_one() {
        let (_dir, holds) = directory();
        let (mut state, hold, file) = held(&holds, None);
        let yielding = Bond {
            yielding: true,
            ..file.bond
        };
        yielding.write(file.lock().as_ref().unwrap()).unwrap();
        assert_eq!(holds.pulse(&hold).unwrap(), Pulse::Alive(yielding));
        drop(file);
        assert!(holds.reclaim(&mut state, at(1)).unwrap().is_empty());
        assert!(!state.is_empty());
    }

    #[test]
    fn a_holder_that_cannot_be_looked_at_is_neither_dead_nor_timed_out() {
        let (_dir, holds) = directory();
        let (mut state, hold, _file) = held(&holds, None);
        let path = holds.path(&hold);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let error = holds.reclaim(&mut state, at(TTL)).unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert!(!state.is_empty());
    }

    #[test]
    fn a_hold_file_that_cannot_be_made_leaves_nothing() {
        let (_dir, holds) = directory();
        let hold = ClientId::random().hold(1);
        fs::create_dir(holds.path(&hold)).unwrap();
        let error = holds.bind(&hold, LeaseTerm::Fixed(Ttl::DEFAULT));
        assert!(error.unwrap_err().is_retryable());
        assert_eq!(fs::read_dir(&holds.dir).unwrap().count(), 1);
    }

    #[test]
    fn a_bond_reads_back() {
        let (_dir, holds) = directory();
        let path = holds.dir.join("file");
        let file = File::create(&path).unwrap();
        for renewed in [None, Some(150), Some(Ttl::LONGEST.as_secs() * 1000)] {
            for yielding in [true, false] {
                let bond = Bond { renewed, yielding };
                bond.write(&file).unwrap();
                assert_eq!(Bond::parse(&fs::read_to_string(&path).unwrap()), bond);
            }
        }
    }
}
