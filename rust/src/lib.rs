//! The native core of `dist_bpe`, in the order of the data.
//!
//! Text comes in as UTF-8 documents and leaves as sorted word counts; word counts come in and leave as merges; merges
//! come in and turn text into ids. Nothing here knows Python: the binding is one file, behind the feature `python`.

mod blocks;
mod class_table;
pub mod classes;
pub mod count;
pub mod encode;
pub mod learn;
pub mod naive;
pub mod normalize;
pub mod parity;
#[cfg(feature = "python")]
mod python;
pub mod runs;
pub mod scalar;
pub mod scan;
mod simd;
pub mod special;
