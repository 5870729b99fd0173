//! How a merge list cuts the words that it was learned from, read off the array when learning ends.
//!
//! That is how the encoder cuts them. A pair of which both tokens exist is never made again once it has been joined:
//! tokens between two others do not vanish, so two tokens become neighbours only when one of them is made. Hence joining
//! each pair once, everywhere and from left to right, in the order of ranks, ends where always joining the leftmost pair of
//! the lowest rank does.

use super::arena::{Layout, Order, Symbol, Symbols, prefetch};
use super::{LearnError, Pulse, Words};
use crate::bytes::BYTE_IDS;

/// The tokens that each word is cut into: two or four bytes for a byte of text, and four or eight for a word.
pub struct Tokenized {
    symbols: Symbols,
    starts: Starts,
    /// Bytes of each token.
    lengths: Vec<u32>,
}

/// Where each word begins in the array; 0, where there is a border, for words of one byte, which are not in it.
enum Starts {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Tokenized {
    pub(crate) fn new(
        words: &Words,
        order: &Order,
        symbols: Symbols,
        lengths: Vec<u32>,
        pulse: &mut Pulse,
    ) -> Result<Tokenized, LearnError> {
        let mut layout = Layout::default();
        let mut each = |set: &mut dyn FnMut(usize, usize)| {
            order.words.iter().try_for_each(|&index| {
                let index = index as usize;
                set(index, layout.add(words.word(index).len(), words.counts()[index]));
                pulse.spend(1)
            })
        };
        let starts = if u32::try_from(order.size).is_ok() {
            let mut starts = vec![0; words.len()];
            each(&mut |index, start| starts[index] = start as u32)?;
            Starts::Narrow(starts)
        } else {
            let mut starts = vec![0; words.len()];
            each(&mut |index, start| starts[index] = start as u64)?;
            Starts::Wide(starts)
        };
        Ok(Tokenized { symbols, starts, lengths })
    }

    /// Calls `each` with the id of every token of word `index` of those that were learned from, until it fails. Words that
    /// are asked for in their order cost no waiting for memory.
    #[inline]
    pub fn try_each<E>(&self, words: &Words, index: usize, each: impl FnMut(u32) -> Result<(), E>) -> Result<(), E> {
        /// Words between the one that is read and the one that memory is asked for.
        const AHEAD: usize = 12;
        let start = |index| match &self.starts {
            Starts::Narrow(starts) => starts.get(index).map_or(0, |&start| start as usize),
            Starts::Wide(starts) => starts.get(index).map_or(0, |&start| start as usize),
        };
        let ahead = start(index + AHEAD);
        match &self.symbols {
            Symbols::Narrow(symbols) => {
                prefetch(symbols, ahead);
                self.walk(symbols, start(index), words.word(index), each)
            }
            Symbols::Wide(symbols) => {
                prefetch(symbols, ahead);
                self.walk(symbols, start(index), words.word(index), each)
            }
        }
    }

    #[inline]
    fn walk<S: Symbol, E>(
        &self,
        symbols: &[S],
        start: usize,
        word: &[u8],
        mut each: impl FnMut(u32) -> Result<(), E>,
    ) -> Result<(), E> {
        if start == 0 {
            return word.iter().try_for_each(|&byte| each(BYTE_IDS[usize::from(byte)]));
        }
        let mut place = start;
        while symbols[place] != S::BORDER {
            let id = symbols[place].id();
            each(id)?;
            place += self.lengths[id as usize] as usize;
        }
        Ok(())
    }

    /// Bytes of memory this takes.
    pub fn memory_bytes(&self) -> usize {
        let symbols = match &self.symbols {
            Symbols::Narrow(symbols) => size_of_val(symbols.as_slice()),
            Symbols::Wide(symbols) => size_of_val(symbols.as_slice()),
        };
        let starts = match &self.starts {
            Starts::Narrow(starts) => size_of_val(starts.as_slice()),
            Starts::Wide(starts) => size_of_val(starts.as_slice()),
        };
        symbols + starts + size_of_val(self.lengths.as_slice())
    }
}
