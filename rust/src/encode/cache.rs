//! An encoder that remembers: text repeats its words.

use std::ops::ControlFlow;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{EncodeError, Encoder, Scratch};
use crate::bytes::BYTE_IDS;

/// One slot of the cache: a word and its ids in one cache line. `length` 0 marks an empty slot (no word is empty).
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    word: [u8; Slot::WORD],
    length: u8,
    count: u32,
    ids: [u32; Slot::IDS],
}

impl Slot {
    const WORD: usize = 31;
    const IDS: usize = 7;
    const EMPTY: Self = Self { word: [0; Self::WORD], length: 0, count: 0, ids: [0; Self::IDS] };
}

/// An encoder with a cache from words to ids, for one thread. Text repeats its words, so most come from the cache.
///
/// The cache is direct-mapped: a word's hash names its one slot, and the last word there wins. So it is bounded by
/// construction (2 MiB), asks the allocator for nothing, touches one line a word, and hostile text can do no worse than
/// miss. A hash map that is emptied when full, and one with a list of recent use, both spend more on a hit than they
/// save on the rare words. Words over 31 bytes or 7 ids are not kept: they seldom come again.
pub struct CachedEncoder {
    encoder: Arc<Encoder>,
    slots: Vec<Slot>,
    scratch: Scratch,
}

impl CachedEncoder {
    const SLOTS: usize = 1 << 15;

    /// An empty cache over a shared merge list.
    pub fn new(encoder: Arc<Encoder>) -> Self {
        Self { encoder, slots: vec![Slot::EMPTY; Self::SLOTS], scratch: Scratch::default() }
    }

    /// The merge list behind the cache.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Appends the ids of `word` to `out`, as [`Encoder::encode_word`] does.
    ///
    /// # Panics
    /// If the word is longer than [`super::MAX_WORD_BYTES`].
    pub fn encode_word(&mut self, word: &[u8], out: &mut Vec<u32>) {
        let encoded = self.encode_word_while(word, out, &mut |_| ControlFlow::Continue(()));
        encoded.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Appends the ids of `word` to `out`, as [`Encoder::encode_word_while`] does.
    pub fn encode_word_while(
        &mut self,
        word: &[u8],
        out: &mut Vec<u32>,
        look: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), EncodeError> {
        match word {
            [] => return Ok(()),
            &[byte] => {
                out.push(BYTE_IDS[usize::from(byte)]);
                return Ok(());
            }
            _ if word.len() > Slot::WORD => return self.encoder.encode_word_while(word, &mut self.scratch, out, look),
            _ => {}
        }
        let slot = &mut self.slots[xxh3_64(word) as usize % Self::SLOTS];
        if usize::from(slot.length) == word.len() && slot.word[..word.len()] == *word {
            out.extend_from_slice(&slot.ids[..slot.count as usize]);
            return Ok(());
        }
        let start = out.len();
        self.encoder.encode_short(word, &mut self.scratch.ranks, out); // every word that has a slot is short
        let ids = &out[start..];
        if ids.len() <= Slot::IDS {
            slot.word[..word.len()].copy_from_slice(word);
            slot.length = word.len() as u8;
            slot.ids[..ids.len()].copy_from_slice(ids);
            slot.count = ids.len() as u32;
        }
        Ok(())
    }
}
