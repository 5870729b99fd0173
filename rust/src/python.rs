//! The Python binding, `dist_bpe._core`: its errors, and the module itself. The classes stand in the files below.
//!
//! Arrow arrays come in and go out over the C data interface; the interpreter lock is released while the core works.
//! `dist_bpe/_core.pyi` is the manual of what stands here.

mod arrow;
mod counting;
mod learning;
mod encoding;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::{create_exception, import_exception};

use crate::bytes::BYTES;
use crate::count::CountError;
use crate::encode::EncodeError;
use crate::learn::LearnError;
use crate::merge::MergeError;
use crate::normalize::{Form, UNICODE_VERSION};
use crate::scan::classes::REGEX_VERSION;
use crate::scan::{Level, Pattern};
use crate::special::SpecialError;
use counting::{Counter, Merger, Spill};
use encoding::Encoder;
use learning::{Table, Words};

import_exception!(dist_bpe.errors, CountOverflowError);
import_exception!(dist_bpe.errors, DamagedRunError);
import_exception!(dist_bpe.errors, FormatError);
import_exception!(dist_bpe.errors, UsageError);
create_exception!(_core, InvalidUtf8Error, PyValueError, "A text is not UTF-8: (index in the array, byte offset).");

impl From<CountError> for PyErr {
    fn from(error: CountError) -> Self {
        match error {
            CountError::Special(error) => error.into(),
            CountError::Interrupted => PyKeyboardInterrupt::new_err(()),
            CountError::NoPattern => PyValueError::new_err(error.to_string()),
            other => CountOverflowError::new_err(other.to_string()),
        }
    }
}

impl From<MergeError<PyErr>> for PyErr {
    fn from(error: MergeError<PyErr>) -> Self {
        match error {
            MergeError::Spill(error) => error,
            damage if damage.is_damage() => DamagedRunError::new_err(damage.to_string()),
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
        match error {
            EncodeError::Interrupted => PyKeyboardInterrupt::new_err(()),
            EncodeError::CountOverflow { .. } => CountOverflowError::new_err(error.to_string()),
            EncodeError::UnknownSource { .. } => FormatError::new_err(error.to_string()),
            other => PyValueError::new_err(other.to_string()),
        }
    }
}

impl From<LearnError> for PyErr {
    fn from(error: LearnError) -> Self {
        match error {
            LearnError::Interrupted { .. } => PyKeyboardInterrupt::new_err(()),
            damage if damage.is_damage() => FormatError::new_err(damage.to_string()),
            other => CountOverflowError::new_err(other.to_string()),
        }
    }
}

/// Looks for Ctrl-C while the core works without the interpreter lock: a few times a second, since a look may have to
/// wait for the lock.
#[derive(Default)]
struct Watch {
    work: usize,
    looked: Option<Instant>,
    raised: Option<PyErr>,
}

impl Watch {
    /// Bytes of work, some hundredths of a second, after which it is asked what time it is.
    const WORK: usize = 1 << 20;
    const LOOK_EVERY: Duration = Duration::from_millis(200);

    /// Breaks once a signal's handler has raised something.
    fn spend(&mut self, bytes: usize) -> ControlFlow<()> {
        self.work += bytes;
        if self.work < Self::WORK {
            return ControlFlow::Continue(());
        }
        self.work = 0;
        self.look()
    }

    #[cold]
    fn look(&mut self) -> ControlFlow<()> {
        if self.looked.get_or_insert_with(Instant::now).elapsed() < Self::LOOK_EVERY {
            return ControlFlow::Continue(());
        }
        self.looked = Some(Instant::now());
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The error of what was stopped, or failed by itself.
    fn error(&mut self, error: impl Into<PyErr>) -> PyErr {
        self.raised.take().unwrap_or_else(|| error.into())
    }
}

/// Does work on so many bytes without the interpreter lock, unless it takes less time than to hand over the lock.
fn released<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < 4 << 10 { work() } else { py.detach(work) }
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
    module.add_class::<learning::Tokenized>()?;
    module.add_class::<Encoder>()?;
    module.add_function(wrap_pyfunction!(learning::learn_merges, module)?)?;
    module.add_function(wrap_pyfunction!(learning::learn_tokenized, module)?)?;
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
