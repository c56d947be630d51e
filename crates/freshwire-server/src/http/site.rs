/// What the pages say about the server's other addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The port of the RTSP server, if there is one.
    pub rtsp_port: Option<u16>,
    /// The port of the RTSP server over TLS, if there is one.
    pub rtsps_port: Option<u16>,
}
