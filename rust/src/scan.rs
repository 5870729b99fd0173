//! Cut documents into words, as a named pattern's regular expression would, without a regular-expression engine.
//!
//! [`Scanner`] is the front door. Behind it stand the scanners themselves, the plain one ([`crate::scalar`]) and the
//! one that works on 64 bytes at a time, both written over [`Rules`]: what the patterns differ in, and nothing else. A
//! further pattern is a further set of rules.

use std::marker::PhantomData;

use crate::blocks::BlockScan;
use crate::scalar;
use crate::simd;

/// A named pattern: how the text of a document is cut into words. Each finds the words that its regular expression, in
/// `dist_bpe/pretokenize.py`, finds in Python's `regex` module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    name: &'static str,
    shape: Shape,
    numbers: Numbers,
}

impl Pattern {
    /// GPT-2's, the default.
    pub const GPT2: Pattern = Pattern::ALL[0];

    /// Every named pattern. A shape with another rule for numbers than its own has their names with a plus between.
    pub const ALL: &[Pattern] = &[
        pattern("gpt2", Shape::Gpt2, Numbers::SpaceAndAll),
        pattern("gpt2+digits1", Shape::Gpt2, Numbers::Ones),
        pattern("gpt2+digits3", Shape::Gpt2, Numbers::Threes),
        pattern("gpt2+digits3r", Shape::Gpt2, Numbers::ThreesFromRight),
        pattern("gpt2-marks", Shape::Gpt2Marks, Numbers::SpaceAndAll),
        pattern("gpt2-marks+digits1", Shape::Gpt2Marks, Numbers::Ones),
        pattern("gpt2-marks+digits3", Shape::Gpt2Marks, Numbers::Threes),
        pattern("gpt2-marks+digits3r", Shape::Gpt2Marks, Numbers::ThreesFromRight),
        pattern("cl100k", Shape::Cl100k, Numbers::Threes),
        pattern("cl100k+digits1", Shape::Cl100k, Numbers::Ones),
        pattern("cl100k+digits3r", Shape::Cl100k, Numbers::ThreesFromRight),
        pattern("llama3", Shape::Llama3, Numbers::Threes),
        pattern("llama3+digits3r", Shape::Llama3, Numbers::ThreesFromRight),
        pattern("qwen2", Shape::Llama3, Numbers::Ones),
        pattern("o200k", Shape::O200k, Numbers::Threes),
        pattern("o200k+digits1", Shape::O200k, Numbers::Ones),
        pattern("o200k+digits3r", Shape::O200k, Numbers::ThreesFromRight),
        pattern("deepseek3", Shape::Deepseek3, Numbers::Threes),
        pattern("deepseek3+digits1", Shape::Deepseek3, Numbers::Ones),
        pattern("deepseek3+digits3r", Shape::Deepseek3, Numbers::ThreesFromRight),
        pattern("none", Shape::Whole, Numbers::SpaceAndAll),
    ];

    /// The name users write.
    pub const fn name(self) -> &'static str {
        self.name
    }

    pub(crate) const fn shape(self) -> Shape {
        self.shape
    }

    pub(crate) const fn numbers(self) -> Numbers {
        self.numbers
    }

    /// The pattern of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Pattern> {
        Pattern::ALL.iter().copied().find(|pattern| pattern.name == name)
    }
}

const fn pattern(name: &'static str, shape: Shape, numbers: Numbers) -> Pattern {
    Pattern { name, shape, numbers }
}

/// All of a pattern but its rule for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// A space joins the letters or other characters after it.
    Gpt2,
    /// As `Gpt2`, but marks belong to letters.
    Gpt2Marks,
    /// Any one character joins the letters after it; line ends stay with what is before them. Whitespace at the very
    /// end of a document is one word, line ends or not (`\s++$`).
    Cl100k,
    /// As `Cl100k`, but line ends cut whitespace at the end of a document too. Qwen 2's is the same but for numbers.
    Llama3,
    /// As `Llama3`, but words are cut before a capital (`camelCase` is two), marks belong to the letters they stand on,
    /// contractions stay with their words, and slashes behind a line end with the characters before it.
    O200k,
    /// Three cuts, one after another: numbers, then runs of kana and ideographs, then what is left.
    Deepseek3,
    /// A text is one word.
    Whole,
}

/// How numbers are cut. Chosen while scanning, once a block, so that a shape is compiled once for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Numbers {
    /// ` ?\p{N}+`
    SpaceAndAll,
    /// `\p{N}{1,3}`
    Threes,
    /// `\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`: groups of three counted from the end of the run.
    ThreesFromRight,
    /// `\p{N}`
    Ones,
}

/// What a shape's regular expression says, as choices. Constants of a type, so that each scanner is compiled once for
/// each shape and a choice costs nothing where it is not made.
pub(crate) trait Rules {
    /// What is a run of letters.
    const LETTERS: Letters;
    /// What may stand before the letters of a word.
    const PREFIX: Prefix;
    /// Where contractions (`'s 'd 'm 't 'll 've 're`) are told from other apostrophes.
    const CONTRACTIONS: Contractions;
    /// What line ends do.
    const LINE_ENDS: LineEnds;
    /// `\s++$`: whitespace at the end of the text is one word, before any other rule for whitespace.
    const WHOLE_TAIL: bool;
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Letters {
    /// `\p{L}+`
    Any,
    /// `[\p{L}\p{M}]+`
    WithMarks,
    /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
    Cased,
    /// `[\p{L}\p{M}]+` in each of the pieces that numbers and runs of kana and ideographs have left of a text, and in
    /// each of these runs. A word of ASCII letters may have one ASCII sign before it, and ends with them:
    /// ``[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+``. What no rule takes, such as control characters, stays
    /// together up to the next match.
    InPieces,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// ` ?`
    Space,
    /// `[^\r\n\p{L}\p{N}]?`
    AnyButLineEnd,
    /// `[^\r\n\p{L}\p{P}\p{S}]?`
    NoSign,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contractions {
    /// An apostrophe is like any other character.
    None,
    /// `'(?:[sdmt]|ll|ve|re)`, a word of its own.
    LowerCase,
    /// `'(?i:[sdmt]|ll|ve|re)`, a word of its own. `ſ` (U+017F) is an `s` here.
    AnyCase,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)?` at the end of a word of letters.
    Suffix,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnds {
    /// They are whitespace like any other.
    Plain,
    /// `\s*[\r\n]`: whitespace is cut after its last line end. ` ?[^\s\p{L}\p{N}]+[\r\n]*`: line ends join the other
    /// characters before them.
    Cut,
    /// As `Cut`, with ` ?[^\s\p{L}\p{N}]+[\r\n/]*`.
    CutWithSlashes,
}

pub(crate) struct Gpt2;

impl Rules for Gpt2 {
    const LETTERS: Letters = Letters::Any;
    const PREFIX: Prefix = Prefix::Space;
    const CONTRACTIONS: Contractions = Contractions::LowerCase;
    const LINE_ENDS: LineEnds = LineEnds::Plain;
    const WHOLE_TAIL: bool = true; // `\s+(?!\S)` says the same here
}

pub(crate) struct Gpt2Marks;

impl Rules for Gpt2Marks {
    const LETTERS: Letters = Letters::WithMarks;
    const PREFIX: Prefix = Prefix::Space;
    const CONTRACTIONS: Contractions = Contractions::LowerCase;
    const LINE_ENDS: LineEnds = LineEnds::Plain;
    const WHOLE_TAIL: bool = true;
}

pub(crate) struct Cl100k;

impl Rules for Cl100k {
    const LETTERS: Letters = Letters::Any;
    const PREFIX: Prefix = Prefix::AnyButLineEnd;
    const CONTRACTIONS: Contractions = Contractions::AnyCase;
    const LINE_ENDS: LineEnds = LineEnds::Cut;
    const WHOLE_TAIL: bool = true;
}

pub(crate) struct Llama3;

impl Rules for Llama3 {
    const LETTERS: Letters = Letters::Any;
    const PREFIX: Prefix = Prefix::AnyButLineEnd;
    const CONTRACTIONS: Contractions = Contractions::AnyCase;
    const LINE_ENDS: LineEnds = LineEnds::Cut;
    const WHOLE_TAIL: bool = false;
}

pub(crate) struct O200k;

impl Rules for O200k {
    const LETTERS: Letters = Letters::Cased;
    const PREFIX: Prefix = Prefix::AnyButLineEnd;
    const CONTRACTIONS: Contractions = Contractions::Suffix;
    const LINE_ENDS: LineEnds = LineEnds::CutWithSlashes;
    const WHOLE_TAIL: bool = false;
}

pub(crate) struct Deepseek3;

impl Rules for Deepseek3 {
    const LETTERS: Letters = Letters::InPieces;
    const PREFIX: Prefix = Prefix::NoSign;
    const CONTRACTIONS: Contractions = Contractions::None;
    const LINE_ENDS: LineEnds = LineEnds::Cut;
    const WHOLE_TAIL: bool = false;
}

/// Which code finds the words. All levels find the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// One character at a time.
    Scalar,
    /// 64-byte blocks, with plain integers.
    Portable,
    /// 64-byte blocks, with 16-byte vectors (any x86-64).
    Sse2,
    /// 64-byte blocks, with 32-byte vectors.
    Avx2,
}

impl Level {
    /// The levels this processor can run, slowest first.
    pub fn available() -> Vec<Level> {
        let mut levels = vec![Level::Scalar];
        levels.extend(simd::levels());
        levels
    }

    /// The fastest of them.
    pub fn best() -> Level {
        *Level::available().last().expect("the scalar level is always there")
    }

    /// For reports and command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Portable => "portable",
            Level::Sse2 => "sse2",
            Level::Avx2 => "avx2",
        }
    }
}

/// Cuts one document after another into words, and keeps its buffer between them (16 KB).
#[derive(Clone, Debug)]
pub struct Scanner {
    pattern: Pattern,
    level: Level,
    bounds: Box<[u32]>,
    reach: u32,
}

/// So many words at most go to the sink at once: enough to make the call free, few enough to stay in the first cache.
const BATCH: usize = 4096;

/// Room for the starts of one more block, which are written without a look at how many they are.
const ROOM: usize = BATCH + 1 + 64;

impl Scanner {
    /// A scanner at the best level of this processor.
    pub fn new(pattern: Pattern) -> Self {
        Self::with_level(pattern, Level::best())
    }

    /// A scanner at a given level, for tests and benchmarks.
    ///
    /// # Panics
    /// When this processor cannot run the level.
    pub fn with_level(pattern: Pattern, level: Level) -> Self {
        assert!(Level::available().contains(&level), "this processor cannot run the level {}", level.name());
        Self { pattern, level, bounds: vec![0; ROOM].into(), reach: u32::MAX }
    }

    /// Find the words of one document and hand them to `sink(window, bounds)` in batches of at most 4,096.
    ///
    /// `window` is the text from the batch's first word to the *end of the document*, so that a consumer may load a few
    /// bytes past a word while there are any. `bounds` are offsets into it, strictly increasing, the first of them 0;
    /// word `i` is `window[bounds[i]..bounds[i + 1]]`. The words of all calls, in order, are the text exactly. An empty
    /// text makes no call.
    ///
    /// Documents may be of any length (the windows move along), words of up to 4 GiB.
    ///
    /// # Panics
    /// When a single word is longer than `u32::MAX` bytes.
    pub fn scan(&mut self, text: &str, mut sink: impl FnMut(&[u8], &[u32])) {
        if text.is_empty() {
            return;
        }
        // The sink is called seldom, so it goes behind a pointer, and the scanners are not compiled again for each.
        match self.pattern.shape {
            Shape::Gpt2 => self.scan_by::<Gpt2>(text, &mut sink),
            Shape::Gpt2Marks => self.scan_by::<Gpt2Marks>(text, &mut sink),
            Shape::Cl100k => self.scan_by::<Cl100k>(text, &mut sink),
            Shape::Llama3 => self.scan_by::<Llama3>(text, &mut sink),
            Shape::O200k => self.scan_by::<O200k>(text, &mut sink),
            Shape::Deepseek3 => self.scan_by::<Deepseek3>(text, &mut sink),
            Shape::Whole => {
                let bytes = u32::try_from(text.len()).expect("a word is at most 4 GiB long");
                sink(text.as_bytes(), &[0, bytes]);
            }
        }
    }

    fn scan_by<R: Rules>(&mut self, text: &str, sink: &mut dyn FnMut(&[u8], &[u32])) {
        let mut batcher =
            Batcher { text: text.as_bytes(), base: 0, bounds: &mut self.bounds, len: 1, reach: self.reach, sink };
        let numbers = self.pattern.numbers;
        match self.level {
            Level::Scalar => scalar::ends::<R>(text, numbers, |end| batcher.push(end)),
            level => {
                simd::dispatch(level, BlockScan { text, batcher: &mut batcher, numbers, rules: PhantomData::<R> });
            }
        }
        batcher.deliver();
    }
}

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
    sink: &'a mut dyn FnMut(&[u8], &[u32]),
}

impl Batcher<'_> {
    /// Add the end of a word.
    #[inline]
    pub fn push(&mut self, end: usize) {
        if self.len > BATCH || end - self.base > self.reach as usize {
            self.deliver();
            assert!(
                end - self.base <= self.reach as usize,
                "a word of {} bytes at byte {} of its document is longer than {} bytes",
                end - self.base,
                self.base,
                self.reach
            );
        }
        self.bounds[self.len] = (end - self.base) as u32;
        self.len += 1;
    }

    /// Add an end at `position + i` for each bit `i` of the mask.
    #[inline(always)]
    pub fn push_mask(&mut self, position: usize, mut mask: u64) {
        if self.len > BATCH - 64 {
            self.deliver();
        }
        if position + 63 - self.base > self.reach as usize {
            return self.push_mask_far(position, mask);
        }
        let offset = (position - self.base) as u32;
        let room: &mut [u32; 64] = self.bounds[self.len..].first_chunk_mut().expect("the buffer has room for a block");
        self.len += mask.count_ones() as usize;
        // A branch for each bit would be mispredicted once a block; one for eight seldom is. What is written past the
        // last bit is written over later.
        for eight in room.as_chunks_mut::<8>().0 {
            for bound in eight {
                *bound = offset.wrapping_add(mask.trailing_zeros());
                mask &= mask.wrapping_sub(1);
            }
            if mask == 0 {
                break;
            }
        }
    }

    /// The same at the end of what offsets can reach.
    #[cold]
    fn push_mask_far(&mut self, position: usize, mut mask: u64) {
        while mask != 0 {
            self.push(position + mask.trailing_zeros() as usize);
            mask &= mask - 1;
        }
    }

    /// Pass on what is gathered; the next window begins where the last word ended.
    fn deliver(&mut self) {
        if self.len > 1 {
            (self.sink)(&self.text[self.base..], &self.bounds[..self.len]);
            self.base += self.bounds[self.len - 1] as usize;
            self.len = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(scanner: &mut Scanner, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut position = 0;
        scanner.scan(text, |window, bounds| {
            assert_eq!(window, &text.as_bytes()[position..]);
            assert_eq!(bounds[0], 0);
            assert!((2..=BATCH + 1).contains(&bounds.len()));
            for pair in bounds.windows(2) {
                assert!(pair[0] < pair[1]);
                words.push(String::from_utf8(window[pair[0] as usize..pair[1] as usize].to_vec()).unwrap());
            }
            position += *bounds.last().unwrap() as usize;
        });
        assert_eq!(position, text.len());
        words
    }

    #[test]
    fn names_lead_back_to_their_patterns() {
        for &pattern in Pattern::ALL {
            assert_eq!(Pattern::from_name(pattern.name()), Some(pattern));
        }
        assert_eq!(Pattern::from_name("GPT2"), None);
    }

    #[test]
    fn long_documents_come_in_batches() {
        let text = "one two\n".repeat(10_000);
        for &pattern in Pattern::ALL.iter().filter(|pattern| pattern.shape != Shape::Whole) {
            for level in Level::available() {
                let mut scanner = Scanner::with_level(pattern, level);
                let mut calls = 0;
                scanner.scan(&text, |_, _| calls += 1);
                assert!(calls <= 30_000_usize.div_ceil(BATCH - 64));
                let found = words(&mut scanner, &text);
                assert_eq!(found.len(), 30_000);
                assert_eq!(found[29_997..], ["one", " two", "\n"]);
            }
        }
    }

    #[test]
    fn an_empty_document_makes_no_call() {
        for &pattern in Pattern::ALL {
            for level in Level::available() {
                Scanner::with_level(pattern, level).scan("", |_, _| panic!("called"));
            }
        }
    }

    #[test]
    fn windows_move_when_offsets_would_not_reach() {
        let text = "some words of a text, 12345 (and more) ".repeat(50);
        for &pattern in Pattern::ALL.iter().filter(|pattern| pattern.shape != Shape::Whole) {
            for level in Level::available() {
                let mut scanner = Scanner::with_level(pattern, level);
                let expected = words(&mut scanner, &text);
                for reach in [6, 7, 63, 64, 65, 1000] {
                    scanner.reach = reach;
                    assert_eq!(words(&mut scanner, &text), expected);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "a word of 6 bytes at byte 1 of its document is longer than 5 bytes")]
    fn a_word_out_of_reach_panics() {
        let mut scanner = Scanner::with_level(Pattern::GPT2, Level::Scalar);
        scanner.reach = 5;
        scanner.scan("a bcdef", |_, _| {});
    }
}
