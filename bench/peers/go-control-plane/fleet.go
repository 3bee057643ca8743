package main

import (
	"fmt"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Units of every endpoint whose weight is no stamp: a D2 weight of 1.
const plainUnits = 100

// fleet holds every endpoint but the first of each cluster. They never change and are shared between
// versions, so that an update costs its first endpoint and the messages around it.
type fleet struct {
	unchanging [][]*endpoint.LbEndpoint
}

func newFleet(clusters, endpoints int) *fleet {
	unchanging := make([][]*endpoint.LbEndpoint, clusters)
	for cluster := range unchanging {
		for index := 1; index < endpoints; index++ {
			unchanging[cluster] = append(unchanging[cluster], newEndpoint(cluster, index, plainUnits))
		}
	}
	return &fleet{unchanging: unchanging}
}

func (f *fleet) clusters() int { return len(f.unchanging) }

// assignment makes a cluster's resource. A stamp of 0 is none: the first endpoint is like the others.
// The stamp stands for the whole locality too, where a client finds it at a known place.
func (f *fleet) assignment(cluster int, stamp uint32) *endpoint.ClusterLoadAssignment {
	units := stamp
	if units == 0 {
		units = plainUnits
	}
	endpoints := make([]*endpoint.LbEndpoint, 0, len(f.unchanging[cluster])+1)
	endpoints = append(endpoints, newEndpoint(cluster, 0, units))
	endpoints = append(endpoints, f.unchanging[cluster]...)
	sum := units + uint32(len(f.unchanging[cluster]))*plainUnits
	return &endpoint.ClusterLoadAssignment{
		ClusterName: clusterName(cluster),
		Endpoints: []*endpoint.LocalityLbEndpoints{{
			Locality:            &core.Locality{},
			LbEndpoints:         endpoints,
			LoadBalancingWeight: wrapperspb.UInt32(sum),
		}},
	}
}

func clusterName(cluster int) string { return "cluster-" + strconv.Itoa(cluster) }

func newEndpoint(cluster, index int, units uint32) *endpoint.LbEndpoint {
	address := fmt.Sprintf("10.%d.%d.%d", cluster/250%250, cluster%250, index%250)
	return &endpoint.LbEndpoint{
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address:       address,
				PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(8000 + index)},
			}}},
		}},
		LoadBalancingWeight: wrapperspb.UInt32(units),
	}
}
