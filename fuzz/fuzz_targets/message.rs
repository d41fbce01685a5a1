#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gannet_server::fuzzing::message(data));
