use std::io;
use std::time::Duration;

/// Why a broker gives no values, or no longer. Each text goes on "BROKER: ".
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokerError {
    #[error("the name of its host is not known: {0}; check it")]
    Name(io::Error),
    #[error("it cannot be reached: {0}; check host, port and firewall")]
    Connect(io::Error),
    #[error("{0}")]
    Ca(io::Error),
    #[error("no TLS session: {0}; check whether this port is the one for TLS")]
    Tls(io::Error),
    #[error(
        "its certificate is of no authority that is known here; name the PEM file of the authority with ?ca=FILE behind the address"
    )]
    UnknownAuthority,
    #[error("its certificate is not valid for this use of it: {0}; use a name that it has, or renew it")]
    Certificate(String),
    #[error("it took longer than {0:?} to {1}")]
    Slow(Duration, &'static str),
    #[error(
        "it does not take this user and password ({0}); write mqtt://USER:PASSWORD@HOST/ or nats://USER:PASSWORD@HOST/ as it knows them"
    )]
    Credentials(String),
    #[error("it does not speak this version of MQTT")]
    Version,
    #[error("it refuses the connection: {0}")]
    Refused(String),
    #[error(
        "it refuses the subscription to {filter}: {reason}; check the filter, and what the user may read"
    )]
    Subscription { filter: String, reason: String },
    #[error("it speaks no {0}: {1}; check the address, the port, and whether the port is one for TLS")]
    Protocol(&'static str, String),
    #[error(
        "it has ended the connection before an answer; check the address, the port, and whether the port is one for TLS"
    )]
    Unanswered,
    #[error("it has closed the connection")]
    Closed,
    #[error("it has sent nothing for {0:?}")]
    Silent(Duration),
    #[error("it reads nothing: {0} bytes wait for it; see what keeps the broker busy")]
    Unread(usize),
    #[error("it has ended the connection: {0}")]
    Ended(String),
    #[error("it has left out changes of the bucket, which is read anew")]
    Gap,
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// Text of another program for people: of any length and with any characters there.
pub(super) fn shown(text: &str) -> String {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if shown.is_empty() { "it gives no reason".to_owned() } else { shown }
}
