//! A stream of bytes on top of messages.

use std::io::{BufRead as _, ErrorKind, Read, Write};
use std::time::Duration;

use freshwire::a1::{
    ByteReader, ByteStream, ByteStreamError, ByteWriter, ConnectionConfig, MAX_STREAM_BLOCK, Node,
    NodeConfig, Qos, SinkConfig,
};
use freshwire::{SenderError, choice, now};

use super::{PATIENCE, connect, message, meta, sender};

fn node(in_order: bool, maximum: Qos) -> Node {
    let mut transport = ConnectionConfig::default();
    transport.in_order = in_order;
    let config = NodeConfig::new().unwrap().connection(transport.maximum(maximum));
    Node::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

/// Two ends, and what they need to live.
fn streams(maximum: Qos) -> (ByteStream, ByteStream, [Node; 2]) {
    let nodes = [node(true, maximum), node(true, maximum)];
    let (near, far) = connect(&nodes[0], &nodes[1]);
    (ByteStream::new(near).unwrap(), ByteStream::new(far).unwrap(), nodes)
}

fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Writes in parts of many sizes, and ends.
fn write_all(mut writer: ByteWriter, bytes: &[u8]) {
    let sizes = [1, 7, 64, 1000, 1473, 20_000, 3, MAX_STREAM_BLOCK as usize + 1];
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (now, later) = rest.split_at(rest.len().min(*size));
        writer.write_all(now).unwrap();
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    writer.finish(PATIENCE).unwrap();
}

fn read_all(mut reader: ByteReader) -> Vec<u8> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0, "it stays at its end");
    bytes
}

#[test]
fn all_bytes_arrive_in_order_both_ways_at_once() {
    // More outstanding than are kept, so that the writer waits for these as well.
    let (near, far, _nodes) = streams(Qos { outstanding: Qos::MAX_OUTSTANDING, ..Qos::default() });
    let (there, back) = (pattern(1, 5 << 20), pattern(2, 3 << 20));
    let ((near_reader, near_writer), (far_reader, far_writer)) = (near.split(), far.split());
    std::thread::scope(|scope| {
        scope.spawn(|| write_all(near_writer, &there));
        scope.spawn(|| write_all(far_writer, &back));
        let came_back = scope.spawn(|| read_all(near_reader));
        assert!(read_all(far_reader) == there);
        assert!(came_back.join().unwrap() == back);
    });
}

/// Repeats calls with short time limits, as Python does to notice signals.
fn write_in_slices(mut writer: ByteWriter, bytes: &[u8], slice: Duration) {
    writer.set_timeout(Some(slice));
    let sizes = [1, 7, 64, 1000, 1473, 20_000, 3, 65_537];
    let mut at = 0;
    while at < bytes.len() {
        let part = &bytes[at..bytes.len().min(at + sizes[at % sizes.len()])];
        match writer.write(part) {
            Ok(taken) => at += taken,
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
    }
    let give_up = now() + PATIENCE;
    while let Err(error) = writer.try_finish(slice) {
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(now() < give_up, "{error}");
    }
}

fn read_in_slices(mut reader: ByteReader, slice: Duration) -> Vec<u8> {
    reader.set_timeout(Some(slice));
    let mut bytes = Vec::new();
    loop {
        match reader.fill_buf() {
            Ok([]) => return bytes,
            Ok(found) => {
                bytes.extend_from_slice(found);
                let found = found.len();
                reader.consume(found);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
    }
}

/// The writer fills its ring, and the reader closes with repetitions on the way: neither gives a byte up.
#[test]
fn all_bytes_arrive_in_calls_of_any_length() {
    for slice in [50, 500, 5_000, 50_000].repeat(3).into_iter().map(Duration::from_micros) {
        let (near, far, _nodes) = streams(Qos::default());
        let ((near_reader, near_writer), (far_reader, far_writer)) = (near.split(), far.split());
        let (there, back) = (pattern(3, 2 << 20), pattern(4, 1 << 20));
        std::thread::scope(|scope| {
            scope.spawn(|| write_in_slices(near_writer, &there, slice));
            scope.spawn(|| write_in_slices(far_writer, &back, slice));
            let came_back = scope.spawn(|| read_in_slices(near_reader, slice));
            assert!(read_in_slices(far_reader, slice) == there, "{slice:?}");
            assert!(came_back.join().unwrap() == back, "{slice:?}");
        });
    }
}

#[test]
fn a_question_is_answered_after_its_end() {
    let (near, far, _nodes) = streams(Qos::default());
    let (near_reader, mut near_writer) = near.split();
    let (mut far_reader, far_writer) = far.split();
    near_writer.write_all(b"one\ntwo\n").unwrap();
    let mut line = String::new();
    far_reader.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    near_writer.finish(PATIENCE).unwrap();
    assert_eq!(read_all(far_reader), b"two\n");
    write_all(far_writer, b"answer");
    assert_eq!(read_all(near_reader), b"answer");
}

#[test]
fn an_unfinished_stream_is_an_unexpected_end() {
    let (mut near, mut far, _nodes) = streams(Qos::default());
    near.write_all(b"start").unwrap();
    let mut start = [0; 5];
    far.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"start");
    drop(near);
    let error = far.read(&mut start).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    let (_, mut writer) = far.split();
    let broken = (0..1000).find_map(|_| writer.write_all(&[0; 4096]).err()).expect("nobody is there");
    assert_eq!(broken.kind(), ErrorKind::BrokenPipe, "{broken}");
    let unfinished = writer.finish(PATIENCE).unwrap_err();
    assert_eq!(unfinished.kind(), ErrorKind::BrokenPipe, "{unfinished}");
}

#[test]
fn a_stalled_reader_blocks_the_writer_and_loses_nothing() {
    const BYTES: u32 = 4096;
    let few = Qos { outstanding: 2, max_send_message: BYTES, max_receive_message: BYTES, ..Qos::default() };
    let (near, far, _nodes) = streams(few);
    let ((_, mut writer), (mut reader, _far_writer)) = (near.split(), far.split());
    let soon = Duration::from_millis(20);
    reader.set_timeout(Some(soon));
    assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    writer.set_timeout(Some(soon));
    let bytes = pattern(3, 1 << 20);
    let mut written = 0;
    let error = loop {
        match writer.write(&bytes[written..written + 10]) {
            Ok(now) => written += now,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    // Two messages are with the reader; eight wait, filled up ten bytes at a time.
    let most = 10 * BYTES as usize;
    assert!((most - 2 * BYTES as usize..=most).contains(&written), "{written}");
    reader.set_timeout(None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.set_timeout(None);
            writer.write_all(&bytes[written..]).unwrap();
            writer.finish(PATIENCE).unwrap();
        });
        assert!(read_all(reader) == bytes);
    });
}

#[test]
fn it_is_finished_when_the_other_node_has_all_of_it() {
    let few = Qos { outstanding: 2, max_send_message: 4096, max_receive_message: 4096, ..Qos::default() };
    let (near, _far, _nodes) = streams(few);
    let (_reader, mut writer) = near.split();
    // Two messages and more: there is no room for the end with who does not read.
    writer.write_all(&pattern(4, 6000)).unwrap();
    let error = writer.finish(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

//= spec/a1.md A1-STR-2
#[test]
fn bytes_behind_a_missing_message_are_not_handed_out() {
    let nodes = [node(true, Qos::default()), node(true, Qos::default())];
    let (near, far) = connect(&nodes[0], &nodes[1]);
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&near, SinkConfig::new(choice::fifo())).unwrap();
    for seq in 0..3 {
        sender.push(sink.id(), b"bytes", &meta(seq)).unwrap();
    }
    message(&far);
    let mut stream = ByteStream::new(far).unwrap();
    for _ in 1..3 {
        let error = stream.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}

#[test]
fn a_connection_without_order_or_repair_is_refused() {
    let unreliable = Qos { retransmission: false, ..Qos::default() };
    let [any, lossy, far] = [node(false, Qos::default()), node(true, unreliable), node(true, Qos::default())];
    let (near, _far) = connect(&any, &far);
    assert!(matches!(ByteStream::new(near), Err(ByteStreamError::OutOfOrder)));
    let (near, _far) = connect(&lossy, &far);
    assert!(matches!(ByteStream::new(near), Err(ByteStreamError::Unreliable)));
    let (near, _far) = connect(&far, &any);
    let _first = ByteStream::new(near.clone()).unwrap();
    let second = ByteStream::new(near);
    assert!(matches!(second, Err(ByteStreamError::Sender(SenderError::HasSink))));
}
