//! What `freshwire send` asks of the kernel's ring.

use anyhow::bail;
use clap::Args;
use freshwire::SinkConfig;
use freshwire::sink::Horizon;

/// Settings of the kernel's ring.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct KernelArgs {
    /// With the kernel ring: segments that may be committed before TCP can send them, 0 or 1. With 0 a record can be dropped for
    /// up to a round trip longer. Not for congestion controls that pace, such as bbr: most of the link stays idle [default: 1].
    #[arg(long, global = true, value_name = "SEGMENTS", value_parser = clap::value_parser!(u8).range(0..=1))]
    kernel_horizon: Option<u8>,
    /// With the kernel ring: packets refer to records of 4 KiB and more instead of copying them. For a network card and a busy
    /// processor; between programs of one machine it costs more.
    #[arg(long, global = true)]
    kernel_zero_copy: bool,
}

impl KernelArgs {
    /// Refuses settings that the carrier would ignore.
    pub(super) fn check_unused(self) -> anyhow::Result<()> {
        let given = [self.kernel_horizon.is_some(), self.kernel_zero_copy];
        for (given, name) in given.into_iter().zip(["--kernel-horizon", "--kernel-zero-copy"]) {
            if given {
                bail!("{name} is for the kernel ring: add --carrier kernel");
            }
        }
        Ok(())
    }

    /// Whether there is something that plain TCP cannot do.
    pub(super) fn is_given(self) -> bool {
        self.check_unused().is_err()
    }

    /// The sink's configuration with these settings.
    pub(super) fn apply(self, config: SinkConfig) -> SinkConfig {
        let horizon = if self.kernel_horizon == Some(0) { Horizon::Nothing } else { Horizon::OneSegment };
        config.kernel_horizon(horizon).kernel_zero_copy(self.kernel_zero_copy)
    }
}
