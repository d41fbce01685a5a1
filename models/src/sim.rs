//! What the sources ask of the simulation.

/// Waiters park at once: spinning is no step of its own.
pub fn active() -> bool {
    true
}
