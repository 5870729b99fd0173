//! Words that are too long for a slot of the table or an entry of a spill.

/// Long words one after another, each behind its length (u32, little-endian; see `MAX_WORD_BYTES`).
#[derive(Default)]
pub(super) struct Arena(Vec<u8>);

impl Arena {
    const LENGTH: usize = size_of::<u32>();

    pub fn push(&mut self, word: &[u8]) -> usize {
        let place = self.0.len();
        self.0.extend_from_slice(&(word.len() as u32).to_le_bytes());
        self.0.extend_from_slice(word);
        place
    }

    pub fn get(&self, place: usize) -> &[u8] {
        let (length, rest) = self.0[place..].split_first_chunk::<{ Self::LENGTH }>().expect("a place in this arena");
        &rest[..u32::from_le_bytes(*length) as usize]
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}
