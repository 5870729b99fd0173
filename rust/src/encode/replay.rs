//! Merges and the words that were counted, played through once more.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{EncodeError, Encoder, Scratch};
use crate::bytes::BYTES;
use crate::learn::{Tokenized, Words};

/// What a merge list did to a counted corpus, source by source: the occurrences each merge replaced, and the tokens
/// that were left.
///
/// Learning counts all sources together, weighted; this goes once more over the table, with raw counts, outside the
/// learner's inner loop. Only the tokens left are counted word by word. Every occurrence of a token ever made is either
/// left, or part of exactly one occurrence of a later token, so the rest follows from the merges, last to first.
pub struct Replay {
    merges: Arc<[(u32, u32)]>,
    // Without the cache: a table holds each word once, so every look into it would miss.
    encoder: Option<Encoder>,
    scratch: Scratch,
    left: Vec<Vec<u64>>,
    word: Vec<u8>,
    ids: Vec<u32>,
}

impl Replay {
    /// Nothing counted yet, for sources numbered `0..sources`.
    pub fn new(encoder: Encoder, sources: usize) -> Self {
        let replay = Self::of_learned(encoder.merges().into(), sources);
        Self { encoder: Some(encoder), ..replay }
    }

    /// The same for merges that were learned here: most of their words are tokens already, and come by
    /// [`Replay::push_tokenized`], so that an encoder is made when the first word comes that is not.
    pub fn of_learned(merges: Arc<[(u32, u32)]>, sources: usize) -> Self {
        let left = vec![vec![0; BYTES as usize + merges.len()]; sources];
        Self { merges, encoder: None, scratch: Scratch::default(), left, word: Vec::new(), ids: Vec::new() }
    }

    /// Adds `count` occurrences of word `index` of those that were learned from, in `source`.
    pub fn push_tokenized(
        &mut self,
        source: usize,
        (tokenized, words, index): (&Tokenized, &Words, usize),
        count: u64,
    ) -> Result<(), EncodeError> {
        let sources = self.left.len();
        let left = self.left.get_mut(source).ok_or(EncodeError::UnknownSource { number: source, sources })?;
        tokenized.try_each(words, index, |id| add(left, id, count))
    }

    /// Adds `count` occurrences of `word` in `source`. Rows sorted by word cost one encoding for all their sources.
    pub fn push_word(&mut self, source: usize, word: &[u8], count: u64) -> Result<(), EncodeError> {
        self.push_word_while(source, word, count, &mut |_| ControlFlow::Continue(()))
    }

    /// The same until `look` breaks, as in [`Encoder::encode_word_while`].
    pub fn push_word_while(
        &mut self,
        source: usize,
        word: &[u8],
        count: u64,
        look: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), EncodeError> {
        let sources = self.left.len();
        let left = self.left.get_mut(source).ok_or(EncodeError::UnknownSource { number: source, sources })?;
        if self.word != word {
            // Without a word until its ids are known: an error leaves no wrong ones behind.
            self.word.clear();
            self.ids.clear();
            let encoder = match &mut self.encoder {
                Some(encoder) => encoder,
                none => none.insert(Encoder::new(&self.merges)?),
            };
            encoder.encode_word_while(word, &mut self.scratch, &mut self.ids, look)?;
            self.word.extend_from_slice(word);
        }
        self.ids.iter().try_for_each(|&id| add(left, id, count))
    }

    /// Occurrences of each id that are left in a source after all merges.
    pub fn tokens(&self, source: usize) -> &[u64] {
        &self.left[source]
    }

    /// Occurrences that each merge, by rank, replaced in a source.
    pub fn replaced(&self, source: usize) -> Result<Vec<u64>, EncodeError> {
        let mut made = self.left[source].clone();
        for (rank, &(left, right)) in self.merges.iter().enumerate().rev() {
            let count = made[BYTES as usize + rank];
            add(&mut made, left, count)?;
            add(&mut made, right, count)?;
        }
        Ok(made.split_off(BYTES as usize))
    }
}

fn add(counts: &mut [u64], id: u32, count: u64) -> Result<(), EncodeError> {
    let sum = &mut counts[id as usize];
    *sum = sum.checked_add(count).ok_or(EncodeError::CountOverflow { id })?;
    Ok(())
}
