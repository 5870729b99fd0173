//! The pairs that may still be merged: counts, lists of places, and which comes next.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use super::arena::{Arena, BLOCK, Place, Symbol};
use super::{LearnError, Pulse};

/// A pair and the count it had when it was last looked at, which is its count or higher, because counts only fall. The
/// greatest is the pair with the highest count, and of equals the one with the smallest ids: one comparison of numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate(u128);

impl Candidate {
    pub fn new(count: u64, pair: (u32, u32)) -> Candidate {
        Candidate(u128::from(count) << 64 | u128::from(!key(pair)))
    }

    pub fn count(self) -> u64 {
        (self.0 >> 64) as u64
    }

    pub fn pair(self) -> (u32, u32) {
        let key = !(self.0 as u64);
        ((key >> 32) as u32, key as u32)
    }
}

/// The pair to merge next.
pub(crate) struct Best<P> {
    pub pair: (u32, u32),
    pub count: u64,
    /// Where it stood when it was stored.
    pub places: Vec<P>,
}

pub(crate) struct Pairs<P> {
    index: PairIndex,
    counts: Vec<u64>,
    /// Where each pair stood when it was stored, ascending. Some places may hold something else by now.
    places: Vec<Vec<P>>,
    /// One entry for each pair that has not been merged or dropped.
    queue: BinaryHeap<Candidate>,
    places_written: usize,
}

impl<P: Place> Pairs<P> {
    /// The pairs of bytes with at least the count `threshold`.
    pub fn of_bytes<S: Symbol>(
        arena: &Arena<S>,
        threshold: u64,
        max_token_bytes: Option<usize>,
        pulse: &mut Pulse,
    ) -> Result<Pairs<P>, LearnError> {
        const NONE: u32 = u32::MAX;
        let mut pairs = Pairs {
            index: PairIndex::new(),
            counts: Vec::new(),
            places: Vec::new(),
            queue: BinaryHeap::new(),
            places_written: 0,
        };
        let mut sums = vec![(0u64, 0usize); 1 << 16];
        let everywhere = 0..arena.symbols.len();
        each_byte_pair(arena, everywhere.clone(), pulse, |place, pair| {
            let (count, number) = &mut sums[pair];
            *count = count.checked_add(arena.weights[place / BLOCK]).ok_or_else(|| {
                let (left, right) = (pair >> 8, pair & 255);
                LearnError::pair_overflow(left as u32, right as u32)
            })?;
            *number += 1;
            Ok(())
        })?;
        if max_token_bytes.is_some_and(|longest| longest < 2) {
            return Ok(pairs);
        }
        let mut stored = vec![NONE; 1 << 16];
        for (pair, &(count, number)) in sums.iter().enumerate().filter(|(_, sum)| sum.0 >= threshold) {
            stored[pair] = pairs.store((pair as u32 >> 8, pair as u32 & 255), count, number);
        }
        each_byte_pair(arena, everywhere, pulse, |place, pair| {
            if stored[pair] != NONE {
                pairs.add_place(stored[pair], place);
            }
            Ok(())
        })?;
        Ok(pairs)
    }

    /// Adds a pair that is not there yet, with room for as many places as will be added.
    pub fn store(&mut self, pair: (u32, u32), count: u64, places: usize) -> u32 {
        // A pair takes a hundred bytes, so four billion of them do not arise.
        let index = u32::try_from(self.counts.len()).expect("fewer than 2^32 pairs");
        self.index.insert(pair, index);
        self.counts.push(count);
        self.places.push(Vec::with_capacity(places));
        self.queue.push(Candidate::new(count, pair));
        self.places_written += places;
        index
    }

    /// Adds a place to the list of a stored pair. Places come in ascending order.
    #[inline]
    pub fn add_place(&mut self, index: u32, place: usize) {
        self.places[index as usize].push(P::of(place));
    }

    /// Takes `count` from the count of the pair, if it is stored.
    pub fn lower(&mut self, pair: (u32, u32), count: u64) {
        if let Some(index) = self.index.get(pair) {
            let own = &mut self.counts[index as usize];
            *own = own.checked_sub(count).expect("no more places can go than were counted");
        }
    }

    /// Takes out the best pair, if it has at least the count `threshold`. Pairs below that are dropped on the way.
    pub fn pop_best(&mut self, threshold: u64, pulse: &mut Pulse) -> Result<Option<Best<P>>, LearnError> {
        while let Some(mut top) = self.queue.peek_mut() {
            pulse.spend(1)?;
            let pair = top.pair();
            let index = self.index.get(pair).expect("pairs in the queue are stored") as usize;
            let count = self.counts[index];
            if count < threshold {
                self.places[index] = Vec::new();
                PeekMut::pop(top);
            } else if count < top.count() {
                *top = Candidate::new(count, pair);
            } else {
                PeekMut::pop(top);
                return Ok(Some(Best { pair, count, places: std::mem::take(&mut self.places[index]) }));
            }
        }
        Ok(None)
    }

    /// Pairs stored until now.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Places written into lists until now.
    pub fn places_written(&self) -> usize {
        self.places_written
    }
}

/// Calls `visit(place, left * 256 + right)` for each pair of neighbouring bytes between two borders of words.
pub(crate) fn each_byte_pair<S: Symbol>(
    arena: &Arena<S>,
    range: Range<usize>,
    pulse: &mut Pulse,
    mut visit: impl FnMut(usize, usize) -> Result<(), LearnError>,
) -> Result<(), LearnError> {
    for start in range.clone().step_by(Pulse::PERIOD) {
        let end = range.end.min(start + Pulse::PERIOD + 1);
        for (offset, pair) in arena.symbols[start..end].windows(2).enumerate() {
            let (left, right) = (pair[0].id() as usize, pair[1].id() as usize);
            if left < 256 && right < 256 {
                visit(start + offset, left << 8 | right)?;
            }
        }
        pulse.spend(end - start)?;
    }
    Ok(())
}

/// From pairs of ids to indices: open addressing, at most half full, pairs are never taken out.
///
/// The hash is the high bits of a product with an odd number drawn at random in each process, so that no corpus can be
/// made to collide. Nothing that comes out depends on it.
pub(crate) struct PairIndex {
    slots: Vec<(u64, u32)>,
    shift: u32,
    multiplier: u64,
    len: usize,
}

impl PairIndex {
    /// Marks a free slot. No pair has this key, since ids stay below the marks of [`Symbol`].
    const FREE: u64 = u64::MAX;

    pub fn new() -> PairIndex {
        const BITS: u32 = 12;
        let multiplier = RandomState::new().hash_one(0) | 1;
        PairIndex { slots: vec![(Self::FREE, 0); 1 << BITS], shift: u64::BITS - BITS, multiplier, len: 0 }
    }

    pub fn get(&self, pair: (u32, u32)) -> Option<u32> {
        let (key, index) = self.slots[self.slot(key(pair))];
        (key != Self::FREE).then_some(index)
    }

    pub fn insert(&mut self, pair: (u32, u32), index: u32) {
        if self.len * 2 >= self.slots.len() {
            let doubled = vec![(Self::FREE, 0); self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, doubled);
            self.shift -= 1;
            for slot in old.into_iter().filter(|slot| slot.0 != Self::FREE) {
                let place = self.slot(slot.0);
                self.slots[place] = slot;
            }
        }
        let place = self.slot(key(pair));
        self.slots[place] = (key(pair), index);
        self.len += 1;
    }

    /// The slot that holds the key, or else the free one where it belongs.
    #[inline]
    fn slot(&self, key: u64) -> usize {
        let mut slot = (key.wrapping_mul(self.multiplier) >> self.shift) as usize;
        while self.slots[slot].0 != key && self.slots[slot].0 != Self::FREE {
            slot = (slot + 1) % self.slots.len();
        }
        slot
    }
}

fn key((left, right): (u32, u32)) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
