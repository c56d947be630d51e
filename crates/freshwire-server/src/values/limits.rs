/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;
