//! Rust's names in the library's messages, and their counterparts in C and Python.

/// In Rust, C and Python. A test compares the list with the library's sources.
const NAMES: [(&str, &str, &str); 8] = [
    ("RingConfig::for_clients", "fw_ring_for_clients", "Ring.for_clients"),
    ("RingConfig::rings", "fw_ring.rings", "Ring(rings=...)"),
    ("RingConfig::slots", "fw_ring.slots", "Ring(slots=...)"),
    ("Carrier::Auto", "FW_AUTO", "carrier=\"auto\""),
    ("Carrier::Tcp", "FW_TCP", "carrier=\"tcp\""),
    ("ConnectionConfig::maximum", "fw_node_config.maximum", "Node(maximum=...)"),
    ("NodeConfig::attempt_delay", "fw_node_config.attempt_delay", "Node(attempt_delay=...)"),
    ("ConnectionConfig::in_order", "fw_node_config.in_order", "Node(in_order=True)"),
];

/// A message with the names that `own` selects.
pub(crate) fn in_own_names(
    words: String,
    own: fn(&(&'static str, &'static str, &'static str)) -> &'static str,
) -> String {
    NAMES.iter().fold(words, |words, names| words.replace(names.0, own(names)))
}
