//! The local store: this machine only, several processes, no server.
//!
//! The state of each hash tag is in a small file, changed under an OS lock ([`file`], [`slots`]).
//! A hold is tied to its process by an OS lock on a file of its own ([`hold`]). Waiters are woken
//! by datagrams, and look for themselves a few times a second ([`wake`]).

mod dir;
mod file;
mod hold;
mod slots;
mod wake;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::file::{Entry, Record, Session, Unkept};
use self::hold::{Holds, failed};
use self::wake::{Bell, Listening, News, Ringer, Seen};
use super::{Clock, Event, Events, Flight, Introduction, Outcome};
use crate::error::{Error, Result};
use crate::model::{HoldId, LeaseTerm, Moment, Name};
use crate::op::Operation;
use crate::op::state::Announcement;

pub(crate) use hold::HoldFile;

/// How often a waiter looks for holders that died.
const LOOK: Duration = Duration::from_millis(100);
/// How long a file that somebody is in is waited for by calls that name no limit.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the files of clients' records begin with.
const RECORDS: &str = "leasehold_client_";
/// The line of every request: the file's OS lock puts them in order.
const LINE: u64 = 1;

/// One process's view of the lock files of a directory.
#[derive(Debug)]
pub(crate) struct LocalStore {
    inner: Arc<Inner>,
    tasks: [AbortHandle; 2],
}

struct Inner {
    dir: PathBuf,
    /// Which boot this is.
    boot: String,
    holds: Holds,
    bell: Bell,
    ringer: Ringer,
    events: Arc<dyn Events>,
    listening: Mutex<Listening>,
    /// Somebody listens.
    begun: Notify,
    runtime: Handle,
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl LocalStore {
    /// Opens `dir`, or the directory that this user has on this machine.
    pub(crate) fn open(dir: Option<&Path>, events: Arc<dyn Events>) -> Result<Self> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::config("the local store needs a tokio runtime"))?;
        let dir = dir::open(dir)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(|error| failed("the boot id cannot be read", error))?;
        let wakes = dir::sockets(&dir);
        let sockets = || Ok((Ringer::new(wakes.clone())?, Bell::hang(&wakes)?));
        let (ringer, (bell, socket)) =
            sockets().map_err(|error| failed("a socket cannot be made", error))?;
        let inner = Arc::new(Inner {
            boot: boot.trim().to_owned(),
            holds: Holds::new(dir::holds(&dir)),
            dir,
            bell,
            ringer,
            events,
            listening: Mutex::default(),
            begun: Notify::new(),
            runtime,
        });
        inner.sweep();
        let hear = tokio::spawn(hear(Arc::clone(&inner), socket));
        let look = tokio::spawn(look(Arc::clone(&inner)));
        Ok(Self {
            inner,
            tasks: [hear.abort_handle(), look.abort_handle()],
        })
    }

    /// The directory, for telling the user.
    pub(crate) fn directory(&self) -> &Path {
        &self.inner.dir
    }

    /// Runs one operation. Nothing of it is ever run after the future was dropped.
    pub(crate) async fn run<O: Operation>(
        &self,
        op: &O,
        flight: &Flight,
        until: Moment,
    ) -> Outcome<O::Reply> {
        let path = match self.inner.place(&op.keys()) {
            Ok(path) => path,
            Err(error) => return Outcome::Refused(error),
        };
        match Session::enter(&path, true, until).await {
            Ok(Some(session)) => self.inner.perform(session, op, flight),
            Ok(None) => Outcome::Refused(Error::unavailable("the lock file went away")),
            Err(error) => Outcome::Refused(error),
        }
    }

    /// Writes the record of the client.
    pub(crate) async fn introduce(&self, introduction: &Introduction) {
        let Some(record) = introduction.record() else {
            return;
        };
        let until = Clock::Boot.now().after(PATIENCE);
        match self.run(&record, &Flight::default(), until).await {
            Outcome::Done(since) => introduction.written(since),
            Outcome::Refused(error) | Outcome::Unknown(error) => {
                tracing::debug!(%error, "no record of this client was written");
            }
        }
    }

    pub(crate) fn listen(&self, name: &Name, channel: &str) {
        let file = file::name_for(name.tag());
        self.inner.listening().add(channel, &file, name.as_str());
        self.inner.begun.notify_one();
        self.inner.update_table(file);
    }

    pub(crate) fn unlisten(&self, name: &Name, channel: &str) {
        self.inner.listening().remove(channel);
        self.inner.update_table(file::name_for(name.tag()));
    }

    /// Equal only for names whose state is in one file.
    pub(crate) fn slot(&self, name: &Name) -> u64 {
        let (tag, file) = (name.tag(), file::name_for(name.tag()));
        let high = u64::from(crc32fast::hash(tag.as_bytes()));
        (high << 32) | u64::from(crc32fast::hash(file.as_bytes()))
    }

    pub(crate) async fn names(&self, pattern: &str) -> Result<Vec<String>> {
        let until = Clock::Boot.now().after(PATIENCE);
        let mut found = vec![];
        for path in self.inner.files()? {
            let session = match Session::enter(&path, false, until).await {
                Ok(Some(session)) => session,
                Ok(None) => continue,
                Err(Error::Protocol(why)) => {
                    tracing::warn!(why, "a file is passed over");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut state = match session.record(&self.inner.boot) {
                Ok(record) => record.state,
                Err(error) => {
                    tracing::warn!(%error, "a file is passed over");
                    continue;
                }
            };
            let now = Clock::Boot.present();
            self.inner.holds.reclaim(&mut state, now)?;
            let names = state.names().filter(|name| super::glob(pattern, name));
            found.extend(names.map(str::to_owned));
        }
        Ok(found)
    }

    /// Makes and locks the hold file, before the hold is asked for.
    pub(crate) fn bind(&self, hold: &HoldId, term: LeaseTerm) -> Result<HoldFile> {
        self.inner.holds.bind(hold, term)
    }
}

impl Inner {
    /// The file of all the keys.
    fn place(&self, keys: &[&str]) -> Result<PathBuf> {
        let mut place = None;
        for key in keys {
            let file = file::name_for(Name::new(key)?.tag());
            if place.get_or_insert_with(|| file.clone()) != &file {
                return Err(Error::protocol("the keys of a request are in two files"));
            }
        }
        let file = place.ok_or_else(|| Error::protocol("a request without keys"))?;
        Ok(self.dir.join(file))
    }

    /// Runs one operation on the file that is entered.
    fn perform<O: Operation>(
        &self,
        session: Session,
        op: &O,
        flight: &Flight,
    ) -> Outcome<O::Reply> {
        let now = Clock::Boot.present();
        let mut record = match session.record(&self.boot) {
            Ok(record) => record,
            Err(error) => return Outcome::Refused(error),
        };
        let dead = match self.holds.reclaim(&mut record.state, now) {
            Ok(dead) => dead,
            Err(error) => return Outcome::Refused(error),
        };
        let reply = match op.apply(&mut record.state, now) {
            Ok(reply) => reply,
            Err(error) => return Outcome::Refused(error),
        };
        let doubted = flight.unanswered().is_some();
        flight.sent(LINE);
        match self.keep(session, record, &dead) {
            Ok(_) => {
                flight.answered(LINE);
                Outcome::Done(reply)
            }
            Err(Unkept::Refused(error)) => {
                // What an earlier request left open stays open.
                if !doubted {
                    flight.answered(LINE);
                }
                Outcome::Refused(error)
            }
            Err(Unkept::Unknown(error)) => Outcome::Unknown(error),
        }
    }

    /// Writes the record, leaves the file, and tells the waiters what was announced.
    fn keep(&self, session: Session, mut record: Record, dead: &[HoldId]) -> Result<u64, Unkept> {
        let path = session.path().to_owned();
        let outbox = record.state.take_outbox();
        let generation = session.keep(&record)?;
        // Only now: with the file gone and the state not written, the TTL would decide.
        dead.iter().for_each(|hold| self.holds.remove(hold));
        self.deliver(&path, &record, &outbox);
        Ok(generation)
    }

    fn deliver(&self, path: &Path, record: &Record, outbox: &[Announcement]) {
        let mut gone = vec![];
        for announcement in outbox {
            let sockets = record.waiters.get(&announcement.channel);
            for socket in sockets.into_iter().flatten() {
                if !self.ringer.ring(socket, announcement) {
                    gone.push(socket);
                }
            }
        }
        if gone.is_empty() {
            return;
        }
        // If somebody is in the file, whoever announces next finds them gone again.
        let Ok(Entry::Entered(session)) = Session::try_enter(path, false) else {
            return;
        };
        if let Ok(mut record) = session.record(&self.boot) {
            for socket in gone {
                record.unregister(socket, |_| false);
            }
            let _ = session.keep(&record);
        }
    }

    /// Brings the table of waiters in line with who listens here; at once if nobody is in the
    /// file, else soon.
    fn update_table(self: &Arc<Self>, file: String) {
        if self.look_at(&file, false) {
            return;
        }
        let inner = Arc::clone(self);
        self.runtime.clone().spawn(async move {
            let path = inner.dir.join(&file);
            let until = Clock::Boot.now().after(PATIENCE);
            // If this fails, the next look makes up for it.
            if let Ok(Some(session)) = Session::enter(&path, true, until).await {
                inner.attend(&file, session, false);
            }
        });
    }

    /// Looks into a file, unless somebody is in it. Whether nobody was. `regular` looks have time
    /// between them.
    fn look_at(&self, file: &str, regular: bool) -> bool {
        let wanted = !self.listening().within(file).is_empty();
        match Session::try_enter(&self.dir.join(file), wanted) {
            Ok(Entry::Entered(session)) => self.attend(file, session, regular),
            Ok(Entry::Missing) => {}
            Ok(Entry::Busy) => return false,
            Err(error) => tracing::warn!(file, %error, "a lock file cannot be looked at"),
        }
        true
    }

    /// Frees what dead holders have, corrects the table of waiters, and tells the listeners what
    /// they would otherwise not learn.
    fn attend(&self, file: &str, session: Session, regular: bool) {
        let now = Clock::Boot.present();
        let read = session.record(&self.boot).and_then(|mut record| {
            let dead = self.holds.reclaim(&mut record.state, now)?;
            Ok((record, dead))
        });
        let (mut record, dead) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(file, %error, "a lock file cannot be read");
                return;
            }
        };
        if !regular {
            record.forget(|socket| !self.ringer.knows(socket));
        }
        // Read under the file's lock, so that of two who correct the table the later is right.
        let wanted = self.listening().within(file);
        let me = &self.bell.name;
        record.unregister(me, |channel| {
            wanted.iter().any(|one| one.channel == channel)
        });
        let seen: Vec<_> = wanted
            .into_iter()
            .map(|one| {
                let fresh = record.register(&one.channel, me);
                let free = record.state.value(&one.key).is_none();
                (one, fresh, free)
            })
            .collect();
        let generation = match self.keep(session, record, &dead) {
            Ok(generation) => generation,
            Err(Unkept::Refused(error) | Unkept::Unknown(error)) => {
                tracing::warn!(file, %error, "a lock file cannot be written");
                return;
            }
        };
        let mut listening = self.listening();
        for (one, fresh, free) in seen {
            let seen = Seen {
                fresh,
                free,
                generation,
                regular,
            };
            let news = listening.looked(&one, seen);
            if news == News::Gap {
                self.events.heard(Event::Gap(&one.channel));
            }
            if news != News::Nothing {
                self.events.heard(Event::Live(&one.channel));
            }
        }
    }

    /// Removes what dead processes left, once no state needs it.
    fn sweep(&self) {
        let swept = self.ringer.sweep().and_then(|()| self.holds.stale());
        let stale = match swept {
            Ok(stale) => stale,
            Err(error) => {
                tracing::warn!(%error, "what dead processes left cannot be removed");
                return;
            }
        };
        let files = self.files().unwrap_or_default();
        let files = || files.iter().filter_map(|path| path.file_name()?.to_str());
        // Those that ran out. Nobody else looks into the file of a client that died.
        for file in files().filter(|file| file.starts_with(RECORDS)) {
            self.look_at(file, false);
        }
        if stale.is_empty() {
            return;
        }
        // A dead holder's file is what tells that its hold is over: first free the holds.
        let mut all = true;
        for file in files() {
            all &= self.look_at(file, false);
        }
        if all {
            for path in stale {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let unreadable = |error| failed("the lock directory cannot be read", error);
        let mut files = vec![];
        for entry in fs::read_dir(&self.dir).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.file_name().to_str().is_some_and(file::is_lock_file) {
                files.push(entry.path());
            }
        }
        files.sort();
        Ok(files)
    }

    fn listening(&self) -> MutexGuard<'_, Listening> {
        self.listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes on what other processes announce.
async fn hear(inner: Arc<Inner>, socket: UnixDatagram) {
    let mut buffer = vec![];
    loop {
        match wake::heard(&socket, &mut buffer).await {
            Ok(channel) => {
                if inner.listening().heard(&channel) {
                    inner.events.heard(Event::Message(&channel));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "announcements cannot be received");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// Looks into the files whose locks are waited for: a holder that died announces nothing.
async fn look(inner: Arc<Inner>) {
    loop {
        if inner.listening().is_empty() {
            inner.begun.notified().await;
        }
        tokio::time::sleep(LOOK).await;
        let files = inner.listening().files();
        for file in files {
            inner.look_at(&file, true);
            tokio::task::yield_now().await;
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ClientId, Ttl};
    use crate::op::record::{Card, WriteRecord};

    struct Nobody;

    impl Events for Nobody {
        fn heard(&self, _: Event<'_>) {}
    }

    #[tokio::test]
    async fn who_opens_sweeps_the_records_of_the_dead_and_leaves_those_of_the_living() {
        let dir = tempfile::tempdir().unwrap();
        let open = || LocalStore::open(Some(&dir.path().join("locks")), Arc::new(Nobody)).unwrap();
        let store = open();
        let record = |ttl| {
            let card = Card {
                host: "here".to_owned(),
                pid: 1,
                program: "test".to_owned(),
                label: String::new(),
            };
            let record = WriteRecord::new(ClientId::random(), card, Ttl::fixed(ttl).unwrap());
            Introduction::new(record)
        };
        store.introduce(&record(Duration::from_millis(10))).await;
        store.introduce(&record(Duration::from_secs(60))).await;
        assert_eq!(store.inner.files().unwrap().len(), 2);
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(open());
        assert_eq!(store.inner.files().unwrap().len(), 1);
    }
}
