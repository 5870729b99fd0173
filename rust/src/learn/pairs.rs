//! The pairs that may still be merged: counts, lists of places, and which comes next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use super::arena::{Arena, BLOCK, Place, Symbol, prefetch};
use super::join::NO_PAIR;
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

/// Which candidate comes next. The best thousands are in a heap, which stays in the cache; those below `floor` wait in no
/// order until the heap is empty. Most of them are never asked for.
pub(crate) struct Queue {
    heap: BinaryHeap<Candidate>,
    waiting: Vec<Candidate>,
    floor: u64,
}

impl Queue {
    /// Candidates that come out of waiting together, at least.
    const FEW: usize = 1 << 11;

    pub fn new() -> Queue {
        Queue { heap: BinaryHeap::new(), waiting: Vec::new(), floor: u64::MAX }
    }

    pub fn push(&mut self, candidate: Candidate) {
        if candidate.count() >= self.floor {
            self.heap.push(candidate);
        } else {
            self.waiting.push(candidate);
        }
    }

    /// Takes out the best pair with its present count, if that is at least `threshold`. `count_of` gives the present count of a
    /// pair. Pairs below the threshold are given to `drop` when they are met, for they will not come back.
    pub fn pop(
        &mut self,
        threshold: u64,
        pulse: &mut Pulse,
        count_of: impl Fn((u32, u32)) -> u64,
        mut drop: impl FnMut((u32, u32)),
    ) -> Result<Option<Candidate>, LearnError> {
        loop {
            while let Some(mut top) = self.heap.peek_mut() {
                pulse.spend(1)?;
                let pair = top.pair();
                let count = count_of(pair);
                if count == top.count() && count >= threshold {
                    PeekMut::pop(top);
                    return Ok(Some(Candidate::new(count, pair)));
                }
                if count >= self.floor.max(threshold) {
                    *top = Candidate::new(count, pair);
                    continue;
                }
                PeekMut::pop(top);
                if count >= threshold {
                    self.waiting.push(Candidate::new(count, pair));
                } else {
                    drop(pair);
                }
            }
            self.waiting.retain(|candidate| {
                let kept = candidate.count() >= threshold;
                if !kept {
                    drop(candidate.pair());
                }
                kept
            });
            if self.waiting.is_empty() {
                return Ok(None);
            }
            pulse.spend(self.waiting.len() / 4)?;
            let few = Self::FEW.max(self.waiting.len() / 64).min(self.waiting.len() - 1);
            self.waiting.select_nth_unstable_by_key(few, |&candidate| Reverse(candidate));
            self.floor = self.waiting[few].count();
            self.heap.extend(self.waiting.extract_if(.., |candidate| candidate.count() >= self.floor));
        }
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
    index: PairIndex<Stored>,
    /// Where each pair stood when it was stored, ascending. Some places may hold something else by now.
    places: Vec<Vec<P>>,
    /// One entry for each pair that has not been merged or dropped.
    queue: Queue,
    places_written: usize,
}

/// What the index knows of a pair, together because they are asked for together, each time at the price of a cache miss.
#[derive(Clone, Copy, Default)]
struct Stored {
    count: u64,
    /// Index in `places`.
    number: u32,
}

impl<P: Place> Pairs<P> {
    /// The pairs of bytes with at least the count `threshold`.
    pub fn of_bytes<S: Symbol>(
        arena: &Arena<S>,
        threshold: u64,
        max_token_bytes: Option<usize>,
        pulse: &mut Pulse,
    ) -> Result<Pairs<P>, LearnError> {
        let mut pairs = Pairs { index: PairIndex::new(), places: Vec::new(), queue: Queue::new(), places_written: 0 };
        let mut sums = vec![(0u64, 0usize); 1 << 16];
        let everywhere = 0..arena.symbols.len();
        each_byte_pair(arena, everywhere.clone(), pulse, |place, pair| {
            let (count, number) = &mut sums[pair];
            *count = count
                .checked_add(arena.weights[place / BLOCK])
                .ok_or_else(|| LearnError::pair_overflow(pair as u32 >> 8, pair as u32 & 255))?;
            *number += 1;
            Ok(())
        })?;
        if max_token_bytes.is_some_and(|longest| longest < 2) {
            return Ok(pairs);
        }
        // To list the rarer pairs of bytes later, when half of their places have gone, saves a sixth of all visits to places,
        // and takes as long as it saves: each time the whole array is walked.
        let mut stored = vec![NO_PAIR; 1 << 16];
        for (pair, &(count, number)) in sums.iter().enumerate().filter(|(_, sum)| sum.0 >= threshold) {
            stored[pair] = pairs.store((pair as u32 >> 8, pair as u32 & 255), count, number);
        }
        each_byte_pair(arena, everywhere, pulse, |place, pair| {
            if stored[pair] != NO_PAIR {
                pairs.add_place(stored[pair], place);
            }
            Ok(())
        })?;
        Ok(pairs)
    }

    /// Adds a pair that is not there yet, with room for as many places as will be added.
    pub fn store(&mut self, pair: (u32, u32), count: u64, places: usize) -> u32 {
        // A pair takes a hundred bytes, so four billion of them do not arise.
        let number = u32::try_from(self.places.len()).expect("fewer than 2^32 pairs");
        self.index.insert(pair, Stored { count, number });
        self.places.push(Vec::with_capacity(places));
        self.queue.push(Candidate::new(count, pair));
        self.places_written += places;
        number
    }

    /// Adds a place to the list of a stored pair. Places come in ascending order.
    #[inline]
    pub fn add_place(&mut self, number: u32, place: usize) {
        self.places[number as usize].push(P::of(place));
    }

    /// Asks for the memory that `lower` will want.
    #[inline]
    pub fn prefetch(&self, pair: (u32, u32)) {
        self.index.prefetch(pair);
    }

    /// Takes `count` from the count of the pair, if it is stored.
    #[inline]
    pub fn lower(&mut self, pair: (u32, u32), count: u64) {
        if let Some(Stored { count: own, .. }) = self.index.get_mut(pair) {
            *own = own.checked_sub(count).expect("no more places can go than were counted");
        }
    }

    /// Takes out the best pair, if it has at least the count `threshold`.
    pub fn pop_best(&mut self, threshold: u64, pulse: &mut Pulse) -> Result<Option<Best<P>>, LearnError> {
        let stored = |pair| self.index.get(pair).expect("pairs in the queue are stored");
        let drop = |pair| self.places[stored(pair).number as usize] = Vec::new();
        let best = self.queue.pop(threshold, pulse, |pair| stored(pair).count, drop)?;
        Ok(best.map(|best| {
            let number = stored(best.pair()).number;
            let places = std::mem::take(&mut self.places[number as usize]);
            Best { pair: best.pair(), count: best.count(), places }
        }))
    }

    /// Pairs stored until now.
    pub fn len(&self) -> usize {
        self.places.len()
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

/// From pairs of ids to what is known of them: open addressing, at most half full, pairs are never taken out.
///
/// The hash is the high bits of a product with an odd number drawn at random in each process, so that no corpus can be
/// made to collide. Nothing that comes out depends on it.
pub(crate) struct PairIndex<V> {
    slots: Vec<(u64, V)>,
    shift: u32,
    multiplier: u64,
    len: usize,
}

impl<V: Copy + Default> PairIndex<V> {
    /// Marks a free slot. No pair has this key, since ids stay below the marks of [`Symbol`].
    const FREE: u64 = u64::MAX;

    pub fn new() -> PairIndex<V> {
        const BITS: u32 = 12;
        let multiplier = RandomState::new().hash_one(0) | 1;
        let slots = vec![(Self::FREE, V::default()); 1 << BITS];
        PairIndex { slots, shift: u64::BITS - BITS, multiplier, len: 0 }
    }

    pub fn get(&self, pair: (u32, u32)) -> Option<V> {
        let (key, value) = self.slots[self.slot(key(pair))];
        (key != Self::FREE).then_some(value)
    }

    pub fn get_mut(&mut self, pair: (u32, u32)) -> Option<&mut V> {
        let slot = self.slot(key(pair));
        let (key, value) = &mut self.slots[slot];
        (*key != Self::FREE).then_some(value)
    }

    #[inline]
    pub fn prefetch(&self, pair: (u32, u32)) {
        prefetch(&self.slots, self.home(key(pair)));
    }

    pub fn insert(&mut self, pair: (u32, u32), value: V) {
        if self.len * 2 >= self.slots.len() {
            let doubled = vec![(Self::FREE, V::default()); self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, doubled);
            self.shift -= 1;
            for slot in old.into_iter().filter(|slot| slot.0 != Self::FREE) {
                let place = self.slot(slot.0);
                self.slots[place] = slot;
            }
        }
        let place = self.slot(key(pair));
        self.slots[place] = (key(pair), value);
        self.len += 1;
    }

    /// The slot where the key is looked for first.
    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(self.multiplier) >> self.shift) as usize
    }

    /// The slot that holds the key, or else the free one where it belongs.
    #[inline]
    fn slot(&self, key: u64) -> usize {
        let mut slot = self.home(key);
        while self.slots[slot].0 != key && self.slots[slot].0 != Self::FREE {
            slot = (slot + 1) % self.slots.len();
        }
        slot
    }
}

fn key((left, right): (u32, u32)) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
