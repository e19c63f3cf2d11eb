// Locks and unlocks with Consul's own Go client: consul-locks ADDRESS LANES SECONDS. Prints the pairs per second.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	lanes, err := strconv.Atoi(os.Args[2])
	must(err)
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	must(err)
	config := api.DefaultConfig()
	config.Address = os.Args[1]
	// Otherwise most lanes would dial for every request, and the connections would be measured.
	config.Transport.MaxIdleConnsPerHost = 4 * lanes
	client, err := api.NewClient(config)
	must(err)
	// As a Lock does that makes its own session.
	session, _, err := client.Session().Create(&api.SessionEntry{Name: "bench", TTL: api.DefaultLockSessionTTL}, nil)
	must(err)
	done := make(chan struct{})
	go client.Session().RenewPeriodic(api.DefaultLockSessionTTL, session, nil, done)
	var pairs int64
	var all sync.WaitGroup
	began := time.Now()
	end := began.Add(time.Duration(seconds * float64(time.Second)))
	for lane := 0; lane < lanes; lane++ {
		all.Add(1)
		go func() {
			defer all.Done()
			lock, err := client.LockOpts(&api.LockOptions{Key: fmt.Sprintf("bench/%d", lane), Session: session})
			must(err)
			for time.Now().Before(end) {
				held, err := lock.Lock(nil)
				must(err)
				if held == nil {
					must(fmt.Errorf("not held"))
				}
				must(lock.Unlock())
				atomic.AddInt64(&pairs, 1)
			}
		}()
	}
	all.Wait()
	fmt.Println(float64(pairs) / time.Since(began).Seconds())
	close(done) // which destroys the session
	time.Sleep(50 * time.Millisecond)
}
