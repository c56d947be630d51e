//! Bytes from one machine to another over A1, both ways, as `nc` carries them over TCP: encrypted, and to whom has the key.
//!
//! ```sh
//! cargo run --release --example byte_stream -- listen 0.0.0.0:5000 > copy        # says its key
//! cargo run --release --example byte_stream -- connect 192.0.2.1:5000 KEY < file
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use freshwire::a1::{ByteReader, ByteStream, ByteWriter, ConnectConfig, ConnectionConfig, Node, NodeConfig};

/// How long the other end may take to connect, or to have the last bytes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Well below the silence that ends a connection: nobody may type for a while.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (_node, connection) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", address] => {
            let node = node(address.parse()?)?;
            eprintln!("listening on {} with the key {}", node.local_addr()?, node.public_key());
            let connection = node.accept(PATIENCE)?.ok_or("nobody has connected")?;
            (node, connection)
        }
        ["connect", address, key] => {
            let node = node("0.0.0.0:0".parse()?)?;
            let connection = node.connect(address, &key.parse()?, &ConnectConfig::default())?;
            (node, connection)
        }
        _ => return Err("usage: byte_stream listen ADDRESS | byte_stream connect ADDRESS KEY".into()),
    };
    let (reader, writer) = ByteStream::new(connection)?.split();
    let sending = std::thread::spawn(|| send(writer));
    let received = receive(reader)?;
    let sent = sending.join().map_err(|_| "the sender panicked")??;
    eprintln!("sent {sent} bytes and received {received}");
    Ok(())
}

fn node(address: SocketAddr) -> Result<Node, Box<dyn Error>> {
    let mut transport = ConnectionConfig::default();
    transport.in_order = true;
    transport.keep_alive = Some(KEEP_ALIVE);
    Ok(Node::bind(address, NodeConfig::new()?.connection(transport))?)
}

/// Standard input until its end.
fn send(mut writer: ByteWriter) -> io::Result<u64> {
    let sent = io::copy(&mut io::stdin().lock(), &mut writer)?;
    writer.finish(PATIENCE)?;
    Ok(sent)
}

/// The other end's bytes until it has finished.
fn receive(mut reader: ByteReader) -> io::Result<u64> {
    let mut out = io::stdout().lock();
    let received = io::copy(&mut reader, &mut out)?;
    out.flush()?;
    Ok(received)
}
