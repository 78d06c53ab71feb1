//! The memory store: one mutex around a [`State`]. The executable specification of the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Clock, Event, Events, Introduction, Outcome};
use crate::op::state::Announcement;
use crate::op::{Operation, State};
use crate::planted::{Fault, planted};

/// A store in this process, shared by every client that is made from it.
///
/// It runs on tokio's clock, so a test with a paused clock goes through a lease of thirty
/// seconds in no time.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    listeners: Mutex<HashMap<String, Vec<Listener>>>,
}

#[derive(Debug)]
struct Listener {
    client: usize,
    events: Weak<dyn Events>,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let (state, listeners) = (Mutex::default(), Mutex::default());
        Self {
            shared: Arc::new(Shared {
                clock: Clock::tokio(),
                state,
                listeners,
            }),
        }
    }

    /// Runs `change` on the state, then tells the listeners what it announced.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State, crate::model::Now) -> T) -> T {
        let now = self.shared.clock.present();
        let (result, outbox) = {
            let mut state = self
                .shared
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            state.expire(now.mono_ms);
            let result = change(&mut state, now);
            (result, state.take_outbox())
        };
        if !planted(Fault::PublishBeforeDelete) {
            outbox
                .iter()
                .for_each(|announcement| self.deliver(announcement));
        }
        result
    }

    /// The planted fault: tells what the operation would announce. Whether it was anything.
    fn preannounce<O: Operation>(&self, op: &O) -> bool {
        let mut preview = self.with(|state, _| state.clone());
        let _ = op.apply(&mut preview, self.shared.clock.present());
        let outbox = preview.take_outbox();
        outbox
            .iter()
            .for_each(|announcement| self.deliver(announcement));
        !outbox.is_empty()
    }

    fn deliver(&self, announcement: &Announcement) {
        let listeners: Vec<_> = {
            let all = self
                .shared
                .listeners
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let here = all
                .get(&announcement.channel)
                .map_or(&[][..], Vec::as_slice);
            here.iter()
                .filter_map(|listener| listener.events.upgrade())
                .collect()
        };
        for events in listeners {
            events.heard(Event::Message(&announcement.channel));
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// One client's view of a [`Memory`].
pub(crate) struct MemoryStore {
    memory: Memory,
    events: Arc<dyn Events>,
    /// Subscriptions that a test holds back, as a slow server would; none while none are.
    held_back: Mutex<Option<Vec<String>>>,
    /// What a test lets happen between the next operation and its reply.
    #[cfg(feature = "test-util")]
    meanwhile: Mutex<Option<Meanwhile>>,
}

#[cfg(feature = "test-util")]
type Meanwhile = Box<dyn FnOnce() + Send>;

impl MemoryStore {
    pub(crate) fn new(memory: &Memory, events: Arc<dyn Events>) -> Self {
        Self {
            memory: memory.clone(),
            events,
            held_back: Mutex::default(),
            #[cfg(feature = "test-util")]
            meanwhile: Mutex::default(),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.memory.shared.clock
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) async fn run<O: Operation>(&self, op: &O) -> Outcome<O::Reply> {
        if planted(Fault::PublishBeforeDelete) && self.memory.preannounce(op) {
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        }
        let applied = self.memory.with(|state, now| op.apply(state, now));
        #[cfg(feature = "test-util")]
        self.happen();
        match applied {
            Ok(reply) => Outcome::Done(reply),
            Err(error) => Outcome::Refused(error),
        }
    }

    /// Writes the record of the client.
    pub(crate) fn introduce(&self, introduction: &Introduction) {
        if let Some(record) = introduction.record() {
            let written = self.memory.with(|state, now| record.apply(state, now));
            introduction.written(written.unwrap_or_default());
        }
    }

    /// Lets something happen between the next operation and its reply.
    #[cfg(feature = "test-util")]
    pub(crate) fn meanwhile(&self, event: Meanwhile) {
        *self
            .meanwhile
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(event);
    }

    #[cfg(feature = "test-util")]
    fn happen(&self) {
        let event = self
            .meanwhile
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(event) = event {
            event();
        }
    }

    pub(crate) fn listen(&self, channel: &str) {
        if let Some(held_back) = &mut *self.held_back() {
            held_back.push(channel.to_owned());
            return;
        }
        self.subscribe(channel);
    }

    /// Holds subscriptions back, or lets go those that were.
    #[cfg(feature = "test-util")]
    pub(crate) fn hold_back(&self, hold: bool) {
        let before = std::mem::replace(&mut *self.held_back(), hold.then(Vec::new));
        before
            .unwrap_or_default()
            .iter()
            .for_each(|channel| self.subscribe(channel));
    }

    fn held_back(&self) -> std::sync::MutexGuard<'_, Option<Vec<String>>> {
        self.held_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, channel: &str) {
        let listener = Listener {
            client: self.identity(),
            events: Arc::downgrade(&self.events),
        };
        self.listeners(|all| all.entry(channel.to_owned()).or_default().push(listener));
        self.events.heard(Event::Live(channel));
    }

    pub(crate) fn unlisten(&self, channel: &str) {
        if let Some(held_back) = &mut *self.held_back() {
            held_back.retain(|waiting| waiting != channel);
        }
        self.listeners(|all| {
            if let Some(here) = all.get_mut(channel) {
                here.retain(|listener| listener.client != self.identity());
                if here.is_empty() {
                    all.remove(channel);
                }
            }
        });
    }

    pub(crate) fn names(&self, pattern: &str) -> Vec<String> {
        self.memory.with(|state, _| {
            let names = state.names().filter(|name| super::glob(pattern, name));
            names.map(str::to_owned).collect()
        })
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.events).cast::<()>().addr()
    }

    fn listeners<T>(&self, change: impl FnOnce(&mut HashMap<String, Vec<Listener>>) -> T) -> T {
        change(
            &mut self
                .memory
                .shared
                .listeners
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
