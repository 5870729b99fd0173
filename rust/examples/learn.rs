//! Learns merges from lines `count<TAB>word in hexadecimal` on standard input, and prints `left<TAB>right<TAB>count` a merge.
//!
//! `cargo run --release --example learn -- MERGES [MIN_PAIR_COUNT [MAX_TOKEN_BYTES [naive]]] < words.tsv`
//!
//! Times and figures go to standard error.

use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use std::time::Instant;

use dist_bpe_core::learn::{Options, Words, learn_measured};
use dist_bpe_core::naive;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).map(|text| text.parse::<usize>()).transpose();
    let options = Options {
        merges: number(0)?.ok_or("how many merges?")?,
        min_pair_count: number(1)?.unwrap_or(2) as u64,
        max_token_bytes: number(2)?.filter(|&bytes| bytes > 0),
    };
    let mut builder = Words::builder(vec![1], 0, false);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (count, word) = line.split_once('\t').ok_or("a line without a tab")?;
        let word: Result<Vec<u8>, _> =
            (0..word.len() / 2).map(|index| u8::from_str_radix(&word[2 * index..2 * index + 2], 16)).collect();
        builder.push(&word?, 0, count.parse()?)?;
    }
    let words = builder.finish()?;
    eprintln!("{} words, {} MB", words.len(), words.memory_bytes() >> 20);
    let start = Instant::now();
    let progress = &mut |_: usize| ControlFlow::Continue(());
    let merges = if arguments.get(3).is_some_and(|name| name == "naive") {
        naive::learn(&words, &options, progress)?
    } else {
        let (merges, stats) = learn_measured(&words, &options, progress)?;
        eprintln!("{stats:?}");
        merges
    };
    eprintln!("{} merges in {:.3} s", merges.len(), start.elapsed().as_secs_f64());
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    for merge in &merges {
        writeln!(output, "{}\t{}\t{}", merge.left, merge.right, merge.count)?;
    }
    Ok(())
}
