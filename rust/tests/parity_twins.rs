//! The parity-aware learner and its plain twin give the same merges, counts and languages.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dist_bpe_core::learn::parity::{self, Merge, Options, Rule, Window, learn};
use dist_bpe_core::learn::{self, LearnError, Table};
use dist_bpe_core::naive;
use dist_bpe_core::rows::Rows;
use proptest::prelude::*;

/// Word -> its count in each language, 0 for none.
type Counts = BTreeMap<Vec<u8>, Vec<u64>>;

fn table(words: &Counts, languages: usize) -> Table {
    let mut rows = Rows::new();
    for (word, counts) in words {
        for (source, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            rows.push(word, source as u32, count);
        }
    }
    let mut table = Table::new(languages);
    table.push_rows(&rows).unwrap();
    table
}

fn counts(letters: &'static str, longest: usize, most: usize, languages: usize) -> impl Strategy<Value = Counts> {
    let word = prop::collection::vec(prop::sample::select(letters.as_bytes()), 1..=longest);
    let count = prop_oneof![3 => Just(0u64), 2 => 1..4u64, 2 => 1..40u64];
    prop::collection::btree_map(word, prop::collection::vec(count, languages), 0..=most)
}

#[derive(Clone, Debug)]
struct Case {
    training: Counts,
    /// Development text, or else ratios.
    development: Option<Counts>,
    ratios: Vec<u64>,
    window: Option<Window>,
    numbers: [u64; 4],
    max_token_bytes: Option<usize>,
}

impl Case {
    fn check(&self) -> Result<Vec<Merge>, TestCaseError> {
        let languages = self.ratios.len();
        let training = table(&self.training, languages);
        let development = self.development.as_ref().map(|words| table(words, languages));
        let [merges, min_pair_count, min_word_count, summed] = self.numbers;
        let options = Options {
            merges: if merges == 30 { usize::MAX } else { merges as usize },
            min_pair_count,
            min_word_count,
            max_token_bytes: self.max_token_bytes,
            summed_merges: summed as usize,
            rule: development.as_ref().map_or(Rule::Ratios(&self.ratios), Rule::Development),
            window: self.window,
        };
        let fast = learn(&training, &options, &mut quietly).unwrap();
        prop_assert_eq!(&fast, &naive::learn_parity(&training, &options, &mut quietly).unwrap());
        Ok(fast)
    }
}

fn quietly(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn cases(letters: &'static str, longest: usize, most: usize) -> impl Strategy<Value = Case> {
    (1..=4usize).prop_flat_map(move |languages| {
        let development = prop::option::of(counts(letters, longest, most, languages));
        let ratios = prop::collection::vec(prop_oneof![1..5u64, 1..1_000_000u64], languages);
        let window = prop::option::of((1..8usize, 0..5u64, 1..4u64)).prop_map(|window| {
            window.map(|(length, numerator, denominator)| Window { length, alpha: (numerator, denominator) })
        });
        let summed = prop_oneof![2 => Just(0u64), 1 => 1..12u64];
        let numbers = (0..=30u64, 0..6u64, 0..9u64, summed).prop_map(<[u64; 4]>::from);
        let max_token_bytes = prop_oneof![3 => Just(None), 1 => (0..6usize).prop_map(Some)];
        (counts(letters, longest, most, languages), development, ratios, window, numbers, max_token_bytes).prop_map(
            |(training, development, ratios, window, numbers, max_token_bytes)| Case {
                training,
                development,
                ratios,
                window,
                numbers,
                max_token_bytes,
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn tiny_tables_of_two_letters(case in cases("ab", 9, 10)) {
        case.check()?;
    }

    #[test]
    fn tiny_tables_of_four_letters(case in cases("abc ", 6, 24)) {
        case.check()?;
    }

    /// One language, or the same development text for all, is plain training.
    #[test]
    fn one_language_is_plain_training(words in counts("abc", 7, 20, 1), merges in 0..20usize) {
        let training = table(&words, 1);
        let options = Options {
            merges,
            min_pair_count: 2,
            min_word_count: 0,
            max_token_bytes: None,
            summed_merges: 0,
            rule: Rule::Development(&training),
            window: None,
        };
        let plain = learn::Options { merges, min_pair_count: 2, max_token_bytes: None };
        let expected = learn::learn(&training.words(vec![1], 0, false).unwrap(), &plain, &mut quietly).unwrap();
        let merges = learn(&training, &options, &mut quietly).unwrap();
        let as_plain = |merge: &Merge| learn::Merge { left: merge.left, right: merge.right, count: merge.count };
        prop_assert_eq!(merges.iter().map(as_plain).collect::<Vec<_>>(), expected.clone());
        // All by summed counts is plain training, whatever the number of languages.
        let two = words.iter().map(|(word, counts)| (word.clone(), vec![counts[0] / 3, counts[0] - counts[0] / 3]));
        let summed = Options { summed_merges: usize::MAX, ..options };
        let merges = learn(&table(&two.collect(), 2), &summed, &mut quietly).unwrap();
        prop_assert_eq!(merges.iter().map(as_plain).collect::<Vec<_>>(), expected);
    }
}

/// Larger tables, where pruning takes effect.
#[test]
fn medium_tables() {
    let mut state = 11u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for languages in [2usize, 5] {
        let mut words = Counts::new();
        for rank in 0..900u64 {
            let language = random(languages as u64);
            let letters = &b"etaoinshrdlucm"[language as usize..];
            let word = (0..2 + random(7)).map(|_| letters[random(9).min(random(9)) as usize]).collect();
            let counts = words.entry(word).or_insert_with(|| vec![0; languages]);
            counts[language as usize] += 1 + 9_000 / (rank + 1);
            counts[0] += random(3);
        }
        let development = words.iter().step_by(3).map(|(word, counts)| (word.clone(), counts.clone())).collect();
        let ratios: Vec<u64> = (0..languages as u64).map(|language| 1000 + 300 * language).collect();
        for development in [Some(development), None] {
            for (window, summed) in [(None, 0), (Some(Window { length: 20, alpha: (2, 1) }), 50)] {
                for merges in [150, 700] {
                    let numbers = [merges, 2, 0, summed];
                    let (training, development, ratios) = (words.clone(), development.clone(), ratios.clone());
                    let case = Case { training, development, ratios, window, numbers, max_token_bytes: None };
                    assert!(case.check().unwrap().len() > 100);
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let words = |count: u64| Counts::from([(b"ab".to_vec(), vec![count, count])]);
    let run = |training: u64, development: u64, summed_merges: usize| {
        let (training, development) = (table(&words(training), 2), table(&words(development), 2));
        let rule = Rule::Development(&development);
        let (merges, min_pair_count, min_word_count, max_token_bytes, window) = (9, 1, 0, None, None);
        let options = Options { merges, min_pair_count, min_word_count, max_token_bytes, summed_merges, rule, window };
        parity::learn(&training, &options, &mut quietly)
    };
    assert_eq!(run(u64::MAX, 1, 0).unwrap().len(), 1);
    assert_eq!(run(u64::MAX, 1, 1).unwrap_err(), LearnError::PairOverflow { pair: "\"ab\"".to_owned() });
    assert_eq!(run(1, u64::MAX / 2, 0).unwrap().len(), 1);
    assert_eq!(run(1, u64::MAX / 2 + 1, 0).unwrap_err(), LearnError::SourceOverflow { number: 0 });
}

#[test]
fn an_interrupt_is_seen() {
    let words = (0..60_000u32)
        .map(|index| {
            (
                format!("{:x}", index.wrapping_mul(2_654_435_761)).into_bytes(),
                vec![1 + 90_000 / (u64::from(index) + 1); 2],
            )
        })
        .collect();
    let training = table(&words, 2);
    let rule = Rule::Development(&training);
    let options = Options {
        merges: 1_000,
        min_pair_count: 2,
        min_word_count: 0,
        max_token_bytes: None,
        summed_merges: 0,
        rule,
        window: None,
    };
    let calls = |limit: usize| {
        let mut calls = 0;
        let result = learn(&training, &options, &mut |_| {
            calls += 1;
            if calls > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (result, calls)
    };
    let (result, all) = calls(usize::MAX);
    assert_eq!(result.unwrap().len(), 1_000);
    assert!(all > 10, "{all} calls");
    for limit in (0..all).step_by(3) {
        assert!(matches!(calls(limit).0, Err(LearnError::Interrupted { .. })), "limit {limit} of {all}");
    }
}
