//! What this machine's processor can do; the standard library knows, the core must not ask.

/// Whether AES-256-GCM runs in hardware: instructions for AES rounds and for carry-less multiplication.
/// Without them ChaCha20-Poly1305 is several times as fast, and its time does not depend on secrets.
#[must_use]
pub fn has_aes() -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
    {
        false
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    #[test]
    fn the_processor_says_the_same_as_the_kernel() {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap();
        let words: Vec<&str> = flags.split_whitespace().collect();
        let expected = words.contains(&"aes") && words.contains(&"pclmulqdq");
        assert_eq!(super::has_aes(), expected);
    }
}
