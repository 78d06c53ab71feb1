//! The hub: which channels are listened to, and who is to be woken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::Shared;
use crate::model::Name;
use crate::store::{Event, Events};

/// Every channel that somebody in this client listens to.
#[derive(Debug)]
pub(crate) struct Hub {
    channels: Mutex<HashMap<String, Channel>>,
    /// Held while a listener comes or goes, so that the store hears of both in the same order.
    turnstile: Mutex<()>,
    /// Counts how often the store may have forgotten what it held.
    resets: watch::Sender<u64>,
}

#[derive(Debug)]
struct Channel {
    listeners: usize,
    signal: watch::Sender<Signal>,
}

/// What was heard on a channel so far.
#[derive(Clone, Copy, Debug, Default)]
struct Signal {
    live: bool,
    messages: u64,
    gaps: u64,
}

/// Why a waiter was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    Message,
    Gap,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self {
            channels: Mutex::default(),
            turnstile: Mutex::default(),
            resets: watch::Sender::new(0),
        }
    }

    pub(crate) fn resets(&self) -> watch::Receiver<u64> {
        self.resets.subscribe()
    }

    /// How many channels are listened to.
    #[cfg(feature = "test-util")]
    pub(crate) fn listening(&self) -> usize {
        self.lock().len()
    }

    fn turnstile(&self) -> std::sync::MutexGuard<'_, ()> {
        self.turnstile
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, channel: &str, change: impl FnOnce(&mut Signal)) {
        if let Some(channel) = self.lock().get(channel) {
            channel.signal.send_modify(change);
        }
    }
}

impl Events for Hub {
    fn heard(&self, event: Event<'_>) {
        match event {
            // Live again without a gap: the first was said of an earlier listener's subscription,
            // and between the two nobody may have listened.
            Event::Live(channel) => self.signal(channel, |signal| {
                signal.gaps += u64::from(std::mem::replace(&mut signal.live, true));
            }),
            Event::Message(channel) => self.signal(channel, |signal| signal.messages += 1),
            Event::Gap(channel) => self.signal(channel, |signal| {
                signal.live = false;
                signal.gaps += 1;
            }),
            Event::Reset => self.resets.send_modify(|resets| *resets += 1),
        }
    }
}

/// One listener on one channel; stops listening when dropped.
pub(crate) struct Listening {
    shared: Arc<Shared>,
    name: Name,
    channel: String,
    heard: watch::Receiver<Signal>,
    seen: Signal,
}

impl Listening {
    /// Starts to listen. Announcements are certain to arrive only once [`Self::live`] returned.
    pub(crate) fn start(shared: &Arc<Shared>, name: &Name, channel: String) -> Self {
        let _turnstile = shared.hub.turnstile();
        let (heard, first) = {
            let mut channels = shared.hub.lock();
            let entry = channels.entry(channel.clone()).or_insert_with(|| Channel {
                listeners: 0,
                signal: watch::Sender::new(Signal::default()),
            });
            entry.listeners += 1;
            (entry.signal.subscribe(), entry.listeners == 1)
        };
        if first {
            shared.store.listen(name, &channel);
        }
        // Not live, even if the store says so by now: what was announced before is not known.
        let seen = Signal::default();
        Self {
            shared: Arc::clone(shared),
            name: name.clone(),
            channel,
            heard,
            seen,
        }
    }

    /// Whether no announcement was missed since the last mark.
    pub(crate) fn was_live(&self) -> bool {
        self.seen.live
    }

    /// Returns when no announcement is missed from now on.
    pub(crate) async fn live(&mut self) {
        let _ = self.heard.wait_for(|signal| signal.live).await;
    }

    /// Forgets what was heard so far: the caller is about to look for itself.
    pub(crate) fn mark(&mut self) {
        self.seen = *self.heard.borrow_and_update();
    }

    /// Returns when something was heard since the last mark.
    pub(crate) async fn woken(&mut self) -> Woken {
        loop {
            let signal = *self.heard.borrow_and_update();
            if signal.messages > self.seen.messages {
                return Woken::Message;
            }
            if signal.gaps > self.seen.gaps {
                return Woken::Gap;
            }
            if self.heard.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _turnstile = self.shared.hub.turnstile();
        let last = {
            let mut channels = self.shared.hub.lock();
            let Some(channel) = channels.get_mut(&self.channel) else {
                return;
            };
            channel.listeners -= 1;
            let last = channel.listeners == 0;
            if last {
                channels.remove(&self.channel);
            }
            last
        };
        if last {
            self.shared.store.unlisten(&self.name, &self.channel);
        }
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_comes_to_be_live_a_second_time_had_a_gap() {
        let hub = Hub::new();
        let signal = watch::Sender::new(Signal::default());
        let heard = signal.subscribe();
        let listeners = 1;
        hub.lock()
            .insert("c".to_owned(), Channel { listeners, signal });
        let gaps = || heard.borrow().gaps;
        hub.heard(Event::Live("c"));
        assert_eq!(gaps(), 0);
        hub.heard(Event::Live("c"));
        assert_eq!(gaps(), 1);
        hub.heard(Event::Gap("c"));
        hub.heard(Event::Live("c"));
        assert_eq!((gaps(), heard.borrow().live), (2, true));
    }
}
