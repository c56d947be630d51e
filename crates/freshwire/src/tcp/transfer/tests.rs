use std::net::{TcpListener, TcpStream};

use freshwire_ring::{Consumer, Producer};

use super::*;

/// Measures until both ways were tried, then counts what is chosen of further writes: copies and references.
fn choices(copy: f64, reference: f64, writes: u32) -> (u32, u32) {
    let mut costs = Costs::default();
    let mut chosen = (0, 0);
    for write in 0..2 * FIRST_TRIALS + writes {
        let (method, is_learned) = costs.choose(0.0);
        if is_learned {
            costs.learn(method, if method == Method::Copy { copy } else { reference });
        }
        if write >= 2 * FIRST_TRIALS {
            match method {
                Method::Copy => chosen.0 += 1,
                Method::Reference => chosen.1 += 1,
            }
        }
    }
    chosen
}

#[test]
fn the_cheaper_way_is_used_and_the_other_one_tried() {
    for scale in [1e-3, 1.0, 1e3] {
        for ratio in [0.01, 0.5, 0.9, 1.1, 2.0, 100.0] {
            let (copied, by_reference) = choices(scale, scale * ratio, 100_000);
            let (used, tried) = if ratio < 1.0 { (by_reference, copied) } else { (copied, by_reference) };
            // Seven while the interval doubles, then one in 4096.
            assert!((20..=35).contains(&tried), "{scale} {ratio}: {tried} of 100,000");
            assert_eq!(used + tried, 100_000);
        }
    }
    assert_eq!(choices(1.0, f64::INFINITY, 100_000).1, choices(1.0, 2.0, 100_000).1);
}

/// Where fresh pages alone cost more than a copy, nothing is sent by reference, not even as a trial.
#[test]
fn fresh_pages_that_cost_too_much_are_not_tried() {
    let mut costs = Costs::default();
    for _ in 0..10_000 {
        let (method, is_learned) = costs.choose(f64::INFINITY);
        assert_eq!(method, Method::Copy);
        if is_learned {
            costs.learn(method, 1.0);
        }
    }
    assert_eq!(costs.choose(1.0).0, Method::Copy);
    assert_eq!(costs.choose(0.9).0, Method::Reference);
}

#[test]
fn a_change_is_noticed() {
    let mut costs = Costs::default();
    let mut run = |copy: f64, reference: f64| {
        // Some eight trials, one in 4096, until the mean follows.
        for _ in 0..100_000 {
            let (method, is_learned) = costs.choose(0.0);
            if is_learned {
                costs.learn(method, if method == Method::Copy { copy } else { reference });
            }
        }
        costs.prefers_reference()
    };
    assert!(run(1.0, 0.5));
    assert!(!run(1.0, 2.0));
    assert!(run(4.0, 2.0));
    assert!(run(4.0, 3.9));
}

/// A socket, its peer, and a region with a record in three blocks.
struct Fixture {
    near: TcpSocket,
    _far: TcpStream,
    consumer: Consumer,
    _producer: Producer,
    /// The record's pieces, by address.
    pieces: Vec<RawSlice>,
}

fn fixture() -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    let region = Region::create(&Config { rings: 1, slots: 8, block_bytes: PAGE, blocks: 8 }).unwrap();
    let (mut producer, mut consumer) = (region.producer().unwrap(), region.consumer(0).unwrap());
    let _ = producer.push(0, &vec![1; 3 * PAGE as usize], &Meta::default()).unwrap();
    let (mut records, mut pieces) = (Vec::new(), Vec::new());
    consumer.queue(1, &mut records);
    let taken = consumer.take(records[0].index).unwrap();
    consumer.slices(&taken, 0, usize::MAX, &mut pieces);
    pieces.sort_by_key(|piece| piece.ptr.addr());
    let near = TcpSocket::new(near).unwrap();
    Fixture { near, _far: listener.accept().unwrap().0, consumer, _producer: producer, pieces }
}

const PAGE: u32 = 16 << 10;

/// An engine that has measured sends by what it has measured, and one that is set sends as it is set.
#[test]
fn writes_go_the_way_that_was_chosen() {
    let Fixture { near, consumer, pieces, .. } = &fixture();
    let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece.ptr, piece.len)).collect();
    for (wanted, copy, reference, is_lent) in [
        (Transfer::Auto, 2.0, 1.0, true),
        (Transfer::Auto, 1.0, 2.0, false),
        (Transfer::Copy, 2.0, 1.0, false),
        (Transfer::Reference, 1.0, 2.0, true),
    ] {
        let stats = SinkStats::default();
        let write =
            GatheredWrite { socket: near, slices: &slices[..1], region: consumer.region(), stats: &stats };
        let mut transfers = Transfers { wanted, renewal: Some(0.0), ..Transfers::default() };
        let costs =
            Costs { copy: (copy, FIRST_TRIALS), reference: (reference, FIRST_TRIALS), ..Costs::default() };
        transfers.costs = [[costs; SIZES]; 2];
        // SAFETY: the slices are in the arena, which the fixture keeps.
        let sent = unsafe { transfers.send(write) }.unwrap().unwrap();
        let lent = stats.snapshot().bytes_by_reference;
        assert_eq!(lent, if is_lent { sent as u64 } else { 0 }, "{wanted:?} {copy} {reference}");
    }
}

#[test]
fn a_write_is_taken_apart_at_what_is_lent() {
    let Fixture { near, consumer, pieces, .. } = &fixture();
    let head = [0; 100];
    let slice = |piece: &RawSlice| IoSlice::new(piece.ptr, piece.len);
    let short = RawSlice { len: 1000, ..pieces[0] };
    let slices: Vec<_> = [IoSlice::new(head.as_ptr(), 100), slice(&short), IoSlice::new(head.as_ptr(), 100)]
        .into_iter()
        .chain(pieces.iter().map(slice))
        .chain([IoSlice::new(head.as_ptr(), 100)])
        .collect();
    let stats = SinkStats::default();
    let write = GatheredWrite { socket: near, slices: &slices, region: consumer.region(), stats: &stats };
    let mut parts = Vec::new();
    list_parts(&write, &mut parts);
    let whole = RawSlice { ptr: pieces[0].ptr, len: 3 * PAGE as usize };
    assert_eq!(parts, [Part::Copied(0..3), Part::Lent(3..6, whole), Part::Copied(6..7)]);
    let foreign = Region::create(&Config { rings: 1, slots: 8, block_bytes: PAGE, blocks: 8 }).unwrap();
    list_parts(&GatheredWrite { region: &foreign, ..write }, &mut parts);
    assert_eq!(parts, [Part::Copied(0..7)], "another region's");
}

#[test]
fn fresh_pages_have_a_price() {
    let price = measure_renewal();
    assert!(price > 0.0 && price.is_finite(), "{price} ns per byte");
}
