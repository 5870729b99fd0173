//! The 256 bytes as tokens, in one order, and words as messages show them.

/// Number of base tokens: every byte is one.
pub const BYTES: u32 = 256;

/// The id of each byte, in the order of GPT-2: by the code point of the character that stands for the byte in
/// `vocab.json`. Printable bytes stand for themselves and come first (`!` is 0), the other 68 follow in their own order
/// as U+0100 and up (space, `Ġ`, is 220).
///
/// Format: `bytes_to_unicode` in the GPT-2 release (Radford et al. 2019).
pub const BYTE_IDS: [u32; BYTES as usize] = {
    let mut ids = [0; BYTES as usize];
    let (mut printable, mut other) = (0, 188);
    let mut byte = 0;
    while byte < ids.len() {
        let id = match byte {
            0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => &mut printable,
            _ => &mut other,
        };
        ids[byte] = *id;
        *id += 1;
        byte += 1;
    }
    ids
};

/// The byte of an id.
///
/// # Panics
/// If the id is not below [`BYTES`].
pub fn byte_of(id: u32) -> u8 {
    (0..=255).find(|&byte| BYTE_IDS[usize::from(byte)] == id).expect("ids below 256 are bytes")
}

/// A word as it can stand in a message: quoted and printable, at most 60 bytes of it.
pub fn show(word: &[u8]) -> String {
    const SHOWN: usize = 60;
    if word.is_empty() {
        return "(the empty word)".to_owned();
    }
    let shown = match std::str::from_utf8(word) {
        Ok(text) => {
            let end = (0..=SHOWN.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            format!("{:?}", &text[..end])
        }
        Err(_) => format!("\"{}\"", word[..word.len().min(SHOWN)].escape_ascii()),
    };
    if word.len() > SHOWN { format!("{shown}… ({} bytes)", word.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_the_order_of_gpt2() {
        let mut sorted = BYTE_IDS;
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..BYTES));
        for (byte, id) in [(b'!', 0), (b'~', 93), (0xA1, 94), (0xAC, 105), (0xAE, 106), (0xFF, 187)] {
            assert_eq!(BYTE_IDS[usize::from(byte)], id);
        }
        for (byte, id) in [(0, 188), (b'\n', 198), (b' ', 220), (0x7F, 221), (0xA0, 254), (0xAD, 255)] {
            assert_eq!(BYTE_IDS[usize::from(byte)], id);
        }
        assert!((0..=255).all(|byte| byte_of(BYTE_IDS[usize::from(byte)]) == byte));
    }

    #[test]
    fn words_in_messages_are_printable_and_short() {
        assert_eq!(show(b""), "(the empty word)");
        assert_eq!(show(" né\n".as_bytes()), r#"" né\n""#);
        assert_eq!(show(b"a\xff"), r#""a\xff""#);
        assert_eq!(show(&[b'a'; 60]), format!("\"{}\"", "a".repeat(60)));
        assert_eq!(show(&[b'a'; 61]), format!("\"{}\"… (61 bytes)", "a".repeat(60)));
        // Cut between characters.
        assert_eq!(show("é".repeat(31).as_bytes()), format!("\"{}\"… (62 bytes)", "é".repeat(30)));
        assert_eq!(show(&[&[b'a'; 59], "日".as_bytes()].concat()), format!("\"{}\"… (62 bytes)", "a".repeat(59)));
    }
}
