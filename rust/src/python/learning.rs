//! Words and tables to learn from, merges out of them, and merges played through once more.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::Array;
use arrow_data::ArrayData;
use arrow_pyarrow::{PyArrowType, ToPyArrow};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::arrow::{Arrays, each_batch, merge_pairs, merges_to_pyarrow, u64_array};
use super::{UsageError, Watch};
use crate::encode::{self, EncodeError};
use crate::learn::{self, LearnError, parity};
use crate::naive;

#[pyclass(frozen)]
pub struct Words {
    inner: learn::Words,
}

#[pymethods]
impl Words {
    #[new]
    fn new(py: Python<'_>, batches: &Bound<'_, PyAny>, weights: Vec<u64>, min_word_count: u64) -> PyResult<Self> {
        let mut builder = learn::Words::builder(weights, min_word_count, false);
        each_batch(py, batches, |rows| Ok(builder.push_rows(rows)?))?;
        Ok(Self { inner: py.detach(|| builder.finish())? })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    #[getter]
    fn learn_bytes(&self) -> usize {
        learn::memory_estimate(&self.inner)
    }
}

#[pyclass(frozen)]
pub struct Table {
    inner: learn::Table,
}

#[pymethods]
impl Table {
    #[new]
    fn new(py: Python<'_>, batches: &Bound<'_, PyAny>, sources: usize) -> PyResult<Self> {
        let mut inner = learn::Table::new(sources);
        each_batch(py, batches, |rows| Ok(inner.push_rows(rows)?))?;
        py.detach(|| inner.shrink());
        Ok(Self { inner })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }

    #[pyo3(signature = (weights, min_word_count=1, jitter=false))]
    fn words(&self, py: Python<'_>, weights: Vec<u64>, min_word_count: u64, jitter: bool) -> PyResult<Words> {
        let sources = self.inner.sources();
        if weights.len() != sources {
            return Err(PyValueError::new_err(format!(
                "{} weights were given for {sources} sources: each source has one weight.",
                weights.len()
            )));
        }
        Ok(Words { inner: py.detach(|| self.inner.words(weights, min_word_count, jitter))? })
    }

    fn replay<'py>(
        &self,
        py: Python<'py>,
        left: PyArrowType<ArrayData>,
        right: PyArrowType<ArrayData>,
    ) -> PyResult<(Arrays<'py>, Arrays<'py>)> {
        let mut replay = new_replay(left, right, self.inner.sources())?;
        let watch = &mut Watch::default();
        py.detach(|| self.inner.rows().try_for_each(|row| push(&mut replay, row, watch)))?;
        replayed(py, &replay, self.inner.sources())
    }
}

/// How often a running learner looks for signals and reports; a check costs about a microsecond.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs a learner without the lock, and hands on what its progress callback or a signal raised.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    learn: impl FnOnce(&mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<T, LearnError> + Send,
) -> PyResult<T> {
    let mut raised: Option<PyErr> = None;
    let mut looked = Instant::now();
    let mut look = |done: usize| {
        if looked.elapsed() < LOOK_EVERY {
            return ControlFlow::Continue(());
        }
        looked = Instant::now();
        let outcome = Python::attach(|py| {
            py.check_signals()?;
            progress.map_or(Ok(()), |call| call.call1(py, (done,)).map(drop))
        });
        match outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let learned = py.detach(|| learn(&mut look));
    match raised {
        Some(error) => Err(error),
        None => Ok(learned?),
    }
}

#[pyfunction]
#[pyo3(signature = (words, merges, min_pair_count=2, max_token_bytes=None, progress=None, plain=false))]
pub fn learn_merges<'py>(
    py: Python<'py>,
    words: &Words,
    merges: usize,
    min_pair_count: u64,
    max_token_bytes: Option<usize>,
    progress: Option<Py<PyAny>>,
    plain: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let options = learn::Options { merges, min_pair_count, max_token_bytes };
    let learn = if plain { naive::learn } else { learn::learn };
    let learned = watched(py, progress.as_ref(), |look| learn(&words.inner, &options, look))?;
    merges_to_pyarrow(py, learned.iter().map(|merge| (merge.left, merge.right, merge.count)), None)
}

/// The words that merges were learned from, as the tokens that they make of them.
#[pyclass(frozen)]
pub struct Tokenized {
    inner: learn::Tokenized,
    words: Py<Words>,
    merges: Arc<[(u32, u32)]>,
}

#[pymethods]
impl Tokenized {
    fn replay<'py>(
        &self,
        py: Python<'py>,
        batches: &Bound<'py, PyAny>,
        sources: usize,
    ) -> PyResult<(Arrays<'py>, Arrays<'py>)> {
        let mut replay = encode::Replay::of_learned(Arc::clone(&self.merges), sources);
        let words = &self.words.get().inner;
        let watch = &mut Watch::default();
        // The words are the table's, in its order, without those that took no part.
        let mut next = 0;
        each_batch(py, batches, |rows| {
            for i in 0..rows.len() {
                let row = (rows.word(i), rows.sources[i], rows.counts[i]);
                let known = |index: usize| index < words.len() && words.word(index) == row.0;
                if known(next) {
                    next += 1;
                }
                if next == 0 || !known(next - 1) {
                    push(&mut replay, row, watch)?;
                } else if watch.spend(row.0.len()).is_break() {
                    return Err(watch.error(EncodeError::Interrupted));
                } else {
                    replay.push_tokenized(row.1 as usize, (&self.inner, words, next - 1), row.2)?;
                }
            }
            Ok(())
        })?;
        replayed(py, &replay, sources)
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }
}

#[pyfunction]
#[pyo3(signature = (words, merges, min_pair_count=2, max_token_bytes=None, progress=None))]
pub fn learn_tokenized<'py>(
    words: &Bound<'py, Words>,
    merges: usize,
    min_pair_count: u64,
    max_token_bytes: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, Tokenized)> {
    let py = words.py();
    let options = learn::Options { merges, min_pair_count, max_token_bytes };
    let inner = &words.get().inner;
    let (learned, tokenized) = watched(py, progress.as_ref(), |look| learn::learn_tokenized(inner, &options, look))?;
    let batch = merges_to_pyarrow(py, learned.iter().map(|merge| (merge.left, merge.right, merge.count)), None)?;
    let merges = learned.iter().map(|merge| (merge.left, merge.right)).collect();
    Ok((batch, Tokenized { inner: tokenized, words: words.clone().unbind(), merges }))
}

#[pyfunction]
#[pyo3(signature = (
    table, merges, *, dev=None, ratios=None, window=0, alpha=None, summed_merges=0, min_pair_count=2, min_word_count=1,
    max_token_bytes=None, progress=None, plain=false
))]
#[allow(clippy::too_many_arguments)] // the Python signature names them all
pub fn learn_parity<'py>(
    py: Python<'py>,
    table: &Table,
    merges: usize,
    dev: Option<&Table>,
    ratios: Option<Vec<u64>>,
    window: usize,
    alpha: Option<(u64, u64)>,
    summed_merges: usize,
    min_pair_count: u64,
    min_word_count: u64,
    max_token_bytes: Option<usize>,
    progress: Option<Py<PyAny>>,
    plain: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let languages = table.inner.sources();
    let rule = match (dev, &ratios) {
        (Some(text), None) if text.inner.sources() == languages => parity::Rule::Development(&text.inner),
        (None, Some(ratios)) if ratios.len() == languages && !ratios.contains(&0) => parity::Rule::Ratios(ratios),
        _ => {
            return Err(UsageError::new_err(format!(
                "parity needs either `dev`, a table of the same {languages} sources, or `ratios`, {languages} positive \
                 numbers."
            )));
        }
    };
    let alpha = alpha.unwrap_or((2, 1));
    if alpha.1 == 0 {
        return Err(UsageError::new_err("alpha is a fraction (numerator, denominator), and the denominator is 0."));
    }
    let window = (window > 0).then_some(parity::Window { length: window, alpha });
    let options =
        parity::Options { merges, min_pair_count, min_word_count, max_token_bytes, summed_merges, rule, window };
    let learn = if plain { naive::learn_parity } else { parity::learn };
    let learned = watched(py, progress.as_ref(), |look| learn(&table.inner, &options, look))?;
    let sources = learned.iter().map(|merge| merge.language).collect();
    merges_to_pyarrow(py, learned.iter().map(|merge| (merge.left, merge.right, merge.count)), Some(sources))
}

#[pyfunction]
pub fn replay<'py>(
    py: Python<'py>,
    left: PyArrowType<ArrayData>,
    right: PyArrowType<ArrayData>,
    batches: &Bound<'py, PyAny>,
    sources: usize,
) -> PyResult<(Arrays<'py>, Arrays<'py>)> {
    let mut replay = new_replay(left, right, sources)?;
    let watch = &mut Watch::default();
    each_batch(py, batches, |rows| {
        (0..rows.len()).try_for_each(|i| push(&mut replay, (rows.word(i), rows.sources[i], rows.counts[i]), watch))
    })?;
    replayed(py, &replay, sources)
}

fn new_replay(left: PyArrowType<ArrayData>, right: PyArrowType<ArrayData>, sources: usize) -> PyResult<encode::Replay> {
    let encoder = encode::Encoder::new(&merge_pairs(left, right)?)?;
    Ok(encode::Replay::new(encoder, sources))
}

/// Adds a row of a table. Looking a word up takes as long as some bytes of it.
fn push(replay: &mut encode::Replay, (word, source, count): (&[u8], u32, u64), watch: &mut Watch) -> PyResult<()> {
    const ROW: usize = 16;
    let pushed = match watch.spend(word.len() + ROW) {
        ControlFlow::Continue(()) => {
            replay.push_word_while(source as usize, word, count, &mut |steps| watch.spend(steps))
        }
        ControlFlow::Break(()) => Err(EncodeError::Interrupted),
    };
    pushed.map_err(|error| watch.error(error))
}

fn replayed<'py>(py: Python<'py>, replay: &encode::Replay, sources: usize) -> PyResult<(Arrays<'py>, Arrays<'py>)> {
    let mut replaced = Vec::new();
    let mut tokens = Vec::new();
    for source in 0..sources {
        replaced.push(u64_array(replay.replaced(source)?).to_data().to_pyarrow(py)?);
        tokens.push(u64_array(replay.tokens(source).to_vec()).to_data().to_pyarrow(py)?);
    }
    Ok((replaced, tokens))
}
