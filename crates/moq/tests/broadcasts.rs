//! Broadcasts over a relay in this process: ours as upstream's libraries read them, and hostile ones as we read them.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits in real time")]

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use freshwire_media::unit::{AudioCodec, AudioTrack, VideoCodec, VideoTrack};
use freshwire_moq::relay::{Relay, RelayConfig, RelayIdentity};
use freshwire_moq::{Announcement, MAX_FRAME_BYTES, MoqError, Subscription, TrackReader, TrackWriter};
use moq_net::Timestamp;
use url::Url;

/// A busy machine may be late by much.
const PATIENCE: Duration = Duration::from_secs(20);

/// Parameter sets of 64 x 48 samples, as x264 writes them.
const SPS: [u8; 21] =
    [0x67, 0x42, 0xc0, 0x0a, 0xda, 0x11, 0xec, 4, 0x40, 0, 0, 3, 0, 0x40, 0, 0, 0x0c, 0xa3, 0xc4, 0x89, 0xa8];
const PPS: [u8; 4] = [0x68, 0xce, 0x0f, 0xc8];

/// A relay on a free port; the address of a path at it.
async fn relay() -> Url {
    // Its HTTP server takes the number that UDP has.
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = RelayConfig {
        listen,
        identity: RelayIdentity::Generated(vec!["127.0.0.1".to_owned()]),
        key: None,
        public: vec!["**".to_owned()],
        public_read: Vec::new(),
        peers: Vec::new(),
    };
    let relay = Relay::open(&config).await.unwrap();
    tokio::spawn(relay.run());
    format!("http://{listen}/demo").parse().unwrap()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what} takes longer than {PATIENCE:?}"))
}

/// Waits until somebody reads the track.
async fn used(track: &TrackWriter) {
    let demand = track.demand();
    let is_used = async {
        while !demand.is_used() {
            // Pause: until the next look.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the demand", is_used).await;
}

/// The first frames of a track. A track counts as read while somebody waits for its frames.
async fn frames(
    opening: impl Future<Output = Result<TrackReader, MoqError>>,
    count: usize,
) -> Vec<freshwire_moq::Frame> {
    let mut reader = opening.await.expect("it can be read");
    let mut frames = Vec::new();
    while frames.len() < count {
        frames.push(reader.next().await.expect("it goes on").expect("a frame"));
    }
    frames
}

/// A picture: a key with its sets, or one that depends on the one before. `number` is in its bytes.
fn picture(is_key: bool, number: u8) -> Vec<u8> {
    let nal = |nal: &[u8]| [&[0, 0, 0, 1], nal].concat();
    if is_key {
        [nal(&SPS), nal(&PPS), nal(&[0x65, 0x88, number])].concat()
    } else {
        nal(&[0x41, 0x9a, number])
    }
}

fn track() -> VideoTrack {
    let codec = VideoCodec::H264 { sps: SPS.to_vec(), pps: PPS.to_vec() };
    VideoTrack { codec, width: 64, height: 48 }
}

#[tokio::test(flavor = "multi_thread")]
async fn units_come_out_as_they_went_in() {
    let url = relay().await;
    let zero = SystemTime::now() - Duration::from_secs(10);
    let announcement = Announcement::open(&url, "live", zero).await.unwrap();
    let mut main = announcement.video("main", &track(), Some(500_000)).unwrap();
    let sound = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 2 };
    let mut sound = announcement.audio("audio", &sound).unwrap();
    announcement.announce().unwrap();
    let mut subscription = soon("the broadcast", Subscription::open(&url, "live")).await.unwrap();
    let listing = soon("its catalog", subscription.listing()).await.unwrap();
    let [video] = &listing.video[..] else { panic!("{listing:?}") };
    assert_eq!((video.name.as_str(), video.size, video.rate), ("main", Some((64, 48)), Some(500_000)));
    let apart = listing.zero.unwrap().duration_since(zero).unwrap_or_else(|error| error.duration());
    assert!(apart < Duration::from_millis(1), "{apart:?}");
    assert!(!main.demand().is_used(), "nobody reads it");
    let reader = tokio::spawn(frames(subscription.video(video), 4));
    used(&main).await;
    for (number, is_key) in [(0, true), (1, false), (2, false), (3, true)] {
        main.write(10_000_000 + 40_000 * u64::from(number), picture(is_key, number)).unwrap();
    }
    let read = soon("the pictures", reader).await.unwrap();
    for (frame, (number, is_key)) in read.iter().zip([(0, true), (1, false), (2, false), (3, true)]) {
        assert_eq!((frame.micros, frame.is_key), (10_000_000 + 40_000 * u64::from(number), is_key));
        assert_eq!(frame.bytes, picture(is_key, number));
    }
    let listener = tokio::spawn(frames(subscription.sound(&listing.sound.unwrap()), 1));
    used(&sound).await;
    for number in 0..10 {
        sound.write(10_000_000 + 20_000 * number, vec![0xfc, number as u8]).unwrap();
    }
    let heard = soon("sound", listener).await.unwrap();
    assert!(heard[0].bytes[0] == 0xfc && heard[0].bytes[1] < 10, "{heard:?}");
    drop((announcement, main, sound));
    let end = soon("the end", async {
        loop {
            if let Err(error) = subscription.listing().await {
                return error;
            }
        }
    });
    assert!(matches!(end.await, MoqError::Over | MoqError::Catalog(_) | MoqError::Ended(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_to_do() {
    let url = relay().await;
    let nobody = soon("a refusal", Subscription::open(&url, "nothing")).await.err().unwrap();
    assert!(matches!(&nobody, MoqError::Unannounced { name, .. } if name == "nothing"), "{nobody}");
    // Nothing listens there.
    let closed: Url = "https://127.0.0.1:9/demo".parse().unwrap();
    let closed = soon("a refusal", Subscription::open(&closed, "live")).await.err().unwrap();
    assert!(matches!(&closed, MoqError::Connect(_)), "{closed}");
    // The certificate is of no authority.
    let mut unknown = url.clone();
    unknown.set_scheme("https").unwrap();
    let unknown = soon("a refusal", Subscription::open(&unknown, "live")).await.err().unwrap();
    assert!(matches!(&unknown, MoqError::Connect(_)), "{unknown}");
}

/// A publisher without our code: it can do what it likes.
struct Publisher {
    _connection: moq_tokio::Connection,
    broadcast: moq_net::broadcast::Producer,
}

impl Publisher {
    async fn new(url: &Url, catalog: &str) -> Self {
        let origin = moq_tokio::origin::spawn();
        let client = moq_tokio::connect::Config::default().init(Default::default()).unwrap();
        let connection = client.with_publisher(&origin).connect(url.clone()).established().await.unwrap();
        let broadcast = origin.create_broadcast("live").unwrap();
        let track =
            broadcast.create_track(hang::Catalog::DEFAULT_NAME, hang::Catalog::default_track_info()).unwrap();
        let mut group = track.append_group().unwrap();
        group.write_frame(Timestamp::now(), catalog.to_owned()).unwrap();
        group.finish().unwrap();
        broadcast.announce(Default::default()).unwrap();
        // The track lives as long as somebody can write it.
        std::mem::forget(track);
        Self { _connection: connection, broadcast }
    }

    fn track(&self, name: &str) -> moq_net::track::Producer {
        self.broadcast.create_track(name, hang::container::track_info(60)).unwrap()
    }
}

const CATALOG: &str =
    r#"{"video": {"renditions": {"v": {"codec": "avc3.42c00a", "codedWidth": 64, "codedHeight": 48}}}}"#;

fn frame(millis: u64, payload: Vec<u8>) -> hang::container::Frame {
    let timestamp = Timestamp::from_millis(millis).unwrap();
    hang::container::Frame { timestamp, payload: Bytes::from(payload) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_never_ends_is_left_behind() {
    let url = relay().await;
    let publisher = Publisher::new(&url, CATALOG).await;
    let track = publisher.track("v");
    let mut subscription = soon("the broadcast", Subscription::open(&url, "live")).await.unwrap();
    let listing = soon("its catalog", subscription.listing()).await.unwrap();
    let mut open = track.append_group().unwrap();
    frame(1000, picture(true, 1)).write_to(&mut open).unwrap();
    let mut reader = soon("the track", subscription.video(&listing.video[0])).await.unwrap();
    assert_eq!(soon("a key", reader.next()).await.unwrap().unwrap().bytes, picture(true, 1));
    // The first group stays open, and others follow.
    for number in 2..6_u8 {
        let mut group = track.append_group().unwrap();
        frame(1000 * u64::from(number), picture(true, number)).write_to(&mut group).unwrap();
        group.finish().unwrap();
    }
    let next = soon("the next group", reader.next()).await.unwrap().unwrap();
    assert!(next.is_key && next.micros > 1_000_000, "{next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tracks_that_do_not_exist_and_frames_of_garbage() {
    let url = relay().await;
    let publisher = Publisher::new(&url, CATALOG).await;
    let mut subscription = soon("the broadcast", Subscription::open(&url, "live")).await.unwrap();
    let listing = soon("its catalog", subscription.listing()).await.unwrap();
    let missing = async {
        let mut reader = subscription.video(&listing.video[0]).await?;
        reader.next().await
    };
    let missing = soon("an answer", missing).await;
    assert!(matches!(&missing, Err(MoqError::Read { track, .. }) if track == "v"), "{missing:?}");
    let track = publisher.track("v");
    let mut group = track.append_group().unwrap();
    // No time, and half a time.
    group.write_frame(Timestamp::ZERO, Bytes::new()).unwrap();
    group.write_frame(Timestamp::ZERO, Bytes::from_static(&[0xff])).unwrap();
    group.finish().unwrap();
    let mut group = track.append_group().unwrap();
    frame(1000, picture(true, 7)).write_to(&mut group).unwrap();
    group.finish().unwrap();
    let mut reader = soon("the track", subscription.video(&listing.video[0])).await.unwrap();
    match soon("an answer", reader.next()).await {
        Ok(frame) => assert_eq!(frame.expect("a frame").bytes, picture(true, 7)),
        Err(error) => assert!(matches!(error, MoqError::Read { .. }), "{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_above_the_limit_is_left_out() {
    let url = relay().await;
    let publisher = Publisher::new(&url, CATALOG).await;
    let mut subscription = soon("the broadcast", Subscription::open(&url, "live")).await.unwrap();
    let listing = soon("its catalog", subscription.listing()).await.unwrap();
    let track = publisher.track("v");
    let mut group = track.append_group().unwrap();
    let too_large = [picture(false, 2), vec![1; MAX_FRAME_BYTES]].concat();
    for (number, bytes) in [(1, picture(true, 1)), (2, too_large), (3, picture(false, 3))] {
        frame(1000 * number, bytes).write_to(&mut group).unwrap();
    }
    group.finish().unwrap();
    let read = soon("two frames", frames(subscription.video(&listing.video[0]), 2)).await;
    assert_eq!([&read[0].bytes, &read[1].bytes], [&picture(true, 1), &picture(false, 3)]);
    assert_eq!(read.iter().map(|frame| frame.is_after_gap).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_without_tracks_is_a_listing_without() {
    let url = relay().await;
    let _publisher = Publisher::new(&url, "{}").await;
    let mut subscription = soon("the broadcast", Subscription::open(&url, "live")).await.unwrap();
    let listing = soon("its catalog", subscription.listing()).await.unwrap();
    assert!(listing.video.is_empty() && listing.sound.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_of_garbage_is_an_error() {
    let url = relay().await;
    let _publisher = Publisher::new(&url, "no catalog").await;
    let mut subscription = soon("the broadcast", Subscription::open(&url, "live")).await.unwrap();
    let error = soon("its catalog", subscription.listing()).await.err().unwrap();
    assert!(matches!(&error, MoqError::Catalog(_)), "{error}");
}
