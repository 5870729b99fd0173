//! Parity-aware learning: each merge is the best pair of the language that is worst off, and is applied to all languages.
//!
//! Foroutan, Meister, Paul, Niklaus, Ahmadi, Bosselut, Sennrich: *Parity-Aware Byte-Pair Encoding* (arXiv 2508.04796).
//! A language ℓ has counts `P_ℓ(a, b)` of its own. Before each merge a language is chosen, by the tokens that its parallel
//! development text takes by now or by the compression of its training text ([`Rule`]); the pair with the highest `P_ℓ` is
//! merged, of equals the smallest (left id, right id), of equal languages the one with the smallest number. Whatever decides
//! is an integer or a quotient of integers, compared exactly.
//!
//! A language whose best pair is below `min_pair_count` is chosen no more (its pairs only get rarer); the others go on, and
//! the end comes when none is left.
//!
//! The machine is that of [`super`]: one array of symbols, a sorted list of places for each pair, counts by
//! neighbour. The words of a language are a segment of the array, those of its development text another one, so that a
//! word of three languages lies there three times; and since places are sorted, a merge meets the languages one after
//! the other. What is new:
//!
//! * a pair has a column of counts, one for each language that may still choose it, and each language has a queue;
//! * the proof of [`super`] that rare pairs can be left out holds for each language by itself, since a merge
//!   finishes at most one word of each. A pair is left out when no language can choose it any more.
//!
//! A merge costs its places, its distinct neighbours in each language, and a few comparisons for the choice.
//! [`crate::naive::learn_parity`] is the plain twin.

use std::cmp::{Ordering, Reverse};
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use super::arena::{Arena, BLOCK, Layout, Place, Symbol};
use super::join::{Joint, NO_PAIR, Sides};
use super::pairs::{Best, Candidate, PairIndex, Queue, each_byte_pair};
use super::threshold::Threshold;
use super::{LearnError, Pulse, Table};
use crate::bytes::{byte_of, show};

/// What to learn. The sources of the table are the languages.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Merges to learn at most; fewer when no language has a pair that is frequent enough.
    pub merges: usize,
    /// A language does not choose pairs below this count in its own words; 0 is taken as 1.
    pub min_pair_count: u64,
    /// Words with a smaller count over all languages take no part. The development text keeps all its words.
    pub min_word_count: u64,
    /// Pairs whose token would have more bytes are not merged.
    pub max_token_bytes: Option<usize>,
    /// So many merges come first that are chosen by the sum of all languages' counts, as in plain training.
    pub summed_merges: usize,
    pub rule: Rule<'a>,
    /// Keeps one language from being chosen all the time.
    pub window: Option<Window>,
}

/// Which language is the worst off.
#[derive(Clone, Debug)]
pub enum Rule<'a> {
    /// The one whose development text takes the most tokens under the merges so far. The text is parallel: the same in
    /// all languages, with sources numbered as in the table to learn from.
    Development(&'a Table),
    /// The one with the least (bytes of training text / its tokens by now) / ratio, with a positive ratio for each.
    Ratios(&'a [u64]),
}

/// A language is passed over while its share of the last `length` choices is above α / languages. Where all of them are,
/// the one that is worst off is taken.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Choices that are remembered, those by summed counts not among them.
    pub length: usize,
    /// α as a fraction: numerator and denominator.
    pub alpha: (u64, u64),
}

/// One merge; its rank is its place in the list, and the id of its token is 256 + rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    /// Count of the pair in the language that chose it, or in all together.
    pub count: u64,
    /// The language that chose it, or none where summed counts did.
    pub language: Option<u32>,
}

/// Learns merges. `progress` is as in [`super::learn`].
pub fn learn(
    table: &Table,
    options: &Options,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<Merge>, LearnError> {
    let mut pulse = Pulse::new(progress);
    let corpus = Corpus::new(table, options, &mut pulse)?;
    // Each merge takes at least one symbol away.
    let ids = 256 + options.merges.min(corpus.size);
    if ids <= u16::IDS && corpus.size <= u32::LIMIT {
        Learner::<u16, u32>::new(corpus, options, pulse)?.run()
    } else {
        Learner::<u32, u64>::new(corpus, options, pulse)?.run()
    }
}

/// What the state of a language is to the choice: how many tokens it takes now, and what that is compared with.
struct Standing<'a> {
    /// Tokens of the development text, or of the training text where ratios decide.
    pub tokens: Vec<u64>,
    /// Tokens before the first merge, that is, bytes.
    bytes: Vec<u64>,
    options: &'a Options<'a>,
    exhausted: Vec<bool>,
    recent: VecDeque<usize>,
    /// How often each language is among the recent choices.
    recently: Vec<usize>,
}

impl<'a> Standing<'a> {
    /// From the bytes of each language's development text, or of its training text where ratios decide.
    pub fn new(bytes: Vec<u64>, options: &'a Options<'a>) -> Standing<'a> {
        let languages = bytes.len();
        Standing {
            tokens: bytes.clone(),
            bytes,
            options,
            exhausted: vec![false; languages],
            recent: VecDeque::new(),
            recently: vec![0; languages],
        }
    }

    /// The language to choose the next merge, unless all are exhausted.
    pub fn worst(&self) -> Option<usize> {
        let mut left: Vec<usize> = (0..self.tokens.len()).filter(|&language| !self.exhausted[language]).collect();
        // Stable, so equals stay in the order of their numbers.
        left.sort_by(|&one, &other| self.worse_first(one, other));
        let welcome = left.iter().find(|&&language| self.window_lets(language));
        welcome.or(left.first()).copied()
    }

    fn worse_first(&self, one: usize, other: usize) -> Ordering {
        match self.options.rule {
            Rule::Development(_) => self.tokens[other].cmp(&self.tokens[one]),
            // bytes / tokens / ratio of the one against those of the other, without the fractions.
            Rule::Ratios(ratios) => product(self.bytes[one], self.tokens[other], ratios[other]).cmp(&product(
                self.bytes[other],
                self.tokens[one],
                ratios[one],
            )),
        }
    }

    fn window_lets(&self, language: usize) -> bool {
        self.options.window.is_none_or(|Window { length, alpha: (numerator, denominator) }| {
            // count / length <= α / languages
            let [count, languages, length] =
                [self.recently[language], self.tokens.len(), length].map(|number| number as u64);
            product(count, languages, denominator) <= product(length, numerator, 1)
        })
    }

    /// The language has chosen a merge.
    pub fn chose(&mut self, language: usize) {
        let Some(Window { length, .. }) = self.options.window else { return };
        self.recent.push_back(language);
        self.recently[language] += 1;
        if self.recent.len() > length {
            let oldest = self.recent.pop_front().expect("more than `length` entries");
            self.recently[oldest] -= 1;
        }
    }

    /// The language has no pair left that it could choose.
    pub fn exhaust(&mut self, language: usize) {
        self.exhausted[language] = true;
    }
}

/// The product of three numbers, 192 bits from the highest on.
fn product(one: u64, two: u64, three: u64) -> (u128, u64) {
    let both = u128::from(one) * u128::from(two);
    let low = u128::from(both as u64) * u128::from(three);
    ((both >> 64) * u128::from(three) + (low >> 64), low as u64)
}

/// The bytes of each source's words, counted; errors where they pass 64 bits.
fn bytes_of<'w>(sources: usize, rows: impl Iterator<Item = (&'w [u8], u32, u64)>) -> Result<Vec<u64>, LearnError> {
    let mut bytes = vec![0u64; sources];
    for (word, source, count) in rows {
        let sum = &mut bytes[source as usize];
        let more = count.checked_mul(word.len() as u64).and_then(|more| sum.checked_add(more));
        *sum = more.ok_or(LearnError::SourceOverflow { number: source })?;
    }
    Ok(bytes)
}

/// All words that hold a pair, with their counts, falling: a segment for each language's training text, then one for each
/// language's development text.
struct Corpus<'w> {
    segments: Vec<Vec<(u64, &'w [u8])>>,
    /// Symbols that they will take.
    size: usize,
    /// Bytes by language of what the rule looks at, words of one byte among them.
    bytes: Vec<u64>,
}

impl<'w> Corpus<'w> {
    fn new(table: &'w Table, options: &Options<'w>, pulse: &mut Pulse) -> Result<Corpus<'w>, LearnError> {
        let languages = table.sources();
        let training = table.frequent_rows(options.min_word_count);
        let (development, bytes) = match options.rule {
            Rule::Development(text) => (Some(text.rows()), bytes_of(languages, text.rows())?),
            Rule::Ratios(_) => (None, bytes_of(languages, training.clone())?),
        };
        let mut segments = vec![Vec::new(); 2 * languages];
        let training = training.map(|(word, source, count)| (word, source as usize, count));
        let development = development.into_iter().flatten();
        let development = development.map(|(word, source, count)| (word, languages + source as usize, count));
        for (word, segment, count) in training.chain(development) {
            pulse.spend(1)?;
            if word.len() > 1 && count > 0 {
                segments[segment].push((count, word));
            }
        }
        let mut layout = Layout::default();
        for segment in &mut segments {
            segment.sort_unstable_by_key(|&(count, _)| Reverse(count));
            for &(count, word) in &*segment {
                pulse.spend(1)?;
                layout.add(word.len(), count);
            }
        }
        Ok(Corpus { segments, size: layout.size, bytes })
    }
}

/// What stands beside the places of a merge in one segment: a pair to be, with its count there and its number of places.
#[derive(Clone, Copy)]
struct Record {
    /// Whether the neighbour stands after the new token, and its id; or, at the start, a pair of bytes.
    key: (bool, u32),
    segment: usize,
    count: u64,
    places: usize,
}

struct Learner<'a, S, P> {
    options: &'a Options<'a>,
    pulse: Pulse<'a>,
    languages: usize,
    arena: Arena<S>,
    /// Where each segment ends.
    ends: Vec<usize>,
    pairs: Pairs<P>,
    /// One a language.
    thresholds: Vec<Threshold>,
    standing: Standing<'a>,
    lengths: Vec<u32>,
    merges: Vec<Merge>,
    sides: Sides<S>,
    records: Vec<Record>,
}

impl<'a, S: Symbol, P: Place> Learner<'a, S, P> {
    fn new(corpus: Corpus, options: &'a Options<'a>, mut pulse: Pulse<'a>) -> Result<Learner<'a, S, P>, LearnError> {
        let Corpus { segments, size, bytes } = corpus;
        let languages = bytes.len();
        let mut arena = Arena::with_capacity(size);
        let mut ends = Vec::new();
        let mut thresholds = Vec::new();
        for (number, segment) in segments.into_iter().enumerate() {
            for &(count, word) in &segment {
                arena.push(word, count);
                pulse.spend(word.len())?;
            }
            ends.push(arena.symbols.len());
            if number < languages {
                let words = segment.iter().map(|&(count, word)| (word.len(), count));
                let Options { merges, min_pair_count, max_token_bytes, .. } = *options;
                thresholds.push(Threshold::new(words, merges, min_pair_count, max_token_bytes, &mut pulse)?);
            }
        }
        let mut learner = Learner {
            options,
            pulse,
            languages,
            arena,
            ends,
            pairs: Pairs::new(languages),
            thresholds,
            standing: Standing::new(bytes, options),
            lengths: vec![1; 256],
            merges: Vec::new(),
            sides: Sides::new(),
            records: Vec::new(),
        };
        learner.list_bytes()?;
        Ok(learner)
    }

    /// Stores the pairs of bytes.
    fn list_bytes(&mut self) -> Result<(), LearnError> {
        let mut sums = vec![(0u64, 0usize); 1 << 16];
        let mut start = 0;
        for (segment, &end) in self.ends.iter().enumerate() {
            let weights = &self.arena.weights;
            each_byte_pair(&self.arena, start..end, &mut self.pulse, |place, pair| {
                let (count, number) = &mut sums[pair];
                *count = count
                    .checked_add(weights[place / BLOCK])
                    .ok_or_else(|| LearnError::pair_overflow(pair as u32 >> 8, pair as u32 & 255))?;
                *number += 1;
                Ok(())
            })?;
            for (pair, (count, places)) in sums.iter_mut().map(std::mem::take).enumerate().filter(|(_, sum)| sum.1 > 0)
            {
                self.records.push(Record { key: (false, pair as u32), segment, count, places });
            }
            start = end;
        }
        let mut stored = vec![NO_PAIR; 1 << 16];
        let room = self.options.max_token_bytes.unwrap_or(usize::MAX);
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable_by_key(|record| (record.key, record.segment));
        for records in records.chunk_by(|one, other| one.key == other.key) {
            let pair = records[0].key.1;
            let sum = records.iter().filter(|record| record.segment < self.languages).try_fold(0u64, |sum, record| {
                // Only where counts are summed up do sums matter.
                if self.options.summed_merges == 0 { Some(0) } else { sum.checked_add(record.count) }
            });
            if sum.is_none() {
                return Err(LearnError::pair_overflow(pair >> 8, pair & 255));
            }
            if room >= 2 {
                stored[pair as usize] = self.store((pair >> 8, pair & 255), records);
            }
        }
        let pairs = &mut self.pairs;
        each_byte_pair(&self.arena, 0..self.arena.symbols.len(), &mut self.pulse, |place, pair| {
            if stored[pair] != NO_PAIR {
                pairs.places[stored[pair] as usize].push(P::of(place));
            }
            Ok(())
        })
    }

    fn run(mut self) -> Result<Vec<Merge>, LearnError> {
        while self.merges.len() < self.options.merges {
            let language = if self.sums_count() {
                None
            } else {
                match self.standing.worst() {
                    None => break,
                    language => language,
                }
            };
            let threshold = self.threshold(language);
            let Some(best) = self.pairs.pop_best(language, threshold, &mut self.pulse)? else {
                match language {
                    // What is too rare in sum is too rare in each.
                    None => break,
                    Some(language) => self.standing.exhaust(language),
                }
                continue;
            };
            if self.lengths.len() == S::IDS {
                return Err(LearnError::TooManyMerges { merges: self.merges.len() });
            }
            if let Some(language) = language {
                self.standing.chose(language);
            }
            let (left, right) = best.pair;
            self.merges.push(Merge { left, right, count: best.count, language: language.map(|number| number as u32) });
            self.lengths.push(self.lengths[left as usize] + self.lengths[right as usize]);
            self.pulse.merges = self.merges.len();
            self.join(left, right, best.places)?;
        }
        Ok(self.merges)
    }

    /// Whether the next merge is chosen by the sum of all counts.
    fn sums_count(&self) -> bool {
        self.merges.len() < self.options.summed_merges
    }

    /// The least count in the language, or in sum, of a pair that may still be chosen.
    fn threshold(&self, language: Option<usize>) -> u64 {
        match language {
            Some(language) => self.thresholds[language].value(),
            // The best pair by the sum is at least as frequent as the best pair of any language.
            None => self.thresholds.iter().map(Threshold::value).max().unwrap_or(1),
        }
    }

    /// Joins the pair in all segments, moves the counts, and lists the new pairs.
    fn join(&mut self, left: u32, right: u32, mut places: Vec<P>) -> Result<(), LearnError> {
        let joint = Joint::new(left, right, &self.lengths);
        self.sides.restart(joint.token);
        let mut finished = vec![None; self.languages];
        let (mut start, mut kept) = (0, 0);
        while start < places.len() {
            let segment = self.ends.partition_point(|&end| end <= places[start].position());
            let own = places[start..].partition_point(|place| place.position() < self.ends[segment]);
            let joined = self.sides.join(&mut self.arena, &joint, &mut places[start..start + own], &mut self.pulse)?;
            if joined.finished > 1 {
                return Err(LearnError::RepeatedWord { word: show(&self.bytes(joint.token)) });
            }
            places.copy_within(start..start + joined.kept, kept);
            kept += joined.kept;
            start += own;
            let training = segment < self.languages;
            if training && joined.finished > 0 {
                finished[segment] = Some(joined.finished_weight);
            }
            // With ratios the training text decides, and there is no other.
            if !training || matches!(self.options.rule, Rule::Ratios(_)) {
                self.standing.tokens[segment % self.languages] -= joined.weight;
            }
            let Sides { before, after, .. } = &mut self.sides;
            for (side, is_after) in [(before, false), (after, true)] {
                self.pulse.spend(side.tokens.len())?;
                for &other in &side.tokens {
                    let (count, places) = side.sums[other as usize];
                    if training {
                        self.pairs.lower(joint.gone(other, is_after), segment, count);
                    }
                    side.pairs[other as usize] = NO_PAIR;
                    self.records.push(Record { key: (is_after, other), segment, count, places });
                }
                side.clear_sums();
            }
        }
        self.pairs.finish((left, right));
        for (threshold, finished) in self.thresholds.iter_mut().zip(finished) {
            threshold.merged(finished);
        }

        let room = joint.room(self.options.max_token_bytes);
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable_by_key(|record| (record.key, record.segment));
        let mut any = false;
        for records in records.chunk_by(|one, other| one.key == other.key) {
            let (is_after, other) = records[0].key;
            if self.lengths[other as usize] as usize <= room {
                let pair = self.store(joint.come(other, is_after), records);
                let side = if is_after { &mut self.sides.after } else { &mut self.sides.before };
                side.pairs[other as usize] = pair;
                any |= pair != NO_PAIR;
            }
        }
        records.clear();
        self.records = records;
        if any {
            let pairs = &mut self.pairs;
            let add = |pair: u32, place| pairs.places[pair as usize].push(P::of(place));
            self.sides.list(&places[..kept], &self.lengths, &mut self.pulse, add)?;
        }
        Ok(())
    }

    /// Stores a new pair with what the segments have of it, if any language may still choose it; else [`NO_PAIR`].
    fn store(&mut self, pair: (u32, u32), records: &[Record]) -> u32 {
        let training = || records.iter().filter(|record| record.segment < self.languages);
        let sum = if self.sums_count() { training().map(|record| record.count).sum() } else { 0 };
        let by_sum = self.sums_count() && sum >= self.threshold(None);
        let chosen = |record: &Record| record.count >= self.thresholds[record.segment].value();
        if !by_sum && !training().any(chosen) {
            return NO_PAIR;
        }
        // A pair takes a hundred bytes, so four billion of them do not arise.
        let number = u32::try_from(self.pairs.places.len()).expect("fewer than 2^32 pairs");
        for record in training() {
            if chosen(record) {
                self.pairs.queues[record.segment].push(Candidate::new(record.count, pair));
            }
            if chosen(record) || by_sum {
                self.pairs.columns.push((record.segment as u32, record.count));
            }
        }
        if by_sum {
            self.pairs.summed.push(Candidate::new(sum, pair));
        }
        self.pairs.index.insert(pair, number);
        self.pairs.ends.push(self.pairs.columns.len());
        self.pairs.places.push(Vec::with_capacity(records.iter().map(|record| record.places).sum()));
        number
    }

    /// The bytes a token stands for.
    fn bytes(&self, token: u32) -> Vec<u8> {
        match token.checked_sub(256) {
            Some(rank) => {
                let Merge { left, right, .. } = self.merges[rank as usize];
                [self.bytes(left), self.bytes(right)].concat()
            }
            None => vec![byte_of(token)],
        }
    }
}

/// The pairs that some language may still choose.
struct Pairs<P> {
    index: PairIndex<u32>,
    /// Where each pair stood when it was stored, in all segments, ascending.
    places: Vec<Vec<P>>,
    /// The column of pair `i` is `columns[ends[i - 1]..ends[i]]`: the languages, ascending, with its count there. A
    /// language that cannot choose the pair any more may be missing.
    columns: Vec<(u32, u64)>,
    ends: Vec<usize>,
    /// For each language the pairs that it may choose.
    queues: Vec<Queue>,
    /// The same for the sum over all languages, while sums decide.
    summed: Queue,
}

impl<P: Place> Pairs<P> {
    fn new(languages: usize) -> Pairs<P> {
        Pairs {
            index: PairIndex::new(),
            places: Vec::new(),
            columns: Vec::new(),
            ends: Vec::new(),
            queues: (0..languages).map(|_| Queue::new()).collect(),
            summed: Queue::new(),
        }
    }

    /// Takes `count` from what the language has of the pair, if that is stored.
    fn lower(&mut self, pair: (u32, u32), language: usize, count: u64) {
        let Some(number) = self.index.get(pair) else { return };
        let column = &mut self.columns[column(&self.ends, number)];
        if let Ok(at) = column.binary_search_by_key(&language, |&(language, _)| language as usize) {
            let own = &mut column[at].1;
            *own = own.checked_sub(count).expect("no more places can go than were counted");
        }
    }

    /// The pair has been merged everywhere.
    fn finish(&mut self, pair: (u32, u32)) {
        let number = self.index.get(pair).expect("a pair that was chosen is stored");
        self.columns[column(&self.ends, number)].iter_mut().for_each(|(_, count)| *count = 0);
    }

    /// Takes out the best pair of a language, or by the sum, if it has at least the count `threshold`.
    fn pop_best(
        &mut self,
        language: Option<usize>,
        threshold: u64,
        pulse: &mut Pulse,
    ) -> Result<Option<Best<P>>, LearnError> {
        let Pairs { index, places, columns, ends, queues, summed } = self;
        let queue = language.map_or(summed, |language| &mut queues[language]);
        let number = |pair| index.get(pair).expect("pairs in a queue are stored");
        let count_of = |pair| {
            let column = columns[column(ends, number(pair))].iter();
            column.filter(|own| language.is_none_or(|language| own.0 as usize == language)).map(|own| own.1).sum()
        };
        // A pair too rare for this language stays, for the others.
        let best = queue.pop(threshold, pulse, count_of, |_| ())?;
        Ok(best.map(|best| {
            let places = std::mem::take(&mut places[number(best.pair()) as usize]);
            Best { pair: best.pair(), count: best.count(), places }
        }))
    }
}

/// The entries of a pair in `columns`.
fn column(ends: &[usize], pair: u32) -> Range<usize> {
    let start = if pair == 0 { 0 } else { ends[pair as usize - 1] };
    start..ends[pair as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_exact() {
        assert_eq!(product(u64::MAX, u64::MAX, u64::MAX), (u128::MAX - 3 * u128::from(u64::MAX), u64::MAX));
        assert!(product(1 << 60, 1 << 60, 3) < product(1 << 60, (1 << 60) + 1, 3));
        assert_eq!(product(7, 5, 3), (0, 105));
    }
}
