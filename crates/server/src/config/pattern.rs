/// The test picture and how it is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternConfig {
    /// Width in samples, even. Default 1280.
    pub width: usize,
    /// Height in samples, even. Default 720.
    pub height: usize,
    /// Pictures per second. Default 25.
    pub fps: u32,
    /// Mean rate of the encoded picture in kbit/s. Default 1000.
    pub kbit: u32,
    /// Pictures from one keyframe to the next. Default 50.
    pub group: u32,
    /// With a tone. Default true.
    pub sound: bool,
    /// With B pictures, in two layers. Default true.
    pub b_pictures: bool,
}

impl Default for PatternConfig {
    fn default() -> Self {
        Self { width: 1280, height: 720, fps: 25, kbit: 1000, group: 50, sound: true, b_pictures: true }
    }
}
