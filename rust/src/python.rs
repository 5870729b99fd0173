//! The Python binding, `dist_bpe._core`: its errors, and the module itself. The classes stand in the files below.
//!
//! Arrow arrays come in and go out over the C data interface; the interpreter lock is released while the core works.
//! `dist_bpe/_core.pyi` is the manual of what stands here.

mod arrow;
mod counting;
mod learning;
mod encoding;

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::{create_exception, import_exception};

use crate::bytes::BYTES;
use crate::count::CountError;
use crate::encode::EncodeError;
use crate::learn::LearnError;
use crate::normalize::{Form, UNICODE_VERSION};
use crate::scan::classes::REGEX_VERSION;
use crate::scan::{Level, Pattern};
use crate::special::SpecialError;
use counting::{Counter, Merger, Spill};
use encoding::Encoder;
use learning::{Table, Words};

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

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("BYTES", BYTES)?;
    module.add("UNICODE_TABLES", REGEX_VERSION)?;
    let (major, minor, update) = UNICODE_VERSION;
    module.add("NORMALIZATION_TABLES", format!("{major}.{minor}.{update}"))?;
    module.add("NORMALIZATIONS", Form::ALL.map(Form::name).to_vec())?;
    module.add("PATTERNS", Pattern::ALL.iter().map(|pattern| pattern.name()).collect::<Vec<_>>())?;
    module.add("InvalidUtf8Error", module.py().get_type::<InvalidUtf8Error>())?;
    module.add_class::<Counter>()?;
    module.add_class::<Spill>()?;
    module.add_class::<Merger>()?;
    module.add_class::<Table>()?;
    module.add_class::<Words>()?;
    module.add_class::<Encoder>()?;
    module.add_function(wrap_pyfunction!(learning::learn_merges, module)?)?;
    module.add_function(wrap_pyfunction!(learning::learn_parity, module)?)?;
    module.add_function(wrap_pyfunction!(learning::replay, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::words, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::cut, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::normalize, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::first_invalid_utf8, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::byte_ids, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::levels, module)?)?;
    module.add_function(wrap_pyfunction!(counting::partition_of, module)?)?;
    Ok(())
}
