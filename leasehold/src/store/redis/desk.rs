//! What is listened to, and how it stands at the server. Pure bookkeeping, without a connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::store::{Event, Events};

/// What a caller asks for.
#[derive(Debug)]
pub(super) enum Order {
    Listen(String),
    Unlisten(String),
}

/// What is wanted of each channel, and how it stands on the present connection.
pub(super) struct Desk {
    events: Arc<dyn Events>,
    channels: HashMap<String, Channel>,
    /// Channels that may not stand as they are wanted.
    dirty: VecDeque<String>,
}

#[derive(Debug)]
struct Channel {
    wanted: bool,
    standing: Standing,
    /// Whether whoever listens now was told that it is live.
    live: bool,
}

/// How a channel stands at the server. One command for it is out at a time, so that commands
/// and their confirmations cannot overtake each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Off,
    Moving,
    On,
}

impl Desk {
    pub(super) fn new(events: Arc<dyn Events>) -> Self {
        Self {
            events,
            channels: HashMap::new(),
            dirty: VecDeque::new(),
        }
    }

    pub(super) fn take(&mut self, order: Order) {
        let (Order::Listen(name) | Order::Unlisten(name)) = &order;
        let channel = self.channels.entry(name.clone()).or_insert(Channel {
            wanted: false,
            standing: Standing::Off,
            live: false,
        });
        channel.wanted = matches!(order, Order::Listen(_));
        channel.live = false;
        self.settle(name);
    }

    /// The server confirmed how a channel stands.
    pub(super) fn stands(&mut self, name: &str, standing: Standing) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.standing = standing;
            self.settle(name);
        }
    }

    /// The server refused to subscribe a channel: it is not asked again before [`Self::retry`].
    pub(super) fn refused(&mut self, name: &str) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.standing = Standing::Off;
            if !channel.wanted {
                self.channels.remove(name);
            }
        }
    }

    /// Looks again at channels that were refused.
    pub(super) fn retry(&mut self, names: impl Iterator<Item = String>) {
        self.dirty.extend(names);
    }

    /// Tells the listener if the channel stands as wanted; else something is to be done.
    fn settle(&mut self, name: &str) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        match (channel.wanted, channel.standing) {
            (true, Standing::On) => {
                if !std::mem::replace(&mut channel.live, true) {
                    self.events.heard(Event::Live(name));
                }
            }
            (false, Standing::Off) => {
                self.channels.remove(name);
            }
            (_, Standing::Moving) => {}
            (true, Standing::Off) | (false, Standing::On) => self.dirty.push_back(name.to_owned()),
        }
    }

    /// The next channel to be moved, and whether to subscribe it.
    pub(super) fn next(&mut self) -> Option<(String, bool)> {
        while let Some(name) = self.dirty.pop_front() {
            let Some(channel) = self.channels.get_mut(&name) else {
                continue;
            };
            let subscribed = match channel.standing {
                Standing::Off => false,
                Standing::On => true,
                Standing::Moving => continue,
            };
            if channel.wanted != subscribed {
                channel.standing = Standing::Moving;
                return Some((name, channel.wanted));
            }
        }
        None
    }

    pub(super) fn message(&self, channel: &str) {
        if self
            .channels
            .get(channel)
            .is_some_and(|channel| channel.wanted)
        {
            self.events.heard(Event::Message(channel));
        }
    }

    /// The connection is gone, and every subscription with it.
    pub(super) fn lost(&mut self) {
        self.channels.retain(|_, channel| channel.wanted);
        self.dirty = self.channels.keys().cloned().collect();
        for (name, channel) in &mut self.channels {
            channel.standing = Standing::Off;
            if std::mem::replace(&mut channel.live, false) {
                self.events.heard(Event::Gap(name));
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.channels.values().any(|channel| channel.wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Events for Heard {
        fn heard(&self, event: Event<'_>) {
            self.0.lock().unwrap().push(format!("{event:?}"));
        }
    }

    fn desk() -> (Desk, Arc<Heard>) {
        let heard = Arc::new(Heard::default());
        let events = Arc::clone(&heard) as Arc<dyn Events>;
        (Desk::new(events), heard)
    }

    fn listen(desk: &mut Desk) {
        desk.take(Order::Listen("c".to_owned()));
    }

    fn unlisten(desk: &mut Desk) {
        desk.take(Order::Unlisten("c".to_owned()));
    }

    fn told(heard: &Heard) -> Vec<String> {
        std::mem::take(&mut heard.0.lock().unwrap())
    }

    #[test]
    fn a_channel_is_live_once_the_server_confirmed_it() {
        let (mut desk, heard) = desk();
        listen(&mut desk);
        assert_eq!(desk.next(), Some(("c".to_owned(), true)));
        assert_eq!((desk.next(), told(&heard)), (None, vec![]));
        desk.stands("c", Standing::On);
        desk.message("c");
        desk.message("other");
        assert_eq!(told(&heard), [r#"Live("c")"#, r#"Message("c")"#]);
    }

    #[test]
    fn listening_again_while_the_end_is_under_way_ends_subscribed_and_live() {
        let (mut desk, heard) = desk();
        listen(&mut desk);
        desk.next();
        desk.stands("c", Standing::On);
        unlisten(&mut desk);
        assert_eq!(desk.next(), Some(("c".to_owned(), false)));
        listen(&mut desk);
        desk.message("c");
        told(&heard);
        // The confirmation of the end must not count as one of the new beginning.
        desk.stands("c", Standing::Off);
        assert_eq!(
            (desk.next(), told(&heard)),
            (Some(("c".to_owned(), true)), vec![])
        );
        desk.stands("c", Standing::On);
        assert_eq!(told(&heard), [r#"Live("c")"#]);
    }

    #[test]
    fn a_beginning_that_is_no_longer_wanted_is_undone_in_silence() {
        let (mut desk, heard) = desk();
        listen(&mut desk);
        desk.next();
        unlisten(&mut desk);
        desk.stands("c", Standing::On);
        assert_eq!(desk.next(), Some(("c".to_owned(), false)));
        desk.stands("c", Standing::Off);
        assert_eq!((desk.next(), told(&heard)), (None, vec![]));
        assert!(desk.channels.is_empty() && desk.is_idle());
    }

    #[test]
    fn a_subscription_that_still_stands_serves_the_next_listener_at_once() {
        let (mut desk, heard) = desk();
        listen(&mut desk);
        desk.next();
        unlisten(&mut desk);
        listen(&mut desk);
        desk.stands("c", Standing::On);
        unlisten(&mut desk);
        listen(&mut desk);
        assert_eq!(told(&heard), [r#"Live("c")"#, r#"Live("c")"#]);
        assert_eq!(desk.next(), None);
    }

    #[test]
    fn a_lost_connection_is_a_gap_for_what_was_live_and_all_is_begun_again() {
        let (mut desk, heard) = desk();
        listen(&mut desk);
        desk.next();
        desk.stands("c", Standing::On);
        desk.take(Order::Listen("pending".to_owned()));
        desk.next();
        desk.take(Order::Listen("left".to_owned()));
        desk.take(Order::Unlisten("left".to_owned()));
        told(&heard);
        desk.lost();
        assert_eq!(told(&heard), [r#"Gap("c")"#]);
        let mut begun: Vec<_> = std::iter::from_fn(|| desk.next()).collect();
        begun.sort();
        assert_eq!(
            begun,
            [("c".to_owned(), true), ("pending".to_owned(), true)]
        );
    }
}
