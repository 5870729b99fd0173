//! Merges and the words that were counted, played through once more.

use std::sync::Arc;

use super::{EncodeError, Encoder, Scratch};
use crate::bytes::BYTES;

/// What a merge list did to a counted corpus, source by source: the occurrences each merge replaced, and the tokens
/// that were left.
///
/// Learning counts all sources together, weighted; this goes once more over the table, with raw counts, outside the
/// learner's inner loop. Only the tokens left are counted word by word. Every occurrence of a token ever made is either
/// left, or part of exactly one occurrence of a later token, so the rest follows from the merges, last to first.
pub struct Replay {
    // Without the cache: a table holds each word once, so every look into it would miss.
    encoder: Arc<Encoder>,
    scratch: Scratch,
    left: Vec<Vec<u64>>,
    word: Vec<u8>,
    ids: Vec<u32>,
}

impl Replay {
    /// Nothing counted yet, for sources numbered `0..sources`.
    pub fn new(encoder: Arc<Encoder>, sources: usize) -> Self {
        let left = vec![vec![0; encoder.tokens()]; sources];
        Self { encoder, scratch: Scratch::default(), left, word: Vec::new(), ids: Vec::new() }
    }

    /// Adds `count` occurrences of `word` in `source`. Rows sorted by word cost one encoding for all their sources.
    ///
    /// # Panics
    /// If `source` is not one of those given to [`Replay::new`].
    pub fn push_word(&mut self, source: usize, word: &[u8], count: u64) -> Result<(), EncodeError> {
        if self.word != word {
            self.word.clear();
            self.word.extend_from_slice(word);
            self.ids.clear();
            self.encoder.encode_word(word, &mut self.scratch, &mut self.ids);
        }
        for &id in &self.ids {
            let left = &mut self.left[source][id as usize];
            *left = left.checked_add(count).ok_or(EncodeError::CountOverflow { id })?;
        }
        Ok(())
    }

    /// Occurrences of each id that are left in a source after all merges.
    pub fn tokens(&self, source: usize) -> &[u64] {
        &self.left[source]
    }

    /// Occurrences that each merge, by rank, replaced in a source.
    pub fn replaced(&self, source: usize) -> Result<Vec<u64>, EncodeError> {
        let mut made = self.left[source].clone();
        let merges = self.encoder.merges();
        for (rank, &(left, right)) in merges.iter().enumerate().rev() {
            let count = made[BYTES as usize + rank];
            for id in [left, right] {
                let part = &mut made[id as usize];
                *part = part.checked_add(count).ok_or(EncodeError::CountOverflow { id })?;
            }
        }
        Ok(made.split_off(BYTES as usize))
    }
}
