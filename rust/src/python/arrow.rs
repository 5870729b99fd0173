//! Arrow arrays in and out, over the C data interface.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, ByteArrayType, GenericBinaryType, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, GenericByteArray, Int64Array, LargeBinaryArray, LargeStringArray, OffsetSizeTrait,
    PrimitiveArray, RecordBatch, StringArray, UInt32Array, UInt64Array, make_array,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_pyarrow::{FromPyArrow, FromPyArrowUnchecked, PyArrowType, ToPyArrow};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::InvalidUtf8Error;
use crate::rows::Rows;

/// A column of texts or words, whatever its offsets: string and binary are both read as bytes and checked here.
pub enum Bytes {
    Small(BinaryArray),
    Large(LargeBinaryArray),
}

impl Bytes {
    pub fn from_python(array: &Bound<'_, PyAny>) -> PyResult<Self> {
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

    /// Bytes of all values together.
    pub fn bytes(&self) -> usize {
        fn span<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
            offsets[offsets.len() - 1].as_usize() - offsets[0].as_usize()
        }
        match self {
            Self::Small(array) => span(array.value_offsets()),
            Self::Large(array) => span(array.value_offsets()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Small(array) => array.len(),
            Self::Large(array) => array.len(),
        }
    }

    /// Call `each(index, value)` for every value that is not null, until it fails.
    pub fn try_each<E>(&self, each: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<(), E> {
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

pub fn text(index: usize, bytes: &[u8]) -> PyResult<&str> {
    simdutf8::compat::from_utf8(bytes)
        .map_err(|error| Python::attach(|_| InvalidUtf8Error::new_err((index, error.valid_up_to()))))
}

fn binary(offsets: Vec<i32>, bytes: Vec<u8>) -> ArrayRef {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Arc::new(BinaryArray::new(offsets, Buffer::from_vec(bytes), None))
}

pub fn u64_array(values: Vec<u64>) -> ArrayRef {
    Arc::new(UInt64Array::from(values))
}

pub fn u32_array(values: Vec<u32>) -> ArrayRef {
    Arc::new(UInt32Array::from(values))
}

pub fn rows_to_batch(rows: Rows) -> RecordBatch {
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

pub fn batch_to_rows(batch: &RecordBatch) -> PyResult<Rows> {
    let words: &BinaryArray = column(batch, "word")?;
    let first = words.value_offsets()[0];
    Ok(Rows {
        offsets: words.value_offsets().iter().map(|offset| offset - first).collect(),
        bytes: words.value_data()[first as usize..words.value_offsets()[words.len()] as usize].to_vec(),
        sources: column::<UInt32Array>(batch, "source")?.values().to_vec(),
        counts: column::<UInt64Array>(batch, "count")?.values().to_vec(),
    })
}

/// Call `each` with the rows of every batch of a Python iterable; the lock is released inside `each`.
pub fn each_batch(
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

/// The record batch of a merge list; `sources` has the one that chose each merge, where one did.
pub fn merges_to_pyarrow<'py>(
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
    columns.extend(sources.map(|sources| ("source", Arc::new(sources) as ArrayRef, true)));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length").to_pyarrow(py)
}

/// The two sides of merges, as pairs.
pub fn merge_pairs(left: PyArrowType<ArrayData>, right: PyArrowType<ArrayData>) -> PyResult<Vec<(u32, u32)>> {
    let (left, right) = (numbers::<UInt32Type>(left, "left ids")?, numbers::<UInt32Type>(right, "right ids")?);
    if left.len() != right.len() {
        return Err(PyValueError::new_err(format!(
            "{} left ids and {} right ids were given: a merge has one of each.",
            left.len(),
            right.len()
        )));
    }
    Ok(left.values().iter().copied().zip(right.values().iter().copied()).collect())
}

/// An array of numbers without nulls; `what` names them in messages.
pub fn numbers<T: ArrowPrimitiveType>(array: PyArrowType<ArrayData>, what: &str) -> PyResult<PrimitiveArray<T>> {
    let given = array.0.data_type();
    if *given != T::DATA_TYPE {
        return Err(PyValueError::new_err(format!("the {what} are {given}, and should be {}.", T::DATA_TYPE)));
    }
    let array = PrimitiveArray::from(array.0);
    match array.null_count() {
        0 => Ok(array),
        nulls => Err(PyValueError::new_err(format!("{nulls} of the {what} are null: give a number for each."))),
    }
}

pub type Arrays<'py> = Vec<Bound<'py, PyAny>>;

pub type Ragged<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

pub fn ragged<'py>(py: Python<'py>, ids: Vec<u32>, offsets: Vec<i64>) -> PyResult<Ragged<'py>> {
    Ok((u32_array(ids).to_data().to_pyarrow(py)?, Int64Array::from(offsets).to_data().to_pyarrow(py)?))
}
