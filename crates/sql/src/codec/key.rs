//! Order-preserving keys.
