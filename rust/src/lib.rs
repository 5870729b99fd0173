//! The native core of `dist_bpe`, in the order of the data: text, words, counts, merges, ids.
//!
//! 1. **Text to words.** A [`special::SpecialCutter`] takes special tokens out of a document, a
//!    [`normalize::Normalizer`] brings what is between them into a normalisation form, and a [`scan::Scanner`] cuts it
//!    into words as a named pattern says.
//! 2. **Words to counts.** A [`count::Counter`] does all that, and counts the words of each source. What it has counted
//!    leaves it as a sorted [`count::Spill`]; a [`merge::Merger`] makes one table of many spills. Counts travel in
//!    batches, [`rows::Rows`].
//! 3. **Counts to merges.** [`learn::Words`] weighs the sources against each other, and [`learn::learn`] finds the
//!    merges. A [`learn::Table`] stays in memory, to learn from it many times; [`learn::parity`] lets the languages
//!    that are worst off choose.
//! 4. **Merges to ids.** An [`encode::Encoder`] turns words into ids, and an [`encode::Replay`] counts what the merges
//!    did to all the words of a table.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use dist_bpe_core::bytes::BYTE_IDS;
//! use dist_bpe_core::count::Counter;
//! use dist_bpe_core::encode::{Encoder, Scratch};
//! use dist_bpe_core::learn::{Options, Words, learn};
//! use dist_bpe_core::merge::Merger;
//! use dist_bpe_core::scan::Pattern;
//!
//! // Two counters, as two workers have them; what each has counted is a spill of one partition.
//! let mut spills = Vec::new();
//! for document in ["low lower lowest", "slow"] {
//!     let mut counter = Counter::new(1, Some(Pattern::GPT2), &[])?;
//!     counter.count_document(0, document)?;
//!     let mut spill = counter.drain(1);
//!     let batches: Vec<_> = std::iter::from_fn(|| spill.next_rows()).map(|(_, rows)| rows).collect();
//!     spills.push(batches.into_iter());
//! }
//!
//! // One table of both: the words of one source, which weighs 1.
//! let mut merger = Merger::new(spills, 1, 0);
//! let mut builder = Words::builder(vec![1], 1, false);
//! while let Some(rows) = merger.next_rows()? {
//!     builder.push_rows(&rows)?;
//! }
//! let words = builder.finish()?;
//! assert_eq!(words.len(), 4);
//!
//! let options = Options { merges: 2, min_pair_count: 2, max_token_bytes: None };
//! let merges = learn(&words, &options, &mut |_| ControlFlow::Continue(()))?;
//! let pairs: Vec<_> = merges.iter().map(|merge| (merge.left, merge.right)).collect();
//! let [l, o, w, s] = [b'l', b'o', b'w', b's'].map(|byte| BYTE_IDS[usize::from(byte)]);
//! assert_eq!(pairs, [(l, o), (256, w)]);
//!
//! let mut ids = Vec::new();
//! Encoder::new(&pairs)?.encode_word(b"slows", &mut Scratch::default(), &mut ids);
//! assert_eq!(ids, [s, 257, s]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A module uses only those before it in the list below, which `tests/order.rs` sees to. The fast routines have slow
//! twins, in [`naive`] and [`scan::scalar`], which the tests hold them equal to. Nothing here knows Python but the
//! binding, behind the feature `python`.

pub mod bytes;
pub mod rows;
pub mod special;
pub mod normalize;
pub mod scan;
pub mod count;
pub mod merge;
pub mod learn;
pub mod encode;
pub mod naive;
#[cfg(feature = "python")]
mod python;
