//! The bytes of a lock file: two slots, of which a kill at any byte leaves one valid.
//!
//! The file begins with two descriptors of 32 bytes. A new payload goes where it does not touch
//! the newest one; then the older descriptor is overwritten to point to it.

use std::ops::Range;

use crate::error::{Error, Result};

/// The first bytes of a descriptor. The last one is the version of the format.
const MAGIC: [u8; 4] = *b"LSH\x01";
const DESCRIPTOR: usize = 32;
/// Both descriptors; payloads stand behind.
const HEADER: usize = 2 * DESCRIPTOR;

/// What stands in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Slots {
    /// Which of the two descriptors is the newest; none in a file that is being made.
    newest: Option<usize>,
    /// Grows by one with each write.
    pub(super) generation: u64,
    /// Where the newest payload stands; empty for a file that never had one.
    payload: Range<usize>,
}

/// Bytes to be written, in this order.
pub(super) type Writes = [(usize, Vec<u8>); 2];

#[derive(Clone, Copy)]
struct Descriptor {
    generation: u64,
    offset: usize,
    length: usize,
    crc: u32,
}

impl Slots {
    /// Reads a file's bytes. Whatever no kill of a writer of ours leaves is an error.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < HEADER {
            return match initial().starts_with(bytes) {
                true => Ok(Self {
                    newest: None,
                    generation: 0,
                    payload: HEADER..HEADER,
                }),
                false => Err(Error::protocol("a lock file is cut short, or not ours")),
            };
        }
        let found = [
            Descriptor::read(&bytes[..DESCRIPTOR])?,
            Descriptor::read(&bytes[DESCRIPTOR..HEADER])?,
        ];
        let newest = (0..2)
            .filter_map(|index| found[index].map(|descriptor| (index, descriptor)))
            .max_by_key(|(_, descriptor)| descriptor.generation);
        let Some((index, newest)) = newest else {
            return Err(Error::protocol("a lock file is damaged, or not ours"));
        };
        // A payload is whole before its descriptor is written, so this is no torn write, and to
        // go back to the older slot would be to forget holds.
        let end = newest.offset.saturating_add(newest.length);
        let payload = newest.offset..end;
        let whole = newest.offset >= HEADER
            && bytes
                .get(payload.clone())
                .is_some_and(|payload| crc32fast::hash(payload) == newest.crc);
        if !whole {
            return Err(Error::protocol("the state in a lock file is damaged"));
        }
        Ok(Self {
            newest: Some(index),
            generation: newest.generation,
            payload,
        })
    }

    /// The newest payload in the bytes that were read.
    pub(super) fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.payload.clone()).unwrap_or_default()
    }

    /// What to write, and in which order, to put `payload` in place.
    pub(super) fn replace(&self, payload: &[u8]) -> Writes {
        let offset = if payload.len() <= self.payload.start - HEADER {
            HEADER
        } else {
            self.payload.end
        };
        let descriptor = Descriptor {
            generation: self.generation.max(1) + 1,
            offset,
            length: payload.len(),
            crc: crc32fast::hash(payload),
        };
        let descriptor = descriptor.bytes();
        match self.newest {
            Some(newest) => [
                (offset, payload.to_vec()),
                ((1 - newest) * DESCRIPTOR, descriptor),
            ],
            // The header of a new file goes along, so that no prefix is taken for a foreign file.
            None => [(0, [&initial(), payload].concat()), (0, descriptor)],
        }
    }
}

/// The header of a new file: the first descriptor is void, the second has an empty payload. So a
/// file with a state differs from a file in the making in its first byte.
fn initial() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let empty = Descriptor {
        generation: 1,
        offset: HEADER,
        length: 0,
        crc: crc32fast::hash(&[]),
    };
    header[DESCRIPTOR..].copy_from_slice(&empty.bytes());
    header
}

impl Descriptor {
    /// None for one that is void or torn; an error for one of a version that we cannot read.
    fn read(bytes: &[u8]) -> Result<Option<Self>> {
        let number = |range: Range<usize>| {
            let wide = bytes[range].iter().rev();
            wide.fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte))
        };
        if number(28..32) != u64::from(crc32fast::hash(&bytes[..28])) || bytes[..3] != MAGIC[..3] {
            return Ok(None);
        }
        if bytes[3] != MAGIC[3] {
            return Err(Error::protocol(format!(
                "a lock file has format version {}, this program reads {}",
                bytes[3], MAGIC[3]
            )));
        }
        let size = |range| usize::try_from(number(range)).unwrap_or(usize::MAX);
        Ok(Some(Self {
            generation: number(8..16),
            offset: size(16..24),
            length: size(4..8),
            crc: u32::try_from(number(24..28)).unwrap_or_default(),
        }))
    }

    fn bytes(self) -> Vec<u8> {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        let offset = u64::try_from(self.offset).unwrap_or(u64::MAX);
        let mut bytes = [
            &MAGIC[..],
            &length.to_le_bytes(),
            &self.generation.to_le_bytes(),
            &offset.to_le_bytes(),
            &self.crc.to_le_bytes(),
        ]
        .concat();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut Vec<u8>, offset: usize, part: &[u8]) {
        if bytes.len() < offset + part.len() {
            bytes.resize(offset + part.len(), 0);
        }
        bytes[offset..offset + part.len()].copy_from_slice(part);
    }

    fn write(bytes: &mut Vec<u8>, payload: &[u8]) {
        for (offset, part) in Slots::read(bytes).unwrap().replace(payload) {
            put(bytes, offset, &part);
        }
    }

    fn payload(bytes: &[u8]) -> Result<Vec<u8>> {
        Slots::read(bytes).map(|slots| slots.payload(bytes).to_vec())
    }

    /// Files after each number of writes, with what stands in them and stood before.
    fn histories() -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let (mut bytes, mut before) = (vec![], vec![]);
        let mut all = vec![];
        for length in [10, 30, 31, 5, 200, 199, 64, 0, 1] {
            let now = vec![u8::try_from(length).unwrap(); length];
            write(&mut bytes, &now);
            all.push((bytes.clone(), now.clone(), before));
            before = now;
        }
        all
    }

    #[test]
    fn what_was_written_last_is_read() {
        for (bytes, now, _) in histories() {
            assert_eq!(payload(&bytes).unwrap(), now);
            assert!(bytes.len() < HEADER + 3 * 200);
        }
    }

    #[test]
    fn a_write_that_stops_at_any_byte_leaves_the_old_or_the_new() {
        let mut starts = histories();
        starts.push((vec![], vec![], vec![]));
        for (bytes, old, _) in starts {
            for new in [vec![7; 3], vec![8; 50], vec![9; 500]] {
                let writes = Slots::read(&bytes).unwrap().replace(&new);
                let mut written = bytes.clone();
                for (index, (offset, part)) in writes.iter().enumerate() {
                    for done in 0..part.len() {
                        let mut torn = written.clone();
                        put(&mut torn, *offset, &part[..done]);
                        assert_eq!(payload(&torn).unwrap(), old, "write {index}, byte {done}");
                    }
                    put(&mut written, *offset, part);
                }
                assert_eq!(payload(&written).unwrap(), new);
            }
        }
    }

    #[test]
    fn a_write_after_a_torn_write_works() {
        for (bytes, _, _) in histories() {
            let writes = Slots::read(&bytes).unwrap().replace(&[1; 40]);
            for (torn, (offset, part)) in writes.iter().enumerate() {
                let mut bytes = bytes.clone();
                for (offset, part) in &writes[..torn] {
                    put(&mut bytes, *offset, part);
                }
                put(&mut bytes, *offset, &part[..part.len() / 2]);
                write(&mut bytes, &[2; 41]);
                assert_eq!(payload(&bytes).unwrap(), [2; 41]);
            }
        }
    }

    #[test]
    fn a_damaged_byte_leaves_the_old_or_the_new_or_is_reported() {
        for (bytes, now, before) in histories() {
            for index in 0..bytes.len() {
                for flip in [1, 0x80, 0xFF] {
                    let mut bad = bytes.clone();
                    bad[index] ^= flip;
                    match payload(&bad) {
                        Ok(found) => assert!(found == now || found == before, "byte {index}"),
                        Err(Error::Protocol(_)) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_short_is_never_taken_for_an_empty_one() {
        for (bytes, now, before) in histories() {
            for length in 1..bytes.len() {
                match payload(&bytes[..length]) {
                    Ok(found) => assert!(found == now || found == before, "{length}"),
                    Err(Error::Protocol(_)) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            assert!(payload(&bytes[..HEADER - 1]).is_err());
        }
    }

    #[test]
    fn foreign_content_and_other_versions_are_reported() {
        for foreign in [&b"x"[..], &[0; 64], &[0; 500], &[b'x'; 63], &[b'x'; 100]] {
            assert!(matches!(Slots::read(foreign), Err(Error::Protocol(_))));
        }
        let (mut bytes, _, _) = histories().remove(3);
        bytes[3] = 2;
        let crc = crc32fast::hash(&bytes[..28]).to_le_bytes();
        bytes[28..32].copy_from_slice(&crc);
        let error = Slots::read(&bytes).unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
    }
}
