//! All of the Python binding: `dist_bpe._core`.
//!
//! Arrow arrays come in and go out over the C data interface; the interpreter lock is released while the core works.
//! `dist_bpe/_core.pyi` is the manual of what stands here.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use arrow_array::types::{ByteArrayType, GenericBinaryType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, GenericByteArray, Int64Array, LargeBinaryArray, LargeStringArray, OffsetSizeTrait,
    RecordBatch, StringArray, UInt32Array, UInt64Array, make_array,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_pyarrow::{FromPyArrow, FromPyArrowUnchecked, PyArrowType, ToPyArrow};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator};
use pyo3::{create_exception, import_exception};

use crate::classes::REGEX_VERSION;
use crate::count::{self, CountError, Rows};
use crate::encode::{self, EncodeError};
use crate::learn::{self, LearnError};
use crate::naive;
use crate::normalize::{Form, Normalizer, UNICODE_VERSION};
use crate::parity;
use crate::runs::{self, MergeError, RunReader};
use crate::scan::{Level, Pattern, Scanner};
use crate::special::{Piece, SpecialCutter, SpecialError};

import_exception!(dist_bpe.errors, CountOverflowError);
import_exception!(dist_bpe.errors, UsageError);
create_exception!(_core, InvalidUtf8Error, PyValueError, "A text is not UTF-8: (index in the array, byte offset).");

impl From<CountError> for PyErr {
    fn from(error: CountError) -> Self {
        match error {
            CountError::Special(error) => error.into(),
            other => CountOverflowError::new_err(other.to_string()),
        }
    }
}

impl From<SpecialError> for PyErr {
    fn from(error: SpecialError) -> Self {
        UsageError::new_err(error.to_string())
    }
}

impl From<EncodeError> for PyErr {
    fn from(error: EncodeError) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

impl From<LearnError> for PyErr {
    fn from(error: LearnError) -> Self {
        match error {
            LearnError::Interrupted { .. } => PyKeyboardInterrupt::new_err(()),
            other => CountOverflowError::new_err(other.to_string()),
        }
    }
}

/// A column of texts or words, whatever its offsets: string and binary are both read as bytes and checked here.
enum Bytes {
    Small(BinaryArray),
    Large(LargeBinaryArray),
}

impl Bytes {
    fn from_python(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        // Not the checked conversion: it would run the plain UTF-8 check of the standard library over all text, a sixth
        // of the time of counting, beside the fast one that follows here. Retyped as binary, the offsets are checked.
        // SAFETY: that the exported pointers lead to buffers of the sizes stated is the exporter's promise, which the
        // checked conversion relies on as well; all else is validated by `build` before it is used.
        let data = unsafe { ArrayData::from_pyarrow_bound_unchecked(array)? };
        let data_type = match data.data_type() {
            DataType::Utf8 => DataType::Binary,
            DataType::LargeUtf8 => DataType::LargeBinary,
            other => other.clone(),
        };
        let data = data.into_builder().data_type(data_type).build();
        Self::from_array(make_array(data.map_err(|error| PyValueError::new_err(error.to_string()))?))
    }

    fn from_array(array: ArrayRef) -> PyResult<Self> {
        let any = array.as_any();
        Ok(match array.data_type() {
            DataType::Utf8 => Self::Small(any.downcast_ref::<StringArray>().expect("type checked").clone().into()),
            DataType::LargeUtf8 => {
                Self::Large(any.downcast_ref::<LargeStringArray>().expect("type checked").clone().into())
            }
            DataType::Binary => Self::Small(any.downcast_ref::<BinaryArray>().expect("type checked").clone()),
            DataType::LargeBinary => Self::Large(any.downcast_ref::<LargeBinaryArray>().expect("type checked").clone()),
            other => return Err(PyTypeError::new_err(format!("expected an array of strings or bytes, not {other}"))),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Small(array) => array.len(),
            Self::Large(array) => array.len(),
        }
    }

    /// Call `each(index, value)` for every value that is not null, until it fails.
    fn try_each<E>(&self, each: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<(), E> {
        fn walk<O: OffsetSizeTrait, E>(
            array: &GenericByteArray<GenericBinaryType<O>>,
            mut each: impl FnMut(usize, &[u8]) -> Result<(), E>,
        ) -> Result<(), E>
        where
            GenericBinaryType<O>: ByteArrayType<Native = [u8]>,
        {
            (0..array.len()).filter(|&i| array.is_valid(i)).try_for_each(|i| each(i, array.value(i)))
        }
        match self {
            Self::Small(array) => walk(array, each),
            Self::Large(array) => walk(array, each),
        }
    }
}

/// Text counted between two looks for Ctrl-C: a tenth of a second.
const BYTES_BETWEEN_SIGNALS: usize = 16 << 20;

fn text(index: usize, bytes: &[u8]) -> PyResult<&str> {
    simdutf8::compat::from_utf8(bytes)
        .map_err(|error| Python::attach(|_| InvalidUtf8Error::new_err((index, error.valid_up_to()))))
}

fn binary(offsets: Vec<i32>, bytes: Vec<u8>) -> ArrayRef {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    std::sync::Arc::new(BinaryArray::new(offsets, Buffer::from_vec(bytes), None))
}

fn u64_array(values: Vec<u64>) -> ArrayRef {
    std::sync::Arc::new(UInt64Array::from(values))
}

fn u32_array(values: Vec<u32>) -> ArrayRef {
    std::sync::Arc::new(UInt32Array::from(values))
}

fn rows_to_batch(rows: Rows) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("word", DataType::Binary, true),
        Field::new("source", DataType::UInt32, true),
        Field::new("count", DataType::UInt64, true),
    ]);
    let columns = vec![binary(rows.offsets, rows.bytes), u32_array(rows.sources), u64_array(rows.counts)];
    RecordBatch::try_new(schema.into(), columns).expect("columns of one length and the stated types")
}

fn column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> PyResult<&'a A> {
    batch
        .column_by_name(name)
        .and_then(|column| column.as_any().downcast_ref::<A>())
        .filter(|column| column.null_count() == 0)
        .ok_or_else(|| PyTypeError::new_err(format!("a batch of counts lacks a fitting column {name:?} without nulls")))
}

fn batch_to_rows(batch: &RecordBatch) -> PyResult<Rows> {
    let words: &BinaryArray = column(batch, "word")?;
    let first = words.value_offsets()[0];
    Ok(Rows {
        offsets: words.value_offsets().iter().map(|offset| offset - first).collect(),
        bytes: words.value_data()[first as usize..words.value_offsets()[words.len()] as usize].to_vec(),
        sources: column::<UInt32Array>(batch, "source")?.values().to_vec(),
        counts: column::<UInt64Array>(batch, "count")?.values().to_vec(),
    })
}

/// Record batches of a Python iterator, as a sorted run. The lock is taken once a batch.
struct PythonRun(Py<PyIterator>);

impl RunReader for PythonRun {
    type Error = PyErr;

    fn next_rows(&mut self) -> Result<Option<Rows>, PyErr> {
        Python::attach(|py| {
            py.check_signals()?;
            let mut iterator = self.0.bind(py).clone();
            iterator.next().map(|batch| batch_to_rows(&RecordBatch::from_pyarrow_bound(&batch?)?)).transpose()
        })
    }
}

fn parse_pattern(name: &str) -> PyResult<Pattern> {
    Pattern::from_name(name).ok_or_else(|| {
        let known: Vec<_> = Pattern::ALL.iter().map(|pattern| pattern.name()).collect();
        UsageError::new_err(format!(
            "no native scanner for the pattern {name:?}; there is one for: {}.",
            known.join(", ")
        ))
    })
}

fn parse_form(name: &str) -> PyResult<Form> {
    Form::from_name(name).ok_or_else(|| {
        let known = Form::ALL.map(Form::name).join(", ");
        UsageError::new_err(format!("unknown normalization {name:?}; the forms are: {known}."))
    })
}

fn parse_level(name: Option<&str>) -> PyResult<Level> {
    let Some(name) = name else { return Ok(Level::best()) };
    Level::available().iter().copied().find(|level| level.name() == name).ok_or_else(|| {
        let known: Vec<_> = Level::available().iter().map(|level| level.name()).collect();
        UsageError::new_err(format!("no scanner level {name:?} on this processor; there are: {}.", known.join(", ")))
    })
}

#[pyclass]
struct Counter {
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
        let texts = Bytes::from_python(texts)?;
        py.detach(|| {
            let mut unchecked = 0;
            texts.try_each(|index, bytes| {
                unchecked += bytes.len();
                if unchecked > BYTES_BETWEEN_SIGNALS {
                    unchecked = 0;
                    Python::attach(|py| py.check_signals())?;
                }
                let text = text(index, bytes)?;
                if self.native {
                    self.inner.count_document(source, text)?;
                } else {
                    self.inner.note_document(source, text);
                }
                Ok(())
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
        let words = Bytes::from_python(words)?;
        let counts = UInt64Array::from(counts.0);
        if words.len() != counts.len() {
            return Err(PyValueError::new_err("as many counts as words are needed"));
        }
        py.detach(|| words.try_each(|index, word| Ok(self.inner.add_word(source, word, counts.value(index))?)))
    }

    fn totals<'py>(&self, py: Python<'py>, source: usize) -> PyResult<Bound<'py, PyDict>> {
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

    fn drain(&mut self, py: Python<'_>, partitions: u32) -> SortedRun {
        SortedRun { inner: py.detach(|| self.inner.drain(partitions)) }
    }
}

#[pyclass]
struct SortedRun {
    inner: count::SortedRun,
}

#[pymethods]
impl SortedRun {
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

#[pyclass]
struct Merger {
    inner: runs::Merger<PythonRun>,
}

#[pymethods]
impl Merger {
    #[new]
    fn new(runs: Vec<Bound<'_, PyAny>>, sources: usize, min_word_count: u64) -> PyResult<Self> {
        let runs = runs.iter().map(|run| Ok(PythonRun(run.try_iter()?.unbind()))).collect::<PyResult<_>>()?;
        Ok(Self { inner: runs::Merger::new(runs, sources, min_word_count) })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let rows = py.detach(|| self.inner.next_rows()).map_err(|error| match error {
            MergeError::Run(error) => error,
            other => CountOverflowError::new_err(other.to_string()),
        })?;
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

/// Call `each` with the rows of every batch of a Python iterable; the lock is released inside `each`.
fn each_batch(
    py: Python<'_>,
    batches: &Bound<'_, PyAny>,
    mut each: impl FnMut(&Rows) -> PyResult<()> + Send,
) -> PyResult<()> {
    for batch in batches.try_iter()? {
        py.check_signals()?;
        let rows = batch_to_rows(&RecordBatch::from_pyarrow_bound(&batch?)?)?;
        py.detach(|| each(&rows))?;
    }
    Ok(())
}

#[pyclass(frozen)]
struct Words {
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
struct Table {
    inner: learn::Table,
}

#[pymethods]
impl Table {
    #[new]
    fn new(py: Python<'_>, batches: &Bound<'_, PyAny>, sources: usize) -> PyResult<Self> {
        let mut inner = learn::Table::new(sources);
        each_batch(py, batches, |rows| Ok(inner.push_rows(rows)?))?;
        inner.shrink();
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
        Ok(Words { inner: py.detach(|| self.inner.words(weights, min_word_count, jitter))? })
    }

    fn replay<'py>(
        &self,
        py: Python<'py>,
        left: PyArrowType<ArrayData>,
        right: PyArrowType<ArrayData>,
    ) -> PyResult<(Arrays<'py>, Arrays<'py>)> {
        let mut replay = new_replay(left, right, self.inner.sources())?;
        let pushed = py.detach(|| {
            self.inner.rows().try_for_each(|(word, source, count)| replay.push_word(source as usize, word, count))
        });
        pushed.map_err(count_overflow)?;
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
fn learn_merges<'py>(
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

/// The record batch of a merge list; `sources` has the one that chose each merge, where one did.
fn merges_to_pyarrow<'py>(
    py: Python<'py>,
    merges: impl Iterator<Item = (u32, u32, u64)>,
    sources: Option<UInt32Array>,
) -> PyResult<Bound<'py, PyAny>> {
    let (mut left, mut right, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (l, r, count) in merges {
        left.push(l);
        right.push(r);
        counts.push(count);
    }
    let mut columns =
        vec![("left", u32_array(left), false), ("right", u32_array(right), false), ("count", u64_array(counts), false)];
    columns.extend(sources.map(|sources| ("source", std::sync::Arc::new(sources) as ArrayRef, true)));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length").to_pyarrow(py)
}

#[pyfunction]
#[pyo3(signature = (
    table, merges, *, dev=None, ratios=None, window=0, alpha=None, summed_merges=0, min_pair_count=2, min_word_count=1,
    max_token_bytes=None, progress=None, plain=false
))]
#[allow(clippy::too_many_arguments)] // the Python signature names them all
fn learn_parity<'py>(
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

fn merge_pairs(left: PyArrowType<ArrayData>, right: PyArrowType<ArrayData>) -> Vec<(u32, u32)> {
    let (left, right) = (UInt32Array::from(left.0), UInt32Array::from(right.0));
    left.values().iter().copied().zip(right.values().iter().copied()).collect()
}

type Arrays<'py> = Vec<Bound<'py, PyAny>>;

#[pyfunction]
fn replay<'py>(
    py: Python<'py>,
    left: PyArrowType<ArrayData>,
    right: PyArrowType<ArrayData>,
    batches: &Bound<'py, PyAny>,
    sources: usize,
) -> PyResult<(Arrays<'py>, Arrays<'py>)> {
    let mut replay = new_replay(left, right, sources)?;
    each_batch(py, batches, |rows| {
        let pushed =
            (0..rows.len()).try_for_each(|i| replay.push_word(rows.sources[i] as usize, rows.word(i), rows.counts[i]));
        pushed.map_err(count_overflow)
    })?;
    replayed(py, &replay, sources)
}

fn new_replay(left: PyArrowType<ArrayData>, right: PyArrowType<ArrayData>, sources: usize) -> PyResult<encode::Replay> {
    let encoder = encode::Encoder::new(&merge_pairs(left, right))?;
    Ok(encode::Replay::new(std::sync::Arc::new(encoder), sources))
}

fn count_overflow(error: EncodeError) -> PyErr {
    CountOverflowError::new_err(error.to_string())
}

fn replayed<'py>(py: Python<'py>, replay: &encode::Replay, sources: usize) -> PyResult<(Arrays<'py>, Arrays<'py>)> {
    let mut replaced = Vec::new();
    let mut tokens = Vec::new();
    for source in 0..sources {
        replaced.push(u64_array(replay.replaced(source).map_err(count_overflow)?).to_data().to_pyarrow(py)?);
        tokens.push(u64_array(replay.tokens(source).to_vec()).to_data().to_pyarrow(py)?);
    }
    Ok((replaced, tokens))
}

/// Ids shifted by `first_id`, special tokens, and the scanner of a named pattern, around the exact encoder.
#[pyclass]
struct Encoder {
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

type Ragged<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

fn ragged<'py>(py: Python<'py>, ids: Vec<u32>, offsets: Vec<i64>) -> PyResult<Ragged<'py>> {
    Ok((u32_array(ids).to_data().to_pyarrow(py)?, Int64Array::from(offsets).to_data().to_pyarrow(py)?))
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
            inner: encode::CachedEncoder::new(std::sync::Arc::new(encoder)),
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
fn words<'py>(py: Python<'py>, pattern: &str, text: &str, level: Option<&str>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let mut scanner = Scanner::with_level(parse_pattern(pattern)?, parse_level(level)?);
    let mut words = Vec::new();
    scanner.scan(text, |window, bounds| {
        words.extend(bounds.windows(2).map(|ends| PyBytes::new(py, &window[ends[0] as usize..ends[1] as usize])));
    });
    Ok(words)
}

#[pyfunction]
fn cut(text: &str, special_tokens: Vec<String>) -> PyResult<Vec<String>> {
    let cutter = SpecialCutter::new(&special_tokens)?;
    let pieces = cutter.pieces(text).filter_map(|piece| match piece {
        Piece::Text(text) => Some(text.to_owned()),
        Piece::Special(_) => None,
    });
    Ok(pieces.collect())
}

#[pyfunction]
fn normalize(text: &str, form: &str) -> PyResult<String> {
    Ok(Normalizer::new(parse_form(form)?).normalize(text).to_owned())
}

#[pyfunction]
fn first_invalid_utf8(texts: &Bound<'_, PyAny>) -> PyResult<Option<(usize, usize)>> {
    let found = Bytes::from_python(texts)?.try_each(|index, bytes| match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err((index, error.valid_up_to())),
    });
    Ok(found.err())
}

#[pyfunction]
fn byte_ids() -> Vec<u32> {
    encode::byte_ids().to_vec()
}

#[pyfunction]
fn levels() -> Vec<&'static str> {
    Level::available().iter().map(|level| level.name()).collect()
}

#[pyfunction]
fn partition_of(word: &[u8], partitions: u32) -> u32 {
    count::partition_of(word, partitions)
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("UNICODE_TABLES", REGEX_VERSION)?;
    let (major, minor, update) = UNICODE_VERSION;
    module.add("NORMALIZATION_TABLES", format!("{major}.{minor}.{update}"))?;
    module.add("NORMALIZATIONS", Form::ALL.map(Form::name).to_vec())?;
    module.add("PATTERNS", Pattern::ALL.iter().map(|pattern| pattern.name()).collect::<Vec<_>>())?;
    module.add("InvalidUtf8Error", module.py().get_type::<InvalidUtf8Error>())?;
    module.add_class::<Counter>()?;
    module.add_class::<SortedRun>()?;
    module.add_class::<Merger>()?;
    module.add_class::<Table>()?;
    module.add_class::<Words>()?;
    module.add_class::<Encoder>()?;
    module.add_function(wrap_pyfunction!(learn_merges, module)?)?;
    module.add_function(wrap_pyfunction!(learn_parity, module)?)?;
    module.add_function(wrap_pyfunction!(replay, module)?)?;
    module.add_function(wrap_pyfunction!(words, module)?)?;
    module.add_function(wrap_pyfunction!(cut, module)?)?;
    module.add_function(wrap_pyfunction!(normalize, module)?)?;
    module.add_function(wrap_pyfunction!(first_invalid_utf8, module)?)?;
    module.add_function(wrap_pyfunction!(byte_ids, module)?)?;
    module.add_function(wrap_pyfunction!(levels, module)?)?;
    module.add_function(wrap_pyfunction!(partition_of, module)?)?;
    Ok(())
}
