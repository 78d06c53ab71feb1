//! Random numbers that a seed repeats.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// A stream of numbers, the same for the same seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From the seed in the environment variable `SEED`, else from a fresh one; prints it.
    ///
    /// # Panics
    ///
    /// When `SEED` is no number.
    #[must_use]
    pub fn seeded(what: &str) -> Self {
        let seed = match std::env::var("SEED") {
            Ok(text) => text.parse().expect("SEED must be a decimal number"),
            Err(_) => std::hash::RandomState::new().build_hasher().finish(),
        };
        eprintln!("{what}: SEED={seed}");
        Self(seed)
    }

    /// From the seed given, such as a number of another stream.
    #[must_use]
    pub fn fixed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to below `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low)
    }

    /// A time of at most `most`, in microseconds.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.between(0, micros + 1))
    }

    /// One of the choices.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.number() % choices.len() as u64;
        &choices[usize::try_from(index).expect("an index fits")]
    }
}
