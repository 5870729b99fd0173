//! The processor-specific part of scanning: 64 bytes in, one bit mask a property of a byte out.
//!
//! Everything else is portable code over `u64` masks, written once and compiled for each level by [`dispatch`].

use super::class_table::RUNS;
use super::classes::{LETTER, class_of_entry};

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
    /// 64-byte blocks, with one vector each (VBMI2: Intel since Ice Lake, AMD since Zen 4).
    Avx512,
}

impl Level {
    /// The levels this processor can run, slowest first.
    pub fn available() -> Vec<Level> {
        [Level::Scalar].into_iter().chain(levels()).collect()
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
            Level::Avx512 => "avx512",
        }
    }
}

/// Bit `i` of each mask tells whether byte `i` of the block has the property. All but the last two hold ASCII only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteMasks {
    pub letter: u64,
    pub upper: u64,
    pub number: u64,
    /// Whitespace, the line ends and blanks among it.
    pub space: u64,
    /// `\r` and `\n`.
    pub line_end: u64,
    /// U+0020.
    pub blank: u64,
    pub apostrophe: u64,
    pub slash: u64,
    /// 0x00 to 0x1F and 0x7F.
    pub control: u64,
    /// 0x80 and above: part of a character that is not ASCII.
    pub wide: u64,
    /// 0x80 to 0xBF: such a character goes on.
    pub continuation: u64,
}

/// A way to find the masks of a block.
pub(crate) trait Classifier {
    /// The last bytes of a text, fewer than 64, and zeros.
    #[inline(always)]
    fn padded(rest: &[u8]) -> [u8; 64] {
        let mut block = [0; 64];
        block[..rest.len()].copy_from_slice(rest);
        block
    }

    fn classify(block: &[u8; 64]) -> ByteMasks;

    /// The first bytes of those characters that [`SureLetters`] tells. A classifier may know none of them: what is left
    /// out is looked up, one by one.
    #[inline(always)]
    fn sure_letters(_block: &[u8; 64]) -> u64 {
        0
    }

    /// Write `offset + i` for each bit `i` of the mask; what is written behind the last of them means nothing.
    #[inline(always)]
    fn places(offset: u32, mut mask: u64, room: &mut [u32; 64]) {
        // A branch for each bit would be mispredicted once a block; one for eight seldom is.
        for eight in room.as_chunks_mut::<8>().0 {
            for place in eight {
                *place = offset.wrapping_add(mask.trailing_zeros());
                mask &= mask.wrapping_sub(1);
            }
            if mask == 0 {
                break;
            }
        }
    }
}

/// Letters of two or three bytes that the first byte and the upper half of the second tell, whatever follows: those of
/// blocks of 16 code points below U+0800 and of 1,024 below U+10000 that hold nothing but letters. So are all Russian
/// letters, nine of ten Greek ones, most of those that European languages add to ASCII, Hangul and ideographs.
///
/// Indexed with half bytes. A lead byte is sure if a bit is set in `lead_low`, `lead_high` and `second_high` alike: four
/// bits for the four upper halves of a second byte, twice, since the upper half of a lead byte of two bytes is C or D.
/// `_three` stand for a lead byte of E.
struct SureLetters {
    lead_low: [u8; 16],
    lead_high: [u8; 16],
    lead_low_three: [u8; 16],
    lead_high_three: [u8; 16],
    second_high: [u8; 16],
}

static SURE_LETTERS: SureLetters = {
    let (mut lead_low, mut lead_low_three) = ([!0; 16], [0x0F; 16]);
    let mut from = 0;
    let mut index = 0;
    while index < RUNS.len() {
        let until = if index + 1 < RUNS.len() { RUNS[index + 1] >> 8 } else { 0x11_0000 };
        if class_of_entry(RUNS[index] as u8) & LETTER == 0 {
            let mut code_point = from;
            while code_point < until && code_point < 0x800 {
                let (lead, second) = (0xC0 | code_point >> 6, code_point & 0x3F);
                lead_low[lead as usize & 15] &= !(1 << ((lead >> 4 & 1) * 4 + (second >> 4)));
                code_point += 1;
            }
            code_point = from;
            while code_point < until && code_point < 0x1_0000 {
                lead_low_three[code_point as usize >> 12] &= !(1 << (code_point >> 10 & 3));
                code_point = (code_point | 0x3FF) + 1;
            }
        }
        from = until;
        index += 1;
    }
    let (mut lead_high, mut lead_high_three, mut second_high) = ([0; 16], [0; 16], [0; 16]);
    (lead_high[0xC], lead_high[0xD], lead_high_three[0xE]) = (0x0F, 0xF0, 0x0F);
    (second_high[0x8], second_high[0x9], second_high[0xA], second_high[0xB]) = (0x11, 0x22, 0x44, 0x88);
    SureLetters { lead_low, lead_high, lead_low_three, lead_high_three, second_high }
};

/// Code that wants a classifier; see [`dispatch`].
pub(crate) trait Job {
    /// Must be `#[inline(always)]`, and so must what is hot inside: only what is inlined into [`dispatch`]'s functions
    /// is compiled for the processor features of the level.
    fn run<C: Classifier>(self);
}

/// The levels this processor can run beside the scalar one, slowest first.
pub(crate) fn levels() -> Vec<Level> {
    #[allow(unused_mut, reason = "only x86-64 adds to it")]
    let mut levels = vec![Level::Portable];
    #[cfg(target_arch = "x86_64")]
    {
        levels.push(Level::Sse2); // every x86-64 processor has it
        if avx2_is_available() {
            levels.push(Level::Avx2);
        }
        if avx512_is_available() {
            levels.push(Level::Avx512);
        }
    }
    levels
}

/// Run the job with the classifier of the level, compiled for that level.
///
/// # Panics
/// When this processor cannot run the level, or it is the scalar one, which needs no classifier.
#[inline]
pub(crate) fn dispatch(level: Level, job: impl Job) {
    match level {
        Level::Portable => job.run::<Portable>(),
        #[cfg(target_arch = "x86_64")]
        Level::Sse2 => job.run::<x86::Sse2>(),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            assert!(avx2_is_available());
            // SAFETY: the processor has the features the function is compiled for.
            unsafe { x86::run_avx2(job) }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            assert!(avx512_is_available());
            // SAFETY: the processor has the features the function is compiled for.
            unsafe { x86::run_avx512(job) }
        }
        _ => panic!("no 64-byte blocks at level {}", level.name()),
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2_is_available() -> bool {
    // The last three are about bits, not vectors; each AVX2 processor has them, but a virtual machine may hide some.
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

#[cfg(target_arch = "x86_64")]
fn avx512_is_available() -> bool {
    avx2_is_available()
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
}

/// Plain integers: each byte is looked up in a table of its eight properties, and the bit matrix of eight bytes by
/// eight properties is transposed. No vector unit asked for, and none guessed by the compiler.
pub(crate) struct Portable;

impl Classifier for Portable {
    #[inline(always)]
    fn classify(block: &[u8; 64]) -> ByteMasks {
        let mut masks = [0_u64; 8];
        let mut wide = 0;
        let mut continuation = 0;
        let mut control = 0;
        for (index, bytes) in block.as_chunks::<8>().0.iter().enumerate() {
            let properties = u64::from_le_bytes(bytes.map(|byte| PROPERTIES[byte as usize]));
            for (mask, group) in masks.iter_mut().zip(transpose(properties).to_le_bytes()) {
                *mask |= u64::from(group) << (8 * index);
            }
            let word = u64::from_le_bytes(*bytes);
            wide |= gather_high_bits(word) << (8 * index);
            continuation |= gather_high_bits(word & !(word << 1)) << (8 * index);
            // One more, modulo 128, takes the controls to 0x00..=0x20; from 0x21 on, adding 0x5F sets the high bit.
            let next = ((word & 0x7F7F_7F7F_7F7F_7F7F) + 0x0101_0101_0101_0101) & 0x7F7F_7F7F_7F7F_7F7F;
            control |= gather_high_bits(!(next + 0x5F5F_5F5F_5F5F_5F5F) & !word) << (8 * index);
        }
        let [letter, upper, number, space, line_end, blank, apostrophe, slash] = masks;
        ByteMasks { letter, upper, number, space, line_end, blank, apostrophe, slash, control, wide, continuation }
    }
}

/// For each byte its first eight properties, in the order of `ByteMasks`.
static PROPERTIES: [u8; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 128 {
        let byte = index as u8;
        table[index] = byte.is_ascii_alphabetic() as u8
            | (byte.is_ascii_uppercase() as u8) << 1
            | (byte.is_ascii_digit() as u8) << 2
            | (matches!(byte, b'\t'..=b'\r' | b' ') as u8) << 3
            | (matches!(byte, b'\r' | b'\n') as u8) << 4
            | ((byte == b' ') as u8) << 5
            | ((byte == b'\'') as u8) << 6
            | ((byte == b'/') as u8) << 7;
        index += 1;
    }
    table
};

/// Bit `i` of byte `j` becomes bit `j` of byte `i`: swap the off-diagonal quarters of each 2×2, 4×4 and 8×8 square.
const fn transpose(mut matrix: u64) -> u64 {
    let mut swap = (matrix ^ (matrix >> 7)) & 0x00AA_00AA_00AA_00AA;
    matrix ^= swap ^ (swap << 7);
    swap = (matrix ^ (matrix >> 14)) & 0x0000_CCCC_0000_CCCC;
    matrix ^= swap ^ (swap << 14);
    swap = (matrix ^ (matrix >> 28)) & 0x0000_0000_F0F0_F0F0;
    matrix ^ swap ^ (swap << 28)
}

/// The highest bits of the eight bytes as one byte. The product brings bit `8 j + 7` to bit `56 + j`; no two of its
/// terms meet, so nothing is carried.
const fn gather_high_bits(word: u64) -> u64 {
    ((word >> 7) & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ByteMasks, Classifier, Job, SURE_LETTERS, SureLetters};
    use std::arch::x86_64::*;

    /// Compile the job for AVX2 and the bit instructions that came with it.
    #[target_feature(enable = "avx2,bmi1,lzcnt,popcnt")]
    pub fn run_avx2(job: impl Job) {
        job.run::<Avx2>();
    }

    /// Compile the job for AVX-512 with its instructions for bytes.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
    pub fn run_avx512(job: impl Job) {
        job.run::<Avx512>();
    }

    /// One classifier, two register widths: the formulas once, the names of the instructions as parameters.
    macro_rules! classifier {
        ($name:ident, $doc:literal, $vector:ty, $lanes:literal, $load:ident, $splat:ident, $eq:ident, $min:ident,
         $sub:ident, $or:ident, $less:expr, $mask:expr $(, $sure:ident)?) => {
            #[doc = $doc]
            pub struct $name;

            impl Classifier for $name {
                #[inline(always)]
                fn classify(block: &[u8; 64]) -> ByteMasks {
                    // SAFETY: the loads stay inside the block, and take any alignment. The level is only run where its
                    // instructions are available (`dispatch`).
                    unsafe {
                        let vectors: [$vector; 64 / $lanes] =
                            std::array::from_fn(|index| $load(block.as_ptr().add(index * $lanes).cast()));
                        let masks = |property: &dyn Fn($vector) -> $vector| -> u64 {
                            let mut mask = 0;
                            for (index, &vector) in vectors.iter().enumerate() {
                                mask |= $mask(property(vector)) << (index * $lanes);
                            }
                            mask
                        };
                        let is = |vector, byte: u8| $eq(vector, $splat(byte as i8));
                        // first <= byte <= last, unsigned: the smaller of (byte - first, width) is (byte - first).
                        let within = |vector, first: u8, last: u8| {
                            let distance = $sub(vector, $splat(first as i8));
                            $eq($min(distance, $splat((last - first) as i8)), distance)
                        };
                        let blank = masks(&|vector| is(vector, b' '));
                        ByteMasks {
                            // Bit 0x20 tells lower from upper case.
                            letter: masks(&|vector| within($or(vector, $splat(0x20)), b'a', b'z')),
                            upper: masks(&|vector| within(vector, b'A', b'Z')),
                            number: masks(&|vector| within(vector, b'0', b'9')),
                            space: blank | masks(&|vector| within(vector, b'\t', b'\r')),
                            line_end: masks(&|vector| $or(is(vector, b'\n'), is(vector, b'\r'))),
                            blank,
                            apostrophe: masks(&|vector| is(vector, b'\'')),
                            slash: masks(&|vector| is(vector, b'/')),
                            control: masks(&|vector| $or(within(vector, 0, 0x1F), is(vector, 0x7F))),
                            wide: masks(&|vector| vector),
                            // 0x80..=0xBF are the smallest signed bytes.
                            continuation: masks(&|vector| $less(vector, $splat(0xC0_u8 as i8))),
                        }
                    }
                }

                $(#[inline(always)]
                fn sure_letters(block: &[u8; 64]) -> u64 {
                    // SAFETY: as above.
                    unsafe { $sure(block) }
                })?
            }
        };
    }

    classifier!(
        Sse2,
        "Sixteen bytes at a time; every x86-64 processor can.",
        __m128i,
        16,
        _mm_loadu_si128,
        _mm_set1_epi8,
        _mm_cmpeq_epi8,
        _mm_min_epu8,
        _mm_sub_epi8,
        _mm_or_si128,
        |a, b| _mm_cmplt_epi8(a, b),
        |vector| _mm_movemask_epi8(vector) as u32 as u64
    );
    classifier!(
        Avx2,
        "Thirty-two bytes at a time.",
        __m256i,
        32,
        _mm256_loadu_si256,
        _mm256_set1_epi8,
        _mm256_cmpeq_epi8,
        _mm256_min_epu8,
        _mm256_sub_epi8,
        _mm256_or_si256,
        |a, b| _mm256_cmpgt_epi8(b, a),
        |vector| _mm256_movemask_epi8(vector) as u32 as u64,
        sure_letters_avx2
    );

    #[inline]
    #[target_feature(enable = "avx2")]
    fn sure_letters_avx2(block: &[u8; 64]) -> u64 {
        let low = |vector| _mm256_and_si256(vector, _mm256_set1_epi8(0x0F));
        let high = |vector| low(_mm256_srli_epi16::<4>(vector));
        let look_up = |table: &[u8; 16], halves| {
            // SAFETY: the load stays inside the table, and takes any alignment.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), halves)
        };
        let sure = |leads, seconds| {
            let SureLetters { lead_low, lead_high, lead_low_three, lead_high_three, second_high } = &SURE_LETTERS;
            let two = _mm256_and_si256(look_up(lead_low, low(leads)), look_up(lead_high, high(leads)));
            let three = _mm256_and_si256(look_up(lead_low_three, low(leads)), look_up(lead_high_three, high(leads)));
            let bits = _mm256_and_si256(_mm256_or_si256(two, three), look_up(second_high, high(seconds)));
            let unsure = _mm256_cmpeq_epi8(bits, _mm256_setzero_si256());
            u64::from(!_mm256_movemask_epi8(unsure) as u32)
        };
        // SAFETY: the loads of 32 bytes stay inside the block, and take any alignment.
        let [first, after_first, last] =
            [0, 1, 32].map(|start| unsafe { _mm256_loadu_si256(block.as_ptr().add(start).cast()) });
        // One byte on; what is behind the block is not known and stands as 0, which is no second byte.
        let after_last = _mm256_alignr_epi8::<1>(_mm256_permute2x128_si256::<0x81>(last, last), last);
        sure(first, after_first) | sure(last, after_last) << 32
    }

    /// Sixty-four bytes at a time, compared into masks.
    pub struct Avx512;

    impl Classifier for Avx512 {
        #[inline(always)]
        fn padded(rest: &[u8]) -> [u8; 64] {
            // SAFETY: the level is only run where its instructions are available (`dispatch`).
            unsafe { padded_avx512(rest) }
        }

        #[inline(always)]
        fn classify(block: &[u8; 64]) -> ByteMasks {
            // SAFETY: as above.
            unsafe { classify_avx512(block) }
        }

        #[inline(always)]
        fn sure_letters(block: &[u8; 64]) -> u64 {
            // SAFETY: as above.
            unsafe { sure_letters_avx512(block) }
        }

        #[inline(always)]
        fn places(offset: u32, mask: u64, room: &mut [u32; 64]) {
            // SAFETY: as above.
            unsafe { places_avx512(offset, mask, room) }
        }
    }

    /// 0 to 63.
    const PLACES: [u8; 64] = {
        let mut places = [0; 64];
        let mut place = 0;
        while place < 64 {
            places[place] = place as u8;
            place += 1;
        }
        places
    };

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_avx512(block: &[u8; 64]) -> __m512i {
        // SAFETY: the load is the block, and takes any alignment.
        unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
    }

    /// In one load: a copy byte by byte would have to reach memory before it can be loaded as a whole.
    #[inline]
    #[target_feature(enable = "avx512bw")]
    fn padded_avx512(rest: &[u8]) -> [u8; 64] {
        let in_text = !(!0 << rest.len());
        let mut block = [0; 64];
        // SAFETY: of the 64 bytes, only those of `rest` are touched. The store is the block, and takes any alignment.
        unsafe {
            let vector = _mm512_maskz_loadu_epi8(in_text, rest.as_ptr().cast());
            _mm512_storeu_si512(block.as_mut_ptr().cast(), vector);
        }
        block
    }

    #[inline]
    #[target_feature(enable = "avx512bw")]
    fn classify_avx512(block: &[u8; 64]) -> ByteMasks {
        let vector = load_avx512(block);
        let splat = |byte: u8| _mm512_set1_epi8(byte as i8);
        let is = |byte| _mm512_cmpeq_epi8_mask(vector, splat(byte));
        // first <= byte <= last, unsigned
        let within =
            |vector, first, last| _mm512_cmple_epu8_mask(_mm512_sub_epi8(vector, splat(first)), splat(last - first));
        let blank = is(b' ');
        ByteMasks {
            // Bit 0x20 tells lower from upper case.
            letter: within(_mm512_or_si512(vector, splat(0x20)), b'a', b'z'),
            upper: within(vector, b'A', b'Z'),
            number: within(vector, b'0', b'9'),
            space: blank | within(vector, b'\t', b'\r'),
            line_end: is(b'\n') | is(b'\r'),
            blank,
            apostrophe: is(b'\''),
            slash: is(b'/'),
            control: within(vector, 0, 0x1F) | is(0x7F),
            wide: _mm512_movepi8_mask(vector),
            // 0x80..=0xBF are the smallest signed bytes.
            continuation: _mm512_cmplt_epi8_mask(vector, splat(0xC0)),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512vbmi")]
    fn sure_letters_avx512(block: &[u8; 64]) -> u64 {
        let low = |vector| _mm512_and_si512(vector, _mm512_set1_epi8(0x0F));
        let high = |vector| low(_mm512_srli_epi16::<4>(vector));
        let look_up = |table: &[u8; 16], halves| {
            // SAFETY: the load stays inside the table, and takes any alignment.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), halves)
        };
        let SureLetters { lead_low, lead_high, lead_low_three, lead_high_three, second_high } = &SURE_LETTERS;
        let leads = load_avx512(block);
        // One byte on; what is behind the block is not known and stands as 0, which is no second byte.
        let next = _mm512_add_epi8(load_avx512(&PLACES), _mm512_set1_epi8(1));
        let seconds = _mm512_maskz_permutexvar_epi8(!0 >> 1, next, leads);
        let two = _mm512_and_si512(look_up(lead_low, low(leads)), look_up(lead_high, high(leads)));
        let three = _mm512_and_si512(look_up(lead_low_three, low(leads)), look_up(lead_high_three, high(leads)));
        _mm512_test_epi8_mask(_mm512_or_si512(two, three), look_up(second_high, high(seconds)))
    }

    #[inline]
    #[target_feature(enable = "popcnt,avx512f,avx512vbmi2")]
    fn places_avx512(offset: u32, mask: u64, room: &mut [u32; 64]) {
        let places = _mm512_maskz_compress_epi8(mask, load_avx512(&PLACES));
        let offset = _mm512_set1_epi32(offset as i32);
        let write = |sixteen: &mut [u32], places| {
            let sixteen: &mut [u32; 16] = sixteen.first_chunk_mut().expect("room for sixteen");
            let places = _mm512_add_epi32(offset, _mm512_cvtepu8_epi32(places));
            // SAFETY: the store is these sixteen numbers, and takes any alignment.
            unsafe { _mm512_storeu_si512(sixteen.as_mut_ptr().cast(), places) };
        };
        let many = mask.count_ones();
        write(&mut room[..], _mm512_castsi512_si128(places));
        if many > 16 {
            write(&mut room[16..], _mm512_extracti32x4_epi32::<1>(places));
            if many > 32 {
                write(&mut room[32..], _mm512_extracti32x4_epi32::<2>(places));
                write(&mut room[48..], _mm512_extracti32x4_epi32::<3>(places));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::classes::class_map;
    use proptest::prelude::*;

    /// The obvious twin.
    fn naive(block: &[u8; 64]) -> ByteMasks {
        let masks = |property: &dyn Fn(u8) -> bool| {
            (0..64).filter(|&index| property(block[index])).fold(0, |mask, index| mask | 1 << index)
        };
        ByteMasks {
            letter: masks(&|byte| byte.is_ascii_alphabetic()),
            upper: masks(&|byte| byte.is_ascii_uppercase()),
            number: masks(&|byte| byte.is_ascii_digit()),
            space: masks(&|byte| [9, 10, 11, 12, 13, 32].contains(&byte)),
            line_end: masks(&|byte| [10, 13].contains(&byte)),
            blank: masks(&|byte| byte == b' '),
            apostrophe: masks(&|byte| byte == b'\''),
            slash: masks(&|byte| byte == b'/'),
            control: masks(&|byte| byte.is_ascii_control()),
            wide: masks(&|byte| byte >= 0x80),
            continuation: masks(&|byte| (0x80..0xC0).contains(&byte)),
        }
    }

    /// The obvious twin: a character in the block and all that share its first byte and upper half of the second.
    fn naive_sure_letters(block: &[u8; 64]) -> u64 {
        let sure = |index: usize| {
            let (lead, second) = (u32::from(block[index]), u32::from(*block.get(index + 1).unwrap_or(&0)));
            let mut of_two_or_three = match (lead, second >> 4) {
                (0xC0..=0xDF, 8..=0xB) => {
                    let first = (lead & 0x1F) << 6 | (second & 0x30);
                    first..first + 16
                }
                (0xE0..=0xEF, 8..=0xB) => {
                    let first = (lead & 0xF) << 12 | (second & 0x30) << 6;
                    first..first + 1024
                }
                _ => return false,
            };
            of_two_or_three.all(|code_point| class_map()[code_point as usize] & LETTER != 0)
        };
        (0..64).filter(|&index| sure(index)).fold(0, |mask, index| mask | 1 << index)
    }

    struct Check<'a>(&'a [u8; 64]);

    impl Job for Check<'_> {
        #[inline(always)]
        fn run<C: Classifier>(self) {
            assert_eq!(C::classify(self.0), naive(self.0), "{:?}", self.0);
            let sure = C::sure_letters(self.0);
            assert!(sure == 0 || sure == naive_sure_letters(self.0), "{:?}", self.0);
            for end in 0..64 {
                let rest = &self.0[..end];
                assert_eq!(C::padded(rest), std::array::from_fn(|index| *rest.get(index).unwrap_or(&0)));
            }
            // Any mask will do.
            for mask in self.0.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)) {
                let mut places = [0; 64];
                C::places(u32::MAX - 30, mask, &mut places);
                let expected = (0..64).filter(|bit| mask >> bit & 1 != 0).map(|bit| (u32::MAX - 30).wrapping_add(bit));
                assert!(expected.eq(places[..mask.count_ones() as usize].iter().copied()), "{mask:#x}");
            }
        }
    }

    fn check(block: &[u8; 64]) {
        for level in levels() {
            dispatch(level, Check(block));
        }
    }

    #[test]
    fn every_byte_at_every_place() {
        for first in 0..=255_u8 {
            check(&std::array::from_fn(|index| first.wrapping_add(index as u8)));
        }
    }

    #[test]
    fn every_first_and_second_byte_at_every_place() {
        for place in 0..64 {
            for lead in 0xC2..=0xFF {
                for second in 0x80..=0xBF {
                    let mut block = [b'x'; 64];
                    block[place] = lead;
                    block.iter_mut().skip(place + 1).take(3).for_each(|byte| *byte = second);
                    check(&block);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn random_blocks(block in prop::array::uniform32(any::<[u8; 2]>())) {
            check(block.as_flattened().try_into().unwrap());
        }
    }
}
