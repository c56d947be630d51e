//! Every mechanism delivers every byte, to a fast receiver and to one whose socket is often full.
use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;

use super::{Mechanism, Pages, Picture};

const TIMES: u32 = 40;
const CONNECTIONS: usize = 5;

/// Not a whole number of pages or segments.
fn bytes() -> Vec<u8> {
    (0..61_234_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A connection, and what its receiver gets. A small send buffer is full again and again.
fn connect(listener: &TcpListener, piece: usize) -> (TcpStream, JoinHandle<Vec<u8>>) {
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 16 << 10).unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut received, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match far.read(&mut buffer).unwrap() {
                0 => return received,
                read => received.extend_from_slice(&buffer[..read]),
            }
        }
    });
    (near, receiver)
}

fn check(mechanism: Mechanism, picture: &Picture, times: u32, pipe_pages: Option<usize>) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pieces = [1 << 16, 100, 1 << 16, 1000, 1 << 20];
    let (near, receivers): (Vec<_>, Vec<_>) =
        pieces[..CONNECTIONS].iter().map(|&piece| connect(&listener, piece)).unzip();
    let account = mechanism.send_through(&near, picture, times, pipe_pages)?;
    for socket in &near {
        socket.shutdown(Shutdown::Write)?;
    }
    let expected = picture.bytes().repeat(times as usize);
    for receiver in receivers {
        assert!(receiver.join().unwrap() == expected, "{mechanism}: other bytes");
    }
    assert!(account.system_calls > 0, "{mechanism}");
    Ok(())
}

#[test]
fn every_byte_arrives() {
    let picture = Picture::new(&bytes()).unwrap();
    for mechanism in Mechanism::ALL {
        match check(mechanism, &picture, TIMES, None) {
            Ok(()) => {}
            // A sandbox without io_uring, or a kernel without bundles.
            Err(error)
                if (matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
                    || error.kind() == io::ErrorKind::Unsupported)
                    && std::env::var_os("CI").is_none() =>
            {
                println!("skipped: {mechanism}: {error}");
            }
            Err(error) => panic!("{mechanism}: {error}"),
        }
    }
}

#[test]
fn every_byte_arrives_from_any_file_and_through_any_pipe() {
    // 100 pages, less a piece.
    let bytes = bytes().repeat(7)[..400_000].to_vec();
    for pages in [Pages::Memory, Pages::InOrder, Pages::Scattered] {
        let picture = Picture::with_pages(&bytes, pages).unwrap();
        assert!(picture.mapped() == bytes, "{}", pages.name());
        if let Some(adjacent) = picture.adjacent() {
            let expected = if pages == Pages::Scattered { 0.0..=0.1 } else { 0.0..=1.0 };
            assert!(expected.contains(&adjacent), "{}: {adjacent}", pages.name());
        }
        check(Mechanism::Sendfile, &picture, 2, None).unwrap();
        for pipe in [1, 8, 64, 128] {
            check(Mechanism::Splice, &picture, 2, Some(pipe)).unwrap();
        }
    }
}

#[test]
fn names_are_read_back() {
    for mechanism in Mechanism::ALL {
        assert_eq!(mechanism.to_string().parse(), Ok(mechanism));
    }
    assert!("sendfil".parse::<Mechanism>().unwrap_err().contains("sendfile"));
}

#[test]
fn a_picture_has_bytes_and_no_times_send_none() {
    assert_eq!(Picture::new(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let picture = Picture::new(&[1]).unwrap();
    for mechanism in [Mechanism::Write, Mechanism::Tee] {
        assert_eq!(mechanism.send(&[], &picture, 3).unwrap().system_calls, 0, "{mechanism}");
    }
}
