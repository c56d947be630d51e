use super::*;
use std::io::Read;
use std::net::TcpListener;

fn pair(address: &str) -> io::Result<(TcpSocket, TcpStream)> {
    let listener = TcpListener::bind(address)?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    Ok((TcpSocket::new(stream)?, listener.accept()?.0))
}

fn send(socket: &TcpSocket, parts: &[&[u8]]) -> io::Result<Option<usize>> {
    let slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part.as_ptr(), part.len())).collect();
    // SAFETY: the parts are borrowed for the whole call.
    unsafe { socket.send(&slices) }
}

#[test]
fn slices_arrive_in_order_over_both_families() -> io::Result<()> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (socket, mut peer) = pair(address)?;
        assert_eq!(send(&socket, &[b"late ", b"data ", b"choice"])?, Some(16));
        socket.finish()?;
        let mut text = String::new();
        peer.read_to_string(&mut text)?;
        assert_eq!(text, "late data choice");
    }
    Ok(())
}

#[test]
fn a_full_socket_is_a_value_and_its_queue_is_visible() -> io::Result<()> {
    let (socket, _peer) = pair("127.0.0.1:0")?;
    let block = vec![0u8; 1 << 20];
    let mut written = 0u64;
    while let Some(sent) = send(&socket, &[&block])? {
        written += sent as u64;
    }
    let info = socket.info()?;
    assert!(written > 0);
    assert!(socket.unacknowledged()? >= socket.unsent()?);
    assert!(info.unsent > 0, "nobody reads, so something is unsent: {info:?}");
    assert!(info.bytes_sent <= written);
    Ok(())
}

#[test]
fn an_unknown_congestion_control_is_an_error() -> io::Result<()> {
    let (socket, _peer) = pair("127.0.0.1:0")?;
    assert!(socket.set_congestion("no-such-control").is_err());
    let own = socket.congestion()?;
    assert!(available_congestion_controls()?.contains(&own));
    socket.set_congestion(&own)
}

#[test]
fn an_abort_resets_the_peer_while_a_clone_is_open() -> io::Result<()> {
    let (socket, mut peer) = pair("127.0.0.1:0")?;
    let mut clone = TcpStream::from(socket.0.try_clone()?);
    send(&socket, &[b"x"])?;
    socket.abort()?;
    drop(socket);
    let mut bytes = Vec::new();
    let error = peer.read_to_end(&mut bytes).map_err(|error| error.kind());
    assert_eq!(error, Err(io::ErrorKind::ConnectionReset));
    assert!(clone.read(&mut [0]).is_err(), "the clone is of no more use");
    Ok(())
}

#[test]
fn a_clone_keeps_blocking_and_a_full_socket_does_not_wait() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (mut clone, mut peer) = (stream.try_clone()?, listener.accept()?.0);
    let socket = TcpSocket::new(stream)?;
    let block = vec![0; 1 << 20];
    while socket.write(&block)?.is_some() {}
    let answer = std::thread::spawn(move || -> io::Result<()> {
        // Pause: the peer reads late.
        std::thread::sleep(Duration::from_millis(50));
        io::Write::write_all(&mut peer, b"read")
    });
    let mut text = [0; 4];
    clone.read_exact(&mut text)?;
    assert_eq!(&text, b"read", "it waited for that");
    answer.join().map_err(|_| io::Error::other("the peer panicked"))?
}

#[test]
fn the_kernel_says_when_bytes_were_acknowledged() -> io::Result<()> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (socket, mut peer) = pair(address)?;
        send(&socket, &[b"before"])?;
        let Some(ahead) = socket.tell_ack_times()? else { return Ok(()) };
        let (mut times, mut written) = (Vec::new(), 0);
        for _ in 0..3 {
            let before = crate::now();
            send(&socket, &[&[7; 100]])?;
            written += 100;
            peer.read_exact(&mut [0; 100])?;
            let read = crate::now();
            // Asked late, and true all the same.
            // Pause: the acknowledgement is to come later than the write.
            std::thread::sleep(Duration::from_millis(30));
            times.clear();
            socket.ack_times(&mut times)?;
            let last =
                times.last().copied().ok_or_else(|| io::Error::other("no acknowledgement was told"))?;
            assert_eq!(last.bytes.wrapping_sub(ahead), written);
            assert!(
                last.at >= before && last.at < read + Duration::from_millis(25),
                "{last:?} after {before}"
            );
        }
        times.clear();
        socket.ack_times(&mut times)?;
        assert!(times.is_empty());
    }
    Ok(())
}

#[test]
fn the_window_of_the_peer_is_visible() -> io::Result<()> {
    let (socket, _peer) = pair("127.0.0.1:0")?;
    let Some(before) = socket.info()?.window else { return Ok(()) };
    assert!(before > 16_000, "{before}");
    // Nobody reads, so it closes, with the acknowledgements.
    let deadline = crate::now() + Duration::from_secs(5);
    while socket.info()?.window.is_some_and(|window| window >= before / 2) {
        socket.write(&[0; 100_000])?;
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
        assert!(crate::now() < deadline, "{:?}", socket.info()?);
    }
    Ok(())
}

#[test]
fn an_aborted_socket_resets_its_peer() -> io::Result<()> {
    let (socket, mut peer) = pair("127.0.0.1:0")?;
    send(&socket, &[b"x"])?;
    socket.abort_on_close()?;
    drop(socket);
    let mut bytes = Vec::new();
    let error = peer.read_to_end(&mut bytes).map_err(|error| error.kind());
    assert_eq!(error, Err(io::ErrorKind::ConnectionReset));
    Ok(())
}
