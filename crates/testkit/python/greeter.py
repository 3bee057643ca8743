"""A gRPC server that answers with its own name: one server for each port given.

No generated code: a generic handler with bytes in and bytes out. Says "serving PORT" for each port.
"""
import argparse
import asyncio

import grpc

METHOD = "/waypost.test.Greeter/Hello"


class Greeter(grpc.GenericRpcHandler):
    def __init__(self, name, delay):
        self.name, self.delay = name.encode(), delay

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.hello) if details.method == METHOD else None

    async def hello(self, _request, _context):
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.name


async def main(args):
    servers = []
    for port in args.port:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Greeter(f"{args.host}:{port}", args.delay),))
        # Two servers must never share a port: a test would not know who answered.
        if server.add_insecure_port(f"{args.host}:{port}") != port:
            raise SystemExit(f"cannot listen on {args.host}:{port}")
        await server.start()
        print(f"serving {port}", flush=True)
        servers.append(server)
    await asyncio.gather(*(server.wait_for_termination() for server in servers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, action="append", required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each answer takes")
    asyncio.run(main(parser.parse_args()))
