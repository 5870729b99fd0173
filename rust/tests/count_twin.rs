//! The counter against its twin, a `BTreeMap`, and the borders of its numbers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dist_bpe_core::count::{CountError, Counter, Spill, Totals, partition_of};
use dist_bpe_core::merge::Merger;
use dist_bpe_core::normalize::{Form, Normalizer};
use dist_bpe_core::rows::{BATCH_BYTES, BATCH_ROWS, MAX_WORD_BYTES, Rows};
use dist_bpe_core::scan::{Pattern, Scanner, scalar};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

type Table = BTreeMap<(Vec<u8>, u32), u64>;

/// All rows of a spill with their partitions, after checking what every spill must keep: order, partitions, batch bounds.
fn read(mut spill: Spill, partitions: u32) -> Vec<(u32, Rows)> {
    let mut batches = Vec::new();
    let mut last: Option<(u32, Vec<u8>, u32)> = None;
    while let Some((partition, rows)) = spill.next_rows() {
        assert!(!rows.is_empty() && rows.len() <= BATCH_ROWS);
        assert!(rows.bytes.len() <= BATCH_BYTES || rows.len() == 1);
        assert_eq!((rows.offsets[0], rows.offsets.len()), (0, rows.len() + 1));
        for row in 0..rows.len() {
            assert_eq!(partition, partition_of(rows.word(row), partitions));
            assert!(rows.counts[row] > 0);
            let key = Some((partition, rows.word(row).to_vec(), rows.sources[row]));
            assert!(last < key, "{last:?} before {key:?}");
            last = key;
        }
        batches.push((partition, rows));
    }
    batches
}

fn add(table: &mut Table, rows: &Rows) {
    for row in 0..rows.len() {
        *table.entry((rows.word(row).to_vec(), rows.sources[row])).or_default() += rows.counts[row];
    }
}

fn drain(counter: &mut Counter) -> Table {
    let mut table = Table::new();
    for (_, rows) in read(counter.drain(1), 1) {
        add(&mut table, &rows);
    }
    table
}

/// Words of 0 to 40 bytes, dense around the inline limits, from few letters so that they meet again and share
/// prefixes; NUL among them, because padding is made of it.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let letter = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)];
    let length = prop_oneof![0..=40usize, 7..=9usize, 14..=17usize, 22..=25usize, 31..=33usize];
    (length, prop::collection::vec(letter, 40), any::<bool>()).prop_map(|(length, mut bytes, flat)| {
        if flat {
            bytes[..30].fill(0);
        }
        bytes.truncate(length);
        bytes
    })
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32, Vec<u8>, u64),
    Drain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let add = (0..4u32, word(), prop_oneof![Just(1u64), 0..1u64 << 40]).prop_map(|(s, w, c)| Step::Add(s, w, c));
    prop::collection::vec(prop_oneof![60 => add, 1 => Just(Step::Drain)], 0..400)
}

proptest! {
    #[test]
    fn added_words_come_out_once_sorted_and_merged(steps in steps(), partitions in 1..5u32) {
        let mut counter = Counter::new(4, None, &[]).unwrap();
        let (mut twin, mut words) = (Table::new(), [0u64; 4]);
        let mut spills = Vec::new();
        for step in steps.into_iter().chain([Step::Drain]) {
            match step {
                Step::Add(source, word, count) => {
                    counter.add_word(source as usize, &word, count).unwrap();
                    words[source as usize] += count;
                    if count > 0 {
                        *twin.entry((word, source)).or_default() += count;
                    }
                }
                Step::Drain => {
                    spills.push(read(counter.drain(partitions), partitions));
                    prop_assert_eq!(counter.unique_words(), 0);
                    prop_assert_eq!(counter.memory_bytes(), 0);
                }
            }
        }
        prop_assert_eq!([0, 1, 2, 3].map(|source| counter.totals(source).words), words);
        let mut merged = Table::new();
        for partition in 0..partitions {
            let spills = spills.iter().map(|spill| {
                let part = spill.iter().filter(|(of, _)| *of == partition).map(|(_, rows)| rows.clone());
                part.collect::<Vec<_>>().into_iter()
            });
            let mut merger = Merger::new(spills.collect(), 4, 0);
            while let Some(rows) = merger.next_rows().unwrap() {
                add(&mut merged, &rows);
            }
        }
        prop_assert_eq!(merged, twin);
    }

    /// Documents of every length are read up to their last byte and not past it, whatever lies behind them.
    #[test]
    fn documents_are_counted_as_the_words_of_their_text(
        texts in prop::collection::vec("[a-c ]{0,20}|[a-zé ]{0,80}|[\\PC ]{0,40}|[aé]{16,40}", 0..40),
    ) {
        let [mut counter, mut together] = [(); 2].map(|()| Counter::new(1, Some(Pattern::GPT2), &[]).unwrap());
        let mut by_word = Counter::new(1, None, &[]).unwrap();
        let mut documents = together.documents(0);
        for text in &texts {
            counter.count_document(0, text).unwrap();
            documents.count_while(text, &mut |_| ControlFlow::Continue(())).unwrap();
            by_word.documents(0).note(text);
            Scanner::new(Pattern::GPT2).scan(text, |window, bounds| {
                for pair in bounds.windows(2) {
                    by_word.add_word(0, &window[pair[0] as usize..pair[1] as usize], 1).unwrap();
                }
            });
        }
        drop(documents);
        let expected = drain(&mut by_word);
        for mut counter in [counter, together] {
            prop_assert_eq!(counter.totals(0), by_word.totals(0));
            prop_assert_eq!(counter.unique_words(), expected.len());
            prop_assert_eq!(drain(&mut counter), expected.clone());
        }
    }

    #[test]
    fn partitions_cover_in_equal_parts(seed in any::<u64>(), partitions in 1..40u32) {
        let mut sizes = vec![0u32; partitions as usize];
        for i in 0..2000u64 {
            sizes[partition_of(&(seed ^ i).to_le_bytes(), partitions) as usize] += 1;
        }
        let mean = 2000.0 / f64::from(partitions);
        prop_assert!(sizes.iter().all(|&size| (f64::from(size) - mean).abs() < 8.0 * mean.sqrt()));
    }
}

#[test]
fn partitions_are_fixed_for_ever() {
    // XXH3_64bits by the reference implementation: 2d06800538d394c2, 9080330e9062fab0, 411d9368f9c30e07.
    let words = [b"".as_slice(), b" the", &[b'a'; 100]];
    assert_eq!(words.map(|word| partition_of(word, 1)), [0, 0, 0]);
    assert_eq!(words.map(|word| partition_of(word, 1000)), [175, 564, 254]);
    assert_eq!(words.map(|word| partition_of(word, u32::MAX)), [755_400_709, 2_424_320_781, 1_092_457_320]);
}

#[test]
fn totals_do_not_depend_on_order_and_survive_a_drain() {
    let texts = ["one two", "", "three", "three", "caffè <|x|>!"];
    let specials = ["<|x|>".to_string()];
    let count = |order: &[usize]| {
        let mut counter = Counter::new(1, Some(Pattern::GPT2), &specials).unwrap();
        for &i in order {
            counter.count_document(0, texts[i]).unwrap();
            counter.drain(3);
        }
        counter.totals(0)
    };
    let totals = count(&[0, 1, 2, 3, 4]);
    assert_eq!(totals, count(&[4, 2, 0, 3, 1]));
    assert_ne!(totals.digest, count(&[0, 1, 2, 4]).digest, "a document twice is not the document once");
    assert_eq!(
        totals,
        Totals {
            documents: 5,
            bytes: 7 + 5 + 5 + 13,
            words: 2 + 1 + 1 + 3,
            special_tokens: 1,
            cut_words: 0,
            longest_word: 6,
            digest: texts.iter().fold(0, |sum, text| sum.wrapping_add(xxh3_128(text.as_bytes()))),
        }
    );
}

#[test]
fn special_tokens_are_cut_out_and_counted() {
    let mut counter = Counter::new(2, Some(Pattern::GPT2), &["<|x|>".to_string()]).unwrap();
    counter.count_document(1, "a<|x|>b<|x|><|x|> c").unwrap();
    let expected = [b"a".as_slice(), b"b", b" c"].map(|word| ((word.to_vec(), 1), 1));
    assert_eq!(drain(&mut counter), Table::from(expected));
    assert_eq!((counter.totals(1).words, counter.totals(1).special_tokens), (3, 3));
    assert_eq!(counter.totals(0), Totals::default());
}

#[test]
fn counts_are_exact_up_to_the_last_one_and_an_error_past_it() {
    let mut counter = Counter::new(2, Some(Pattern::GPT2), &[]).unwrap();
    for (i, count) in [1u64 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1].into_iter().enumerate() {
        counter.add_word(0, &[i as u8; 20], count).unwrap();
    }
    counter.add_word(0, b"w", u64::MAX - counter.totals(0).words - 2).unwrap();
    counter.count_document(0, " w").unwrap();
    let error = counter.count_document(0, " w").unwrap_err();
    assert!(matches!(&error, CountError::Overflow { word, .. } if word == "\" w\""), "{error}");
    counter.add_word(0, b"w", 1).unwrap();
    assert_eq!(counter.totals(0).words, u64::MAX);
    let error = counter.add_word(0, &[b'w'; 70], 1).unwrap_err();
    assert!(error.to_string().contains("… (70 bytes)"), "{error}");
    counter.add_word(1, b"w", u64::MAX).unwrap();
    assert_eq!(drain(&mut counter)[&(b"w".to_vec(), 1)], u64::MAX);
}

#[test]
fn a_counter_without_a_pattern_refuses_documents() {
    let mut counter = Counter::new(1, None, &[]).unwrap();
    assert!(matches!(counter.count_document(0, "text"), Err(CountError::NoPattern)));
}

#[test]
fn one_word_of_many_megabytes() {
    let (long, longer) = ("a".repeat(20 << 20), "a".repeat((20 << 20) + 1));
    let mut counter = Counter::new(1, Some(Pattern::GPT2), &[]).unwrap();
    for text in [&long, &longer, &long, "a b"] {
        counter.count_document(0, text).unwrap();
    }
    assert!(counter.memory_bytes() < 100 << 20);
    assert_eq!(counter.totals(0).longest_word, longer.len() as u64);
    let sizes: Vec<_> = read(counter.drain(1), 1).iter().map(|(_, rows)| (rows.len(), rows.bytes.len())).collect();
    assert_eq!(sizes, [(2, 3), (1, long.len()), (1, longer.len())]);
}

#[test]
fn a_word_too_long_for_the_table_is_an_error() {
    // The zeros are never touched, so this costs address space only.
    let word = vec![0; MAX_WORD_BYTES + 1];
    let mut counter = Counter::new(1, None, &[]).unwrap();
    let error = counter.add_word(0, &word, 1).unwrap_err();
    assert!(matches!(error, CountError::WordTooLong { bytes } if bytes == MAX_WORD_BYTES + 1));
}

#[test]
fn large_tables_come_out_in_full_batches() {
    let mut counter = Counter::new(2, None, &[]).unwrap();
    for i in 0..200_000u64 {
        let word = format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        counter.add_word((i % 2) as usize, word.as_bytes(), i + 1).unwrap();
        assert!(counter.memory_bytes() <= 64 << 20);
    }
    assert_eq!(counter.unique_words(), 200_000);
    let batches = read(counter.drain(2), 2);
    let rows: Vec<_> = batches.iter().map(|(partition, rows)| (*partition, rows.len())).collect();
    assert_eq!(rows.iter().map(|(_, rows)| rows).sum::<usize>(), 200_000);
    assert_eq!(rows.iter().map(|(partition, _)| *partition).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!((rows[0].1, rows[2].1), (BATCH_ROWS, BATCH_ROWS));
}

proptest! {
    /// Normalised, cut by the pattern, then long words cut: the same as doing these by hand.
    #[test]
    fn normalised_documents_and_cut_words(
        texts in prop::collection::vec("[ae\u{301}\u{323}ﬁ가日 ]{0,60}|a{0,30}<x>[e\u{301}]{0,9}", 0..10),
        form in prop::sample::select(&Form::ALL[..]),
        most in 4..20_usize,
    ) {
        let specials = ["<x>".to_string()];
        let mut counter = Counter::new(1, Some(Pattern::GPT2), &specials).unwrap().normalizing(form).cutting(most);
        let mut by_hand = Counter::new(1, None, &[]).unwrap();
        let mut long = 0;
        for text in &texts {
            counter.count_document(0, text).unwrap();
            for piece in text.split("<x>") {
                let normal = Normalizer::new(form).normalize(piece).to_owned();
                scalar::words(Pattern::GPT2, &normal, |word| {
                    long += u64::from(word.len() > most);
                    let mut piece = String::new();
                    for character in word.chars() {
                        if piece.len() + character.len_utf8() > most {
                            by_hand.add_word(0, std::mem::take(&mut piece).as_bytes(), 1).unwrap();
                        }
                        piece.push(character);
                    }
                    by_hand.add_word(0, piece.as_bytes(), 1).unwrap();
                });
            }
        }
        prop_assert_eq!(counter.totals(0).cut_words, long);
        prop_assert_eq!(counter.totals(0).words, by_hand.totals(0).words);
        prop_assert_eq!(drain(&mut counter), drain(&mut by_hand));
    }
}

#[test]
fn added_words_are_cut_too() {
    let mut counter = Counter::new(1, None, &[]).unwrap().cutting(4);
    counter.add_word(0, "abéde日本".as_bytes(), 3).unwrap();
    counter.add_word(0, b"abcd", 1).unwrap();
    counter.add_word(0, &[0x80; 5], 1).unwrap();
    let expected = [("abé".as_bytes(), 3), ("de".as_bytes(), 3), ("日".as_bytes(), 3), ("本".as_bytes(), 3)];
    let more = [(b"abcd".as_slice(), 1), (&[0x80; 4], 1), (&[0x80], 1)];
    let table = expected.into_iter().chain(more).map(|(word, count)| ((word.to_vec(), 0), count)).collect::<Table>();
    assert_eq!(drain(&mut counter), table);
    assert_eq!((counter.totals(0).cut_words, counter.totals(0).words), (4, 15));
    assert_eq!(counter.totals(0).longest_word, 4);
}
