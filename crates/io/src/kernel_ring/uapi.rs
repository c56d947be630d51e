//! `linux/tcp_ldc.h` in Rust. A test compares both.

use std::ffi::c_int;

pub(super) const TCP_ULP_LDC: &[u8] = b"ldc";
pub(super) const SOL_LDC: c_int = 0x4c44;
pub(super) const LDC_RING: c_int = 1;
pub(super) const LDC_HORIZON: c_int = 2;
pub(super) const LDC_ZEROCOPY: c_int = 3;
pub(super) const LDC_LOWAT: c_int = 4;
pub(super) const LDC_STATS: c_int = 5;
pub(super) const LDC_WATCH: c_int = 6;
pub(super) const LDC_KEEP_ACKS: c_int = 7;
pub(super) const LDC_ACKS: c_int = 8;
/// In milliseconds.
pub(super) const LDC_MAX_WATCH: u32 = 1000;
pub(super) const LDC_MAX_KEEP_ACKS: u32 = 65_536;
/// `SIOCPROTOPRIVATE` of `linux/sockios.h`.
pub(super) const LDC_IOC_NOTIFY: libc::Ioctl = 0x89E0;

/// Declares a struct of the header; its fields' names are there for the test that compares them.
macro_rules! uapi_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name { $($(#[$doc])* $field_vis $field: $type,)* }

        #[cfg(test)]
        impl $name {
            pub(super) const FIELDS: &[(&str, &str)] = &[$((stringify!($field), stringify!($type)),)*];
        }
    };
}

uapi_struct! {
    /// `struct ldc_geometry`.
    #[derive(Clone, Copy, Debug, Default)]
    pub(super) struct Geometry {
        pub(super) slots: u32,
        pub(super) block_bytes: u32,
        pub(super) blocks: u32,
        pub(super) flags: u32,
        pub(super) total_bytes: u64,
    }
}

uapi_struct! {
    /// `struct ldc_ack`.
    #[derive(Clone, Copy, Debug, Default)]
    pub(super) struct Ack {
        pub(super) index: u64,
        pub(super) acked_at: u64,
    }
}

uapi_struct! {
    /// What the kernel has done with a ring's records (`struct ldc_stats`). The numbers only grow.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Stats {
        /// Times it looked for something to send.
        pub pulls: u64,
        /// Records taken from the ring.
        pub records_taken: u64,
        /// Records handed over to TCP as a whole.
        pub records_sent: u64,
        /// Records acknowledged as a whole.
        pub records_acked: u64,
        /// Records taken and put back, because of a hold or for want of memory.
        pub records_put_back: u64,
        /// Records dropped because of their deadline.
        pub dropped_expired: u64,
        /// Records dropped because the socket was closed or shut down.
        pub dropped_closed: u64,
        /// Records dropped because of their descriptor.
        pub dropped_invalid: u64,
        /// Records dropped because the connection broke.
        pub dropped_connection: u64,
        /// Payload bytes handed over to TCP.
        pub bytes: u64,
        /// Sent bytes that were not copied.
        pub bytes_zerocopy: u64,
        /// Times it went to sleep.
        pub sleeps: u64,
        /// Times it was woken.
        pub wakes: u64,
        /// Calls of [`RingSocket::notify`](super::RingSocket::notify).
        pub notifies: u64,
        /// Times it had to wait for memory.
        pub retries: u64,
        /// Records that were dropped or held while it took them.
        pub too_late: u64,
        /// Values of `user_i` that cannot be.
        pub bad_indexes: u64,
        /// State words that no honest program writes.
        pub bad_states: u64,
        /// Descriptors and blocks that lead outside of the ring.
        pub bad_descriptors: u64,
        /// Most bytes ever committed and not sent when a record was committed.
        pub horizon_max: u64,
        /// Bytes of the region.
        pub mapped_bytes: u64,
        /// Times it found the ring empty and did not sleep (`LDC_WATCH`).
        pub watches: u64,
        /// Acknowledgements kept for [`RingSocket::take_acks`](super::RingSocket::take_acks).
        pub acks_late: u64,
        /// Acknowledgements that neither the slot nor [`RingSocket::take_acks`](super::RingSocket::take_acks) tells of.
        pub acks_missed: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header's text as lines without comments.
    fn header() -> String {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../host/kernel/tcp_ldc/include/uapi/linux/tcp_ldc.h");
        let text = std::fs::read_to_string(path).expect("the header is part of the repository");
        let mut code = String::new();
        let mut rest = text.as_str();
        while let Some((before, comment)) = rest.split_once("/*") {
            code.push_str(before);
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        }
        code + rest
    }

    fn defined(header: &str, name: &str) -> String {
        let mut lines = header.lines().filter_map(|line| line.strip_prefix("#define "));
        let found =
            lines.find_map(|line| line.split_once(char::is_whitespace).filter(|(key, _)| *key == name));
        found.unwrap_or_else(|| panic!("the header does not define {name}")).1.trim().to_owned()
    }

    fn number(text: &str) -> i64 {
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        parsed.unwrap_or_else(|_| panic!("{text:?} is not a number"))
    }

    /// Names and types of a struct's fields, as Rust has them.
    fn fields(header: &str, name: &str) -> Vec<(String, String)> {
        let (_, body) = header.split_once(&format!("struct {name} {{")).expect("the struct is there");
        let body = body.split_once('}').expect("it ends").0;
        let declarations = body.split(';').filter_map(|line| line.trim().split_once(char::is_whitespace));
        declarations
            .map(|(kind, field)| {
                let kind = kind.trim_start_matches("__aligned_").trim_start_matches("__");
                (field.trim().to_owned(), kind.to_owned())
            })
            .collect()
    }

    #[test]
    fn the_numbers_are_those_of_the_header() {
        let header = header();
        for (name, value) in [
            ("SOL_LDC", SOL_LDC),
            ("LDC_RING", LDC_RING),
            ("LDC_HORIZON", LDC_HORIZON),
            ("LDC_ZEROCOPY", LDC_ZEROCOPY),
            ("LDC_LOWAT", LDC_LOWAT),
            ("LDC_STATS", LDC_STATS),
            ("LDC_WATCH", LDC_WATCH),
            ("LDC_KEEP_ACKS", LDC_KEEP_ACKS),
            ("LDC_ACKS", LDC_ACKS),
        ] {
            assert_eq!(number(&defined(&header, name)), i64::from(value), "{name}");
        }
        assert_eq!(defined(&header, "LDC_MAX_WATCH"), format!("{LDC_MAX_WATCH}U"));
        assert_eq!(defined(&header, "LDC_MAX_KEEP_ACKS"), format!("{LDC_MAX_KEEP_ACKS}U"));
        assert_eq!(defined(&header, "TCP_ULP_LDC").trim_matches('"').as_bytes(), TCP_ULP_LDC);
        assert_eq!(defined(&header, "LDC_IOC_NOTIFY"), "(SIOCPROTOPRIVATE + 0)");
    }

    #[test]
    fn the_structs_are_those_of_the_header() {
        let header = header();
        let own = |fields: &[(&str, &str)]| -> Vec<(String, String)> {
            fields.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
        };
        assert_eq!(own(Geometry::FIELDS), fields(&header, "ldc_geometry"));
        assert_eq!(own(Ack::FIELDS), fields(&header, "ldc_ack"));
        assert_eq!(own(Stats::FIELDS), fields(&header, "ldc_stats"));
        let sizes = (size_of::<Geometry>(), size_of::<Ack>(), size_of::<Stats>());
        assert_eq!(sizes, (24, 16, 8 * Stats::FIELDS.len()));
    }
}
