use std::cell::Cell;

use super::*;

/// A core without a socket, and a platform on which nothing ever comes.
#[derive(Default)]
struct Nothing {
    activity: Activity,
    polls: u32,
}

struct Still(Cell<u64>);

impl Protocol for Nothing {
    type Socket = ();

    fn socket(&self) -> &() {
        &()
    }

    fn receive(&mut self, _clock: &dyn Fn() -> Timestamp) -> bool {
        self.polls += 1;
        false
    }

    fn receive_of_group(&mut self, _clock: &dyn Fn() -> Timestamp, _token: u64) {}

    fn on_wake_up(&mut self, _now: Timestamp, _is_called: bool) {}

    fn advance(&mut self, _now: Timestamp) {}

    fn due(&self, _now: Timestamp) -> Timestamp {
        Timestamp::MAX
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn fail(&mut self, _now: Timestamp, _error: &io::Error) {}

    fn activity(&mut self) -> &mut Activity {
        &mut self.activity
    }
}

impl Still {
    /// Lets time pass.
    fn pass(&self, time: Duration) {
        self.0.set(self.0.get() + time.as_nanos() as u64);
    }
}

impl Platform<()> for Still {
    /// Each look takes a microsecond.
    fn now(&self) -> Timestamp {
        self.pass(Duration::from_micros(1));
        Timestamp::from_nanos(self.0.get())
    }

    fn wait_node(&self, _timeout: Option<Duration>, _readable: &mut Vec<u64>) -> io::Result<bool> {
        unreachable!("there is no thread of the node")
    }

    fn wait_application(&self, timeout: Duration) -> io::Result<bool> {
        self.pass(timeout);
        Ok(false)
    }

    fn wake_node(&self) {}

    fn wake_application(&self) {}

    fn watch(&self, _socket: &(), _interest: Interest) -> io::Result<()> {
        Ok(())
    }
}

fn driver(busy_poll: Option<Duration>) -> Driver<Nothing, Still> {
    let busy_poll = BusyPoll::with_processors(busy_poll, 2);
    Driver::new(Nothing::default(), Still(Cell::new(1_000_000)), busy_poll)
}

#[test]
fn a_thread_that_drives_notifies_the_others_before_it_waits_again() {
    let driver = driver(None);
    let mut guard = driver.lock();
    guard.state.claim();
    guard.state.release(driver.platform.now(), true);
    guard.activity().note();
    let mut asked = 0;
    let mut guard = driver.wait(guard, &Condvar::new(), Timestamp::MAX, |_| {
        asked += 1;
        asked == 2
    });
    assert!(!guard.activity().take_new());
}

#[test]
fn busy_polling_can_be_limited_and_turned_off() {
    for (limit, expected) in [(None, 0..1), (Some(Duration::from_micros(10)), 2..12)] {
        let driver = driver(limit);
        let give_up = driver.platform.now() + Duration::from_millis(5);
        let guard = driver.wait(driver.lock(), &Condvar::new(), give_up, |_| false);
        assert!(expected.contains(&guard.polls), "{limit:?}: {}", guard.polls);
    }
}
