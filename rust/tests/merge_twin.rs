//! The merger against its twin, a `BTreeMap`, and what it refuses.

use std::collections::BTreeMap;

use dist_bpe_core::merge::{MergeError, Merger, SpillReader, Tally};
use dist_bpe_core::rows::{BATCH_BYTES, BATCH_ROWS, Rows};
use proptest::prelude::*;

type Table = BTreeMap<(Vec<u8>, u32), u64>;
type Spill = std::vec::IntoIter<Rows>;

const SOURCES: usize = 3;

/// A spill of batches of at most `batch` rows, an empty batch before each.
fn spill<'a>(rows: impl IntoIterator<Item = (&'a [u8], u32, u64)>, batch: usize) -> Spill {
    let mut batches = vec![Rows::new()];
    for (word, source, count) in rows {
        if batches.last().unwrap().len() == batch {
            batches.extend([Rows::new(), Rows::new()]);
        }
        batches.last_mut().unwrap().push(word, source, count);
    }
    batches.into_iter()
}

fn merge(
    spills: Vec<Spill>,
    min_word_count: u64,
) -> Result<(Vec<Rows>, Vec<Tally>), MergeError<std::convert::Infallible>> {
    let mut merger = Merger::new(spills, SOURCES, min_word_count);
    let mut batches = Vec::new();
    while let Some(rows) = merger.next_rows()? {
        batches.push(rows);
    }
    assert!(merger.next_rows()?.is_none(), "the end stays the end");
    Ok((batches, merger.tallies().to_vec()))
}

fn rows(batches: &[Rows]) -> Vec<((Vec<u8>, u32), u64)> {
    let of = |rows: &Rows| -> Vec<_> {
        (0..rows.len()).map(|row| ((rows.word(row).to_vec(), rows.sources[row]), rows.counts[row])).collect()
    };
    batches.iter().flat_map(of).collect()
}

fn table() -> impl Strategy<Value = Table> {
    let letter = prop_oneof![Just(0u8), Just(b'a'), Just(b'b')];
    let word = prop_oneof![prop::collection::vec(letter.clone(), 0..4), prop::collection::vec(letter, 7..11)];
    prop::collection::btree_map((word, 0..SOURCES as u32), 1..20u64, 0..40)
}

proptest! {
    #[test]
    fn merges_as_a_map_does(tables in prop::collection::vec(table(), 0..12), batch in 1..9usize, min in 0..60u64) {
        let spills = tables.iter().map(|table| spill(table.iter().map(|((w, s), &c)| (w.as_slice(), *s, c)), batch));
        let (batches, tallies) = merge(spills.collect(), min).unwrap();

        let (mut sums, mut totals) = (Table::new(), BTreeMap::<Vec<u8>, u64>::new());
        for ((word, source), count) in tables.into_iter().flatten() {
            *totals.entry(word.clone()).or_default() += count;
            *sums.entry((word, source)).or_default() += count;
        }
        let mut expected = vec![Tally::default(); SOURCES];
        for ((word, source), count) in &sums {
            let tally = &mut expected[*source as usize];
            if totals[word] >= min {
                tally.unique_words += 1;
                tally.words += count;
            } else {
                tally.dropped_unique += 1;
                tally.dropped_words += count;
            }
        }
        sums.retain(|(word, _), _| totals[word] >= min);
        prop_assert_eq!(rows(&batches), sums.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(tallies, expected);
    }
}

#[test]
fn no_spills_and_empty_spills_give_nothing() {
    assert_eq!(merge(vec![], 0).unwrap(), (vec![], vec![Tally::default(); SOURCES]));
    assert_eq!(merge(vec![spill([], 4), spill([], 4)], 9).unwrap().0, []);
}

#[test]
fn the_minimum_is_of_the_word_over_all_sources_and_runs() {
    let spills =
        || vec![spill([(b"a".as_slice(), 0, 2), (b"b", 1, 4)], 1), spill([(b"a".as_slice(), 0, 2), (b"a", 2, 1)], 1)];
    let (batches, tallies) = merge(spills(), 5).unwrap();
    assert_eq!(rows(&batches), [((b"a".to_vec(), 0), 4), ((b"a".to_vec(), 2), 1)]);
    assert_eq!(tallies[0], Tally { unique_words: 1, words: 4, ..Tally::default() });
    assert_eq!(tallies[1], Tally { unique_words: 0, words: 0, dropped_unique: 1, dropped_words: 4, mark_words: 0 });
}

#[test]
fn sums_are_exact_up_to_the_last_one_and_an_error_past_it() {
    let half = 1 << 63;
    let (batches, tallies) =
        merge(vec![spill([(b"w".as_slice(), 1, half)], 1), spill([(b"w".as_slice(), 1, half - 1)], 1)], u64::MAX)
            .unwrap();
    assert_eq!((batches[0].counts[0], tallies[1].words), (u64::MAX, u64::MAX));

    let error =
        merge(vec![spill([(b"w".as_slice(), 1, half)], 1), spill([(b"w".as_slice(), 1, half)], 1)], 0).unwrap_err();
    assert_eq!(error, MergeError::Overflow { word: "\"w\"".into(), source_index: 1 });

    // Each count fits but the words of the source do not; over two sources they do, and pass any minimum.
    let error = merge(vec![spill([(b"v".as_slice(), 1, half), (b"w", 1, half)], 1)], 0).unwrap_err();
    assert_eq!(error, MergeError::TotalOverflow { source_index: 1 });
    assert!(!error.is_damage());
    let (_, tallies) = merge(vec![spill([(b"w".as_slice(), 0, u64::MAX), (b"w", 1, u64::MAX)], 1)], u64::MAX).unwrap();
    assert_eq!((tallies[0].words, tallies[1].words), (u64::MAX, u64::MAX));
}

#[test]
fn rows_out_of_order_are_found() {
    let disorders: [&[(&[u8], u32, u64)]; 4] = [
        &[(b"b", 0, 1), (b"a", 0, 1)],
        &[(b"aaaaaaaab", 0, 1), (b"aaaaaaaaa", 0, 1)],
        &[(b"a", 1, 1), (b"a", 0, 1)],
        &[(b"a", 0, 1), (b"c", 0, 1), (b"b", 0, 1)],
    ];
    for rows in disorders {
        for batch in [1, 2, 3] {
            let good = spill([(b"a".as_slice(), 0, 1), (b"aa", 0, 1), (b"bb", 0, 1), (b"d", 0, 1)], 2);
            let error = merge(vec![good, spill(rows.iter().copied(), batch)], 0).unwrap_err();
            assert!(matches!(error, MergeError::Unsorted { .. }) && error.is_damage(), "{rows:?}: {error}");
        }
    }
}

#[test]
fn an_unknown_source_is_refused() {
    let error = merge(vec![spill([(b"a".as_slice(), 3, 1)], 1)], 0).unwrap_err();
    assert_eq!(error, MergeError::UnknownSource { source_index: 3, sources: SOURCES });
    assert!(error.is_damage());
}

#[test]
fn counts_of_zero_leave_no_row() {
    let (batches, tallies) = merge(vec![spill([(b"a".as_slice(), 0, 0), (b"b", 0, 1), (b"b", 1, 0)], 9)], 0).unwrap();
    assert_eq!(rows(&batches), [((b"b".to_vec(), 0), 1)]);
    assert_eq!(tallies[1], Tally::default());
}

#[test]
fn batches_are_bounded_in_rows_and_bytes() {
    let words: Vec<_> = (0..BATCH_ROWS as u32 + 10).map(u32::to_be_bytes).collect();
    let (batches, _) = merge(vec![spill(words.iter().map(|word| (word.as_slice(), 0, 1)), 1000)], 0).unwrap();
    assert_eq!(batches.iter().map(Rows::len).collect::<Vec<_>>(), [BATCH_ROWS, 10]);

    let word = vec![b'w'; BATCH_BYTES / 2 + 1];
    let (batches, _) = merge(vec![spill((0..3).map(|source| (word.as_slice(), source, 1)), 1)], 3).unwrap();
    assert_eq!(batches.iter().map(Rows::len).collect::<Vec<_>>(), [1, 1, 1]);
}

/// A spill that breaks off, at its first batch or later.
struct Broken(u32);

impl SpillReader for Broken {
    type Error = &'static str;

    fn next_rows(&mut self) -> Result<Option<Rows>, &'static str> {
        let mut rows = Rows::new();
        rows.push(&self.0.to_be_bytes(), 0, 1);
        self.0 = self.0.checked_sub(1).ok_or("cut short")?;
        Ok(Some(rows))
    }
}

#[test]
fn errors_of_a_spill_come_through() {
    assert_eq!(Merger::new(vec![Broken(0)], 1, 0).next_rows(), Err(MergeError::Spill("cut short")));
    assert!(Merger::new(vec![Broken(0), Broken(1)], 1, 0).next_rows().is_err());
}

#[test]
fn words_that_begin_with_a_mark_are_tallied() {
    let words: [(&str, u64); 6] =
        [(" \u{93f}", 2), ("a\u{301}", 8), ("e", 16), ("\u{301}x", 1), ("\u{93e}", 4), ("ह", 32)];
    let mut sorted = words.to_vec();
    sorted.sort_by_key(|(word, _)| word.as_bytes().to_vec());
    let mut rows = Rows::new();
    sorted.iter().for_each(|(word, count)| rows.push(word.as_bytes(), 0, *count));
    let mut merger = Merger::new(vec![vec![rows].into_iter()], 1, 0);
    while merger.next_rows().unwrap().is_some() {}
    assert_eq!(merger.tallies()[0].mark_words, 2 + 1 + 4);
}
