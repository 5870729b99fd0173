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
//! Counts are 64-bit. They are checked while the table is weighed and when the pairs of bytes are summed, and that is
//! enough: an occurrence of a pair of tokens is a border between two bytes that was counted for those bytes at the
//! start, different occurrences are different borders, so no later pair can be more frequent than the pair of the two
//! bytes at its border was.

mod arena;
mod pairs;
mod table;
mod threshold;
mod words;

use std::ops::ControlFlow;

use arena::{Arena, BLOCK, Place, Symbol, prefetch};
use pairs::Pairs;
pub use table::Table;
use threshold::Threshold;
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
    /// Accepted for callers with cores to spare, and not used: each merge depends on the one before it, and what could run
    /// beside, the building of the lists, is a small part of the time.
    pub threads: usize,
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
    /// Words are numbered in 32 bits.
    #[error("{words} unique words are more than the 4294967295 the learner can number: raise min_word_count")]
    TooManyWords {
        /// Words in the table.
        words: usize,
    },
}

impl LearnError {
    pub(crate) fn pair_overflow(left: u32, right: u32) -> LearnError {
        LearnError::PairOverflow { pair: words::quote(&[byte_of(left), byte_of(right)]) }
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
    let wide = symbols > u32::LIMIT - words.len();
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

/// Learns merges, as [`learn`], and tells what it did.
pub fn learn_measured(
    words: &Words,
    options: &Options,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<(Vec<Merge>, Stats), LearnError> {
    let mut pulse = Pulse { progress, merges: 0, work: 0 };
    words.check_lengths()?;
    let order = arena::by_falling_count(words, &mut pulse)?;
    let size = arena::size(words, &order);
    // Each merge takes at least one symbol away, so this many ids are enough whatever was asked for.
    let ids = 256 + options.merges.min(size);
    match (ids <= u16::IDS, size <= u32::LIMIT) {
        (true, true) => Learner::<u16, u32>::new(words, order, options, pulse)?.run(),
        (false, true) => Learner::<u32, u32>::new(words, order, options, pulse)?.run(),
        (true, false) => Learner::<u16, u64>::new(words, order, options, pulse)?.run(),
        (false, false) => Learner::<u32, u64>::new(words, order, options, pulse)?.run(),
    }
}

/// Id of each byte: GPT-2's order, that of the characters which stand for the bytes in its files. The printable ones stand
/// for themselves and come first, `!` is 0; the others follow in their own order, the space is 220.
pub const BYTE_IDS: [u32; 256] = {
    let mut ids = [0; 256];
    let (mut printable, mut other) = (0, 188);
    let mut byte = 0;
    while byte < 256 {
        let id = match byte {
            0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => &mut printable,
            _ => &mut other,
        };
        ids[byte] = *id;
        *id += 1;
        byte += 1;
    }
    ids
};

fn byte_of(id: u32) -> u8 {
    (0..=255).find(|&byte| BYTE_IDS[usize::from(byte)] == id).expect("ids below 256 are bytes")
}

/// Calls back at even amounts of work.
struct Pulse<'a> {
    progress: &'a mut dyn FnMut(usize) -> ControlFlow<()>,
    merges: usize,
    work: usize,
}

impl Pulse<'_> {
    /// Steps of work between two calls, each some nanoseconds to a cache miss long: together a few hundredths of a second.
    const PERIOD: usize = 1 << 18;

    fn spend(&mut self, steps: usize) -> Result<(), LearnError> {
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

/// How many places ahead memory is asked for.
const AHEAD: usize = 12;

struct Learner<'a, S, P> {
    options: &'a Options,
    pulse: Pulse<'a>,
    arena: Arena<S>,
    pairs: Pairs<P>,
    threshold: Threshold,
    /// Bytes of each token.
    lengths: Vec<u32>,
    merges: Vec<Merge>,
    /// What stands to the left and to the right of the places that are being merged, summed by token.
    before: Neighbours,
    after: Neighbours,
    /// The same, place by place.
    sides: Vec<[S; 2]>,
    joined: usize,
}

impl<'a, S: Symbol, P: Place> Learner<'a, S, P> {
    fn new(
        words: &Words,
        order: Vec<u32>,
        options: &'a Options,
        mut pulse: Pulse<'a>,
    ) -> Result<Learner<'a, S, P>, LearnError> {
        let threshold = Threshold::new(words, &order, options);
        let arena = Arena::new(words, &order, &mut pulse)?;
        drop(order);
        let pairs = Pairs::of_bytes(&arena, threshold.value(), options.max_token_bytes, &mut pulse)?;
        Ok(Learner {
            options,
            pulse,
            arena,
            pairs,
            threshold,
            lengths: vec![1; 256],
            merges: Vec::new(),
            before: Neighbours::new(),
            after: Neighbours::new(),
            sides: Vec::new(),
            joined: 0,
        })
    }

    fn run(mut self) -> Result<(Vec<Merge>, Stats), LearnError> {
        let first_threshold = self.threshold.value();
        while self.merges.len() < self.options.merges {
            let Some(best) = self.pairs.pop_best(self.threshold.value(), &mut self.pulse)? else { break };
            let (left, right) = best.pair;
            self.merges.push(Merge { left, right, count: best.count });
            self.lengths.push(self.lengths[left as usize] + self.lengths[right as usize]);
            self.pulse.merges = self.merges.len();
            let places = self.join(left, right, best.places)?;
            if self.recount(left, right) {
                self.list(&places)?;
            }
            self.before.clear();
            self.after.clear();
        }
        let stats = Stats {
            symbols: self.arena.symbols.len(),
            first_threshold,
            last_threshold: self.threshold.value(),
            pairs: self.pairs.len(),
            places: self.pairs.places_written(),
            joined: self.joined,
        };
        Ok((self.merges, stats))
    }

    /// The token that is being made.
    fn token(&self) -> u32 {
        self.lengths.len() as u32 - 1
    }

    /// Joins the pair wherever it stands and sums up its neighbours. Returns the places that were joined and have any.
    fn join(&mut self, left: u32, right: u32, mut places: Vec<P>) -> Result<Vec<P>, LearnError> {
        let token = self.token();
        let (left_length, length) = (self.lengths[left as usize] as usize, self.lengths[token as usize] as usize);
        let (left_symbol, right_symbol, symbol) = (S::of(left), S::of(right), S::of(token));
        let mut finished = None;
        let mut kept = 0;
        self.before.reach(token);
        self.after.reach(token);
        self.sides.clear();
        let symbols = &mut self.arena.symbols;
        for next in 0..places.len() {
            if next % Pulse::PERIOD == 0 {
                self.pulse.spend(Pulse::PERIOD.min(places.len() - next))?;
            }
            if let Some(ahead) = places.get(next + AHEAD) {
                prefetch(symbols, ahead.position());
                prefetch(&self.arena.weights, ahead.position() / BLOCK);
                if length > 16 {
                    prefetch(symbols, ahead.position() + length);
                }
            }
            let place = places[next].position();
            if symbols[place] != left_symbol || symbols[place + left_length] != right_symbol {
                continue;
            }
            symbols[place + left_length] = S::INSIDE;
            symbols[place + left_length - 1] = S::INSIDE;
            symbols[place] = symbol;
            symbols[place + length - 1] = symbol;
            let weight = self.arena.weights[place / BLOCK];
            let mut before = symbols[place - 1];
            let mut after = symbols[place + length];
            if before == S::BORDER && after == S::BORDER {
                if finished.replace(weight).is_some() {
                    return Err(LearnError::RepeatedWord { word: words::quote(&self.bytes(token)) });
                }
                continue;
            }
            if before == symbol {
                // The pair before was joined as well, and counted this border from its side.
                before = S::BORDER;
            }
            if after == left_symbol && symbols[place + length + left_length] == right_symbol {
                // The pair after will be joined next.
                after = symbol;
            }
            if before != S::BORDER {
                self.before.add(before.id(), weight);
            }
            if after != S::BORDER {
                self.after.add(after.id(), weight);
            }
            self.sides.push([before, after]);
            places[kept] = places[next];
            kept += 1;
        }
        places.truncate(kept);
        self.joined += kept + usize::from(finished.is_some());
        self.threshold.merged(finished);
        Ok(places)
    }

    /// Moves counts from the pairs that have gone to those that have come. Tells whether any new pair is to be kept.
    fn recount(&mut self, left: u32, right: u32) -> bool {
        let token = self.token();
        let threshold = self.threshold.value();
        let room = match self.options.max_token_bytes {
            Some(longest) => longest.saturating_sub(self.lengths[token as usize] as usize),
            None => usize::MAX,
        };
        let keep = |other: u32, weight: u64| weight >= threshold && self.lengths[other as usize] as usize <= room;
        let mut any = false;
        for &before in &self.before.tokens {
            let (weight, places) = self.before.sums[before as usize];
            self.pairs.lower((before, left), weight);
            if keep(before, weight) {
                self.before.pairs[before as usize] = self.pairs.store((before, token), weight, places);
                any = true;
            }
        }
        for &after in &self.after.tokens {
            let (weight, places) = self.after.sums[after as usize];
            // Where two joined pairs meet, what has gone is the pair between the old tokens.
            self.pairs.lower((right, if after == token { left } else { after }), weight);
            if keep(after, weight) {
                self.after.pairs[after as usize] = self.pairs.store((token, after), weight, places);
                any = true;
            }
        }
        any
    }

    /// Writes the lists of the new pairs that are kept, from the places that were joined.
    fn list(&mut self, places: &[P]) -> Result<(), LearnError> {
        for (places, sides) in places.chunks(Pulse::PERIOD).zip(self.sides.chunks(Pulse::PERIOD)) {
            self.pulse.spend(places.len())?;
            for (&place, &[before, after]) in places.iter().zip(sides) {
                if before != S::BORDER && self.before.pairs[before.id() as usize] != NO_PAIR {
                    let start = place.position() - self.lengths[before.id() as usize] as usize;
                    self.pairs.add_place(self.before.pairs[before.id() as usize], start);
                }
                if after != S::BORDER && self.after.pairs[after.id() as usize] != NO_PAIR {
                    self.pairs.add_place(self.after.pairs[after.id() as usize], place.position());
                }
            }
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

/// Sums over the places of one merge, by the token that stands beside them.
struct Neighbours {
    /// For each token the weight of the places that have it beside them, and their number. Zeros, except for `tokens`.
    sums: Vec<(u64, usize)>,
    /// The tokens met, in the order in which they were met.
    tokens: Vec<u32>,
    /// For each token the new pair that it makes, or `NO_PAIR`. Apart from the sums, because it is needed later, and the
    /// smaller these tables are, the more of them is in the cache.
    pairs: Vec<u32>,
}

const NO_PAIR: u32 = u32::MAX;

impl Neighbours {
    fn new() -> Neighbours {
        Neighbours { sums: Vec::new(), tokens: Vec::new(), pairs: Vec::new() }
    }

    /// Makes room for tokens up to this one.
    fn reach(&mut self, token: u32) {
        self.sums.resize(token as usize + 1, (0, 0));
        self.pairs.resize(token as usize + 1, NO_PAIR);
    }

    #[inline]
    fn add(&mut self, token: u32, weight: u64) {
        let (sum, places) = &mut self.sums[token as usize];
        if *places == 0 {
            self.tokens.push(token);
        }
        // Bounded by the count of one pair of bytes, which was checked.
        *sum += weight;
        *places += 1;
    }

    fn clear(&mut self) {
        for token in self.tokens.drain(..) {
            self.sums[token as usize] = (0, 0);
            self.pairs[token as usize] = NO_PAIR;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_of_the_bytes() {
        assert_eq!(BYTE_IDS, crate::encode::byte_ids());
    }
}
