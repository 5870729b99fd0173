//! The word table: open addressing over 32-byte slots, short words inline, long ones in an arena.

use super::sorted::Entry;
use super::{MAX_WORD_BYTES, partition_of};

/// Longest word kept inside its slot.
const INLINE: usize = 15;

/// Marks a slot whose word lies in the arena. Inline slots carry `length + 1`, from 1 to 16; an empty slot carries 0.
const LONG: u64 = 0xff << 56;

/// The part of `hi` below the mark: the last seven bytes of an inline word, or a place in the arena.
const LOW_56: u64 = (1 << 56) - 1;

/// Slots of a table that holds its first word.
const FIRST_SLOTS: usize = 1 << 10;

/// `MASKS[length]` keeps the first `length` bytes of two little-endian words.
const MASKS: [[u64; 2]; INLINE + 1] = {
    let mut masks = [[0; 2]; INLINE + 1];
    let mut length = 0;
    while length <= INLINE {
        let mask = (1u128 << (8 * length)) - 1;
        masks[length] = [mask as u64, (mask >> 64) as u64];
        length += 1;
    }
    masks
};

/// One slot of 32 bytes, so that none lies across two cache lines.
///
/// An inline word is its bytes, little-endian and zero-padded, in `lo` and the low seven bytes of
/// `hi`, and `length + 1` in the top byte of `hi`; a long word is its hash in `lo`, and `LONG` and its place in the
/// arena in `hi`. `order` is free then; a drain keeps partition and source there.
#[repr(C, align(32))]
#[derive(Clone, Copy, Default)]
struct Slot {
    lo: u64,
    hi: u64,
    count: u64,
}

impl Slot {
    fn is_empty(&self) -> bool {
        self.hi == 0
    }

    fn is_long(&self) -> bool {
        self.hi >= LONG
    }

    /// Place of a long word in the arena.
    fn place(&self) -> usize {
        (self.hi & LOW_56) as usize
    }
}

/// Long words one after another, each behind its length (u32, little-endian; see `MAX_WORD_BYTES`).
#[derive(Default)]
pub(super) struct Arena(Vec<u8>);

impl Arena {
    const LENGTH: usize = size_of::<u32>();

    fn push(&mut self, word: &[u8]) -> usize {
        let place = self.0.len();
        self.0.extend_from_slice(&(word.len() as u32).to_le_bytes());
        self.0.extend_from_slice(word);
        place
    }

    pub fn get(&self, place: usize) -> &[u8] {
        let (length, rest) = self.0[place..].split_first_chunk::<{ Self::LENGTH }>().expect("a place in this arena");
        &rest[..u32::from_le_bytes(*length) as usize]
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// Two secrets of a table's hash, drawn anew for every counter.
///
/// The hash is a folded multiplication (as in wyhash and foldhash): the 128-bit product of both halves, each xored
/// with a secret, high half xored onto the low one. Who writes a corpus does not know the secrets and sees no output
/// that depends on them (a drain is sorted), so he cannot aim at a slot; without them `multiply` is close to a
/// universal family, and words that differ in few bits spread like others (test `hostile_words_stay_apart`).
#[derive(Clone, Copy)]
pub(super) struct Seeds(u64, u64);

impl Seeds {
    pub fn random() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let state = RandomState::new();
        Seeds(state.hash_one(0), state.hash_one(1))
    }

    #[inline(always)]
    fn short(self, lo: u64, hi: u64) -> u64 {
        multiply(lo ^ self.0, hi ^ self.1)
    }

    /// Hash of a word of more than `INLINE` bytes: a chain over blocks of 16 bytes, the last one overlapping.
    fn long(self, word: &[u8]) -> u64 {
        let step = |hash: u64, block: &[u8; 16]| {
            let block = u128::from_le_bytes(*block);
            self.short(hash ^ block as u64, (block >> 64) as u64)
        };
        let (blocks, rest) = word.as_chunks::<16>();
        let mut hash = blocks.iter().fold(word.len() as u64, step);
        if !rest.is_empty() {
            hash = step(hash, word.last_chunk().expect("long words have 16 bytes"));
        }
        multiply(hash ^ self.1, self.0)
    }
}

#[inline(always)]
fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// `lo` and `hi` of an inline word.
#[inline(always)]
fn inline_key(window: &[u8], start: usize, length: usize) -> (u64, u64) {
    let block = match window[start..].first_chunk::<16>() {
        Some(block) => u128::from_le_bytes(*block),
        None => last_block(&window[start..start + length]),
    };
    let [keep_lo, keep_hi] = MASKS[length];
    (block as u64 & keep_lo, (block >> 64) as u64 & keep_hi | (length as u64 + 1) << 56)
}

/// A word that begins in the last 15 bytes of the text: loading 16 would leave the text.
#[cold]
fn last_block(word: &[u8]) -> u128 {
    let mut block = [0; 16];
    block[..word.len()].copy_from_slice(word);
    u128::from_le_bytes(block)
}

/// Word counts of one source. Holds no memory until its first word.
pub(super) struct Table {
    slots: Vec<Slot>, // a power of two of them, or none
    arena: Arena,
    seeds: Seeds,
    shift: u32, // 64 - log2(slots): a hash's top bits are its first slot
    words: usize,
    longest: usize,
}

impl Table {
    pub fn new(seeds: Seeds) -> Self {
        Table { slots: Vec::new(), arena: Arena::default(), seeds, shift: 64, words: 0, longest: 0 }
    }

    /// Number of different words.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Length of the longest word ever added (a drain does not forget it). Looked at only when a word is new.
    pub fn longest(&self) -> usize {
        self.longest
    }

    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.arena.capacity()
    }

    /// Counts the words between `bounds` (strictly increasing offsets into `window`). A word of more than
    /// `MAX_WORD_BYTES` is left out, and its length returned as the error.
    ///
    /// The caller has made sure that no count can pass u64 (see `Counter::count_document`).
    pub fn count_words(&mut self, window: &[u8], bounds: &[u32]) -> Result<(), usize> {
        for pair in bounds.windows(2) {
            let (start, end) = (pair[0] as usize, pair[1] as usize);
            let length = end - start;
            if length <= INLINE {
                let (lo, hi) = inline_key(window, start, length);
                self.add_inline(lo, hi, 1);
            } else if length <= MAX_WORD_BYTES {
                self.add_long(&window[start..end], 1);
            } else {
                return Err(length);
            }
        }
        Ok(())
    }

    /// Adds `count` (more than 0) to a word of at most `MAX_WORD_BYTES`; the caller has made sure that the sum fits.
    pub fn add(&mut self, word: &[u8], count: u64) {
        if word.len() <= INLINE {
            let (lo, hi) = inline_key(word, 0, word.len());
            self.add_inline(lo, hi, count);
        } else {
            self.add_long(word, count);
        }
    }

    #[inline(always)]
    fn add_inline(&mut self, lo: u64, hi: u64, count: u64) {
        let hash = self.seeds.short(lo, hi);
        if self.slots.is_empty() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = &mut self.slots[at & mask];
            if slot.lo == lo && slot.hi == hi {
                slot.count += count;
                return;
            }
            if slot.is_empty() {
                *slot = Slot { lo, hi, count };
                return self.added((hi >> 56) as usize - 1);
            }
            at += 1;
        }
    }

    #[inline(never)]
    fn add_long(&mut self, word: &[u8], count: u64) {
        let hash = self.seeds.long(word);
        if self.slots.is_empty() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = &mut self.slots[at & mask];
            if slot.lo == hash && slot.is_long() && self.arena.get(slot.place()) == word {
                slot.count += count;
                return;
            }
            if slot.is_empty() {
                // A place of 2^56 is out of any machine's memory.
                *slot = Slot { lo: hash, hi: LONG | self.arena.push(word) as u64, count };
                return self.added(word.len());
            }
            at += 1;
        }
    }

    /// Books a new word, and keeps at least 3/8 of the slots empty.
    #[inline(never)]
    fn added(&mut self, length: usize) {
        self.words += 1;
        self.longest = self.longest.max(length);
        if self.words * 8 > self.slots.len() * 5 {
            self.grow();
        }
    }

    /// Doubles the slots. Old and new exist together for a moment: one and a half times the memory after it.
    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(FIRST_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); size]);
        self.shift = 64 - size.trailing_zeros();
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            let hash = if slot.is_long() { slot.lo } else { self.seeds.short(slot.lo, slot.hi) };
            let mut at = (hash >> self.shift) as usize;
            while !self.slots[at & (size - 1)].is_empty() {
                at += 1;
            }
            self.slots[at & (size - 1)] = slot;
        }
    }

    /// Takes all words out, in no order; the table is as new, but for `longest`.
    ///
    /// Slots and entries have one size and alignment, and then the standard library collects in place.
    pub fn take(&mut self, source: u32, partitions: u32) -> (Vec<Entry>, Arena) {
        let new = Table { longest: self.longest, ..Table::new(self.seeds) };
        let Table { slots, arena, .. } = std::mem::replace(self, new);
        let entry = |slot: Slot| {
            if slot.is_long() {
                let word = arena.get(slot.place());
                return Entry::long(word, slot.place(), partition_of(word, partitions), source, slot.count);
            }
            let bytes = (u128::from(slot.hi) << 64 | u128::from(slot.lo)).to_le_bytes();
            let word = &bytes[..(slot.hi >> 56) as usize - 1];
            Entry::inline(word, partition_of(word, partitions), source, slot.count)
        };
        let entries = slots.into_iter().filter(|slot| !slot.is_empty()).map(entry).collect();
        (entries, arena)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots between a word's first slot and its own, on average.
    fn mean_distance(table: &Table) -> f64 {
        let mask = table.slots.len() - 1;
        let distances = table.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty()).map(|(at, slot)| {
            let hash = if slot.is_long() { slot.lo } else { table.seeds.short(slot.lo, slot.hi) };
            at.wrapping_sub((hash >> table.shift) as usize) & mask
        });
        distances.sum::<usize>() as f64 / table.len() as f64
    }

    #[test]
    fn hostile_words_stay_apart() {
        // With the secrets unknown, the best a corpus can do is structure: counters in one byte position or many,
        // in either half, in a long word's first block, middle block, or overlapping last one; few bits set; steps.
        const WORDS: u64 = 1 << 16;
        let spread = |number: u64, places: [usize; 3], length: usize| {
            let mut word = vec![b'a'; length];
            for (place, byte) in places.into_iter().zip(number.to_le_bytes()) {
                word[place] = byte;
            }
            word
        };
        type Shape<'a> = (&'a str, &'a dyn Fn(u64) -> Vec<u8>);
        let shapes: [Shape; 11] = [
            ("counter, little-endian", &|i| i.to_le_bytes().to_vec()),
            ("counter, big-endian", &|i| i.to_be_bytes().to_vec()),
            ("high bits", &|i| (i << 48).to_le_bytes().to_vec()),
            ("golden steps", &|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec()),
            ("two bits", &|i| (1u128 << (i % 113) | 1 << (i / 113 % 113)).to_le_bytes()[..15].to_vec()),
            ("second half", &|i| spread(i, [8, 9, 10], 15)),
            ("both halves", &|i| spread(i, [0, 8, 14], 15)),
            ("both halves alike", &|i| [i.to_le_bytes(), i.to_le_bytes()].as_flattened()[..15].to_vec()),
            ("long, first block", &|i| spread(i, [0, 1, 2], 50)),
            ("long, across blocks", &|i| spread(i, [15, 16, 33], 50)),
            ("long, last bytes", &|i| spread(i, [47, 48, 49], 50)),
        ];
        for (shape, word) in shapes {
            let mut table = Table::new(Seeds::random());
            for i in 0..WORDS {
                table.add(&word(i), 1);
            }
            // Linear probing at a load of at most 5/8 expects at most 0.84; a bad multiplier makes clusters, and a
            // quadratic table would be at thousands.
            let mean = mean_distance(&table);
            assert!(mean < 8.0, "{shape}: {mean}");
        }
    }

    #[test]
    fn slots_become_entries_in_place() {
        let mut table = Table::new(Seeds::random());
        (0..1000u32).for_each(|i| table.add(&i.to_le_bytes(), 1));
        let slots = table.slots.as_ptr().addr();
        let (entries, _) = table.take(0, 1);
        assert_eq!(entries.as_ptr().addr(), slots);
    }
}
