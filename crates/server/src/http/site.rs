use crate::config::BasePath;

/// The server's other addresses for its pages, and the place of the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The port of the RTSP server, if there is one.
    pub rtsp_port: Option<u16>,
    /// The port of the RTSP server over TLS, if there is one.
    pub rtsps_port: Option<u16>,
    /// Where a proxy shows the pages.
    pub base_path: BasePath,
}
