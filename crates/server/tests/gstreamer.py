"""Plays a pipeline of GStreamer's to its end. Exits well if nothing was wrong until it had closed.

gst-launch-1.0 closes while PAUSE is still on its way, and takes the write that it cancels for one that failed (1.22).
"""

import sys

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst  # noqa: E402

# What a server has to answer a request, in nanoseconds.
ANSWER = 10 * Gst.SECOND


def wait(bus, is_it, timeout=Gst.CLOCK_TIME_NONE):
    """Waits for a message, and ends the program if an error comes first."""
    kinds = Gst.MessageType.EOS | Gst.MessageType.ERROR | Gst.MessageType.PROGRESS
    while message := bus.timed_pop_filtered(timeout, kinds):
        if message.type == Gst.MessageType.ERROR:
            sys.exit("ERROR: {0.message}\n{1}".format(*message.parse_error()))
        if is_it(message):
            return
    sys.exit("ERROR: nothing came in time")


def is_paused(message):
    """Whether the server has answered to PAUSE."""
    if message.type != Gst.MessageType.PROGRESS:
        return False
    kind, code, text = message.parse_progress()
    return kind == Gst.ProgressType.COMPLETE and code == "request" and "PAUSE" in text


Gst.init(None)
pipeline = Gst.parse_launch(sys.argv[1])
pipeline.set_auto_flush_bus(False)
bus = pipeline.get_bus()
pipeline.set_state(Gst.State.PLAYING)
wait(bus, lambda message: message.type == Gst.MessageType.EOS)
print("played")
pipeline.set_state(Gst.State.PAUSED)
wait(bus, is_paused, ANSWER)
pipeline.set_state(Gst.State.NULL)
while error := bus.pop_filtered(Gst.MessageType.ERROR):
    sys.exit("ERROR: {0.message}\n{1}".format(*error.parse_error()))
