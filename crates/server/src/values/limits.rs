/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// The deepest nesting of arrays and objects in a value: the limit of serde_json. Readers in some languages crash beyond a thousand.
pub const MAX_JSON_DEPTH: usize = 128;
