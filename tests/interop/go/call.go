package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds" // xds:/// targets
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// record is what came of one call: a line of the output.
type record struct {
	Start float64 `json:"start"` // seconds since the epoch
	End   float64 `json:"end"`
	OK    bool    `json:"ok"`
	By    string  `json:"by,omitempty"` // who answered
	Code  string  `json:"code,omitempty"`
	Why   string  `json:"why,omitempty"`
}

// caller calls one target at a steady rate.
type caller struct {
	conn     *grpc.ClientConn
	deadline time.Duration
	pace     time.Duration // from one call of a worker to its next, at least
	first    sync.Once

	mu  sync.Mutex
	out *json.Encoder
}

// call calls until SIGTERM and writes down each call as it ends. Says "called" after the first answer.
func call(args []string) error {
	flags := flag.NewFlagSet("call", flag.ExitOnError)
	target := flags.String("target", "", "whom to call")
	out := flags.String("out", "", "where calls are written down")
	rate := flags.Float64("rate", 100, "calls a second, all together")
	concurrency := flags.Int("concurrency", 4, "calls in flight at most")
	deadline := flags.Float64("deadline", 5, "seconds for one call")
	first := flags.Float64("first", 30, "seconds for the first answer")
	if err := flags.Parse(args); err != nil {
		return err
	}

	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	file, err := os.OpenFile(*out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	conn, err := grpc.NewClient(*target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	c := &caller{
		conn:     conn,
		deadline: seconds(*deadline),
		pace:     seconds(float64(*concurrency) / *rate),
		out:      json.NewEncoder(file),
	}
	if _, err := c.hello(seconds(*first), grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("no first answer: %w", err)
	}
	var workers sync.WaitGroup
	for number := range *concurrency {
		// One after the other: together they would call in bursts, with nothing in flight between.
		first := c.pace * time.Duration(number) / time.Duration(*concurrency)
		workers.Go(func() { c.work(stop, first) })
	}
	workers.Wait()
	return nil
}

// work makes one call at a time, the first after rest.
func (c *caller) work(stop context.Context, rest time.Duration) {
	for {
		select {
		case <-stop.Done():
		case <-time.After(rest):
		}
		if stop.Err() != nil {
			return
		}
		began := time.Now()
		by, err := c.hello(c.deadline)
		c.write(began, by, err)
		if err == nil {
			c.first.Do(func() { fmt.Println("called") })
		}
		rest = c.pace - time.Since(began)
	}
}

func (c *caller) hello(deadline time.Duration, options ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	answer := new(wrapperspb.StringValue)
	err := c.conn.Invoke(ctx, "/"+service+"/"+hello, new(wrapperspb.StringValue), answer, options...)
	return answer.GetValue(), err
}

func (c *caller) write(began time.Time, by string, err error) {
	line := record{Start: epoch(began), End: epoch(time.Now()), OK: err == nil, By: by}
	if err != nil {
		said := status.Convert(err)
		line.Code, line.Why = said.Code().String(), said.Message()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func epoch(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
