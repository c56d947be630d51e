/// What sending has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// System calls, waiting included.
    pub(crate) system_calls: u64,
    /// Zero-copy sends that the kernel copied after all; it does so where the bytes do not leave the machine.
    pub(crate) copied: u64,
}
