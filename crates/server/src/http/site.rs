use std::sync::Arc;

use crate::config::BasePath;
use crate::webrtc::WebRtc;

/// The server's other addresses for its pages, and the place of the pages.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The port of the RTSP server, if there is one.
    pub rtsp_port: Option<u16>,
    /// The port of the RTSP server over TLS, if there is one.
    pub rtsps_port: Option<u16>,
    /// WebRTC, if it is served.
    pub webrtc: Option<Arc<WebRtc>>,
    /// Where a proxy shows the pages.
    pub base_path: BasePath,
}
