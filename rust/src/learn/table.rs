//! A count table kept in memory, for many trainings from it: words with any weights at once, without reading anything again.

use super::{LearnError, Words};
use crate::bytes::show;
use crate::rows::Rows;

/// Unique words and their count in each source, flat: the bytes of all words one after the other, 16 bytes a word
/// beside, and 12 bytes a row.
#[derive(Clone, Debug, Default)]
pub struct Table {
    source_count: usize,
    bytes: Vec<u8>,
    /// Where each word ends in `bytes`; it begins where the word before it ends.
    ends: Vec<u64>,
    /// Where each word's rows end in `sources` and `counts`.
    row_ends: Vec<u64>,
    sources: Vec<u32>,
    counts: Vec<u64>,
}

impl Table {
    /// An empty table of sources numbered `0..sources`.
    pub fn new(sources: usize) -> Table {
        Table { source_count: sources, ..Table::default() }
    }

    /// Adds rows, in their order. The rows of one word must follow one another, in whatever calls; those of the same source
    /// are summed up.
    pub fn push_rows(&mut self, rows: &Rows) -> Result<(), LearnError> {
        let sources = self.source_count;
        for row in 0..rows.len() {
            let (word, source) = (rows.word(row), rows.sources[row]);
            if source as usize >= sources {
                return Err(LearnError::UnknownSource { number: source, sources });
            }
            if self.is_empty() || self.word(self.len() - 1) != word {
                self.bytes.extend_from_slice(word);
                self.ends.push(self.bytes.len() as u64);
                self.row_ends.push(self.sources.len() as u64);
            }
            let start = if self.len() == 1 { 0 } else { self.row_ends[self.len() - 2] as usize };
            match self.sources[start..].iter().position(|&other| other == source) {
                Some(row_of_it) => {
                    let count = &mut self.counts[start + row_of_it];
                    let sum = count.checked_add(rows.counts[row]);
                    *count = sum.ok_or_else(|| LearnError::WordOverflow { word: show(word) })?;
                }
                None => {
                    self.sources.push(source);
                    self.counts.push(rows.counts[row]);
                    *self.row_ends.last_mut().expect("a word was opened above") += 1;
                }
            }
        }
        Ok(())
    }

    /// Gives back memory that was held for more rows.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.row_ends.shrink_to_fit();
        self.sources.shrink_to_fit();
        self.counts.shrink_to_fit();
    }

    /// The words to learn from; see [`Words::builder`] for what the arguments do.
    pub fn words(&self, weights: Vec<u64>, min_word_count: u64, jitter: bool) -> Result<Words, LearnError> {
        let mut builder = Words::builder(weights, min_word_count, jitter);
        builder.reserve(self.bytes.len(), self.len());
        self.rows().try_for_each(|(word, source, count)| builder.push(word, source, count))?;
        builder.finish()
    }

    /// All rows (word, source, count), those of one word together.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], u32, u64)> + Clone {
        self.frequent_rows(0)
    }

    /// The rows of the words that have at least this count over all sources.
    pub fn frequent_rows(&self, min_word_count: u64) -> impl Iterator<Item = (&[u8], u32, u64)> + Clone {
        let rows_of = |index: usize| {
            let start = if index == 0 { 0 } else { self.row_ends[index - 1] };
            start as usize..self.row_ends[index] as usize
        };
        // Only compared with a minimum, so the highest number will do for all higher ones.
        let sum = move |index| self.counts[rows_of(index)].iter().fold(0, |sum: u64, &count| sum.saturating_add(count));
        (0..self.len()).filter(move |&index| min_word_count == 0 || sum(index) >= min_word_count).flat_map(
            move |index| {
                let word = self.word(index);
                rows_of(index).map(move |row| (word, self.sources[row], self.counts[row]))
            },
        )
    }

    /// Number of sources, whether they have words or not.
    pub fn sources(&self) -> usize {
        self.source_count
    }

    /// Number of unique words.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no word at all.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of word `index`, which is below `len()`.
    pub fn word(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// Bytes of memory this table takes.
    pub fn memory_bytes(&self) -> usize {
        let wide = self.ends.capacity() + self.row_ends.capacity() + self.counts.capacity();
        self.bytes.capacity() + 8 * wide + 4 * self.sources.capacity()
    }
}
