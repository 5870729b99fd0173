//! Cut documents into words, as a named pattern's regular expression would, without a regular-expression engine.
//!
//! [`Scanner`] is the front door. Behind it stand the scanners themselves, the plain one ([`scalar`]) and the one that
//! works on 64 bytes at a time, both written over the rules of a pattern: what the patterns differ in, and nothing else.

mod pattern;
mod class_table;
pub mod classes;
mod simd;
mod batch;
pub mod scalar;
mod blocks;

use std::marker::PhantomData;
use std::ops::ControlFlow;

pub use batch::Batch;
use batch::{Batcher, ROOM};
use blocks::BlockScan;
pub use pattern::Pattern;
use pattern::{Cl100k, Deepseek3, Gpt2, Gpt2Marks, KimiK2, Llama3, O200k, Qwen35, Rules, Shape, Tekken};
pub use simd::Level;

/// Cuts one document after another into words, and keeps its buffer between them (16 KB).
#[derive(Clone, Debug)]
pub struct Scanner {
    pattern: Pattern,
    level: Level,
    bounds: Box<[u32]>,
    /// Offsets reach no further; tests lower it to see windows move without documents of gigabytes.
    reach: u32,
    /// So much is scanned until it is looked whether to stop.
    stretch: usize,
}

/// Bytes: some ten milliseconds.
const STRETCH: usize = 16 << 20;

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
        Self { pattern, level, bounds: vec![0; ROOM].into(), reach: u32::MAX, stretch: STRETCH }
    }

    /// Find the words of one document and hand them to `sink(window, bounds)`, in batches as [`Batch::Words`] has them. An
    /// empty text makes no call.
    ///
    /// # Panics
    /// When a single word is longer than `u32::MAX` bytes; [`Scanner::scan_while`] hands it over too.
    pub fn scan(&mut self, text: &str, mut sink: impl FnMut(&[u8], &[u32])) {
        let _ = self.scan_while(text, |batch| {
            match batch {
                Batch::Words(window, bounds) => sink(window, bounds),
                Batch::Long(word) => panic!("a word of {} bytes is longer than offsets reach", word.len()),
            }
            ControlFlow::Continue(())
        });
    }

    /// Find the words of one document and hand them to `sink` in batches, until it breaks: then it gets no more, and the
    /// call ends within some milliseconds. An empty text makes no call.
    ///
    /// Documents and words may be of any length: the windows move along.
    pub fn scan_while(&mut self, text: &str, mut sink: impl FnMut(Batch) -> ControlFlow<()>) -> ControlFlow<()> {
        if text.is_empty() {
            return ControlFlow::Continue(());
        }
        // The sink is called seldom, so it goes behind a pointer, and the scanners are not compiled again for each.
        match self.pattern.shape() {
            Shape::Gpt2 => self.scan_by::<Gpt2>(text, &mut sink),
            Shape::Gpt2Marks => self.scan_by::<Gpt2Marks>(text, &mut sink),
            Shape::Cl100k => self.scan_by::<Cl100k>(text, &mut sink),
            Shape::Llama3 => self.scan_by::<Llama3>(text, &mut sink),
            Shape::O200k => self.scan_by::<O200k>(text, &mut sink),
            Shape::Qwen35 => self.scan_by::<Qwen35>(text, &mut sink),
            Shape::Tekken => self.scan_by::<Tekken>(text, &mut sink),
            Shape::KimiK2 => self.scan_by::<KimiK2>(text, &mut sink),
            Shape::Deepseek3 => self.scan_by::<Deepseek3>(text, &mut sink),
            Shape::Whole => match u32::try_from(text.len()) {
                Ok(bytes) if bytes <= self.reach => sink(Batch::Words(text.as_bytes(), &[0, bytes])),
                _ => sink(Batch::Long(text.as_bytes())),
            },
        }
    }

    fn scan_by<R: Rules>(&mut self, text: &str, sink: &mut dyn FnMut(Batch) -> ControlFlow<()>) -> ControlFlow<()> {
        let numbers = self.pattern.numbers();
        let mut ended = ControlFlow::Continue(());
        let mut rest = text;
        let mut stretch = self.stretch;
        // Words depend on nothing before them, so a text can be scanned on from the end of any of them.
        while !rest.is_empty() && ended.is_continue() {
            let until = rest.len().min(stretch);
            let mut take = |window: &[u8], bounds: &[u32]| {
                if ended.is_continue() {
                    ended = sink(if bounds.is_empty() { Batch::Long(window) } else { Batch::Words(window, bounds) });
                }
            };
            let mut batcher = Batcher::new(rest, &mut self.bounds, self.reach, &mut take);
            match self.level {
                Level::Scalar => scalar::ends::<R>(rest, until, numbers, |end| batcher.push(end)),
                level => {
                    let rules = PhantomData::<R>;
                    simd::dispatch(level, BlockScan { text: rest, until, batcher: &mut batcher, numbers, rules });
                }
            }
            let end = batcher.finish();
            // Where no word has ended, twice as much is read from its beginning again.
            stretch = if end == 0 { 2 * stretch } else { self.stretch };
            rest = &rest[end..];
        }
        ended
    }

    /// As if offsets reached no further, so that tests need no words of gigabytes.
    #[cfg(test)]
    pub(crate) fn with_reach(self, reach: u32) -> Self {
        Self { reach, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::batch::BATCH;
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
        for &pattern in Pattern::ALL.iter().filter(|pattern| pattern.shape() != Shape::Whole) {
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
        for &pattern in Pattern::ALL.iter().filter(|pattern| pattern.shape() != Shape::Whole) {
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
    #[should_panic(expected = "a word of 6 bytes is longer than offsets reach")]
    fn a_word_out_of_reach_panics() {
        Scanner::with_level(Pattern::GPT2, Level::Scalar).with_reach(5).scan("a bcdef", |_, _| {});
    }

    #[test]
    fn words_out_of_reach_come_alone() {
        let text = format!("of {} words {}, {}", "a".repeat(1000), "b".repeat(65), "c".repeat(200));
        for &pattern in Pattern::ALL {
            for level in Level::available() {
                let mut expected = Vec::new();
                scalar::words(pattern, &text, |word| expected.push(word.as_bytes().to_vec()));
                for reach in [64, 65, 66, 199, 200, 999, 1000, 1001] {
                    let mut scanner = Scanner::with_level(pattern, level).with_reach(reach);
                    let (mut found, mut long) = (Vec::new(), 0);
                    let ended = scanner.scan_while(&text, |batch| {
                        match batch {
                            Batch::Words(window, bounds) => {
                                let words = bounds.windows(2).map(|ends| &window[ends[0] as usize..ends[1] as usize]);
                                found.extend(words.map(<[u8]>::to_vec));
                            }
                            Batch::Long(word) => {
                                found.push(word.to_vec());
                                long += 1;
                            }
                        }
                        ControlFlow::Continue(())
                    });
                    assert_eq!((&found, ended), (&expected, ControlFlow::Continue(())));
                    assert_eq!(long, expected.iter().filter(|word| word.len() > reach as usize).count());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn random_texts_in_stretches(
            text in "([ \\n]{1,3}|[aA]{1,90}|[1٣]{1,9}|'s|[!/é\u{301}]{1,3}|[日゛]{1,40}|[\0\u{3040}]){0,60}",
            pattern in prop::sample::select(Pattern::ALL),
            stretch in 1..200usize,
        ) {
            for level in Level::available() {
                let mut scanner = Scanner::with_level(pattern, level);
                let expected = words(&mut scanner, &text);
                scanner.stretch = stretch;
                prop_assert_eq!(words(&mut scanner, &text), expected);
            }
        }
    }

    #[test]
    fn a_sink_that_breaks_is_not_called_again() {
        let text = "one two\n".repeat(5_000_000);
        for level in Level::available() {
            for &pattern in Pattern::ALL {
                let mut calls = 0;
                let start = std::time::Instant::now();
                let ended = Scanner::with_level(pattern, level).scan_while(&text, |_| {
                    calls += 1;
                    ControlFlow::Break(())
                });
                assert_eq!((calls, ended), (1, ControlFlow::Break(())));
                assert!(start.elapsed().as_secs() < 1, "{:?}", start.elapsed());
            }
        }
    }
}
