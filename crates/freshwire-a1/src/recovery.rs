//! What became of each packet: round trips, losses, congestion control, pacing.
