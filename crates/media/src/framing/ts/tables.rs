//! The program's tables (ISO 13818-1, 2.4.4): PAT and PMT.

use super::packet::{Counter, Packet};
use crate::mpeg_ts::{PACKET_BYTES, checksum};

/// An elementary stream of the program map.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) pid: u16,
    pub(super) stream_type: u8,
    pub(super) descriptors: Vec<u8>,
}

/// Adds the packet of the program association table, which names one program.
pub(super) fn write_pat(counter: &mut Counter, out: &mut Vec<u8>) {
    let [high, low] = PMT_PID.to_be_bytes();
    let body = [0, PROGRAM, 0xe0 | high, low];
    Section { pid: PAT_PID, table: 0, id: TRANSPORT_STREAM, version: 0, body: &body }.write(counter, out);
}

/// Adds the packet of the program map table. A reader takes a table with another `version` for a new one.
pub(super) fn write_pmt(
    version: u8,
    pcr_pid: u16,
    streams: &[Stream],
    counter: &mut Counter,
    out: &mut Vec<u8>,
) {
    let [high, low] = pcr_pid.to_be_bytes();
    let mut body = vec![0xe0 | high, low, 0xf0, 0];
    for stream in streams {
        let [high, low] = stream.pid.to_be_bytes();
        body.extend_from_slice(&[stream.stream_type, 0xe0 | high, low, 0xf0, stream.descriptors.len() as u8]);
        body.extend_from_slice(&stream.descriptors);
    }
    Section { pid: PMT_PID, table: 2, id: PROGRAM, version, body: &body }.write(counter, out);
}

/// A section that is small enough for one packet.
struct Section<'a> {
    pid: u16,
    table: u8,
    id: u8,
    version: u8,
    body: &'a [u8],
}

impl Section<'_> {
    fn write(&self, counter: &mut Counter, out: &mut Vec<u8>) {
        let packet = out.len();
        Packet { pid: self.pid, start: true, ..Packet::default() }.write_header(counter, PACKET_BYTES, out);
        out.push(0);
        let section = out.len();
        let len = (5 + self.body.len() + 4) as u8;
        let version = 0xc1 | (self.version & 31) << 1;
        out.extend_from_slice(&[self.table, 0xb0, len, 0, self.id, version, 0, 0]);
        out.extend_from_slice(self.body);
        let checksum = checksum(&out[section..]);
        out.extend_from_slice(&checksum.to_be_bytes());
        out.resize(packet + PACKET_BYTES, 0xff);
    }
}

/// PID of the program association table.
pub(super) const PAT_PID: u16 = 0;
/// PID of the program map table.
pub(super) const PMT_PID: u16 = 0x1000;

const TRANSPORT_STREAM: u8 = 1;
const PROGRAM: u8 = 1;
