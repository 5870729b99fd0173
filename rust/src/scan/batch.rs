//! The words that a scanner finds, on their way out: gathered, and handed over many at once.

use super::simd::Classifier;

/// What a scanner hands over at a time. The words of all batches, in order, are the text exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch<'a> {
    /// A window and bounds: at most 4,096 words.
    ///
    /// The window is the text from the batch's first word to the *end of the document*, so that a consumer may load a
    /// few bytes past a word while there are any. The bounds are offsets into it, strictly increasing, the first of them
    /// 0; word `i` is `window[bounds[i]..bounds[i + 1]]`.
    Words(&'a [u8], &'a [u32]),
    /// One word that such offsets do not reach over: of more than `u32::MAX` bytes.
    Long(&'a [u8]),
}

/// So many words at most go to the sink at once: enough to make the call free, few enough to stay in the first cache.
pub(crate) const BATCH: usize = 4096;

/// Room for the starts of one more block, which are written without a look at how many they are.
pub(crate) const ROOM: usize = BATCH + 1 + 64;

/// Gathers the ends of words, given as offsets into the text, and gives them to the sink in batches.
pub(crate) struct Batcher<'a> {
    text: &'a [u8],
    /// Where the window begins.
    base: usize,
    /// The first is always 0, where the first word of the batch begins.
    bounds: &'a mut [u32],
    /// How many of them are set.
    len: usize,
    /// The largest offset a bound can hold; tests lower it to see windows move without documents of gigabytes.
    reach: u32,
    sink: Sink<'a>,
}

/// Who takes a window and bounds, or a word that they do not reach over and no bounds.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8], &[u32]);

impl<'a> Batcher<'a> {
    /// Nothing gathered yet. There must be [`ROOM`] in `bounds`, the first of which is 0.
    pub fn new(text: &'a str, bounds: &'a mut [u32], reach: u32, sink: Sink<'a>) -> Self {
        Batcher { text: text.as_bytes(), base: 0, bounds, len: 1, reach, sink }
    }

    /// Add the end of a word.
    #[inline]
    pub fn push(&mut self, end: usize) {
        if self.len > BATCH || end - self.base > self.reach as usize {
            self.deliver();
            if end - self.base > self.reach as usize {
                return self.deliver_long(end);
            }
        }
        self.bounds[self.len] = (end - self.base) as u32;
        self.len += 1;
    }

    /// Add an end at `position + i` for each bit `i` of the mask.
    #[inline(always)]
    pub fn push_mask<C: Classifier>(&mut self, position: usize, mask: u64) {
        if self.len > BATCH - 64 {
            self.deliver();
        }
        if position + 63 - self.base > self.reach as usize {
            return self.push_mask_far(position, mask);
        }
        let offset = (position - self.base) as u32;
        let room: &mut [u32; 64] = self.bounds[self.len..].first_chunk_mut().expect("the buffer has room for a block");
        self.len += mask.count_ones() as usize;
        // What is written past the last bit is written over later.
        C::places(offset, mask, room);
    }

    /// The same at the end of what offsets can reach.
    #[cold]
    fn push_mask_far(&mut self, position: usize, mut mask: u64) {
        while mask != 0 {
            self.push(position + mask.trailing_zeros() as usize);
            mask &= mask - 1;
        }
    }

    /// Where the last word ended.
    pub fn last_end(&self) -> usize {
        self.base + self.bounds[self.len - 1] as usize
    }

    /// Pass on what is left, and tell where the last word ended.
    pub fn finish(mut self) -> usize {
        self.deliver();
        self.base
    }

    /// Pass on what is gathered; the next window begins where the last word ended.
    fn deliver(&mut self) {
        if self.len > 1 {
            (self.sink)(&self.text[self.base..], &self.bounds[..self.len]);
            self.base += self.bounds[self.len - 1] as usize;
            self.len = 1;
        }
    }

    /// Pass on a word that bounds do not reach over. Nothing else is gathered.
    #[cold]
    fn deliver_long(&mut self, end: usize) {
        (self.sink)(&self.text[self.base..end], &[]);
        self.base = end;
    }
}
