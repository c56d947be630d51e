//! Initialization segments: `ftyp` and `moov`.

use mp4_atom::{
    Atom as _, Audio, Av01, Avc3, Avcc, Codec, Colr, Dinf, Dops, Dref, DrefEntry, Encode, FixedPoint, Ftyp,
    Hdlr, Hev1, Mdhd, Mdia, Minf, Moov, Mp4a, Mvex, Mvhd, Opus, OpusChannelMapping, Smhd, Stbl, Stco, Stsd,
    Tkhd, Trak, Trex, Url, Visual, Vmhd, Vp09, VpcC, esds,
};

use super::{av1, hevc};
use crate::aac;
use crate::h264::{Colours, colours};
use crate::unit::{AudioCodec, AudioTrack, VideoCodec, VideoTrack};

/// Number of the video track in every segment.
pub(super) const VIDEO_ID: u32 = 1;
/// Number of the audio track in every segment.
pub(super) const AUDIO_ID: u32 = 2;
/// Ticks a second of the video track.
pub(super) const VIDEO_RATE: u32 = 90_000;
/// Ticks a second of Opus, whatever it was made from.
pub(super) const OPUS_RATE: u32 = 48_000;

/// A track as `moov` describes it, and its name in a MIME type's list of codecs.
#[derive(Debug)]
pub(super) struct Description {
    trak: Trak,
    pub(super) name: String,
}

impl Description {
    /// `None` if the codec's parameters cannot be read, or if the picture is too large for MP4. `is_straight`: see
    /// [`Straight`](super::straight::Straight).
    pub(super) fn video(track: &VideoTrack, is_straight: bool) -> Option<Self> {
        let width = u16::try_from(track.width).ok()?;
        let height = u16::try_from(track.height).ok()?;
        let visual = Visual { data_reference_index: 1, width, height, ..Visual::default() };
        let (codec, name) = video_codec(track, visual, is_straight)?;
        let mut trak = trak(VIDEO_ID, VIDEO_RATE, b"vide", codec);
        trak.tkhd.width = width.into();
        trak.tkhd.height = height.into();
        trak.mdia.minf.vmhd = Some(Vmhd::default());
        Some(Self { trak, name })
    }

    /// Likewise.
    pub(super) fn audio(track: &AudioTrack) -> Option<Self> {
        let rate = audio_rate(track);
        let audio = Audio {
            data_reference_index: 1,
            channel_count: track.channels.into(),
            sample_size: 16,
            // A rate that the field cannot hold is left to the codec's configuration and the time scale.
            sample_rate: FixedPoint::from(u16::try_from(rate).unwrap_or(0)),
        };
        let (codec, name) = audio_codec(track, audio)?;
        let mut trak = trak(AUDIO_ID, rate, b"soun", codec);
        trak.tkhd.volume = 1.into();
        trak.mdia.minf.smhd = Some(Smhd::default());
        Some(Self { trak, name })
    }
}

/// Ticks a second of the audio track: its samples.
pub(super) fn audio_rate(track: &AudioTrack) -> u32 {
    match track.codec {
        AudioCodec::Opus => OPUS_RATE,
        AudioCodec::Aac { .. } => track.rate.max(1),
    }
}

/// The segment for these tracks. `None` if one of them cannot be written.
pub(super) fn segment(tracks: Vec<Description>) -> Option<Vec<u8>> {
    let brands = [b"iso5", b"iso6", b"mp41"];
    let ftyp = Ftyp {
        major_brand: b"iso5".into(),
        minor_version: 512,
        compatible_brands: brands.map(Into::into).to_vec(),
    };
    let trex = |track: &Description| Trex {
        track_id: track.trak.tkhd.track_id,
        default_sample_description_index: 1,
        ..Trex::default()
    };
    let moov = Moov {
        mvhd: Mvhd { rate: 1.into(), volume: 1.into(), next_track_id: AUDIO_ID + 1, ..Mvhd::default() },
        mvex: Some(Mvex { mehd: None, trex: tracks.iter().map(trex).collect() }),
        trak: tracks.into_iter().map(|track| track.trak).collect(),
        ..Moov::default()
    };
    let mut bytes = Vec::new();
    ftyp.encode(&mut bytes).ok()?;
    moov.encode(&mut bytes).ok()?;
    Some(bytes)
}

fn trak(track_id: u32, timescale: u32, handler: &[u8; 4], codec: Codec) -> Trak {
    let dref = Dref { entries: vec![DrefEntry::Url(Url::default())] };
    let stbl = Stbl { stsd: Stsd { codecs: vec![codec] }, stco: Some(Stco::default()), ..Stbl::default() };
    Trak {
        tkhd: Tkhd { track_id, enabled: true, in_movie: true, ..Tkhd::default() },
        mdia: Mdia {
            mdhd: Mdhd { timescale, language: "und".to_owned(), ..Mdhd::default() },
            hdlr: Hdlr { handler: handler.into(), name: String::new() },
            minf: Minf { dinf: Dinf { dref }, stbl, ..Minf::default() },
        },
        ..Trak::default()
    }
}

/// The decoder configuration record of the pictures, which other containers have as well. `None` if the codec's parameters cannot be read.
pub(in crate::framing) fn video_configuration(track: &VideoTrack) -> Option<Vec<u8>> {
    let mut record = Vec::new();
    match video_codec(track, Visual::default(), false)?.0 {
        Codec::Avc3(entry) => entry.avcc.encode_body(&mut record).ok()?,
        Codec::Hev1(entry) => entry.hvcc.encode_body(&mut record).ok()?,
        Codec::Av01(entry) => entry.av1c.encode_body(&mut record).ok()?,
        Codec::Vp09(entry) => {
            entry.vpcc.encode_body(&mut record).ok()?;
            // Version and flags of the box.
            record.drain(..4);
        }
        _ => return None,
    }
    Some(record)
}

fn video_codec(track: &VideoTrack, visual: Visual, is_straight: bool) -> Option<(Codec, String)> {
    Some(match &track.codec {
        VideoCodec::H264 { sps, pps } => {
            let avcc = Avcc::new(sps, pps).ok()?;
            let name = format!(
                "avc3.{:02X}{:02X}{:02X}",
                avcc.avc_profile_indication, avcc.profile_compatibility, avcc.avc_level_indication
            );
            let colr = is_straight.then(|| described(colours(sps)));
            (Codec::Avc3(Avc3 { visual, avcc, colr, ..Avc3::default() }), name)
        }
        VideoCodec::H265 { vps, sps, pps } => {
            let hvcc = hevc::config(vps, sps, pps)?;
            let name = hevc::name(&hvcc);
            (Codec::Hev1(Hev1 { visual, hvcc, ..Hev1::default() }), name)
        }
        VideoCodec::Av1 { sequence_header } => {
            let (av1c, name) = av1::config(sequence_header)?;
            (Codec::Av01(Av01 { visual, av1c, ..Av01::default() }), name)
        }
        &VideoCodec::Vp9 { profile, bit_depth } => {
            let level = vp9_level(u64::from(track.width) * u64::from(track.height));
            // Profiles 0 and 2 are 4:2:0. The others say in their frames what they are, mostly 4:4:4.
            let chroma_subsampling = if profile % 2 == 0 { 1 } else { 3 };
            let vpcc = VpcC { profile, level, bit_depth, chroma_subsampling, ..VpcC::default() };
            let name = format!("vp09.{profile:02}.{level:02}.{bit_depth:02}");
            (Codec::Vp09(Vp09 { visual, vpcc, ..Vp09::default() }), name)
        }
    })
}

/// The colours, or those of ITU-R BT.709 if they are unknown. They must differ in words from the description
/// of a stream with reordered pictures, which has none and is taken for BT.709. Chromium makes a new decoder,
/// which does not hold pictures back as the old one had to, only if more than the parameter sets differs.
/// Transfer functions 1 and 6 are the same.
fn described(colours: Colours) -> Colr {
    const BT709: u8 = 1;
    const BT709_BY_ANOTHER_NAME: u8 = 6;
    let known = |value: u8| u16::from(if value == Colours::UNKNOWN { BT709 } else { value });
    let transfer = known(colours.transfer);
    Colr::Nclx {
        colour_primaries: known(colours.primaries),
        transfer_characteristics: if transfer == BT709.into() {
            BT709_BY_ANOTHER_NAME.into()
        } else {
            transfer
        },
        matrix_coefficients: known(colours.matrix),
        full_range_flag: colours.full_range,
    }
}

/// The lowest VP9 level, ten times its number, for pictures of `samples` at up to 60 a second.
fn vp9_level(samples: u64) -> u8 {
    const LEVELS: [(u64, u8); 7] = [
        (36_864, 11),
        (73_728, 20),
        (122_880, 21),
        (245_760, 30),
        (983_040, 40),
        (2_228_224, 41),
        (8_912_896, 51),
    ];
    LEVELS.into_iter().find(|&(most, _)| samples <= most).map_or(61, |(_, level)| level)
}

fn audio_codec(track: &AudioTrack, audio: Audio) -> Option<(Codec, String)> {
    Some(match &track.codec {
        AudioCodec::Aac { config } => {
            let name = format!("mp4a.40.{}", aac::Config::parse(config)?.signalled);
            let dec_specific = esds::DecoderSpecific { raw: config.clone(), ..Default::default() };
            let dec_config = esds::DecoderConfig {
                object_type_indication: 0x40,
                stream_type: 5,
                dec_specific: Some(dec_specific),
                ..Default::default()
            };
            let es_desc = esds::EsDescriptor { es_id: 0, dec_config, ..Default::default() };
            let esds = esds::Esds { es_desc };
            (Codec::Mp4a(Mp4a { audio, esds, btrt: None, taic: None }), name)
        }
        AudioCodec::Opus => {
            let dops = Dops {
                output_channel_count: track.channels,
                // A viewer joins in the middle, where there is nothing to skip.
                pre_skip: 0,
                input_sample_rate: OPUS_RATE,
                output_gain: 0,
                channel_mapping: opus_mapping(track.channels)?,
            };
            (Codec::Opus(Opus { audio, dops, btrt: None }), "opus".to_owned())
        }
    })
}

/// The mapping of more than two channels (RFC 7845, 5.1.1.2). `None` if there is none for this number.
fn opus_mapping(channels: u8) -> Option<Option<OpusChannelMapping>> {
    let (stream_count, coupled_count, order): (u8, u8, &[u8]) = match channels {
        1 | 2 => return Some(None),
        3 => (2, 1, &[0, 2, 1]),
        4 => (2, 2, &[0, 1, 2, 3]),
        5 => (3, 2, &[0, 4, 1, 2, 3]),
        6 => (4, 2, &[0, 4, 1, 2, 3, 5]),
        7 => (4, 3, &[0, 4, 1, 2, 3, 5, 6]),
        8 => (5, 3, &[0, 6, 1, 2, 3, 4, 5, 7]),
        _ => return None,
    };
    Some(Some(OpusChannelMapping { family: 1, stream_count, coupled_count, channel_mapping: order.to_vec() }))
}
