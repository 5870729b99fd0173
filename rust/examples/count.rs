//! How fast words are found and counted, on one thread, by pattern and instruction set.
//!
//! ```text
//! cargo run --release --example count -- FILE [ROUNDS]
//! ```
//!
//! FILE holds documents in UTF-8, a NUL byte between two. Every round runs all combinations once, so that what disturbs
//! the machine disturbs all of them; medians of processor time are printed, in MB (10^6 bytes) a second. Pin it to a
//! core (`taskset -c 1`).

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use dist_bpe_core::count::Counter;
use dist_bpe_core::scan::{Level, Pattern, Scanner};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("a file of documents with NUL bytes between them");
    let rounds = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let text = String::from_utf8(std::fs::read(file).expect("a readable file")).expect("UTF-8");
    let documents: Vec<&str> = text.split('\0').collect();

    let mut lines: Vec<Line> = Pattern::ALL
        .iter()
        .flat_map(|&pattern| Level::available().into_iter().map(move |level| Line::new(pattern, level)))
        .collect();
    for _ in 0..rounds {
        lines.iter_mut().for_each(|line| line.run(&documents));
    }
    println!("{} documents, {:.1} MB, {rounds} rounds", documents.len(), text.len() as f64 / 1e6);
    println!("pattern  level     scan  scan + count  drain s  words      different  MB");
    for Line { pattern, level, scans, counts, drains, words, unique, memory } in &mut lines {
        let speed = |times: &mut Vec<Duration>| text.len() as f64 / 1e6 / median(times);
        println!(
            "{:8} {:8} {:5.0} {:13.0} {:8.3}  {:9} {:10} {:3}",
            pattern.name(),
            level.name(),
            speed(scans),
            speed(counts),
            median(drains),
            words,
            unique,
            *memory / 1_000_000,
        );
    }
}

struct Line {
    pattern: Pattern,
    level: Level,
    scans: Vec<Duration>,
    counts: Vec<Duration>,
    drains: Vec<Duration>,
    words: u64,
    unique: usize,
    memory: usize,
}

impl Line {
    fn new(pattern: Pattern, level: Level) -> Self {
        Line { pattern, level, scans: vec![], counts: vec![], drains: vec![], words: 0, unique: 0, memory: 0 }
    }

    fn run(&mut self, documents: &[&str]) {
        let mut scanner = Scanner::with_level(self.pattern, self.level);
        let mut words = 0;
        let start = cpu_time();
        for document in documents {
            scanner.scan(document, |_, bounds| words += bounds.len() as u64 - 1);
        }
        self.scans.push(cpu_time() - start);

        let mut counter = Counter::with_level(1, Some(self.pattern), &[], self.level).expect("no special tokens");
        let start = cpu_time();
        let mut taken = counter.documents(0);
        for document in documents {
            taken.count_while(document, &mut |_| ControlFlow::Continue(())).expect("counts below 2^64");
        }
        drop(taken);
        self.counts.push(cpu_time() - start);
        self.words = counter.totals(0).words;
        assert_eq!(words, self.words);
        (self.unique, self.memory) = (counter.unique_words(), counter.memory_bytes());

        let start = cpu_time();
        let mut spill = counter.drain(64);
        while spill.next_rows().is_some() {}
        self.drains.push(cpu_time() - start);
    }
}

/// Processor time of this thread where Linux tells it, else time passed.
fn cpu_time() -> Duration {
    thread_local!(static START: Instant = Instant::now());
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = scheduled.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| START.with(Instant::elapsed), Duration::from_nanos)
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}
