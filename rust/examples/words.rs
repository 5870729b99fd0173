//! Cut a file of documents into words, to compare with another implementation or to measure the speed.
//!
//! `words PATTERN LEVEL INPUT [OUTPUT]`. INPUT holds, for each document, its length (u32, little endian) and its UTF-8
//! text. OUTPUT receives, for each document, the number of its words and their ends in bytes (all u32, little endian).
//! Without OUTPUT the file is scanned five times and the median speed is printed.

use std::error::Error;
use std::time::Instant;

use dist_bpe_core::scan::{Level, Pattern, Scanner};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (pattern, level, input, output) = match &arguments[..] {
        [pattern, level, input] => (pattern, level, input, None),
        [pattern, level, input, output] => (pattern, level, input, Some(output)),
        _ => return Err("usage: words PATTERN LEVEL INPUT [OUTPUT]".into()),
    };
    let pattern = Pattern::from_name(pattern).ok_or("no such pattern")?;
    let level = Level::available().into_iter().find(|known| known.name() == level).ok_or("no such level here")?;
    let bytes = std::fs::read(input)?;
    let documents = split(&bytes)?;
    let mut scanner = Scanner::with_level(pattern, level);

    if let Some(output) = output {
        let mut table: Vec<u32> = Vec::new();
        for document in documents {
            let header = table.len();
            table.push(0);
            let mut base = 0;
            scanner.scan(document, |_, bounds| {
                table.extend(bounds[1..].iter().map(|bound| base + bound));
                base += bounds[bounds.len() - 1];
            });
            table[header] = (table.len() - header - 1) as u32;
        }
        std::fs::write(output, table.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())?;
        return Ok(());
    }

    let size: usize = documents.iter().map(|document| document.len()).sum();
    let mut speeds = Vec::new();
    let mut words = 0;
    for _ in 0..5 {
        words = 0;
        let start = Instant::now();
        for document in &documents {
            scanner.scan(document, |_, bounds| words += std::hint::black_box(bounds).len() - 1);
        }
        speeds.push(size as f64 / 1e6 / start.elapsed().as_secs_f64());
    }
    speeds.sort_by(f64::total_cmp);
    println!("{:8} {:8} {words:>10} words {:>6.0} MB/s", pattern.name(), level.name(), speeds[2]);
    Ok(())
}

fn split(mut bytes: &[u8]) -> Result<Vec<&str>, Box<dyn Error>> {
    let mut documents = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (document, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("cut short")?;
        documents.push(std::str::from_utf8(document)?);
        bytes = rest;
    }
    Ok(documents)
}
