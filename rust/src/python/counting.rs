//! Words and their counts: into tables, out as spills, and merged.

use std::ops::ControlFlow;

use arrow_array::RecordBatch;
use arrow_array::types::UInt64Type;
use arrow_data::ArrayData;
use arrow_pyarrow::{FromPyArrow, PyArrowType, ToPyArrow};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator};

use super::arrow::{Bytes, batch_to_rows, numbers, rows_to_batch, text};
use super::{UsageError, Watch, parse_form, parse_level, parse_pattern};
use crate::count::{self, CountError};
use crate::merge::{self, SpillReader};
use crate::rows::Rows;

#[pyclass]
pub struct Counter {
    inner: count::Counter,
    native: bool,
}

#[pymethods]
impl Counter {
    #[new]
    #[pyo3(signature = (sources, pattern, special_tokens, level=None, normalization=None, max_word_bytes=None))]
    fn new(
        sources: usize,
        pattern: Option<&str>,
        special_tokens: Vec<String>,
        level: Option<&str>,
        normalization: Option<&str>,
        max_word_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let named = pattern.map(parse_pattern).transpose()?;
        let mut inner = count::Counter::with_level(sources, named, &special_tokens, parse_level(level)?)?;
        if let Some(name) = normalization {
            inner = inner.normalizing(parse_form(name)?);
        }
        match max_word_bytes {
            None => {}
            Some(bytes @ ..4) => {
                return Err(UsageError::new_err(format!(
                    "max_word_bytes is {bytes}; a character takes up to 4 bytes."
                )));
            }
            Some(bytes) => inner = inner.cutting(bytes),
        }
        Ok(Self { inner, native: named.is_some() })
    }

    fn count(&mut self, py: Python<'_>, source: usize, texts: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check(source)?;
        let texts = Bytes::from_python(texts)?;
        let watch = &mut Watch::default();
        py.detach(|| {
            let mut documents = self.inner.documents(source);
            texts.try_each(|index, bytes| {
                let text = text(index, bytes)?;
                let counted = if self.native {
                    documents.count_while(text, &mut |bytes| watch.spend(bytes))
                } else {
                    documents.note(text);
                    match watch.spend(bytes.len()) {
                        ControlFlow::Continue(()) => Ok(()),
                        ControlFlow::Break(()) => Err(CountError::Interrupted),
                    }
                };
                counted.map_err(|error| watch.error(error))
            })
        })
    }

    fn add_words(
        &mut self,
        py: Python<'_>,
        source: usize,
        words: &Bound<'_, PyAny>,
        counts: PyArrowType<ArrayData>,
    ) -> PyResult<()> {
        self.check(source)?;
        let words = Bytes::from_python(words)?;
        let counts = numbers::<UInt64Type>(counts, "counts")?;
        if words.len() != counts.len() {
            return Err(PyValueError::new_err(format!(
                "{} words and {} counts were given: each word has one count.",
                words.len(),
                counts.len()
            )));
        }
        let watch = &mut Watch::default();
        py.detach(|| {
            words.try_each(|index, word| {
                let added = match watch.spend(word.len() + 1) {
                    ControlFlow::Continue(()) => self.inner.add_word(source, word, counts.value(index)),
                    ControlFlow::Break(()) => Err(CountError::Interrupted),
                };
                added.map_err(|error| watch.error(error))
            })
        })
    }

    fn totals<'py>(&self, py: Python<'py>, source: usize) -> PyResult<Bound<'py, PyDict>> {
        self.check(source)?;
        let totals = self.inner.totals(source);
        let dict = PyDict::new(py);
        dict.set_item("documents", totals.documents)?;
        dict.set_item("bytes", totals.bytes)?;
        dict.set_item("words", totals.words)?;
        dict.set_item("special_tokens", totals.special_tokens)?;
        dict.set_item("cut_words", totals.cut_words)?;
        dict.set_item("longest_word_bytes", totals.longest_word)?;
        dict.set_item("digest", format!("{:032x}", totals.digest))?;
        Ok(dict)
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }

    #[getter]
    fn unique_words(&self) -> usize {
        self.inner.unique_words()
    }

    fn drain(&mut self, py: Python<'_>, partitions: u32) -> PyResult<Spill> {
        if partitions == 0 {
            return Err(PyValueError::new_err("0 partitions were asked for: words need at least one."));
        }
        Ok(Spill { inner: py.detach(|| self.inner.drain(partitions)) })
    }
}

impl Counter {
    fn check(&self, source: usize) -> PyResult<()> {
        let sources = self.inner.sources();
        if source < sources {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("there is no source {source}: this counter has {sources}, numbered from 0.")))
    }
}

#[pyclass]
pub struct Spill {
    inner: count::Spill,
}

#[pymethods]
impl Spill {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(u32, Bound<'py, PyAny>)>> {
        py.check_signals()?;
        match py.detach(|| self.inner.next_rows()) {
            Some((partition, rows)) => Ok(Some((partition, rows_to_batch(rows).to_pyarrow(py)?))),
            None => Ok(None),
        }
    }
}

/// Record batches of a Python iterator, as a spill. The lock is taken once a batch.
struct PythonSpill(Py<PyIterator>);

impl SpillReader for PythonSpill {
    type Error = PyErr;

    fn next_rows(&mut self) -> Result<Option<Rows>, PyErr> {
        Python::attach(|py| {
            py.check_signals()?;
            let mut iterator = self.0.bind(py).clone();
            iterator.next().map(|batch| batch_to_rows(&RecordBatch::from_pyarrow_bound(&batch?)?)).transpose()
        })
    }
}

#[pyclass]
pub struct Merger {
    inner: merge::Merger<PythonSpill>,
}

#[pymethods]
impl Merger {
    #[new]
    fn new(spills: Vec<Bound<'_, PyAny>>, sources: usize, min_word_count: u64) -> PyResult<Self> {
        let spills = spills.iter().map(|spill| Ok(PythonSpill(spill.try_iter()?.unbind()))).collect::<PyResult<_>>()?;
        Ok(Self { inner: merge::Merger::new(spills, sources, min_word_count) })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let rows = py.detach(|| self.inner.next_rows())?;
        rows.map(|rows| rows_to_batch(rows).to_pyarrow(py)).transpose()
    }

    fn tallies<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let tallies = self.inner.tallies().iter().map(|tally| {
            let dict = PyDict::new(py);
            dict.set_item("unique_words", tally.unique_words)?;
            dict.set_item("words", tally.words)?;
            dict.set_item("dropped_unique_words", tally.dropped_unique)?;
            dict.set_item("dropped_words", tally.dropped_words)?;
            dict.set_item("mark_words", tally.mark_words)?;
            Ok(dict)
        });
        tallies.collect()
    }
}

#[pyfunction]
pub fn partition_of(word: &[u8], partitions: u32) -> u32 {
    count::partition_of(word, partitions)
}
