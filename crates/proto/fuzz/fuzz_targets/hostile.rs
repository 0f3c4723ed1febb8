#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ropewalk_fuzz::hostile::run(data);
});
