//! The acquire loop: try, listen, try again, sleep until woken.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::chance::{jitter, random};
use super::hub::{Listening, Woken};
use super::observe::Cause;
use super::queue::{SILENCE, Turn, Word};
use super::reaper::Asking;
use super::release::{FIRST_PAUSE, LONGEST_PAUSE};
use super::tenure::Post;
use super::{Claim, Core, Grant, Hold, Kind, Stake};
use crate::error::{Error, Refusal, Result};
use crate::model::lease::Tracker;
use crate::model::{Backoff, LeaseTerm, Moment, Name, Owner, Token, Wait};
use crate::op::mutex::Acquired;
use crate::planted::{Fault, planted};
use crate::store::Outcome;

/// How long to wait for a holder that has no TTL before looking again.
const LOOK: Duration = Duration::from_secs(30);
/// How long to wait for a subscription before looking without one.
const DEAF: Duration = Duration::from_secs(1);
/// How often to look where holders may announce nothing.
const SILENT: Backoff =
    Backoff::exponential(Duration::from_millis(20), Duration::from_millis(250), 2);
/// Servers count expiry in whole milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// Whether a fencing token is asked for.
    pub(crate) fenced: bool,
    pub(crate) name: Name,
    pub(crate) term: LeaseTerm,
    pub(crate) wait: Wait,
    /// Who may enter again what it holds; nobody, if none.
    pub(crate) owner: Option<Owner>,
}

/// How long the caller wants to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// One look; a store that does not answer is asked again within the call's limit.
    Once,
    /// While the lock is busy or the store is away, for this long.
    For(Duration),
    /// While the lock is busy; a store that stays away this long is an error.
    Outage(Duration),
}

impl Core {
    /// Takes the lock, or says that it is busy.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &Request,
        patience: Patience,
    ) -> Result<Option<Grant>> {
        self.shared.life.check()?;
        let mut acquisition = Acquisition::new(self, request, patience);
        let mut acquiring = self.shared.observer.acquiring(&request.name);
        // Pinned here: passed by value, the future would be twice as large.
        let call = pin!(acquisition.run());
        let call = call.instrument(acquiring.span());
        let result = self.shared.life.while_open(call).await;
        let hold = result.as_ref().map(Option::as_ref);
        acquiring.ended(hold.map(|grant| grant.map(|grant| &grant.hold.claim.id)));
        result
    }
}

/// One call that takes a lock. Whatever it leaves behind when dropped, the reaper gets.
struct Acquisition<'a> {
    core: &'a Arc<Core>,
    request: &'a Request,
    patience: Patience,
    begun: Moment,
    limit: Moment,
    claim: Option<Claim>,
    /// Where the owner holds or will hold, if there is an owner.
    post: Option<Arc<Post>>,
    /// The right to enter what the owner holds.
    stake: Option<Stake>,
    /// While a request is out. Dropped after claim and stake were left to the reaper.
    asking: Option<Asking>,
    /// Since when every answer is missing.
    failing: Option<Moment>,
    pause: Duration,
    tries: u32,
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl<'a> Acquisition<'a> {
    fn new(core: &'a Arc<Core>, request: &'a Request, patience: Patience) -> Self {
        let now = core.shared.clock.now();
        let limit = match patience {
            Patience::Once => now.after(core.shared.limits.call),
            Patience::For(wait) => now.after(wait),
            Patience::Outage(_) => Moment::NEVER,
        };
        let (claim, stake, asking, failing) = (None, None, None, None);
        let Request { kind, name, .. } = request;
        let post = |owner| core.tenures.post(owner, *kind, name);
        let post = request.owner.as_ref().map(post);
        let (pause, tries) = (FIRST_PAUSE, 0);
        Self {
            core,
            request,
            patience,
            begun: now,
            limit,
            claim,
            post,
            stake,
            asking,
            failing,
            pause,
            tries,
        }
    }

    /// Gives the claim to the reaper if anything of it may be, or come to be, at the store.
    fn abandon(&mut self) {
        let Some(claim) = self.claim.take() else {
            return;
        };
        if claim.flight.unanswered().is_some() {
            self.core.debts.leave_claim(claim);
        } else {
            claim.settle();
        }
    }

    async fn run(&mut self) -> Result<Option<Grant>> {
        let clock = self.core.shared.clock;
        let waits = !matches!(self.patience, Patience::Once);
        let (observer, name) = (&self.core.shared.observer, &self.request.name);
        let mut turn = None;
        loop {
            if self.is_open() {
                // Who holds already waits for nobody.
                turn = None;
            } else if waits && turn.is_none() {
                let key = (self.request.kind, self.request.name.clone());
                let standing = pin!(self.core.queue.turn(key, clock, self.limit));
                turn = tokio::select! {
                    biased;
                    () = self.opened() => continue,
                    turn = observer.waiting(name, standing) => turn?,
                };
                if turn.is_none() {
                    return Ok(None);
                }
            }
            let busy_until = match known_busy(turn.as_mut(), clock.now()) {
                Some(until) => until,
                // Boxed, so that the many who only stand in line stay small.
                None => match Box::pin(self.attempt(turn.as_mut())).await? {
                    Attempt::Held(grant) => return Ok(Some(grant)),
                    Attempt::Busy(_) if !waits => return Ok(None),
                    Attempt::Busy(until) => until,
                    Attempt::Late => return Ok(None),
                    Attempt::Again => continue,
                },
            };
            // What the owner held was lost just now: it has to stand in line after all.
            let Some(turn) = turn.as_mut() else {
                continue;
            };
            let wait = pin!(self.wait(turn, busy_until));
            if !observer.waiting(name, wait).await {
                return Ok(None);
            }
        }
    }

    /// Asks once.
    async fn attempt(&mut self, mut turn: Option<&mut Turn>) -> Result<Attempt> {
        let core = Arc::clone(self.core);
        let (store, clock) = (&core.shared.store, core.shared.clock);
        if let (None, Some(turn)) = (self.failing, turn.as_deref()) {
            // Who stood in line while nobody got an answer has borne that outage, too.
            self.failing = turn.failing_since().map(|since| since.max(self.begun));
        }
        let until = self.until();
        self.asking = Some(self.core.debts.asking());
        // After that, so that a close either waits for this request or is seen here.
        core.shared.life.check()?;
        let post = self.post.clone();
        let opening = match &post {
            Some(post) => Some(post.opening(clock, until).await?),
            None => None,
        };
        if self.stakes() {
            drop(opening);
            return self.enter(until).await;
        }
        let claim = self.claim()?;
        let asked = clock.now();
        let heard = turn.as_deref().is_some_and(Turn::was_answered);
        if let Some(turn) = turn.as_deref_mut() {
            turn.tell(Word::Asked(asked));
            if let Some(listening) = turn.seat().and_then(|seat| seat.listening.as_mut()) {
                listening.mark();
            }
        }
        let outcome = claim.acquire(store, until).await;
        let answered = claim.flight.unanswered().is_none();
        let asking = self.asking.take_if(|_| answered);
        if let (Some(turn), Outcome::Done(_)) = (turn.as_deref_mut(), &outcome) {
            turn.tell(Word::Answered);
        }
        match outcome {
            Outcome::Done(Acquired::Held(token)) => {
                let held = self.granted(asked, token)?;
                // Only now: a close finds the hold watched, or left to the reaper.
                drop(asking);
                if let (Attempt::Held(_), Some(seat)) = (&held, turn.and_then(Turn::seat)) {
                    seat.busy_until = Some(asked.after(self.request.term.ttl().as_duration()));
                }
                Ok(held)
            }
            Outcome::Done(Acquired::Busy(left)) => {
                self.failing = None;
                self.pause = FIRST_PAUSE;
                Ok(Attempt::Busy(
                    clock.now().after(left.map_or(LOOK, |left| left + TICK)),
                ))
            }
            Outcome::Done(Acquired::Gone) => {
                Err(Error::protocol("a fresh hold was said to have been lost"))
            }
            Outcome::Refused(error) if !worth_waiting(&error) => Err(error),
            // Asked too late for an answer; just before, the lock was busy.
            Outcome::Unknown(Error::Timeout(_))
                if heard && clock.now() >= self.limit && clock.now().since(asked) < SILENCE =>
            {
                Ok(Attempt::Late)
            }
            Outcome::Refused(error) | Outcome::Unknown(error) => {
                drop((asking, opening));
                let since = *self.failing.get_or_insert(asked);
                if let Some(turn) = turn {
                    turn.tell(Word::Failed(error.clone(), since));
                }
                self.failed(error).await
            }
        }
    }

    /// Whether the owner holds, so that it may enter again.
    fn is_open(&self) -> bool {
        self.post.as_ref().is_some_and(|post| post.is_open())
    }

    /// Returns when the owner holds; never without an owner.
    async fn opened(&self) {
        match &self.post {
            Some(post) => Box::pin(post.opened()).await,
            None => std::future::pending().await,
        }
    }

    /// Takes a right to enter what the owner holds. False if it holds nothing.
    fn stakes(&mut self) -> bool {
        let Some(post) = &self.post else { return false };
        let usable = |stake: &Stake| stake.hold().is_some_and(|hold| hold.is_usable());
        if !self.stake.as_ref().is_some_and(usable) {
            self.stake = post.stake(self.core);
        }
        if self.stake.is_none() {
            post.clear(self.core);
            return false;
        }
        // What was asked for before somebody else of this owner got it.
        self.abandon();
        true
    }

    /// Enters once what the owner holds.
    async fn enter(&mut self, until: Moment) -> Result<Attempt> {
        let asked = self.core.shared.clock.now();
        let Some(stake) = self.stake.take() else {
            return Ok(Attempt::Again);
        };
        // Dropped in the middle it steps back.
        let outcome = stake.rise(self.request.term, until).await;
        match (outcome, stake.hold().cloned()) {
            (Outcome::Done(true), Some(hold)) => {
                self.asking = None;
                let stake = Some(stake);
                Ok(Attempt::Held(Grant { hold, stake }))
            }
            // It was lost: the next try starts anew.
            (Outcome::Done(_), _) => Ok(Attempt::Again),
            (Outcome::Refused(error), _) if !worth_waiting(&error) => Err(error),
            (Outcome::Refused(error) | Outcome::Unknown(error), _) => {
                // With the request still out for a close, which waits until the stake is gone.
                self.stake = Some(stake);
                self.failing.get_or_insert(asked);
                self.failed(error).await
            }
        }
    }

    /// The claim, made when it is first needed.
    fn claim(&mut self) -> Result<&Claim> {
        if self.claim.is_none() {
            let id = self.core.fresh_hold();
            self.claim = Some(Claim::arm(&self.core.shared.store, self.request, id)?);
        }
        self.claim.as_ref().ok_or(Error::Closed("no claim"))
    }

    /// The store said held: a hold, unless its lease has run out on the way.
    fn granted(&mut self, asked: Moment, token: Option<Token>) -> Result<Attempt> {
        let shared = &self.core.shared;
        let asked = if planted(Fault::DeadlineFromReply) {
            shared.clock.now()
        } else {
            asked
        };
        let mut tracker = Tracker::granted(self.request.term, asked);
        let Some(claim) = self.claim.take() else {
            return Ok(Attempt::Again);
        };
        if tracker.ended(shared.clock.now()).is_some() && !planted(Fault::NoRecheck) {
            self.core.debts.leave_claim(claim);
            return Ok(Attempt::Again);
        }
        let observer = &shared.observer;
        let hold = Hold::granted(claim, shared.clock, tracker, token, observer);
        let hold = Arc::new(hold);
        shared.watchdog.watch(&hold);
        // After that, so that a close either finds the hold watched or is seen here.
        if let Err(closed) = shared.life.check() {
            self.core.end(&hold);
            self.core.debts.leave(&hold);
            return Err(closed);
        }
        let stake = self.post.as_ref().map(|post| post.open(self.core, &hold));
        Ok(Attempt::Held(Grant { hold, stake }))
    }

    /// No answer, or a refusal that may pass: pauses, or gives up with the error.
    async fn failed(&mut self, error: Error) -> Result<Attempt> {
        let clock = self.core.shared.clock;
        let again = clock.now().after(self.pause / 2 + jitter(self.pause / 2));
        if again >= self.until() {
            return Err(error);
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        clock.sleep_until(again).await;
        Ok(Attempt::Again)
    }

    /// Until when the store may stay away.
    fn until(&self) -> Moment {
        match self.patience {
            Patience::Once | Patience::For(_) => self.limit,
            Patience::Outage(outage) => self
                .failing
                .unwrap_or_else(|| self.core.shared.clock.now())
                .after(outage),
        }
    }

    /// Sleeps until the lock may be free. Whether the caller still wants it then.
    async fn wait(&mut self, turn: &mut Turn, busy_until: Moment) -> bool {
        let clock = self.core.shared.clock;
        let Some(seat) = turn.seat() else {
            return false;
        };
        // Waited for once: after that, the store is asked.
        seat.busy_until = None;
        match &self.request.wait {
            Wait::Notify => {
                let listening = seat.listening.get_or_insert_with(|| self.listen());
                let look = match self.request.kind.announces() {
                    true => Moment::NEVER,
                    false => clock.now().after(self.rest(&SILENT)),
                };
                tokio::select! {
                    () = self.opened() => {}
                    () = self.notified(listening, busy_until, look) => {}
                }
            }
            Wait::Poll(backoff) => {
                let pause = self.rest(backoff);
                let end = clock.now().after(pause).min(self.limit);
                let _ = clock.limit(end, self.opened()).await;
            }
        }
        clock.now() < self.limit
    }

    /// How long to rest before the next try.
    fn rest(&mut self, backoff: &Backoff) -> Duration {
        let pause = backoff.pause(self.tries, random());
        self.tries = self.tries.saturating_add(1);
        pause
    }

    fn listen(&self) -> Listening {
        let Request { kind, name, .. } = self.request;
        Listening::start(&self.core.shared, name, kind.channel(name))
    }

    /// Sleeps until an announcement, a gap, the end of the holder's lease, or the next look.
    async fn notified(&self, listening: &mut Listening, busy_until: Moment, look: Moment) {
        let core = self.core;
        let clock = core.shared.clock;
        let end = busy_until.min(look).min(self.limit);
        let timer = match look < busy_until {
            true => Cause::Look,
            false => Cause::Timer,
        };
        if !listening.was_live() {
            // Between the last try and this point anything may have been announced: the next try
            // finds out.
            let deaf = end.min(clock.now().after(DEAF));
            let live = clock.limit(deaf, listening.live()).await;
            if live.is_none() && deaf < self.limit {
                self.woken(timer);
            }
            return;
        }
        match clock.limit(end, listening.woken()).await {
            Some(Woken::Message) => self.woken(Cause::Message),
            Some(Woken::Gap) => self.woken(Cause::Gap),
            None if end == self.limit => {}
            None => self.woken(timer),
        }
    }

    fn woken(&self, cause: Cause) {
        let shared = &self.core.shared;
        shared.counts.woken(cause);
        shared.observer.woken(&self.request.name, cause);
    }
}

/// What came of one try.
enum Attempt {
    Held(Grant),
    /// Somebody holds, at most until then unless the lease is renewed.
    Busy(Moment),
    /// Somebody held a moment ago, and there is no time to ask again.
    Late,
    Again,
}

/// Until when the lock is busy, if that is known without asking.
///
/// The one before took it with the subscription live, and has listened since.
fn known_busy(turn: Option<&mut Turn>, now: Moment) -> Option<Moment> {
    let seat = turn?.seat()?;
    let live = seat.listening.as_ref().is_some_and(Listening::was_live);
    seat.busy_until.filter(|&until| live && now < until)
}

/// Refusals that may pass by themselves while a caller waits.
fn worth_waiting(error: &Error) -> bool {
    error.is_retryable() && !matches!(error, Error::Refused(Refusal::OutOfMemory(_)))
}
