//! Cost of a push through the C interface beside one through Rust, in one process, in turns. Prints medians.
//!
//! ```sh
//! cargo run --release -p freshwire-c --example push_cost                            # linked statically
//! cargo run --release -p freshwire-c --example push_cost target/libfreshwire/libfreshwire.so.1
//! ```
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use freshwire::engine::EngineThread;
use freshwire::{Engine, Meta, RingConfig, Sender, Sink, SinkConfig, choice, now};
use freshwire_c::*;

const BURST: u32 = 1000;
const ROUNDS: usize = 101;

/// Between bursts, and between two looks whether the last one was sent.
const PAUSE: Duration = Duration::from_millis(5);

/// The library's functions: those of this program, or of a shared library.
struct Library {
    engine_new: unsafe extern "C" fn(*mut fw_engine) -> fw_status,
    engine_free: extern "C" fn(fw_engine) -> fw_status,
    sender_new: unsafe extern "C" fn(fw_engine, *const fw_ring, *mut fw_sender) -> fw_status,
    add_sink: unsafe extern "C" fn(fw_sender, c_int, *const fw_sink_config, *mut fw_sink) -> fw_status,
    push: unsafe extern "C" fn(fw_sink, *const u8, usize, *const fw_meta, *mut u64) -> fw_status,
    stats: unsafe extern "C" fn(fw_sink, *mut fw_stats) -> fw_status,
}

impl Library {
    fn linked() -> Self {
        Self {
            engine_new: fw_engine_new,
            engine_free: fw_engine_free,
            sender_new: fw_sender_new,
            add_sink: fw_sender_add_sink,
            push: fw_sink_push,
            stats: fw_sink_stats,
        }
    }

    fn load(path: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let path = CString::new(path)?;
        // SAFETY: the library's constructors are those of Rust's standard library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(format!("{} cannot be loaded", path.to_string_lossy()).into());
        }
        let symbol = |name: &CStr| -> Result<*mut c_void, String> {
            // SAFETY: the handle is open, and is never closed.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if address.is_null() { Err(format!("it lacks {}", name.to_string_lossy())) } else { Ok(address) }
        };
        let (new, free) = (symbol(c"fw_engine_new")?, symbol(c"fw_engine_free")?);
        let (sender, sink) = (symbol(c"fw_sender_new")?, symbol(c"fw_sender_add_sink")?);
        let (push, stats) = (symbol(c"fw_sink_push")?, symbol(c"fw_sink_stats")?);
        // SAFETY: the functions of a library of this version have these types.
        #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
        Ok(unsafe {
            Self {
                engine_new: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut fw_engine) -> fw_status,
                >(new),
                engine_free: std::mem::transmute::<*mut c_void, extern "C" fn(fw_engine) -> fw_status>(free),
                sender_new: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(fw_engine, *const fw_ring, *mut fw_sender) -> fw_status,
                >(sender),
                add_sink: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(fw_sender, c_int, *const fw_sink_config, *mut fw_sink) -> fw_status,
                >(sink),
                push: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(fw_sink, *const u8, usize, *const fw_meta, *mut u64) -> fw_status,
                >(push),
                stats: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(fw_sink, *mut fw_stats) -> fw_status,
                >(stats),
            }
        })
    }
}

/// A connection whose far end is drained.
fn connection() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let mut far = listener.accept()?.0;
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while far.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    Ok(near)
}

fn ring(sinks: u32) -> RingConfig {
    RingConfig { rings: sinks, slots: 4096, block_bytes: 1400, blocks: 8192 }
}

/// Sinks through Rust.
struct Rust {
    sender: Sender,
    sinks: Vec<Sink>,
    pushed: u64,
    _engine: EngineThread,
}

impl Rust {
    fn new(sinks: u32) -> Result<Self, Box<dyn std::error::Error>> {
        let engine = Engine::new()?.spawn()?;
        let mut sender = Sender::new(&ring(sinks), &engine.handle())?;
        let mut made = Vec::new();
        for _ in 0..sinks {
            made.push(sender.add_sink(connection()?, SinkConfig::new(choice::fifo()).ack_fates(false))?);
        }
        Ok(Self { sender, sinks: made, pushed: 0, _engine: engine })
    }

    fn burst(&mut self, payload: &[u8]) -> Result<f64, Box<dyn std::error::Error>> {
        let finished = || self.sinks.iter().map(|sink| sink.stats().finished).sum::<u64>();
        while finished() < self.pushed {
            std::thread::sleep(PAUSE);
        }
        self.pushed += u64::from(BURST);
        let start = Instant::now();
        for sink in self.sinks.iter().cycle().take(BURST as usize) {
            self.sender.push(sink.id(), payload, &Meta { generated: now(), ..Meta::default() })?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(BURST))
    }
}

/// Sinks through C.
struct C<'a> {
    library: &'a Library,
    engine: fw_engine,
    sinks: Vec<fw_sink>,
    pushed: u64,
}

impl<'a> C<'a> {
    fn new(library: &'a Library, sinks: u32) -> std::io::Result<Self> {
        let (mut engine, mut sender) = (fw_engine::default(), fw_sender::default());
        let sizes = fw_ring::from(ring(sinks));
        let config = fw_sink_config { ack_fates: 0, ..fw_sink_config_default() };
        // SAFETY: every pointer is to a local value.
        #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
        unsafe {
            assert_eq!((library.engine_new)(&raw mut engine), fw_status::FW_OK);
            assert_eq!((library.sender_new)(engine, &raw const sizes, &raw mut sender), fw_status::FW_OK);
        }
        let mut made = Vec::new();
        for _ in 0..sinks {
            let (stream, mut sink) = (connection()?, fw_sink::default());
            // SAFETY: every pointer is to a local value.
            let added =
                unsafe { (library.add_sink)(sender, stream.as_raw_fd(), &raw const config, &raw mut sink) };
            assert_eq!(added, fw_status::FW_OK);
            made.push(sink);
        }
        Ok(Self { library, engine, sinks: made, pushed: 0 })
    }

    fn finished(&self) -> u64 {
        let of = |sink: &fw_sink| {
            let mut stats = fw_stats::default();
            // SAFETY: the counters are a local value.
            let read = unsafe { (self.library.stats)(*sink, &raw mut stats) };
            assert_eq!(read, fw_status::FW_OK);
            stats.finished
        };
        self.sinks.iter().map(of).sum()
    }

    fn burst(&mut self, payload: &[u8]) -> f64 {
        while self.finished() < self.pushed {
            std::thread::sleep(PAUSE);
        }
        self.pushed += u64::from(BURST);
        let (null, nothing) = (std::ptr::null(), std::ptr::null_mut());
        let start = Instant::now();
        for &sink in self.sinks.iter().cycle().take(BURST as usize) {
            // SAFETY: the payload is a local value.
            let pushed = unsafe { (self.library.push)(sink, payload.as_ptr(), payload.len(), null, nothing) };
            assert_eq!(pushed, fw_status::FW_OK);
        }
        start.elapsed().as_nanos() as f64 / f64::from(BURST)
    }
}

impl Drop for C<'_> {
    fn drop(&mut self) {
        (self.library.engine_free)(self.engine);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let library = match std::env::args().nth(1) {
        Some(path) => Library::load(&path)?,
        None => Library::linked(),
    };
    for (sinks, bytes) in [(1, 64), (1, 1400), (8, 64)] {
        let payload = vec![7; bytes];
        let (mut rust, mut c) = (Rust::new(sinks)?, C::new(&library, sinks)?);
        let (mut of_rust, mut of_c) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            of_rust.push(rust.burst(&payload)?);
            std::thread::sleep(PAUSE);
            of_c.push(c.burst(&payload));
            std::thread::sleep(PAUSE);
        }
        let (rust, c) = (median(of_rust), median(of_c));
        println!("{sinks} sinks, {bytes} bytes: Rust {rust:.0} ns, C {c:.0} ns, ratio {:.3}", c / rust);
    }
    Ok(())
}
