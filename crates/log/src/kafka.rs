//! The log of a fabric: topics of an Apache Kafka cluster.
