use super::*;

use std::net::{TcpListener, TcpStream};

fn pair() -> io::Result<(TcpSocket, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    Ok((TcpSocket::new(stream)?, listener.accept()?.0))
}

const GEOMETRY: Geometry = Geometry { slots: 8, block_bytes: 1024, blocks: 8, keep_acks: 0 };

/// With the module, `crates/freshwire/tests/kernel_ring` is the test; it runs in a guest.
#[test]
fn without_the_module_the_socket_returns_with_a_remedy() -> io::Result<()> {
    use std::io::Read;
    if is_loaded() {
        println!("skipped: the module is loaded");
        return Ok(());
    }
    let (socket, mut peer) = pair()?;
    let Err(Refused { socket, error }) = RingSocket::attach(socket, &GEOMETRY) else {
        panic!("the module is not loaded, and a ring was made");
    };
    assert!(matches!(error, KernelRingError::NotLoaded), "{error:?}");
    assert!(error.to_string().contains("modprobe tcp_ldc"));
    assert_eq!(socket.write(b"still TCP")?, Some(9));
    let mut bytes = [0; 9];
    peer.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"still TCP");
    let Err(Refused { error, .. }) = RingSocket::join(socket) else { panic!("there is no ring to join") };
    assert!(matches!(error, KernelRingError::NoRing(_)));
    Ok(())
}

#[test]
fn each_refusal_has_its_advice() {
    let attaching = |code| KernelRingError::of_attaching(io::Error::from_raw_os_error(code)).to_string();
    let ring = |code| KernelRingError::of_ring(io::Error::from_raw_os_error(code)).to_string();
    assert!(attaching(libc::ENOENT).contains("modprobe"));
    assert!(attaching(libc::ENOTCONN).contains("connect it first"));
    assert!(attaching(libc::EOPNOTSUPP).contains("Multipath TCP"));
    assert!(attaching(libc::EEXIST).contains("TLS"));
    assert!(ring(libc::ENOBUFS).contains("ulimit -l"));
    assert!(ring(libc::ENOMEM).contains("fewer slots"));
    assert!(ring(libc::ENOPROTOOPT).contains("older than this program"));
    assert!(ring(libc::EINVAL).contains("power of two"));
    assert!(matches!(
        KernelRingError::of_ring(io::Error::from_raw_os_error(libc::EIO)),
        KernelRingError::Io(_)
    ));
}
