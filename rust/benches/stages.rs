//! Each stage on its own, at every level of the scanner: `cargo bench`. The text is generated, so figures compare between
//! machines, and between today and tomorrow; the comparison with other trainers is in `benchmarks/`.

use std::hint::black_box;
use std::ops::ControlFlow;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dist_bpe_core::count::Counter;
use dist_bpe_core::encode::{Encoder, Scratch};
use dist_bpe_core::learn::{Options, Words, learn};
use dist_bpe_core::merge::Merger;
use dist_bpe_core::scan::{Level, Pattern, Scanner};

/// Two megabytes of words that repeat as words do: the n-th of 40,000 comes about n times less often than the first.
fn text() -> String {
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut text = String::new();
    while text.len() < 2_000_000 {
        let rank = (40_000f64.powf(next() as f64 / (1u64 << 31) as f64)) as u64;
        let mut number = rank.wrapping_mul(2_654_435_761) % 1_000_003;
        text.push(if next() % 12 == 0 { '\n' } else { ' ' });
        while number > 0 {
            text.push(['a', 'e', 'i', 'o', 'n', 's', 't', 'r', 'é', 'д'][(number % 10) as usize]);
            number /= 10;
        }
    }
    text
}

fn stages(criterion: &mut Criterion) {
    let text = text();
    let mut group = criterion.benchmark_group("scan");
    group.throughput(Throughput::Bytes(text.len() as u64));
    for &pattern in Pattern::ALL {
        for level in Level::available() {
            let mut scanner = Scanner::with_level(pattern, level);
            group.bench_function(format!("{} {}", pattern.name(), level.name()), |bencher| {
                bencher.iter(|| {
                    let mut words = 0;
                    scanner.scan(&text, |_, bounds| words += bounds.len());
                    black_box(words)
                });
            });
        }
    }
    group.finish();

    let count = || {
        let mut counter = Counter::new(1, Some(Pattern::GPT2), &[]).expect("no special tokens");
        counter.count_document(0, &text).expect("a small text");
        counter
    };
    let rows = || {
        let mut spill = count().drain(1);
        std::iter::from_fn(move || spill.next_rows().map(|(_, rows)| rows)).collect::<Vec<_>>()
    };
    let table = || {
        let mut builder = Words::builder(vec![1], 1, false);
        rows().iter().try_for_each(|rows| builder.push_rows(rows)).expect("sorted rows of one source");
        builder.finish().expect("counts of a few megabytes fit")
    };
    let mut group = criterion.benchmark_group("stages");
    group.bench_function("count 2 MB", |bencher| bencher.iter(|| black_box(count().unique_words())));
    group.bench_function("drain", |bencher| {
        bencher.iter_batched(count, |mut counter| black_box(counter.drain(16)), BatchSize::LargeInput);
    });
    group.bench_function("merge 8 spills", |bencher| {
        bencher.iter_batched(
            || (0..8).map(|_| rows().into_iter()).collect(),
            |spills| {
                let mut merger = Merger::new(spills, 1, 0);
                while let Some(rows) = merger.next_rows().expect("sorted spills") {
                    black_box(rows.len());
                }
            },
            BatchSize::LargeInput,
        );
    });
    let words = table();
    let options = Options { merges: 8000, min_pair_count: 2, max_token_bytes: None };
    let run = || learn(&words, &options, &mut |_| ControlFlow::Continue(())).expect("small counts");
    group.bench_function("learn 8,000 merges", |bencher| bencher.iter(|| black_box(run().len())));
    let pairs: Vec<_> = run().iter().map(|merge| (merge.left, merge.right)).collect();
    let encoder = Encoder::new(&pairs).expect("merges in order");
    let rows = rows();
    group.bench_function("encode every word", |bencher| {
        let (mut scratch, mut ids) = (Scratch::default(), Vec::new());
        bencher.iter(|| {
            ids.clear();
            for rows in &rows {
                (0..rows.len()).for_each(|i| encoder.encode_word(rows.word(i), &mut scratch, &mut ids));
            }
            black_box(ids.len())
        });
    });
    group.finish();
}

criterion_group!(benches, stages);
criterion_main!(benches);
