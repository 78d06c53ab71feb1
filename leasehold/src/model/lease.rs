//! The state of one lease: held, uncertain or lost.

use std::time::Duration;

use super::{Moment, Ttl};

/// How much a holder may rely on its hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// The last answer said held, and the lease has not run out.
    Held,
    /// The lease has not run out, but an answer is missing, a renewal is overdue, or the
    /// connection was replaced since the last definite answer.
    Uncertain,
    /// The store said that the hold is gone, or the lease ran out. It never comes back.
    Lost,
    /// This client gave the hold back. That is no loss, but nothing is held any more.
    Released,
}

/// Whether a lease is renewed, and how long it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseTerm {
    /// Ends by itself.
    Fixed(Ttl),
    /// Renewed every third of the TTL, for at most the given time.
    Renewed {
        ttl: Ttl,
        max_hold: Option<Duration>,
    },
}

impl LeaseTerm {
    /// The term of a lease that was entered under both: nobody who entered is cut short.
    ///
    /// Renewed if one of them is, and then until the end: who entered for a fixed time inside a
    /// renewed lease relies on no end.
    pub(crate) fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fixed(one), Self::Fixed(two)) => Self::Fixed(one.max(two)),
            (Self::Renewed { ttl, max_hold }, Self::Fixed(_))
            | (Self::Fixed(_), Self::Renewed { ttl, max_hold }) => Self::Renewed { ttl, max_hold },
            (Self::Renewed { ttl: one, max_hold }, Self::Renewed { ttl: two, .. }) => {
                let ttl = one.max(two);
                Self::Renewed { ttl, max_hold }
            }
        }
    }

    pub(crate) const fn ttl(self) -> Ttl {
        match self {
            Self::Fixed(ttl) | Self::Renewed { ttl, .. } => ttl,
        }
    }
}

/// Why a hold is lost whose lease ran out.
pub(crate) const RAN_OUT: &str = "its lease ran out";
/// Why a hold is lost whose client was closed.
pub(crate) const CLIENT_CLOSED: &str = "its client was closed";

/// What a client knows of one lease. Pure: the caller tells the time.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    term: LeaseTerm,
    taken: Moment,
    deadline: Moment,
    /// When the store was last asked and said held.
    confirmed: Moment,
    /// When its state was last put in doubt, if no answer to a later question has come since.
    doubted: Option<Moment>,
    /// How it ended; the first end stays.
    ended: Option<End>,
}

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// No longer provably held, for the reason given.
    Lost(&'static str),
    /// Given back.
    Released,
}

impl Tracker {
    /// A lease that the store granted; `asked` is the moment before the request was made.
    pub(crate) fn granted(term: LeaseTerm, asked: Moment) -> Self {
        Self {
            term,
            taken: asked,
            deadline: asked.after(term.ttl().validity()),
            confirmed: asked,
            doubted: None,
            ended: None,
        }
    }

    /// How the hold ended, if it did by `now`. Latches the loss of a lease that ran out.
    pub(crate) fn ended(&mut self, now: Moment) -> Option<End> {
        if self.ended.is_none() && now >= self.deadline {
            self.ended = Some(End::Lost(RAN_OUT));
        }
        self.ended
    }

    /// The state at `now`.
    pub(crate) fn state(&mut self, now: Moment) -> LeaseState {
        match self.ended(now) {
            Some(End::Lost(_)) => LeaseState::Lost,
            Some(End::Released) => LeaseState::Released,
            None if self.is_doubted() || now > self.overdue() => LeaseState::Uncertain,
            None => LeaseState::Held,
        }
    }

    /// The store said held, and set the TTL to `ttl` from a request made at `asked`.
    ///
    /// An answer that comes after the deadline revives nothing.
    pub(crate) fn renewed(&mut self, asked: Moment, ttl: Ttl, now: Moment) {
        if self.ended(now).is_none() {
            self.deadline = self.deadline.max(asked.after(ttl.validity()));
            self.held(asked, now);
        }
    }

    /// The store said held; the TTL is as it was.
    pub(crate) fn held(&mut self, asked: Moment, now: Moment) {
        if self.ended(now).is_none() {
            self.confirmed = self.confirmed.max(asked);
            self.doubted = self.doubted.filter(|&doubted| asked < doubted);
        }
    }

    /// Somebody entered again under `term`.
    pub(crate) fn entered(&mut self, term: LeaseTerm, asked: Moment, now: Moment) {
        if self.ended(now).is_none() {
            self.term = self.term.joined(term);
            self.renewed(asked, term.ttl(), now);
        }
    }

    pub(crate) fn term(&self) -> LeaseTerm {
        self.term
    }

    /// An answer is missing, or what answered may have forgotten.
    ///
    /// An answer to what was asked before `now` may be the old one's, and ends no doubt.
    pub(crate) fn doubt(&mut self, now: Moment) {
        self.doubted = Some(now);
    }

    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.is_some()
    }

    /// The hold is over. That it is gone after it was given back is no loss.
    pub(crate) fn end(&mut self, end: End, now: Moment) {
        if self.ended(now).is_none() {
            self.ended = Some(end);
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether the lease is still to be renewed at `now`.
    pub(crate) fn renews(&self, now: Moment) -> bool {
        match self.term {
            LeaseTerm::Fixed(_) => false,
            LeaseTerm::Renewed { max_hold, .. } => {
                max_hold.is_none_or(|most| now < self.taken.after(most))
            }
        }
    }

    /// When the store is to be asked next: a third of the TTL after the last definite answer.
    pub(crate) fn due(&self) -> Moment {
        self.confirmed.after(self.check_period())
    }

    fn overdue(&self) -> Moment {
        self.due().after(self.check_period() / 2)
    }

    /// A fixed lease is only looked at, so a long one is looked at every ten seconds.
    fn check_period(&self) -> Duration {
        let third = self.term.ttl().period();
        match self.term {
            LeaseTerm::Fixed(_) => third
                .max(Duration::from_millis(100))
                .min(Duration::from_secs(10)),
            LeaseTerm::Renewed { .. } => third,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Moment {
        Moment::from_origin(SECOND * seconds)
    }

    fn renewed() -> Tracker {
        let ttl = Ttl::renewed(SECOND * 30).unwrap();
        Tracker::granted(
            LeaseTerm::Renewed {
                ttl,
                max_hold: None,
            },
            at(100),
        )
    }

    #[test]
    fn a_lease_is_lost_at_its_deadline_and_stays_so() {
        let mut lease = renewed();
        assert_eq!(lease.state(at(109)), LeaseState::Held);
        assert_eq!(lease.state(at(129)), LeaseState::Uncertain);
        assert_eq!(lease.state(at(130)), LeaseState::Lost);
        lease.renewed(at(129), Ttl::DEFAULT, at(130));
        assert_eq!(lease.state(at(130)), LeaseState::Lost);
    }

    #[test]
    fn only_a_definite_answer_moves_the_deadline() {
        let mut lease = renewed();
        let before = lease.deadline();
        lease.doubt(at(101));
        assert_eq!(lease.state(at(101)), LeaseState::Uncertain);
        assert_eq!(lease.deadline(), before);
        lease.held(at(102), at(103));
        assert_eq!(
            (lease.state(at(103)), lease.deadline()),
            (LeaseState::Held, before)
        );
        lease.renewed(at(110), Ttl::DEFAULT, at(111));
        assert_eq!(lease.deadline(), at(110).after(Ttl::DEFAULT.validity()));
    }

    #[test]
    fn an_answer_to_an_earlier_question_ends_no_doubt() {
        let mut lease = renewed();
        lease.doubt(at(105));
        lease.renewed(at(104), Ttl::DEFAULT, at(106));
        assert_eq!(lease.state(at(106)), LeaseState::Uncertain);
        assert_eq!(lease.deadline(), at(104).after(Ttl::DEFAULT.validity()));
        lease.held(at(106), at(107));
        assert_eq!(lease.state(at(107)), LeaseState::Held);
    }

    #[test]
    fn what_is_missing_after_it_was_given_back_is_no_loss() {
        let mut lease = renewed();
        lease.end(End::Released, at(101));
        lease.end(End::Lost("gone"), at(102));
        assert_eq!(lease.state(at(200)), LeaseState::Released);
    }

    #[test]
    fn entering_again_shortens_nothing_and_starts_the_renewal() {
        let fixed = |seconds| LeaseTerm::Fixed(Ttl::fixed(SECOND * seconds).unwrap());
        let mut lease = renewed();
        let before = lease.deadline();
        lease.entered(fixed(1), at(101), at(101));
        assert_eq!(lease.deadline(), before);
        assert!(lease.renews(at(102)));

        let mut lease = Tracker::granted(fixed(60), at(100));
        let before = lease.deadline();
        assert!(!lease.renews(at(101)));
        lease.entered(renewed().term(), at(101), at(101));
        assert_eq!(lease.deadline(), before);
        assert!(lease.renews(at(102)));
        assert_eq!(lease.due(), at(101).after(Ttl::DEFAULT.period()));
        lease.entered(fixed(90), at(102), at(102));
        assert!(lease.deadline() > before);
        assert_eq!(lease.term(), renewed().term());
    }

    #[test]
    fn renewal_stops_at_the_longest_hold() {
        let ttl = Ttl::DEFAULT;
        let term = LeaseTerm::Renewed {
            ttl,
            max_hold: Some(SECOND * 60),
        };
        let lease = Tracker::granted(term, at(100));
        assert!(lease.renews(at(159)));
        assert!(!lease.renews(at(160)));
    }
}
