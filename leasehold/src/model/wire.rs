//! Formats in which a lock is kept.

/// How a mutex is kept at the store, and so with whom it is shared.
///
/// One name has one format. Who uses the other one on it gets
/// [`Error::Protocol`](crate::Error::Protocol), and changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Wire {
    /// A hash with the hold and its count, as Redisson keeps it. The default.
    #[default]
    Redisson,
    /// A string with the holder's token, as `SET name token NX PX ttl` makes it: the format of
    /// redsync, node-redlock, redis-py's `Lock`, redislock and many others.
    ///
    /// Such holders do not announce a release, so waiters also ask again and again, with pauses
    /// from 20 up to 250 ms. On a server it needs Redis 6.2 or newer, or Valkey.
    Plain,
}
