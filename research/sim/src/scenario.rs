//! Scenarios: worlds in text files.

mod plan;
mod text;

pub use plan::{Expect, FlowPlan, Happening, PathPlan, Scenario, ScenarioError};

/// Every scenario that comes with this crate, by name.
pub const SCENARIOS: &[(&str, &str)] = &[
    ("bit_damage", include_str!("../scenarios/bit_damage.toml")),
    ("bufferbloat", include_str!("../scenarios/bufferbloat.toml")),
    ("burst_loss", include_str!("../scenarios/burst_loss.toml")),
    ("duplicate_storm", include_str!("../scenarios/duplicate_storm.toml")),
    ("file_beside_video", include_str!("../scenarios/file_beside_video.toml")),
    ("lab_clean", include_str!("../scenarios/lab_clean.toml")),
    ("lab_lossy", include_str!("../scenarios/lab_lossy.toml")),
    ("marking_router", include_str!("../scenarios/marking_router.toml")),
    ("nat_rebinding", include_str!("../scenarios/nat_rebinding.toml")),
    ("one_slow_sink", include_str!("../scenarios/one_slow_sink.toml")),
    ("outage", include_str!("../scenarios/outage.toml")),
    ("peer_restart", include_str!("../scenarios/peer_restart.toml")),
    ("random_loss", include_str!("../scenarios/random_loss.toml")),
    ("reordering", include_str!("../scenarios/reordering.toml")),
    ("satellite", include_str!("../scenarios/satellite.toml")),
    ("step_down", include_str!("../scenarios/step_down.toml")),
    ("step_up", include_str!("../scenarios/step_up.toml")),
    ("two_videos", include_str!("../scenarios/two_videos.toml")),
    ("wifi_pause", include_str!("../scenarios/wifi_pause.toml")),
];

impl Scenario {
    /// Reads a scenario, which is TOML. `seed` is that of its links. [`SCENARIOS`] are examples of all of it; durations, sizes
    /// and rates are texts with units (`"50ms"`, `"16KiB"`, `"2Mbit"`).
    ///
    /// | table | fields, those in brackets may be left out |
    /// |---|---|
    /// | | `tells`, a sentence; `length`; \[`seeds`, a share, or 1\]; \[`trouble`: `from`, `to`\] |
    /// | `path.NAME` | \[`both`\], or \[`up`\] and \[`down`\]: \[`rate`, or `trace`: lines of seconds and a rate\], \[`delay`\], \[`queue` in bytes\]. \[`loss`, a share, and `burst`, how many in a row\], \[`outages`: `at`, `length`\]. \[`reorder`: `share`, `by`\], \[`duplicate`: `share`, `copies`, `within`\], \[`damage`, a share\], \[`mark_above`, bytes\]; \[`queue_p95`, to be reached\] |
    /// | `flow.NAME` | `path`; \[`near`: flows of the same text share an endpoint\]; \[`from`: `near` or `far`, who sends\]. `offer`; \[`start`, or 1 s\]; \[`policy`: `fifo`, `expiring`, `deadline`, `layered`, `latest`, `frames`, `live`\]; \[`connection`\]; \[`expect`\] |
    /// | `offer` | `kind`: `layers` (`layers`, `bytes`, `window`, `lifetime`), `frames` (`fps`, `rate`, `gop`, `lifetime`), `positions` (`objects`, `bytes`, `every`, `lifetime`), `messages` (`bytes`, `every`), `bulk` (`bytes`); see [`SourceConfig`](crate::SourceConfig) |
    /// | `connection` | \[`idle_timeout`\], \[`keep_alive`\], \[`congestion`: `copa`, `cubic`, `new-reno`\], \[`in_order`\], \[`fec_layers`\], \[`outstanding`\]; see [`ConnectionConfig`](freshwire_a1::ConnectionConfig) |
    /// | `expect` | as [`Expect`] has them |
    /// | `event`, many | `at`; `flow`; `what`: `rebind`, `restart-near`, `restart-far`, `stall`, `resume`, `update-keys` |
    ///
    /// # Errors
    /// If the text is none, with the line or the part that is wrong.
    pub fn parse(text: &str, seed: u64) -> Result<Self, ScenarioError> {
        text::parse(text, seed)
    }

    /// One of [`SCENARIOS`].
    pub fn text_of(name: &str) -> Option<&'static str> {
        SCENARIOS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }
}
