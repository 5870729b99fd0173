//! From words to ids: exact byte-pair encoding by rank, and the replay that counts what a merge list did to a corpus.
//!
//! The rule is the one the merges were learned with: among the merges whose pair stands in the word, apply the one of
//! lowest rank, leftmost first, until none is left. Two ways to the same result, chosen by length alone:
//!
//! * up to [`SHORT`] bytes, nearly every word of nearly every text: a plain scan for the smallest rank, `O(n²)` over
//!   two arrays that fit in a few cache lines;
//! * above that, a linked list over the word and a queue of the pairs that can merge, by rank. A merge makes only pairs
//!   of higher rank than its own (it is their part), so ranks leave the queue in rising order, and a radix heap, which
//!   relies on this, costs a few sequential moves an entry where a binary heap costs `log n` cache misses: a word of 5 MB of one letter
//!   takes a fraction of a second, not the hours of the quadratic way.
//!
//! The way of `tiktoken`, to look the whole word up as a token first, is not taken: it is right for merges that were
//! learned, where each token's bytes encode to that token, but not for every merge list a file can hold. What it saves
//! is saved by [`CachedEncoder`], which is right for all.

mod cache;
mod replay;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::ControlFlow;

use thiserror::Error;

use crate::bytes::{BYTE_IDS, BYTES};
pub use cache::CachedEncoder;
pub use replay::Replay;

/// Longest word, in bytes, that takes the plain scan. On chunks of text in 28 languages and code, with 16,000 merges,
/// the two ways cross between 96 and 192 bytes: 126 against 177 ns a byte at 96, 232 against 167 at 192.
const SHORT: usize = 128;

/// No rank, and no position.
const NONE: u32 = u32::MAX;

/// Longest word that can be encoded.
pub const MAX_WORD_BYTES: usize = NONE as usize - 1;

/// Steps in a long word between two looks whether to stop: some hundredths of a second.
const STRETCH: usize = 1 << 20;

/// Why a merge list cannot be used, or a replay cannot go on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// Ids are 32 bits wide, and two values are kept as marks.
    #[error("{0} merges do not fit 32-bit token ids")]
    TooManyMerges(usize),
    /// A merge may only use bytes and the results of earlier merges.
    #[error("the merge of rank {rank} uses token {id}, which no earlier merge makes")]
    UnknownToken { rank: usize, id: u32 },
    /// A pair is gone once it is merged, so it can have one rank only.
    #[error("the merges of rank {first} and {rank} join the same two tokens")]
    DuplicatePair { first: u32, rank: usize },
    /// A count past 2^64 - 1.
    #[error("the occurrences of token {id} in one source pass 2^64 - 1; divide the counts by a common factor")]
    CountOverflow { id: u32 },
    /// A row of a source that the replay does not have.
    #[error("a row of the count table belongs to source {number}, but there are only {sources} sources")]
    UnknownSource { number: usize, sources: usize },
    /// Positions are 32 bits wide, which halves the memory of all other words.
    #[error("a word of {bytes} bytes is too long to be encoded ({MAX_WORD_BYTES} bytes are the limit): cut such words")]
    WordTooLong { bytes: usize },
    /// The caller has asked to stop.
    #[error("stopped on request")]
    Interrupted,
}

/// Hash of a pair of ids, packed in one word: one widening multiplication, its halves folded. Looking a pair up never
/// inserts, so hostile text can at worst ask for a slot that is full.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("pairs are hashed as one u64");
    }

    fn write_u64(&mut self, pair: u64) {
        let product = u128::from(pair ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

fn pack(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// A merge list, ready to encode. Ids are those of the learner: bytes 0..256 by [`BYTE_IDS`], then `256 + rank`.
///
/// Shared freely between threads; what changes while encoding lives in a [`Scratch`] or a [`CachedEncoder`].
/// Memory: about 30 bytes a merge.
pub struct Encoder {
    merges: Vec<(u32, u32)>,
    ranks: HashMap<u64, u32, BuildHasherDefault<PairHasher>>,
}

impl Encoder {
    /// Checks and indexes the merges, given in the order of their ranks.
    pub fn new(merges: &[(u32, u32)]) -> Result<Self, EncodeError> {
        if merges.len() >= (NONE - BYTES) as usize {
            return Err(EncodeError::TooManyMerges(merges.len()));
        }
        let mut ranks = HashMap::with_capacity_and_hasher(merges.len(), BuildHasherDefault::default());
        for (rank, &(left, right)) in merges.iter().enumerate() {
            let made = BYTES + rank as u32;
            if let Some(&id) = [left, right].iter().find(|&&id| id >= made) {
                return Err(EncodeError::UnknownToken { rank, id });
            }
            if let Some(first) = ranks.insert(pack(left, right), rank as u32) {
                return Err(EncodeError::DuplicatePair { first, rank });
            }
        }
        Ok(Self { merges: merges.to_vec(), ranks })
    }

    /// The merges, by rank.
    pub fn merges(&self) -> &[(u32, u32)] {
        &self.merges
    }

    /// Number of ids: bytes and merges.
    pub fn tokens(&self) -> usize {
        BYTES as usize + self.merges.len()
    }

    /// Appends the ids of `word` to `out`. Near-linear in the length of the word.
    ///
    /// # Panics
    /// If the word is longer than [`MAX_WORD_BYTES`].
    pub fn encode_word(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let encoded = self.encode_word_while(word, scratch, out, &mut |_| ControlFlow::Continue(()));
        encoded.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The same until `look` breaks, which gets the number of steps since the last call, about a million, and is not
    /// called for words that take fewer. After an error `out` is what it was.
    pub fn encode_word_while(
        &self,
        word: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
        look: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), EncodeError> {
        if word.len() <= SHORT {
            self.encode_short(word, &mut scratch.ranks, out);
            return Ok(());
        }
        let Some(length) = u32::try_from(word.len()).ok().filter(|&length| length < NONE) else {
            return Err(EncodeError::WordTooLong { bytes: word.len() });
        };
        match self.encode_long(word, length, &mut scratch.nodes, &mut scratch.queue, out, look) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(EncodeError::Interrupted),
        }
    }

    fn rank(&self, left: u32, right: u32) -> u32 {
        self.ranks.get(&pack(left, right)).copied().unwrap_or(NONE)
    }

    /// The plain way: `ranks[i]` is the rank of the pair that starts at the `i`-th symbol of the word.
    fn encode_short(&self, word: &[u8], ranks: &mut Vec<u32>, out: &mut Vec<u32>) {
        let start = out.len();
        out.extend(word.iter().map(|&byte| BYTE_IDS[usize::from(byte)]));
        ranks.clear();
        ranks.extend(out[start..].windows(2).map(|pair| self.rank(pair[0], pair[1])));
        // `min_by_key` takes the first of equals, which is the leftmost.
        while let Some((at, &rank)) = ranks.iter().enumerate().min_by_key(|&(_, &rank)| rank) {
            if rank == NONE {
                break;
            }
            let symbol = start + at;
            out[symbol] = BYTES + rank;
            out.remove(symbol + 1);
            ranks.remove(at);
            if at > 0 {
                ranks[at - 1] = self.rank(out[symbol - 1], out[symbol]);
            }
            if at < ranks.len() {
                ranks[at] = self.rank(out[symbol], out[symbol + 1]);
            }
        }
    }

    /// The near-linear way: rank by rank, from the lowest that stands in the word. Positions whose pair a neighbour's
    /// merge has broken stay in the queue and are known when they come out: their symbols are no longer those of the
    /// merge.
    fn encode_long(
        &self,
        word: &[u8],
        length: u32,
        nodes: &mut Vec<Node>,
        queue: &mut RankQueue,
        out: &mut Vec<u32>,
        look: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut steps = 0;
        let mut spend = |more: usize| {
            steps += more;
            if steps < STRETCH { ControlFlow::Continue(()) } else { look(std::mem::take(&mut steps)) }
        };

        nodes.clear();
        nodes.reserve(word.len());
        queue.restart();
        for (start, stretch) in (0..).step_by(STRETCH).zip(word.chunks(STRETCH)) {
            nodes.extend((start..length).zip(stretch).map(|(at, &byte)| Node {
                id: BYTE_IDS[usize::from(byte)],
                previous: at.wrapping_sub(1),
                next: if at + 1 < length { at + 1 } else { NONE },
            }));
            // The pairs that end in this stretch.
            let first = start.saturating_sub(1);
            for (at, pair) in (first..).zip(nodes[first as usize..].windows(2)) {
                let rank = self.rank(pair[0].id, pair[1].id);
                if rank != NONE {
                    queue.push(rank, at);
                }
            }
            spend(stretch.len())?;
        }

        while let Some((rank, mut positions)) = queue.pop() {
            let (left, right) = self.merges[rank as usize];
            let made = BYTES + rank;
            if left == right {
                // Only pairs of equal symbols can overlap, and only then does it matter that the leftmost goes first.
                positions.sort_unstable();
            }
            for part in positions.chunks(STRETCH) {
                for &(_, at) in part {
                    let Node { id, previous, next } = nodes[at as usize];
                    if id != left || next == NONE || nodes[next as usize].id != right {
                        continue;
                    }
                    let after = nodes[next as usize].next;
                    nodes[next as usize].id = NONE;
                    nodes[at as usize].id = made;
                    nodes[at as usize].next = after;
                    if after != NONE {
                        nodes[after as usize].previous = at;
                        let rank_after = self.rank(made, nodes[after as usize].id);
                        if rank_after != NONE {
                            queue.push(rank_after, at);
                        }
                    }
                    if previous != NONE {
                        let rank_before = self.rank(nodes[previous as usize].id, made);
                        if rank_before != NONE {
                            queue.push(rank_before, previous);
                        }
                    }
                }
                spend(part.len())?;
            }
            queue.give_back(positions);
        }

        let mut at = 0;
        while at != NONE {
            out.push(nodes[at as usize].id);
            at = nodes[at as usize].next;
        }
        ControlFlow::Continue(())
    }
}

/// Working memory of [`Encoder::encode_word`], to be made once and used for many words. It grows to about 40 bytes per
/// byte of the longest word it has seen.
#[derive(Default)]
pub struct Scratch {
    ranks: Vec<u32>,
    nodes: Vec<Node>,
    queue: RankQueue,
}

/// A symbol of a long word, at the position of its first byte; `id` is `NONE` where a merge has swallowed it.
#[derive(Clone, Copy)]
struct Node {
    id: u32,
    previous: u32,
    next: u32,
}

/// Positions by rank, for ranks that never fall behind the last one taken: a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan
/// 1990) that hands out all positions of the lowest rank at once.
///
/// Bucket 0 holds the last rank taken, bucket `b` the ranks whose highest bit that differs from it is bit `b - 1`. To
/// take the lowest rank, the lowest bucket that holds anything is spread over the ones below it. So an entry only ever
/// moves down, at most as often as a rank has bits, and always to the end of an array.
struct RankQueue {
    buckets: [Vec<(u32, u32)>; 33],
    last: u32,
}

impl Default for RankQueue {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Vec::new()), last: 0 }
    }
}

impl RankQueue {
    /// Ready for another word, whatever the last one has left.
    fn restart(&mut self) {
        self.buckets.iter_mut().for_each(Vec::clear);
        self.last = 0;
    }

    fn push(&mut self, rank: u32, position: u32) {
        debug_assert!(rank >= self.last, "ranks must not fall behind the last one taken");
        self.buckets[32 - (rank ^ self.last).leading_zeros() as usize].push((rank, position));
    }

    /// The lowest rank and its entries, in no stated order. Until they are given back, no entry of that rank may come.
    fn pop(&mut self) -> Option<(u32, Vec<(u32, u32)>)> {
        let lowest = self.buckets.iter().position(|bucket| !bucket.is_empty())?;
        let mut moving = std::mem::take(&mut self.buckets[lowest]);
        self.last = moving.iter().map(|&(rank, _)| rank).min()?;
        if lowest > 0 {
            for (rank, position) in moving.drain(..) {
                self.push(rank, position);
            }
            self.buckets[lowest] = moving;
            moving = std::mem::take(&mut self.buckets[0]);
        }
        Some((self.last, moving))
    }

    /// Returns the array of the last [`RankQueue::pop`], so that its memory is used again.
    fn give_back(&mut self, mut positions: Vec<(u32, u32)>) {
        positions.clear();
        self.buckets[0] = positions;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The obvious twin: rank by rank, replace every occurrence from left to right.
    fn encode_by_rule(merges: &[(u32, u32)], word: &[u8]) -> Vec<u32> {
        let mut symbols: Vec<u32> = word.iter().map(|&byte| BYTE_IDS[usize::from(byte)]).collect();
        for (rank, &pair) in merges.iter().enumerate() {
            symbols = replace(&symbols, pair, BYTES + rank as u32).0;
        }
        symbols
    }

    fn replace(symbols: &[u32], pair: (u32, u32), new: u32) -> (Vec<u32>, u64) {
        let (mut kept, mut replaced, mut at) = (Vec::new(), 0, 0);
        while at < symbols.len() {
            if at + 1 < symbols.len() && (symbols[at], symbols[at + 1]) == pair {
                kept.push(new);
                replaced += 1;
                at += 2;
            } else {
                kept.push(symbols[at]);
                at += 1;
            }
        }
        (kept, replaced)
    }

    /// A merge list as the learner would make it from one word, by counting anew at each step.
    fn learned(word: &[u8], merges: usize) -> Vec<(u32, u32)> {
        let mut symbols: Vec<u32> = word.iter().map(|&byte| BYTE_IDS[usize::from(byte)]).collect();
        let mut list = Vec::new();
        for new in (BYTES..).take(merges) {
            let mut counts = BTreeMap::new();
            for pair in symbols.windows(2) {
                *counts.entry((pair[0], pair[1])).or_insert(0u64) += 1;
            }
            let Some((&pair, _)) = counts.iter().min_by_key(|&(_, &count)| std::cmp::Reverse(count)) else { break };
            list.push(pair);
            symbols = replace(&symbols, pair, new).0;
        }
        list
    }

    fn encode(encoder: &Encoder, word: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        encoder.encode_word(word, &mut Scratch::default(), &mut ids);
        ids
    }

    /// Random text that repeats, over the letters given.
    fn random(length: usize, letters: &[u8]) -> Vec<u8> {
        let mut state = 1u64;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            letters[(state >> 33) as usize % letters.len()]
        };
        (0..length).map(|_| letter()).collect()
    }

    /// Any valid merge list over three letters: each merge names two of the tokens before it.
    fn merge_list() -> impl Strategy<Value = Vec<(u32, u32)>> {
        vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40).prop_map(|choices| {
            let mut tokens: Vec<u32> = b"abc".iter().map(|&byte| BYTE_IDS[usize::from(byte)]).collect();
            let mut merges: Vec<(u32, u32)> = Vec::new();
            for (left, right) in choices {
                let pair = (tokens[left.index(tokens.len())], tokens[right.index(tokens.len())]);
                if !merges.contains(&pair) {
                    tokens.push(BYTES + merges.len() as u32);
                    merges.push(pair);
                }
            }
            merges
        })
    }

    fn any_word() -> impl Strategy<Value = Vec<u8>> {
        vec(prop::sample::select(b"aaabbc".to_vec()), 0..3 * SHORT)
    }

    #[test]
    fn merge_lists_that_cannot_be_are_refused() {
        let message = |merges: &[(u32, u32)]| Encoder::new(merges).err().map(|error| error.to_string());
        assert_eq!(message(&[]), None);
        assert_eq!(message(&[(1, 2), (256, 256)]), None);
        assert!(message(&[(1, 256)]).unwrap().contains("rank 0 uses token 256"));
        assert!(message(&[(1, 2), (3, 4), (1, 2)]).unwrap().contains("rank 0 and 2"));
    }

    #[test]
    fn a_lower_rank_goes_first_wherever_it_stands() {
        let [a, b, c] = [b'a', b'b', b'c'].map(|byte| BYTE_IDS[usize::from(byte)]);
        let encoder = Encoder::new(&[(b, c), (a, b), (a, 256), (a, a)]).unwrap();
        assert_eq!(encode(&encoder, b"abc"), [258]);
        assert_eq!(encode(&encoder, b"aba"), [257, a]);
        assert_eq!(encode(&encoder, b"aaa"), [259, a]);
        assert_eq!(encode(&encoder, b""), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn both_ways_and_the_cache_follow_the_rule(merges in merge_list(), words in vec(any_word(), 1..8)) {
            let encoder = Arc::new(Encoder::new(&merges).unwrap());
            let mut cached = CachedEncoder::new(Arc::clone(&encoder));
            let mut scratch = Scratch::default();
            // Twice over the same words, so that the second round meets the cache of the first.
            for word in words.iter().chain(&words) {
                let expected = encode_by_rule(&merges, word);
                prop_assert_eq!(&encode(&encoder, word), &expected);
                let (mut short, mut long, mut kept) = (vec![7], vec![7], vec![7]);
                encoder.encode_short(word, &mut scratch.ranks, &mut short);
                cached.encode_word(word, &mut kept);
                prop_assert_eq!(&short[1..], &expected[..]);
                prop_assert_eq!(&kept[1..], &expected[..]);
                if !word.is_empty() {
                    let Scratch { nodes, queue, .. } = &mut scratch;
                    let look = &mut |_| ControlFlow::Continue(());
                    let ended = encoder.encode_long(word, word.len() as u32, nodes, queue, &mut long, look);
                    prop_assert!(ended.is_continue());
                    prop_assert_eq!(&long[1..], &expected[..]);
                }
            }
        }

        #[test]
        fn replay_counts_what_each_merge_replaced(merges in merge_list(), rows in vec((any_word(), 0..3usize, 0..9u64), 0..12)) {
            let mut replay = Replay::new(Encoder::new(&merges).unwrap(), 3);
            let mut expected = vec![vec![0; merges.len()]; 3];
            let mut tokens = vec![vec![0; 256 + merges.len()]; 3];
            for (word, source, count) in &rows {
                replay.push_word(*source, word, *count).unwrap();
                let mut symbols = encode_by_rule(&[], word);
                for (rank, &pair) in merges.iter().enumerate() {
                    let (kept, replaced) = replace(&symbols, pair, BYTES + rank as u32);
                    expected[*source][rank] += replaced * count;
                    symbols = kept;
                }
                symbols.iter().for_each(|&id| tokens[*source][id as usize] += count);
            }
            for source in 0..3 {
                prop_assert_eq!(&replay.replaced(source).unwrap(), &expected[source]);
                prop_assert_eq!(replay.tokens(source), &tokens[source][..]);
            }
        }

        #[test]
        fn the_queue_sorts(ranks in vec(0..300u32, 0..200), rounds in vec(0..50usize, 0..8)) {
            let (mut queue, mut twin) = (RankQueue::default(), BTreeMap::new());
            let (mut ranks, mut floor) = (ranks.into_iter().zip(0..), 0);
            for round in rounds {
                for (rank, position) in ranks.by_ref().take(round) {
                    queue.push(rank.max(floor), position);
                    twin.entry(rank.max(floor)).or_insert_with(Vec::new).push((rank.max(floor), position));
                }
                for _ in 0..round / 4 {
                    let taken = queue.pop();
                    prop_assert_eq!(&taken, &twin.pop_first());
                    if let Some((rank, positions)) = taken {
                        floor = rank + 1;
                        queue.give_back(positions);
                    }
                }
            }
        }
    }

    #[test]
    fn replay_refuses_counts_past_64_bits() {
        let a = BYTE_IDS[usize::from(b'a')];
        let mut replay = Replay::new(Encoder::new(&[(a, a)]).unwrap(), 1);
        replay.push_word(0, b"aa", u64::MAX / 2).unwrap();
        assert_eq!(replay.replaced(0), Ok(vec![u64::MAX / 2]));
        replay.push_word(0, b"aa", u64::MAX / 2).unwrap();
        assert_eq!(replay.replaced(0), Err(EncodeError::CountOverflow { id: a }));
        assert_eq!(replay.push_word(0, b"aa", 2), Err(EncodeError::CountOverflow { id: 256 }));
    }

    #[test]
    fn a_source_that_is_not_there_is_an_error() {
        let mut replay = Replay::new(Encoder::new(&[]).unwrap(), 2);
        assert_eq!(replay.push_word(2, b"a", 1), Err(EncodeError::UnknownSource { number: 2, sources: 2 }));
        assert_eq!(replay.push_word(1, b"a", 1), Ok(()));
    }

    #[test]
    fn one_huge_word_can_be_stopped() {
        let merges = learned(&random(20_000, b"ACGT"), 1000);
        let word = random(3_000_000, b"ACGT");
        let encoder = Arc::new(Encoder::new(&merges).unwrap());
        let expected = encode(&encoder, &word);
        let mut cached = CachedEncoder::new(Arc::clone(&encoder));
        let mut calls = 0;
        let mut count = |_| {
            calls += 1;
            ControlFlow::Continue(())
        };
        cached.encode_word_while(&word, &mut Vec::new(), &mut count).unwrap();
        assert!(calls > 3, "{calls} calls");
        for limit in 0..calls {
            let (mut left, mut out) = (limit, vec![7]);
            let mut look = |_| {
                left -= 1;
                if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            assert_eq!(cached.encode_word_while(&word, &mut out, &mut look), Err(EncodeError::Interrupted));
            assert_eq!(out, [7]);
            // What was left undone is not met again.
            cached.encode_word(&word[..1000], &mut out);
            assert_eq!(out[1..], encode(&encoder, &word[..1000]));
        }
        let mut replay = Replay::of_learned(encoder.merges().into(), 1);
        let stopped = replay.push_word_while(0, &word, 1, &mut |_| ControlFlow::Break(()));
        assert_eq!(stopped, Err(EncodeError::Interrupted));
        replay.push_word(0, &word, 1).unwrap();
        assert_eq!(replay.tokens(0).iter().sum::<u64>(), expected.len() as u64);
    }

    #[test]
    fn a_word_too_long_for_positions_is_an_error() {
        // The zeros are never touched, so this costs address space only.
        let word = vec![0; MAX_WORD_BYTES + 1];
        let (mut cached, mut out) = (CachedEncoder::new(Arc::new(Encoder::new(&[]).unwrap())), Vec::new());
        let error = cached.encode_word_while(&word, &mut out, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error, EncodeError::WordTooLong { bytes: MAX_WORD_BYTES + 1 });
    }

    #[test]
    fn one_huge_word_is_encoded_by_the_rule() {
        let runs = learned(&vec![b'a'; 4096], 11);
        let bases = learned(&random(20_000, b"ACGT"), 1000);
        let words = [
            (runs.clone(), vec![b'a'; 5_000_000]),
            (runs, [vec![b'a'; 2_000_000], b"x".to_vec()].concat()),
            (bases.clone(), random(1_000_000, b"ACGT")),
            (bases, random(1_000_000, b"ACGTNacgtn")),
        ];
        for (merges, word) in words {
            let encoder = Encoder::new(&merges).unwrap();
            // What is quadratic would not come back within a day.
            assert!(encode(&encoder, &word) == encode_by_rule(&merges, &word));
        }
    }
}
