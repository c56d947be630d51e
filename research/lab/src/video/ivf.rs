//! Files of coded pictures, some of their layers left out, as libvpx decodes them.
//!
//! The remaining layers of a picture become a superframe (VP9 bitstream specification, annex B). Libvpx shows the highest layer of a superframe;
//! ffmpeg's own decoder would show each layer as a picture.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::file::{LayerFrame, Video};
use crate::ffmpeg::{self, Running};

/// Pictures a second of every clip. With three temporal layers that is 6.25, 12.5 and 25.
pub(crate) const FPS: u32 = 25;

/// Writes an IVF file with the first layers of each picture, `shown` of them.
pub(super) fn write(path: &Path, video: &Video, shown: &[u8]) -> anyhow::Result<()> {
    let mut file = Vec::from(*b"DKIF\0\0\x20\0VP90");
    file.extend(video.width.to_le_bytes());
    file.extend(video.height.to_le_bytes());
    file.extend(FPS.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend([0; 8]);
    for (picture, &layers) in shown.iter().enumerate().filter(|(_, layers)| **layers > 0) {
        let frames: Vec<&[u8]> =
            video.layers_of(picture, layers).iter().map(|LayerFrame { bytes, .. }| &bytes[..]).collect();
        let bytes = superframe(&frames);
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend((picture as u64).to_le_bytes());
        file.extend(bytes);
    }
    std::fs::write(path, file).with_context(|| format!("cannot write {}", path.display()))
}

/// Joins the layer frames of a picture; a single one needs no index.
fn superframe(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = frames.concat();
    if frames.len() < 2 {
        return bytes;
    }
    let largest = frames.iter().map(|frame| frame.len()).max().unwrap_or(0);
    let size_bytes = (1..4).find(|&count| largest >> (8 * count) == 0).unwrap_or(4);
    let marker = 0xc0 | (size_bytes as u8 - 1) << 3 | (frames.len() as u8 - 1);
    bytes.push(marker);
    for frame in frames {
        bytes.extend(&(frame.len() as u32).to_le_bytes()[..size_bytes]);
    }
    bytes.push(marker);
    bytes
}

/// A hash of each picture that libvpx decodes, by its number. Fails when libvpx complains.
pub(super) fn hashes(stream: &Path) -> anyhow::Result<BTreeMap<i64, String>> {
    let mut command = decoder(stream);
    command.args("-autoscale 0 -fps_mode passthrough -enc_time_base -1 -f framemd5 pipe:1".split(' '));
    let mut running = Running::start(&mut command, false, true)?;
    let mut text = String::new();
    running.output()?.read_to_string(&mut text).context("cannot read hashes")?;
    let ended = running.wait()?;
    // Nothing was shown: an empty stream is no stream to ffmpeg.
    let is_empty = std::fs::metadata(stream).is_ok_and(|about| about.len() == IVF_HEADER_BYTES);
    ensure!(
        (ended.success && ended.complaints.is_empty()) || is_empty,
        "libvpx cannot decode: {}",
        ended.complaints.join("; ")
    );
    // `0,  12,  12,  1,  345600, 89153d011174f2b402427fa580b1e45c`
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        Some((fields.get(2)?.parse().ok()?, (*fields.get(5)?).to_owned()))
    };
    Ok(text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect())
}

const IVF_HEADER_BYTES: u64 = 32;

/// An ffmpeg that decodes a file with libvpx; the output is to be added.
pub(super) fn decoder(stream: &Path) -> std::process::Command {
    let mut command = ffmpeg::command();
    command.args(["-copyts", "-c:v", "libvpx-vp9", "-f", "ivf", "-i"]).arg(ffmpeg::file(stream));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superframe_has_the_sizes_of_its_layers() {
        assert_eq!(superframe(&[&[1, 2], &[3, 4, 5]]), [1, 2, 3, 4, 5, 0xc1, 2, 3, 0xc1]);
        assert_eq!(superframe(&[&[7, 7]]), [7, 7]);
        let large = superframe(&[&[0; 256], &[0; 1], &[0; 255]]);
        assert_eq!(large[512..], [0xca, 0, 1, 1, 0, 255, 0, 0xca]);
        let larger = superframe(&[&[0; 65_536], &[0; 1]]);
        assert_eq!(larger[65_537..], [0xd1, 0, 0, 1, 1, 0, 0, 0xd1]);
    }
}
