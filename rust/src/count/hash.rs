//! The word table: open addressing over slots of 24 bytes, short words inline, long ones in an arena.

use std::mem::MaybeUninit;

use super::long::Arena;
use super::sorted::{Entries, Entry};
use crate::rows::MAX_WORD_BYTES;

/// Longest word kept inside its slot.
const INLINE: usize = 15;

/// Marks a slot whose word lies in the arena. Inline slots carry `length + 1`, from 1 to 16; an empty slot carries 0.
const LONG: u64 = 0xff << 56;

/// The part of `hi` below the mark: the last seven bytes of an inline word, or a place in the arena.
const LOW_56: u64 = (1 << 56) - 1;

/// Slots of a table that holds its first word.
const FIRST_SLOTS: usize = 1 << 10;

/// How `lo` and `hi` of an inline word are made of the 16 bytes at its beginning.
#[derive(Clone, Copy)]
struct Mask {
    lo: u64,  // keeps the word's bytes
    hi: u64,  // keeps the word's bytes
    tag: u64, // `length + 1` in the top byte
}

/// By length.
const MASKS: [Mask; INLINE + 1] = {
    let mut masks = [Mask { lo: 0, hi: 0, tag: 0 }; INLINE + 1];
    let mut length = 0;
    while length <= INLINE {
        let keep = (1u128 << (8 * length)) - 1;
        masks[length] = Mask { lo: keep as u64, hi: (keep >> 64) as u64, tag: (length as u64 + 1) << 56 };
        length += 1;
    }
    masks
};

/// One slot.
///
/// An inline word is its bytes, little-endian and zero-padded, in `lo` and the low seven bytes of `hi`, and
/// `length + 1` in the top byte of `hi`. A long word is its hash in `lo`, and `LONG` and its place in the arena in `hi`.
///
/// Aligned to 32 bytes no slot would lie across two cache lines, but the table would be a third larger: 24 bytes count
/// 3 to 8 % faster where other processes share the last cache. A dense list of slots behind an index of 32-bit numbers
/// takes a third less memory still, but costs two loads a word: 15 to 20 % slower.
#[repr(C)]
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

/// Two secrets of the hash, drawn anew for every counter.
///
/// The hash is made of folded multiplications (as in wyhash and foldhash: the high half of the 128-bit product xored
/// onto the low one), of the two halves of a word, each xored with a secret, and then of the result. Who writes a corpus
/// does not know the secrets and sees no output that depends on them (a drain is sorted), so he cannot aim at a slot.
/// Nor does structure alone pile words up (test `hostile_words_stay_apart`): with one multiplication it did, 65,536
/// little-endian numbers lay 100 to 400 slots from their first one on average in 6 % of all draws; with two, never
/// above 1, for 3 % more instructions.
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
        multiply(multiply(lo ^ self.0, hi ^ self.1), GOLDEN)
    }

    /// Hash of a word of more than `INLINE` bytes: a chain over blocks of 16 bytes, the last one overlapping.
    #[inline(never)]
    fn long(self, word: &[u8]) -> u64 {
        let step = |hash: u64, block: &[u8; 16]| {
            let block = u128::from_le_bytes(*block);
            multiply(hash ^ block as u64 ^ self.0, (block >> 64) as u64 ^ self.1)
        };
        let (blocks, rest) = word.as_chunks::<16>();
        let mut hash = blocks.iter().fold(word.len() as u64, step);
        if !rest.is_empty() {
            hash = step(hash, word.last_chunk().expect("long words have 16 bytes"));
        }
        multiply(hash, GOLDEN)
    }
}

/// 2^64 divided by the golden ratio: its multiples spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// An inline word on its way to the table.
#[derive(Clone, Copy, Default)]
struct Key {
    lo: u64, // as in its slot
    hi: u64, // as in its slot
    hash: u64,
}

/// A longer one.
struct LongKey {
    hash: u64,
    start: usize,
    end: usize,
}

/// `lo` and `hi` of an inline word.
#[inline(always)]
fn halves(window: &[u8], start: usize, length: usize) -> (u64, u64) {
    let block = match window.get(start..start + 16) {
        Some(block) => u128::from_le_bytes(block.try_into().expect("16 bytes")),
        // So near to the end, the last 16 bytes are loaded, and those before the word are shifted out.
        None => match window.last_chunk() {
            Some(block) => u128::from_le_bytes(*block) >> (8 * (start + 16 - window.len())),
            None => padded(&window[start..start + length]),
        },
    };
    let mask = &MASKS[length];
    (block as u64 & mask.lo, (block >> 64) as u64 & mask.hi | mask.tag)
}

/// The bytes of a word whose text has less than 16 of them.
#[cold]
fn padded(word: &[u8]) -> u128 {
    let mut block = [0; 16];
    block[..word.len()].copy_from_slice(word);
    u128::from_le_bytes(block)
}

/// So many words at a time are hashed, and their slots asked for.
const CHUNK: usize = 64;

/// Up to so many inline words wait for their slots: those of rarer words are in no near cache, and this way they come
/// all at once.
const AHEAD: usize = 2 * CHUNK;

/// Words on their way to a table. Inline ones may wait for those of further documents: in short documents, each would
/// otherwise wait for the slots of its few words.
pub(super) struct Ahead {
    keys: Box<[Key; AHEAD]>,
    waiting: usize,
    long: Vec<LongKey>,
}

impl Ahead {
    pub fn new() -> Self {
        Ahead { keys: Box::new([Key::default(); AHEAD]), waiting: 0, long: Vec::with_capacity(CHUNK) }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

#[inline(always)]
fn prefetch(slots: &[Slot], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint, it faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slots.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slots, at);
}

/// Asks the system to back memory that nothing has touched yet with huge pages: most words of a large table are not only
/// in no near cache, their pages are in no near table of addresses either. It may refuse.
fn advise_huge_pages(memory: &mut [MaybeUninit<Slot>]) {
    #[cfg(target_os = "linux")]
    {
        // A huge page has two megabytes; on other processors the system has the last word.
        const WORTH_IT: usize = 4 << 20;
        const PAGE: usize = 4 << 10;
        let bytes = size_of_val(memory);
        if bytes >= WORTH_IT {
            let start = memory.as_mut_ptr().cast::<u8>();
            let before = start.align_offset(PAGE);
            // SAFETY: the range lies inside `memory`. The advice changes neither what is there nor who may touch it.
            unsafe { libc::madvise(start.add(before).cast(), (bytes - before) / PAGE * PAGE, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// The slot of a word, or the empty one that ends the search for it. There is always an empty one (`Table::reserve`).
#[inline(always)]
fn find(slots: &[Slot], first: usize, same: impl Fn(&Slot) -> bool) -> usize {
    let mask = slots.len() - 1;
    let mut at = first;
    while !same(&slots[at]) && !slots[at].is_empty() {
        at = (at + 1) & mask;
    }
    at
}

/// Counts inline words that are in the table, until there is another: its index.
#[inline(always)]
fn count_known(slots: &mut [Slot], shift: u32, keys: &[Key]) -> Option<usize> {
    let mask = slots.len() - 1;
    for (i, key) in keys.iter().enumerate() {
        let mut at = (key.hash >> shift) as usize;
        loop {
            let slot = &mut slots[at & mask];
            if slot.lo == key.lo && slot.hi == key.hi {
                slot.count += 1;
                break;
            }
            if slot.is_empty() {
                return Some(i);
            }
            at += 1;
        }
    }
    None
}

/// Word counts of one source. Holds no memory until its first word.
pub(super) struct Table {
    slots: Vec<Slot>, // a power of two of them, or none
    arena: Arena,
    seeds: Seeds,
    shift: u32, // 64 - log2(slots): the top bits of its hash are the first slot of a word
    words: usize,
    longest: usize,
}

impl Table {
    pub fn new(seeds: Seeds) -> Self {
        Table { slots: Vec::new(), arena: Arena::default(), seeds, shift: 63, words: 0, longest: 0 }
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

    /// Counts the words between `bounds` (strictly increasing offsets into `window`), but for the last of them, which
    /// [`Table::settle`] counts. At a word of more than `MAX_WORD_BYTES` it stops and returns its length.
    ///
    /// The caller has made sure that no count can pass u64 (see `Counter::count_document`).
    pub fn count_words(&mut self, window: &[u8], mut bounds: &[u32], ahead: &mut Ahead) -> Result<(), usize> {
        while bounds.len() > 1 {
            if ahead.waiting > AHEAD - CHUNK {
                self.settle(ahead);
            }
            let words = CHUNK.min(bounds.len() - 1);
            let (seeds, shift) = (self.seeds, self.shift);
            let mut free = ahead.keys[ahead.waiting..].iter_mut();
            for pair in bounds[..=words].windows(2) {
                let (start, end) = (pair[0] as usize, pair[1] as usize);
                let hash = if end - start <= INLINE {
                    let (lo, hi) = halves(window, start, end - start);
                    let hash = seeds.short(lo, hi);
                    *free.next().expect("room for a chunk") = Key { lo, hi, hash };
                    hash
                } else {
                    let hash = seeds.long(&window[start..end]);
                    ahead.long.push(LongKey { hash, start, end });
                    hash
                };
                prefetch(&self.slots, (hash >> shift) as usize);
            }
            ahead.waiting = AHEAD - free.len();
            self.reserve(ahead.long.len());
            for LongKey { hash, start, end } in ahead.long.drain(..) {
                if end - start > MAX_WORD_BYTES {
                    return Err(end - start);
                }
                self.add_long(&window[start..end], hash, 1);
            }
            bounds = &bounds[words..];
        }
        Ok(())
    }

    /// Counts the words that wait.
    pub fn settle(&mut self, ahead: &mut Ahead) {
        let keys = &ahead.keys[..ahead.waiting];
        ahead.waiting = 0;
        if keys.is_empty() {
            return;
        }
        self.reserve(keys.len());
        let mut done = 0;
        while let Some(known) = count_known(&mut self.slots, self.shift, &keys[done..]) {
            done += known;
            self.add_inline(&keys[done], 1);
            done += 1;
        }
    }

    /// Adds `count` (more than 0) to a word of at most `MAX_WORD_BYTES`; the caller has made sure that the sum fits.
    pub fn add(&mut self, word: &[u8], count: u64) {
        self.reserve(1);
        if word.len() <= INLINE {
            let (lo, hi) = halves(word, 0, word.len());
            self.add_inline(&Key { lo, hi, hash: self.seeds.short(lo, hi) }, count);
        } else {
            self.add_long(word, self.seeds.long(word), count);
        }
    }

    /// Adds to an inline word. The table has room (`reserve`).
    fn add_inline(&mut self, &Key { lo, hi, hash }: &Key, count: u64) {
        let at = find(&self.slots, self.first_slot(hash), |slot| slot.lo == lo && slot.hi == hi);
        if self.slots[at].is_empty() {
            self.slots[at] = Slot { lo, hi, count: 0 };
            self.note_new((hi >> 56) as usize - 1);
        }
        self.slots[at].count += count;
    }

    /// Adds to a long word. The table has room (`reserve`).
    #[inline(never)]
    fn add_long(&mut self, word: &[u8], hash: u64, count: u64) {
        let at = find(&self.slots, self.first_slot(hash), |slot| {
            slot.lo == hash && slot.is_long() && self.arena.get(slot.place()) == word
        });
        if self.slots[at].is_empty() {
            let place = self.arena.push(word) as u64; // 2^56 is past any machine's memory
            self.slots[at] = Slot { lo: hash, hi: LONG | place, count: 0 };
            self.note_new(word.len());
        }
        self.slots[at].count += count;
    }

    fn note_new(&mut self, length: usize) {
        self.words += 1;
        self.longest = self.longest.max(length);
    }

    #[inline(always)]
    fn first_slot(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Makes room for so many more words: at least 3/8 of the slots stay empty.
    fn reserve(&mut self, words: usize) {
        while (self.words + words) * 8 > self.slots.len() * 5 {
            self.grow();
        }
    }

    /// Doubles the slots. Old and new exist together for a moment: one and a half times the memory after it.
    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(FIRST_SLOTS);
        let mut slots = Vec::with_capacity(size);
        advise_huge_pages(slots.spare_capacity_mut());
        slots.resize(size, Slot::default());
        let old = std::mem::replace(&mut self.slots, slots);
        self.shift = 64 - size.trailing_zeros();
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            let hash = if slot.is_long() { slot.lo } else { self.seeds.short(slot.lo, slot.hi) };
            let at = find(&self.slots, self.first_slot(hash), |_| false);
            self.slots[at] = slot;
        }
    }

    /// Moves all words to `entries`, in no order, and returns the arena that has the long ones. The table is as new, but
    /// for `longest`.
    pub fn take(&mut self, source: u32, entries: &mut Entries) -> Arena {
        let new = Table { longest: self.longest, ..Table::new(self.seeds) };
        let Table { slots, arena, .. } = std::mem::replace(self, new);
        for slot in slots.iter().filter(|slot| !slot.is_empty()) {
            if slot.is_long() {
                let word = arena.get(slot.place());
                entries.push(word, Entry::long(word, slot.place(), source, slot.count));
            } else {
                let bytes = (u128::from(slot.hi) << 64 | u128::from(slot.lo)).to_le_bytes();
                let word = &bytes[..(slot.hi >> 56) as usize - 1];
                entries.push(word, Entry::inline(word, source, slot.count));
            }
        }
        arena
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
            // Linear probing expects 0.5 at this load of one half.
            let mean = mean_distance(&table);
            assert!(mean < 1.0, "{shape}: {mean}");
        }
    }
}
