// A server under test for `cargo xtask bench --peer diderot=DIR`: Diderot's cache of endpoints behind its
// own ADS server, both variants, with the fleet and the control port of ../go-control-plane, whose other
// files are compiled with this one. DIR is a checkout, since no module registry has Diderot. It runs
// without the limits on responses that its quick start sets, which would measure the limits.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/linkedin/diderot"
	"github.com/linkedin/diderot/ads"
	"google.golang.org/grpc"
)

func main() {
	clusters := flag.Int("clusters", 1000, "number of clusters")
	endpoints := flag.Int("endpoints", 20, "endpoints of each cluster")
	listenAt := flag.String("listen", "127.0.0.1:0", "where xDS is served")
	controlAt := flag.String("control", "127.0.0.1:0", "where the updater is told what to do")
	flag.Parse()

	fleet := newFleet(*clusters, *endpoints)
	cache := diderot.NewCache[*endpoint.ClusterLoadAssignment]()
	var version atomic.Uint64
	publish := func(assignment *endpoint.ClusterLoadAssignment) {
		next := strconv.FormatUint(version.Add(1), 10)
		cache.Set(assignment.ClusterName, next, assignment, time.Now())
	}
	for cluster := range *clusters {
		publish(fleet.assignment(cluster, 0))
	}

	listener := listen(*listenAt)
	control := listen(*controlAt)
	go serveControl(control, newUpdater(fleet, publish))

	grpcServer := grpc.NewServer(grpc.MaxConcurrentStreams(1 << 20))
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, diderot.NewADSServer(locator{cache}))
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

// locator serves endpoints, out of one cache.
type locator struct {
	cache diderot.RawCache
}

func (l locator) IsTypeSupported(_ context.Context, typeURL string) bool {
	return typeURL == l.cache.Type().URL()
}

func (l locator) Subscribe(_ context.Context, _, name string, handler ads.RawSubscriptionHandler) func() {
	diderot.Subscribe(l.cache, name, handler)
	return func() { diderot.Unsubscribe(l.cache, name, handler) }
}

func (l locator) Resubscribe(_ context.Context, _, name string, handler ads.RawSubscriptionHandler) {
	diderot.Subscribe(l.cache, name, handler)
}
