//! The plain scanner: one character after another, the alternatives of the pattern in their order.
//!
//! It runs where nothing faster does, and every faster scanner is held equal to it. 400 MB/s or so.

use crate::classes::{ClassMap, ClassSet, LETTER, NUMBER, SPACE, class_map};
use crate::scan::{Cl100k, Contractions, Gpt2, Numbers, Pattern, Prefix, Rules};

/// Call `emit` with each word of `text`, in order. The slow twin of [`crate::scan::Scanner`].
pub fn words<'a>(pattern: Pattern, text: &'a str, mut emit: impl FnMut(&'a str)) {
    let mut start = 0;
    let each = |end| {
        emit(&text[start..end]);
        start = end;
    };
    match pattern {
        Pattern::Gpt2 => ends::<Gpt2>(text, each),
        Pattern::Cl100k => ends::<Cl100k>(text, each),
    }
}

/// Call `emit` with the end of each word of `text`, in order, as byte offsets.
///
/// Linear in the text: each rule reads to the end of the word it makes, and whitespace, which may be given back, is
/// read twice at most.
pub(crate) fn ends<R: Rules>(text: &str, mut emit: impl FnMut(usize)) {
    let reader = Reader { text: text.as_bytes(), classes: class_map() };
    let mut position = 0;
    while position < text.len() {
        position = word_end::<R>(&reader, position);
        emit(position);
    }
}

/// The end of the word that begins at `start`, which is before the end of the text.
#[inline(always)]
fn word_end<R: Rules>(reader: &Reader, start: usize) -> usize {
    let first = reader.text[start];
    if first == b'\''
        && let Some(length) = contraction(&reader.text[start..], R::CONTRACTIONS)
    {
        return start + length;
    }
    let (class, length) = reader.at(start);
    let after_space = if first == b' ' { start + 1 } else { start };

    let letters = match R::PREFIX {
        Prefix::Space => after_space,
        Prefix::AnyButLineEnd if class & (LETTER | NUMBER) != 0 || is_line_end(first) => start,
        Prefix::AnyButLineEnd => start + length,
    };
    if reader.is(letters, LETTER) {
        return reader.skip(letters, LETTER);
    }

    match R::NUMBERS {
        Numbers::SpaceAndAll if reader.is(after_space, NUMBER) => return reader.skip(after_space, NUMBER),
        Numbers::UpTo(most) if class & NUMBER != 0 => return reader.skip_up_to(start, NUMBER, most),
        _ => {}
    }

    let after_others = reader.skip_others(after_space);
    if after_others > after_space {
        return if R::LINE_ENDS { reader.skip_line_ends(after_others) } else { after_others };
    }
    whitespace_end::<R>(reader, start)
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
    let at_end_of_text = end == reader.text.len();
    if R::WHOLE_TAIL && at_end_of_text {
        end
    } else if R::LINE_ENDS && after_line_end > start {
        after_line_end
    } else if at_end_of_text || last == start {
        end
    } else {
        last // `\s+(?!\S)`: the last one is left for what follows
    }
}

/// The length of the contraction at the beginning of `rest`, which begins with an apostrophe.
pub(crate) fn contraction(rest: &[u8], contractions: Contractions) -> Option<usize> {
    let letter = |index: usize| {
        let byte = *rest.get(index)?;
        Some(if contractions == Contractions::AnyCase { byte.to_ascii_lowercase() } else { byte })
    };
    match (letter(1)?, letter(2)) {
        (b's' | b'd' | b'm' | b't', _) => Some(2),
        (b'l', Some(b'l')) | (b'v' | b'r', Some(b'e')) => Some(3),
        // U+017F, the long s, folds to `s`. Its bytes are no ASCII letters, so lowering the case left them alone.
        (0xC5, Some(0xBF)) if contractions == Contractions::AnyCase => Some(3),
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

    fn at_wide(&self, position: usize) -> (ClassSet, usize) {
        let byte = |index: usize| self.text[position + index] as usize;
        let low = |index: usize| byte(index) & 0x3F;
        let (code_point, length) = match byte(0) {
            first @ ..0xE0 => ((first & 0x1F) << 6 | low(1), 2),
            first @ ..0xF0 => ((first & 0x0F) << 12 | low(1) << 6 | low(2), 3),
            first => ((first & 0x07) << 18 | low(1) << 12 | low(2) << 6 | low(3), 4),
        };
        (self.classes[code_point], length)
    }

    /// Whether a character of one of the classes is at `position`; there is none at the end of the text.
    fn is(&self, position: usize, classes: ClassSet) -> bool {
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

    fn skip(&self, position: usize, classes: ClassSet) -> usize {
        self.skip_while(position, |class| class & classes != 0)
    }

    /// `[^\s\p{L}\p{N}]*`
    fn skip_others(&self, position: usize) -> usize {
        self.skip_while(position, |class| class & (LETTER | NUMBER | SPACE) == 0)
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

    fn skip_line_ends(&self, position: usize) -> usize {
        position + self.text[position..].iter().take_while(|&&byte| is_line_end(byte)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: Pattern, expected: &[&str]) {
        let text = expected.concat();
        let mut found = Vec::new();
        words(pattern, &text, |word| found.push(word));
        assert_eq!(found, expected, "{} on {text:?}", pattern.name());
    }

    #[test]
    fn gpt2_cuts_known_texts() {
        let check = |expected: &[&str]| check(Pattern::Gpt2, expected);
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
        let check = |expected: &[&str]| check(Pattern::Cl100k, expected);
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
        for pattern in [Pattern::Gpt2, Pattern::Cl100k] {
            check(pattern, &["we", "'re", "'ve", "''", "d"]);
            check(pattern, &["x", " '", "s"]);
            check(pattern, &["!'", "s"]);
            check(pattern, &["'t", "is"]);
            check(pattern, &["it", "'s", "'s"]);
        }
        check(Pattern::Gpt2, &["I", "'", "LL", " go", "'", "ſ", "'", "ls"]);
        check(Pattern::Cl100k, &["I", "'Ll", " go", "'ſ", "'ls"]);
    }

    #[test]
    fn whitespace_that_is_and_is_not_a_line_end() {
        // U+0085 and U+2028 are whitespace, but no line ends; U+001C is neither.
        check(Pattern::Cl100k, &["a", "\u{85}", "\u{2028}b", "\u{1c}c"]);
        check(Pattern::Gpt2, &["a", "\u{85}", "\u{2028}", "b", "\u{1c}", "c"]);
        check(Pattern::Cl100k, &["a", ".\r\n\n", " \n", "  ", " b"]);
        check(Pattern::Gpt2, &["a", ".", "\r\n\n \n  ", " b"]);
        // Only at the end of a text does whitespace stay in one piece across line ends.
        check(Pattern::Cl100k, &["a", "  \n  "]);
        check(Pattern::Cl100k, &["a", "  \n", " ", " b"]);
    }
}
