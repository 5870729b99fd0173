//! Texts and words into ids, and what is done to a text before.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow::{Bytes, Ragged, merge_pairs, ragged, text};
use super::{Watch, parse_form, parse_level, parse_pattern, released};
use crate::bytes::BYTE_IDS;
use crate::encode::{self, EncodeError};
use crate::normalize::Normalizer;
use crate::scan::{Batch, Level, Scanner};
use crate::special::{Piece, SpecialCutter};

/// Ids shifted by `first_id`, special tokens, and the scanner of a named pattern, around the exact encoder.
#[pyclass]
pub struct Encoder {
    inner: encode::CachedEncoder,
    scanner: Option<Scanner>,
    normalizer: Option<Normalizer>,
    cutter: SpecialCutter,
    special_ids: Vec<u32>,
    first_id: u32,
}

impl Encoder {
    fn ordinary(&mut self, text: &str, out: &mut Vec<u32>, watch: &mut Watch) -> PyResult<()> {
        let Some(scanner) = &mut self.scanner else {
            return Err(PyValueError::new_err(
                "this encoder has no named pattern: cut words yourself, use encode_words",
            ));
        };
        let (first, inner) = (out.len(), &mut self.inner);
        let mut failed = None;
        let mut look = |bytes| watch.spend(bytes);
        let normal = match &mut self.normalizer {
            Some(normalizer) => normalizer.normalize_while(text, &mut look),
            None => ControlFlow::Continue(text),
        };
        let ended = normal.map_continue(|text| {
            scanner.scan_while(text, |batch| match batch {
                Batch::Words(window, bounds) => {
                    for ends in bounds.windows(2) {
                        let word = &window[ends[0] as usize..ends[1] as usize];
                        failed = inner.encode_word_while(word, out, &mut look).err();
                        if failed.is_some() {
                            return ControlFlow::Break(());
                        }
                    }
                    look(bounds.last().map_or(0, |&bytes| bytes as usize))
                }
                Batch::Long(word) => {
                    failed = Some(EncodeError::WordTooLong { bytes: word.len() });
                    ControlFlow::Break(())
                }
            })
        });
        match ended {
            ControlFlow::Continue(ControlFlow::Continue(())) => {}
            _ => return Err(watch.error(failed.unwrap_or(EncodeError::Interrupted))),
        }
        out[first..].iter_mut().for_each(|id| *id += self.first_id);
        Ok(())
    }

    fn with_specials(&mut self, text: &str, out: &mut Vec<u32>, watch: &mut Watch) -> PyResult<()> {
        let cutter = self.cutter.clone();
        for piece in cutter.pieces(text) {
            match piece {
                Piece::Text(text) => self.ordinary(text, out, watch)?,
                Piece::Special(index) => out.push(self.special_ids[index]),
            }
        }
        Ok(())
    }

    /// The ids of a word, from 0 on.
    fn word(&mut self, word: &[u8], out: &mut Vec<u32>, watch: &mut Watch) -> PyResult<()> {
        let encoded = self.inner.encode_word_while(word, out, &mut |steps| watch.spend(steps));
        encoded.map_err(|error| watch.error(error))
    }
}

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (left, right, pattern, special_tokens, special_ids, first_id, normalization=None))]
    fn new(
        left: PyArrowType<ArrayData>,
        right: PyArrowType<ArrayData>,
        pattern: Option<&str>,
        special_tokens: Vec<String>,
        special_ids: Vec<u32>,
        first_id: u32,
        normalization: Option<&str>,
    ) -> PyResult<Self> {
        if special_tokens.len() != special_ids.len() {
            return Err(PyValueError::new_err(format!(
                "{} special tokens and {} ids of them were given: each token has one id.",
                special_tokens.len(),
                special_ids.len()
            )));
        }
        let encoder = encode::Encoder::new(&merge_pairs(left, right)?)?;
        if u32::try_from(encoder.tokens()).ok().and_then(|tokens| tokens.checked_add(first_id)).is_none() {
            return Err(PyValueError::new_err(format!(
                "{} ids from {first_id} on do not fit 32 bits: begin lower.",
                encoder.tokens()
            )));
        }
        Ok(Self {
            inner: encode::CachedEncoder::new(Arc::new(encoder)),
            scanner: pattern.map(parse_pattern).transpose()?.map(Scanner::new),
            normalizer: normalization.map(parse_form).transpose()?.map(Normalizer::new),
            cutter: SpecialCutter::new(&special_tokens)?,
            special_ids,
            first_id,
        })
    }

    fn encode_ordinary(&mut self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        py.detach(|| {
            let mut ids = Vec::new();
            self.ordinary(text, &mut ids, &mut Watch::default())?;
            Ok(ids)
        })
    }

    fn encode(&mut self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        py.detach(|| {
            let mut ids = Vec::new();
            self.with_specials(text, &mut ids, &mut Watch::default())?;
            Ok(ids)
        })
    }

    #[pyo3(signature = (texts, specials=true))]
    fn encode_batch<'py>(
        &mut self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        specials: bool,
    ) -> PyResult<Ragged<'py>> {
        let texts = Bytes::from_python(texts)?;
        let watch = &mut Watch::default();
        let (ids, offsets) = py.detach(|| {
            each_to_ids(&texts, |index, bytes, ids| {
                let text = text(index, bytes)?;
                if specials { self.with_specials(text, ids, watch) } else { self.ordinary(text, ids, watch) }
            })
        })?;
        ragged(py, ids, offsets)
    }

    fn encode_word(&mut self, py: Python<'_>, word: &[u8]) -> PyResult<Vec<u32>> {
        released(py, word.len(), || {
            let mut ids = Vec::new();
            self.word(word, &mut ids, &mut Watch::default())?;
            ids.iter_mut().for_each(|id| *id += self.first_id);
            Ok(ids)
        })
    }

    fn encode_words<'py>(&mut self, py: Python<'py>, words: &Bound<'py, PyAny>) -> PyResult<Ragged<'py>> {
        let words = Bytes::from_python(words)?;
        let watch = &mut Watch::default();
        let (ids, offsets) = py.detach(|| {
            let (mut ids, offsets) = each_to_ids(&words, |_, word, ids| match watch.spend(word.len() + 1) {
                ControlFlow::Continue(()) => self.word(word, ids, watch),
                ControlFlow::Break(()) => Err(watch.error(EncodeError::Interrupted)),
            })?;
            ids.iter_mut().for_each(|id| *id += self.first_id);
            PyResult::Ok((ids, offsets))
        })?;
        ragged(py, ids, offsets)
    }
}

/// The ids of all values, and where those of each end. A null has none.
fn each_to_ids(
    values: &Bytes,
    mut each: impl FnMut(usize, &[u8], &mut Vec<u32>) -> PyResult<()>,
) -> PyResult<(Vec<u32>, Vec<i64>)> {
    let (mut ids, mut offsets) = (Vec::new(), vec![0]);
    values.try_each(|index, value| {
        offsets.resize(index + 1, ids.len() as i64);
        each(index, value, &mut ids)?;
        offsets.push(ids.len() as i64);
        PyResult::Ok(())
    })?;
    offsets.resize(values.len() + 1, ids.len() as i64);
    Ok((ids, offsets))
}

#[pyfunction]
#[pyo3(signature = (pattern, text, level=None))]
pub fn words<'py>(
    py: Python<'py>,
    pattern: &str,
    text: &str,
    level: Option<&str>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let mut scanner = Scanner::with_level(parse_pattern(pattern)?, parse_level(level)?);
    let words = released(py, text.len(), || {
        let mut words = Vec::new();
        let _ = scanner.scan_while(text, |batch| {
            match batch {
                Batch::Words(window, bounds) => {
                    let each = bounds.windows(2).map(|ends| &window[ends[0] as usize..ends[1] as usize]);
                    words.extend(each.map(<[u8]>::to_vec));
                }
                Batch::Long(word) => words.push(word.to_vec()),
            }
            ControlFlow::Continue(())
        });
        words
    });
    Ok(words.iter().map(|word| PyBytes::new(py, word)).collect())
}

#[pyfunction]
pub fn cut(py: Python<'_>, text: &str, special_tokens: Vec<String>) -> PyResult<Vec<String>> {
    let cutter = SpecialCutter::new(&special_tokens)?;
    Ok(released(py, text.len(), || {
        let pieces = cutter.pieces(text).filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.to_owned()),
            Piece::Special(_) => None,
        });
        pieces.collect()
    }))
}

#[pyfunction]
pub fn normalize(py: Python<'_>, text: &str, form: &str) -> PyResult<String> {
    let mut normalizer = Normalizer::new(parse_form(form)?);
    let watch = &mut Watch::default();
    released(py, text.len(), || match normalizer.normalize_while(text, &mut |bytes| watch.spend(bytes)) {
        ControlFlow::Continue(normal) => Ok(normal.to_owned()),
        ControlFlow::Break(()) => Err(watch.error(PyKeyboardInterrupt::new_err(()))),
    })
}

#[pyfunction]
pub fn first_invalid_utf8(py: Python<'_>, texts: &Bound<'_, PyAny>) -> PyResult<Option<(usize, usize)>> {
    let texts = Bytes::from_python(texts)?;
    let found = released(py, texts.bytes(), || {
        texts.try_each(|index, bytes| match simdutf8::compat::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(error) => Err((index, error.valid_up_to())),
        })
    });
    Ok(found.err())
}

#[pyfunction]
pub fn byte_ids() -> Vec<u32> {
    BYTE_IDS.to_vec()
}

#[pyfunction]
pub fn levels() -> Vec<&'static str> {
    Level::available().iter().map(|level| level.name()).collect()
}
