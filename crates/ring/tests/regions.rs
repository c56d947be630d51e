//! Making and attaching regions: limits, exhaustion, and every way in which a file can be wrong.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

#[path = "support/foreign.rs"]
mod foreign;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use freshwire_ring::{
    AttachError, ClaimError, Config, ConfigError, CreateError, MAX_BLOCK_BYTES, MAX_BLOCKS, MAX_RINGS,
    MAX_SLOTS, Meta, Region,
};
use rustix::fs::{MemfdFlags, SealFlags};

const CONFIG: Config = Config { rings: 2, slots: 8, block_bytes: 100, blocks: 16 };

/// A memory file with the bytes of a region, changed by `change`, of `len` bytes, with `seals`.
fn forged(change: impl Fn(&mut Vec<u8>), seals: SealFlags) -> OwnedFd {
    let region = Region::create(&CONFIG).unwrap();
    let mut bytes = vec![0; region.total_bytes() as usize];
    let source = File::from(region.as_fd().unwrap().try_clone_to_owned().unwrap());
    source.read_exact_at(&mut bytes, 0).unwrap();
    change(&mut bytes);
    let fd = rustix::fs::memfd_create("forged", MemfdFlags::ALLOW_SEALING).unwrap();
    let file = File::from(fd);
    file.write_all_at(&bytes, 0).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

fn attach(change: impl Fn(&mut Vec<u8>)) -> Result<Region, AttachError> {
    Region::attach(forged(change, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL))
}

fn put(at: usize, value: u32) -> impl Fn(&mut Vec<u8>) {
    move |bytes| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes())
}

#[test]
fn another_mapping_shows_the_same_records() {
    let region = Region::create(&CONFIG).unwrap();
    let fd = region.as_fd().unwrap().try_clone_to_owned().unwrap();
    let other = Region::attach(fd).unwrap();
    assert_eq!(other.config(), CONFIG);
    let mut producer = region.producer().unwrap();
    let mut sender = other.consumer(1).unwrap();
    let _ = producer.push(1, &[7; 150], &Meta::default()).unwrap();
    let mut queue = Vec::new();
    sender.queue(9, &mut queue);
    let taken = sender.take(queue[0].index).unwrap();
    let mut payload = Vec::new();
    assert_eq!(sender.copy(&taken, 0, usize::MAX, &mut payload), 150);
    assert_eq!(payload, [7; 150]);
    assert!(region.as_fd().unwrap().as_fd().try_clone_to_owned().is_ok());
    assert!(Region::heap(&CONFIG).unwrap().as_fd().is_none());
}

#[test]
fn an_honest_copy_is_accepted() {
    assert!(attach(|_| ()).is_ok());
}

#[test]
fn a_wrong_header_is_refused() {
    assert!(matches!(attach(put(0, 0)), Err(AttachError::WrongMagic)));
    assert!(matches!(attach(put(8, 99)), Err(AttachError::WrongVersion(99))));
    assert!(matches!(attach(put(12, 64)), Err(AttachError::WrongLayout)));
    assert!(matches!(attach(put(16, 64)), Err(AttachError::WrongLayout)));
    assert!(matches!(attach(put(24, 0)), Err(AttachError::Config(ConfigError::Rings(0)))));
    assert!(matches!(attach(put(28, 9)), Err(AttachError::Config(ConfigError::Slots(9)))));
    assert!(matches!(attach(put(28, 1024)), Err(AttachError::WrongSize { .. })));
    assert!(matches!(attach(put(32, u32::MAX)), Err(AttachError::Config(ConfigError::BlockBytes(_)))));
    assert!(matches!(attach(put(36, 1 << 20)), Err(AttachError::WrongSize { .. })));
    for at in [40, 44, 48, 56, 64, 72] {
        assert!(matches!(attach(put(at, 12_345)), Err(AttachError::WrongLayout)), "offset {at}");
    }
}

#[test]
fn a_wrong_file_is_refused() {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let short = Region::attach(forged(|bytes| bytes.truncate(100), seals));
    assert!(matches!(short, Err(AttachError::WrongSize { actual: 100, .. })));
    let cut = Region::attach(forged(|bytes| bytes.truncate(4096), seals));
    assert!(matches!(cut, Err(AttachError::WrongSize { actual: 4096, .. })));
    let long = Region::attach(forged(|bytes| bytes.push(0), seals));
    assert!(matches!(long, Err(AttachError::WrongSize { .. })));
    let unsealed = Region::attach(forged(|_| (), SealFlags::empty()));
    assert!(matches!(unsealed, Err(AttachError::NotSealed)));
    let half = Region::attach(forged(|_| (), SealFlags::GROW | SealFlags::SEAL));
    assert!(matches!(half, Err(AttachError::NotSealed)));
    let file = File::open("/proc/self/exe").unwrap();
    assert!(matches!(Region::attach(file.into()), Err(AttachError::NotSealed)));
}

/// What the kernel made is mapped by the program, so there is no file to check: the header alone.
fn over(change: impl Fn(&mut Vec<u8>), bytes: usize) -> Result<Region, AttachError> {
    let file = File::from(forged(change, SealFlags::SHRINK));
    foreign::map(file, bytes)
}

//= spec/ring.md R-ATTACH-5
#[test]
fn foreign_memory_with_a_wrong_header_is_refused() {
    let total = Region::bytes_for(&CONFIG).unwrap() as usize;
    assert_eq!(over(|_| (), total).unwrap().config(), CONFIG);
    assert!(matches!(over(|_| (), 4096), Err(AttachError::WrongSize { actual: 4096, .. })));
    assert!(matches!(over(|_| (), total - 4096), Err(AttachError::WrongSize { .. })));
    assert!(matches!(over(put(0, 0), total), Err(AttachError::WrongMagic)));
    assert!(matches!(over(put(8, 2), total), Err(AttachError::WrongVersion(2))));
    assert!(matches!(over(put(28, 1024), total), Err(AttachError::WrongSize { .. })));
    assert!(matches!(over(put(28, 9), total), Err(AttachError::Config(ConfigError::Slots(9)))));
    for at in [12, 16, 40, 44, 48, 56, 64, 72] {
        assert!(matches!(over(put(at, 12_345), total), Err(AttachError::WrongLayout)), "offset {at}");
    }
    // SAFETY: nothing is read of memory that does not begin at a page.
    let crooked = unsafe { Region::from_memory(std::ptr::NonNull::dangling(), total, ()) };
    assert!(matches!(crooked, Err(AttachError::Misaligned)));
}

#[test]
fn the_kernel_is_never_taken_for_dead() {
    let region = Region::create(&CONFIG).unwrap();
    let file = File::from(region.as_fd().unwrap().try_clone_to_owned().unwrap());
    let claim_of_ring_1 = 192 + 384 + 320;
    file.write_all_at(&(1_u64 << 32).to_ne_bytes(), claim_of_ring_1).unwrap();
    let user_side = foreign::view(&region).unwrap();
    assert!(matches!(user_side.consumer(1), Err(ClaimError::Kernel)));
    assert!(matches!(user_side.take_over_consumer(1), Err(ClaimError::Kernel)));
    assert!(user_side.consumer(0).is_ok());
    let _producer = user_side.producer().unwrap();
    assert!(matches!(region.producer(), Err(ClaimError::AlreadyClaimed { .. })));
    assert!(user_side.as_fd().is_none());
}

#[test]
fn foreign_memory_outlives_its_first_handle() {
    let region = Region::create(&CONFIG).unwrap();
    let user_side = foreign::view(&region).unwrap();
    let mut producer = user_side.producer().unwrap();
    drop(user_side);
    let _ = producer.push(0, b"late", &Meta::default()).unwrap();
    let mut queue = Vec::new();
    region.consumer(0).unwrap().queue(9, &mut queue);
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_region_cannot_be_shrunk_or_grown() {
    let region = Region::create(&CONFIG).unwrap();
    let fd = region.as_fd().unwrap();
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
    assert!(rustix::fs::ftruncate(fd, region.total_bytes() * 2).is_err());
    assert!(rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE).is_err());
}

#[test]
fn sizes_out_of_their_limits_are_named() {
    let error = |config: Config| match Region::create(&config) {
        Err(CreateError::Config(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(error(Config { rings: 0, ..CONFIG }), "0 rings: choose 1 to 65536");
    assert_eq!(error(Config { rings: MAX_RINGS + 1, ..CONFIG }), "65537 rings: choose 1 to 65536");
    let slots = "slots in a ring: choose a power of two from 2 to 65536";
    for count in [0, 1, 12, MAX_SLOTS * 2] {
        assert_eq!(error(Config { slots: count, ..CONFIG }), format!("{count} {slots}"));
    }
    assert!(error(Config { block_bytes: 15, ..CONFIG }).starts_with("blocks of 15 bytes: choose 16 to"));
    assert!(error(Config { block_bytes: MAX_BLOCK_BYTES + 1, ..CONFIG }).contains("choose 16 to"));
    assert!(error(Config { blocks: 0, ..CONFIG }).starts_with("0 blocks"));
    assert!(error(Config { blocks: MAX_BLOCKS + 1, ..CONFIG }).contains("choose 1 to 16777216"));
    let whole = Config { block_bytes: MAX_BLOCK_BYTES, blocks: MAX_BLOCKS, ..CONFIG };
    assert!(error(whole).contains("add up to at most"));
}

#[test]
fn exhausted_memory_is_an_error() {
    let config = Config { block_bytes: 1 << 19, blocks: 1 << 20, ..CONFIG };
    let wanted = Region::bytes_for(&config).unwrap();
    match Region::create(&config) {
        Err(CreateError::OutOfMemory { wanted: reported }) => assert_eq!(reported, wanted),
        other => panic!("half a terabyte was given: {other:?}"),
    }
}
