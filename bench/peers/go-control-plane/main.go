// A server under test for `cargo xtask bench`: go-control-plane's LinearCache for endpoints behind its
// own ADS server, both variants, with the flags, the control port and the stamps that every server
// under test has (bench/README.md). Nothing of it is tuned: the settings are grpc-go's and Go's own.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

func main() {
	clusters := flag.Int("clusters", 1000, "number of clusters")
	endpoints := flag.Int("endpoints", 20, "endpoints of each cluster")
	listenAt := flag.String("listen", "127.0.0.1:0", "where xDS is served")
	controlAt := flag.String("control", "127.0.0.1:0", "where the updater is told what to do")
	flag.Parse()

	fleet := newFleet(*clusters, *endpoints)
	initial := map[string]types.Resource{}
	for cluster := range *clusters {
		initial[clusterName(cluster)] = fleet.assignment(cluster, 0)
	}
	linear := cache.NewLinearCache(resource.EndpointType, cache.WithInitialResources(initial))
	publish := func(assignment *endpoint.ClusterLoadAssignment) {
		if err := linear.UpdateResource(assignment.ClusterName, assignment); err != nil {
			log.Fatalf("cannot publish %s: %v", assignment.ClusterName, err)
		}
	}

	listener := listen(*listenAt)
	control := listen(*controlAt)
	go serveControl(control, newUpdater(fleet, publish))

	grpcServer := grpc.NewServer(grpc.MaxConcurrentStreams(1 << 20))
	ads := server.NewServer(context.Background(), linear, nil)
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, ads)
	fmt.Printf("ready pid=%d grpc=%s control=%s\n", os.Getpid(), listener.Addr(), control.Addr())
	log.Fatal(grpcServer.Serve(listener))
}

func listen(address string) net.Listener {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatalf("cannot listen on %s: %v", address, err)
	}
	return listener
}
