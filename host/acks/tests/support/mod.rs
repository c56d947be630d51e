//! Frames, and what a test needs of the machine.
#![allow(dead_code, reason = "each test uses a part")]

use freshwire_acks::{Ack, Config, FilterError, KEY_BYTES, LoadedFilter};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// The programs, or the reason why there are none; with `CI=true` that is a failure.
pub(crate) fn loaded(config: &Config) -> Option<LoadedFilter> {
    match LoadedFilter::new(config) {
        Ok(loaded) => Some(loaded),
        Err(FilterError::NotPermitted) => skip("eBPF needs root"),
        Err(error) => panic!("{error}"),
    }
}

/// Says why a test does nothing.
pub(crate) fn skip<T>(reason: &str) -> Option<T> {
    assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{reason} (CI=true: nothing may be skipped)");
    eprintln!("skipped: {reason}");
    None
}

/// How a frame is wrapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrap {
    pub(crate) is_v6: bool,
    pub(crate) tags: usize,
}

pub(crate) const PLAIN: Wrap = Wrap { is_v6: false, tags: 0 };

/// A TCP segment in a frame.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    pub(crate) is_out: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) flags: u8,
    pub(crate) reserved: u8,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: usize,
}

pub(crate) fn timestamps() -> Vec<u8> {
    vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]
}

pub(crate) fn sack() -> Vec<u8> {
    vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]
}

/// The frame of an acknowledgement; options are SACK, or timestamps.
pub(crate) fn ack_frame(ack: &Ack, wrap: Wrap) -> Vec<u8> {
    let options = if ack.has_options { sack() } else { timestamps() };
    let tcp = Tcp {
        is_out: false,
        seq: 77,
        ack: ack.number,
        window: ack.window,
        flags: ack.flags,
        reserved: ack.reserved,
        options,
        payload: ack.payload as usize,
    };
    frame(&tcp, wrap)
}

/// The frame of a segment with data that leaves.
pub(crate) fn data_frame(seq: u32, payload: usize, wrap: Wrap) -> Vec<u8> {
    let options = timestamps();
    frame(&Tcp { is_out: true, seq, ack: 1, window: 500, flags: ACK, reserved: 0, options, payload }, wrap)
}

pub(crate) fn frame(tcp: &Tcp, wrap: Wrap) -> Vec<u8> {
    let (local, remote) = (LOCAL, REMOTE);
    let mut frame = vec![2; 12];
    for tag in 0..wrap.tags {
        frame.extend(if tag == 0 && wrap.tags == 2 { 0x88a8_u16 } else { 0x8100 }.to_be_bytes());
        frame.extend(7_u16.to_be_bytes());
    }
    let length = 20 + tcp.options.len() + tcp.payload;
    let (from, to) = if tcp.is_out { (local, remote) } else { (remote, local) };
    if wrap.is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((length as u16).to_be_bytes());
        frame.extend([6, 64]);
        frame.extend(from);
        frame.extend(to);
    } else {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend(((length + 20) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(&from[..4]);
        frame.extend(&to[..4]);
    }
    let ports = if tcp.is_out { [LOCAL_PORT, REMOTE_PORT] } else { [REMOTE_PORT, LOCAL_PORT] };
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.extend(tcp.seq.to_be_bytes());
    frame.extend(tcp.ack.to_be_bytes());
    frame.push((((20 + tcp.options.len()) / 4) as u8) << 4 | tcp.reserved);
    frame.push(tcp.flags);
    frame.extend(tcp.window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(&tcp.options);
    frame.extend(vec![0xda; tcp.payload]);
    frame
}

/// The key of the connection in the kernel's map.
pub(crate) fn key(wrap: Wrap) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let bytes = if wrap.is_v6 { 16 } else { 4 };
    key[..bytes].copy_from_slice(&LOCAL[..bytes]);
    key[16..16 + bytes].copy_from_slice(&REMOTE[..bytes]);
    key[32..34].copy_from_slice(&LOCAL_PORT.to_be_bytes());
    key[34..36].copy_from_slice(&REMOTE_PORT.to_be_bytes());
    key
}

const LOCAL: [u8; 16] = [10, 0, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1];
const REMOTE: [u8; 16] = [10, 0, 0, 2, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 2];
const LOCAL_PORT: u16 = 554;
const REMOTE_PORT: u16 = 40001;
