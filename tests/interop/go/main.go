// A client and an xDS-enabled server of grpc-go, unmodified, for the proofs.
//
//	interop call  --target xds:///NAME --out FILE [--rate N] [--concurrency N] [--deadline S] [--first S]
//	interop serve --port PORT [--host IP]
//
// GRPC_XDS_BOOTSTRAP in the environment names the bootstrap file. The other languages' programs take the
// same words and write the same lines.
package main

import (
	"fmt"
	"os"
)

const (
	service = "waypost.test.Greeter"
	hello   = "Hello"
)

func main() {
	programs := map[string]func([]string) error{"call": call, "serve": serve}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: interop call|serve [FLAGS]")
		os.Exit(2)
	}
	if err := programs[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
