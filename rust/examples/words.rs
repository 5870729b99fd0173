//! Cut a file of documents into words, to compare with another implementation or to measure the speed.
//!
//! `words PATTERN LEVEL INPUT [OUTPUT]`. INPUT holds, for each document, its length (u32, little endian) and its UTF-8
//! text. OUTPUT receives, for each document, the number of its words and their ends in bytes (all u32, little endian).
//! Without OUTPUT the file is scanned five times and the speed is printed, by processor time where Linux tells it, so
//! that a busy machine changes it little.

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

    let wall = Instant::now();
    let size: usize = documents.iter().map(|document| document.len()).sum();
    let mut words = 0;
    let start = processor_seconds().unwrap_or_else(|| wall.elapsed().as_secs_f64());
    for _ in 0..PASSES {
        words = 0;
        for document in &documents {
            scanner.scan(document, |_, bounds| words += std::hint::black_box(bounds).len() - 1);
        }
    }
    let seconds = processor_seconds().unwrap_or_else(|| wall.elapsed().as_secs_f64()) - start;
    let speed = (size * PASSES) as f64 / 1e6 / seconds;
    println!("{:8} {:8} {words:>10} words {speed:>6.0} MB/s", pattern.name(), level.name());
    Ok(())
}

const PASSES: usize = 5;

/// What this process has used of its processor.
fn processor_seconds() -> Option<f64> {
    let nanoseconds = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(nanoseconds.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
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
