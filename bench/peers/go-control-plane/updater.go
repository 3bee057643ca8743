package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// stampModulus keeps a stamp (microseconds since the Unix epoch) within 30 bits, as weights of a whole
// cluster must fit 32.
const stampModulus = 1 << 30

// updater changes one cluster after another at a rate.
type updater struct {
	fleet   *fleet
	publish func(*endpoint.ClusterLoadAssignment)
	changes atomic.Uint64

	mutex   sync.Mutex
	running *run
}

// run is the time between a start and a stop.
type run struct {
	stop, done chan struct{}
}

func newUpdater(fleet *fleet, publish func(*endpoint.ClusterLoadAssignment)) *updater {
	return &updater{fleet: fleet, publish: publish}
}

// once changes one cluster now.
func (u *updater) once(cluster int) {
	stamp := uint32(time.Now().UnixMicro() % stampModulus)
	u.publish(u.fleet.assignment(cluster%u.fleet.clusters(), stamp))
	u.changes.Add(1)
}

// start begins to make `rate` changes a second; 0 is as many as it can.
func (u *updater) start(rate int) {
	u.stop()
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.changes.Store(0)
	u.running = &run{stop: make(chan struct{}), done: make(chan struct{})}
	go u.change(rate, u.running)
}

// stop waits for the change that is being made.
func (u *updater) stop() {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if u.running != nil {
		close(u.running.stop)
		<-u.running.done
		u.running = nil
	}
}

func (u *updater) change(rate int, run *run) {
	defer close(run.done)
	began := time.Now()
	for made := uint64(0); ; made++ {
		select {
		case <-run.stop:
			return
		default:
		}
		if rate > 0 {
			due := began.Add(time.Duration(made) * time.Second / time.Duration(rate))
			time.Sleep(time.Until(due))
		}
		// 7919 is a prime: every cluster has its turn before the first has its second.
		u.once(int(made * 7919 % uint64(u.fleet.clusters())))
	}
}

func serveControl(listener net.Listener, updater *updater) {
	number := func(writer http.ResponseWriter, request *http.Request, name string) (int, bool) {
		value, err := strconv.Atoi(request.URL.Query().Get(name))
		if err != nil || value < 0 {
			http.Error(writer, name+" must be a whole number", http.StatusBadRequest)
			return 0, false
		}
		return value, true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/start", func(writer http.ResponseWriter, request *http.Request) {
		if rate, ok := number(writer, request, "rate"); ok {
			updater.start(rate)
		}
	})
	mux.HandleFunc("/stop", func(writer http.ResponseWriter, _ *http.Request) {
		updater.stop()
		fmt.Fprintln(writer, updater.changes.Load())
	})
	mux.HandleFunc("/count", func(writer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(writer, updater.changes.Load())
	})
	mux.HandleFunc("/once", func(writer http.ResponseWriter, request *http.Request) {
		if cluster, ok := number(writer, request, "i"); ok {
			updater.once(cluster)
		}
	})
	log.Fatal(http.Serve(listener, mux))
}
