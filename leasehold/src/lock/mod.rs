//! The faces: what a user takes in hand.

mod guard;
mod holder;
mod lease;
mod mutex;
mod status;

pub use guard::MutexGuard;
pub use holder::Holder;
pub use lease::Lease;
pub use mutex::Mutex;
pub use status::Status;
