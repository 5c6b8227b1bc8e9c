//! The log over a disk that fails, with a model.
