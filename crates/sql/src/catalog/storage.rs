//! Where definitions are kept.
