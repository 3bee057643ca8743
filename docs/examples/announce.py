#!/usr/bin/env python3
"""Announces one instance to Waypost with nothing but a Kafka client.

Follows docs/announcing.md. Needs `pip install confluent-kafka protobuf` and the message class:

    python -m grpc_tools.protoc -I crates/proto/proto --python_out=. waypost/v1/announcement.proto

    announce.py --kafka HOST:PORT --cluster greeter --uri grpc://10.0.0.7:8080
"""

import argparse
import secrets
import signal
import threading
import time
import uuid

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Producer
from waypost.v1 import announcement_pb2


class Announcer:
    """One life of one instance, from its first announcement to its withdrawal."""

    def __init__(self, brokers, topic, cluster, uri, ttl_s=30, heartbeat_s=10):
        self.topic = topic
        self.key = cluster.encode() + b"\0" + uri.encode()
        self.content = announcement_pb2.Announcement(
            cluster=cluster,
            uri=uri,
            heartbeat_ms=int(heartbeat_s * 1000),
            ttl_ms=int(ttl_s * 1000),
        )
        self.value = None
        # Order data. An identity of this life; when it was born by the log's clock, unknown until
        # the log has answered once; how many changes it has made.
        self.life = secrets.token_hex(8)
        self.first_attempt = time.monotonic()
        self.birth_ms = None
        self.seq = 0
        self.producer = Producer(
            {
                "bootstrap.servers": brokers,
                "acks": "all",
                "enable.idempotence": True,
                # Kafka's Java client chooses partitions by murmur2; librdkafka must be told to.
                "partitioner": "murmur2_random",
                # Partitions that are added must be seen soon.
                "topic.metadata.refresh.interval.ms": 5000,
                # A heartbeat that is older than the time-to-live says nothing true.
                "message.timeout.ms": 10000,
            }
        )

    def mark_up(self, weight=1.0):
        """Announces, and once more with the birth that the first answer told."""
        self._change(weight)
        self._append("announce", self.value)
        if self.birth_ms is not None:
            self._append("announce", self.value)

    def change_weight(self, weight):
        """Announces a change: other content, the next number."""
        self.seq += 1
        self._change(weight)
        self._append("announce", self.value)

    def heartbeat(self):
        """The same record again, byte for byte."""
        self._append("announce", self.value)

    def mark_down(self):
        """Withdraws: a null value that takes the next number."""
        self.seq += 1
        self._append("withdraw", None)

    def _change(self, weight):
        self.content.partition_weights[0] = weight
        self.content.tracing_id = str(uuid.uuid4())
        self.content.origin_ms = int(time.time() * 1000)
        self.value = self.content.SerializeToString(deterministic=True)

    def _headers(self, kind):
        headers = {"waypost-kind": kind, "waypost-id": self.life, "waypost-seq": str(self.seq)}
        if self.birth_ms is None:
            age_ms = int((time.monotonic() - self.first_attempt) * 1000)
            headers["waypost-age"] = str(age_ms)
        else:
            headers["waypost-birth"] = str(self.birth_ms)
        return headers

    def _append(self, kind, value):
        """Writes one record and waits until every in-sync replica has it, or raises."""
        answer = []
        self.producer.produce(
            self.topic,
            key=self.key,
            value=value,
            headers=self._headers(kind),
            on_delivery=lambda error, message: answer.append((error, message)),
        )
        self.producer.flush()
        error, message = answer[0]
        if error is not None:
            raise RuntimeError(f"not announced: {error}")
        timestamp_type, append_ms = message.timestamp()
        if self.birth_ms is None and timestamp_type == TIMESTAMP_LOG_APPEND_TIME:
            lived_ms = int((time.monotonic() - self.first_attempt) * 1000)
            self.birth_ms = append_ms - lived_ms
        print(f"{kind} partition={message.partition()} offset={message.offset()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topic", default="waypost.announcements")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--ttl", type=float, default=30, metavar="SECONDS")
    parser.add_argument("--heartbeat", type=float, metavar="SECONDS", help="default: a third of it")
    parser.add_argument("--weight", type=float, default=1.0)
    parser.add_argument("--beats", type=int, metavar="N", help="end after N heartbeats")
    arguments = parser.parse_args()

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    interval = arguments.heartbeat or arguments.ttl / 3
    announcer = Announcer(
        arguments.kafka,
        arguments.topic,
        arguments.cluster,
        arguments.uri,
        arguments.ttl,
        interval,
    )
    announcer.mark_up(arguments.weight)
    beats = 0
    while beats != arguments.beats and not stopped.wait(interval):
        try:
            announcer.heartbeat()
        except RuntimeError as error:
            print(error, flush=True)  # Kafka is away: the next beat may get through.
        beats += 1
    announcer.mark_down()


if __name__ == "__main__":
    main()
