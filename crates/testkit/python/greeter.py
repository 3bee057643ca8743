"""A gRPC server that answers with its own name: one server for each port given.

No generated code: a generic handler of messages that come with protobuf. Says "serving PORT" for each port.
With --xds the server takes its configuration over xDS (GRPC_XDS_BOOTSTRAP in the environment), and serves
nothing before it has one.
"""
import argparse
import asyncio
import concurrent.futures
import signal
import threading

import grpc
from google.protobuf.wrappers_pb2 import StringValue

METHOD = "/waypost.test.Greeter/Hello"


class Greeter(grpc.GenericRpcHandler):
    def __init__(self, name, answer):
        self.name, self.answer = StringValue(value=name), answer

    def service(self, details):
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self.answer(self.name), StringValue.FromString, StringValue.SerializeToString
        )


def after(delay):
    """An answer of an asyncio server, `delay` seconds after it was asked."""

    def answer(name):
        async def hello(_request, _context):
            if delay:
                await asyncio.sleep(delay)
            return name

        return hello

    return answer


def at_once(name):
    """An answer of a server of threads."""
    return lambda _request, _context: name


async def main(args):
    servers = []
    for port in args.port:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Greeter(f"{args.host}:{port}", after(args.delay)),))
        # Two servers must never share a port: a test would not know who answered.
        if server.add_insecure_port(f"{args.host}:{port}") != port:
            raise SystemExit(f"cannot listen on {args.host}:{port}")
        await server.start()
        print(f"serving {port}", flush=True)
        servers.append(server)
    await asyncio.gather(*(server.wait_for_termination() for server in servers))


def main_xds(args):
    (port,) = args.port
    address = f"{args.host}:{port}"
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4), xds=True)
    server.add_generic_rpc_handlers((Greeter(address, at_once),))
    credentials = grpc.xds_server_credentials(grpc.insecure_server_credentials())
    # Bound when it has its configuration: the number that this gives (-1) says nothing.
    server.add_secure_port(address, credentials)
    server.start()
    # Its Python tells nobody when it begins to serve: that is when it answers.
    threading.Thread(target=say_when_it_answers, args=(address, port), daemon=True).start()
    stop.wait()
    server.stop(grace=5).wait()


def say_when_it_answers(address, port):
    # Until it serves nobody listens, and a client's pauses between its tries grow.
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
    with grpc.insecure_channel(address, options) as channel:
        hello = channel.unary_unary(
            METHOD, StringValue.SerializeToString, StringValue.FromString
        )
        while True:
            try:
                hello(StringValue(), timeout=5, wait_for_ready=True)
                break
            except grpc.RpcError:
                continue
    print(f"serving {port}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, action="append", required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each answer takes")
    parser.add_argument("--xds", action="store_true", help="an xDS-enabled server, on one port")
    args = parser.parse_args()
    main_xds(args) if args.xds else asyncio.run(main(args))
