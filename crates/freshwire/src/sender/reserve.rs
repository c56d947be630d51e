//! Records that are read, received or encoded into the arena, without a copy.

use freshwire_ring::{Meta, Producer, PushError as RingError, Reservation};

use super::Sender;
use super::entry::{Route, find, find_mut};
use super::payload::Payload;
use crate::error::PushError;
use crate::sink::id::SinkId;

impl Sender {
    /// Reserves space for a record of up to `len` bytes for a sink, to be written in place and [committed](Self::commit). No
    /// system call. Without room, the policy first drops stale records, as for a push of `meta`. The space of a sink
    /// with a kernel ring is in that ring.
    ///
    /// A reservation holds memory of the arena and no place in the ring. It may be filled on another thread, while this sender
    /// queues other records.
    ///
    /// ```no_run
    /// # use freshwire::{Meta, Sender, SinkId};
    /// # fn send(sender: &mut Sender, sink: SinkId, file: &std::fs::File) -> Result<(), Box<dyn std::error::Error>> {
    /// let meta = Meta { generated: freshwire::now(), ..Meta::default() };
    /// let mut space = sender.reserve(sink, 256 << 10, &meta)?;
    /// while space.read_from(file)? > 0 {} // until the space is full, or the file ends
    /// sender.commit(sink, &mut space, &meta)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push). No record has this as its fate.
    pub fn reserve(&mut self, sink: SinkId, len: usize, meta: &Meta) -> Result<Reservation, PushError> {
        let Self { producer, engines, sinks, .. } = self;
        let entry = find_mut(sinks, sink)?;
        let reserve = |producer: &mut Producer, ring: usize| {
            producer.check_room(ring, len)?;
            producer.reserve(len)
        };
        let reserved = match &mut entry.route {
            Route::Kernel(direct) => reserve(&mut direct.producer, 0),
            _ => {
                let reserve = |producer: &mut Producer| reserve(producer, sink.ring());
                entry.push_with(producer, engines.as_ref(), len, meta, reserve)
            }
        };
        reserved.map_err(|error| PushError::of(error, sink))
    }

    /// Reserves space for a record of up to `len` bytes for several sinks, to be written in place and
    /// [committed to them](Self::commit_to_all). If the arena is full, the sinks' policies drop stale records, as for a push of `meta`.
    ///
    /// # Errors
    ///
    /// [`PushError::OutOfBlocks`] without space, [`PushError::TooLarge`] for a payload that never fits.
    pub fn reserve_for_all(
        &mut self,
        sinks: impl IntoIterator<Item = SinkId>,
        len: usize,
        meta: &Meta,
    ) -> Result<Reservation, PushError> {
        let Self { producer, engines, sinks: entries, .. } = self;
        let mut reserved = producer.reserve(len);
        for sink in sinks {
            match (&reserved, find(entries, sink)) {
                (Err(RingError::OutOfBlocks), Ok(entry)) => {
                    entry.make_room(producer, engines.as_ref(), len, meta, RingError::OutOfBlocks);
                    reserved = producer.reserve(len);
                }
                (Err(RingError::OutOfBlocks), Err(_stale)) => {}
                _ => break,
            }
        }
        reserved.map_err(|error| match error {
            RingError::OutOfBlocks => PushError::OutOfBlocks,
            _ => PushError::TooLarge,
        })
    }

    /// Queues the filled bytes of a reservation for a sink, as [`push`](Self::push) does with a copy, and returns the
    /// record's number. The rest of the space is given back, and the reservation is used up. After an error the reservation
    /// is as it was: wait, drop a record, and commit again.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), and [`PushError::ForeignReservation`] if the reservation was not made for the sink, or was
    /// committed before.
    pub fn commit(
        &mut self,
        sink: SinkId,
        reservation: &mut Reservation,
        meta: &Meta,
    ) -> Result<u64, PushError> {
        let len = reservation.len();
        self.put(sink, len, meta, |producer, ring, meta| producer.commit(ring, reservation, meta))
    }

    /// Queues the filled bytes of a reservation for several sinks, as [`push_to_all`](Self::push_to_all) does with a copy.
    /// Each kernel ring gets a copy.
    ///
    /// # Errors
    ///
    /// [`PushError::ForeignReservation`] if the reservation is not one [for several sinks](Self::reserve_for_all), or was
    /// committed before.
    pub fn commit_to_all(
        &mut self,
        sinks: impl IntoIterator<Item = SinkId>,
        reservation: Reservation,
        meta: &Meta,
    ) -> Result<usize, PushError> {
        let stored = self.producer.store_reserved(reservation);
        let stored = stored.map_err(|_foreign| PushError::ForeignReservation)?;
        self.put_to_all(sinks, Payload::from(stored), meta)
    }
}
