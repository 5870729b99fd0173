//! scan
