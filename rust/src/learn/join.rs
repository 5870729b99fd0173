//! One merge, done to the array: the pair is joined wherever it stands, and what stands beside it is summed up.

use super::arena::{Arena, BLOCK, Place, Symbol, prefetch};
use super::{LearnError, Pulse};

/// How many places ahead memory is asked for.
pub(crate) const AHEAD: usize = 12;

/// No pair, where the number of one could be.
pub(crate) const NO_PAIR: u32 = u32::MAX;

/// The two tokens to be joined, the one they make, and their lengths in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Joint {
    pub left: u32,
    pub right: u32,
    pub token: u32,
    pub left_length: usize,
    pub length: usize,
}

impl Joint {
    /// The pair and the last of the tokens whose lengths are given.
    pub fn new(left: u32, right: u32, lengths: &[u32]) -> Joint {
        let token = lengths.len() as u32 - 1;
        let [left_length, length] = [left, token].map(|token| lengths[token as usize] as usize);
        Joint { left, right, token, left_length, length }
    }

    /// The longest neighbour it may still be joined with.
    pub fn room(&self, max_token_bytes: Option<usize>) -> usize {
        max_token_bytes.map_or(usize::MAX, |longest| longest.saturating_sub(self.length))
    }

    /// The pair that has gone from a place with this token before or after it.
    pub fn gone(&self, other: u32, is_after: bool) -> (u32, u32) {
        match is_after {
            false => (other, self.left),
            // Where two joined pairs meet, what has gone is the pair between the old tokens.
            true if other == self.token => (self.right, self.left),
            true => (self.right, other),
        }
    }

    /// The pair that has come instead.
    pub fn come(&self, other: u32, is_after: bool) -> (u32, u32) {
        if is_after { (self.token, other) } else { (other, self.token) }
    }
}

/// What a join came to.
#[derive(Default)]
pub(crate) struct Joined {
    /// Places that were joined and have neighbours; they stand at the front of the places given.
    pub kept: usize,
    /// Words that are one token now, and the weight of the last of them. Words that are unique finish one at most.
    pub finished: usize,
    pub finished_weight: u64,
    /// Weight of all places that were joined.
    pub weight: u64,
}

/// What stands beside the places of one merge.
pub(crate) struct Sides<S> {
    pub before: Neighbours,
    pub after: Neighbours,
    /// The same, place by place.
    by_place: Vec<[S; 2]>,
}

impl<S: Symbol> Sides<S> {
    pub fn new() -> Sides<S> {
        Sides { before: Neighbours::default(), after: Neighbours::default(), by_place: Vec::new() }
    }

    /// Makes ready for the merge that makes this token.
    pub fn restart(&mut self, token: u32) {
        self.before.reach(token);
        self.after.reach(token);
        self.by_place.clear();
    }

    /// Joins the pair at those places where it still stands, and adds up its neighbours.
    pub fn join<P: Place>(
        &mut self,
        arena: &mut Arena<S>,
        joint: &Joint,
        places: &mut [P],
        pulse: &mut Pulse,
    ) -> Result<Joined, LearnError> {
        let &Joint { left_length, length, .. } = joint;
        let (left_symbol, right_symbol, symbol) = (S::of(joint.left), S::of(joint.right), S::of(joint.token));
        let mut joined = Joined::default();
        let symbols = &mut arena.symbols;
        for next in 0..places.len() {
            if next % Pulse::PERIOD == 0 {
                pulse.spend(Pulse::PERIOD.min(places.len() - next))?;
            }
            if let Some(ahead) = places.get(next + AHEAD) {
                prefetch(symbols, ahead.position());
                prefetch(&arena.weights, ahead.position() / BLOCK);
                if length > 16 {
                    prefetch(symbols, ahead.position() + length);
                }
            }
            let place = places[next].position();
            if symbols[place] != left_symbol || symbols[place + left_length] != right_symbol {
                continue;
            }
            symbols[place + left_length] = S::INSIDE;
            symbols[place + left_length - 1] = S::INSIDE;
            symbols[place] = symbol;
            symbols[place + length - 1] = symbol;
            let weight = arena.weights[place / BLOCK];
            // Bounded by the count of one pair of bytes, as all sums here.
            joined.weight += weight;
            let mut before = symbols[place - 1];
            let mut after = symbols[place + length];
            if before == S::BORDER && after == S::BORDER {
                joined.finished += 1;
                joined.finished_weight = weight;
                continue;
            }
            if before == symbol {
                // The pair before was joined as well, and counted this border from its side.
                before = S::BORDER;
            }
            if after == left_symbol && symbols[place + length + left_length] == right_symbol {
                // The pair after will be joined next.
                after = symbol;
            }
            if before != S::BORDER {
                self.before.add(before.id(), weight);
            }
            if after != S::BORDER {
                self.after.add(after.id(), weight);
            }
            self.by_place.push([before, after]);
            places[joined.kept] = places[next];
            joined.kept += 1;
        }
        Ok(joined)
    }

    /// Calls `add(pair, place)` for each place of the new pairs that are kept, in ascending order for each of them.
    /// `places` are all that were joined and have neighbours, in the order in which they were joined.
    pub fn list<P: Place>(
        &self,
        places: &[P],
        lengths: &[u32],
        pulse: &mut Pulse,
        mut add: impl FnMut(u32, usize),
    ) -> Result<(), LearnError> {
        for (places, sides) in places.chunks(Pulse::PERIOD).zip(self.by_place.chunks(Pulse::PERIOD)) {
            pulse.spend(places.len())?;
            for (&place, &[before, after]) in places.iter().zip(sides) {
                if before != S::BORDER && self.before.pairs[before.id() as usize] != NO_PAIR {
                    let start = place.position() - lengths[before.id() as usize] as usize;
                    add(self.before.pairs[before.id() as usize], start);
                }
                if after != S::BORDER && self.after.pairs[after.id() as usize] != NO_PAIR {
                    add(self.after.pairs[after.id() as usize], place.position());
                }
            }
        }
        Ok(())
    }
}

/// Sums over places, by the token that stands on one side of them.
#[derive(Default)]
pub(crate) struct Neighbours {
    /// For each token the weight of the places that have it beside them, and their number. Zeros, except for `tokens`.
    pub sums: Vec<(u64, usize)>,
    /// The tokens met, in the order in which they were met.
    pub tokens: Vec<u32>,
    /// For each token the new pair that it makes, or [`NO_PAIR`]. Apart from the sums, because it is needed later, and
    /// the smaller these tables are, the more of them is in the cache.
    pub pairs: Vec<u32>,
}

impl Neighbours {
    fn reach(&mut self, token: u32) {
        self.sums.resize(token as usize + 1, (0, 0));
        self.pairs.resize(token as usize + 1, NO_PAIR);
    }

    #[inline]
    fn add(&mut self, token: u32, weight: u64) {
        let (sum, places) = &mut self.sums[token as usize];
        if *places == 0 {
            self.tokens.push(token);
        }
        *sum += weight;
        *places += 1;
    }

    /// Forgets the sums. The pairs stay.
    pub fn clear_sums(&mut self) {
        for token in self.tokens.drain(..) {
            self.sums[token as usize] = (0, 0);
        }
    }
}
