//! Merge sorted spills of counts into one, in bounded memory.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::convert::Infallible;

use crate::bytes::show;
use crate::rows::Rows;
use crate::scan::classes::{MARK, class_map};

/// A spill of counts, read in batches: rows sorted by (word, source), each pair once. The spills of one merge are of one
/// partition.
pub trait SpillReader {
    type Error;

    /// The next rows (an empty batch is passed over); `None` at the end.
    fn next_rows(&mut self) -> Result<Option<Rows>, Self::Error>;
}

/// A spill already in memory.
impl SpillReader for std::vec::IntoIter<Rows> {
    type Error = Infallible;

    fn next_rows(&mut self) -> Result<Option<Rows>, Infallible> {
        Ok(self.next())
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MergeError<E> {
    #[error(transparent)]
    Spill(E),
    #[error(
        "the count of {word} for source {source_index} is past 2^64 - 1: divide the counts of the tables to be added"
    )]
    Overflow { word: String, source_index: u32 },
    #[error("the words of source {source_index} are past 2^64 - 1 in all: divide the counts of the tables to be added")]
    TotalOverflow { source_index: u32 },
    #[error("a spill is not sorted by word and source: it has {word} too late; sort it, or write it anew")]
    Unsorted { word: String },
    #[error("a spill has source {source_index} where there are {sources} sources: its list of sources is another one")]
    UnknownSource { source_index: u32, sources: usize },
}

impl<E> MergeError<E> {
    /// Whether a spill is not what a counter has written, rather than that its counts are too large.
    pub fn is_damage(&self) -> bool {
        matches!(self, MergeError::Unsorted { .. } | MergeError::UnknownSource { .. })
    }
}

/// What a merge kept and dropped of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Different words kept.
    pub unique_words: u64,
    /// Occurrences of words kept.
    pub words: u64,
    /// Different words dropped by `min_word_count`.
    pub dropped_unique: u64,
    /// Occurrences of words dropped.
    pub dropped_words: u64,
    /// Occurrences of words kept that begin with a combining mark, behind a space or not: the pattern has cut them off
    /// the letter they belong to.
    pub mark_words: u64,
}

/// Merges spills, adding up the counts of equal (word, source). Rows with a count of 0 are passed over.
///
/// Memory: a batch of every spill, a batch of output, and the rows of one word. A row costs about 2 log2(spills)
/// comparisons, of one 64-bit number each as long as the first eight bytes of the words differ.
pub struct Merger<R> {
    waiting: Vec<R>, // spills not yet begun: all of them at first, none after the first call
    heads: BinaryHeap<Head<R>>,
    min_word_count: u64,
    tallies: Vec<Tally>,
    word: Vec<u8>,         // the word last gathered, kept or not
    rows: Vec<(u32, u64)>, // its sources and counts
    written: usize,        // how many of them are in batches
    any_word: bool,
}

impl<R: SpillReader> Merger<R> {
    /// `sources` is the number of sources; a word whose counts over all of them come to less than `min_word_count`
    /// is dropped (0 or 1 keeps all).
    pub fn new(spills: Vec<R>, sources: usize, min_word_count: u64) -> Self {
        Merger {
            heads: BinaryHeap::with_capacity(spills.len()),
            waiting: spills,
            min_word_count,
            tallies: vec![Tally::default(); sources],
            word: Vec::new(),
            rows: Vec::new(),
            written: 0,
            any_word: false,
        }
    }

    /// The next rows, sorted by (word, source), each pair once, in batches as [`Rows::has_room`] bounds them; the
    /// rows of one word may go over several. `None` at the end. After an error the merger is of no more use.
    pub fn next_rows(&mut self) -> Result<Option<Rows>, MergeError<R::Error>> {
        for spill in std::mem::take(&mut self.waiting) {
            self.heads.extend(Head::new(spill).map_err(MergeError::Spill)?);
        }
        let mut batch = Rows::new();
        loop {
            for &(source, count) in &self.rows[self.written..] {
                if !batch.has_room(self.word.len()) {
                    return Ok(Some(batch));
                }
                batch.push(&self.word, source, count);
                self.written += 1;
            }
            if !self.next_word()? {
                return Ok(Some(batch).filter(|batch| !batch.is_empty()));
            }
        }
    }

    /// What has been kept and dropped so far, by source; complete when [`Merger::next_rows`] has returned `None`.
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Gathers the next word and its rows: none if it is dropped. False at the end.
    fn next_word(&mut self) -> Result<bool, MergeError<R::Error>> {
        self.rows.clear();
        self.written = 0;
        let Some(head) = self.heads.peek() else { return Ok(false) };
        // A row that stands too late in its spill comes out of the merge behind a larger one: it is found here, or,
        // where only the sources are out of order, below.
        if self.any_word && head.word() <= self.word.as_slice() {
            return Err(MergeError::Unsorted { word: show(head.word()) });
        }
        self.any_word = true;
        self.word.clear();
        self.word.extend_from_slice(head.word());
        let prefix = head.prefix;
        let mut total = 0u64; // is only compared with the minimum, so it may stop at the top
        while let Some(mut head) = self.heads.peek_mut() {
            if head.prefix != prefix || head.word() != self.word {
                break;
            }
            let (source, count) = head.source_and_count();
            if source as usize >= self.tallies.len() {
                return Err(MergeError::UnknownSource { source_index: source, sources: self.tallies.len() });
            }
            total = total.saturating_add(count);
            match self.rows.last_mut() {
                Some((last, _)) if *last > source => return Err(MergeError::Unsorted { word: show(&self.word) }),
                Some((last, sum)) if *last == source => {
                    *sum = sum
                        .checked_add(count)
                        .ok_or_else(|| MergeError::Overflow { word: show(&self.word), source_index: source })?;
                }
                _ if count > 0 => self.rows.push((source, count)),
                _ => {}
            }
            if !head.advance().map_err(MergeError::Spill)? {
                PeekMut::pop(head);
            }
        }
        let keep = total >= self.min_word_count;
        let mark = begins_with_mark(&self.word);
        for &(source, count) in &self.rows {
            let tally = &mut self.tallies[source as usize];
            let (unique, words) = match keep {
                true => (&mut tally.unique_words, &mut tally.words),
                false => (&mut tally.dropped_unique, &mut tally.dropped_words),
            };
            *unique += 1;
            *words = words.checked_add(count).ok_or(MergeError::TotalOverflow { source_index: source })?;
            if keep && mark {
                tally.mark_words += count; // at most tally.words, which has just been checked
            }
        }
        if !keep {
            self.rows.clear();
        }
        Ok(true)
    }
}

fn begins_with_mark(word: &[u8]) -> bool {
    let text = word.strip_prefix(b" ").unwrap_or(word);
    // The first mark is U+0300: words of ASCII and Latin-1 letters, most of a table, end here.
    if text.first().is_none_or(|&byte| byte < 0xCC) {
        return false;
    }
    let character = text.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    character.is_some_and(|character| class_map()[character as usize] == MARK)
}

/// The first row of a spill that has not been merged yet.
///
/// Boxed, so that the heap moves 16 bytes; the prefix beside the box spares most looks into it.
struct Head<R> {
    prefix: u64,
    cursor: Box<Cursor<R>>,
}

struct Cursor<R> {
    spill: R,
    rows: Rows,
    row: usize, // less than rows.len()
}

impl<R: SpillReader> Head<R> {
    /// `None` if the spill is empty.
    fn new(spill: R) -> Result<Option<Self>, R::Error> {
        let mut head = Head { prefix: 0, cursor: Box::new(Cursor { spill, rows: Rows::new(), row: 0 }) };
        Ok(head.next_batch()?.then_some(head))
    }

    /// Goes to the next row; false at the end of the spill.
    fn advance(&mut self) -> Result<bool, R::Error> {
        if self.cursor.row + 1 == self.cursor.rows.len() {
            return self.next_batch();
        }
        self.cursor.row += 1;
        self.prefix = prefix(self.word());
        Ok(true)
    }

    fn next_batch(&mut self) -> Result<bool, R::Error> {
        while let Some(rows) = self.cursor.spill.next_rows()? {
            if !rows.is_empty() {
                self.cursor.rows = rows;
                self.cursor.row = 0;
                self.prefix = prefix(self.word());
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<R> Head<R> {
    fn word(&self) -> &[u8] {
        self.cursor.rows.word(self.cursor.row)
    }

    fn source_and_count(&self) -> (u32, u64) {
        (self.cursor.rows.sources[self.cursor.row], self.cursor.rows.counts[self.cursor.row])
    }
}

/// The first eight bytes, zero-padded, as a number that compares as they do: where two prefixes differ, so do the
/// words, the same way.
fn prefix(word: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = word.len().min(8);
    bytes[..length].copy_from_slice(&word[..length]);
    u64::from_be_bytes(bytes)
}

/// The head with the smallest (word, source) is the greatest, as the standard heap has its greatest on top. Equal
/// heads of different spills are added up, so which of them comes first is all one.
impl<R> Ord for Head<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .prefix
            .cmp(&self.prefix)
            .then_with(|| other.word().cmp(self.word()))
            .then_with(|| other.source_and_count().0.cmp(&self.source_and_count().0))
    }
}

impl<R> PartialOrd for Head<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> PartialEq for Head<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R> Eq for Head<R> {}
