//! Each model holds, and finds the faults that it is there to find.

use gannet_models::{Fault, commits, eviction, exclusion, failing, optimistic, reuse, ring};
use std::panic::catch_unwind;

/// Each fault makes the model fail, and with these words: not because it grew too large, for instance.
fn assert_found(model: impl Fn(Fault) + std::panic::RefUnwindSafe, faults: &[Fault], words: &str) {
    for fault in faults {
        let failure = catch_unwind(|| model(*fault)).expect_err("the fault is not found");
        let text = failure.downcast_ref::<String>().expect("a failure has a text");
        assert!(text.contains(words), "{fault:?}: {text}");
    }
}

#[test]
fn a_latch_excludes_and_orders() {
    exclusion(Fault::None);
    assert_found(exclusion, &[Fault::SharedWriter], "Causality violation");
}

#[test]
fn what_an_optimistic_reader_trusts_was_there_at_one_time() {
    optimistic(Fault::None);
    assert_found(optimistic, &[Fault::SameVersion, Fault::NoValidation], "a page as it never was");
}

#[test]
fn a_page_that_was_found_is_that_page_while_its_frame_gets_another() {
    eviction(Fault::None);
    assert_found(
        eviction,
        &[Fault::SameVersion, Fault::NoValidation, Fault::KeyNotAskedAgain],
        "another page's bytes",
    );
}

#[test]
fn who_waits_for_a_page_does_not_wait_for_the_next_one_in_its_frame() {
    reuse(Fault::None);
    assert_found(reuse, &[Fault::WaitsForFrame, Fault::NotTold], "deadlock");
}

/// Sessions that come again and again learn to wait for each other.
#[test]
fn whose_commit_returns_has_his_bytes_on_the_device() {
    let model = |fault| commits([2, 2, 0], fault);
    model(Fault::None);
    assert_found(model, &[Fault::LateBytes], "not on the device");
    assert_found(model, &[Fault::NoWaking, Fault::NoLimit], "deadlock");
}

#[test]
fn three_sessions_share_writes() {
    commits([2, 2, 1], Fault::None);
}

#[test]
fn a_ring_keeps_what_is_not_written() {
    ring(Fault::None);
    assert_found(ring, &[Fault::NoRoom], "not on the device");
}

#[test]
fn a_device_that_fails_is_told_of() {
    failing();
}
