//! Plain twins of the fast routines: short, obvious, and the judges in the tests.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ops::ControlFlow;

use crate::learn::{BYTE_IDS, LearnError, Merge, Options, Words};

type Pair = (u32, u32);

/// Learns merges as [`crate::learn::learn`] does, by the usual incremental algorithm.
///
/// Each pair knows its count and the words it occurs in. A merge rewrites those words, and the pairs of a rewritten word
/// are taken out of the counts before and put back in after. The cost of a merge is thus the length of the words that
/// hold the pair: fine for words as text has them, quadratic for one word of a million letters. Counts are 128-bit,
/// which no sum of 64-bit counts over a table in memory can pass.
pub fn learn(
    words: &Words,
    options: &Options,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<Merge>, LearnError> {
    let mut state = State::new(words, options.max_token_bytes.unwrap_or(usize::MAX));
    if let Some((&(left, right), _)) = state.counts.iter().find(|&(_, &count)| count > i128::from(u64::MAX)) {
        return Err(LearnError::pair_overflow(left, right));
    }
    let mut merges = Vec::new();
    while merges.len() < options.merges {
        if progress(merges.len()).is_break() {
            return Err(LearnError::Interrupted { merges: merges.len() });
        }
        let Some((count, (left, right))) = state.best().filter(|&(count, _)| count >= options.min_pair_count) else {
            break;
        };
        state.merge((left, right));
        merges.push(Merge { left, right, count });
    }
    Ok(merges)
}

struct State {
    /// The words as token ids, and what each weighs.
    splits: Vec<(Vec<u32>, u64)>,
    /// Bytes of each token.
    lengths: Vec<usize>,
    max_token_bytes: usize,
    counts: HashMap<Pair, i128>,
    occurs_in: HashMap<Pair, BTreeSet<usize>>,
    /// Every count a pair has had; those that are no longer true are skipped when they come up.
    queue: BinaryHeap<(i128, Reverse<Pair>)>,
}

impl State {
    fn new(words: &Words, max_token_bytes: usize) -> State {
        let mut state = State {
            splits: Vec::new(),
            lengths: vec![1; 256],
            max_token_bytes,
            counts: HashMap::new(),
            occurs_in: HashMap::new(),
            queue: BinaryHeap::new(),
        };
        let mut changed = BTreeSet::new();
        for (index, (word, weight)) in words.iter().enumerate() {
            let split = word.iter().map(|&byte| BYTE_IDS[usize::from(byte)]).collect();
            state.splits.push((split, weight));
            state.add(index, 1, &mut changed);
        }
        state.enqueue(&changed);
        state
    }

    /// Adds the pairs of word `index` to the counts (sign 1) or takes them away (sign -1).
    fn add(&mut self, index: usize, sign: i128, changed: &mut BTreeSet<Pair>) {
        let (split, weight) = &self.splits[index];
        for window in split.windows(2) {
            let pair = (window[0], window[1]);
            *self.counts.entry(pair).or_default() += sign * i128::from(*weight);
            self.occurs_in.entry(pair).or_default().insert(index);
            changed.insert(pair);
        }
    }

    fn enqueue(&mut self, changed: &BTreeSet<Pair>) {
        for &pair in changed {
            if self.counts[&pair] > 0 && self.length(pair) <= self.max_token_bytes {
                self.queue.push((self.counts[&pair], Reverse(pair)));
            }
        }
    }

    /// The pair of the highest count; of equals the smallest.
    fn best(&mut self) -> Option<(u64, Pair)> {
        while let Some((count, Reverse(pair))) = self.queue.pop() {
            if self.counts[&pair] == count {
                // All counts were checked at the start, and none has grown past that: each occurrence of a pair is a
                // border between two tokens, and as many counts were there for the two bytes at that border.
                return Some((u64::try_from(count).expect("bounded by the initial counts"), pair));
            }
        }
        None
    }

    fn merge(&mut self, pair: Pair) {
        let token = self.lengths.len() as u32;
        self.lengths.push(self.length(pair));
        let mut changed = BTreeSet::new();
        // Words that held the pair once may hold it no longer; rewriting them changes nothing.
        for index in self.occurs_in.remove(&pair).unwrap_or_default() {
            self.add(index, -1, &mut changed);
            let split = &mut self.splits[index].0;
            *split = replace(split, pair, token);
            self.add(index, 1, &mut changed);
        }
        debug_assert_eq!(self.counts[&pair], 0);
        self.enqueue(&changed);
    }

    fn length(&self, (left, right): Pair) -> usize {
        self.lengths[left as usize] + self.lengths[right as usize]
    }
}

/// Replaces the pair by the token wherever it stands, from left to right.
pub fn replace(split: &[u32], (left, right): Pair, token: u32) -> Vec<u32> {
    let mut replaced = Vec::with_capacity(split.len());
    let mut rest = split;
    while let Some((&first, tail)) = rest.split_first() {
        if first == left && tail.first() == Some(&right) {
            replaced.push(token);
            rest = &tail[1..];
        } else {
            replaced.push(first);
            rest = tail;
        }
    }
    replaced
}
