/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// The deepest nesting of arrays and objects in a value. `serde_json` reads 127 levels into its `Value`, and the line around a value is one.
/// Readers in some languages crash beyond a thousand.
pub const MAX_JSON_DEPTH: usize = 126;
