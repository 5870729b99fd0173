//! Texts and words into ids, and what is done to a text before.

use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow::{Bytes, Ragged, merge_pairs, ragged, text};
use super::{parse_form, parse_level, parse_pattern};
use crate::bytes::BYTE_IDS;
use crate::encode;
use crate::normalize::Normalizer;
use crate::scan::{Level, Scanner};
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
    fn ordinary(&mut self, text: &str, out: &mut Vec<u32>) -> PyResult<()> {
        let Some(scanner) = &mut self.scanner else {
            return Err(PyValueError::new_err(
                "this encoder has no named pattern: cut words yourself, use encode_words",
            ));
        };
        let first = out.len();
        let inner = &mut self.inner;
        let text = self.normalizer.as_mut().map_or(text, |normalizer| normalizer.normalize(text));
        scanner.scan(text, |window, bounds| {
            for ends in bounds.windows(2) {
                inner.encode_word(&window[ends[0] as usize..ends[1] as usize], out);
            }
        });
        out[first..].iter_mut().for_each(|id| *id += self.first_id);
        Ok(())
    }

    fn with_specials(&mut self, text: &str, out: &mut Vec<u32>) -> PyResult<()> {
        let cutter = self.cutter.clone();
        for piece in cutter.pieces(text) {
            match piece {
                Piece::Text(text) => self.ordinary(text, out)?,
                Piece::Special(index) => out.push(self.special_ids[index]),
            }
        }
        Ok(())
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
            return Err(PyValueError::new_err("as many special ids as special tokens are needed"));
        }
        let encoder = encode::Encoder::new(&merge_pairs(left, right))?;
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
            self.ordinary(text, &mut ids)?;
            Ok(ids)
        })
    }

    fn encode(&mut self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        py.detach(|| {
            let mut ids = Vec::new();
            self.with_specials(text, &mut ids)?;
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
        let (ids, offsets) = py.detach(|| {
            let (mut ids, mut offsets) = (Vec::new(), vec![0; texts.len() + 1]);
            texts.try_each(|index, bytes| {
                let text = text(index, bytes)?;
                if specials {
                    self.with_specials(text, &mut ids)?
                } else {
                    self.ordinary(text, &mut ids)?
                }
                offsets[index + 1] = ids.len() as i64;
                PyResult::Ok(())
            })?;
            PyResult::Ok((ids, offsets))
        })?;
        ragged(py, ids, offsets)
    }

    fn encode_word(&mut self, word: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        self.inner.encode_word(word, &mut ids);
        ids.iter_mut().for_each(|id| *id += self.first_id);
        ids
    }

    fn encode_words<'py>(&mut self, py: Python<'py>, words: &Bound<'py, PyAny>) -> PyResult<Ragged<'py>> {
        let words = Bytes::from_python(words)?;
        let (ids, offsets) = py.detach(|| {
            let (mut ids, mut offsets) = (Vec::new(), vec![0; words.len() + 1]);
            let ended: PyResult<()> = words.try_each(|index, word| {
                self.inner.encode_word(word, &mut ids);
                offsets[index + 1] = ids.len() as i64;
                Ok(())
            });
            ids.iter_mut().for_each(|id| *id += self.first_id);
            ended.map(|()| (ids, offsets))
        })?;
        ragged(py, ids, offsets)
    }
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
    let mut words = Vec::new();
    scanner.scan(text, |window, bounds| {
        words.extend(bounds.windows(2).map(|ends| PyBytes::new(py, &window[ends[0] as usize..ends[1] as usize])));
    });
    Ok(words)
}

#[pyfunction]
pub fn cut(text: &str, special_tokens: Vec<String>) -> PyResult<Vec<String>> {
    let cutter = SpecialCutter::new(&special_tokens)?;
    let pieces = cutter.pieces(text).filter_map(|piece| match piece {
        Piece::Text(text) => Some(text.to_owned()),
        Piece::Special(_) => None,
    });
    Ok(pieces.collect())
}

#[pyfunction]
pub fn normalize(text: &str, form: &str) -> PyResult<String> {
    Ok(Normalizer::new(parse_form(form)?).normalize(text).to_owned())
}

#[pyfunction]
pub fn first_invalid_utf8(texts: &Bound<'_, PyAny>) -> PyResult<Option<(usize, usize)>> {
    let found = Bytes::from_python(texts)?.try_each(|index, bytes| match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err((index, error.valid_up_to())),
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
