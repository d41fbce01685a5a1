//! Each model holds, and finds the faults that it is there to find.

use gannet_models::{Fault, eviction, exclusion, optimistic};
use std::panic::catch_unwind;

/// Each fault makes the model fail, and with these words: not because it grew too large, for instance.
fn assert_found(model: fn(Fault), faults: &[Fault], words: &str) {
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
