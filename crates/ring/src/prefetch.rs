/// Asks the processor to have `value` at hand some microseconds from now. A hint that reads nothing; where the processor has
/// none that can be given from here, nothing happens.
///
/// One thread that serves many rings meets each one's memory cold, because what it does for the others, system calls above all,
/// has pushed it out.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(value).cast::<i8>();
        let mut offset = 0;
        while offset < size_of_val(value) {
            // SAFETY: every x86-64 processor has the instruction, and it may be given any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(offset)) };
            offset += LINE_BYTES;
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;
