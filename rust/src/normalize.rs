//! Unicode normalisation of texts, nearly free where they are normal already.
//!
//! The forms themselves are the work of the crate `unicode-normalization`. What is added here is speed: a text falls
//! into stretches that can be normalised one by one, and almost all of them are one character that every form leaves
//! alone. A bit for each code point ([`Boundaries`]) tells these, so that the crate sees only the others.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{IsNormalized, UnicodeNormalization};
use unicode_normalization::{is_nfc_quick, is_nfd_quick, is_nfkc_quick, is_nfkd_quick};

pub use unicode_normalization::UNICODE_VERSION;

/// A normalisation form of Unicode Standard Annex #15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

impl Form {
    pub const ALL: [Form; 4] = [Form::Nfc, Form::Nfd, Form::Nfkc, Form::Nfkd];

    /// No form makes more of a text than so many times its bytes (U+FDFA in the compatibility forms).
    pub const MOST_GROWTH: u64 = 11;

    /// The name users write.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Nfc => "NFC",
            Form::Nfd => "NFD",
            Form::Nfkc => "NFKC",
            Form::Nfkd => "NFKD",
        }
    }

    /// The form of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.name() == name)
    }

    /// Append the form of `text` to `out`.
    fn append(self, text: &str, out: &mut String) {
        match self {
            Form::Nfc => out.extend(text.nfc()),
            Form::Nfd => out.extend(text.nfd()),
            Form::Nfkc => out.extend(text.nfkc()),
            Form::Nfkd => out.extend(text.nfkd()),
        }
    }

    /// Whether the characters are in this form, as far as a look at each tells.
    fn quick_check(self, characters: impl Iterator<Item = char>) -> IsNormalized {
        match self {
            Form::Nfc => is_nfc_quick(characters),
            Form::Nfd => is_nfd_quick(characters),
            Form::Nfkc => is_nfkc_quick(characters),
            Form::Nfkd => is_nfkd_quick(characters),
        }
    }
}

/// One bit a code point (139 KB a form, built in some 20 ms on first use): set for a starter that the form leaves alone
/// and that joins nothing before it. The form of a text that is cut before such a character is the forms of both parts,
/// one behind the other.
struct Boundaries(Box<[u64]>);

impl Boundaries {
    fn of(form: Form) -> &'static Boundaries {
        static ALL: [OnceLock<Boundaries>; 4] = [const { OnceLock::new() }; 4];
        ALL[form as usize].get_or_init(|| {
            let mut bits = vec![0_u64; 0x11_0000 / 64].into_boxed_slice();
            for character in '\0'..=char::MAX {
                let alone = std::iter::once(character);
                if canonical_combining_class(character) == 0 && form.quick_check(alone) == IsNormalized::Yes {
                    bits[character as usize / 64] |= 1 << (character as usize % 64);
                }
            }
            Boundaries(bits)
        })
    }

    fn has(&self, character: char) -> bool {
        self.0[character as usize / 64] >> (character as usize % 64) & 1 != 0
    }
}

/// So many bytes are read between two looks whether to stop.
const STRETCH: usize = 1 << 20;

/// Brings one text after another into a form; keeps its buffers between them.
pub struct Normalizer {
    form: Form,
    boundaries: &'static Boundaries,
    changed: String,
    stretch: String,
}

impl Normalizer {
    pub fn new(form: Form) -> Self {
        Self { form, boundaries: Boundaries::of(form), changed: String::new(), stretch: String::new() }
    }

    /// The form of `text`: the text itself where it is in the form already. Linear in the text, but for marks on one
    /// character, which are sorted.
    pub fn normalize<'a>(&'a mut self, text: &'a str) -> &'a str {
        match self.normalize_while(text, &mut |_| ControlFlow::Continue(())) {
            ControlFlow::Continue(text) => text,
            ControlFlow::Break(()) => unreachable!("nobody asked to stop"),
        }
    }

    /// The same until `look` breaks, which gets the number of bytes that were read since the last call, about a million.
    pub fn normalize_while<'a>(
        &'a mut self,
        text: &'a str,
        look: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> ControlFlow<(), &'a str> {
        self.changed.clear();
        let mut done = 0; // up to here the text is in `changed`, if anything had to change
        let mut stretch = 0; // where the stretch that reaches up to `position` begins
        let mut position = 0;
        let mut until = text.len().min(STRETCH);
        let mut looked = 0;
        loop {
            if position >= until {
                if position >= text.len() {
                    break;
                }
                look(position - looked)?;
                looked = position;
                until = text.len().min(position + STRETCH);
            }
            let plain = plain_bytes(&text.as_bytes()[position..]);
            if plain > 0 {
                position += plain;
                stretch = position - 1;
                continue;
            }
            let character = text[position..].chars().next().expect("a character before the end");
            if self.boundaries.has(character) {
                stretch = position;
                position += character.len_utf8();
                continue;
            }
            let rest = text[position..].char_indices().skip(1);
            let length = rest.map(|(at, character)| (at, self.boundaries.has(character))).find(|&(_, is)| is);
            position = length.map_or(text.len(), |(at, _)| position + at);
            let part = &text[stretch..position];
            if self.form.quick_check(part.chars()) != IsNormalized::Yes {
                self.stretch.clear();
                self.form.append(part, &mut self.stretch);
                if self.stretch != part {
                    self.changed.push_str(&text[done..stretch]);
                    self.changed.push_str(&self.stretch);
                    done = position;
                }
            }
        }
        if done == 0 {
            return ControlFlow::Continue(text);
        }
        self.changed.push_str(&text[done..]);
        ControlFlow::Continue(&self.changed)
    }
}

/// How many ASCII characters the bytes begin with, which every form leaves alone.
fn plain_bytes(bytes: &[u8]) -> usize {
    let eights = bytes.as_chunks::<8>().0;
    let all = eights.iter().take_while(|&&eight| u64::from_le_bytes(eight) & 0x8080_8080_8080_8080 == 0).count() * 8;
    all + bytes[all..].iter().take_while(|byte| byte.is_ascii()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(form: Form, text: &str) -> String {
        Normalizer::new(form).normalize(text).to_owned()
    }

    /// The obvious twin: the crate on the whole text.
    fn check(text: &str) {
        for form in Form::ALL {
            let mut expected = String::new();
            form.append(text, &mut expected);
            assert!(expected.len() as u64 <= Form::MOST_GROWTH * text.len() as u64);
            assert_eq!(normal(form, text), expected, "{} of {text:?}", form.name());
            assert_eq!(normal(form, &expected), expected, "{} twice", form.name());
        }
    }

    #[test]
    fn the_tables_are_of_the_unicode_version_of_the_classes() {
        // `regex` does not tell its version of Unicode; what it has assigned does. Seal characters came with 18.
        assert_eq!(UNICODE_VERSION, (18, 0, 0));
        for character in '\0'..=char::MAX {
            let assigned = crate::scan::classes::category(character as u32) != crate::scan::classes::Category::Cn;
            let private = crate::scan::classes::category(character as u32) == crate::scan::classes::Category::Co;
            assert_eq!(
                unicode_normalization::char::is_public_assigned(character),
                assigned && !private,
                "{character:?}"
            );
        }
    }

    #[test]
    fn names_lead_back_to_their_forms() {
        assert!(Form::ALL.into_iter().all(|form| Form::from_name(form.name()) == Some(form)));
        assert_eq!(Form::from_name("nfc"), None);
    }

    #[test]
    fn known_forms() {
        let all = |text| Form::ALL.map(|form| normal(form, text));
        assert_eq!(all("e\u{301} ﬁ"), ["é ﬁ", "e\u{301} ﬁ", "é fi", "e\u{301} fi"]);
        assert_eq!(
            all("\u{1100}\u{1161}\u{11a8}"),
            ["각", "\u{1100}\u{1161}\u{11a8}", "각", "\u{1100}\u{1161}\u{11a8}"]
        );
        assert_eq!(all("q\u{307}\u{323}"), ["q\u{323}\u{307}"; 4].map(String::from));
        assert_eq!(all("plain text, nothing else"), ["plain text, nothing else"; 4].map(String::from));
    }

    #[test]
    fn a_text_in_the_form_is_not_copied() {
        let text = "naïve, हिन्दी, 한글, עִבְרִית, ﷺ, e\u{323}\u{301} stays as it is in the form";
        for form in Form::ALL {
            let text = normal(form, text);
            assert_eq!(Normalizer::new(form).normalize(&text).as_ptr(), text.as_ptr());
        }
    }

    #[test]
    fn long_texts_are_looked_up_from() {
        for text in ["한글 e\u{301}".repeat(500_000), "e\u{301}".repeat(2_000_000), "a".repeat(5_000_000)] {
            let mut normalizer = Normalizer::new(Form::Nfc);
            let mut calls = Vec::new();
            let ended = normalizer.normalize_while(&text, &mut |bytes| {
                calls.push(bytes);
                ControlFlow::Continue(())
            });
            let mut expected = String::new();
            Form::Nfc.append(&text, &mut expected);
            assert!(ended == ControlFlow::Continue(expected.as_str()));
            // A stretch of ASCII is one step, but it takes a millisecond.
            assert!(calls.iter().all(|&bytes| (STRETCH..STRETCH + 100).contains(&bytes)), "{calls:?}");
            assert_eq!(calls.is_empty(), text.is_ascii());
            let ended = normalizer.normalize_while(&text, &mut |_| ControlFlow::Break(()));
            assert_eq!(ended.is_break(), !text.is_ascii());
            assert_eq!(normalizer.normalize("o\u{308}"), "ö");
        }
    }

    #[test]
    fn a_buffer_serves_one_text_after_another() {
        let mut normalizer = Normalizer::new(Form::Nfc);
        assert_eq!(normalizer.normalize("a\u{308}b"), "äb");
        assert_eq!(normalizer.normalize("c"), "c");
        assert_eq!(normalizer.normalize("o\u{308}"), "ö");
    }

    #[test]
    fn every_code_point_alone_and_between_others() {
        // Those that some form touches, and some of the others.
        let touched = |&character: &char| Form::ALL.iter().any(|&form| !Boundaries::of(form).has(character));
        for character in
            ('\0'..=char::MAX).filter(|character| (*character as u32).is_multiple_of(61) || touched(character))
        {
            check(&format!("{character}e{character}\u{301}{character}가{character}"));
        }
    }

    proptest! {
        #[test]
        fn random_texts(
            text in prop::collection::vec(prop_oneof![
                prop::sample::select("aeé e\u{301}\u{323}\u{308}\u{345}ᄀ\u{1161}\u{11a8}가각ﬁ½ﷺÅΩ\u{9c7}\u{9be}\u{93c}क\u{fb2c}שׁ\u{f71}\u{f72}\u{f80}".chars().collect::<Vec<_>>()),
                any::<char>(),
            ], 0..60)
        ) {
            check(&text.into_iter().collect::<String>());
        }
    }
}
