//! The hub with viewers over loopback: where they begin, what they may cost each other, and that nothing is left behind.

#![allow(clippy::disallowed_methods, reason = "timeouts of the test")]

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::Framing;
use freshwire::choice::Aim;
use freshwire::framing::Framer;
use freshwire_media::framing::interleaved::{self, Interleaved};
use freshwire_media::framing::length_prefixed::Reader;
use freshwire_media::rtp::{Identity, WallClock};
use freshwire_media::unit::{
    AudioCodec, AudioTrack, Kind, MediaTime, Tracks, Unit, UnitHead, VideoCodec, VideoTrack,
};
use freshwire_server::hub::{
    Hub, HubConfig, HubError, Publisher, RenditionSelection, Stream, ViewRequest, Viewer, ViewerSnapshot,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A source whose units say who they are: kind, number, then filling.
struct Source {
    publisher: Publisher,
    tracks: Arc<Tracks>,
    pictures: u32,
    sounds: u32,
    group: u32,
}

impl Source {
    fn new(stream: &Arc<Stream>) -> Result<Self> {
        let video = VideoTrack { codec: VideoCodec::Vp9 { profile: 0, bit_depth: 8 }, width: 64, height: 64 };
        let audio = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 2 };
        let tracks = Arc::new(Tracks { video: Some(video), audio: Some(audio) });
        let mut publisher = stream.publish("test", None)?;
        publisher.tracks(Arc::clone(&tracks));
        Ok(Self { publisher, tracks, pictures: 0, sounds: 0, group: 0 })
    }

    fn push(&mut self, kind: Kind, number: u32, key: bool, len: usize) {
        let layer = u8::from(kind == Kind::Video && !key);
        self.push_lasting(40, kind, number, layer, len);
    }

    fn push_lasting(&mut self, ms: u32, kind: Kind, number: u32, layer: u8, len: usize) {
        let key = layer == 0;
        let mut bytes = vec![b'v'; len.max(5)];
        bytes[0] = if kind == Kind::Video { b'V' } else { b'A' };
        bytes[1..5].copy_from_slice(&number.to_be_bytes());
        let time = MediaTime::from_nanos(i64::from(number) * 40_000_000);
        let head = UnitHead {
            kind,
            pts: time,
            dts: time,
            duration_ns: ms * 1_000_000,
            key,
            len: bytes.len() as u32,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: Arc::clone(&self.tracks),
        };
        let refs = [u32::from(!key), 0];
        self.publisher.push(Unit { head, layer, group: self.group, refs, bytes });
    }

    fn key(&mut self, len: usize) -> u32 {
        self.group += 1;
        self.pictures += 1;
        self.push(Kind::Video, self.pictures, true, len);
        self.pictures
    }

    fn picture(&mut self, len: usize) -> u32 {
        self.pictures += 1;
        self.push(Kind::Video, self.pictures, false, len);
        self.pictures
    }

    /// A picture that nothing depends on.
    fn leaf(&mut self, len: usize) {
        self.pictures += 1;
        self.push_lasting(40, Kind::Video, self.pictures, 3, len);
    }

    fn sound(&mut self) -> u32 {
        self.sounds += 1;
        self.push(Kind::Audio, self.sounds, true, 100);
        self.sounds
    }

    /// Sound of which several frames go into a record; of different sizes.
    fn short_sound(&mut self) -> u32 {
        self.sounds += 1;
        self.push_lasting(20, Kind::Audio, self.sounds, 0, 10 * self.sounds as usize);
        self.sounds
    }
}

struct Player {
    socket: TcpStream,
    reader: Reader,
}

impl Player {
    /// The next unit: its kind and its number.
    fn next(&mut self) -> Result<(char, u32)> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(record) = self.reader.next() {
                let record = record?;
                let number =
                    record.get(1..5).and_then(|bytes| bytes.try_into().ok()).ok_or("a short unit")?;
                return Ok((char::from(record[0]), u32::from_be_bytes(number)));
            }
            match self.socket.read(&mut bytes)? {
                0 => return Err("the stream has ended".into()),
                len => self.reader.push(&bytes[..len]),
            }
        }
    }

    /// The next unit, if one comes soon.
    fn soon(&mut self) -> Result<Option<(char, u32)>> {
        self.socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let next = self.next().ok();
        self.socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(next)
    }
}

fn view(stream: &Arc<Stream>) -> Result<(Viewer, Player)> {
    view_from(stream, None, Vec::new())
}

fn view_from(stream: &Arc<Stream>, join_age: Option<Duration>, preface: Vec<u8>) -> Result<(Viewer, Player)> {
    view_by(stream, Framing::LengthPrefixed.into(), connection()?, join_age, preface)
}

/// The server's end of a connection, and the player's.
fn connection() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let far = TcpStream::connect(listener.local_addr()?)?;
    far.set_read_timeout(Some(TIMEOUT))?;
    Ok((listener.accept()?.0, far))
}

fn view_by(
    stream: &Arc<Stream>,
    framer: Box<dyn Framer>,
    (near, socket): (TcpStream, TcpStream),
    join_age: Option<Duration>,
    preface: Vec<u8>,
) -> Result<(Viewer, Player)> {
    let request = ViewRequest {
        peer: near.peer_addr()?,
        socket: near.into(),
        preface,
        framer,
        catalog: stream.catalog(),
        renditions: RenditionSelection::All,
        seal: None,
        protocol: "test",
        user: None,
        reorders: true,
        only: None,
        latency: None,
        join_age,
        aim: Aim::Screen,
    };
    Ok((stream.view(request)?, Player { socket, reader: Reader::default() }))
}

fn hub(config: HubConfig) -> Result<(Hub, Arc<Stream>)> {
    let hub = Hub::new(config)?;
    let stream = hub.stream("live")?;
    Ok((hub, stream))
}

#[test]
fn a_viewer_begins_with_the_newest_keyframe_if_that_is_fresh() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    source.key(1000);
    let key = source.key(1000);
    let sound = source.sound();
    let next = source.picture(1000);
    let (_viewer, mut player) = view(&stream)?;
    // No further keyframe comes that it could wait for.
    let mut got = [player.next()?, player.next()?, player.next()?];
    // Sound may overtake pictures.
    got.sort_unstable();
    assert_eq!(got, [('A', sound), ('V', key), ('V', next)]);
    Ok(())
}

#[test]
fn a_viewer_waits_for_the_next_keyframe_if_the_newest_is_old() -> Result<()> {
    let (_hub, stream) = hub(HubConfig { join_age: Duration::from_millis(50), ..HubConfig::default() })?;
    let mut source = Source::new(&stream)?;
    let old = source.key(1000);
    // Pause: the keyframe becomes older than `join_age`.
    std::thread::sleep(Duration::from_millis(80));
    let (_viewer, mut player) = view(&stream)?;
    let (_patient, mut other) = view_from(&stream, Some(TIMEOUT), Vec::new())?;
    source.picture(1000);
    source.sound();
    let key = source.key(1000);
    // Sound may overtake pictures.
    let first_picture = |player: &mut Player| loop {
        if let ('V', number) = player.next()? {
            break Result::Ok(number);
        }
    };
    assert_eq!(first_picture(&mut player)?, key);
    assert_eq!(first_picture(&mut other)?, old);
    Ok(())
}

/// A hub that spreads the viewers of a stream over two engines from the second one on.
fn two_engines() -> HubConfig {
    HubConfig { engines: 2, fill_first: Some(0), ..HubConfig::default() }
}

#[test]
fn viewers_of_all_engines_get_the_same_stream() -> Result<()> {
    let (hub, stream) = hub(two_engines())?;
    let mut source = Source::new(&stream)?;
    let mut viewers: Vec<_> = (0..6).map(|_| view(&stream)).collect::<Result<_>>()?;
    assert_eq!(hub.engine_sinks(), [3, 3]);
    for round in 0..40 {
        let sound = (round > 0).then(|| source.sound());
        let picture = if round % 10 == 0 { source.key(20_000) } else { source.picture(3000) };
        let expected: Vec<_> = sound.map(|sound| ('A', sound)).into_iter().chain([('V', picture)]).collect();
        for (_, player) in &mut viewers {
            let mut got = expected.iter().map(|_| player.next()).collect::<Result<Vec<_>>>()?;
            // Sound may overtake pictures.
            got.sort_unstable();
            assert_eq!(got, expected, "round {round}");
        }
    }
    let snapshot = stream.snapshot();
    assert!(snapshot.viewers.iter().all(|viewer| viewer.sink.finished == 79), "{:?}", snapshot.viewers);
    assert!(hub.is_served());
    Ok(())
}

#[test]
fn stalled_viewers_cost_nobody_else_anything() -> Result<()> {
    stalled_viewers(HubConfig::default())
}

#[test]
fn stalled_viewers_of_several_engines_cost_nobody_else_anything() -> Result<()> {
    stalled_viewers(two_engines())
}

fn stalled_viewers(config: HubConfig) -> Result<()> {
    let (_hub, stream) = hub(HubConfig { arena_bytes: 4 << 20, ..config })?;
    let mut source = Source::new(&stream)?;
    let stalled: Vec<_> = (0..20).map(|_| view(&stream)).collect::<Result<_>>()?;
    let (_viewer, mut player) = view(&stream)?;
    // 60 MB for each: far more than their sockets and the arena hold.
    for round in 0..600 {
        let number = if round % 10 == 0 { source.key(100_000) } else { source.picture(100_000) };
        assert_eq!(player.next()?, ('V', number), "round {round}");
    }
    let snapshot = stream.snapshot();
    assert_eq!(snapshot.lost, 0);
    assert!(snapshot.arena_used <= snapshot.arena_bytes);
    assert_eq!(snapshot.viewers.len(), 21);
    // Most of it had no room, or was dropped to make room.
    let behind = |viewer: &&ViewerSnapshot| viewer.offered.iter().sum::<u64>() > viewer.sink.committed;
    assert_eq!(snapshot.viewers.iter().filter(behind).count(), 20, "only those who do not read miss any");
    drop(stalled);
    Ok(())
}

#[test]
fn a_stalled_viewer_resumes_with_a_keyframe() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    let (_viewer, mut player) = view(&stream)?;
    let mut keys = Vec::new();
    for round in 0..400 {
        if round % 20 == 0 {
            keys.push(source.key(60_000));
        } else {
            source.picture(60_000);
        }
    }
    // It begins to read now, and meets a gap somewhere.
    let mut before = 0;
    let mut gaps = 0;
    // Pause: the reader comes late.
    std::thread::sleep(Duration::from_millis(50));
    loop {
        let last = *keys.last().ok_or("no key")?;
        if before >= last {
            break;
        }
        let Some((_, number)) = player.soon()? else {
            keys.push(source.key(60_000));
            continue;
        };
        if number != before + 1 {
            gaps += 1;
            assert!(keys.contains(&number), "{before} is followed by {number}");
        }
        before = number;
    }
    assert!(gaps > 0, "nothing was left out");
    Ok(())
}

#[test]
fn a_viewer_that_missed_a_picture_still_hears() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    let (_viewer, mut player) = view(&stream)?;
    // Not before there is a picture.
    source.sound();
    let key = source.key(100);
    assert_eq!(player.next()?, ('V', key));
    for _ in 0..400 {
        source.picture(60_000);
    }
    assert!(stream.snapshot().viewers.iter().all(|viewer| viewer.missed > 0), "the ring has room for all");
    // It begins to read now, and hears sooner than it sees what was published after the gap.
    let (mut unwanted, mut sounds, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let started = Instant::now();
    let mut hears = false;
    while started.elapsed() < TIMEOUT {
        match player.soon()? {
            Some(('A', number)) => hears |= sounds.contains(&number),
            Some((_, number)) if keys.contains(&number) => return Ok(()),
            Some((_, number)) => assert!(!unwanted.contains(&number), "{number} depends on what it missed"),
            None if hears => keys.push(source.key(100)),
            None => {
                unwanted.push(source.picture(100));
                sounds.push(source.sound());
            }
        }
    }
    Err(format!("it hears: {hears}, and sees no keyframe").into())
}

/// Several frames of sound that share a record go between the packets of a keyframe that the viewer is slow to take.
#[test]
fn sound_overtakes_a_keyframe() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    let track = |channel| {
        let identity = Identity { ssrc: 1, seq: 0, timestamp_offset: 0 };
        Some(interleaved::TrackChannel { channel, identity })
    };
    let config = interleaved::Config {
        video: track(0),
        audio: track(2),
        clock: WallClock { media: MediaTime::default(), ntp: 1 << 32 },
        cname: "test".to_owned(),
        max_packet_bytes: interleaved::DEFAULT_MAX_PACKET_BYTES,
        report_interval: freshwire_media::rtp::DEFAULT_REPORT_INTERVAL,
    };
    let framer = Interleaved::new(stream.catalog(), &config);
    let (_viewer, mut player) = view_by(&stream, Box::new(framer), connection()?, None, Vec::new())?;
    // More than the connection holds while nobody reads.
    source.key(2_000_000);
    let started = Instant::now();
    while stream.snapshot().viewers.iter().all(|viewer| viewer.sink.bytes == 0) {
        assert!(started.elapsed() < TIMEOUT, "the keyframe is not committed");
    }
    for _ in 0..3 {
        source.short_sound();
    }
    let mut channels = Vec::new();
    loop {
        let mut head = [0; 4];
        player.socket.read_exact(&mut head)?;
        let [b'$', channel, high, low] = head else { return Err("no packet".into()) };
        let mut packet = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        player.socket.read_exact(&mut packet)?;
        channels.push(channel);
        // The marker of the last packet of a picture.
        if channel == 0 && packet[1] & 0x80 != 0 {
            break;
        }
    }
    let sounds = channels.iter().filter(|&&channel| channel == 2).count();
    assert_eq!(sounds, 3, "before the end of the keyframe: {channels:?}");
    Ok(())
}

#[test]
fn short_sound_shares_a_record_until_the_next_picture() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    let (_viewer, mut player) = view(&stream)?;
    let key = source.key(100);
    assert_eq!(player.next()?, ('V', key));
    let sounds = [source.short_sound(), source.short_sound()];
    assert_eq!(player.soon()?, None, "it waits for a picture");
    let picture = source.picture(100);
    let got = [player.next()?, player.next()?, player.next()?];
    assert_eq!(got, [('A', sounds[0]), ('A', sounds[1]), ('V', picture)]);
    let sounds = [source.short_sound(), source.short_sound(), source.short_sound()];
    assert_eq!([player.next()?, player.next()?, player.next()?], sounds.map(|sound| ('A', sound)));
    // Two pictures, and sound twice.
    let sent = stream.snapshot().viewers.iter().map(|viewer| viewer.sink.committed).sum::<u64>();
    assert_eq!((sent, stream.snapshot().units), (4, 7));
    let last = source.short_sound();
    drop(source);
    assert_eq!(player.next()?, ('A', last), "the source is gone");
    Ok(())
}

/// While a viewer takes a keyframe slowly, its ring keeps room for the pictures that others depend on.
#[test]
fn pictures_without_dependants_are_the_first_without_room() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    let connection = connection()?;
    set_socket_send_buffer_size(&connection.0, 4096)?;
    set_socket_recv_buffer_size(&connection.1, 4096)?;
    let (_viewer, _player) = view_by(&stream, Framing::LengthPrefixed.into(), connection, None, Vec::new())?;
    // 16 of the 256 slots, and nobody reads.
    source.key(500_000);
    let started = Instant::now();
    while stream.snapshot().viewers.iter().all(|viewer| viewer.sink.bytes == 0) {
        assert!(started.elapsed() < TIMEOUT, "the keyframe is not committed");
    }
    for _ in 0..80 {
        source.picture(100);
        (0..3).for_each(|_| source.leaf(100));
    }
    let viewers = stream.snapshot().viewers;
    let [viewer] = &viewers[..] else { return Err("one viewer".into()) };
    assert_eq!(viewer.offered[..4], [1, 80, 0, 240], "a picture that had no room would end the group");
    assert_eq!(viewer.missed, 240 - 96, "half of the ring is for all of them");
    Ok(())
}

#[test]
fn rings_are_used_again() -> Result<()> {
    let (_hub, stream) = hub(HubConfig { max_viewers: 2, ..HubConfig::default() })?;
    let mut source = Source::new(&stream)?;
    let (_first, mut player) = view(&stream)?;
    for _ in 0..50 {
        let key = source.key(1000);
        assert_eq!(player.next()?, ('V', key));
        let deadline = Instant::now() + TIMEOUT;
        // The engine lets go of a ring when the connection has ended.
        let (_viewer, mut other) = loop {
            match view(&stream) {
                Ok(viewer) => break viewer,
                Err(error) => assert!(Instant::now() < deadline, "the ring was never given back: {error}"),
            }
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(other.next()?, ('V', key));
        let refused = view(&stream).map(|_| ());
        assert!(refused.is_err_and(|error| error.to_string().contains("max_viewers")));
    }
    Ok(())
}

#[test]
fn one_publishes_at_a_time_and_viewers_outlive_it() -> Result<()> {
    let (hub, stream) = hub(HubConfig { max_streams: 1, ..HubConfig::default() })?;
    assert!(matches!(hub.stream("other"), Err(HubError::TooManyStreams(1))));
    let mut source = Source::new(&stream)?;
    assert!(matches!(stream.publish("second", None), Err(HubError::Busy(_))));
    let (viewer, mut player) = view(&stream)?;
    let key = source.key(1000);
    assert_eq!(player.next()?, ('V', key));
    drop(source);
    let mut source = Source::new(&stream)?;
    source.picture(1000);
    assert!(viewer.ended().is_none());
    let key = source.key(1000);
    let mut got = player.next()?;
    if got.1 != key {
        got = player.next()?;
    }
    assert_eq!(got, ('V', key));
    Ok(())
}

#[test]
fn a_paused_viewer_gets_nothing_and_goes_on_with_a_keyframe() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    let (viewer, mut player) = view(&stream)?;
    let key = source.key(1000);
    assert_eq!(player.next()?, ('V', key));
    viewer.pause();
    source.picture(1000);
    source.key(1000);
    assert_eq!(player.soon()?, None);
    viewer.resume();
    source.picture(1000);
    let key = source.key(1000);
    assert_eq!(player.next()?, ('V', key));
    Ok(())
}

#[test]
fn prefaces_and_answers_stand_between_records() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    // An answer is a record of its own here, so that the reader can follow.
    let answer = |number: u32| {
        let mut bytes = 5u32.to_be_bytes().to_vec();
        bytes.push(b'R');
        bytes.extend(number.to_be_bytes());
        bytes
    };
    let (viewer, mut player) = view_from(&stream, None, answer(0))?;
    assert_eq!(player.next()?, ('R', 0));
    for number in 1..200 {
        source.key(20_000);
        viewer.interject(answer(number));
    }
    let mut answers = 0;
    while answers < 199 {
        if let ('R', number) = player.next()? {
            answers += 1;
            assert_eq!(number, answers);
        }
    }
    Ok(())
}

#[test]
fn a_viewer_that_leaves_is_forgotten() -> Result<()> {
    let (_hub, stream) = hub(HubConfig::default())?;
    let mut source = Source::new(&stream)?;
    let (viewer, mut player) = view(&stream)?;
    source.key(1000);
    player.next()?;
    player.socket.write_all(b"")?;
    drop(player);
    let deadline = Instant::now() + TIMEOUT;
    while viewer.ended().is_none() {
        source.key(1000);
        assert!(Instant::now() < deadline, "its end was not noticed");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(5));
    }
    source.key(1000);
    assert!(stream.snapshot().viewers.is_empty());
    Ok(())
}

#[test]
fn a_stream_that_nobody_uses_ends() -> Result<()> {
    let timeout = Duration::from_secs(30);
    let hub = Hub::new(HubConfig { max_streams: 3, unused_timeout: timeout, ..HubConfig::default() })?;
    let kept = hub.stream("kept")?;
    drop(kept);
    let begin = Instant::now();
    let publisher = hub.publish("passing", "test", None)?;
    assert!(hub.end_unused(begin + 10 * timeout).is_empty(), "it has a publisher");
    assert!(matches!(hub.publish("passing", "another", None), Err(HubError::Busy(_))));
    let stream = hub.find("passing").ok_or("it is there")?;
    let (viewer, _player) = view(&stream)?;
    drop((stream, publisher));
    assert!(hub.end_unused(begin + 20 * timeout).is_empty(), "it has a viewer");
    drop(viewer);
    let unused = begin + 30 * timeout;
    assert!(hub.end_unused(unused).is_empty());
    assert!(hub.end_unused(unused + timeout / 2).is_empty());
    drop(hub.publish("passing", "it comes back", None)?);
    assert_eq!(hub.end_unused(unused + timeout), ["passing"]);
    assert!(hub.find("passing").is_none() && hub.find("kept").is_some());
    Ok(())
}

#[test]
fn names_that_nobody_uses_take_no_place() -> Result<()> {
    let hub = Hub::new(HubConfig { max_streams: 3, ..HubConfig::default() })?;
    hub.stream("kept")?;
    let held = hub.publish("held", "test", None)?;
    for number in 0..100 {
        drop(hub.publish(&format!("encoder-{number}"), "test", None)?);
        assert!(hub.streams().len() <= 3);
    }
    let _last = hub.publish("last", "test", None)?;
    assert!(matches!(hub.publish("one more", "test", None), Err(HubError::TooManyStreams(3))));
    drop(held);
    hub.publish("one more", "test", None)?;
    assert!(hub.find("kept").is_some());
    Ok(())
}
