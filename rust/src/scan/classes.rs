//! Which class each code point is in: letters of three kinds, marks, numbers, whitespace, punctuation, symbols.
//!
//! Source of truth: the general categories and `\s` of Python's `regex` module, written into `class_table.rs` by
//! `generate_classes.py`, because custom patterns run through that module and both ways must cut alike. The generated
//! runs (17 KB) answer `category` by binary search; the scanners read [`class_map`], one byte a code point, built from
//! the runs on first use (1.1 MB, under a millisecond; text of a few scripts touches a few cache lines of it). A
//! two-stage table would be smaller, but its second load waits for the first, and this is the innermost load of
//! scanning text that is not ASCII.

use std::sync::OnceLock;

use super::class_table;

pub use super::class_table::REGEX_VERSION;

/// The Unicode general categories, numbered as in the generated table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Category {
    Lu,
    Ll,
    Lt,
    Lm,
    Lo,
    Mn,
    Mc,
    Me,
    Nd,
    Nl,
    No,
    Pc,
    Pd,
    Ps,
    Pe,
    Pi,
    Pf,
    Po,
    Sm,
    Sc,
    Sk,
    So,
    Zs,
    Zl,
    Zp,
    Cc,
    Cf,
    Cs,
    Co,
    Cn,
}

use Category::*;

const CATEGORIES: [Category; 30] = [
    Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf, Cs, Co,
    Cn,
];

/// The bit above the category's number in a run of the generated table.
const WHITESPACE: u8 = 0x20;

/// A set of the classes below, as a scanner asks for them. Each code point has one class or none.
pub type ClassSet = u8;

/// `Lu` and `Lt`.
pub const UPPER: ClassSet = 1;
/// `Ll`.
pub const LOWER: ClassSet = 1 << 1;
/// `Lm` and `Lo`: letters without case, which count as both in the patterns that tell case.
pub const CASELESS: ClassSet = 1 << 2;
/// `\p{M}`.
pub const MARK: ClassSet = 1 << 3;
/// `\p{N}`.
pub const NUMBER: ClassSet = 1 << 4;
/// `\s` of the `regex` module: U+0085 and U+2028 are in it, 0x1C to 0x1F are not (`str.isspace` has them).
pub const SPACE: ClassSet = 1 << 5;
/// `\p{P}`.
pub const PUNCTUATION: ClassSet = 1 << 6;
/// `\p{S}`.
pub const SYMBOL: ClassSet = 1 << 7;
/// `\p{L}`.
pub const LETTER: ClassSet = UPPER | LOWER | CASELESS;

/// Instead of the first four, in [`pieces_map`]: what words of letters are made of, letters and marks, but for those in
/// the range of kana and ideographs; and in that range letters and marks, punctuation and symbols, all the rest.
pub const OUTER_LETTER: ClassSet = UPPER;
pub const IDEOGRAPH: ClassSet = LOWER;
pub const IDEOGRAPH_SIGN: ClassSet = CASELESS;
pub const IDEOGRAPH_GAP: ClassSet = MARK;

/// Instead of the last two, in [`han_map`]: all Han characters, of which numbers are `NUMBER` too, and the few that are
/// neither numbers nor letters are `HAN_SIGN` too.
pub const HAN: ClassSet = PUNCTUATION;
pub const HAN_SIGN: ClassSet = SYMBOL;

/// One byte a code point, its class: index with `c as usize`.
pub type ClassMap = [ClassSet; 0x11_0000];

/// The general category of a code point (surrogates and unassigned ones have one too). Binary search: some 30 ns.
///
/// # Panics
/// When `code_point` is above U+10FFFF.
pub fn category(code_point: u32) -> Category {
    CATEGORIES[(entry(code_point) & !WHITESPACE) as usize]
}

/// Whether `\s` of the `regex` module matches the code point. Binary search.
///
/// # Panics
/// When `code_point` is above U+10FFFF.
pub fn is_space(code_point: u32) -> bool {
    entry(code_point) & WHITESPACE != 0
}

fn entry(code_point: u32) -> u8 {
    assert!(code_point <= 0x10_FFFF, "{code_point:#x} is not a code point: the last one is 0x10ffff");
    let after = class_table::RUNS.partition_point(|run| run >> 8 <= code_point);
    class_table::RUNS[after - 1] as u8
}

/// The classes of all code points, built on the first call.
pub fn class_map() -> &'static ClassMap {
    static MAP: OnceLock<Box<ClassMap>> = OnceLock::new();
    MAP.get_or_init(|| {
        let mut map = vec![0; size_of::<ClassMap>()].into_boxed_slice();
        let runs = &class_table::RUNS;
        for (index, run) in runs.iter().enumerate() {
            let end = runs.get(index + 1).map_or(map.len(), |next| (next >> 8) as usize);
            map[(run >> 8) as usize..end].fill(class_of_entry(*run as u8));
        }
        map.try_into().expect("as long as the type says")
    })
}

/// The classes for `deepseek3`, which takes runs of kana and ideographs, `[一-龥\u{3040}-ゟ゠-ヿ]+`, out of a text before
/// it looks for anything but numbers. Built on the first call.
pub fn pieces_map() -> &'static ClassMap {
    static MAP: OnceLock<Box<ClassMap>> = OnceLock::new();
    MAP.get_or_init(|| {
        let mut map: Box<ClassMap> = class_map().to_vec().into_boxed_slice().try_into().expect("of the same length");
        for (code_point, class) in map.iter_mut().enumerate() {
            let ranged = matches!(code_point, 0x3040..=0x30FF | 0x4E00..=0x9FA5);
            *class = match *class {
                NUMBER => NUMBER,
                is if is & (LETTER | MARK) != 0 => {
                    if ranged {
                        IDEOGRAPH
                    } else {
                        OUTER_LETTER
                    }
                }
                is if is & (PUNCTUATION | SYMBOL) != 0 && ranged => IDEOGRAPH_SIGN,
                _ if ranged => IDEOGRAPH_GAP,
                is => is,
            };
        }
        map
    })
}

/// The classes for `kimi-k2`, which takes runs of Han characters, `\p{Han}+`, for words. Built on the first call.
pub fn han_map() -> &'static ClassMap {
    static MAP: OnceLock<Box<ClassMap>> = OnceLock::new();
    MAP.get_or_init(|| {
        let mut map: Box<ClassMap> = class_map().to_vec().into_boxed_slice().try_into().expect("of the same length");
        for class in map.iter_mut() {
            *class &= !(PUNCTUATION | SYMBOL);
        }
        for &(first, last) in &class_table::HAN {
            for (code_point, class) in (first..=last).zip(&mut map[first as usize..=last as usize]) {
                *class = match class_map()[code_point as usize] {
                    NUMBER => HAN | NUMBER,
                    is if is & LETTER != 0 => HAN,
                    _ => HAN | HAN_SIGN,
                };
            }
        }
        map
    })
}

/// The class of a run of the generated table.
pub(super) const fn class_of_entry(entry: u8) -> ClassSet {
    if entry & WHITESPACE != 0 {
        return SPACE; // all of them are of category Z or C, which have no class here
    }
    match CATEGORIES[entry as usize] {
        Lu | Lt => UPPER,
        Ll => LOWER,
        Lm | Lo => CASELESS,
        Mn | Mc | Me => MARK,
        Nd | Nl | No => NUMBER,
        Pc | Pd | Ps | Pe | Pi | Pf | Po => PUNCTUATION,
        Sm | Sc | Sk | So => SYMBOL,
        Zs | Zl | Zp | Cc | Cf | Cs | Co | Cn => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_enum_is_in_the_order_of_the_generated_names() {
        let names: Vec<String> = CATEGORIES.iter().map(|category| format!("{category:?}")).collect();
        assert_eq!(names.join(" "), class_table::CATEGORY_NAMES);
        assert!(CATEGORIES.iter().enumerate().all(|(number, &category)| category as usize == number));
    }

    #[test]
    fn the_map_agrees_with_the_categories_on_every_code_point() {
        for code_point in 0..0x11_0000 {
            let expected = match format!("{:?}", category(code_point)).as_bytes() {
                _ if is_space(code_point) => SPACE,
                b"Ll" => LOWER,
                b"Lu" | b"Lt" => UPPER,
                [b'L', _] => CASELESS,
                [b'M', _] => MARK,
                [b'N', _] => NUMBER,
                [b'P', _] => PUNCTUATION,
                [b'S', _] => SYMBOL,
                _ => 0,
            };
            assert_eq!(class_map()[code_point as usize], expected, "U+{code_point:04X}");
        }
    }

    #[test]
    fn han_is_a_class_of_its_own_in_one_map() {
        for code_point in 0..0x11_0000 {
            let is = class_map()[code_point as usize];
            let han = class_table::HAN.iter().any(|&(first, last)| (first..=last).contains(&code_point));
            let expected = match (han, is) {
                (false, _) => is & !(PUNCTUATION | SYMBOL),
                (true, NUMBER) => HAN | NUMBER,
                (true, CASELESS) => HAN,
                (true, _) => HAN | HAN_SIGN,
            };
            assert_eq!(han_map()[code_point as usize], expected, "U+{code_point:04X}");
        }
        let of = |c: char| han_map()[c as usize];
        assert_eq!([of('中'), of('々'), of('〇'), of('⺀')], [HAN, HAN, HAN | NUMBER, HAN | HAN_SIGN]);
    }

    #[test]
    fn whitespace_is_that_of_the_regex_module() {
        let spaces: Vec<u32> = (0..0x11_0000).filter(|&code_point| is_space(code_point)).collect();
        let mut expected = vec![0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680];
        expected.extend(0x2000..=0x200A);
        expected.extend([0x2028, 0x2029, 0x202F, 0x205F, 0x3000]);
        assert_eq!(spaces, expected);
    }

    #[test]
    fn some_well_known_categories() {
        let of = |c: char| category(c as u32);
        assert_eq!([of('A'), of('a'), of('ǅ'), of('ʰ'), of('中')], [Lu, Ll, Lt, Lm, Lo]);
        assert_eq!([of('\u{301}'), of('ी'), of('7'), of('Ⅷ'), of('½')], [Mn, Mc, Nd, Nl, No]);
        assert_eq!([of('_'), of('!'), of('€'), of('😀'), of('\u{a0}')], [Pc, Po, Sc, So, Zs]);
        assert_eq!([category(0xD800), category(0xE000), category(0x10_FFFF)], [Cs, Co, Cn]);
    }
}
