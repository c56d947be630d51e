//! Protection of packets: the handshake, keys, replays, cookies.
