//! Learning merges from weighted words: exact byte-pair encoding, at the cost of touching each merged place once.
//!
//! The next merge is the pair with the highest weighted count, and of equals the smallest (left id, right id). Overlaps
//! count as windows (`aaa` holds two `aa`) and are replaced from left to right. [`crate::naive::learn`] does the same in
//! the plain way; the tests hold the two equal.
//!
//! How the time goes down, from the textbook to here:
//!
//! 1. **Places, not words** ([`arena`]). All words lie in one array of token ids, and each pair has the sorted list of the
//!    places where it stands. A token keeps its id at its first and its last position, so both neighbours of a place are
//!    one load away, and a word of a million letters costs no more than a million short words.
//! 2. **Counts by neighbour.** One merge changes the counts of the pairs to its left and right. They are summed per distinct
//!    neighbour while the places are walked, so the table of pairs is asked once per neighbour, not once per place.
//! 3. **Provable pruning** ([`threshold`]). Pairs too rare to be merged before the vocabulary is full are never stored. On
//!    text these are most of all pairs.
//! 4. **Lists written once** ([`pairs`]). After the sums are known, each new pair gets a list of exactly its size. A
//!    list is never changed later: places where the pair has gone since are skipped when it is walked.
//!
//! A merge costs its places and its distinct neighbours; a run about one random memory access for each merged place.
//!
//! One thread does it all. Each merge waits for the one before it; at a million words a quarter of the visits to places is in
//! merges of more than 65,000 places, where threads could share the work, and building the lists is an eighth of the
//! time: two threads would save a tenth.
//!
//! Counts are 64-bit. They are checked while the table is weighed and when the pairs of bytes are summed, and that is
//! enough: an occurrence of a pair of tokens is a border between two bytes that was counted for those bytes at the
//! start, different occurrences are different borders, so no later pair can be more frequent than the pair of the two
//! bytes at its border was.

mod words;
mod table;
mod arena;
mod join;
mod pairs;
mod threshold;
mod tokenized;
pub mod parity;

use std::ops::ControlFlow;

use crate::bytes::{byte_of, show};
use arena::{Arena, BLOCK, Order, Place, Symbol};
use join::{AHEAD, Joint, NO_PAIR, Sides};
use pairs::Pairs;
pub use table::Table;
use threshold::Threshold;
pub use tokenized::Tokenized;
pub use words::{Words, WordsBuilder, jitter};

/// What to learn.
#[derive(Clone, Debug)]
pub struct Options {
    /// Merges to learn at most; fewer when no pair is frequent enough.
    pub merges: usize,
    /// Pairs below this weighted count are not merged; 0 is taken as 1.
    pub min_pair_count: u64,
    /// Pairs whose token would have more bytes are not merged.
    pub max_token_bytes: Option<usize>,
}

/// One merge; its rank is its place in the list, and the id of its token is 256 + rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Token id, below 256 a byte in GPT-2's order.
    pub left: u32,
    /// Token id, as `left`.
    pub right: u32,
    /// Weighted count of the pair when it was chosen, overlaps counted as windows.
    pub count: u64,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LearnError {
    /// The progress callback asked to stop.
    #[error("stopped on request after {merges} merges")]
    Interrupted {
        /// Merges learned until then.
        merges: usize,
    },
    /// One word's weighted count does not fit.
    #[error(
        "the weighted count of the word {word} passes 2^64 - 1: divide the weights of all sources by one number, such as 1000"
    )]
    WordOverflow {
        /// The word, quoted.
        word: String,
    },
    /// The weighted count of one pair of bytes does not fit.
    #[error(
        "the weighted count of the byte pair {pair} passes 2^64 - 1: divide the weights of all sources by one number, such as 1000"
    )]
    PairOverflow {
        /// The two bytes, quoted.
        pair: String,
    },
    /// The bytes of one source's words do not fit.
    #[error("the words of source {number} have more than 2^64 - 1 bytes together: divide its counts by one number")]
    SourceOverflow {
        /// The source.
        number: u32,
    },
    /// A row names a source that has no weight.
    #[error("a row of the count table belongs to source {number}, but only {sources} sources have weights")]
    UnknownSource {
        /// The source in the row.
        number: u32,
        /// Weights given.
        sources: usize,
    },
    /// A word came in two places.
    #[error("the word {word} stands in the table more than once: merge the tables, so that each word has one count")]
    RepeatedWord {
        /// The word, quoted.
        word: String,
    },
    /// Token lengths are 32-bit numbers.
    #[error("a word has {bytes} bytes, and 4294967295 are the limit: cut long words while counting (it begins {word})")]
    WordTooLong {
        /// Its beginning, quoted.
        word: String,
        /// Its length.
        bytes: usize,
    },
    /// Token ids are 32-bit numbers.
    #[error("after {merges} merges there are no 32-bit token ids left: ask for fewer")]
    TooManyMerges {
        /// Merges learned until then.
        merges: usize,
    },
    /// Words are numbered in 32 bits.
    #[error("{words} unique words are more than the 4294967295 the learner can number: raise min_word_count")]
    TooManyWords {
        /// Words in the table.
        words: usize,
    },
}

impl LearnError {
    /// Whether the table is not what a merge has written, rather than that its counts are too large.
    pub fn is_damage(&self) -> bool {
        matches!(self, LearnError::RepeatedWord { .. } | LearnError::UnknownSource { .. })
    }

    pub(crate) fn pair_overflow(left: u32, right: u32) -> LearnError {
        LearnError::PairOverflow { pair: show(&[byte_of(left), byte_of(right)]) }
    }
}

/// What a run did, for summaries and for the tests of its pruning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Symbols laid out, with the borders between words.
    pub symbols: usize,
    /// Pairs below this weighted count could be left out from the beginning.
    pub first_threshold: u64,
    /// The same at the end.
    pub last_threshold: u64,
    /// Pairs that were stored.
    pub pairs: usize,
    /// Places written into lists, for all stored pairs.
    pub places: usize,
    /// Places where two tokens were joined.
    pub joined: usize,
}

/// Bytes of memory that [`learn`] takes beside the words, at its peak; somewhat more than it will be on text.
///
/// The array of symbols and one weight for each block of it are exact. The lists of places are at their largest early on,
/// when the lists of the pairs of bytes are there, one place a symbol, and the first merges add theirs.
pub fn memory_estimate(words: &Words) -> usize {
    let symbols: usize = words.iter().filter(|(word, _)| word.len() > 1).map(|(word, _)| word.len() + 1).sum();
    let wide = symbols + words.len() > u32::LIMIT;
    let place = if wide { size_of::<u64>() } else { size_of::<u32>() };
    let by_word = 2 * size_of::<u32>();
    symbols * (size_of::<u16>() + size_of::<u64>() / BLOCK + 3 * place / 2) + words.len() * by_word + (16 << 20)
}

/// Learns merges from weighted words.
///
/// `progress` is called with the number of merges learned, about every hundredth of a second, also while the lists are
/// built; when it breaks, the result is [`LearnError::Interrupted`].
///
/// The words must be unique. Otherwise the result is either right or [`LearnError::RepeatedWord`].
pub fn learn(
    words: &Words,
    options: &Options,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<Merge>, LearnError> {
    learn_measured(words, options, progress).map(|(merges, _)| merges)
}

/// Learns merges, as [`learn`], and keeps the tokens that they cut the words into: an encoder would take as long as learning did.
pub fn learn_tokenized(
    words: &Words,
    options: &Options,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<(Vec<Merge>, Tokenized), LearnError> {
    let done = start(words, options, true, progress)?;
    Ok((done.merges, done.tokenized.expect("asked for")))
}

/// Learns merges, as [`learn`], and tells what it did.
pub fn learn_measured(
    words: &Words,
    options: &Options,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<(Vec<Merge>, Stats), LearnError> {
    start(words, options, false, progress).map(|done| (done.merges, done.stats))
}

/// What a run leaves.
struct Done {
    merges: Vec<Merge>,
    stats: Stats,
    tokenized: Option<Tokenized>,
}

fn start(
    words: &Words,
    options: &Options,
    keep: bool,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Done, LearnError> {
    let mut pulse = Pulse::new(progress);
    let order = Order::new(words, &mut pulse)?;
    // Each merge takes at least one symbol away, so this many ids are enough whatever was asked for.
    let ids = 256 + options.merges.min(order.size);
    match (ids <= u16::IDS, order.size <= u32::LIMIT) {
        (true, true) => Learner::<u16, u32>::new(words, order, options, keep, pulse)?.run(),
        (false, true) => Learner::<u32, u32>::new(words, order, options, keep, pulse)?.run(),
        (true, false) => Learner::<u16, u64>::new(words, order, options, keep, pulse)?.run(),
        (false, false) => Learner::<u32, u64>::new(words, order, options, keep, pulse)?.run(),
    }
}

/// Calls back at even amounts of work.
pub(crate) struct Pulse<'a> {
    progress: &'a mut dyn FnMut(usize) -> ControlFlow<()>,
    pub merges: usize,
    work: usize,
}

impl<'a> Pulse<'a> {
    pub fn new(progress: &'a mut dyn FnMut(usize) -> ControlFlow<()>) -> Pulse<'a> {
        Pulse { progress, merges: 0, work: 0 }
    }

    /// Steps of work between two calls, each some nanoseconds to a cache miss long: together a few hundredths of a second.
    pub const PERIOD: usize = 1 << 18;

    pub fn spend(&mut self, steps: usize) -> Result<(), LearnError> {
        self.work += steps;
        if self.work >= Self::PERIOD {
            self.work = 0;
            if (self.progress)(self.merges).is_break() {
                return Err(LearnError::Interrupted { merges: self.merges });
            }
        }
        Ok(())
    }
}

struct Learner<'a, S, P> {
    words: &'a Words,
    /// Where the words lie, if their tokens are to be kept.
    order: Option<Order>,
    options: &'a Options,
    pulse: Pulse<'a>,
    arena: Arena<S>,
    pairs: Pairs<P>,
    threshold: Threshold,
    /// Bytes of each token.
    lengths: Vec<u32>,
    merges: Vec<Merge>,
    sides: Sides<S>,
    joined: usize,
}

impl<'a, S: Symbol, P: Place> Learner<'a, S, P> {
    fn new(
        words: &'a Words,
        order: Order,
        options: &'a Options,
        keep: bool,
        mut pulse: Pulse<'a>,
    ) -> Result<Learner<'a, S, P>, LearnError> {
        let by_falling_count = order.words.iter().map(|&index| {
            let index = index as usize;
            (words.word(index).len(), words.counts()[index])
        });
        let Options { merges, min_pair_count, max_token_bytes } = *options;
        let threshold = Threshold::new(by_falling_count, merges, min_pair_count, max_token_bytes, &mut pulse)?;
        let arena = Arena::new(words, &order, &mut pulse)?;
        let order = keep.then_some(order);
        let pairs = Pairs::of_bytes(&arena, threshold.value(), max_token_bytes, &mut pulse)?;
        Ok(Learner {
            words,
            order,
            options,
            pulse,
            arena,
            pairs,
            threshold,
            lengths: vec![1; 256],
            merges: Vec::new(),
            sides: Sides::new(),
            joined: 0,
        })
    }

    fn run(mut self) -> Result<Done, LearnError> {
        let first_threshold = self.threshold.value();
        while self.merges.len() < self.options.merges {
            let Some(best) = self.pairs.pop_best(self.threshold.value(), &mut self.pulse)? else { break };
            if self.lengths.len() == S::IDS {
                return Err(LearnError::TooManyMerges { merges: self.merges.len() });
            }
            let (left, right) = best.pair;
            self.merges.push(Merge { left, right, count: best.count });
            self.lengths.push(self.lengths[left as usize] + self.lengths[right as usize]);
            self.pulse.merges = self.merges.len();
            self.join(left, right, best.places)?;
        }
        let stats = Stats {
            symbols: self.arena.symbols.len(),
            first_threshold,
            last_threshold: self.threshold.value(),
            pairs: self.pairs.len(),
            places: self.pairs.places_written(),
            joined: self.joined,
        };
        let Learner { words, order, merges, lengths, arena, pairs, mut pulse, .. } = self;
        drop(pairs); // the most of the memory, before there is more
        let tokenized = order
            .map(|order| Tokenized::new(words, &order, S::wrap(arena.symbols), lengths, &mut pulse))
            .transpose()?;
        Ok(Done { merges, stats, tokenized })
    }

    /// Joins the pair wherever it stands, moves counts from the pairs that have gone to those that have come, and lists
    /// where the new ones are that may still be merged.
    fn join(&mut self, left: u32, right: u32, mut places: Vec<P>) -> Result<(), LearnError> {
        let joint = Joint::new(left, right, &self.lengths);
        self.sides.restart(joint.token);
        let joined = self.sides.join(&mut self.arena, &joint, &mut places, &mut self.pulse)?;
        if joined.finished > 1 {
            return Err(LearnError::RepeatedWord { word: show(&self.bytes(joint.token)) });
        }
        self.joined += joined.kept + joined.finished;
        self.threshold.merged((joined.finished > 0).then_some(joined.finished_weight));

        let threshold = self.threshold.value();
        let room = joint.room(self.options.max_token_bytes);
        let Sides { before, after, .. } = &mut self.sides;
        self.pulse.spend(before.tokens.len() + after.tokens.len())?;
        let mut any = false;
        for (side, is_after) in [(before, false), (after, true)] {
            for (index, &other) in side.tokens.iter().enumerate() {
                if let Some(&ahead) = side.tokens.get(index + AHEAD) {
                    self.pairs.prefetch(joint.gone(ahead, is_after));
                }
                let (weight, number) = side.sums[other as usize];
                self.pairs.lower(joint.gone(other, is_after), weight);
                let kept = weight >= threshold && self.lengths[other as usize] as usize <= room;
                any |= kept;
                side.pairs[other as usize] =
                    if kept { self.pairs.store(joint.come(other, is_after), weight, number) } else { NO_PAIR };
            }
            side.clear_sums();
        }
        if any {
            let pairs = &mut self.pairs;
            let add = |pair, place| pairs.add_place(pair, place);
            self.sides.list(&places[..joined.kept], &self.lengths, &mut self.pulse, add)?;
        }
        Ok(())
    }

    /// The bytes a token stands for.
    fn bytes(&self, token: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut stack = vec![token];
        while let Some(token) = stack.pop() {
            match token.checked_sub(256) {
                Some(rank) => stack.extend([self.merges[rank as usize].right, self.merges[rank as usize].left]),
                None => bytes.push(byte_of(token)),
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The array in all its widths, which otherwise only the size of the table chooses.
    #[test]
    fn narrow_and_wide_arrays_agree() {
        fn run<S: Symbol, P: Place>(words: &Words, options: &Options) -> Vec<Merge> {
            let progress = &mut |_| ControlFlow::Continue(());
            let mut pulse = Pulse::new(progress);
            let order = Order::new(words, &mut pulse).unwrap();
            Learner::<S, P>::new(words, order, options, false, pulse).unwrap().run().unwrap().merges
        }
        let word = |seed: u32| format!("{:o}", seed.wrapping_mul(2_654_435_761) >> (seed % 16));
        let words: BTreeMap<String, u64> = (1..3_000).map(|seed| (word(seed), 1 + 5_000 / u64::from(seed))).collect();
        let words: Words = words.into_iter().collect();
        let options = Options { merges: 2_000, min_pair_count: 1, max_token_bytes: None };
        let merges = run::<u16, u32>(&words, &options);
        assert!(merges.len() > 1_000);
        assert!(merges == run::<u32, u32>(&words, &options));
        assert!(merges == run::<u16, u64>(&words, &options));
        assert!(merges == run::<u32, u64>(&words, &options));
    }
}
