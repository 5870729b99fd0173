//! All words as one array of token ids.
//!
//! ```text
//!   |  t  h  e  |  t  o  |        at the start: bytes, and borders between words
//!   |  th h  e  |  t  o  |        t+h joined: the id at the first and at the last position of the token
//!   | the .. the|  t  o  |        th+e joined: what lies between is marked as inside
//! ```
//!
//! A token's length follows from its id, so the neighbours of a token at `p` are at `p - 1` (the last position of the
//! one, which holds its id) and at `p + length` (the first of the other). Positions never move, so a place written into
//! a list stays meaningful: if a token with id `a` ever began at `p`, then `symbols[p] == a` says that it still does. For
//! when that token has been joined into a longer one, `p` holds a newer id, or the mark for inside.
//!
//! Words lie in the order of falling count, and words of another count begin at another block of 16 symbols. So one
//! number a block says what a place weighs, and places that weigh much lie close together.

use super::{LearnError, Pulse, Words};
use crate::bytes::{BYTE_IDS, show};

/// A token id in the array, or one of two marks: 16 bits while the vocabulary allows, which halves the array.
pub(crate) trait Symbol: Copy + Eq {
    /// Stands between words.
    const BORDER: Self;
    /// Stands inside a token, between its first and its last position.
    const INSIDE: Self;
    /// Number of ids that can be told from the marks.
    const IDS: usize;

    fn of(id: u32) -> Self;
    fn id(self) -> u32;
    fn wrap(symbols: Vec<Self>) -> Symbols;
}

impl Symbol for u16 {
    const BORDER: u16 = u16::MAX;
    const INSIDE: u16 = u16::MAX - 1;
    const IDS: usize = u16::MAX as usize - 1;

    fn of(id: u32) -> u16 {
        id as u16
    }

    fn id(self) -> u32 {
        u32::from(self)
    }

    fn wrap(symbols: Vec<u16>) -> Symbols {
        Symbols::Narrow(symbols)
    }
}

impl Symbol for u32 {
    const BORDER: u32 = u32::MAX;
    const INSIDE: u32 = u32::MAX - 1;
    const IDS: usize = u32::MAX as usize - 1;

    fn of(id: u32) -> u32 {
        id
    }

    fn id(self) -> u32 {
        self
    }

    fn wrap(symbols: Vec<u32>) -> Symbols {
        Symbols::Wide(symbols)
    }
}

/// The symbols of an array, of either width.
pub(crate) enum Symbols {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

/// A position in the array: 32 bits while the array allows, since the lists of places are most of the memory.
pub(crate) trait Place: Copy {
    /// Largest array whose positions fit.
    const LIMIT: usize;

    fn of(position: usize) -> Self;
    fn position(self) -> usize;
}

impl Place for u32 {
    const LIMIT: usize = u32::MAX as usize;

    fn of(position: usize) -> u32 {
        position as u32
    }

    fn position(self) -> usize {
        self as usize
    }
}

impl Place for u64 {
    const LIMIT: usize = usize::MAX;

    fn of(position: usize) -> u64 {
        position as u64
    }

    fn position(self) -> usize {
        self as usize
    }
}

/// Symbols that share one weight.
pub(crate) const BLOCK: usize = 16;

pub(crate) struct Arena<S> {
    pub symbols: Vec<S>,
    /// What the words in each block of symbols weigh.
    pub weights: Vec<u64>,
    layout: Layout,
}

impl<S: Symbol> Arena<S> {
    /// Lays the words out.
    pub fn new(words: &Words, order: &Order, pulse: &mut Pulse) -> Result<Arena<S>, LearnError> {
        let mut arena = Arena::with_capacity(order.size);
        for &index in &order.words {
            arena.push(words.word(index as usize), words.counts()[index as usize]);
            pulse.spend(words.word(index as usize).len())?;
        }
        Ok(arena)
    }

    pub fn with_capacity(symbols: usize) -> Arena<S> {
        let weights = Vec::with_capacity(symbols.div_ceil(BLOCK));
        Arena { symbols: Vec::with_capacity(symbols), weights, layout: Layout::default() }
    }

    /// Lays one more word out.
    pub fn push(&mut self, word: &[u8], count: u64) {
        self.symbols.resize(self.layout.add(word.len(), count), S::BORDER);
        self.symbols.extend(word.iter().map(|&byte| S::of(BYTE_IDS[usize::from(byte)])));
        self.symbols.push(S::BORDER);
        self.weights.resize(self.symbols.len().div_ceil(BLOCK), count);
    }
}

/// Asks for the memory around `values[index]`, which will be read soon. No index can do harm.
#[inline(always)]
pub(crate) fn prefetch<T>(values: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and never faults, whatever the address. The instruction is
    // part of SSE, which every x86-64 processor has.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().wrapping_add(index).cast());
    }
    // Elsewhere stable Rust has no such thing, and the processor looks ahead as far as it can by itself.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, index);
}

/// The words that hold a pair, in the order of falling count; of equals, in that of the table.
pub(crate) struct Order {
    pub words: Vec<u32>,
    /// Length of the array that they will take.
    pub size: usize,
}

impl Order {
    /// Sorts the words. The result of learning does not depend on the order, only its speed does.
    ///
    /// A radix sort, because it can be interrupted, and because a sort by comparison takes a second for ten million words
    /// where this takes a third.
    pub fn new(words: &Words, pulse: &mut Pulse) -> Result<Order, LearnError> {
        const BITS: u32 = 16;
        let counts = words.counts();
        let (mut order, highest) = words_with_pairs(words, pulse)?;
        let mut sorted = vec![0; order.len()];
        for shift in (0..u64::BITS).step_by(BITS as usize).take_while(|&shift| highest >> shift > 0) {
            let digit = |index: u32| !(counts[index as usize] >> shift) as usize % (1 << BITS);
            let mut starts = vec![0; (1 << BITS) + 1];
            for chunk in order.chunks(Pulse::PERIOD) {
                chunk.iter().for_each(|&index| starts[digit(index) + 1] += 1);
                pulse.spend(chunk.len())?;
            }
            for value in 0..1 << BITS {
                starts[value + 1] += starts[value];
            }
            for chunk in order.chunks(Pulse::PERIOD) {
                for &index in chunk {
                    let place: &mut usize = &mut starts[digit(index)];
                    sorted[*place] = index;
                    *place += 1;
                }
                pulse.spend(chunk.len())?;
            }
            std::mem::swap(&mut order, &mut sorted);
        }
        let mut layout = Layout::default();
        for &index in &order {
            layout.add(words.word(index as usize).len(), counts[index as usize]);
            pulse.spend(1)?;
        }
        Ok(Order { words: order, size: layout.size })
    }
}

/// The words of two bytes and more, and the highest count of any word.
fn words_with_pairs(words: &Words, pulse: &mut Pulse) -> Result<(Vec<u32>, u64), LearnError> {
    let number = u32::try_from(words.len()).map_err(|_| LearnError::TooManyWords { words: words.len() })?;
    let mut order = Vec::with_capacity(words.len());
    let mut highest = 0;
    for index in 0..number {
        let (word, count) = (words.word(index as usize), words.counts()[index as usize]);
        if u32::try_from(word.len()).is_err() {
            return Err(LearnError::WordTooLong { word: show(word), bytes: word.len() });
        }
        if word.len() > 1 {
            order.push(index);
            highest = highest.max(count);
        }
        pulse.spend(1)?;
    }
    Ok((order, highest))
}

/// Where words come to lie: one border at the beginning and one behind each word, and each count in blocks of its own.
pub(crate) struct Layout {
    pub size: usize,
    last: Option<u64>,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { size: 1, last: None }
    }
}

impl Layout {
    /// Where the next word begins, if it has this length and count.
    pub fn add(&mut self, length: usize, count: u64) -> usize {
        if self.last.is_some_and(|last| last != count) {
            self.size = self.size.next_multiple_of(BLOCK);
        }
        self.last = Some(count);
        let start = self.size;
        self.size += length + 1;
        start
    }
}
