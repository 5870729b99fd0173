//! Cut special tokens out of a text before its pattern runs: leftmost first, and the longest of those.

use aho_corasick::{AhoCorasick, MatchKind};

/// Why a list of special tokens was refused.
#[derive(Debug, thiserror::Error)]
pub enum SpecialError {
    #[error("special token number {0} is the empty string: remove it from the list")]
    Empty(usize),
    #[error("special token {0:?} is in the list twice: remove one of them")]
    Duplicate(String),
    #[error("the special tokens are too many or too long to search for: {0}")]
    TooLarge(#[from] aho_corasick::BuildError),
}

/// A stretch of a text: ordinary text (never empty), or a special token by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Special(usize),
}

/// Finds the special tokens of a fixed list; one pass over the text whatever their number.
#[derive(Clone, Debug)]
pub struct SpecialCutter {
    /// None when there is nothing to look for, so that a text is one piece for free.
    automaton: Option<AhoCorasick>,
}

impl SpecialCutter {
    /// One of the tokens may be the beginning of another: the longer wins where both match.
    ///
    /// # Errors
    /// An empty string, a string given twice, or (gigabytes of strings) an automaton that cannot be built.
    pub fn new(specials: &[String]) -> Result<Self, SpecialError> {
        if let Some(index) = specials.iter().position(String::is_empty) {
            return Err(SpecialError::Empty(index));
        }
        let mut sorted: Vec<&String> = specials.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|neighbours| neighbours[0] == neighbours[1]) {
            return Err(SpecialError::Duplicate(twice[0].clone()));
        }
        if specials.is_empty() {
            return Ok(Self { automaton: None });
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(specials)?;
        Ok(Self { automaton: Some(automaton) })
    }

    /// The pieces of `text` in order. The specials' own strings put in their places, they join to `text` again.
    pub fn pieces<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let found = self.automaton.iter().flat_map(move |automaton| automaton.find_iter(text));
        let ends = found.map(|special| (special.start(), special.end(), Some(special.pattern().as_usize())));
        let mut position = 0;
        ends.chain([(text.len(), text.len(), None)]).flat_map(move |(start, end, special)| {
            // UTF-8 characters never begin inside one another, so both ends of a match are character boundaries.
            let before = &text[position..start];
            position = end;
            [(!before.is_empty()).then_some(Piece::Text(before)), special.map(Piece::Special)].into_iter().flatten()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cutter(specials: &[&str]) -> SpecialCutter {
        SpecialCutter::new(&specials.iter().map(|&special| special.into()).collect::<Vec<_>>()).unwrap()
    }

    fn pieces<'a>(cutter: &'a SpecialCutter, text: &'a str) -> Vec<Piece<'a>> {
        cutter.pieces(text).collect()
    }

    /// The obvious twin: at each character try every special, the longest first.
    fn naive_pieces<'a>(specials: &[String], text: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let (mut start, mut position) = (0, 0);
        while position < text.len() {
            let longest = (0..specials.len())
                .filter(|&index| text[position..].starts_with(&specials[index]))
                .max_by_key(|&index| specials[index].len());
            if let Some(index) = longest {
                if start < position {
                    pieces.push(Piece::Text(&text[start..position]));
                }
                pieces.push(Piece::Special(index));
                position += specials[index].len();
                start = position;
            } else {
                position += text[position..].chars().next().unwrap().len_utf8();
            }
        }
        if start < text.len() {
            pieces.push(Piece::Text(&text[start..]));
        }
        pieces
    }

    #[test]
    fn text_and_specials_alternate_without_empty_text() {
        let cutter = cutter(&["<|a|>", "<|b|>"]);
        assert_eq!(pieces(&cutter, "<|a|><|b|>x<|a|"), [Piece::Special(0), Piece::Special(1), Piece::Text("x<|a|")]);
        assert_eq!(pieces(&cutter, ""), []);
        assert_eq!(pieces(&cutter, "<|b|>"), [Piece::Special(1)]);
    }

    #[test]
    fn the_longest_special_wins_at_the_leftmost_place() {
        let cutter = cutter(&["<a", "<a>b", "a>"]);
        assert_eq!(pieces(&cutter, "<a>b"), [Piece::Special(1)]);
        assert_eq!(pieces(&cutter, "<a>c"), [Piece::Special(0), Piece::Text(">c")]);
    }

    #[test]
    fn no_specials_leave_the_text_whole() {
        assert_eq!(pieces(&cutter(&[]), "<|endoftext|>"), [Piece::Text("<|endoftext|>")]);
        assert_eq!(pieces(&cutter(&[]), ""), []);
    }

    #[test]
    fn empty_and_repeated_specials_are_refused() {
        let refuse = |specials: [&str; 2]| SpecialCutter::new(&specials.map(String::from)).unwrap_err().to_string();
        assert_eq!(refuse(["x", ""]), "special token number 1 is the empty string: remove it from the list");
        assert_eq!(refuse(["x", "x"]), "special token \"x\" is in the list twice: remove one of them");
    }

    proptest! {
        #[test]
        fn pieces_are_those_of_the_naive_cutter(
            specials in prop::collection::btree_set("[ab<é]{1,3}", 0..6),
            text in "[ab<éx]{0,40}",
        ) {
            let specials: Vec<String> = specials.into_iter().collect();
            let cutter = SpecialCutter::new(&specials).unwrap();
            prop_assert_eq!(pieces(&cutter, &text), naive_pieces(&specials, &text));
        }
    }
}
