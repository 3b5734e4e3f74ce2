#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ciphertoll_fuzz_targets::observe_capture::run(data));
