//! The fast scanner: the word starts of 64 bytes at a time, by arithmetic on bit masks.
//!
//! A block of text becomes one 64-bit mask a class, bit `i` for byte `i`; each byte of a character carries the class of
//! the character, so that runs of a class are runs of ones. From these masks a handful of shifts gives almost all word
//! starts: a run of letters begins at `letter & !(letter << 1)`. What reaches over a block's edge comes from the masks
//! of the neighbours, since blocks are classified one ahead. Sums do the rest: adding the first bit of a run of ones to
//! the run carries through it and leaves a bit just past its end ([`flood`], [`after_characters`]). What is left over,
//! contractions and runs of indentation across edges, is rare and read character by character, each run once, so that
//! the whole is linear in the text.
//!
//! The rules of the pattern are constants ([`Rules`]); the compiler drops what a pattern does not need. The rule for
//! numbers alone is looked at once a block. Only [`super::simd`] knows the processor.

use std::marker::PhantomData;

use super::batch::Batcher;
use super::classes::{
    CASELESS, ClassSet, HAN, HAN_SIGN, IDEOGRAPH, IDEOGRAPH_GAP, IDEOGRAPH_SIGN, LETTER, MARK, NUMBER, OUTER_LETTER,
    SPACE, UPPER,
};
use super::pattern::{Contractions, Letters, LineEnds, Numbers, Prefix, Rules};
use super::scalar::{Reader, classes, contraction, is_line_end, word_classes, word_end};
use super::simd::{Classifier, Job};

/// One document to scan, not an empty one.
pub(crate) struct BlockScan<'a, 'b, R> {
    pub text: &'a str,
    /// Find the ends of words up to here, and perhaps some after it; more than 0.
    pub until: usize,
    pub batcher: &'b mut Batcher<'a>,
    pub numbers: Numbers,
    pub rules: PhantomData<R>,
}

/// Bytes that are read one by one behind a Han character that is in a word of others: they seldom stand alone.
const PLAIN_STRETCH: usize = 512;

impl<R: Rules> Job for BlockScan<'_, '_, R> {
    #[inline(always)]
    fn run<C: Classifier>(self) {
        let mut blocks = Blocks::<R>::new(self.text.as_bytes());
        let mut finder = Finder::<R>::new(self.text.as_bytes(), self.numbers);
        let mut block = Block::default();
        let mut position = 0;
        // Classified one ahead, in one place: the code of a classifier is long.
        loop {
            let next = blocks.read::<C>(position);
            if position > 0 {
                if R::HAN && finder.joins_han(&block) {
                    // Words are read one by one from the last border, over this block and a stretch, and the rest of
                    // the text is scanned anew.
                    let mut end = self.batcher.last_end();
                    while end < self.text.len().min(position + PLAIN_STRETCH) {
                        end = word_end::<R>(&finder.rare.reader, self.numbers, end);
                        self.batcher.push(end);
                    }
                    return;
                }
                let mut starts = finder.starts(position - 64, &block, &next);
                if position == 64 {
                    starts &= !1; // the first start ends no word
                }
                self.batcher.push_mask::<C>(position - 64, starts);
                if position >= self.until {
                    break;
                }
            }
            position += 64;
            block = next;
        }
        if self.until == self.text.len() {
            self.batcher.push(self.text.len());
        }
    }
}

/// The classes of 64 bytes, every byte of a character alike. The first eight are disjoint and cover the bytes that are in
/// the text.
#[derive(Clone, Copy, Default)]
struct Block {
    letter: u64,
    /// Empty unless the rules tell case; marks are `other` then.
    mark: u64,
    number: u64,
    space: u64,
    other: u64,
    /// Empty unless the rules are for pieces; see [`Letters::InPieces`]. What is neither letter nor sign, and in runs of
    /// kana and ideographs the letters, the signs, and the rest.
    odd: u64,
    ideograph: u64,
    ideograph_sign: u64,
    ideograph_gap: u64,
    /// With rules for Han characters they are the ideographs, and their signs and numbers are in these too.
    ideograph_number: u64,
    /// Capitals, and letters without case; empty unless the rules tell case.
    upper: u64,
    caseless: u64,
    /// The ASCII characters of those names; these are in the classes above too.
    line_end: u64,
    blank: u64,
    apostrophe: u64,
    slash: u64,
    ascii_letter: u64,
    /// The bytes of characters that are not ASCII, and among them all but the first of each character.
    wide: u64,
    continuation: u64,
}

impl Block {
    /// `\S`, but for what is in another piece of the text.
    #[inline(always)]
    fn solid<R: Rules>(&self) -> u64 {
        match R::LETTERS {
            Letters::InPieces => self.letter | self.other | self.odd,
            _ if R::HAN => self.letter | self.mark | self.number | self.other | self.ideograph,
            _ => self.letter | self.mark | self.number | self.other,
        }
    }
}

/// Classifies the blocks of a text in order.
struct Blocks<'a, R> {
    reader: Reader<'a>,
    /// The class of the last character that is not ASCII; it may go on in the next block.
    straddling: ClassSet,
    rules: PhantomData<R>,
}

impl<'a, R: Rules> Blocks<'a, R> {
    #[inline(always)]
    fn new(text: &'a [u8]) -> Self {
        Self { reader: Reader { text, classes: classes::<R>() }, straddling: 0, rules: PhantomData }
    }

    /// The block at `position`; past the end of the text an empty one.
    #[inline(always)]
    fn read<C: Classifier>(&mut self, position: usize) -> Block {
        let Some(rest) = self.reader.text.get(position..) else { return Block::default() };
        let padded;
        let (bytes, in_text) = match rest.first_chunk() {
            Some(bytes) => (bytes, !0),
            None => {
                padded = C::padded(rest);
                (&padded, ones_below(rest.len()))
            }
        };
        let ascii = C::classify(bytes);
        let mut block = Block {
            letter: ascii.letter,
            number: ascii.number,
            space: ascii.space,
            line_end: ascii.line_end,
            blank: ascii.blank,
            apostrophe: ascii.apostrophe,
            wide: ascii.wide,
            continuation: ascii.continuation,
            ..Block::default()
        };
        if R::LETTERS == Letters::Cased {
            block.upper = ascii.upper;
        }
        if R::LINE_ENDS == LineEnds::CutWithSlashes {
            block.slash = ascii.slash;
        }
        if R::LETTERS == Letters::InPieces {
            block.ascii_letter = ascii.letter;
            block.odd = ascii.control & !ascii.space & in_text;
        }
        if ascii.wide != 0 {
            // Other rules have to tell letters from each other.
            let tell_no_letters = !R::HAN && matches!(R::LETTERS, Letters::Any | Letters::WithMarks);
            let sure = if tell_no_letters { C::sure_letters(bytes) } else { 0 };
            self.add_wide(position, &mut block, sure);
        }
        let ideographs = block.ideograph | block.ideograph_sign | block.ideograph_gap;
        block.other = in_text & !(block.letter | block.mark | block.number | block.space | block.odd | ideographs);
        block
    }

    /// Put the characters that are not ASCII into their masks. This is where text in other scripts spends its time: one
    /// load for the bytes of a character, one for its class. Letters and marks alternate in many scripts, so these are
    /// told apart without a branch; numbers and whitespace are rare. So are, among kana and ideographs, signs. The
    /// characters that begin at `sure` are letters and not loaded.
    #[inline(always)]
    fn add_wide(&mut self, position: usize, block: &mut Block, sure: u64) {
        let (mut no_letter, mut number, mut space) = (0, 0, 0);
        let letters = if R::LETTERS == Letters::Cased { LETTER } else { word_classes::<R>() };
        let mut add = |class: ClassSet, bytes: u64| {
            let select = |chosen: bool| if chosen { bytes } else { 0 };
            no_letter |= select(class & letters == 0);
            if R::LETTERS == Letters::InPieces {
                block.ideograph |= select(class == IDEOGRAPH);
                if matches!(class, 0 | IDEOGRAPH_SIGN | IDEOGRAPH_GAP) {
                    block.odd |= select(class == 0);
                    block.ideograph_sign |= select(class == IDEOGRAPH_SIGN);
                    block.ideograph_gap |= select(class == IDEOGRAPH_GAP);
                }
            }
            if R::HAN {
                block.ideograph |= select(class & HAN != 0);
                if class & HAN != 0 && class != HAN {
                    block.ideograph_sign |= select(class & HAN_SIGN != 0);
                    block.ideograph_number |= select(class & NUMBER != 0);
                    return;
                }
            }
            if class & (NUMBER | SPACE) != 0 {
                number |= select(class & NUMBER != 0);
                space |= select(class & SPACE != 0);
            }
            if R::LETTERS == Letters::Cased {
                block.upper |= select(class & UPPER != 0);
                block.caseless |= select(class & CASELESS != 0);
                block.mark |= select(class & MARK != 0);
            }
        };
        let mut class = self.straddling;
        // The continuation bytes at the very beginning belong to the character before: adding 1 carries through them.
        add(class, block.continuation & !block.continuation.wrapping_add(1));
        let mut leads = block.wide & !block.continuation & !sure;
        let last_is_sure = sure > leads;
        while leads != 0 {
            let index = leads.trailing_zeros();
            let length;
            (class, length) = self.reader.at_wide(position + index as usize);
            add(class, ones_below(length) << index);
            leads &= leads - 1;
        }
        self.straddling = if last_is_sure { LETTER } else { class };
        block.letter |= block.wide & !no_letter;
        block.number |= number;
        block.space |= space;
    }
}

/// Finds the word starts of one block after another.
///
/// What every block needs is kept apart from what is rare: only the latter is lent to functions of its own, so that the
/// compiler may keep the former in registers.
struct Finder<'a, R> {
    previous: Previous,
    numbers: Numbers,
    /// When the block before ended within numbers: how many of them its last group holds, or, for groups from the
    /// right, how many are still to come, modulo 3. Else 0.
    group: u32,
    rare: Rare<'a, R>,
}

/// Finds the starts that masks of one block cannot tell, by reading on.
struct Rare<'a, R> {
    reader: Reader<'a>,
    numbers: Numbers,
    held: Held,
    /// Where the last contraction ended that is part of a word; such a word takes no second one.
    contraction_end: usize,
    rules: PhantomData<R>,
}

/// What [`Finder::pieces`] finds.
#[derive(Clone, Copy, Default)]
struct Pieces {
    starts: u64,
    /// Letters here go on with the word before.
    joined: u64,
    ends_with_signed: u64,
}

/// Masks of the block before, of which the highest bits matter: they stand before the lowest of this one.
#[derive(Clone, Copy, Default)]
struct Previous {
    word: u64,
    number: u64,
    other: u64,
    blank: u64,
    loose: u64,
    indent: u64,
    attached: u64,
    either_case: u64,
    /// 1 if the block ended with the first character of a word of others, or within it.
    ends_with_first: u64,
    /// 1 if the block ended within a word of letters and behind a small one, with nothing but letters of either case
    /// since.
    ends_with_lower: u64,
    odd: u64,
    ideograph: u64,
    ideograph_sign: u64,
    ideograph_gap: u64,
    /// 1 if the block ended with a sign that begins a word of ASCII letters, or within that word.
    ends_with_signed: u64,
}

/// A stretch of text whose word starts are known already and replace those of the masks.
#[derive(Default)]
struct Held {
    from: usize,
    until: usize,
    /// Ascending; up to `done` they are in their blocks' masks.
    starts: Vec<usize>,
    done: usize,
}

impl<'a, R: Rules> Finder<'a, R> {
    #[inline(always)]
    fn new(text: &'a [u8], numbers: Numbers) -> Self {
        let reader = Reader { text, classes: classes::<R>() };
        let rare = Rare { reader, numbers, held: Held::default(), contraction_end: 0, rules: PhantomData };
        Finder { previous: Previous::default(), numbers, group: 0, rare }
    }

    /// Whether a Han character may be in the word of the number, sign or blank before it, of which the masks know nothing.
    #[inline(always)]
    fn joins_han(&self, block: &Block) -> bool {
        let unusual = block.ideograph_sign | block.ideograph_number;
        unusual != 0 && {
            let previous = self.previous;
            let before_signs = others::<R>(block, &previous).other | block.blank;
            let joined = block.ideograph_sign & before(before_signs, previous.other | previous.blank)
                | block.ideograph_number & before(block.number, previous.number);
            joined != 0
        }
    }

    /// The starts of words in the block at `position`, a multiple of 64.
    #[inline(always)]
    fn starts(&mut self, position: usize, block: &Block, next: &Block) -> u64 {
        let previous = self.previous;
        let Others { other, attached, mark } = others::<R>(block, &previous);
        let word = block.letter | (block.mark & !mark);
        // Whitespace that does not belong to others before it; and what of it is no line end.
        let loose = block.space & !attached;
        let indent = loose & !block.line_end;
        let after_blank = before(block.blank, previous.blank);

        let spaces = loose & !before(loose, previous.loose);
        let mut last = last_spaces::<R>(block, next);
        if R::LINE_ENDS != LineEnds::Plain {
            last &= !block.line_end;
        }
        // The first of each run of others that no blank has joined.
        let others = other & !before(other, previous.other) & !after_blank;
        let mut pieces = Pieces::default();
        if R::LETTERS == Letters::InPieces {
            pieces = self.pieces(position, block, next, others);
        }
        let (joined, ends_with_first) = match R::PREFIX {
            Prefix::Space => (after_blank, 0),
            Prefix::NoSign => (pieces.joined | before(indent, previous.indent), 0),
            Prefix::AnyButLineEnd => {
                let (behind, goes_on) = after_characters(others, previous.ends_with_first, block.continuation);
                (behind | before(indent, previous.indent), goes_on)
            }
        };
        let after_word = before(word, previous.word);
        let words = word & !after_word & !joined;
        let number_runs = block.number & !before(block.number, previous.number);
        let (numbers, group) = match self.numbers {
            Numbers::SpaceAndAll => (number_runs & !after_blank, 0),
            Numbers::Ones => (block.number & !block.continuation, 0),
            Numbers::Threes => number_groups(block, number_runs, self.group),
            Numbers::ThreesFromRight => self.groups_from_right(position, block, number_runs),
        };
        let mut starts = spaces | last | others | words | numbers | pieces.starts;

        if R::HAN {
            starts |= block.ideograph & !before(block.ideograph, previous.ideograph);
        }
        if R::LINE_ENDS != LineEnds::Plain {
            let candidates = indent & before(loose & block.line_end, previous.loose & !previous.indent);
            if candidates != 0 {
                // A word of indentation needs something solid behind it; at the end of the text, only in some patterns.
                let wrong = if R::WHOLE_TAIL { !block.solid::<R>() } else { loose };
                starts |= self.rare.last_indents(position, wrong, indent, candidates);
            }
        }
        let either_case = block.caseless | (block.mark & !mark);
        let mut ends_with_lower = 0;
        if R::LETTERS == Letters::Cased {
            let capitals;
            (capitals, ends_with_lower) = self.capitals(position, block, word, either_case);
            starts |= capitals;
        }
        if position < self.rare.held.until {
            self.rare.held.replace(position, &mut starts);
        }
        if R::CONTRACTIONS != Contractions::None {
            let before_quotes = if R::CONTRACTIONS == Contractions::Suffix { after_word } else { others };
            let quotes = block.apostrophe & before_quotes & after(block.letter, next.letter, 1);
            if quotes != 0 {
                starts = self.rare.contractions(position, quotes, starts);
            }
        }

        self.group = group;
        self.previous = Previous {
            word,
            number: block.number,
            other,
            blank: block.blank,
            loose,
            indent,
            attached,
            either_case,
            ends_with_first,
            ends_with_lower,
            odd: block.odd,
            ideograph: block.ideograph,
            ideograph_sign: block.ideograph_sign,
            ideograph_gap: block.ideograph_gap,
            ends_with_signed: pieces.ends_with_signed,
        };
        starts
    }

    /// What only the rules for pieces ask for; see [`Letters::InPieces`]. `others` are the first characters of runs of
    /// signs that no blank has joined.
    #[inline(always)]
    fn pieces(&self, position: usize, block: &Block, next: &Block, others: u64) -> Pieces {
        let previous = self.previous;
        // A single ASCII sign with ASCII letters behind it: they are its word, other letters behind them are a new one.
        let signs = others & !block.wide & after(block.ascii_letter, next.ascii_letter, 1);
        let first_letters = signs << 1 | previous.ends_with_signed;
        let ascii = block.ascii_letter;
        let (sum, reaches_on) = ascii.overflowing_add(first_letters & ascii);
        let behind = (sum | first_letters) & !ascii;

        let mut starts = behind & block.letter;
        starts |= block.odd & !before(block.odd, previous.odd);
        if block.odd != 0 {
            starts |= self.rare.last_before(position, block.odd & !block.continuation, OUTER_LETTER);
        }
        let after_gap = before(block.ideograph_gap, previous.ideograph_gap);
        starts |= block.ideograph & !before(block.ideograph, previous.ideograph) & !after_gap;
        starts |= block.ideograph_sign & !before(block.ideograph_sign, previous.ideograph_sign);
        starts |= block.ideograph_gap & !after_gap;
        if block.ideograph_gap != 0 {
            starts |= self.rare.last_before(position, block.ideograph_gap & !block.continuation, IDEOGRAPH);
        }
        Pieces {
            starts,
            joined: first_letters | before(block.odd, previous.odd),
            ends_with_signed: signs >> 63 | u64::from(reaches_on),
        }
    }

    /// The starts of groups of up to three numbers, counted from the ends of the runs. `runs` are the first of all runs.
    /// Also returned: how many numbers of the last run are behind the block, modulo 3.
    #[inline(always)]
    fn groups_from_right(&self, position: usize, block: &Block, runs: u64) -> (u64, u32) {
        let number = block.number;
        if number == 0 {
            return (0, 0);
        }
        let mut behind = 0;
        if number >> 63 != 0 {
            // Counted by reading on once a run: where it fills a block, what was behind the one before tells.
            behind = if number == !0 && runs == 0 {
                (self.group + 66 - (number & !block.continuation).count_ones()) % 3
            } else {
                self.rare.numbers_from(position + 64)
            };
        }
        if number & block.wide != 0 {
            return (wide_groups_from_right(number, block.continuation, runs, behind), behind);
        }
        let three = number & number >> 1 & number >> 2;
        // The last whole group of each run that ends in the block; of one that goes on, the first whose end is behind.
        let mut starts = three & !(number >> 3) & ones_below(61);
        let edge = 61 + behind;
        if number >> edge == ones_below(64 - edge as usize) {
            starts |= 1 << edge;
        }
        let mut more = starts >> 3 & three;
        while more != 0 {
            starts |= more;
            more = more >> 3 & three;
        }
        (starts | runs, behind)
    }

    /// The capitals that begin a word behind other letters, and whether the block ends so that a capital would begin
    /// one (1 or 0).
    ///
    /// A small letter ends the capitals of a word; letters of either case leave it as it is. So a capital begins a word
    /// if the last letter before it that is of one case is a small one. Without one, capitals behind a letter of either
    /// case go on with the word if any letter but a capital follows; otherwise the letter of either case was the last
    /// of its word.
    #[inline(always)]
    fn capitals(&self, position: usize, block: &Block, word: u64, either_case: u64) -> (u64, u64) {
        let lower = block.letter & !block.upper & !block.caseless;
        let after_lower = lower << 1 | self.previous.ends_with_lower;
        // Carry it through the letters of either case.
        let (sum, reaches_on) = either_case.overflowing_add(after_lower & either_case);
        let after_lower = after_lower | (sum & !either_case);
        let mut starts = block.upper & after_lower;
        let undecided = block.upper & before(either_case, self.previous.either_case) & !after_lower;
        if undecided != 0 {
            starts |= self.rare.last_capitals(position, block.upper, word, undecided);
        }
        (starts, lower >> 63 | u64::from(reaches_on))
    }
}

impl<R: Rules> Rare<'_, R> {
    /// Which of the characters that begin at `leads` have one of the classes behind them.
    #[inline(never)]
    fn last_before(&self, position: usize, mut leads: u64, classes: ClassSet) -> u64 {
        let mut last = 0;
        while leads != 0 {
            let lead = position + leads.trailing_zeros() as usize;
            if self.reader.is(lead + self.reader.at(lead).1, classes) {
                last |= leads & leads.wrapping_neg();
            }
            leads &= leads - 1;
        }
        last
    }

    /// How many numbers, modulo 3, the run that comes from before `position` has from there on.
    #[inline(never)]
    fn numbers_from(&self, position: usize) -> u32 {
        let position = self.reader.next_character(position.min(self.reader.text.len()));
        (self.reader.count(position, NUMBER) % 3) as u32
    }

    /// Which of the capitals, the first of their runs, stand in runs that end their words.
    #[inline(never)]
    fn last_capitals(&self, position: usize, upper: u64, word: u64, mut undecided: u64) -> u64 {
        let mut starts = 0;
        while undecided != 0 {
            let first = undecided.trailing_zeros();
            let end = first + (upper >> first).trailing_ones();
            let ends_word = if end < 64 {
                word >> end & 1 == 0
            } else {
                let end = self.reader.skip(self.reader.next_character(position + 64), UPPER);
                !self.reader.is(end, LETTER | MARK)
            };
            starts |= u64::from(ends_word) << first;
            undecided &= undecided - 1;
        }
        starts
    }

    /// `\s*[\r\n]` ends behind the last line end of a run of whitespace. What remains of the run begins a word there,
    /// if it does not end the text. Candidates are the first characters after each line end; the right one is that
    /// from which the indentation runs on to something solid, not to a further line end.
    #[inline(never)]
    fn last_indents(&self, position: usize, wrong: u64, indent: u64, candidates: u64) -> u64 {
        let mut right = candidates;
        let (sum, reaches_on) = indent.overflowing_add(candidates);
        if reaches_on {
            let last = 63 - candidates.leading_zeros();
            if !self.indent_ends_well(position + 64) {
                right &= !(1 << last);
            }
        }
        let mut wrong = wrong & sum & !indent;
        while wrong != 0 {
            let before_it = right & (wrong & wrong.wrapping_neg()).wrapping_sub(1);
            right &= !(1 << (63 - before_it.leading_zeros()));
            wrong &= wrong - 1;
        }
        right
    }

    /// Whether the indentation that comes from before `position` runs on to something that leaves it a word.
    fn indent_ends_well(&self, position: usize) -> bool {
        let text = self.reader.text;
        let mut position = self.reader.next_character(position);
        while position < text.len() {
            let (class, length) = self.reader.at(position);
            if class & SPACE == 0 {
                return true;
            }
            if is_line_end(text[position]) {
                return false;
            }
            position += length;
        }
        !R::WHOLE_TAIL
    }

    /// Look at each apostrophe that may begin a contraction, and put the starts right if it does.
    #[inline(never)]
    fn contractions(&mut self, position: usize, mut quotes: u64, mut starts: u64) -> u64 {
        while quotes != 0 {
            let quote = position + quotes.trailing_zeros() as usize;
            quotes &= quotes - 1;
            if R::CONTRACTIONS == Contractions::Suffix && quote == self.contraction_end {
                continue;
            }
            if let Some(length) = contraction::<R>(&self.reader.text[quote..]) {
                self.hold(quote, quote + length);
                self.held.replace(position, &mut starts);
            }
        }
        starts
    }

    /// Set down the starts in and behind the contraction from `quote` to `end`, where the masks know nothing of it.
    fn hold(&mut self, quote: usize, end: usize) {
        let held = &mut self.held;
        held.starts.clear();
        held.done = 0;
        if R::CONTRACTIONS == Contractions::Suffix {
            self.contraction_end = end;
            // Letters behind it are a new word, and tell their case anew: they are read one by one. Anything else is a
            // start in the masks too.
            held.from = quote;
            held.until = self.reader.skip(end, word_classes::<R>());
            let mut start = end;
            while start < held.until {
                held.starts.push(start);
                start = word_end::<R>(&self.reader, self.numbers, start);
            }
        } else {
            // The apostrophe is a start in the masks. What follows the contraction is one now.
            held.from = quote + 1;
            held.until = end + 1;
            if end < self.reader.text.len() {
                held.starts.push(end);
            }
        }
    }
}

impl Held {
    /// Replace what the masks say of the block at `position`.
    fn replace(&mut self, position: usize, starts: &mut u64) {
        let inside = |place: usize| place.saturating_sub(position).min(64);
        *starts &= !(ones_below(inside(self.until)) & !ones_below(inside(self.from)));
        while let Some(start) = self.starts.get(self.done)
            && *start < position + 64
        {
            *starts |= 1 << (start - position);
            self.done += 1;
        }
    }
}

/// The characters that are no letters, numbers or whitespace, and what belongs to their words.
struct Others {
    /// `[^\s\p{L}\p{N}]`, but for marks in words of letters and for what is attached.
    other: u64,
    /// Line ends (and slashes, in some patterns) that belong to the word of others before them.
    attached: u64,
    /// The marks that are among the others.
    mark: u64,
}

#[inline(always)]
fn others<R: Rules>(block: &Block, previous: &Previous) -> Others {
    let after_other = before(block.other, previous.other | previous.attached);
    match R::LINE_ENDS {
        LineEnds::Plain => Others { other: block.other, attached: 0, mark: 0 },
        LineEnds::Cut if R::LETTERS == Letters::Cased && block.mark & after_other != 0 => {
            others_with_marks(*block, *previous)
        }
        LineEnds::Cut => {
            let attached = flood(block.line_end, block.line_end & after_other);
            Others { other: block.other, attached, mark: 0 }
        }
        LineEnds::CutWithSlashes if block.mark & after_other != 0 => others_with_marks(*block, *previous),
        LineEnds::CutWithSlashes => {
            let first = (block.line_end & after_other) | (block.slash & previous.attached >> 63);
            let attached = flood(block.line_end | block.slash, first);
            Others { other: block.other & !attached, attached, mark: 0 }
        }
    }
}

/// The same where marks stand behind others, one by one. A mark makes a word of letters if the other before it is just
/// one, which then is the prefix of that word; otherwise it is one more of the others.
#[inline(never)]
fn others_with_marks(block: Block, previous: Previous) -> Others {
    /// What the characters so far have come to.
    #[derive(Clone, Copy, PartialEq)]
    enum Run {
        None,
        /// One other, which could be a prefix.
        Single,
        /// Others that cannot: several, or with a blank before them.
        Several,
        /// Line ends and slashes behind others.
        Attached,
    }
    let mut run = if previous.attached >> 63 != 0 {
        Run::Attached
    } else if previous.other >> 63 == 0 {
        Run::None
    } else if previous.ends_with_first != 0 {
        Run::Single
    } else {
        Run::Several
    };
    let mut attached = 0;
    // The rest of a character across the edge goes with its beginning.
    let straddling = block.continuation & !block.continuation.wrapping_add(1);
    let mut mark = if run == Run::None { 0 } else { block.mark & straddling };
    let after_blank = before(block.blank, previous.blank);
    let of_any = block.letter | block.mark | block.number | block.other | block.space | block.ideograph;
    let mut characters = of_any & !block.continuation;
    while characters != 0 {
        let bit = characters & characters.wrapping_neg();
        characters &= characters - 1;
        let bytes = (characters & characters.wrapping_neg()).wrapping_sub(bit); // up to the next character
        if block.mark & bit != 0 {
            if run == Run::Several {
                mark |= block.mark & bytes;
            } else {
                run = Run::None;
            }
        } else if block.line_end & bit != 0 && run != Run::None || block.slash & bit != 0 && run == Run::Attached {
            run = Run::Attached;
            attached |= bit;
        } else if block.other & bit != 0 {
            let alone = matches!(run, Run::None | Run::Attached) && after_blank & bit == 0;
            run = if alone { Run::Single } else { Run::Several };
        } else {
            run = Run::None;
        }
    }
    Others { other: (block.other | mark) & !attached, attached, mark }
}

/// The last character of each run of whitespace, where something solid follows.
#[inline(always)]
fn last_spaces<R: Rules>(block: &Block, next: &Block) -> u64 {
    let solid = block.solid::<R>();
    let next_solid = next.solid::<R>();
    let mut last = block.space & !block.wide & after(solid, next_solid, 1);
    if block.space & block.wide != 0 {
        // Whitespace that is not ASCII takes two or three bytes.
        let lead = block.space & block.wide & !block.continuation;
        let three = after(block.continuation, next.continuation, 2);
        last |= lead & !three & after(solid, next_solid, 2);
        last |= lead & three & after(solid, next_solid, 3);
    }
    last
}

/// The starts of groups of up to three numbers. `runs` are the first of all runs; `group` is how many numbers the group
/// before the block holds that goes on in it. Also returned: the same for the next block.
#[inline(always)]
fn number_groups(block: &Block, runs: u64, group: u32) -> (u64, u32) {
    let number = block.number;
    if number & block.wide != 0 {
        return wide_number_groups(number, block.continuation, runs, group);
    }
    let mut starts = runs;
    if group > 0 {
        // The group takes 3 - group numbers more; if there is still another one, it starts the next.
        let begun = 3 - group;
        let needed = ones_below(begun as usize + 1);
        if number & needed == needed {
            starts |= 1 << begun;
        }
    }
    // Three numbers behind a start, if all between are numbers too, is the next start.
    let fourth = number & (number << 1) & (number << 2);
    let mut more = (starts << 3) & fourth;
    while more != 0 {
        starts |= more;
        more = (more << 3) & fourth;
    }
    let group = if number >> 63 != 0 { starts.leading_zeros() + 1 } else { 0 };
    (starts, group)
}

/// The same where numbers take several bytes: one by one.
#[inline(never)]
fn wide_number_groups(number: u64, continuation: u64, runs: u64, mut group: u32) -> (u64, u32) {
    let mut starts = 0;
    let mut numbers = number & !continuation;
    while numbers != 0 {
        let bit = numbers & numbers.wrapping_neg();
        if runs & bit != 0 || group == 0 || group == 3 {
            starts |= bit;
            group = 0;
        }
        group += 1;
        numbers &= numbers - 1;
    }
    (starts, if number >> 63 != 0 { group } else { 0 })
}

/// [`Finder::groups_from_right`] where numbers take several bytes: run by run, and in each one by one.
#[inline(never)]
fn wide_groups_from_right(number: u64, continuation: u64, runs: u64, behind: u32) -> u64 {
    let mut starts = runs;
    let mut rest = number;
    while rest != 0 {
        let first = rest.trailing_zeros();
        let length = (rest >> first).trailing_ones();
        let run = ones_below(length as usize) << first;
        let mut numbers = run & !continuation;
        let mut left = numbers.count_ones() + if first + length == 64 { behind } else { 0 };
        while numbers != 0 {
            if left.is_multiple_of(3) {
                starts |= numbers & numbers.wrapping_neg();
            }
            left -= 1;
            numbers &= numbers - 1;
        }
        rest &= !run;
    }
    starts
}

/// Bit `i` is what `mask` says of the byte before byte `i`.
#[inline(always)]
fn before(mask: u64, previous: u64) -> u64 {
    mask << 1 | previous >> 63
}

/// Bit `i` is what `mask` says of byte `i + distance`.
#[inline(always)]
fn after(mask: u64, next: u64, distance: u32) -> u64 {
    mask >> distance | next << (64 - distance)
}

/// From each bit of `from`, all of which are in `through`, to the end of the run of ones it stands in. The sum clears
/// what the carries run through; it does not clear a bit of `from` that a carry comes by, hence the last step.
#[inline(always)]
fn flood(through: u64, from: u64) -> u64 {
    (through & !through.wrapping_add(from)) | from
}

/// Where the characters that begin at `first` end; 1 bit for each, on the byte behind it. `carried` is 1 if one of them
/// goes on from the block before (or ended with it); the second result is the same for the next block. The shift steps
/// behind the first byte, and the sum carries the bit through the continuation bytes that may follow.
#[inline(always)]
fn after_characters(first: u64, carried: u64, continuation: u64) -> (u64, u64) {
    let (sum, reaches_on) = continuation.overflowing_add(first << 1 | carried);
    (sum & !continuation, first >> 63 | u64::from(reaches_on))
}

/// The lowest `count` bits, up to all 64.
#[inline(always)]
fn ones_below(count: usize) -> u64 {
    if count < 64 { (1 << count) - 1 } else { !0 }
}
