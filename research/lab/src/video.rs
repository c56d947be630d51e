//! Scalable video: pictures that libvpx codes in spatial and temporal layers, and what a decoder makes of the layers that arrived.
//!
//! ```text
//!  film ─► ffmpeg ─► raw pictures ─► scalable.c (libvpx, VP9 SVC) ─► layer frames with their references
//!                         │                                             │ layers, by their dependencies
//!                         │                                             ▼
//!                         │                                  the schemes of `layers`, a link, a receiver
//!                         │                                             │ what arrived in time
//!                         └──────────────► SSIM ◄─────── libvpx ◄───────┘
//! ```

mod clip;
mod file;
mod ivf;
mod judge;
mod layers;

pub(crate) use clip::{Clip, Recipe};
#[cfg(test)]
pub(crate) use file::tests::two_pictures;
pub(crate) use file::{LayerFrame, Video};
pub(crate) use ivf::FPS;
pub(crate) use judge::judge;
pub(crate) use layers::{Preference, layers};
