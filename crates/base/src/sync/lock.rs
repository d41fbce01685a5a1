use crate::sim;
use std::fmt;
use std::hint;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// How often a thread looks whether a mutex is free before it sleeps: for about as long as it takes to fall asleep and to be
/// woken (Karlin, Li, Manasse and Owicki 1991, "Empirical studies of competitive spinning for a shared-memory
/// multiprocessor"). Most are held for less.
const SPINS: u32 = 128;

/// The address of a lock is the key simulated threads wait on.
fn key_of<T: ?Sized>(lock: &T) -> usize {
    std::ptr::from_ref(lock).cast::<()>() as usize
}

/// Mutual exclusion.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: parking_lot::Mutex<T>,
}

/// Access to a [`Mutex`]'s value until dropped.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: parking_lot::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Mutex { inner: parking_lot::Mutex::new(value) }
    }

    /// The value, when nobody else can hold the lock any more.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if sim::active() {
            sim::yield_point();
            loop {
                if let Some(inner) = self.inner.try_lock() {
                    return MutexGuard { inner };
                }
                sim::block(key_of(&self.inner), None);
            }
        }
        match self.inner.try_lock() {
            Some(inner) => MutexGuard { inner },
            None => self.lock_slow(),
        }
    }

    #[cold]
    fn lock_slow(&self) -> MutexGuard<'_, T> {
        for _ in 0..SPINS {
            hint::spin_loop();
            if !self.inner.is_locked()
                && let Some(inner) = self.inner.try_lock()
            {
                return MutexGuard { inner };
            }
        }
        MutexGuard { inner: self.inner.lock() }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        sim::yield_point();
        self.inner.try_lock().map(|inner| MutexGuard { inner })
    }

    /// The value, when the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The lock itself opens right after this, before any other simulated thread can run.
        if sim::active() {
            sim::wake(key_of(parking_lot::MutexGuard::mutex(&self.inner)), 1);
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Lets threads wait for a condition that a [`Mutex`] guards.
#[derive(Default, Debug)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A condition variable nobody waits on.
    pub const fn new() -> Self {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    /// Gives up the lock, waits for a notification, takes the lock again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        if sim::active() {
            self.wait_simulated(guard, None);
        } else {
            self.inner.wait(&mut guard.inner);
        }
    }

    /// Like [`Condvar::wait`], for at most `timeout`. Returns false when the time ran out.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        if sim::active() {
            return self.wait_simulated(guard, Some(timeout));
        }
        !self.inner.wait_for(&mut guard.inner, timeout).timed_out()
    }

    fn wait_simulated<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> bool {
        let mutex = parking_lot::MutexGuard::mutex(&guard.inner);
        let mutex_key = key_of(mutex);
        let mut notified = true;
        parking_lot::MutexGuard::unlocked(&mut guard.inner, || {
            sim::wake(mutex_key, 1);
            notified = sim::block(key_of(self), timeout);
            // Nobody runs between this check and the lock being taken again.
            while mutex.is_locked() {
                sim::block(mutex_key, None);
            }
        });
        notified
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        if sim::active() {
            sim::wake(key_of(self), 1);
        } else {
            self.inner.notify_one();
        }
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        if sim::active() {
            sim::wake(key_of(self), usize::MAX);
        } else {
            self.inner.notify_all();
        }
    }
}

/// Many readers or one writer.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    inner: parking_lot::RwLock<T>,
}

/// Shared access to a [`RwLock`]'s value until dropped.
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
}

/// Exclusive access to a [`RwLock`]'s value until dropped.
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        RwLock { inner: parking_lot::RwLock::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for shared access.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        if sim::active() {
            sim::yield_point();
            loop {
                if let Some(inner) = self.inner.try_read() {
                    return RwLockReadGuard { inner };
                }
                sim::block(key_of(&self.inner), None);
            }
        }
        RwLockReadGuard { inner: self.inner.read() }
    }

    /// Waits for exclusive access.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        if sim::active() {
            sim::yield_point();
            loop {
                if let Some(inner) = self.inner.try_write() {
                    return RwLockWriteGuard { inner };
                }
                sim::block(key_of(&self.inner), None);
            }
        }
        RwLockWriteGuard { inner: self.inner.write() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if sim::active() {
            sim::wake(key_of(parking_lot::RwLockReadGuard::rwlock(&self.inner)), usize::MAX);
        }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if sim::active() {
            sim::wake(key_of(parking_lot::RwLockWriteGuard::rwlock(&self.inner)), usize::MAX);
        }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
