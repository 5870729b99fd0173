//! Count words: documents in, a sorted count table per source out.

mod long;
mod sorted;
mod hash;

use std::ops::ControlFlow;

use xxhash_rust::xxh3::xxh3_128;

use crate::bytes::show;
use crate::normalize::{Form, Normalizer};
use crate::rows::MAX_WORD_BYTES;
use crate::scan::{Batch, Level, Pattern, Scanner};
use crate::special::{Piece, SpecialCutter, SpecialError};
use hash::{Ahead, Seeds, Table};
use sorted::Entries;
pub use sorted::{Spill, partition_of};

#[derive(Debug, thiserror::Error)]
pub enum CountError {
    #[error(transparent)]
    Special(#[from] SpecialError),
    #[error(
        "adding {count} times {word} would bring the words of source {source_index} past 2^64 - 1: count in smaller \
         parts, or divide the counts given"
    )]
    Overflow { word: String, count: u64, source_index: usize },
    #[error("a word of {bytes} bytes is longer than a count table can hold ({MAX_WORD_BYTES} bytes): cut such words")]
    WordTooLong { bytes: usize },
    #[error("this counter has no pattern of its own: cut the document outside and give its words one by one")]
    NoPattern,
    #[error("stopped on request")]
    Interrupted,
}

/// What one source's documents came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub documents: u64,
    /// UTF-8 bytes of the documents, special tokens included. Nobody reads 2^64 bytes: added unchecked.
    pub bytes: u64,
    /// Words counted, with repetition; what bounds every count of the source, so the one sum that is checked.
    pub words: u64,
    /// Special tokens cut out.
    pub special_tokens: u64,
    /// Words longer than allowed, which were cut; their pieces are among the words.
    pub cut_words: u64,
    /// Bytes of the longest word.
    pub longest_word: u64,
    /// Identifies the documents whatever their order, files or shards: sum modulo 2^128 of the xxh3_128 of each.
    pub digest: u128,
}

/// Counts the words of documents, apart for each source.
///
/// Memory grows with the different words only (about 32 to 100 bytes a word). It can double at any new word, so a
/// caller with a budget calls [`Counter::drain`] when [`Counter::memory_bytes`] has passed a third of it.
pub struct Counter {
    scanner: Option<Scanner>,
    specials: Option<SpecialCutter>,
    normalizer: Option<Normalizer>,
    max_word_bytes: usize,
    tables: Vec<Table>, // one a source: the words of a source that come together stay close in memory
    totals: Vec<Totals>,
    ahead: Ahead,
}

impl Counter {
    /// A counter for sources `0..sources`, without any word yet. Without a pattern, words come by
    /// [`Counter::add_word`]. Special tokens are cut out of documents before the pattern sees them.
    pub fn new(sources: usize, pattern: Option<Pattern>, specials: &[String]) -> Result<Self, CountError> {
        Counter::with_level(sources, pattern, specials, Level::best())
    }

    /// The same with a chosen instruction set, for tests and benchmarks.
    pub fn with_level(
        sources: usize,
        pattern: Option<Pattern>,
        specials: &[String],
        level: Level,
    ) -> Result<Self, CountError> {
        let seeds = Seeds::random();
        Ok(Counter {
            scanner: pattern.map(|pattern| Scanner::with_level(pattern, level)),
            specials: if specials.is_empty() { None } else { Some(SpecialCutter::new(specials)?) },
            normalizer: None,
            max_word_bytes: usize::MAX,
            tables: (0..sources).map(|_| Table::new(seeds)).collect(),
            totals: vec![Totals::default(); sources],
            ahead: Ahead::new(),
        })
    }

    /// Documents are brought into a normalisation form, piece by piece between their special tokens, before the pattern
    /// sees them. Words that are added by [`Counter::add_word`] are taken as they come.
    pub fn normalizing(mut self, form: Form) -> Self {
        self.normalizer = Some(Normalizer::new(form));
        self
    }

    /// Longer words are counted in pieces of at most so many bytes, cut between characters.
    ///
    /// # Panics
    /// If `bytes` is less than 4, which is what a character can take.
    pub fn cutting(mut self, max_word_bytes: usize) -> Self {
        assert!(max_word_bytes >= 4, "a character takes up to 4 bytes");
        self.max_word_bytes = max_word_bytes;
        self
    }

    /// Number of sources.
    pub fn sources(&self) -> usize {
        self.totals.len()
    }

    /// Counts a document: its totals, its special tokens, its words. After an error part of it has been counted.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn count_document(&mut self, source: usize, text: &str) -> Result<(), CountError> {
        self.documents(source).count_while(text, &mut |_| ControlFlow::Continue(()))
    }

    /// Takes documents of one source: short ones are counted faster, one after another, than each alone.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn documents(&mut self, source: usize) -> Documents<'_> {
        assert!(source < self.sources() && self.ahead.is_empty());
        Documents { counter: self, source }
    }

    /// Adds `count` occurrences of a word.
    pub fn add_word(&mut self, source: usize, word: &[u8], count: u64) -> Result<(), CountError> {
        if word.len() > self.max_word_bytes {
            let totals = &mut self.totals[source];
            totals.cut_words = totals.cut_words.saturating_add(count); // less than the words, which are checked
        }
        let mut rest = word;
        loop {
            let (piece, behind) = rest.split_at(piece_end(rest, self.max_word_bytes));
            self.add_piece(source, piece, count)?;
            rest = behind;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn add_piece(&mut self, source: usize, word: &[u8], count: u64) -> Result<(), CountError> {
        if word.len() > MAX_WORD_BYTES {
            return Err(CountError::WordTooLong { bytes: word.len() });
        }
        if count == 0 {
            return Ok(());
        }
        let totals = &mut self.totals[source];
        // The word's own count is part of this sum and cannot pass it.
        totals.words = totals.words.checked_add(count).ok_or_else(|| CountError::Overflow {
            word: show(word),
            count,
            source_index: source,
        })?;
        self.tables[source].add(word, count);
        Ok(())
    }

    /// Totals of a source since the counter was made; a drain does not touch them.
    pub fn totals(&self, source: usize) -> Totals {
        Totals { longest_word: self.tables[source].longest() as u64, ..self.totals[source] }
    }

    /// Memory of all tables, with the room they have not filled yet.
    pub fn memory_bytes(&self) -> usize {
        self.tables.iter().map(Table::memory_bytes).sum()
    }

    /// Different words now in the tables, summed over sources.
    pub fn unique_words(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// Moves all counts out, sorted by (partition, word, source). The counter holds no table memory afterwards and
    /// counts on from zero; the spill frees what it holds when it is dropped.
    ///
    /// While it lasts, this takes 36 bytes for each of [`Counter::unique_words`] above [`Counter::memory_bytes`], less
    /// than the tables have; what stays is these bytes and the words of more than 15 bytes. Reading a spill takes one
    /// batch at a time.
    ///
    /// # Panics
    /// If `partitions` is 0.
    pub fn drain(&mut self, partitions: u32) -> Spill {
        assert!(partitions > 0, "at least one partition");
        let mut entries = Entries::new(partitions, self.unique_words());
        let tables = self.tables.iter_mut().enumerate();
        let arenas = tables.map(|(source, table)| table.take(source as u32, &mut entries)).collect();
        Spill::new(entries, arenas)
    }
}

/// Documents of one source on their way into a [`Counter`]. Their last words are counted when this is dropped.
pub struct Documents<'a> {
    counter: &'a mut Counter,
    source: usize,
}

impl Documents<'_> {
    /// Adds a document to the totals (documents, bytes, digest) without counting words: for patterns that cut
    /// elsewhere and bring the words by [`Counter::add_word`].
    pub fn note(&mut self, text: &str) {
        note(&mut self.counter.totals[self.source], text);
    }

    /// Counts a document, as [`Counter::count_document`] does, until `look` breaks, which gets the number of bytes that
    /// were read since the last call, and is called every few milliseconds; then the result is
    /// [`CountError::Interrupted`].
    pub fn count_while(
        &mut self,
        text: &str,
        look: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), CountError> {
        let (counter, source) = (&mut *self.counter, self.source);
        let Some(scanner) = &mut counter.scanner else { return Err(CountError::NoPattern) };
        let (table, totals) = (&mut counter.tables[source], &mut counter.totals[source]);
        // One check a document instead of one a word: a document has at most as many words as bytes, and no word's
        // count is more than the words of its source.
        let most = text.len() as u64 * if counter.normalizer.is_some() { Form::MOST_GROWTH } else { 1 };
        if totals.words.checked_add(most).is_none() {
            return Err(CountError::Overflow { word: show(text.as_bytes()), count: most, source_index: source });
        }
        note(totals, text);
        let (mut words, mut cut_words) = (0, 0);
        let mut too_long = None;
        let (normalizer, ahead, max_word_bytes) = (&mut counter.normalizer, &mut counter.ahead, counter.max_word_bytes);
        let mut cut = Vec::new();
        let mut count_text = |text: &str| {
            let text = match normalizer {
                Some(normalizer) => normalizer.normalize_while(text, look)?,
                None => text,
            };
            scanner.scan_while(text, |batch| {
                let (window, bounds) = match batch {
                    Batch::Words(window, bounds) => (window, bounds),
                    Batch::Long(word) => {
                        cut_words += u64::from(word.len() > max_word_bytes);
                        let mut rest = word;
                        while !rest.is_empty() {
                            let (piece, behind) = rest.split_at(piece_end(rest, max_word_bytes));
                            if piece.len() > MAX_WORD_BYTES {
                                too_long = Some(piece.len());
                                return ControlFlow::Break(());
                            }
                            table.add(piece, 1);
                            words += 1;
                            rest = behind;
                        }
                        return look(word.len());
                    }
                };
                let is_long = |ends: &[u32]| (ends[1] - ends[0]) as usize > max_word_bytes;
                let any_long = max_word_bytes < usize::MAX && bounds.windows(2).any(is_long);
                if any_long {
                    cut_words += bounds.windows(2).filter(|ends| is_long(ends)).count() as u64;
                    cut_long_words(window, bounds, max_word_bytes, &mut cut);
                }
                let bounds = if any_long { cut.as_slice() } else { bounds };
                words += bounds.len().saturating_sub(1) as u64;
                too_long = table.count_words(window, bounds, ahead).err();
                if too_long.is_some() {
                    return ControlFlow::Break(());
                }
                look(bounds.last().map_or(0, |&bytes| bytes as usize))
            })
        };
        let ended = match &counter.specials {
            None => count_text(text),
            Some(cutter) => cutter.pieces(text).try_for_each(|piece| match piece {
                Piece::Text(text) => count_text(text),
                Piece::Special(_) => {
                    totals.special_tokens += 1;
                    ControlFlow::Continue(())
                }
            }),
        };
        totals.words += words;
        totals.cut_words += cut_words;
        match (ended, too_long) {
            (ControlFlow::Continue(()), _) => Ok(()),
            (ControlFlow::Break(()), Some(bytes)) => Err(CountError::WordTooLong { bytes }),
            (ControlFlow::Break(()), None) => Err(CountError::Interrupted),
        }
    }
}

impl Drop for Documents<'_> {
    fn drop(&mut self) {
        self.counter.tables[self.source].settle(&mut self.counter.ahead);
    }
}

/// `bounds` with the further ones that cut words of more than `most` bytes, into `cut`.
#[cold]
fn cut_long_words(window: &[u8], bounds: &[u32], most: usize, cut: &mut Vec<u32>) {
    cut.clear();
    for ends in bounds.windows(2) {
        let (mut start, end) = (ends[0] as usize, ends[1] as usize);
        while start < end {
            cut.push(start as u32);
            start += piece_end(&window[start..end], most);
        }
    }
    cut.extend(bounds.last());
}

/// The length of the first piece, of at most `most` bytes, of a word. It ends between two characters; in bytes that are
/// no UTF-8, anywhere.
fn piece_end(word: &[u8], most: usize) -> usize {
    if word.len() <= most {
        return word.len();
    }
    (most - 3..=most).rev().find(|&end| word[end] & 0xC0 != 0x80).unwrap_or(most)
}

fn note(totals: &mut Totals, text: &str) {
    totals.documents += 1;
    totals.bytes += text.len() as u64;
    totals.digest = totals.digest.wrapping_add(xxh3_128(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn drained(counter: &mut Counter) -> BTreeMap<Vec<u8>, u64> {
        let mut spill = counter.drain(1);
        let batches = std::iter::from_fn(|| spill.next_rows());
        batches
            .flat_map(|(_, rows)| (0..rows.len()).map(|i| (rows.word(i).to_vec(), rows.counts[i])).collect::<Vec<_>>())
            .collect()
    }

    /// Words that no offset reaches over are counted, and cut, as any others.
    #[test]
    fn words_out_of_reach_of_the_scanner() {
        let texts = ["a word, ".to_owned() + &"é日".repeat(300) + " and some <s>" + &"x".repeat(501), "b".repeat(200)];
        for &pattern in Pattern::ALL {
            for most in [None, Some(4), Some(7), Some(100), Some(1501)] {
                let [mut near, mut far] = [u32::MAX, 64].map(|reach| {
                    let mut counter = Counter::new(1, Some(pattern), &["<s>".to_owned()]).unwrap();
                    counter.scanner = counter.scanner.map(|scanner| scanner.with_reach(reach));
                    if let Some(most) = most { counter.cutting(most) } else { counter }
                });
                for text in &texts {
                    near.count_document(0, text).unwrap();
                    far.count_document(0, text).unwrap();
                }
                assert_eq!(near.totals(0), far.totals(0), "{} {most:?}", pattern.name());
                assert_eq!(drained(&mut near), drained(&mut far), "{} {most:?}", pattern.name());
            }
        }
    }

    #[test]
    fn one_document_can_be_stopped() {
        for (form, text) in [(None, "some words "), (Some(Form::Nfc), "한글 e\u{301} ")] {
            let text = text.repeat(1_000_000);
            let mut counter = Counter::new(1, Some(Pattern::GPT2), &[]).unwrap();
            if let Some(form) = form {
                counter = counter.normalizing(form);
            }
            let (mut calls, mut read) = (0, 0);
            let result = counter.documents(0).count_while(&text, &mut |bytes| {
                calls += 1;
                read += bytes;
                if calls > 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(matches!(result, Err(CountError::Interrupted)));
            assert!(calls == 6 && read > 0 && read < text.len(), "{calls} calls, {read} bytes");
        }
    }
}
