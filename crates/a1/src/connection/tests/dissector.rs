//! The dissector in `packaging/wireshark`, run by tshark on captures of our own packets.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use freshwire_choice::Reason;

use super::capture::Capture;
use super::pair::{id, secret};
use super::*;
use crate::crypto::{
    Initiator, KeyLimits, Keys, Local, Protection, Random, ResetToken, Responder, Secrets, StaticKey,
};
use crate::wire::{
    Ack, Block, BlockHead, DATA_HEADER, DataHeader, Echo, Frame, Frames, Invitation, Message, Next, Packet,
    Parity, Ranges, Run, VERSION,
};

const SCRIPTS: [(&str, &str); 3] = [
    ("a1.lua", include_str!("../../../../../packaging/wireshark/a1.lua")),
    ("a1_crypto.lua", include_str!("../../../../../packaging/wireshark/a1_crypto.lua")),
    ("a1_streams.lua", include_str!("../../../../../packaging/wireshark/a1_streams.lua")),
];

const INITIATOR: ([u8; 4], u16) = ([127, 0, 0, 1], 1);
const RESPONDER: ([u8; 4], u16) = ([127, 0, 0, 1], 2);

/// Whether tshark is there. In CI it has to be.
pub(crate) fn has_tshark() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "tshark is needed in CI");
        println!("skipped: tshark is not on this machine: apt-get install tshark");
    }
    there
}

/// What tshark makes of a capture.
pub(crate) struct Tshark {
    folder: PathBuf,
    options: Vec<String>,
}

impl Tshark {
    pub(crate) fn new(capture: &Capture, key_log: &str) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("a1-dissector-{}-{serial}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        for (name, text) in SCRIPTS {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::write(folder.join("capture.pcap"), capture.bytes()).unwrap();
        fs::write(folder.join("keys.txt"), key_log).unwrap();
        let options = vec![format!("-oa1.keylog:{}", folder.join("keys.txt").display())];
        Self { folder, options }
    }

    fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// tshark with the script, to read `capture`.
    fn command(&self, capture: &str) -> Command {
        let mut command = Command::new("tshark");
        command.arg("-n").arg(format!("-Xlua_script:{}", self.folder.join("a1.lua").display()));
        command.args(["-r", capture]).args(&self.options);
        command.env("HOME", &self.folder).env_remove("XDG_CONFIG_HOME").current_dir(&self.folder);
        if is_root() {
            // Newer Wiresharks run no script of root's.
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command("capture.pcap").args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The values of fields, packet by packet. No packet may have tripped the script.
    pub(crate) fn fields<const N: usize>(&self, names: [&str; N]) -> Vec<[Vec<String>; N]> {
        let mut arguments = vec!["-Tfields", "-Eoccurrence=a", "-Eaggregator=|", "-e_ws.lua.error"];
        let named: Vec<String> = names.iter().map(|name| format!("-e{name}")).collect();
        arguments.extend(named.iter().map(String::as_str));
        let text = self.run(&arguments);
        let rows = text.lines().map(|line| {
            let mut columns = line.split('\t');
            assert_eq!(columns.next(), Some(""), "{line}");
            let mut next = || columns.next().unwrap_or_default();
            names.map(|_| next().split('|').filter(|value| !value.is_empty()).map(str::to_owned).collect())
        });
        rows.collect()
    }
}

impl Drop for Tshark {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn is_root() -> bool {
    fs::metadata(Path::new("/proc/self")).is_ok_and(|process| process.uid() == 0)
}

const NOBODY: u32 = 65534;

/// The lines for the keys that the ends of a [`Pair`] begin with.
fn key_log() -> String {
    let hex = |side| secret(side).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let line = |letter, side| format!("A1 {:08x} {:08x} {letter} 0 {}\n", id(0), id(1), hex(side));
    format!("# comment\n{}{}", line('I', 0), line('R', 1))
}

fn put(packet: Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.put(&mut bytes);
    bytes
}

/// A handshake with real messages. Its packets are sealed with other keys, those of the [`Pair`].
fn add_handshake(capture: &mut Capture) {
    let (initiator, responder) = (SocketAddr::from(INITIATOR), SocketAddr::from(RESPONDER));
    let keys = [1, 2].map(|seed| StaticKey::generate([seed; 32]));
    let local = |side: usize| Local { key: &keys[side], psk: None, prologue: b"", seed: [side as u8; 32] };
    let (mut message, mut answer) = (Vec::new(), Vec::new());
    Initiator::begin(local(0), &keys[1].public_key(), b"parameters", &mut message).unwrap();
    let (called, _) = Responder::read(local(1), &message, &mut Vec::new()).unwrap();
    called.respond(b"parameters", &mut answer).unwrap();
    let initiation = |cookie, noise| Packet::Initiation { version: VERSION, from: id(0), cookie, noise };
    capture.add(initiator, responder, &put(initiation(&[], &[])));
    capture.add(responder, initiator, &put(Packet::Retry { to: id(0), cookie: &[3; 32] }));
    capture.add(initiator, responder, &put(initiation(&[3; 32], &message)));
    capture.add(responder, initiator, &put(Packet::Response { to: id(0), from: id(1), noise: &answer }));
}

/// A connection over a bad path: losses, messages that are given up and dropped, another quality of service, another
/// address, an end.
fn eventful() -> Pair {
    let mut pair = Pair::new(lossy(1_000, 100, 0.2, 4));
    pair.log = Some(Vec::new());
    pair.ends[0].connection.set_policy(Box::new(freshwire_choice::deadline(Duration::ZERO)));
    pair.ends[0].connection.set_qos(Qos { outstanding: 60, ..Qos::default() }).unwrap();
    for seq in 0..100 {
        if seq == 50 {
            pair.rebind(0, 99);
        }
        pair.push(0, record(seq, pair.now, Some(Duration::from_millis(450))), payload(seq, 4000));
        pair.push(1, record(seq, pair.now, None), payload(seq, 10));
        pair.run_for(Duration::from_millis(40));
    }
    pair.run_for(Duration::from_secs(2));
    pair.ends[0].connection.close(pair.now, 300, "that was it");
    pair.run_for(Duration::from_secs(3));
    pair
}

#[test]
fn a_connection_is_read_with_its_keys() {
    if !has_tshark() {
        return;
    }
    let mut pair = eventful();
    let sent = pair.log.take().unwrap();
    let mut capture = Capture::new();
    add_handshake(&mut capture);
    capture.add_all(&sent);
    let read = Tshark::new(&capture, &key_log()).option("-2").fields([
        "a1.type",
        "a1.stream",
        "a1.sender",
        "a1.frame.type",
        "a1.expert.malformed",
        "a1.expert.retransmitted",
        "a1.reason",
        "a1.close.text",
    ]);
    assert_eq!(read.len(), 4 + sent.len());
    let types: Vec<&str> = read.iter().take(5).map(|row| row[0][0].as_str()).collect();
    assert_eq!(types, ["1", "2", "1", "3", "4"]);
    assert!(read.iter().all(|row| row[1] == ["0"] && row[4].is_empty()), "one stream, nothing malformed");
    for (row, sent) in read.iter().skip(4).zip(&sent) {
        assert_eq!(row[2], [if sent.from.port() == 2 { "1" } else { "0" }], "the sender");
        assert!(!row[3].is_empty(), "opened");
        let Ok(Packet::Data(header, _)) = Packet::parse(&sent.bytes) else { panic!("not data") };
        assert_eq!(row[5].len(), usize::from(header.retransmitted));
    }
    let seen = |column: usize| -> std::collections::BTreeSet<&str> {
        read.iter().flat_map(|row| row[column].iter().map(String::as_str)).collect()
    };
    let kinds = seen(3);
    let expected = [
        "0x02", "0x03", "0x04", "0x05", "0x08", "0x09", "0x10", "0x11", "0x12", "0x13", "0x14", "0x15",
        "0x16", "0x17",
    ];
    assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    let reason = Reason::PredictedLate.code().to_string();
    assert!(seen(6).contains(reason.as_str()), "{:?}", seen(6));
    assert_eq!(seen(7), ["that was it"].into());
}

#[test]
fn without_keys_headers_are_read_and_frames_are_not() {
    if !has_tshark() {
        return;
    }
    let mut pair = eventful();
    let mut sent = pair.log.take().unwrap();
    sent.truncate(40);
    let mut capture = Capture::new();
    add_handshake(&mut capture);
    capture.add_all(&sent);
    for log in [String::new(), key_log().replace("01", "02")] {
        let wrong = !log.is_empty();
        let read = Tshark::new(&capture, &log).fields(["a1.number", "a1.frame.type", "a1.expert.unopened"]);
        for (row, sent) in read.iter().skip(4).zip(&sent) {
            let Ok(Packet::Data(header, _)) = Packet::parse(&sent.bytes) else { panic!("not data") };
            assert_eq!(row[0], [header.number.to_string()]);
            let is_readable = wrong && header.to == id(1);
            assert_eq!(row[1].is_empty(), !is_readable);
            assert_eq!(row[2].len(), usize::from(wrong && !is_readable));
        }
    }
}

/// Packets of one direction, in one capture.
struct Stream {
    capture: Capture,
    keys: Keys,
    number: u64,
}

impl Stream {
    fn new(protection: Protection, limits: KeyLimits) -> Self {
        let secrets = Secrets { send: secret(0).into(), receive: secret(1).into() };
        let keys = Keys::with_limits(protection, &secrets, limits);
        Self { capture: Capture::new(), keys, number: 0 }
    }

    fn seal(&mut self, frames: &[u8]) -> Vec<u8> {
        let mut header = DataHeader {
            to: id(1),
            number: self.number as u32,
            phase: false,
            retransmitted: false,
            control: false,
            ack_now: false,
        };
        let mut sealed = frames.to_vec();
        header.phase = self.keys.seal(self.number, &mut sealed, 0).unwrap();
        self.number += 1;
        [&header.bytes()[..], &sealed].concat()
    }

    fn add(&mut self, frames: &[u8]) {
        let bytes = self.seal(frames);
        self.capture.add(INITIATOR.into(), RESPONDER.into(), &bytes);
    }
}

fn tshark_on_port(capture: &Capture) -> Tshark {
    Tshark::new(capture, &key_log()).option("-oa1.ports:2")
}

/// One frame of each kind, with what the dissector is to say of it. A kind that is new has no arm here.
fn described(frame: &Frame<'_>) -> &'static str {
    match frame {
        Frame::Padding => "PADDING: 1",
        Frame::Ping => "PING",
        Frame::Ack(_) => "ACK: 90-100,88,0-3",
        Frame::Nack(_) => "NACK: 90-100,88,0-3",
        Frame::Sync { .. } => "SYNC",
        Frame::SyncEcho(_) => "SYNC_ECHO: rtt",
        Frame::Block(_) => "BLOCK: 300 first 0+5 last",
        Frame::Run(run) if run.alike.seq == 0 => "RUN: 301 7+10 last, 302 first 0+3",
        Frame::Run(_) => "RUN: 302 first 0+20 last .. 304 first 0+5",
        Frame::Gone { .. } => "GONE: 77 expired",
        Frame::Dropped { .. } => "DROPPED: 5+3 layer shed",
        Frame::Credit { .. } => "CREDIT: 64, 4611686018427387904 bytes",
        Frame::Qos { .. } => "QOS: 1",
        Frame::QosAck { .. } => "QOS_ACK: 1",
        Frame::Close { .. } => "CLOSE: 256 tschüß",
        Frame::PathChallenge(_) => "PATH_CHALLENGE",
        Frame::PathResponse(_) => "PATH_RESPONSE",
        Frame::Repair(_) => "REPAIR: 300 1/2",
        Frame::Group(_) => "GROUP: 0x00000009",
        Frame::GroupNack { .. } => "GROUP_NACK: 0x00000009 90-100,88,0-3",
        Frame::GroupBlock { .. } => "GROUP_BLOCK: 0x00000009 300 first 0+5 last",
        Frame::GroupGone { .. } => "GROUP_GONE: 0x00000009 70000 expired",
        Frame::GroupAt { .. } => "GROUP_AT: 0x00000009 300",
        Frame::Whole { .. } => "WHOLE: 77",
    }
}

fn invitation(address: &str) -> Invitation {
    let address = address.parse().unwrap();
    Invitation { group: 9, address, key: [7; 32], next: GROUP_BEGIN, offset_us: 0u64.wrapping_sub(5) }
}

/// A group's packet number beyond 32 bits.
const GROUP_BEGIN: u64 = 1 << 40;

/// What the messages of a run say that say nothing but their length.
const PLAIN: Message =
    Message { len: 17, seq: 0, layer: 0, group: 0, key: 0, refs: [0; 2], generated_us: 0, lifetime_us: None };

fn every_frame() -> Vec<Frame<'static>> {
    let ranges = Ranges(vec![90..=100, 88..=88, 0..=3]);
    let message = Message {
        len: 5,
        seq: u64::from(u32::MAX) + 7,
        layer: 3,
        group: 70_000,
        key: 9,
        refs: [1, 0],
        generated_us: -123_456_789,
        lifetime_us: Some(250_000),
    };
    let layered = Message { len: 20, seq: 5, layer: 2, lifetime_us: Some(70_000), ..PLAIN };
    let head = BlockHead { id: 300, offset: 0, start: Some(message), end: true };
    let most = (1 << 62) - 1;
    vec![
        Frame::Ping,
        Frame::Ack(Ack { ranges: ranges.clone(), delay_us: 25_000, at_us: u32::MAX, ce: 2 }),
        Frame::Nack(ranges.clone()),
        Frame::Sync { sent_us: 1 },
        Frame::SyncEcho(Echo { sent_us: 1, arrived_us: 70, held_us: 16_384 }),
        Frame::Gone { id: 77, len: 16_384, reason: Reason::Expired },
        Frame::Dropped { first: 5, count: 3, reason: Reason::LayerShed },
        Frame::Credit { messages: 64, bytes: most },
        Frame::Qos { serial: 1, qos: Qos::default() },
        Frame::QosAck { serial: 1, qos: Qos::default() },
        Frame::PathChallenge([1; 8]),
        Frame::PathResponse([2; 8]),
        Frame::Close { code: 256, reason: "tschüß" },
        Frame::Padding,
        Frame::Block(Block { head, bytes: b"hello" }),
        Frame::Run(Run { id: 301, offset: 7, generated: 5, alike: PLAIN, bytes: &[7; 13] }),
        Frame::Run(Run { id: 302, offset: 0, generated: 6, alike: layered, bytes: &[7; 45] }),
        Frame::Repair(Parity { id: 300, message, index: 1, count: 2, bytes: b"shard" }),
        Frame::Group(invitation("[ff02::1:2]:5004")),
        Frame::Group(invitation("239.0.0.1:5004")),
        Frame::GroupNack { group: 9, ranges },
        Frame::GroupBlock { group: 9, block: Block { head, bytes: b"hello" } },
        Frame::GroupGone { group: 9, id: 70_000, reason: Reason::Expired },
        Frame::GroupAt { group: 9, next: 300 },
        Frame::Whole { id: 77 },
    ]
}

#[test]
fn every_frame_is_read_under_every_protection() {
    if !has_tshark() {
        return;
    }
    let frames = every_frame();
    for (protection, checksum, preference) in [
        (Protection::Aead, false, "-oa1.protection:Automatic: by key log, else by checksum"),
        (Protection::DangerousPlain, true, "-oa1.protection:Automatic: by key log, else by checksum"),
        (Protection::DangerousPlain, true, "-oa1.protection:Not encrypted"),
        (Protection::DangerousPlain, false, "-oa1.protection:Not encrypted"),
    ] {
        let mut stream = Stream::new(protection, KeyLimits::default());
        stream.keys.set_checksum(checksum);
        for frame in &frames {
            let mut bytes = Vec::new();
            frame.put(&mut bytes);
            stream.add(&bytes);
        }
        let tshark = tshark_on_port(&stream.capture).option(preference);
        let text = tshark.run(&["-V"]);
        assert!(!text.contains("Malformed") && !text.contains("Lua Error"), "{text}");
        for frame in &frames {
            let what = described(frame).replace(": rtt", "").replace("904 bytes", "");
            assert!(text.contains(&format!("    {what}")), "{what} under {protection:?}:\n{text}");
        }
        let read = tshark.fields([
            "a1.protection",
            "a1.message.seq",
            "a1.message.lifetime",
            "a1.credit.bytes",
            "a1.range.last",
            "a1.close.code",
            "a1.qos.outstanding",
            "a1.message.generated",
        ]);
        let seen = |column: usize| -> Vec<&str> {
            read.iter().flat_map(|row| row[column].iter().map(String::as_str)).collect()
        };
        let shown = if protection == Protection::Aead {
            "0"
        } else if checksum {
            "1"
        } else {
            "2"
        };
        assert_eq!(seen(0), vec![shown; frames.len()]);
        let seqs = ["4294967302", "301", "302", "307", "307", "308", "309", "4294967302", "4294967302"];
        assert_eq!(seen(1), seqs);
        assert_eq!(seen(2), ["250000", "70000", "250000", "250000"]);
        assert_eq!(seen(3), ["4611686018427387903"]);
        assert_eq!(seen(4), ["100", "88", "3"].repeat(3));
        assert_eq!(seen(5), ["256"]);
        assert_eq!(seen(6), ["1024", "1024"]);
        assert_eq!(seen(7), ["-123456789"; 3]);
    }
}

/// A block and two messages that are like it, the second but for all that may differ.
fn alike() -> Vec<u8> {
    let message = Message {
        len: 5,
        seq: 40,
        layer: 0,
        group: 0,
        key: 9,
        refs: [0; 2],
        generated_us: 1_000,
        lifetime_us: None,
    };
    let head = |id, message| BlockHead { id, offset: 0, start: Some(message), end: true };
    let second = Message { seq: 41, ..message };
    let third = Message { seq: 42, len: 2, key: 70, generated_us: 700, ..message };
    let mut bytes = Vec::new();
    head(300, message).put(Some(5), &mut bytes);
    bytes.extend(b"hello");
    Next::between(&head(300, message), &head(301, second)).unwrap().put(&mut bytes);
    bytes.extend(b"again");
    Next::between(&head(301, second), &head(302, third)).unwrap().put(&mut bytes);
    bytes.extend(b"by");
    bytes
}

#[test]
fn messages_with_a_short_head_are_shown_with_all_that_they_are() {
    if !has_tshark() {
        return;
    }
    let mut stream = Stream::new(Protection::Aead, KeyLimits::default());
    stream.add(&alike());
    let tshark = tshark_on_port(&stream.capture);
    let text = tshark.run(&["-V"]);
    for line in ["BLOCK: 300 first 0+5 last", "NEXT: 301 first 0+5 last", "NEXT: 302 first 0+2 last"] {
        assert!(text.contains(&format!("    {line}")), "{line}:\n{text}");
    }
    let read = tshark.fields([
        "a1.message",
        "a1.message.seq",
        "a1.message.length",
        "a1.message.generated",
        "a1.message.key",
    ]);
    assert_eq!(read[0][0], ["300", "301", "302"]);
    assert_eq!(read[0][1], ["40", "41", "42"]);
    assert_eq!(read[0][2], ["5", "5", "2"]);
    assert_eq!(read[0][3], ["1000", "1000", "700"]);
    assert_eq!(read[0][4], ["9", "70"]);
}

#[test]
fn a_reason_that_is_not_known_is_the_applications() {
    if !has_tshark() {
        return;
    }
    let mut stream = Stream::new(Protection::Aead, KeyLimits::default());
    stream.add(&[0x10, 1, 5, 200]);
    stream.add(&[0x10, 1, 5, 0]);
    let text = tshark_on_port(&stream.capture).run(&["-V"]);
    assert!(text.contains("Message 1 was given up: application (200)"), "{text}");
    let (known, zero) = text.split_once("Frame 2:").expect("two packets");
    assert!(!known.contains("Malformed") && zero.contains("Malformed: there is no reason 0"), "{text}");
}

/// Bytes without sense; the first is often one that begins something.
fn random(count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random::from_seed([5; 32]);
    (0..count).map(move |_| {
        let [len, first] = random.bytes();
        let mut bytes = vec![0; usize::from(len)];
        random.fill(&mut bytes);
        if let Some(begin) = bytes.first_mut() {
            *begin = if first % 2 == 0 { first / 2 % 0x20 } else { first };
        }
        bytes
    })
}

/// What the crate reads of a packet: its frames, where paddings in a row are one, and whether it can read all of it.
fn reading(bytes: &[u8]) -> (usize, bool) {
    let (mut count, mut after_padding) = (0, false);
    for frame in Frames::new(bytes) {
        let Ok(frame) = frame else { return (count + 1, true) };
        let is_padding = matches!(frame, Frame::Padding);
        count += usize::from(!(is_padding && after_padding));
        after_padding = is_padding;
    }
    (count, false)
}

#[test]
fn any_packet_is_read_as_the_crate_reads_it() {
    if !has_tshark() {
        return;
    }
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let written = every_frame().into_iter().map(|frame| {
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        bytes
    });
    for bytes in written.chain([alike()]) {
        for len in 0..bytes.len() {
            packets.push(bytes[..len].to_vec());
        }
        for at in 0..bytes.len().min(40) {
            for value in [0, 0x3f, 0x80, 0xff, bytes[at] ^ 0x01] {
                let mut changed = bytes.clone();
                changed[at] = value;
                packets.push(changed);
            }
        }
    }
    packets.extend(random(500));
    let mut stream = Stream::new(Protection::DangerousPlain, KeyLimits::default());
    for packet in &packets {
        stream.add(packet);
    }
    let read = tshark_on_port(&stream.capture).fields(["a1.frame.type", "a1.expert.malformed"]);
    assert_eq!(read.len(), packets.len());
    for (row, packet) in read.iter().zip(&packets) {
        assert_eq!((row[0].len(), row[1].len() == 1), reading(packet), "{packet:02x?}");
    }
}

#[test]
fn no_datagram_trips_the_script() {
    if !has_tshark() {
        return;
    }
    let mut datagrams = Vec::new();
    let header =
        DataHeader { to: id(1), number: 8, phase: true, retransmitted: true, control: false, ack_now: true };
    let whole = [
        put(Packet::Initiation { version: VERSION, from: 9, cookie: b"cookie", noise: &[5; 400] }),
        put(Packet::Retry { to: 9, cookie: &[3; 40] }),
        put(Packet::Response { to: 9, from: 10, noise: &[6; 200] }),
        put(Packet::Version { to: 9, version: VERSION }),
        put(Packet::Data(header, b"sealed")),
        put(Packet::Group { group: 3, number: 4, sealed: b"sealed" }),
        put(Packet::Reset { to: id(1), token: ResetToken::from_bytes([9; 16]) }),
    ];
    for bytes in &whole {
        let lens = (1..bytes.len().min(80)).chain([bytes.len()]);
        datagrams.extend(lens.map(|len| bytes[..len].to_vec()));
    }
    datagrams.extend(random(500).filter(|bytes| !bytes.is_empty()));
    let mut capture = Capture::new();
    for datagram in &datagrams {
        capture.add(INITIATOR.into(), RESPONDER.into(), datagram);
    }
    // Once to be recognised, once because of the port.
    assert_eq!(Tshark::new(&capture, "").fields(["a1.type"]).len(), datagrams.len());
    let read = tshark_on_port(&capture).fields(["a1.type", "a1.expert.malformed"]);
    assert_eq!(read.len(), datagrams.len());
    for (row, datagram) in read.iter().zip(&datagrams) {
        assert_eq!(row[0], [(datagram[0] >> 4).to_string()]);
        assert_eq!(row[1].is_empty(), Packet::parse(datagram).is_ok(), "{datagram:02x?}");
    }
}

#[test]
fn updated_keys_are_followed_and_late_packets_open() {
    if !has_tshark() {
        return;
    }
    let limits = KeyLimits { update_after: 10, ..KeyLimits::default() };
    let mut stream = Stream::new(Protection::Aead, limits);
    let ping = [1];
    let mut late = Vec::new();
    for number in 0..30 {
        // The peer confirms each key, and never seals with a new one itself: so there is one update.
        if number > 0 && number % 10 == 0 {
            stream.keys.on_acknowledged(number - 1);
        }
        let bytes = stream.seal(&ping);
        if number == 9 {
            late = bytes;
        } else {
            stream.capture.add(INITIATOR.into(), RESPONDER.into(), &bytes);
        }
        if number == 12 {
            stream.capture.add(INITIATOR.into(), RESPONDER.into(), &late);
        }
    }
    let read = tshark_on_port(&stream.capture).fields(["a1.number", "a1.generation", "a1.expert.key_update"]);
    for row in &read {
        let number: u64 = row[0][0].parse().unwrap();
        let generation = u64::from(number >= 10);
        assert_eq!(row[1], [generation.to_string()], "packet {number}");
        assert_eq!(row[2].len(), usize::from(number == 10));
    }
}

#[test]
fn packets_cut_apart_by_a_network_card_are_read_one_by_one() {
    if !has_tshark() {
        return;
    }
    let mut stream = Stream::new(Protection::Aead, KeyLimits::default());
    let mut train = Vec::new();
    for len in [1000, 1000, 1000, 300] {
        let sealed = stream.seal(&vec![0; len]);
        train.extend(sealed);
    }
    stream.capture.add(INITIATOR.into(), RESPONDER.into(), &train);
    let read = tshark_on_port(&stream.capture).fields(["a1.number", "a1.frame.type"]);
    assert_eq!(read[0][0], ["0", "1", "2", "3"]);
    assert_eq!(read[0][1], ["0x00"; 4]);
}

#[test]
fn a_groups_packets_are_readable_after_an_observed_invitation() {
    if !has_tshark() {
        return;
    }
    let mut stream = Stream::new(Protection::Aead, KeyLimits::default());
    let mut frames = Vec::new();
    Frame::Group(invitation("239.0.0.1:5004")).put(&mut frames);
    stream.add(&frames);
    let group = Secrets { send: [7; 32].into(), receive: [7; 32].into() };
    let mut keys = Keys::new(Protection::Aead, &group);
    for number in [GROUP_BEGIN + 1, GROUP_BEGIN] {
        let mut sealed = vec![1];
        keys.seal(number, &mut sealed, 0).unwrap();
        let packet = put(Packet::Group { group: 9, number: number as u32, sealed: &sealed });
        stream.capture.add(INITIATOR.into(), ([239, 0, 0, 1], 5004).into(), &packet);
    }
    let read = tshark_on_port(&stream.capture).fields(["a1.type", "a1.group", "a1.frame.type"]);
    let expected = [["4", "0x00000009", "0x19"], ["6", "0x00000009", "0x01"], ["6", "0x00000009", "0x01"]];
    assert_eq!(read, expected.map(|row| row.map(|value| vec![value.to_owned()])));
}

#[test]
fn packets_cut_by_the_capture_are_not_called_malformed() {
    if !has_tshark() {
        return;
    }
    let mut pair = eventful();
    let mut sent = pair.log.take().unwrap();
    sent.truncate(20);
    for keep in [1, DATA_HEADER, 9, 60] {
        let mut capture = Capture::new();
        capture.keep(keep);
        add_handshake(&mut capture);
        capture.add_all(&sent);
        assert_eq!(Tshark::new(&capture, "").fields(["a1.type"]).len(), 4 + sent.len());
        let read = tshark_on_port(&capture).fields([
            "a1.type",
            "a1.number",
            "a1.expert.malformed",
            "a1.expert.unopened",
            "a1.frame.type",
            "a1.tag",
        ]);
        assert_eq!(read.len(), 4 + sent.len());
        for (row, sent) in read.iter().skip(4).zip(&sent) {
            let Ok(Packet::Data(header, _)) = Packet::parse(&sent.bytes) else { panic!("not data") };
            assert_eq!(row[0], ["4"]);
            assert_eq!(row[1].len(), usize::from(keep > 1));
            assert!(row[1].iter().all(|number| *number == header.number.to_string()));
            let is_cut = sent.bytes.len() > keep;
            assert_eq!([row[4].is_empty(), row[5].is_empty()], [is_cut; 2], "what is whole is opened");
        }
        assert!(read.iter().all(|row| row[2].is_empty() && row[3].is_empty()));
    }
}

/// Only the low bits of a number are sent.
#[test]
fn a_capture_may_begin_after_many_packets() {
    if !has_tshark() {
        return;
    }
    let mut stream = Stream::new(Protection::Aead, KeyLimits::default());
    stream.number = 0x2ff_ffff;
    let head = BlockHead { id: 0x5ff_fffe, offset: 3, start: None, end: false };
    for frame in [
        Frame::Block(Block { head, bytes: b"hello" }),
        Frame::Run(Run { id: 0xff_ffff, offset: 0, generated: 5, alike: PLAIN, bytes: &[7; 20] }),
    ] {
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        stream.add(&bytes);
    }
    let read = tshark_on_port(&stream.capture).fields(["a1.number", "a1.message"]);
    assert_eq!(read[0], [["50331647"], ["100663294"]]);
    let [number, messages] = &read[1];
    assert_eq!(*number, ["50331648"]);
    assert_eq!(*messages, ["100663295", "100663296"]);
}

/// A capture is read while it is written, and its keys come after its start.
#[test]
fn a_key_log_that_grows_is_read_again() {
    if !has_tshark() {
        return;
    }
    let mut capture = Capture::new();
    add_handshake(&mut capture);
    let start = capture.bytes().len();
    let mut pair = eventful();
    let sent = pair.log.take().unwrap();
    capture.add_all(&sent[..4]);
    let tshark = tshark_on_port(&capture);
    fs::write(tshark.folder.join("keys.txt"), "").unwrap();
    let mut command = tshark.command("-");
    let arguments = ["-l", "-Tfields", "-ea1.type", "-ea1.frame.type"];
    let mut process = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    input.write_all(&capture.bytes()[..start]).unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "1\t");
    fs::write(tshark.folder.join("keys.txt"), key_log()).unwrap();
    input.write_all(&capture.bytes()[start..]).unwrap();
    drop(input);
    let rest: Vec<String> = lines.collect();
    assert!(process.wait().unwrap().success());
    assert_eq!(rest.len(), 7);
    assert!(rest[3..].iter().all(|line| line.starts_with("4\t0x")), "{rest:?}");
}
