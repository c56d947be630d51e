//! What a broadcast has, as its catalog says: bounded, and only what can be carried.

use std::time::{Duration, SystemTime};

use freshwire_media::unit::{AudioCodec, AudioTrack};
use freshwire_media::video::Format;
use hang::catalog::{AudioConfig, VideoConfig};

use crate::payload::Payload;

/// Renditions of pictures that are taken of a catalog: the largest. As many as a stream has.
pub const MAX_RENDITIONS: usize = 8;

/// The largest picture that is believed, in samples a side. That of level 6.2 of H.264 and H.265.
const MAX_SIDE: u32 = 16_384;

/// The longest name of a track, in bytes. Chosen, not measured.
const MAX_NAME: usize = 256;

/// What a broadcast has.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The wall time of the time 0 of its frames, if the publisher says it.
    pub zero: Option<SystemTime>,
    /// Renditions of the pictures: the largest first.
    pub video: Vec<VideoListing>,
    /// The sound: the first track that can be carried.
    pub sound: Option<SoundListing>,
    /// Tracks that are left out, with the reason, for people.
    pub refused: Vec<String>,
}

/// One rendition of the pictures.
#[derive(Clone, Debug)]
pub struct VideoListing {
    /// The name of its track.
    pub name: String,
    /// Its codec.
    pub format: Format,
    /// Width and height in samples, if the catalog says them.
    pub size: Option<(u32, u32)>,
    /// Bits per second, if the catalog says it.
    pub rate: Option<u64>,
    pub(crate) config: VideoConfig,
    pub(crate) payload: Payload,
}

/// The sound.
#[derive(Clone, Debug)]
pub struct SoundListing {
    /// The name of its track.
    pub name: String,
    /// How it is coded.
    pub track: AudioTrack,
    pub(crate) config: AudioConfig,
}

impl Listing {
    /// Reads the text of a catalog.
    ///
    /// # Errors
    ///
    /// If it is no catalog.
    pub fn parse(json: &[u8]) -> Result<Self, crate::MoqError> {
        let catalog = hang::Catalog::<()>::from_slice(json);
        catalog.map(|catalog| Self::of(&catalog)).map_err(|error| crate::MoqError::Catalog(error.to_string()))
    }

    pub(crate) fn of<E>(catalog: &hang::Catalog<E>) -> Self {
        let mut listing = Self { zero: zero(catalog.clock), ..Self::default() };
        for (name, config) in catalog.video.ranked() {
            match video(name, config) {
                Ok(_) if listing.video.len() >= MAX_RENDITIONS => {
                    listing.refuse(name, &format!("more than {MAX_RENDITIONS} renditions"));
                }
                Ok(video) => listing.video.push(video),
                Err(why) => listing.refuse(name, &why),
            }
        }
        for (name, config) in &catalog.audio.renditions {
            match sound(name, config) {
                Ok(_) if listing.sound.is_some() => listing.refuse(name, "one track of sound is carried"),
                Ok(sound) => listing.sound = Some(sound),
                Err(why) => listing.refuse(name, &why),
            }
        }
        listing
    }

    fn refuse(&mut self, name: &str, why: &str) {
        let name: String = name.chars().take(64).collect();
        self.refused.push(format!("{name:?}: {why}"));
    }
}

fn zero(clock: Option<hang::catalog::Clock>) -> Option<SystemTime> {
    let zero = clock?.wall_clock(moq_net::Timestamp::ZERO).ok()?;
    // The catalog's clock has milliseconds here; what is below them is added.
    let below = u32::try_from(clock?.wall.as_micros() % 1000).unwrap_or_default();
    zero.checked_add(Duration::from_micros(below.into()))
}

fn video(name: &str, config: &VideoConfig) -> Result<VideoListing, String> {
    check(name, config.broadcast.is_some())?;
    use hang::catalog::VideoCodec as Codec;
    let format = match &config.codec {
        Codec::H264(_) => Format::H264,
        Codec::H265(_) => Format::H265,
        Codec::AV1(_) => Format::Av1,
        Codec::VP9(_) => Format::Vp9,
        other => return Err(format!("the codec {} cannot be carried", short(other))),
    };
    let size = config.coded_width.zip(config.coded_height);
    if let Some((width, height)) = size.filter(|&(width, height)| width.max(height) > MAX_SIDE) {
        return Err(format!("{width} x {height} samples are more than {MAX_SIDE} a side"));
    }
    let payload = Payload::new(format, config.description.as_ref())?;
    let rate = config.bitrate;
    Ok(VideoListing { name: name.to_owned(), format, size, rate, config: config.clone(), payload })
}

fn sound(name: &str, config: &AudioConfig) -> Result<SoundListing, String> {
    check(name, config.broadcast.is_some())?;
    let channels = u8::try_from(config.channel_count).ok().filter(|&channels| channels > 0);
    let channels = channels.ok_or_else(|| format!("it has {} channels", config.channel_count))?;
    let (codec, rate) = match &config.codec {
        hang::catalog::AudioCodec::Opus => (AudioCodec::Opus, 48_000),
        hang::catalog::AudioCodec::AAC(_) => {
            let config = config.description.as_ref().filter(|config| config.len() >= 2);
            let config = config.ok_or("AAC without its AudioSpecificConfig (description)")?;
            (AudioCodec::Aac { config: config.to_vec() }, 0)
        }
        other => return Err(format!("the codec {} cannot be carried", short(other))),
    };
    let rate = if rate > 0 { rate } else { config.sample_rate };
    if !(1..=192_000).contains(&rate) {
        return Err(format!("{rate} samples a second"));
    }
    let track = AudioTrack { codec, rate, channels };
    Ok(SoundListing { name: name.to_owned(), track, config: config.clone() })
}

/// Whether a track of this name can be asked for.
fn check(name: &str, is_elsewhere: bool) -> Result<(), String> {
    if is_elsewhere {
        return Err("it is a track of another broadcast; name that one as a source".to_owned());
    }
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!("its name has {} bytes, of {MAX_NAME} at most", name.len()));
    }
    Ok(())
}

/// A codec as the catalog calls it, of bounded length.
fn short(codec: &impl ToString) -> String {
    codec.to_string().chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(json: &str) -> Listing {
        Listing::parse(json.as_bytes()).expect("a catalog")
    }

    /// A catalog with one rendition of these fields, and a good one.
    fn with(fields: &str) -> Listing {
        let good = r#""good": {"codec": "avc3.64001f", "codedWidth": 64, "codedHeight": 48, "container": {"kind": "legacy"}}"#;
        listing(&format!(r#"{{"video": {{"renditions": {{{good}, "bad": {{{fields}}}}}}}}}"#))
    }

    #[test]
    fn the_largest_rendition_comes_first() {
        let json = r#"{"clock": {"wall": 1000, "timescale": 1000}, "video": {"renditions": {
            "low": {"codec": "avc3.42c01e", "codedWidth": 320, "codedHeight": 180, "bitrate": 150000},
            "main": {"codec": "hev1.1.6.L93.B0", "codedWidth": 1280, "codedHeight": 720}}},
            "audio": {"renditions": {"talk": {"codec": "opus", "sampleRate": 48000, "numberOfChannels": 2}}}}"#;
        let listing = listing(json);
        let names: Vec<_> =
            listing.video.iter().map(|video| (video.name.as_str(), video.format, video.rate)).collect();
        assert_eq!(names, [("main", Format::H265, None), ("low", Format::H264, Some(150_000))]);
        let track = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 2 };
        assert_eq!(listing.sound.map(|sound| sound.track), Some(track));
        let zero = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_801);
        assert_eq!((listing.zero, listing.refused.len()), (Some(zero), 0));
    }

    #[test]
    fn a_track_that_lies_is_left_out() {
        let lies = [
            (r#""codec": "vp8""#, "the codec vp8 cannot be carried"),
            (r#""codec": "quantum""#, "the codec quantum cannot be carried"),
            (r#""codec": "avc1.64001f", "description": "0102""#, "its description is damaged"),
            (r#""codec": "hvc1.1.6.L93.B0", "description": "0102""#, "its description is damaged"),
            (
                r#""codec": "avc3.64001f", "codedWidth": 4000000000, "codedHeight": 2"#,
                "samples are more than",
            ),
            (r#""codec": "avc3.64001f", "broadcast": "./other""#, "a track of another broadcast"),
        ];
        for (fields, why) in lies {
            let listing = with(fields);
            let names: Vec<_> = listing.video.iter().map(|video| video.name.as_str()).collect();
            assert_eq!(names, ["good"], "{fields}");
            assert!(
                matches!(&listing.refused[..], [refused] if refused.contains(why)),
                "{:?}",
                listing.refused
            );
        }
        let sound = |fields: &str| {
            listing(&format!(r#"{{"audio": {{"renditions": {{"bad": {{{fields}}}}}}}}}"#)).refused.concat()
        };
        assert!(
            sound(r#""codec": "mp4a.40.2", "sampleRate": 48000, "numberOfChannels": 2"#)
                .contains("AudioSpecificConfig")
        );
        assert!(
            sound(r#""codec": "opus", "sampleRate": 48000, "numberOfChannels": 900"#)
                .contains("900 channels")
        );
        assert!(
            sound(r#""codec": "ac-3", "sampleRate": 48000, "numberOfChannels": 2"#)
                .contains("cannot be carried")
        );
    }

    #[test]
    fn a_catalog_with_many_renditions_is_cut() {
        let rendition =
            |n: u32| format!(r#""r{n}": {{"codec": "avc3.64001f", "codedWidth": {n}, "codedHeight": 2}}"#);
        let all: Vec<_> = (1..=40).map(rendition).collect();
        let listing = listing(&format!(r#"{{"video": {{"renditions": {{{}}}}}}}"#, all.join(",")));
        assert_eq!((listing.video.len(), listing.refused.len()), (MAX_RENDITIONS, 40 - MAX_RENDITIONS));
        assert_eq!(listing.video[0].name, "r40");
    }

    #[test]
    fn no_catalog_is_an_error() {
        for json in ["", "[]", "{", r#"{"video": 3}"#] {
            assert!(matches!(Listing::parse(json.as_bytes()), Err(crate::MoqError::Catalog(_))), "{json}");
        }
        assert!(Listing::parse(b"{}").expect("an empty one").video.is_empty());
    }

    #[test]
    fn any_text_is_a_listing_or_an_error() {
        bolero::check!().with_type::<(String, String, u32, Vec<u8>)>().for_each(|(name, codec, number, bytes)| {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = |text: &str| text.replace(['"', '\\'], "").replace(char::is_control, "");
            let (name, codec) = (text(name), text(codec));
            let json = format!(
                r#"{{"video": {{"renditions": {{"{name}": {{"codec": "{codec}", "codedWidth": {number}, "codedHeight": {number}}},
                    "d{name}": {{"codec": "avc1.64001f", "description": "{hex}"}}, "e{name}": {{"codec": "hvc1.1.6.L93.B0", "description": "{hex}"}},
                    "f{name}": {{"codec": "av01.0.04M.08", "description": "{hex}"}}}}}},
                    "audio": {{"renditions": {{"{name}": {{"codec": "{codec}", "sampleRate": {number}, "numberOfChannels": {number}}}}}}}}}"#
            );
            if let Ok(listing) = Listing::parse(json.as_bytes()) {
                assert!(listing.video.len() <= MAX_RENDITIONS);
                assert!(listing.video.iter().all(|video| !video.name.is_empty() && video.name.len() <= MAX_NAME));
            }
            let _ = Listing::parse(bytes);
        });
    }
}
