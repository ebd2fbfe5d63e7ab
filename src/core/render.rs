//! The log as a model request.
