//! Values of brokers: mosquitto, nats-server, and peers that are none.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

#[path = "broker/hostile.rs"]
mod hostile;
#[path = "broker/mqtt.rs"]
mod mqtt;
#[path = "broker/nats.rs"]
mod nats;
#[path = "broker/programs.rs"]
mod programs;
#[path = "broker/publish.rs"]
mod publish;
#[path = "broker/rig.rs"]
mod rig;
mod testing;
