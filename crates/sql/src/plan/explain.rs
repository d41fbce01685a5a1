//! Plans written down for people.
