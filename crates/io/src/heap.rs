/// Lets the threads of this process take memory from one heap. The GNU C library gives each thread a heap of its own, and what one
/// thread takes and another gives back leaves holes in both. For a server with thousands of small objects whose threads seldom
/// take memory at the same time.
///
/// Call it before threads are started; with other C libraries it does nothing.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number that the allocator reads; what it refuses stays as it is.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
