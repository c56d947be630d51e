//! Files: what is a bare video stream is read directly, the rest through ffmpeg.

use std::path::Path;

use freshwire_media::demux::{self, Demux};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::error::SourceError;
use super::outlet::Outlet;
use super::pace::Pace;
use super::{bytes, program};

/// Enough of a file to know what it is.
const MAGIC_BYTES: usize = 4;

/// Plays a file in real time, again and again.
pub(super) async fn play(path: &Path, outlet: &Outlet) -> Result<(), SourceError> {
    let failed = |error| SourceError::Read { what: path.display().to_string(), error };
    let mut file = File::open(path).await.map_err(failed)?;
    let mut magic = [0; MAGIC_BYTES];
    let is_bare = file.read_exact(&mut magic).await.is_ok() && is_bare(magic);
    if !is_bare {
        return program::copy(path, outlet).await;
    }
    let name = path.display().to_string();
    let mut pace = Pace::real_time(bytes::wait_for(outlet, &name).await);
    let mut demux = Demux::new(demux::Config::default());
    loop {
        file.rewind().await.map_err(failed)?;
        bytes::read(&mut file, &name, &mut demux, &mut pace).await?;
        if is_ivf(magic) {
            // Its header can stand at the beginning only.
            demux.finish();
            bytes::drain(&mut demux, &mut pace).await?;
            pace.finish().await;
            return Ok(());
        }
    }
}

fn is_bare(magic: [u8; MAGIC_BYTES]) -> bool {
    magic == [0, 0, 0, 1] || magic[..3] == [0, 0, 1] && magic[3] != PACK_START || is_ivf(magic)
}

fn is_ivf(magic: [u8; MAGIC_BYTES]) -> bool {
    &magic == b"DKIF"
}

/// The byte behind the start code of an MPEG program stream, which is no bare video.
const PACK_START: u8 = 0xba;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_streams_are_known_by_their_first_bytes() {
        assert!(is_bare([0, 0, 0, 1]) && is_bare([0, 0, 1, 0x67]) && is_bare(*b"DKIF"));
        assert!(!is_bare([0, 0, 1, 0xba]) && !is_bare([0x47, 0x40, 0, 0x10]) && !is_bare([0, 0, 0, 0x20]));
    }
}
