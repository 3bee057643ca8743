package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	xdscredentials "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// greeter answers with its own name.
type greeter interface{ greet() string }

type named string

func (n named) greet() string { return string(n) }

// serve runs an xDS-enabled server until SIGTERM. Says "serving PORT" whenever it begins to serve, and
// "not serving PORT: WHY" whenever it ceases to.
func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	host := flags.String("host", "127.0.0.1", "the address to listen on")
	port := flags.Int("port", 0, "the port to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}

	address := net.JoinHostPort(*host, strconv.Itoa(*port))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fallback := xdscredentials.ServerOptions{FallbackCreds: insecure.NewCredentials()}
	credentials, err := xdscredentials.NewServerCredentials(fallback)
	if err != nil {
		return err
	}
	mode := func(_ net.Addr, change xds.ServingModeChangeArgs) {
		if change.Mode == connectivity.ServingModeServing {
			fmt.Println("serving", *port)
		} else {
			fmt.Printf("not serving %d: %v\n", *port, change.Err)
		}
	}
	server, err := xds.NewGRPCServer(grpc.Creds(credentials), xds.ServingModeCallback(mode))
	if err != nil {
		return err
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*greeter)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: hello, Handler: answer}},
	}, named(address))

	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-asked
		server.GracefulStop()
	}()
	return server.Serve(listener)
}

// answer is the handler that generated code would be.
func answer(
	srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
) (any, error) {
	request := new(wrapperspb.StringValue)
	if err := decode(request); err != nil {
		return nil, err
	}
	handle := func(context.Context, any) (any, error) {
		return wrapperspb.String(srv.(greeter).greet()), nil
	}
	if interceptor == nil {
		return handle(ctx, request)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + hello}
	return interceptor(ctx, request, info, handle)
}
