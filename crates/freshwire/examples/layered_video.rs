//! Layered video for a viewer that takes half of it. The base layer gets through, and the upper layers as far
//! as there is room. Layers past their deadline are not sent.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::sink::CloseMode;
use freshwire::{Engine, Meta, PushError, RingConfig, Sender, SinkConfig, choice, now};

const LAYERS: u8 = 4;
const LAYER_BYTES: usize = 32 << 10;
const FRAMES: u32 = 40;
const FRAME_TIME: Duration = Duration::from_millis(100);
/// After this time a frame is no longer worth sending.
const DEADLINE: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let viewer = listener.accept()?.0;
    let watching = std::thread::spawn(move || watch(viewer));

    let engine = Engine::new()?.spawn()?;
    let config =
        RingConfig { slots: 256, blocks: 256, block_bytes: LAYER_BYTES as u32, ..RingConfig::default() };
    let mut sender = Sender::new(&config, &engine.handle())?;
    let sink = sender.add_sink(stream, SinkConfig::new(choice::layered(Duration::ZERO)))?;
    for frame in 0..FRAMES {
        let generated = now();
        for layer in 0..LAYERS {
            let meta = Meta {
                seq: u64::from(frame) * u64::from(LAYERS) + u64::from(layer),
                generated,
                deadline: generated + DEADLINE,
                layer,
                group: frame,
                // Each layer refines the one below it.
                refs: [u32::from(layer > 0), 0],
                ..Meta::default()
            };
            match sender.push(sink.id(), &[layer; LAYER_BYTES], &meta) {
                Ok(_) | Err(PushError::Full | PushError::OutOfBlocks) => {}
                Err(error) => return Err(error.into()),
            }
        }
        std::thread::sleep(FRAME_TIME);
    }
    for (reason, count) in sink.stats().drops {
        println!("dropped, {reason}: {count} layers");
    }
    sink.close(CloseMode::Drain, Duration::from_secs(5));
    let seen = watching.join().map_err(|_| "the viewer panicked")??;
    for (layer, count) in seen.iter().enumerate() {
        println!("layer {layer}: the viewer got {count} of {FRAMES}");
    }
    Ok(())
}

/// Reads half of what is offered, and counts whole layers.
fn watch(mut viewer: TcpStream) -> std::io::Result<[u32; LAYERS as usize]> {
    let mut seen = [0; LAYERS as usize];
    let mut record = vec![0; LAYER_BYTES];
    while viewer.read_exact(&mut record).is_ok() {
        seen[usize::from(record[0])] += 1;
        std::thread::sleep(FRAME_TIME / u32::from(LAYERS) * 2);
    }
    Ok(seen)
}
