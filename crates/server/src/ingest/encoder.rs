//! The encoders of ffmpeg that make a ladder's renditions, and what each of them needs.

use std::path::Path;
use std::process::Stdio;

use freshwire_media::unit::VideoCodec;

use super::error::SourceError;
use super::program;
use crate::config::{Codec, Encoder, EncoderProfile, KNOWN, Place};

/// Keyframes are forced by time. The distance in pictures is only the longest one: some encoders have 12 by default.
const QUICK: [&str; 4] = ["-bf", "0", "-g", "250"];
/// The first graphics processor.
const RENDER_NODE: &str = "/dev/dri/renderD128";

/// The device of NVIDIA's driver.
const NVIDIA_CONTROL: &str = "/dev/nvidiactl";

impl Encoder {
    /// The one that encodes to this codec if none is named.
    pub(super) fn default_for(codec: &VideoCodec) -> Option<Self> {
        let codec = Codec::of(codec)?;
        let known = KNOWN.iter().find(|known| known.codec == codec)?;
        Some(Self { known, device: None })
    }

    /// Whether it makes this codec: all renditions of a stream are of one.
    pub(super) fn check_codec(&self, codec: &VideoCodec) -> Result<(), SourceError> {
        if Codec::of(codec) == Some(self.known.codec) {
            return Ok(());
        }
        let of_codec = |known: &&EncoderProfile| Codec::of(codec) == Some(known.codec);
        let others: Vec<_> = KNOWN.iter().filter(of_codec).map(|known| known.name).collect();
        Err(SourceError::Encoder(format!(
            "{} makes {}, which the stream is not; name one of {} instead",
            self.name(),
            self.known.codec,
            others.join(", ")
        )))
    }

    /// Whether this machine has what it needs: its device, and an ffmpeg that knows it.
    pub(super) async fn check(&self) -> Result<(), SourceError> {
        self.check_device().map_err(SourceError::Encoder)?;
        let mut command = program::command();
        let output = command.arg("-encoders").stdin(Stdio::null()).output().await;
        let output = output.map_err(|error| SourceError::Program { program: program::FFMPEG, error })?;
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let listed: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        if listed.contains(&self.name()) {
            return Ok(());
        }
        let same = KNOWN.iter().filter(|known| known.codec == self.known.codec);
        let there: Vec<_> = same.map(|known| known.name).filter(|name| listed.contains(name)).collect();
        let there = if there.is_empty() { "none of them".to_owned() } else { there.join(", ") };
        Err(SourceError::Encoder(format!(
            "this ffmpeg has no encoder {}; of those for {} it has {there}: name another one with `encoder`, or install an ffmpeg \
             that has it",
            self.name(),
            self.known.codec
        )))
    }

    fn check_device(&self) -> Result<(), String> {
        let open = |path: &str| {
            std::fs::OpenOptions::new().read(true).write(true).open(path).map(|_| ()).map_err(|error| {
                let help = match error.kind() {
                    std::io::ErrorKind::NotFound => {
                        "install its driver, or name another one with `encoder_device`"
                    }
                    _ => "let the server use it: the groups render and video own such devices",
                };
                format!(
                    "{} needs {path}: {error}; {help}; the service needs a drop-in (docs/packages.md)",
                    self.name()
                )
            })
        };
        match self.known.place {
            Place::Processor => Ok(()),
            Place::Vaapi | Place::QuickSync => open(self.node()),
            Place::Nvidia => open(NVIDIA_CONTROL),
            Place::Video4Linux if has_video_device(Path::new("/dev")) => Ok(()),
            Place::Video4Linux => Err(format!(
                "{} needs a device /dev/video*, and there is none; load its driver; the service needs a drop-in (docs/packages.md)",
                self.name()
            )),
        }
    }

    fn node(&self) -> &str {
        self.device.as_deref().unwrap_or(RENDER_NODE)
    }

    /// ffmpeg's arguments before the input.
    pub(super) fn device_arguments(&self) -> Vec<String> {
        let devices = match self.known.place {
            Place::Vaapi => vec![format!("vaapi=hw:{}", self.node())],
            Place::QuickSync => vec![format!("vaapi=va:{}", self.node()), "qsv=hw@va".to_owned()],
            Place::Processor | Place::Nvidia | Place::Video4Linux => return Vec::new(),
        };
        let devices = devices.into_iter().flat_map(|device| ["-init_hw_device".to_owned(), device]);
        devices.chain(["-filter_hw_device".to_owned(), "hw".to_owned()]).collect()
    }

    /// The filters between a picture in memory and the encoder.
    pub(super) fn filter(&self) -> &'static str {
        match self.known.place {
            Place::Processor | Place::Nvidia | Place::Video4Linux => "format=yuv420p",
            Place::Vaapi => "format=nv12,hwupload",
            Place::QuickSync => "format=nv12",
        }
    }

    /// ffmpeg's arguments of an output that it encodes.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["-c:v", self.name()];
        arguments.extend(QUICK);
        arguments.extend(self.known.options);
        if let (Place::Nvidia, Some(number)) = (self.known.place, &self.device) {
            arguments.extend(["-gpu", number]);
        }
        arguments
    }
}

fn has_video_device(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("video"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn names_and_devices_are_checked() {
        for known in &KNOWN {
            let encoder = Encoder::new(known.name, None).expect("it is known");
            assert_eq!(encoder.name(), known.name);
            assert!(Encoder::new(known.name, Some("a:b")).is_err(), "{}", known.name);
        }
        let error = Encoder::new("x264", None).unwrap_err().to_string();
        assert!(error.starts_with("\"x264\" is no encoder for a ladder; write one of libx264, "), "{error}");
        assert!(Encoder::new("libx264", Some("/dev/dri/renderD128")).is_err());
        let second = Encoder::new("h264_vaapi", Some("/dev/dri/renderD129")).unwrap();
        assert_eq!(
            second.device_arguments(),
            ["-init_hw_device", "vaapi=hw:/dev/dri/renderD129", "-filter_hw_device", "hw"]
        );
        let second = Encoder::new("hevc_nvenc", Some("1")).unwrap();
        assert!(second.arguments().ends_with(&["-gpu", "1"]) && second.device_arguments().is_empty());
    }

    #[test]
    fn an_encoder_of_another_codec_is_refused_with_those_that_fit() {
        let h265 = VideoCodec::H265 { vps: vec![], sps: vec![], pps: vec![] };
        let error = Encoder::new("h264_vaapi", None).unwrap().check_codec(&h265).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "h264_vaapi makes H.264, which the stream is not; name one of libx265, hevc_vaapi"
            )
        );
        assert_eq!(Encoder::default_for(&h265).map(|encoder| encoder.name()), Some("libx265"));
    }

    #[test]
    fn a_device_that_is_missing_is_named() {
        for name in ["h264_vaapi", "h264_qsv"] {
            let encoder = Encoder::new(name, Some("/nowhere/renderD7")).unwrap();
            let error = encoder.check_device().unwrap_err();
            assert!(error.starts_with(&format!("{name} needs /nowhere/renderD7: No such file")), "{error}");
        }
        assert!(!has_video_device(Path::new("/proc/self/fd")) && !has_video_device(Path::new("/nowhere")));
    }

    /// Each private option of an encoder is one that this machine's ffmpeg knows, as far as it has the encoder.
    #[test]
    fn ffmpeg_knows_the_options() {
        let mut found = 0;
        for known in &KNOWN {
            let mut help = Command::new("ffmpeg");
            help.args(["-hide_banner", "-h", &format!("encoder={}", known.name)]);
            let Ok(output) = help.output() else { return println!("skipped: ffmpeg is not on this machine") };
            let help = String::from_utf8_lossy(&output.stdout).into_owned();
            if !help.contains("AVOptions") {
                continue;
            }
            found += 1;
            let lines: Vec<&str> = help.lines().map(str::trim_start).collect();
            let generic = ["-sc_threshold"];
            for pair in known.options.chunks(2).filter(|pair| !generic.contains(&pair[0])) {
                let begins = |line: &&str| line.split_whitespace().next() == Some(pair[0]);
                assert!(lines.iter().any(begins), "{}: {pair:?}", known.name);
            }
        }
        println!("{found} encoders");
    }
}
