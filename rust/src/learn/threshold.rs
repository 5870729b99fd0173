//! Which pairs can be left out, provably.
//!
//! A word is *finished* when it is one token. Each merge finishes at most one word, because a token that is a whole word
//! is that word, and words are unique. An unfinished word of count `c` holds a pair, and this pair has at least the
//! count `c`. So, when `m` merges remain and at least `m` unfinished words have counts of `c` or more, then one of them is
//! still unfinished before each of these merges, and the best pair always has at least the count `c`. The counts of pairs
//! only fall once they exist. Hence a pair below `c` will never be merged, and may be forgotten.
//!
//! With `max_token_bytes` the pairs of a word may all be forbidden, but not if the word itself is no longer than that: then
//! none of its tokens is. So only such words are counted, and the proof holds.

use super::{LearnError, Pulse};

pub(crate) struct Threshold {
    /// Each weighted count, falling, with the number of unfinished words that have it; behind them the count 0.
    unfinished: Vec<(u64, usize)>,
    /// Index in `unfinished` of the count that is the threshold.
    current: usize,
    /// Unfinished words of that count and above. While `current` is not at the count 0, at least `remaining`.
    above: usize,
    /// Merges that may follow.
    remaining: usize,
    min_pair_count: u64,
}

impl Threshold {
    /// From the length and the weighted count of each word that holds a pair, counts falling.
    pub fn new(
        words: impl Iterator<Item = (usize, u64)>,
        merges: usize,
        min_pair_count: u64,
        max_token_bytes: Option<usize>,
        pulse: &mut Pulse,
    ) -> Result<Threshold, LearnError> {
        let longest = max_token_bytes.unwrap_or(usize::MAX);
        let mut unfinished: Vec<(u64, usize)> = Vec::new();
        for (length, count) in words {
            pulse.spend(1)?;
            match unfinished.last_mut() {
                _ if length > longest => {}
                Some((last, number)) if *last == count => *number += 1,
                _ => unfinished.push((count, 1)),
            }
        }
        let above = unfinished.iter().map(|&(_, number)| number).sum();
        let current = unfinished.len();
        unfinished.push((0, 0));
        let min_pair_count = min_pair_count.max(1);
        let mut threshold = Threshold { unfinished, current, above, remaining: merges, min_pair_count };
        threshold.rise();
        Ok(threshold)
    }

    /// Pairs below this count need not be kept.
    pub fn value(&self) -> u64 {
        self.unfinished[self.current].0.max(self.min_pair_count)
    }

    /// One merge fewer remains, and it finished a word of this count, if any.
    pub fn merged(&mut self, finished: Option<u64>) {
        self.remaining -= 1;
        if let Some(count) = finished {
            // Below the threshold nobody asks any more.
            if let Ok(index) = self.unfinished[..=self.current].binary_search_by(|(other, _)| count.cmp(other)) {
                self.unfinished[index].1 -= 1;
                self.above -= 1;
            }
        }
        self.rise();
    }

    fn rise(&mut self) {
        // With no merge to come nothing is needed; the last threshold stays, for those who read it.
        while self.remaining > 0 && self.current > 0 && self.above - self.unfinished[self.current].1 >= self.remaining {
            self.above -= self.unfinished[self.current].1;
            self.current -= 1;
        }
    }
}
