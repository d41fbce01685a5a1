//! Threads of the store's own, of which no model has any.

/// A thread that never was.
#[derive(Debug)]
pub struct JoinHandle<T>(std::marker::PhantomData<T>);

impl<T> JoinHandle<T> {
    /// There is none.
    pub fn join(self) -> std::result::Result<T, ()> {
        panic!("no model has threads of the store's own");
    }
}

/// There is none.
pub fn spawn<T>(_name: &str, _body: impl FnOnce() -> T) -> JoinHandle<T> {
    panic!("no model has threads of the store's own");
}
