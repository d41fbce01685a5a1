#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gannet_sql::fuzzing::key(data));
