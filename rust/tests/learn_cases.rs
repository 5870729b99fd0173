//! Inputs that other trainers are known to get wrong, each for both learners.

use std::ops::ControlFlow;
use std::time::Instant;

use dist_bpe_core::learn::{LearnError, Merge, Options, Table, Words, jitter, learn};
use dist_bpe_core::naive;
use dist_bpe_core::rows::Rows;

type Learn = fn(&Words, &Options, &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<Vec<Merge>, LearnError>;

const BOTH: [Learn; 2] = [learn, naive::learn];

fn options(merges: usize) -> Options {
    Options { merges, min_pair_count: 1, max_token_bytes: None }
}

fn words(pairs: &[(&str, u64)]) -> Words {
    pairs.iter().copied().collect()
}

fn run(learn: Learn, words: &Words, options: &Options) -> Result<Vec<Merge>, LearnError> {
    learn(words, options, &mut |_| ControlFlow::Continue(()))
}

/// What each merge makes, with its count.
fn tokens(merges: &[Merge]) -> Vec<(String, u64)> {
    // Only for printable text and spaces.
    let mut made: Vec<String> =
        (0..256u32).map(|id| if id == 220 { ' ' } else { (id as u8).wrapping_add(b'!') as char }.into()).collect();
    for merge in merges {
        made.push(made[merge.left as usize].clone() + &made[merge.right as usize]);
    }
    made.split_off(256).into_iter().zip(merges.iter().map(|merge| merge.count)).collect()
}

fn list(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|&(token, count)| (token.to_owned(), count)).collect()
}

#[test]
fn pair_counts_past_32_bits() {
    let table = words(&[(&(" ".repeat(80) + "x"), 30_000_000), ("ab", 1_000)]);
    for learn in BOTH {
        let merges = run(learn, &table, &options(9)).unwrap();
        assert_eq!(merges[0], Merge { left: 220, right: 220, count: 2_370_000_000 });
        assert_eq!(merges[1].count, 39 * 30_000_000);
    }
}

#[test]
fn counts_around_every_border() {
    for border in [1u64 << 31, 1 << 32, 1 << 63] {
        for count in [border - 1, border, border + 1] {
            for learn in BOTH {
                let merges = run(learn, &words(&[("ab", count), ("cd", count - 1)]), &options(9)).unwrap();
                assert_eq!(tokens(&merges), list(&[("ab", count), ("cd", count - 1)]));
                // The same as a sum of two words.
                let merges = run(learn, &words(&[("ab", count - 5), ("xab", 5), ("cd", 9)]), &options(1)).unwrap();
                assert_eq!(tokens(&merges), list(&[("ab", count)]));
            }
        }
    }
}

#[test]
fn past_64_bits_is_an_error_that_says_what_to_do() {
    for learn in BOTH {
        let merges = run(learn, &words(&[("ab", u64::MAX - 5), ("xab", 5)]), &options(1)).unwrap();
        assert_eq!(merges[0].count, u64::MAX);
        // The sum over all pairs may be as large as it likes.
        let merges = run(learn, &words(&[("ab", u64::MAX), ("cd", u64::MAX), ("ef", 1)]), &options(9)).unwrap();
        assert_eq!(tokens(&merges), list(&[("ab", u64::MAX), ("cd", u64::MAX), ("ef", 1)]));
        let error = run(learn, &words(&[("ab", u64::MAX - 5), ("xab", 6)]), &options(1)).unwrap_err();
        assert_eq!(error, LearnError::PairOverflow { pair: "\"ab\"".to_owned() });
        assert!(error.to_string().contains("divide the weights") && !error.is_damage());
        let error = run(learn, &words(&[("aaa", 1 << 63)]), &options(1)).unwrap_err();
        assert!(matches!(error, LearnError::PairOverflow { .. }));
    }
}

/// A word of letters drawn by a seeded generator.
fn random_letters(letters: &[u8; 4], length: usize) -> String {
    let mut state = 1u64;
    let mut letter = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        char::from(letters[(state >> 62) as usize])
    };
    (0..length).map(|_| letter()).collect()
}

#[test]
fn a_word_of_70_000_letters() {
    let word = random_letters(b"abcd", 70_000);
    let merges = run(learn, &words(&[(&word, 1)]), &options(2_000)).unwrap();
    assert_eq!(merges.len(), 2_000);
    // The plain learner rewrites the whole word at each merge.
    assert_eq!(merges[..40], run(naive::learn, &words(&[(&word, 1)]), &options(40)).unwrap());
}

#[test]
fn the_second_merge_sees_the_first() {
    for learn in BOTH {
        let merges = run(learn, &words(&[("pqr", 5), ("pq", 1), ("xy", 4)]), &options(9)).unwrap();
        assert_eq!(tokens(&merges), list(&[("pq", 6), ("pqr", 5), ("xy", 4)]));
    }
}

#[test]
fn max_token_bytes_is_inclusive() {
    for learn in BOTH {
        for (longest, made) in [(1, 0), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4)] {
            let options = Options { max_token_bytes: Some(longest), ..options(9) };
            let merges = run(learn, &words(&[("abcdabcd", 3), ("cd", 2), ("cd!", 2)]), &options).unwrap();
            let longer = tokens(&merges).iter().filter(|(token, _)| token.len() > longest).count();
            assert_eq!(longer, 0);
            let of_letters = tokens(&merges).iter().filter(|(token, _)| !token.contains('!')).count();
            assert_eq!(of_letters, made, "at most {longest} bytes");
        }
    }
}

#[test]
fn nothing_to_learn() {
    for learn in BOTH {
        assert_eq!(run(learn, &words(&[]), &options(9)), Ok(vec![]));
        assert_eq!(run(learn, &words(&[("a", 5), ("b", 5)]), &options(9)), Ok(vec![]));
        assert_eq!(run(learn, &words(&[("ab", 5)]), &options(0)), Ok(vec![]));
        assert_eq!(run(learn, &words(&[("ab", 5)]), &Options { min_pair_count: 6, ..options(9) }), Ok(vec![]));
        assert_eq!(run(learn, &words(&[("ab", 5)]), &Options { min_pair_count: 5, ..options(9) }).unwrap().len(), 1);
        // A minimum of 0 does not merge what occurs nowhere.
        assert_eq!(run(learn, &words(&[("ab", 5)]), &Options { min_pair_count: 0, ..options(9) }).unwrap().len(), 1);
    }
}

#[test]
fn ties_go_to_the_smallest_ids() {
    for learn in BOTH {
        // The space has id 220, after all letters; merged tokens come after all bytes.
        let merges = run(learn, &words(&[(" b", 3), ("zb", 3), ("ab", 3), ("aa", 3)]), &options(9)).unwrap();
        assert_eq!(tokens(&merges), list(&[("aa", 3), ("ab", 3), ("zb", 3), (" b", 3)]));
        let merges = run(learn, &words(&[("abz", 3), (" b", 3)]), &options(9)).unwrap();
        assert_eq!(tokens(&merges), list(&[("ab", 3), (" b", 3), ("abz", 3)]));
    }
}

#[test]
fn rows_are_weighed_and_summed() {
    let mut builder = Words::builder(vec![3, 0, 1], 4, false);
    for (word, source, count) in [("ab", 0, 2), ("ab", 1, 1), ("ab", 2, 1), ("cd", 1, 100), ("ef", 0, 3), ("gh", 2, 4)]
    {
        builder.push(word.as_bytes(), source, count).unwrap();
    }
    let table = builder.finish().unwrap();
    // "cd" weighs nothing; "ef" occurs three times only, whatever it weighs.
    assert_eq!(table.iter().collect::<Vec<_>>(), [(b"ab".as_slice(), 7), (b"gh", 4)]);
    let mut builder = Words::builder(vec![1], 2, false);
    for words in [["ab", "cd"], ["cd", "ef"]] {
        let mut rows = Rows::new();
        words.iter().for_each(|word| rows.push(word.as_bytes(), 0, 1));
        builder.push_rows(&rows).unwrap();
    }
    assert_eq!(builder.finish().unwrap().iter().collect::<Vec<_>>(), [(b"cd".as_slice(), 2)]);
}

#[test]
fn weights_are_checked() {
    let mut builder = Words::builder(vec![1 << 62, 1], 0, false);
    builder.push(b"ab", 0, 3).unwrap();
    let error = builder.push(b"ab", 0, 1).unwrap_err();
    assert_eq!(error, LearnError::WordOverflow { word: "\"ab\"".to_owned() });
    assert!(error.to_string().contains("divide the weights"));
    assert_eq!(builder.push(b"cd", 0, 4).unwrap_err(), LearnError::WordOverflow { word: "\"cd\"".to_owned() });
    assert_eq!(builder.push(b"cd", 2, 4).unwrap_err(), LearnError::UnknownSource { number: 2, sources: 2 });
}

#[test]
fn long_words_are_no_trouble() {
    let cases = [
        ("a".repeat(5_000_000), 21),
        (random_letters(b"ACGT", 1_000_000), 2_000),
        (" ".repeat(2_000_000) + "x", 19),
        ("^".repeat(1_000_000), 18),
    ];
    for (word, least) in cases {
        let start = Instant::now();
        let merges = run(learn, &words(&[(&word, 1)]), &Options { min_pair_count: 2, ..options(2_000) }).unwrap();
        assert!(merges.len() >= least, "{} merges from {}...", merges.len(), &word[..9]);
        // Quadratic would be hours; the limit is wide, for machines with other things to do.
        assert!(start.elapsed().as_secs() < 20, "{:?} for {}...", start.elapsed(), &word[..9]);
    }
}

#[test]
fn interrupts_are_seen_soon_and_everywhere() {
    let table: Words = (0..300_000u32)
        .map(|index| (format!("{:x}", index.wrapping_mul(2_654_435_761)), 1 + 9_000_000 / (index as u64 + 1)))
        .collect();
    let calls = |limit: usize| {
        let (mut calls, mut last, mut longest) = (0, Instant::now(), 0.0f64);
        let result = learn(&table, &options(3_000), &mut |_| {
            longest = longest.max(last.elapsed().as_secs_f64());
            last = Instant::now();
            calls += 1;
            if calls > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (result, calls, longest)
    };
    let (result, all, longest) = calls(usize::MAX);
    assert_eq!(result.unwrap().len(), 3_000);
    assert!(all > 40, "{all} calls");
    assert!(longest < 0.5, "{longest} seconds without a call");
    for limit in (0..all).step_by(7) {
        assert!(matches!(calls(limit).0, Err(LearnError::Interrupted { .. })), "limit {limit} of {all}");
    }
}

#[test]
fn a_kept_table_gives_what_a_stream_gives() {
    let rows = [("ab", 0, 2), ("ab", 1, 1), ("cd", 1, 100), ("", 0, 7), ("ef", 2, 3), ("gh", 2, 4)];
    let mut table = Table::new(3);
    // In two batches that share a word.
    for part in [&rows[..1], &rows[1..]] {
        let mut batch = Rows::new();
        part.iter().for_each(|&(word, source, count)| batch.push(word.as_bytes(), source, count));
        table.push_rows(&batch).unwrap();
    }
    assert_eq!(table.rows().collect::<Vec<_>>(), rows.map(|(word, source, count)| (word.as_bytes(), source, count)));
    assert_eq!(table.len(), 5);
    for (weights, least) in [(vec![1, 1, 1], 1), (vec![3, 0, 2], 4), (vec![0, 0, 0], 0)] {
        let mut builder = Words::builder(weights.clone(), least, false);
        rows.iter().for_each(|&(word, source, count)| builder.push(word.as_bytes(), source, count).unwrap());
        let (streamed, kept) = (builder.finish().unwrap(), table.words(weights.clone(), least, false).unwrap());
        assert_eq!(kept.iter().collect::<Vec<_>>(), streamed.iter().collect::<Vec<_>>());
        let jittered: Vec<_> = streamed.iter().map(|(word, count)| (word, count * jitter(word))).collect();
        assert_eq!(table.words(weights, least, true).unwrap().iter().collect::<Vec<_>>(), jittered);
    }
    // Stored numbers, because shares of a mixture rest on them.
    assert_eq!([b"ab".as_slice(), b"cd", b"ef", b""].map(jitter), [1095, 1056, 951, 991]);
    let wrong = Rows { offsets: vec![0, 1], bytes: b"a".to_vec(), sources: vec![3], counts: vec![1] };
    assert_eq!(table.push_rows(&wrong).unwrap_err(), LearnError::UnknownSource { number: 3, sources: 3 });
    let error = table.words(vec![u64::MAX / 200, 1, 1], 1, true).unwrap_err();
    assert_eq!(error, LearnError::WordOverflow { word: "\"ab\"".to_owned() });
}
