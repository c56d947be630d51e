//! Many connections over one socket: demultiplexing, accepting, address validation.
