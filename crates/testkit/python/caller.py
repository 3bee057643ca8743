"""An unmodified gRPC client: calls one target at a steady rate and writes down each call.

One JSON object a line into --out, as each call ends: "start" and "end" (seconds since the epoch),
"ok", and "by" (who answered) or "code" and "why". GRPC_XDS_BOOTSTRAP in the environment names the
bootstrap file for xds:/// targets. With --csds PORT it tells there what it was sent (CSDS). Says "called" after the first answer. Ends on SIGTERM, when the
calls in flight have ended.
"""
import argparse
import asyncio
import json
import os
import signal
import sys
import time
from concurrent import futures

import grpc
from google.protobuf.wrappers_pb2 import StringValue

METHOD = "/waypost.test.Greeter/Hello"


async def worker(call, out, pace, deadline, stop, rest):
    """One call at a time, one start every `pace` seconds at most, the first after `rest` seconds."""
    first = True
    while not await is_set_within(stop, rest):
        began, record = time.time(), {}
        try:
            answer = await call(StringValue(), timeout=deadline)
            record = {"ok": True, "by": answer.value}
        except grpc.aio.AioRpcError as error:
            record = {"ok": False, "code": error.code().name, "why": error.details()}
        out.write(json.dumps({"start": began, "end": time.time(), **record}) + "\n")
        if first and record["ok"]:
            print("called", flush=True)
            first = False
        rest = began + pace - time.time()


async def is_set_within(event, seconds):
    if seconds > 0:
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except asyncio.TimeoutError:
            pass
    return event.is_set()


def tell_own_status(port):
    """Serves what this process's xDS clients were sent."""
    import grpc_csds

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    grpc_csds.add_csds_servicer(server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    # Kept for as long as the process lives.
    tell_own_status.server = server


async def main(args):
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    # Transparent retries of calls that never reached a server stay on, as every client has them;
    # retries by policy are off unless the service's configuration asks for them.
    if args.csds:
        tell_own_status(args.csds)
    async with grpc.aio.insecure_channel(args.target) as channel:
        with open(args.out, "a", buffering=1) as out:
            call = channel.unary_unary(
                METHOD, StringValue.SerializeToString, StringValue.FromString
            )
            try:
                await call(StringValue(), timeout=args.first, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                raise SystemExit(f"no first answer: {error.code().name}: {error.details()}")
            pace = args.concurrency / args.rate
            # One after the other: together they would call in bursts, with nothing in flight between.
            starts = (number / args.rate for number in range(args.concurrency))
            await asyncio.gather(
                *(worker(call, out, pace, args.deadline, stop, start) for start in starts)
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--rate", type=float, default=100.0, help="calls a second, all together")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds for one call")
    parser.add_argument("--first", type=float, default=30.0, help="seconds for the first answer")
    parser.add_argument("--csds", type=int, default=0, help="a port for CSDS; 0 for none")
    asyncio.run(main(parser.parse_args()))
    # Everything is written down. What gRPC's own threads do at the interpreter's end is not waited for.
    sys.stdout.flush()
    os._exit(0)
