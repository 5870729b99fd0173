//! Batches of counts: the form in which they pass from step to step.

/// Rows of a batch at most.
pub const BATCH_ROWS: usize = 1 << 16;

/// Word bytes of a batch at most; a longer word has a batch of its own.
pub const BATCH_BYTES: usize = 16 << 20;

/// Longest word a count table holds: the offsets of [`Rows`], like Arrow's binary arrays, are 32-bit.
pub const MAX_WORD_BYTES: usize = i32::MAX as usize;

/// A batch of a count table in columns. Row `i` is the word `bytes[offsets[i]..offsets[i + 1]]`, the index of its
/// source, and how often that source has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    pub offsets: Vec<i32>, // one more than rows; the first is 0
    pub bytes: Vec<u8>,
    pub sources: Vec<u32>,
    pub counts: Vec<u64>,
}

impl Default for Rows {
    fn default() -> Self {
        Rows { offsets: vec![0], bytes: Vec::new(), sources: Vec::new(), counts: Vec::new() }
    }
}

impl Rows {
    pub fn new() -> Self {
        Rows::default()
    }

    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub fn word(&self, row: usize) -> &[u8] {
        &self.bytes[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// Appends a row.
    ///
    /// # Panics
    /// If the words together pass 2 GiB, the reach of the offsets; [`Rows::has_room`] stays far below.
    pub fn push(&mut self, word: &[u8], source: u32, count: u64) {
        self.bytes.extend_from_slice(word);
        self.offsets.push(i32::try_from(self.bytes.len()).expect("a batch of at most 2 GiB"));
        self.sources.push(source);
        self.counts.push(count);
    }

    /// Whether a word of this length may join the batch: at most [`BATCH_ROWS`] rows and [`BATCH_BYTES`] of words,
    /// but the first row always may.
    pub fn has_room(&self, word_bytes: usize) -> bool {
        self.is_empty() || self.len() < BATCH_ROWS && self.bytes.len() + word_bytes <= BATCH_BYTES
    }
}
