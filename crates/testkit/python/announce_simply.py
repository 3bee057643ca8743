"""Announces one instance by the simple contract of docs/announcing.md: key, value, heartbeat; a null to
leave. Written from that page alone, with a Kafka client in pure Python.
"""
import argparse
import signal
import threading

from kafka import KafkaProducer
from waypost.v1 import announcement_pb2

parser = argparse.ArgumentParser(description=__doc__)
for flag in ("--kafka", "--topic", "--cluster", "--uri"):
    parser.add_argument(flag, required=True)
args = parser.parse_args()

stopped = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stopped.set())

producer = KafkaProducer(bootstrap_servers=args.kafka, acks="all", metadata_max_age_ms=5000)
key = args.cluster.encode() + b"\0" + args.uri.encode()
value = announcement_pb2.Announcement(
    cluster=args.cluster, uri=args.uri, heartbeat_ms=3000, ttl_ms=10000
).SerializeToString(deterministic=True)

while True:
    record = producer.send(args.topic, key=key, value=value).get(timeout=30)
    print(f"announced partition={record.partition} offset={record.offset}", flush=True)
    if stopped.wait(3):
        break
producer.send(args.topic, key=key, value=None).get(timeout=30)
print("left", flush=True)
