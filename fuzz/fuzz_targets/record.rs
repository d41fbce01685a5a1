#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gannet_store::fuzzing::record(data));
