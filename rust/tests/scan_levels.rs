//! Every level of the scanner finds the words of the plain one, on text made to be hard to cut.

use std::time::{Duration, Instant};

use dist_bpe_core::scan::{Level, Pattern, Scanner, scalar};
use proptest::prelude::*;

/// Characters that meet in the rules of the patterns: apostrophes and the letters of contractions, whitespace of all
/// kinds, numbers, marks, letters of each case and of each length in bytes.
const CHARACTERS: &[&str] = &[
    "'",
    "s",
    "S",
    "t",
    "ſ",
    "l",
    "L",
    "v",
    "e",
    "E",
    "r",
    "d",
    "m",
    " ",
    "\t",
    "\r",
    "\n",
    "\u{b}",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "\u{3000}",
    "\u{1c}",
    "0",
    "7",
    "٣",
    "½",
    "𝟗",
    "a",
    "A",
    "Z",
    "é",
    "É",
    "ß",
    "Ж",
    "я",
    "ǅ",
    "ʰ",
    "ª",
    "א",
    "日",
    "ア",
    "・",
    "〇",
    "⺀",
    "𖿱",
    "゛",
    "\u{3099}",
    "\u{3040}",
    "\u{3098}",
    "々",
    "\u{200c}",
    "\u{7f}",
    "한",
    "𐐀",
    "𐐨",
    "𠀀",
    "\u{301}",
    "ी",
    "\u{fe0f}",
    "\u{1e8d0}",
    "!",
    ".",
    "/",
    "(",
    "-",
    "—",
    "€",
    "👍",
    "\u{200d}",
    "\u{378}",
    "\u{10ffff}",
    "\0",
];

fn words_of(scanner: &mut Scanner, text: &str) -> Vec<String> {
    let mut words = Vec::new();
    scanner.scan(text, |window, bounds| {
        for ends in bounds.windows(2) {
            words.push(String::from_utf8(window[ends[0] as usize..ends[1] as usize].to_vec()).unwrap());
        }
    });
    words
}

fn check(text: &str) {
    Pattern::ALL.iter().for_each(|&pattern| check_one(pattern, text));
}

fn check_one(pattern: Pattern, text: &str) {
    let mut expected = Vec::new();
    scalar::words(pattern, text, |word| expected.push(word));
    for level in Level::available() {
        let found = words_of(&mut Scanner::with_level(pattern, level), text);
        assert_eq!(found, expected, "{} at level {} on {text:?}", pattern.name(), level.name());
    }
}

/// Runs of a few of the characters: long enough to reach over a block, and few enough to meet again.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(CHARACTERS), 1..7).prop_flat_map(|few| {
        let one = prop::sample::select(few);
        let run = prop_oneof![8 => Just(1_usize), 3 => 2..5_usize, 1 => 5..140_usize];
        prop::collection::vec((one, run), 1..120)
            .prop_map(|runs| runs.into_iter().map(|(character, times)| character.repeat(times)).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 100 } else { 4000 }))]

    #[test]
    fn random_runs(text in text(), pattern in prop::sample::select(Pattern::ALL)) {
        check_one(pattern, &text);
    }

    /// Numbers of all lengths in bytes, in runs that reach over several blocks.
    #[test]
    fn runs_of_numbers(
        runs in prop::collection::vec((prop::sample::select(&["1", "9", "٣", "३", "𝟗", "½", "a", " "][..]), 1..150_usize), 1..8),
        pattern in prop::sample::select(Pattern::ALL),
    ) {
        check_one(pattern, &runs.into_iter().map(|(character, times)| character.repeat(times)).collect::<String>());
    }

    /// A few characters at each distance from the edge of a block, with ordinary text around them.
    #[test]
    fn short_sequences_across_an_edge(
        few in prop::collection::vec(prop::sample::select(CHARACTERS), 1..8),
        filler in prop::sample::select(&["a", "A", " ", "1", "!", "\n", "中", "\u{301}", "."][..]),
        behind in prop::sample::select(&["", "b", " ", "'s ok", "\n\n  x", "日", "12345"][..]),
        pattern in prop::sample::select(Pattern::ALL),
    ) {
        let few = few.concat();
        for ahead in 0..70 {
            check_one(pattern, &format!("{}{few}{behind}", filler.repeat(ahead)));
        }
    }
}

#[test]
fn every_length_around_two_edges() {
    let text = "It's 12345 o'clock,\r\n\n  \u{3000}(abcé \0\u{200c}x カ・ナ\u{3040}a 1〇2!⺀ 日〇 don'T — naïve 日本語 x!!\n/ÉCOLE हिन्दी HTTPServer 'll   \n  ";
    let long = text.repeat(2);
    let ends = (0..=long.len()).filter(|&end| long.is_char_boundary(end));
    ends.for_each(|end| check(&long[..end]));
}

#[test]
fn hard_documents_take_linear_time() {
    // Without optimisation a tenth is enough to tell.
    let many = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let documents = [
        format!("{}x", " ".repeat(2 * many)),
        format!("\n{}x", " ".repeat(2 * many)),
        format!("{}x", " \n".repeat(many)),
        format!("{}x", "\n ".repeat(many)),
        "a".repeat(5 * many),
        "^".repeat(many),
        "1".repeat(many),
        "'s".repeat(many),
        format!("a's{}", "aA".repeat(many)),
        format!("中{}", "A".repeat(2 * many)),
        "中A".repeat(many),
        "A\u{301}".repeat(many),
        format!("!!{}", "\u{301}".repeat(many)),
        format!("!{}", "\n/".repeat(many)),
        format!("{}x", "\u{3000}".repeat(many)),
        "٣".repeat(many),
        "\u{200c}".repeat(many),
        format!("(a{}", "a".repeat(many)),
        "(a".repeat(many),
        format!("{}日", "\u{3040}".repeat(many)),
        "日・".repeat(many),
        "1〇".repeat(many),
        "!⺀".repeat(many),
        format!("{}⺀", "!".repeat(many)),
        format!("{}〇", "1".repeat(many)),
    ];
    for &pattern in Pattern::ALL {
        // Rules for numbers other than a shape's own matter for numbers alone.
        let documents = documents.iter().filter(|text| !pattern.name().contains('+') || text.starts_with(['1', '٣']));
        for level in Level::available() {
            for text in documents.clone() {
                let start = Instant::now();
                let mut bytes = 0;
                Scanner::with_level(pattern, level).scan(text, |_, bounds| bytes += bounds[bounds.len() - 1] as usize);
                assert_eq!(bytes, text.len());
                // Some 20 ms; a quadratic scanner takes hours.
                let beginning: String = text.chars().take(8).collect();
                assert!(start.elapsed() < Duration::from_secs(10), "{} on {beginning:?}", pattern.name());
            }
        }
    }
}
