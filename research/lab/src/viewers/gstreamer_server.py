"""Serves the H.264 stream of the MPEG-TS on standard input over RTSP, live, as GStreamer's RTSP server does it.

Usage: gstreamer_server.py ADDRESS PORT; the stream is /live, and /repaired where lost packets are sent again (RFC 4588).
"""

import re
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstApp, GstRtsp, GstRtspServer  # noqa: E402

CAPS = "video/x-h264,stream-format=byte-stream,alignment=au"
SERVED = (
    "( appsrc name=live is-live=true format=time caps=" + CAPS + " ! h264parse "
    "! rtph264pay name=pay0 pt=96 config-interval=-1 aggregate-mode=zero-latency )"
)
TAKEN = "fdsrc fd=0 ! tsdemux ! video/x-h264 ! appsink name=taken sync=false emit-signals=true"
KEY_PICTURE = re.compile(rb"\x00\x00\x01[\x25\x45\x65]")


class Relay:
    """Hands each access unit to the media that is being served, from a key picture on."""

    def __init__(self):
        self.source = None
        self.offset = None

    def configure(self, _factory, media):
        self.offset = None
        self.source = media.get_element().get_by_name_recurse_up("live")
        media.connect("unprepared", self.forget)

    def forget(self, _media):
        self.source = None

    def take(self, sink):
        buffer = sink.emit("pull-sample").get_buffer()
        source = self.source
        if source is None:
            return Gst.FlowReturn.OK
        data = buffer.extract_dup(0, buffer.get_size())
        if self.offset is None:
            clock = source.get_clock()
            if clock is None or not KEY_PICTURE.search(data):
                return Gst.FlowReturn.OK
            self.offset = clock.get_time() - source.get_base_time() - buffer.pts
        unit = Gst.Buffer.new_wrapped(data)
        unit.pts = buffer.pts + self.offset
        if buffer.dts != Gst.CLOCK_TIME_NONE:
            unit.dts = max(0, buffer.dts + self.offset)
        source.emit("push-buffer", unit)
        return Gst.FlowReturn.OK


def main():
    Gst.init(None)
    relay = Relay()
    ingest = Gst.parse_launch(TAKEN)
    ingest.get_by_name("taken").connect("new-sample", relay.take)
    server = GstRtspServer.RTSPServer()
    server.set_address(sys.argv[1])
    server.set_service(sys.argv[2])
    for path, is_repaired in (("/live", False), ("/repaired", True)):
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(SERVED)
        factory.set_shared(True)
        if is_repaired:
            factory.set_profiles(GstRtsp.RTSPProfile.AVPF)
            factory.set_retransmission_time(Gst.SECOND)
            factory.set_do_retransmission(True)
        factory.connect("media-configure", relay.configure)
        server.get_mount_points().add_factory(path, factory)
    if server.attach(None) == 0:
        sys.exit("cannot listen on port " + sys.argv[2])
    ingest.set_state(Gst.State.PLAYING)
    GLib.MainLoop().run()


main()
