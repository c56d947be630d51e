//! Records over datagrams, for receivers of another protocol such as RTP.
//!
//! A path whose sink [notes departures](crate::SinkConfig::departures) prepares its socket with [`note_departures`], sends a record's last
//! datagram with [`send_noted`], and reads [`departures`].

pub(crate) mod leaving;
pub(crate) mod path;
pub(crate) mod sink;

pub use crate::turn::datagrams::PacketPieces;
pub use freshwire_io::tcp::Stage;
pub use freshwire_io::udp::{DatagramSender, DepartureNote, departures, note_departures, send_noted};
pub use path::{DatagramPath, Flushed, KnownPath};
