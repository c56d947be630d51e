"""A browser that watches by WebRTC behind a weak link: `freshwire serve` beside LiveKit's server, same renditions.

`python3 -m freshwire_lab.livekit install` fetches LiveKit's server, its client for pages, and builds the publisher;
`python3 -m freshwire_lab.livekit` measures. It needs the commands `freshwire`, `ffmpeg` and `chromium` too.
"""
