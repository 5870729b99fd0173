//! The plain scanner: one character after another, the alternatives of the pattern in their order.
//!
//! Every faster scanner is held equal to it, so it is written to be read: at about a quarter of their speed.

use super::classes::{
    CASELESS, ClassMap, ClassSet, HAN, IDEOGRAPH, IDEOGRAPH_GAP, IDEOGRAPH_SIGN, LETTER, LOWER, MARK, NUMBER,
    OUTER_LETTER, PUNCTUATION, SPACE, SYMBOL, UPPER, class_map, han_map, pieces_map,
};
use super::pattern::{Cl100k, Deepseek3, Gpt2, Gpt2Marks, KimiK2, Llama3, O200k, Qwen35, Tekken};
use super::pattern::{Contractions, Letters, LineEnds, Numbers, Pattern, Prefix, Rules, Shape};

/// Call `emit` with each word of `text`, in order. The slow twin of [`super::Scanner`].
pub fn words<'a>(pattern: Pattern, text: &'a str, mut emit: impl FnMut(&'a str)) {
    let mut start = 0;
    let mut each = |end| {
        emit(&text[start..end]);
        start = end;
    };
    let all = text.len();
    match pattern.shape() {
        Shape::Gpt2 => ends::<Gpt2>(text, all, pattern.numbers(), each),
        Shape::Gpt2Marks => ends::<Gpt2Marks>(text, all, pattern.numbers(), each),
        Shape::Cl100k => ends::<Cl100k>(text, all, pattern.numbers(), each),
        Shape::Llama3 => ends::<Llama3>(text, all, pattern.numbers(), each),
        Shape::O200k => ends::<O200k>(text, all, pattern.numbers(), each),
        Shape::Qwen35 => ends::<Qwen35>(text, all, pattern.numbers(), each),
        Shape::Tekken => ends::<Tekken>(text, all, pattern.numbers(), each),
        Shape::KimiK2 => ends::<KimiK2>(text, all, pattern.numbers(), each),
        Shape::Deepseek3 => ends::<Deepseek3>(text, all, pattern.numbers(), each),
        Shape::Whole if text.is_empty() => {}
        Shape::Whole => each(text.len()),
    }
}

/// Call `emit` with the end of each word of `text` that begins before `until`, in order, as byte offsets.
///
/// Linear in the text: what a rule reads beyond the end of its word (whitespace that is given back, capitals that could
/// have been followed by a small letter) is read at most once more.
pub(crate) fn ends<R: Rules>(text: &str, until: usize, numbers: Numbers, mut emit: impl FnMut(usize)) {
    let reader = Reader { text: text.as_bytes(), classes: classes::<R>() };
    let mut position = 0;
    while position < until {
        if numbers == Numbers::ThreesFromRight && reader.is(position, NUMBER) {
            // The groups of a run all follow from its length, which is counted once.
            for left in (1..=reader.count(position, NUMBER)).rev() {
                position += reader.at(position).1;
                if left % 3 == 1 {
                    emit(position);
                }
            }
        } else {
            position = word_end::<R>(&reader, numbers, position);
            emit(position);
        }
    }
}

/// The map that the rules read.
pub(crate) fn classes<R: Rules>() -> &'static ClassMap {
    match R::LETTERS {
        Letters::InPieces => pieces_map(),
        _ if R::HAN => han_map(),
        _ => class_map(),
    }
}

/// The end of the word that begins at `start`, which is before the end of the text.
#[inline(always)]
pub(crate) fn word_end<R: Rules>(reader: &Reader, numbers: Numbers, start: usize) -> usize {
    let first = reader.text[start];
    if matches!(R::CONTRACTIONS, Contractions::LowerCase | Contractions::AnyCase)
        && first == b'\''
        && let Some(length) = contraction::<R>(&reader.text[start..])
    {
        return start + length;
    }
    let (class, length) = reader.at(start);
    let after_space = if first == b' ' { start + 1 } else { start };

    if R::LETTERS == Letters::InPieces
        && let Some(end) = only_in_pieces(reader, start)
    {
        return end;
    }
    if R::HAN && class & HAN != 0 {
        return reader.skip(start, HAN);
    }
    let in_words = word_classes::<R>();
    let letters = match R::PREFIX {
        Prefix::Space => after_space,
        _ if class & (in_words | NUMBER) != 0 || is_line_end(first) => start,
        // With `Cased`, a mark could be a prefix too. It need not: the letters and marks after it give the same word.
        Prefix::AnyButLineEnd => start + length,
        Prefix::NoSign if class & (PUNCTUATION | SYMBOL) != 0 => start,
        Prefix::NoSign => start + length,
    };
    if reader.is(letters, in_words) {
        return match R::LETTERS {
            Letters::Cased => cased_end::<R>(reader, letters),
            _ => reader.skip(letters, in_words),
        };
    }

    if numbers == Numbers::SpaceAndAll {
        if reader.is(after_space, NUMBER) {
            return reader.skip(after_space, NUMBER);
        }
    } else if class & NUMBER != 0 {
        let most = if numbers == Numbers::Ones { 1 } else { 3 };
        return reader.skip_up_to(start, NUMBER, most);
    }

    let after_others = match R::LETTERS {
        Letters::InPieces => reader.skip(after_space, PUNCTUATION | SYMBOL),
        // Of Han characters only letters and numbers end such a word.
        _ if R::HAN => reader.skip_while(after_space, |class| class & (LETTER | NUMBER | SPACE) == 0 && class != HAN),
        // With `Cased`, marks that no letter has taken are others.
        Letters::Any | Letters::Cased => reader.skip_others(after_space, LETTER | NUMBER | SPACE),
        Letters::WithMarks => reader.skip_others(after_space, LETTER | MARK | NUMBER | SPACE),
    };
    if after_others > after_space {
        return match R::LINE_ENDS {
            LineEnds::Plain => after_others,
            LineEnds::Cut => reader.skip_bytes(after_others, is_line_end),
            LineEnds::CutWithSlashes => reader.skip_bytes(after_others, |byte| is_line_end(byte) || byte == b'/'),
        };
    }
    if class & SPACE == 0 {
        return gap_end(reader, start, class, OUTER_LETTER); // only in pieces is there anything else
    }
    whitespace_end::<R>(reader, start)
}

/// What a word of letters is made of.
pub(crate) const fn word_classes<R: Rules>() -> ClassSet {
    match R::LETTERS {
        Letters::Any => LETTER,
        Letters::WithMarks | Letters::Cased => LETTER | MARK,
        Letters::InPieces => OUTER_LETTER,
    }
}

/// The end of a word of kana and ideographs, or of an ASCII sign and ASCII letters, if one begins at `start`.
fn only_in_pieces(reader: &Reader, start: usize) -> Option<usize> {
    match reader.at(start).0 {
        class @ (IDEOGRAPH | IDEOGRAPH_SIGN) => Some(reader.skip(start, class)),
        IDEOGRAPH_GAP => Some(gap_end(reader, start, IDEOGRAPH_GAP, IDEOGRAPH)),
        _ => {
            let letters = reader.text.get(start + 1).is_some_and(u8::is_ascii_alphabetic);
            (letters && reader.text[start].is_ascii_punctuation())
                .then(|| reader.skip_bytes(start + 1, |byte| byte.is_ascii_alphabetic()))
        }
    }
}

/// The end of what begins at `start` with characters of `class`, which no rule takes but as a prefix of `letters`. The
/// last of them goes to the letters behind it, if there are any; if it is the only one, they are the word.
fn gap_end(reader: &Reader, start: usize, class: ClassSet, letters: ClassSet) -> usize {
    let (mut last, mut end) = (start, start);
    while end < reader.text.len() && reader.at(end).0 == class {
        last = end;
        end += reader.at(end).1;
    }
    match reader.is(end, letters) {
        true if last == start => reader.skip(end, letters),
        true => last,
        false => end,
    }
}

/// The end of the word of letters and marks at `start`, told by case: capitals, then small letters; what has no case
/// counts as either. At least one of the two must be there, small ones before capitals.
fn cased_end<R: Rules>(reader: &Reader, start: usize) -> usize {
    let mut end = start;
    let mut after_caseless = None;
    while reader.is(end, UPPER | CASELESS | MARK) {
        let (class, length) = reader.at(end);
        end += length;
        if class != UPPER {
            after_caseless = Some(end);
        }
    }
    if reader.is(end, LOWER) {
        end = reader.skip(end, LOWER | CASELESS | MARK);
    } else {
        // No small letter behind the capitals: the first alternative gives them back until one without case is at the
        // end, and takes that for a small one. If there is none, the second alternative takes all the capitals.
        end = after_caseless.unwrap_or(end);
    }
    if R::CONTRACTIONS == Contractions::Suffix && reader.text.get(end) == Some(&b'\'') {
        end += contraction::<R>(&reader.text[end..]).unwrap_or(0);
    }
    end
}

/// The end of the word of whitespace at `start`: nothing else begins there.
fn whitespace_end<R: Rules>(reader: &Reader, start: usize) -> usize {
    let mut end = start;
    let mut last = start;
    let mut after_line_end = start;
    while reader.is(end, SPACE) {
        last = end;
        end += reader.at(end).1;
        if is_line_end(reader.text[last]) {
            after_line_end = end;
        }
    }
    // Numbers and ideographs are in pieces of their own: the text ends before them.
    let at_end_of_text = end == reader.text.len()
        || R::LETTERS == Letters::InPieces && reader.is(end, NUMBER | IDEOGRAPH | IDEOGRAPH_SIGN | IDEOGRAPH_GAP);
    if R::WHOLE_TAIL && at_end_of_text {
        end
    } else if R::LINE_ENDS != LineEnds::Plain && after_line_end > start {
        after_line_end
    } else if at_end_of_text || last == start {
        end
    } else {
        last // `\s+(?!\S)`: the last one is left for what follows
    }
}

/// The length of the contraction at the beginning of `rest`, which begins with an apostrophe.
pub(crate) fn contraction<R: Rules>(rest: &[u8]) -> Option<usize> {
    let any_case = R::CONTRACTIONS != Contractions::LowerCase;
    let letter = |index: usize| {
        let byte = *rest.get(index)?;
        Some(if any_case { byte.to_ascii_lowercase() } else { byte })
    };
    match (letter(1)?, letter(2)) {
        (b's' | b'd' | b'm' | b't', _) => Some(2),
        (b'l', Some(b'l')) | (b'v' | b'r', Some(b'e')) => Some(3),
        // U+017F, the long s, folds to `s`. Its bytes are no ASCII letters, so lowering the case left them alone.
        (0xC5, Some(0xBF)) if any_case => Some(3),
        _ => None,
    }
}

pub(crate) fn is_line_end(byte: u8) -> bool {
    byte == b'\r' || byte == b'\n'
}

/// A text with the classes of its characters. Positions are byte offsets of characters, or the end of the text.
pub(crate) struct Reader<'a> {
    /// Valid UTF-8.
    pub text: &'a [u8],
    pub classes: &'a ClassMap,
}

impl Reader<'_> {
    /// The class of the character at `position` and its length in bytes.
    #[inline(always)]
    pub fn at(&self, position: usize) -> (ClassSet, usize) {
        let first = self.text[position];
        if first < 0x80 { (self.classes[first as usize], 1) } else { self.at_wide(position) }
    }

    /// The same for a character known not to be ASCII.
    #[inline(always)]
    pub fn at_wide(&self, position: usize) -> (ClassSet, usize) {
        // Four bytes in one load, but for the last ones of the text.
        let bytes = match self.text[position..].first_chunk() {
            Some(bytes) => *bytes,
            None => std::array::from_fn(|index| self.text.get(position + index).copied().unwrap_or(0)),
        };
        let [first, second, third, fourth] = bytes.map(|byte| byte as usize);
        let (second, third, fourth) = (second & 0x3F, third & 0x3F, fourth & 0x3F);
        let (code_point, length) = match first {
            ..=0xDF => ((first & 0x1F) << 6 | second, 2),
            0xE0..=0xEF => ((first & 0x0F) << 12 | second << 6 | third, 3),
            _ => ((first & 0x07) << 18 | second << 12 | third << 6 | fourth, 4),
        };
        (self.classes[code_point], length)
    }

    /// The first position from `position` on that is no continuation byte.
    pub fn next_character(&self, mut position: usize) -> usize {
        while self.text.get(position).is_some_and(|byte| byte & 0xC0 == 0x80) {
            position += 1;
        }
        position
    }

    /// Whether a character of one of the classes is at `position`; there is none at the end of the text.
    pub fn is(&self, position: usize, classes: ClassSet) -> bool {
        position < self.text.len() && self.at(position).0 & classes != 0
    }

    /// Past the characters that satisfy the condition.
    #[inline(always)]
    fn skip_while(&self, mut position: usize, condition: impl Fn(ClassSet) -> bool) -> usize {
        while position < self.text.len() {
            let (class, length) = self.at(position);
            if !condition(class) {
                break;
            }
            position += length;
        }
        position
    }

    pub fn skip(&self, position: usize, classes: ClassSet) -> usize {
        self.skip_while(position, |class| class & classes != 0)
    }

    pub fn skip_others(&self, position: usize, classes: ClassSet) -> usize {
        self.skip_while(position, |class| class & classes == 0)
    }

    /// How many characters of the classes stand at `position`.
    pub fn count(&self, position: usize, classes: ClassSet) -> usize {
        let bytes = &self.text[position..self.skip(position, classes)];
        bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
    }

    fn skip_up_to(&self, mut position: usize, classes: ClassSet, most: usize) -> usize {
        for _ in 0..most {
            if !self.is(position, classes) {
                break;
            }
            position += self.at(position).1;
        }
        position
    }

    fn skip_bytes(&self, position: usize, condition: impl Fn(u8) -> bool) -> usize {
        position + self.text[position..].iter().take_while(|&&byte| condition(byte)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Pattern {
        Pattern::from_name(name).unwrap()
    }

    fn check(pattern: Pattern, expected: &[&str]) {
        let text = expected.concat();
        let mut found = Vec::new();
        words(pattern, &text, |word| found.push(word));
        assert_eq!(found, expected, "{} on {text:?}", pattern.name());
    }

    #[test]
    fn gpt2_cuts_known_texts() {
        let check = |expected: &[&str]| check(named("gpt2"), expected);
        check(&["1234"]);
        check(&["12345"]);
        check(&["1000000"]);
        check(&["3", ".", "14159"]);
        check(&["2024"]);
        check(&["   ", " x", " =", " 1"]);
        check(&["       ", " x", " =", " 1"]);
        check(&["\t", "x", " =", " 1"]);
        check(&["strawberry"]);
        check(&["café", " —", " naïve", " —", " 日本語"]);
        check(&["don", "'t", " DON", "'", "T"]);
        check(&["a", "\n\n ", " b"]);
        check(&["ह", "ि", "न", "्", "द", "ी"]);
        check(&["x", "  \n\n", " y", " "]);
    }

    #[test]
    fn cl100k_cuts_known_texts() {
        let check = |expected: &[&str]| check(named("cl100k"), expected);
        check(&["123", "4"]);
        check(&["123", "45"]);
        check(&["100", "000", "0"]);
        check(&["3", ".", "141", "59"]);
        check(&["202", "4"]);
        check(&["   ", " x", " =", " ", "1"]);
        check(&["       ", " x", " =", " ", "1"]);
        check(&["\tx", " =", " ", "1"]);
        check(&["strawberry"]);
        check(&["café", " —", " naïve", " —", " 日本語"]);
        check(&["don", "'t", " DON", "'T"]);
        check(&["a", "\n\n", " ", " b"]);
        check(&["ह", "िन", "्द", "ी"]);
        check(&["x", "  \n\n", " y", " "]);
    }

    #[test]
    fn contractions_begin_a_word_or_are_none() {
        for pattern in [named("gpt2"), named("cl100k")] {
            check(pattern, &["we", "'re", "'ve", "''", "d"]);
            check(pattern, &["x", " '", "s"]);
            check(pattern, &["!'", "s"]);
            check(pattern, &["'t", "is"]);
            check(pattern, &["it", "'s", "'s"]);
        }
        check(named("gpt2"), &["I", "'", "LL", " go", "'", "ſ", "'", "ls"]);
        check(named("cl100k"), &["I", "'Ll", " go", "'ſ", "'ls"]);
    }

    #[test]
    fn whitespace_that_is_and_is_not_a_line_end() {
        // U+0085 and U+2028 are whitespace, but no line ends; U+001C is neither.
        check(named("cl100k"), &["a", "\u{85}", "\u{2028}b", "\u{1c}c"]);
        check(named("gpt2"), &["a", "\u{85}", "\u{2028}", "b", "\u{1c}", "c"]);
        check(named("cl100k"), &["a", ".\r\n\n", " \n", "  ", " b"]);
        check(named("gpt2"), &["a", ".", "\r\n\n \n  ", " b"]);
        // Only at the end of a text does whitespace stay in one piece across line ends.
        check(named("cl100k"), &["a", "  \n  "]);
        check(named("cl100k"), &["a", "  \n", " ", " b"]);
    }

    #[test]
    fn llama3_and_qwen2_differ_from_cl100k() {
        for pattern in [named("llama3"), named("qwen2")] {
            check(pattern, &["I", "'Ll", " go", "'ſ", "!\n", "  \n", "  "]);
        }
        check(named("llama3"), &["a", " ", "123", "45"]);
        check(named("qwen2"), &["a", " ", "1", "2", "3", "½", "5"]);
    }

    #[test]
    fn o200k_tells_case() {
        let check = |expected: &[&str]| check(named("o200k"), expected);
        check(&["camel", "Case", " HTTPServer", " Http", "SERVER", "_name"]);
        check(&["don't", " DON'T", "x", " it's", "'s", " '", "s"]);
        // Letters without case go with both kinds, but capitals that nothing follows are left alone.
        check(&["中ABc", " 中", "ABC", " a中", "B", " A中b"]);
        // Marks belong to words, unless they come in a run of other characters.
        check(&["हिन्दी", " e\u{301}", "A", " \u{301}a", "!\u{301}a", "!!\u{301}", "a"]);
        check(&["!\n/\n/", "!/\r\n/", "x", " \n", "/x", "  \n", "  "]);
    }

    #[test]
    fn tekken_is_o200k_without_contractions() {
        let check = |expected: &[&str]| check(named("tekken"), expected);
        check(&["don", "'t", " DON", "'T", " camel", "Case", "'s", "1", "2", "x", "'", "1", " e\u{301}", "!\n/"]);
    }

    #[test]
    fn kimi_k2_takes_han_runs_out() {
        let check = |expected: &[&str]| check(named("kimi-k2"), expected);
        check(&["don't", " A", "中文", "a", "中", "Ab", " ", "中", "の", "中"]);
        check(&["日々〇⺀", "12", "日", " ", " ", "日", "!\n", "/x", "(", "日", ")"]);
        // Behind a number a number is one more of them, and behind a sign or a blank a sign.
        check(&["1〇2", "〇", "a", "123", "〇〇", "4〇", "中"]);
        check(&["!⺀⺀\u{16ff0}!\n\n", "⺀", " ⺀!", "〇", " ", "〇", "!\u{301}", "⺀", "!!\u{301}⺀", "中"]);
    }

    #[test]
    fn qwen35_keeps_marks_with_letters() {
        let check = |expected: &[&str]| check(named("qwen3.5"), expected);
        check(&["हिन्दी", " \u{301}a", "1", "\u{301}", "2", "!\u{301}", "'Ll", " e\u{301}", "'s", "!!\n"]);
    }

    #[test]
    fn marks_stay_with_letters_in_gpt2_marks() {
        let check = |expected: &[&str]| check(named("gpt2-marks"), expected);
        check(&["हिन्दी", " e\u{301}", " \u{301}a", "!", "\u{301}a", "1", "\u{301}", " 12", "!!"]);
        check(&["don", "'t", "\u{301}x", "  ", " ที่"]);
    }

    #[test]
    fn digits_in_groups() {
        check(named("gpt2+digits1"), &["a", " ", "1", "2", "½", "b"]);
        check(named("gpt2+digits3"), &["a", " ", " ", "123", "45", "b"]);
        check(named("gpt2+digits3r"), &["12", "345", "a", "123", "456", " ", "7", ".", "1", "٢٣٤"]);
        check(named("cl100k+digits3r"), &["1", "000", "000", "\u{301}a", "12"]);
        check(named("llama3+digits3r"), &["12", "345", " x", "123"]);
        check(named("o200k+digits1"), &["1", "2", "a", "B"]);
    }

    #[test]
    fn deepseek3_cuts_three_times() {
        let check = |expected: &[&str]| check(named("deepseek3"), expected);
        check(&["x", "(abc", "é", "(", "é", " (", "abc", "((", "a", "!\n\n", ".a"]);
        // Numbers and kana and ideographs end the pieces: white space before them is at an end.
        check(&["a", "  ", "12", "\n", "  ", "日本", "・", "語", "  ", "123", "4", " ", " b"]);
        check(&["!", "・", "\n", "゛", "あ", "々", "日", "\u{301}", "か\u{3099}"]);
        // What no rule takes: control and format characters, unassigned ones. The last one may be a prefix.
        check(&["\0\u{1}", "\u{2}a", " ", "\0", "\u{200d}b", "\u{200d}\u{200d}", "1", "\u{3040}日", "\u{3040}"]);
        check(&["\u{3040}\u{3097}", "\u{3098}日", "\0", "\u{3040}", " ", " ", "\0", "!"]);
        check(&["don", "'t", " don", "'T", " —", "a", "\ta\u{301}"]);
    }
}
