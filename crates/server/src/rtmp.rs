//! RTMP (Adobe's specification 1.0, and enhanced RTMP): programs that nobody changed publish streams.

pub(crate) mod wire;
