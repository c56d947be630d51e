//! A picture of a few bytes that shows the one before again.
//!
//! A decoder holds pictures back, to put them into order and to work on several at once, until others come. Where the others
//! are dropped, what was sent last would wait for the next key picture; repetitions take their places.

use std::sync::Arc;

use crate::unit::{Repeat, UnitHead};

/// This number of repetitions after each sent picture is enough. Decoders work on up to 16 pictures at once,
/// and put a few into order.
const ENOUGH: usize = 20;

/// The fewest repetitions that go together: a segment of its own for each would cost a slow path more than
/// their bytes. Chosen, not measured.
const TOGETHER: usize = 5;

/// Follows what one receiver gets, and makes the repetitions for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeater {
    /// Number of the newest picture that can be repeated.
    newest: i64,
    /// How many repetitions are wanted yet.
    wanted: usize,
    /// Something was left out that later pictures depend on.
    is_broken: bool,
    /// The receiver has had repetitions since the last key, and keeps them where other pictures were.
    has_repeated: bool,
    /// Pictures whose places are to be taken.
    waiting: Vec<Arc<UnitHead>>,
}

/// The picture that is repeated has one place, and these NAL units.
pub(crate) type Repetition = (Arc<UnitHead>, Vec<Vec<u8>>);

impl Repeater {
    /// Whether the picture may be sent. After repetitions only a key may: what others refer to may have given way to them.
    pub(crate) fn allows(&self, head: &UnitHead) -> bool {
        head.key || !self.has_repeated
    }

    /// The picture is sent.
    pub(crate) fn sent(&mut self, head: &UnitHead) {
        self.waiting.clear();
        self.has_repeated &= !head.key;
        let Some(Repeat { place, .. }) = &head.repeat else {
            self.wanted = 0;
            return;
        };
        let number = place.number();
        self.is_broken &= !head.key;
        self.newest = number.unwrap_or(self.newest);
        self.wanted = if head.key && number.is_none() { 0 } else { ENOUGH };
    }

    /// The picture is not sent, and nothing that comes before it will be.
    pub(crate) fn missed(&mut self, head: Arc<UnitHead>) {
        let Some(repeat) = &head.repeat else { return };
        if head.key {
            self.wanted = 0;
        }
        // As long as the chain goes on, pictures follow that push out what a decoder holds.
        self.is_broken |= repeat.in_chain;
        if self.is_broken && self.wanted > 0 && self.waiting.len() < ENOUGH {
            self.waiting.push(head);
        }
    }

    /// The repetitions that are to go now, each with the head of the picture whose place it takes.
    pub(crate) fn repetitions(&mut self) -> Vec<Repetition> {
        if self.wanted == 0 || self.waiting.len() < TOGETHER {
            return Vec::new();
        }
        self.wanted = self.wanted.saturating_sub(self.waiting.len());
        self.has_repeated = true;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let repetition = |head: Arc<UnitHead>| {
            let nals = head.repeat.as_ref()?.place.repeat(&mut self.newest);
            (!nals.is_empty()).then_some((head, nals))
        };
        waiting.filter_map(repetition).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{decode, encode};
    use crate::video::{Coded, Format, Parser};

    fn units(stream: &[u8], format: Format) -> Vec<Coded> {
        let mut parser = Parser::new(format);
        parser.push(stream);
        parser.finish();
        parser.map(Result::unwrap).collect()
    }

    /// Decodes the first `whole` pictures, and of each group after them the first `sent` and repetitions of
    /// the others. Returns sums of the frames of each group, and the decoder's messages.
    fn shown(units: &[Coded], whole: usize, sent: usize, muxer: &str) -> (Vec<Vec<String>>, String, usize) {
        let (mut stream, mut repeater, mut frames, mut in_group) =
            (Vec::new(), Repeater::default(), Vec::new(), 0);
        let (mut repetitions, mut lost) = (0, Vec::new());
        for (number, unit) in units.iter().enumerate() {
            let head = head(unit);
            let is_lost = unit.refs.iter().any(|&back| back > 0 && lost.contains(&(number - back as usize)));
            if unit.key {
                in_group = 0;
                frames.push(0);
            }
            in_group += 1;
            if number < whole || (in_group <= sent && !is_lost) {
                assert!(repeater.allows(&head));
                *frames.last_mut().unwrap() += 1;
                repeater.sent(&head);
                stream.extend_from_slice(&unit.bytes);
            } else {
                lost.push(number);
                repeater.missed(Arc::new(head.clone()));
                for (_, nals) in repeater.repetitions() {
                    for nal in nals {
                        assert!(nal.len() < 48, "{}", nal.len());
                        stream.extend_from_slice(&[0, 0, 0, 1]);
                        stream.extend_from_slice(&nal);
                    }
                    repetitions += 1;
                    *frames.last_mut().unwrap() += 1;
                    assert!(!repeater.allows(&head));
                }
            }
        }
        let (mut sums, complaints) = decode(&stream, muxer);
        let groups = frames.into_iter().map(|count: usize| sums.drain(..count.min(sums.len())).collect());
        (groups.collect(), complaints, repetitions)
    }

    fn head(unit: &Coded) -> UnitHead {
        UnitHead {
            kind: crate::unit::Kind::Video,
            pts: Default::default(),
            dts: Default::default(),
            duration_ns: 1,
            key: unit.key,
            len: unit.bytes.len() as u32,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: unit.repeat.clone(),
            tracks: Arc::default(),
        }
    }

    /// Tries streams of this encoder with each of these options.
    fn check(format: Format, encoder: &str, muxer: &str, kinds: &[&[&str]]) {
        for options in kinds {
            let Some(stream) = encode(&[&["-c:v", encoder], *options].concat(), muxer) else { return };
            let units = units(&stream, format);
            let keys = units.iter().filter(|unit| unit.key).count();
            let is_closed = !options.iter().any(|option| option.contains("open-gop=1"));
            // That groups are open is known from the second key on.
            let whole = if is_closed { 0 } else { 17 };
            for sent in 1..8 {
                let (groups, complaints, repetitions) = shown(&units, whole, sent, muxer);
                assert_eq!(complaints, "", "{options:?}, {sent} sent");
                let least = if is_closed { keys * TOGETHER } else { 0 };
                assert!(repetitions >= least, "{options:?}: {repetitions} for {keys} groups");
                // With open groups a picture may be shown before its key, and decoded after it.
                for sums in groups.into_iter().filter(|_| is_closed) {
                    // Pictures that were sent may be shown one after another, and then only the last one.
                    let mut different: Vec<&String> = sums.iter().collect();
                    different.dedup();
                    assert!(different.len() <= sent + 2, "{options:?}, {sent} sent: {sums:?}");
                    let last = sums.last().unwrap();
                    let still = sums.iter().rev().take_while(|sum| *sum == last).count();
                    assert!(still >= 5, "{options:?}, {sent} sent: {sums:?}");
                }
            }
        }
    }

    /// Parameter sets and slice headers with any errors make repetitions of bounded size, or none.
    #[test]
    fn no_parameters_make_it_panic_or_grow() {
        let h264 = ["-c:v", "libx264", "-x264-params", "keyint=4:scenecut=0:bframes=0"];
        let h265 =
            ["-c:v", "libx265", "-x265-params", "keyint=4:scenecut=0:bframes=0:info=0:log-level=error"];
        for (options, muxer, format) in [(&h264, "h264", Format::H264), (&h265, "hevc", Format::H265)] {
            let Some(stream) = encode(&options[..], muxer) else { return };
            let begin: Vec<u8> =
                units(&stream, format).iter().take(8).flat_map(|unit| unit.bytes.clone()).collect();
            let made = |bytes: &[u8]| {
                let mut parser = Parser::new(format);
                parser.push(bytes);
                parser.finish();
                let mut repeater = Repeater { wanted: ENOUGH, is_broken: true, ..Repeater::default() };
                for unit in parser.filter_map(Result::ok) {
                    repeater.wanted = ENOUGH;
                    repeater.missed(Arc::new(UnitHead { key: false, ..head(&unit) }));
                }
                let repetitions = repeater.repetitions();
                assert!(repetitions.iter().flat_map(|(_, nals)| nals).all(|nal| nal.len() < 8192));
                repetitions.len()
            };
            assert!(made(&begin) >= TOGETHER);
            bolero::check!()
                .with_iterations(crate::testing::ITERATIONS)
                .with_type::<[(u16, u8); 4]>()
                .for_each(|changes| {
                    let mut changed = begin.clone();
                    for &(at, by) in changes {
                        changed[usize::from(at) % 150] ^= by;
                    }
                    assert!(made(&changed) <= ENOUGH);
                });
        }
    }

    #[test]
    fn a_stream_without_references_has_no_repetitions() {
        let Some(h264) = encode(&["-c:v", "libx264", "-g", "1"], "h264") else { return };
        assert!(units(&h264, Format::H264).iter().all(|unit| unit.repeat.is_none()));
        let Some(h265) = encode(&["-c:v", "libx265", "-x265-params", "keyint=1:log-level=error"], "hevc")
        else {
            return;
        };
        assert!(units(&h265, Format::H265).iter().all(|unit| unit.repeat.is_none()));
    }

    #[test]
    fn decoders_of_h265_repeat_the_last_picture_without_complaint() {
        let coded = |options: &str| format!("keyint=16:min-keyint=16:scenecut=0:log-level=error:{options}");
        let kinds = [
            ("192x128", "yuv420p", "open-gop=0"),
            ("200x120", "yuv420p", "open-gop=0:ctu=64"),
            ("200x136", "yuv420p", "open-gop=0:ctu=16:min-cu-size=8"),
            ("264x200", "yuv420p", "open-gop=0:bframes=0:sao=0:wpp=0:ctu=32"),
            ("192x128", "yuv420p10le", "open-gop=0:temporal-mvp=0:min-cu-size=16"),
            ("248x192", "yuv420p", "open-gop=0:slices=2:weightp=1"),
            ("192x128", "yuv420p", "open-gop=1"),
        ];
        for (size, pixels, options) in kinds {
            let options = coded(options);
            let options = ["-s", size, "-pix_fmt", pixels, "-x265-params", &options];
            check(Format::H265, "libx265", "hevc", &[&options]);
        }
    }

    #[test]
    fn decoders_of_h264_repeat_the_last_picture_without_complaint() {
        let kinds: [&[&str]; 8] = [
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=3:open-gop=1"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=3"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=3:b-pyramid=strict:cabac=0"],
            &["-s", "200x120", "-x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=0"],
            &["-s", "56x40", "-tune", "zerolatency", "-x264-params", "keyint=32:scenecut=0:cabac=0:slices=3"],
            &["-profile:v", "baseline", "-x264-params", "keyint=16:min-keyint=16:scenecut=0"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:ref=4:weightp=2:no-deblock=1:qp=40"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:b-pyramid=none:bframes=2:aq-mode=0"],
        ];
        check(Format::H264, "libx264", "h264", &kinds);
    }
}
