// The Go clients of test/face/redis/clients.test.ts. It prints one line for each thing that happens.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	defer client.Close()

	locker := redislock.New(client)
	lock, err := locker.Obtain(ctx, "bsm", 5*time.Second, nil)
	fmt.Println("bsm obtained", err)
	_, err = locker.Obtain(ctx, "bsm", 5*time.Second, nil)
	fmt.Println("bsm second", errors.Is(err, redislock.ErrNotObtained))
	ttl, err := lock.TTL(ctx)
	fmt.Println("bsm ttl", ttl > 0 && ttl <= 5*time.Second, err)
	fmt.Println("bsm refreshed", lock.Refresh(ctx, 5*time.Second, nil))
	fmt.Println("bsm released", lock.Release(ctx))
	fmt.Println("bsm released again", errors.Is(lock.Release(ctx), redislock.ErrLockNotHeld))

	rs := redsync.New(goredis.NewPool(client))
	mutex := rs.NewMutex("redsync", redsync.WithExpiry(5*time.Second), redsync.WithTries(1))
	fmt.Println("redsync locked", mutex.Lock())
	fmt.Println("redsync second", rs.NewMutex("redsync", redsync.WithExpiry(5*time.Second), redsync.WithTries(1)).Lock() != nil)
	ok, err := mutex.Extend()
	fmt.Println("redsync extended", ok, err)
	ok, err = mutex.Unlock()
	fmt.Println("redsync unlocked", ok, err)
}
