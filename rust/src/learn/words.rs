//! The learner's input: each word once, with one weighted count.

use xxhash_rust::xxh3::xxh3_64;

use super::LearnError;
use crate::bytes::show;
use crate::rows::Rows;

/// Unique words and their weighted counts, flat: the bytes of all words one after the other, and 16 bytes a word beside.
#[derive(Clone, Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    /// Where each word ends in `bytes`; it begins where the word before it ends.
    ends: Vec<u64>,
    counts: Vec<u64>,
}

impl Words {
    /// Starts a table from the rows of a count table: `weights[source]` multiplies the counts of that source, and a word
    /// whose unweighted counts sum to less than `min_word_count` is left out. A word of weight 0 is left out as well.
    /// With `jitter` the sum is multiplied by [`jitter`] of the word.
    pub fn builder(weights: Vec<u64>, min_word_count: u64, jitter: bool) -> WordsBuilder {
        WordsBuilder { weights, min_word_count, jitter, words: Words::default(), open: None }
    }

    /// Number of unique words.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there is no word at all.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The bytes of word `index`, which is below `len()`.
    pub fn word(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// The weighted counts, word by word.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// All words with their weighted counts, in the order in which they came.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], u64)> {
        (0..self.len()).map(|index| (self.word(index), self.counts[index]))
    }

    /// Bytes of memory this table takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + 8 * (self.ends.capacity() + self.counts.capacity())
    }
}

/// Each word with its count, in the order given; words are unique and counts positive.
impl<W: AsRef<[u8]>> FromIterator<(W, u64)> for Words {
    fn from_iter<I: IntoIterator<Item = (W, u64)>>(pairs: I) -> Words {
        let mut words = Words::default();
        for (word, count) in pairs {
            words.bytes.extend_from_slice(word.as_ref());
            words.ends.push(words.bytes.len() as u64);
            words.counts.push(count);
        }
        words
    }
}

/// Sums the rows of each word; see [`Words::builder`].
pub struct WordsBuilder {
    weights: Vec<u64>,
    min_word_count: u64,
    jitter: bool,
    words: Words,
    /// The word whose rows are still coming. Its bytes stand at the end of `words.bytes`, without an entry in `ends`.
    open: Option<Open>,
}

struct Open {
    start: usize,
    raw: u64,
    weighted: u64,
}

impl WordsBuilder {
    /// Makes room for as many words, and bytes of words, as will be pushed.
    pub(super) fn reserve(&mut self, bytes: usize, words: usize) {
        self.words.bytes.reserve(bytes);
        self.words.ends.reserve(words);
        self.words.counts.reserve(words);
    }

    /// Adds one row. Rows of one word must follow one another, in whatever calls.
    pub fn push(&mut self, word: &[u8], source: u32, count: u64) -> Result<(), LearnError> {
        let sources = self.weights.len();
        let weight = *self.weights.get(source as usize).ok_or(LearnError::UnknownSource { number: source, sources })?;
        match &self.open {
            Some(open) if self.words.bytes[open.start..] == *word => {}
            _ => {
                self.close()?;
                self.open = Some(Open { start: self.words.bytes.len(), raw: 0, weighted: 0 });
                self.words.bytes.extend_from_slice(word);
            }
        }
        let open = self.open.as_mut().expect("opened above");
        // Only compared with a minimum, so the highest number will do for all higher ones.
        open.raw = open.raw.saturating_add(count);
        let sum = weight.checked_mul(count).and_then(|weighted| open.weighted.checked_add(weighted));
        open.weighted = sum.ok_or_else(|| LearnError::WordOverflow { word: show(word) })?;
        Ok(())
    }

    /// Adds all rows, in their order.
    pub fn push_rows(&mut self, rows: &Rows) -> Result<(), LearnError> {
        (0..rows.len()).try_for_each(|row| self.push(rows.word(row), rows.sources[row], rows.counts[row]))
    }

    /// Closes the last word and returns the table.
    pub fn finish(mut self) -> Result<Words, LearnError> {
        self.close()?;
        self.words.bytes.shrink_to_fit();
        self.words.ends.shrink_to_fit();
        self.words.counts.shrink_to_fit();
        Ok(self.words)
    }

    fn close(&mut self) -> Result<(), LearnError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        if open.raw < self.min_word_count || open.weighted == 0 {
            self.words.bytes.truncate(open.start);
            return Ok(());
        }
        if self.jitter {
            let word = &self.words.bytes[open.start..];
            let product = open.weighted.checked_mul(jitter(word));
            open.weighted = product.ok_or_else(|| LearnError::WordOverflow { word: show(word) })?;
        }
        self.words.ends.push(self.words.bytes.len() as u64);
        self.words.counts.push(open.weighted);
        Ok(())
    }
}

/// What a word's weighted count is multiplied by where jitter is asked for: 900 + XXH3-64 (seed 0) of the word mod 201,
/// which is from 900 to 1100, so that the counts are in thousandths then and no rounding is needed.
///
/// The smaller a source, the more of its words have the same count, and they become tokens or not all together; a search
/// for weights then meets steps. A tenth up or down, the same in every run, takes them apart.
pub fn jitter(word: &[u8]) -> u64 {
    900 + xxh3_64(word) % 201
}
