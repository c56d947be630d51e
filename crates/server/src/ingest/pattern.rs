//! The test picture: a moving scene with the wall clock in it, for people and for programs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use crate::config::PatternConfig;

/// How many cells the clock's strip at the lower edge has: white, black, 44 bits of milliseconds since 1970 (the highest
/// first), and their parity.
pub const CLOCK_CELLS: usize = 47;

/// Bits of the clock.
const CLOCK_BITS: usize = 44;

/// The strip's share of the picture's height: one part in this many.
const STRIP_PARTS: usize = 16;

impl PatternConfig {
    /// From one picture to the next.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.fps.max(1)
    }

    fn luma(&self) -> usize {
        self.width * self.height
    }

    /// How ffmpeg reads the pictures and codes them: in the ladder I, P, reference B, b.
    pub(super) fn encoder_arguments(&self) -> Vec<String> {
        let Self { width, height, fps, kbit, group, sound, b_pictures } = self;
        let between = if *b_pictures { 3 } else { 0 };
        let ladder = format!(
            "bframes={between}:b-adapt=0:b-pyramid=strict:scenecut=0:open-gop=0:keyint={group}:min-keyint={group}:ref=2:\
             weightp=0:mbtree=0:rc-lookahead=0:sync-lookahead=0:sliced-threads=1:repeat-headers=1:\
             vbv-maxrate={}:vbv-bufsize={}:ipratio=1.1:pbratio=1.0",
            kbit * 11 / 10,
            kbit * 3 / 10
        );
        let size = format!("{width}x{height}");
        let (rate, fps) = (format!("{kbit}k"), fps.to_string());
        let mut arguments =
            vec!["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", &size, "-r", &fps, "-i", "pipe:0"];
        if *sound {
            arguments.extend(["-f", "lavfi", "-i", "sine=frequency=330:beep_factor=3:sample_rate=48000"]);
            arguments.extend(["-map", "0:v", "-map", "1:a", "-c:a", "aac", "-b:a", "64k", "-shortest"]);
        }
        arguments.extend(["-c:v", "libx264", "-preset", "veryfast", "-profile:v", "high"]);
        arguments.extend(["-b:v", &rate, "-x264-params", &ladder]);
        arguments.into_iter().map(str::to_owned).collect()
    }
}

/// Draws pictures one after another.
pub(super) struct Pattern {
    config: PatternConfig,
    /// A scene twice as wide as the picture, over which the camera pans.
    scene: Vec<u8>,
    frame: Vec<u8>,
    count: usize,
}

impl Pattern {
    pub(super) fn new(config: &PatternConfig) -> Self {
        let PatternConfig { width, height, .. } = *config;
        let mut scene = vec![0; 2 * width * height];
        for (y, line) in scene.chunks_exact_mut(2 * width).enumerate() {
            for (x, sample) in line.iter_mut().enumerate() {
                *sample = texture(x, y);
            }
        }
        let mut frame = vec![128; config.luma() * 3 / 2];
        let (u, v) = frame[config.luma()..].split_at_mut(config.luma() / 4);
        for (at, (u, v)) in u.iter_mut().zip(v).enumerate() {
            let (x, y) = (at % (width / 2), at / (width / 2));
            *u = (96 + x * 64 / (width / 2)) as u8;
            *v = (160 - y * 64 / (height / 2)) as u8;
        }
        Self { config: config.clone(), scene, frame, count: 0 }
    }

    /// The picture of this instant: planar YUV 4:2:0.
    pub(super) fn draw(&mut self, now: SystemTime) -> &[u8] {
        let PatternConfig { width, height, fps, .. } = self.config;
        let phase = self.count as f64 / f64::from(fps);
        let shift = ((phase * 0.008).sin() * 0.5 + 0.5) * (width - 2) as f64;
        let shift = shift as usize;
        for (to, from) in
            self.frame.chunks_exact_mut(width).zip(self.scene.chunks_exact(2 * width)).take(height)
        {
            to.copy_from_slice(&from[shift..shift + width]);
        }
        let millis = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.water();
        self.ball(phase);
        self.digits(millis);
        self.strip(millis);
        self.count += 1;
        &self.frame
    }

    fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, value: u8) {
        let stride = self.config.width;
        let end = (x + width).min(stride);
        for line in self.frame[..self.config.luma()].chunks_exact_mut(stride).skip(y).take(height) {
            if let Some(samples) = line.get_mut(x..end) {
                samples.fill(value);
            }
        }
    }

    /// A stretch that sparkles: what no motion explains, so that every picture costs something.
    fn water(&mut self) {
        let PatternConfig { width, height, .. } = self.config;
        let (top, tall) = (height * 5 / 8, height / 5);
        let mut state = (self.count as u32).wrapping_mul(0x9e37_79b9) | 1;
        let lines = self.frame[..width * height].chunks_exact_mut(width).skip(top).take(tall);
        for sample in lines.flatten() {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            *sample = sample.saturating_add((state % SPARKLE) as u8);
        }
    }

    /// A bright square that bounces: its jerks show what was left out.
    fn ball(&mut self, phase: f64) {
        let PatternConfig { width, height, .. } = self.config;
        let size = height / 9;
        let place = |speed: f64, span: usize| {
            let at = (phase * speed).rem_euclid(2.0);
            ((if at > 1.0 { 2.0 - at } else { at }) * span as f64) as usize
        };
        let (x, y) = (place(0.37, width - size), place(0.53, height * 3 / 4 - size));
        self.fill(x, y, size, size, 235);
    }

    /// The time of day (UTC) in large figures.
    fn digits(&mut self, millis: u64) {
        let unit = (self.config.height / 90).max(1);
        let (top, mut left) = (4 * unit, 4 * unit);
        let text = format!(
            "{:02}:{:02}:{:02}.{:03}",
            millis / 3_600_000 % 24,
            millis / 60_000 % 60,
            millis / 1000 % 60,
            millis % 1000
        );
        self.fill(2 * unit, 2 * unit, (text.len() * 8 + 4) * unit, 16 * unit, 16);
        for character in text.chars() {
            match character.to_digit(10) {
                Some(digit) => self.figure(left, top, unit, SEGMENTS[digit as usize]),
                None => self.fill(left + 2 * unit, top + 10 * unit, 2 * unit, 2 * unit, 235),
            }
            left += 8 * unit;
        }
    }

    /// A figure of seven segments, 6 x 12 units.
    fn figure(&mut self, x: usize, y: usize, unit: usize, segments: u8) {
        let places = [
            (0, 0, 6, 2),
            (4, 0, 2, 6),
            (4, 6, 2, 6),
            (0, 10, 6, 2),
            (0, 6, 2, 6),
            (0, 0, 2, 6),
            (0, 5, 6, 2),
        ];
        for (bit, (left, top, width, height)) in places.into_iter().enumerate() {
            if segments & (1 << bit) != 0 {
                self.fill(x + left * unit, y + top * unit, width * unit, height * unit, 235);
            }
        }
    }

    fn strip(&mut self, millis: u64) {
        let PatternConfig { width, height, .. } = self.config;
        let tall = height / STRIP_PARTS;
        for (at, lit) in clock_cells(millis).into_iter().enumerate() {
            let edge = |at: usize| (at as f64 * cell_width(width)) as usize;
            self.fill(edge(at), height - tall, edge(at + 1) - edge(at), tall, if lit { 235 } else { 16 });
        }
    }
}

/// A texture with edges at all scales, the same on every machine.
fn texture(x: usize, y: usize) -> u8 {
    let (fx, fy) = (x as f64, y as f64);
    let waves = (fx * 0.021).sin() * 36.0 + (fy * 0.033).cos() * 28.0 + ((fx + 2.0 * fy) * 0.07).sin() * 14.0;
    let checks = if (x / 40 + y / 40).is_multiple_of(2) { 14.0 } else { -14.0 };
    (118.0 + waves + checks) as u8
}

fn clock_cells(millis: u64) -> [bool; CLOCK_CELLS] {
    let mut cells = [false; CLOCK_CELLS];
    cells[0] = true;
    for bit in 0..CLOCK_BITS {
        cells[2 + bit] = millis >> (CLOCK_BITS - 1 - bit) & 1 == 1;
    }
    cells[CLOCK_CELLS - 1] = millis.count_ones() % 2 == 1;
    cells
}

/// Reads the clock in a test picture: milliseconds since 1970. `luma` has `width` x `height` samples; the picture may have
/// been scaled and coded. `None` if there is no valid clock in it.
pub fn read_clock(luma: &[u8], width: usize, height: usize) -> Option<u64> {
    let line = height.checked_sub((height / STRIP_PARTS).div_ceil(2))?;
    let line = luma.get(line * width..(line + 1) * width)?;
    let lit =
        |at: usize| line.get(((at as f64 + 0.5) * cell_width(width)) as usize).map(|&sample| sample > 125);
    if !lit(0)? || lit(1)? {
        return None;
    }
    let mut millis = 0;
    for bit in 0..CLOCK_BITS {
        millis = millis << 1 | u64::from(lit(2 + bit)?);
    }
    (lit(CLOCK_CELLS - 1)? == (millis.count_ones() % 2 == 1)).then_some(millis)
}

/// Width of a cell in a picture of this width.
fn cell_width(width: usize) -> f64 {
    width as f64 / CLOCK_CELLS as f64
}

/// By how much a sample of the water is brightened at most.
const SPARKLE: u32 = 40;

/// Segments of the figures 0 to 9: top, upper right, lower right, bottom, lower left, upper left, middle.
const SEGMENTS: [u8; 10] = [0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_in_the_picture_can_be_read_at_any_size() {
        for (width, height) in [(1280, 720), (640, 360), (334, 188)] {
            let config = PatternConfig { width, height, ..PatternConfig::default() };
            let mut pattern = Pattern::new(&config);
            for millis in [0, 1, 1_800_000_000_123, (1 << CLOCK_BITS) - 1] {
                let picture = pattern.draw(UNIX_EPOCH + Duration::from_millis(millis));
                assert_eq!(read_clock(picture, width, height), Some(millis), "{width}x{height}");
                assert_eq!(picture.len(), width * height * 3 / 2);
            }
        }
    }

    #[test]
    fn a_picture_without_a_clock_has_none() {
        for value in [0, 90, 255] {
            assert_eq!(read_clock(&[value; 640 * 360], 640, 360), None);
        }
        assert_eq!(read_clock(&[], 640, 360), None);
        assert_eq!(read_clock(&[0; 4], 2, 2), None);
    }
}
