//! The configuration: a TOML file, or the defaults with what the command line says.
//!
//! An error names the file, the line and what to do. `packaging/freshwire.toml` shows every setting.

mod base_path;
mod broker;
mod camera;
mod destination;
mod encoder;
mod error;
mod file;
mod hub;
mod limits;
mod multicast;
mod origin;
mod pattern;
mod relay;
mod rendition;
mod rung;
mod settings;
mod source;
mod target;
mod values;

use std::path::Path;

pub use base_path::{BasePath, BasePathError};
pub use broker::{BrokerAddress, BrokerAddressError};
pub(crate) use broker::{MqttVersion, Subscription};
pub(crate) use camera::Credentials;
pub use camera::{Camera, CameraError};
pub use destination::Destination;
pub(crate) use encoder::{Codec, EncoderProfile, KNOWN, Place};
pub use encoder::{Encoder, EncoderError};
pub use error::ConfigError;
pub use hub::{HubConfig, MAX_ENGINES};
pub use limits::Limits;
pub use multicast::{AddressRange, AddressRangeError, MulticastConfig};
pub(crate) use origin::{Origin, host_and_port, is_usual};
pub use origin::{OriginError, Origins};
pub use pattern::PatternConfig;
pub use relay::{RelayAddress, RelayError};
pub use rendition::{MAIN, RenditionNameError, check_rendition_name, split_rendition};
pub use rung::{Rung, RungError};
pub use settings::{Config, Listen, RenditionConfig, StreamConfig, TlsFiles};
pub use source::{
    Source, SourceAddressError, SourceError, check_published_name, check_stream_name, default_name,
    parse_named_source, parse_source,
};
pub use target::{Target, TargetError};
pub use values::{link_key, parse_listen, secret_from_file};

impl Config {
    /// Reads a file. Paths in it are relative to its folder. The files of its secrets are read as well.
    ///
    /// # Errors
    ///
    /// If the file cannot be read; and as [`Config::parse`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError::new(path, None, format!("cannot be read: {error}; give another one with --config"))
        })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file at `path`.
    ///
    /// # Errors
    ///
    /// If it is not TOML, a setting is unknown or its value cannot be used, or the file of a secret cannot be read.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        file::read(text, path)
    }
}

#[cfg(test)]
mod tests;
