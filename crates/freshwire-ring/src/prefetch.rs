/// Asks the processor to have `value` at hand some microseconds from now. A hint that reads nothing; where the processor has
/// none that can be given from here, nothing happens.
///
/// One thread that serves many rings meets each one's memory cold, because what it does for the others, system calls above all,
/// has pushed it out.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..size_of_val(value)).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::from_ref(value).cast::<i8>().wrapping_add(line);
        // SAFETY: every x86-64 processor has the instruction, and it may be given any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;
