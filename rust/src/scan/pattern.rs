//! The named patterns, and what each says, as choices: what they differ in, and nothing else. A further pattern is a
//! further set of rules here, and a further regular expression in `dist_bpe/pretokenize/patterns.py`.

/// A named pattern: how the text of a document is cut into words. Each finds the words that its regular expression, in
/// `dist_bpe/pretokenize/patterns.py`, finds in Python's `regex` module.
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
        pattern("qwen3.5", Shape::Qwen35, Numbers::Ones),
        pattern("qwen3.5+digits3", Shape::Qwen35, Numbers::Threes),
        pattern("qwen3.5+digits3r", Shape::Qwen35, Numbers::ThreesFromRight),
        pattern("o200k", Shape::O200k, Numbers::Threes),
        pattern("o200k+digits1", Shape::O200k, Numbers::Ones),
        pattern("o200k+digits3r", Shape::O200k, Numbers::ThreesFromRight),
        pattern("tekken", Shape::Tekken, Numbers::Ones),
        pattern("tekken+digits3", Shape::Tekken, Numbers::Threes),
        pattern("tekken+digits3r", Shape::Tekken, Numbers::ThreesFromRight),
        pattern("kimi-k2", Shape::KimiK2, Numbers::Threes),
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
    /// As `Llama3`, but marks belong to letters.
    Qwen35,
    /// As `O200k`, but an apostrophe is like any other character.
    Tekken,
    /// As `O200k` without its slashes, but runs of Han characters are words of their own.
    KimiK2,
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
    /// `\p{Han}+`, before all else; and such letters and marks are in no other word. But numbers behind a number, and
    /// signs behind a sign or a blank, are in its word: those are rare, and only there does a word depend on it.
    const HAN: bool = false;
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

pub(crate) struct Qwen35;

impl Rules for Qwen35 {
    const LETTERS: Letters = Letters::WithMarks;
    const PREFIX: Prefix = Prefix::AnyButLineEnd;
    const CONTRACTIONS: Contractions = Contractions::AnyCase;
    const LINE_ENDS: LineEnds = LineEnds::Cut;
    const WHOLE_TAIL: bool = false;
}

pub(crate) struct Tekken;

impl Rules for Tekken {
    const LETTERS: Letters = Letters::Cased;
    const PREFIX: Prefix = Prefix::AnyButLineEnd;
    const CONTRACTIONS: Contractions = Contractions::None;
    const LINE_ENDS: LineEnds = LineEnds::CutWithSlashes;
    const WHOLE_TAIL: bool = false;
}

pub(crate) struct KimiK2;

impl Rules for KimiK2 {
    const LETTERS: Letters = Letters::Cased;
    const PREFIX: Prefix = Prefix::AnyButLineEnd;
    const CONTRACTIONS: Contractions = Contractions::Suffix;
    const LINE_ENDS: LineEnds = LineEnds::Cut;
    const WHOLE_TAIL: bool = false;
    const HAN: bool = true;
}

pub(crate) struct Deepseek3;

impl Rules for Deepseek3 {
    const LETTERS: Letters = Letters::InPieces;
    const PREFIX: Prefix = Prefix::NoSign;
    const CONTRACTIONS: Contractions = Contractions::None;
    const LINE_ENDS: LineEnds = LineEnds::Cut;
    const WHOLE_TAIL: bool = false;
}
