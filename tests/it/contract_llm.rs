//! Contract tests against independent services.
