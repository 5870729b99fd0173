//! The fast learner, the plain one and the textbook give the same merges with the same counts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use dist_bpe_core::encode::{CachedEncoder, Encoder};
use dist_bpe_core::learn::{LearnError, Merge, Options, Words, learn, learn_measured, learn_tokenized};
use dist_bpe_core::naive;
use proptest::prelude::*;

/// Counts every pair from scratch before every merge.
fn textbook(words: &Words, options: &Options) -> Vec<Merge> {
    let mut splits: Vec<(Vec<u32>, u64)> =
        words.iter().map(|(word, count)| (word.iter().map(|&byte| byte_id(byte)).collect(), count)).collect();
    let mut lengths = vec![1; 256];
    let mut merges = Vec::new();
    while merges.len() < options.merges {
        let mut counts: BTreeMap<(u32, u32), u128> = BTreeMap::new();
        for (split, count) in &splits {
            for pair in split.windows(2) {
                *counts.entry((pair[0], pair[1])).or_default() += u128::from(*count);
            }
        }
        let length = |pair: &(u32, u32)| lengths[pair.0 as usize] + lengths[pair.1 as usize];
        let fits = |pair: &(u32, u32)| options.max_token_bytes.is_none_or(|longest| length(pair) <= longest);
        // The first of the highest, as the last maximum of the reversed order.
        let best = counts.iter().filter(|(pair, _)| fits(pair)).rev().max_by_key(|&(_, count)| count);
        let Some((&(left, right), &count)) = best else { break };
        if count < u128::from(options.min_pair_count) {
            break;
        }
        for (split, _) in &mut splits {
            *split = naive::replace(split, (left, right), lengths.len() as u32);
        }
        lengths.push(length(&(left, right)));
        merges.push(Merge { left, right, count: count as u64 });
    }
    merges
}

fn byte_id(byte: u8) -> u32 {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let before = (0..byte).filter(|&other| printable(other) == printable(byte)).count();
    (if printable(byte) { before } else { 188 + before }) as u32
}

fn quietly(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn fast(words: &Words, options: &Options) -> Vec<Merge> {
    learn(words, options, &mut quietly).unwrap()
}

fn plain(words: &Words, options: &Options) -> Vec<Merge> {
    naive::learn(words, options, &mut quietly).unwrap()
}

fn table(letters: &'static str, longest: usize, most: usize, counts: BoxedStrategy<u64>) -> BoxedStrategy<Words> {
    let letter = prop::sample::select(letters.as_bytes());
    let word = prop::collection::vec(letter, 1..=longest);
    prop::collection::btree_map(word, counts, 0..=most).prop_shuffle_into_words()
}

trait ShuffleIntoWords {
    fn prop_shuffle_into_words(self) -> BoxedStrategy<Words>;
}

impl<T: Strategy<Value = BTreeMap<Vec<u8>, u64>> + 'static> ShuffleIntoWords for T {
    fn prop_shuffle_into_words(self) -> BoxedStrategy<Words> {
        self.prop_map(|table| table.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
            .prop_map(|pairs| pairs.into_iter().collect())
            .boxed()
    }
}

fn options() -> impl Strategy<Value = Options> {
    let merges = prop_oneof![0..12usize, Just(usize::MAX)];
    let minimum = prop_oneof![Just(1u64), 0..20u64];
    let longest = prop_oneof![Just(None), (0..6usize).prop_map(Some)];
    (merges, minimum, longest).prop_map(|(merges, min_pair_count, max_token_bytes)| Options {
        merges,
        min_pair_count,
        max_token_bytes,
    })
}

fn small_counts() -> BoxedStrategy<u64> {
    prop_oneof![1..4u64, 1..40u64].boxed()
}

fn wide_counts() -> BoxedStrategy<u64> {
    (0..=40u32).prop_flat_map(|bits| 1..=1u64 << bits).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn tiny_tables_of_two_letters(words in table("ab", 9, 12, small_counts()), options in options()) {
        let expected = textbook(&words, &options);
        prop_assert_eq!(&plain(&words, &options), &expected);
        prop_assert_eq!(&fast(&words, &options), &expected);
    }

    #[test]
    fn tiny_tables_of_four_letters(words in table("abc ", 6, 40, small_counts()), options in options()) {
        let expected = textbook(&words, &options);
        prop_assert_eq!(&plain(&words, &options), &expected);
        prop_assert_eq!(&fast(&words, &options), &expected);
    }

    #[test]
    fn tiny_tables_end_as_their_words_are_encoded(words in table("ab ", 9, 30, small_counts()), options in options()) {
        let (merges, tokenized) = learn_tokenized(&words, &options, &mut quietly).unwrap();
        prop_assert_eq!(&merges, &fast(&words, &options));
        let pairs: Vec<_> = merges.iter().map(|merge| (merge.left, merge.right)).collect();
        let mut encoder = CachedEncoder::new(Arc::new(Encoder::new(&pairs).unwrap()));
        for (index, (word, _)) in words.iter().enumerate() {
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            let ended: Result<(), ()> = tokenized.try_each(&words, index, |id| {
                found.push(id);
                Ok(())
            });
            prop_assert!(ended.is_ok());
            encoder.encode_word(word, &mut expected);
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn wide_weights(words in table("ab\n", 7, 30, wide_counts()), options in options()) {
        let expected = textbook(&words, &options);
        prop_assert_eq!(&plain(&words, &options), &expected);
        prop_assert_eq!(&fast(&words, &options), &expected);
    }

    #[test]
    fn long_words(words in table("aab", 300, 3, small_counts()), options in options()) {
        prop_assert_eq!(fast(&words, &options), plain(&words, &options));
    }
}

/// A small, seeded generator: words of a skewed alphabet with counts that fall like Zipf's.
fn zipf(seed: u64, unique: usize, weight: impl Fn(u64) -> u64) -> Words {
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut words = BTreeMap::new();
    while words.len() < unique {
        let length = 1 + random(9).min(random(12));
        let word: Vec<u8> = (0..length).map(|_| b"etaoinshrdlucm"[random(14).min(random(14)) as usize]).collect();
        let rank = words.len() as u64;
        words.entry(word).or_insert(weight(1 + 1_000_000 / (rank + 1)));
    }
    words.into_iter().collect()
}

#[test]
fn medium_tables() {
    let mixed = |count: u64| count * [1, 1_000_003, 40_000_000_019][(count % 3) as usize];
    for seed in 0..6 {
        for words in [zipf(seed, 5_000, |count| count), zipf(seed, 5_000, mixed)] {
            for merges in [100, 1_000, 4_000, usize::MAX] {
                for max_token_bytes in [None, Some(4)] {
                    let options = Options { merges, min_pair_count: 1, max_token_bytes };
                    assert!(fast(&words, &options) == plain(&words, &options), "seed {seed}, {options:?}");
                }
            }
        }
    }
}

/// Ids past 16 bits: the array of symbols is 32 bits wide.
#[test]
fn more_merges_than_sixteen_bits_hold() {
    let words = zipf(7, 120_000, |count| count);
    let options = Options { merges: 80_000, min_pair_count: 1, max_token_bytes: None };
    let merges = fast(&words, &options);
    assert_eq!(merges.len(), 80_000);
    assert!(merges == plain(&words, &options));
    // Up to where 16 bits end, the narrow array gives the same.
    for ids in [65_533, 65_534, 65_535, 65_536] {
        let merges_asked = Options { merges: ids - 256, ..options.clone() };
        assert!(fast(&words, &merges_asked) == merges[..ids - 256], "{ids} ids");
    }
}

#[test]
fn pruning_does_its_work_with_weights_far_above_a_million() {
    let options = Options { merges: 500, min_pair_count: 1, max_token_bytes: None };
    let kept = |factor: u64| {
        let words = zipf(3, 20_000, |count| count * factor);
        let (merges, stats) = learn_measured(&words, &options, &mut quietly).unwrap();
        (merges.iter().map(|merge| (merge.left, merge.right)).collect::<Vec<_>>(), stats)
    };
    let (merges, plain) = kept(1);
    let (merges_weighted, weighted) = kept(1 << 40);
    assert_eq!(merges, merges_weighted);
    assert_eq!(plain.pairs, weighted.pairs);
    assert_eq!(plain.first_threshold << 40, weighted.first_threshold);
    assert!(plain.first_threshold > 1_000 && plain.last_threshold >= plain.first_threshold, "{plain:?}");
    let everything = Options { merges: usize::MAX, ..options };
    let all = learn_measured(&zipf(3, 20_000, |count| count), &everything, &mut quietly).unwrap().1;
    assert!(plain.pairs * 5 < all.pairs, "{} of {} pairs kept", plain.pairs, all.pairs);
}

#[test]
fn order_of_the_rows_does_not_matter() {
    let words = zipf(5, 3_000, |count| count % 7 + 1);
    let options = Options { merges: 2_000, min_pair_count: 1, max_token_bytes: None };
    let mut rows: Vec<(Vec<u8>, u64)> = words.iter().map(|(word, count)| (word.to_vec(), count)).collect();
    let expected = fast(&words, &options);
    for turn in [1, 7, 1_234] {
        rows.rotate_left(turn);
        rows.swap(0, 2_999);
        assert!(fast(&rows.iter().cloned().collect(), &options) == expected);
    }
    rows.reverse();
    assert!(fast(&rows.iter().cloned().collect(), &options) == expected);
}

#[test]
fn a_repeated_word_is_never_a_silent_error() {
    let words: Words = [("ab", 5), ("cd", 4), ("ab", 5)].into_iter().collect();
    let options = Options { merges: 2, min_pair_count: 1, max_token_bytes: None };
    let error = learn(&words, &options, &mut quietly).unwrap_err();
    assert_eq!(error, LearnError::RepeatedWord { word: "\"ab\"".to_owned() });
    assert!(error.is_damage());
}
