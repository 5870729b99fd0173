//! Plain twins of the fast routines: short, obvious, and the judges in the tests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::ControlFlow;

use crate::bytes::BYTE_IDS;
use crate::learn::parity::{self, Rule, Window};
use crate::learn::{LearnError, Merge, Options, Table, Words};

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
    /// The words a pair was found in, ascending. It may be gone from some of them by now.
    occurs_in: HashMap<Pair, Vec<usize>>,
    /// Pairs whose counts have changed since the queue was last filled, in any order and any number of times.
    changed: Vec<Pair>,
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
            changed: Vec::new(),
            queue: BinaryHeap::new(),
        };
        for (index, (word, weight)) in words.iter().enumerate() {
            let split = word.iter().map(|&byte| BYTE_IDS[usize::from(byte)]).collect();
            state.splits.push((split, weight));
            state.add(index, 1, |_| true);
        }
        state.enqueue();
        state
    }

    /// Adds the pairs of word `index` to the counts (sign 1) or takes them away (sign -1), and notes the word with those
    /// pairs that were not in it before.
    fn add(&mut self, index: usize, sign: i128, is_new: impl Fn(Pair) -> bool) {
        let (split, weight) = &self.splits[index];
        for window in split.windows(2) {
            let pair = (window[0], window[1]);
            *self.counts.entry(pair).or_default() += sign * i128::from(*weight);
            self.changed.push(pair);
            if is_new(pair) {
                let words = self.occurs_in.entry(pair).or_default();
                if words.last() != Some(&index) {
                    words.push(index);
                }
            }
        }
    }

    fn enqueue(&mut self) {
        self.changed.sort_unstable();
        self.changed.dedup();
        for pair in std::mem::take(&mut self.changed) {
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
        for index in self.occurs_in.remove(&pair).unwrap_or_default() {
            self.add(index, -1, |_| false);
            let split = &mut self.splits[index].0;
            *split = replace(split, pair, token);
            self.add(index, 1, |(left, right)| left == token || right == token);
        }
        debug_assert_eq!(self.counts[&pair], 0);
        self.enqueue();
    }

    fn length(&self, (left, right): Pair) -> usize {
        self.lengths[left as usize] + self.lengths[right as usize]
    }
}

/// Learns merges as [`crate::learn::parity::learn`] does: everything is counted anew before each merge, by the definitions.
/// Products of three counts must fit 128 bits.
pub fn learn_parity(
    table: &Table,
    options: &parity::Options,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<parity::Merge>, LearnError> {
    let languages = table.sources();
    let split = |(word, source, count): (&[u8], u32, u64)| {
        (word.iter().map(|&byte| BYTE_IDS[usize::from(byte)]).collect(), source as usize, count)
    };
    let mut training: Vec<(Vec<u32>, usize, u64)> = table.frequent_rows(options.min_word_count).map(split).collect();
    let mut development: Vec<_> = match options.rule {
        Rule::Development(text) => text.rows().map(split).collect(),
        Rule::Ratios(_) => training.clone(),
    };
    let tokens = |splits: &[(Vec<u32>, usize, u64)]| {
        let mut tokens = vec![0u128; languages];
        splits.iter().for_each(|(split, source, count)| tokens[*source] += split.len() as u128 * u128::from(*count));
        tokens
    };
    let bytes = tokens(&development);
    let mut lengths = vec![1; 256];
    let mut merges: Vec<parity::Merge> = Vec::new();
    let mut choices: Vec<usize> = Vec::new();
    let mut left: Vec<usize> = (0..languages).collect();
    while merges.len() < options.merges {
        if progress(merges.len()).is_break() {
            return Err(LearnError::Interrupted { merges: merges.len() });
        }
        let now = tokens(&development);
        left.sort_by(|&one, &other| match options.rule {
            Rule::Development(_) => now[other].cmp(&now[one]).then(one.cmp(&other)),
            Rule::Ratios(ratios) => (bytes[one] * now[other] * u128::from(ratios[other]))
                .cmp(&(bytes[other] * now[one] * u128::from(ratios[one])))
                .then(one.cmp(&other)),
        });
        let recently =
            |language: usize, length| choices.iter().rev().take(length).filter(|&&one| one == language).count();
        let welcome = |language: &usize| {
            options.window.is_none_or(|Window { length, alpha: (numerator, denominator) }| {
                let count = recently(*language, length) as u128;
                count * languages as u128 * u128::from(denominator) <= length as u128 * u128::from(numerator)
            })
        };
        let summed = merges.len() < options.summed_merges;
        let Some(&language) = left.iter().copied().find(welcome).as_ref().or(left.first()) else { break };
        let mut counts: BTreeMap<Pair, u64> = BTreeMap::new();
        for (split, _, count) in training.iter().filter(|(_, source, _)| summed || *source == language) {
            split.windows(2).for_each(|pair| *counts.entry((pair[0], pair[1])).or_default() += count);
        }
        let length = |pair: &Pair| lengths[pair.0 as usize] + lengths[pair.1 as usize];
        let fits = |pair: &Pair, count: u64| {
            count >= options.min_pair_count.max(1) && options.max_token_bytes.is_none_or(|most| length(pair) <= most)
        };
        let fitting = counts.into_iter().filter(|(pair, count)| fits(pair, *count));
        let Some((pair, count)) = fitting.max_by_key(|&(pair, count)| (count, Reverse(pair))) else {
            if summed {
                break;
            }
            left.retain(|&other| other != language);
            continue;
        };
        let token = lengths.len() as u32;
        for (split, ..) in training.iter_mut().chain(&mut development) {
            *split = replace(split, pair, token);
        }
        lengths.push(length(&pair));
        if !summed {
            choices.push(language);
        }
        let language = (!summed).then_some(language as u32);
        merges.push(parity::Merge { left: pair.0, right: pair.1, count, language });
    }
    Ok(merges)
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
