//! The settings, from the environment.

use std::sync::OnceLock;

/// What the environment says.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) memory: usize,
    pub(crate) oldest: bool,
    pub(crate) report: bool,
}

pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let memory = std::env::var("FRESHWIRE_PUSH_MEMORY").ok().and_then(|memory| memory.parse().ok());
        Settings {
            memory: memory.unwrap_or(64 << 20),
            oldest: std::env::var("FRESHWIRE_PUSH_DROP").is_ok_and(|drop| drop == "oldest"),
            report: std::env::var_os("FRESHWIRE_PUSH_REPORT").is_some(),
        }
    })
}
