//! The log of one machine: a durable store in a directory.
