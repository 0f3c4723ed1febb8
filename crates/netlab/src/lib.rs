//! An emulated network for Ropewalk's tests and benchmarks, in virtual and in real time.
