// Programs with Consul's own Go client, one for each test: clients COMMAND ADDRESS …
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

func main() {
	programs := map[string]func(*api.Client, []string){
		"lock": lock, "semaphore": semaphore, "sessions": sessions, "keys": keys, "contend": contend, "services": services,
	}
	config := api.DefaultConfig()
	config.Address = os.Args[2]
	client, err := api.NewClient(config)
	must(err)
	programs[os.Args[1]](client, os.Args[3:])
}

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// Takes a lock, has another one refused, hands over, and learns that its session was destroyed.
func lock(client *api.Client, _ []string) {
	first, err := client.LockOpts(&api.LockOptions{Key: "jobs/nightly", Value: []byte("first")})
	must(err)
	lost, err := first.Lock(nil)
	must(err)
	fmt.Println("locked", lost != nil)
	_, err = first.Lock(nil)
	fmt.Println("again:", err)
	once, err := client.LockOpts(&api.LockOptions{Key: "jobs/nightly", LockTryOnce: true, LockWaitTime: 50 * time.Millisecond})
	must(err)
	refused, err := once.Lock(nil)
	must(err)
	fmt.Println("other:", refused == nil)
	fmt.Println("destroy in use:", once.Destroy())
	next := make(chan bool)
	second, err := client.LockOpts(&api.LockOptions{Key: "jobs/nightly", Value: []byte("second")})
	must(err)
	var theirs <-chan struct{}
	go func() {
		var err error
		theirs, err = second.Lock(nil)
		must(err)
		next <- true
	}()
	must(first.Unlock())
	<-next
	pair, _, err := client.KV().Get("jobs/nightly", nil)
	must(err)
	fmt.Println("handed over:", string(pair.Value), pair.LockIndex, pair.Flags == api.LockFlagValue)
	_, err = client.Session().Destroy(pair.Session, nil)
	must(err)
	<-theirs
	fmt.Println("told")
	fmt.Println("unlock:", second.Unlock())
	fmt.Println("not held:", first.Unlock())
}

// More contenders than slots: never more inside than slots.
func semaphore(client *api.Client, _ []string) {
	var inside, most, total int32
	var all sync.WaitGroup
	for i := 0; i < 5; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			slots, err := client.SemaphorePrefix("work/slots", 2)
			must(err)
			lost, err := slots.Acquire(nil)
			must(err)
			if lost == nil {
				panic("no channel")
			}
			now := atomic.AddInt32(&inside, 1)
			for seen := atomic.LoadInt32(&most); now > seen && !atomic.CompareAndSwapInt32(&most, seen, now); {
				seen = atomic.LoadInt32(&most)
			}
			atomic.AddInt32(&total, 1)
			time.Sleep(20 * time.Millisecond)
			atomic.AddInt32(&inside, -1)
			must(slots.Release())
		}()
	}
	all.Wait()
	fmt.Println("total", total, "within the limit", most <= 2)
	slots, err := client.SemaphorePrefix("work/slots", 2)
	must(err)
	fmt.Println("destroy:", slots.Destroy())
	pairs, _, err := client.KV().List("work/slots", nil)
	must(err)
	fmt.Println("left:", len(pairs))
}

func sessions(client *api.Client, _ []string) {
	all := client.Session()
	id, _, err := all.Create(&api.SessionEntry{Name: "mine", TTL: "20s", Behavior: "delete", LockDelay: time.Second}, nil)
	must(err)
	found, _, err := all.Info(id, nil)
	must(err)
	fmt.Println(found.ID == id, found.Name, found.TTL, found.Behavior, found.LockDelay)
	renewed, _, err := all.Renew(id, nil)
	must(err)
	fmt.Println("renewed", renewed.ID == id, renewed.TTL)
	list, meta, err := all.List(nil)
	must(err)
	fmt.Println("listed", len(list), meta.LastIndex > 0, meta.KnownLeader)
	held, _, err := client.KV().Acquire(&api.KVPair{Key: "with/session", Value: []byte("v"), Session: id}, nil)
	must(err)
	fmt.Println("acquired", held)
	_, err = all.Destroy(id, nil)
	must(err)
	pair, _, err := client.KV().Get("with/session", nil)
	must(err)
	fmt.Println("deleted with its session", pair == nil)
	none, _, err := all.Renew(id, nil)
	must(err)
	fmt.Println("gone", none == nil)
	_, _, err = all.Create(&api.SessionEntry{Name: "for ever"}, nil)
	fmt.Println("without a ttl:", err != nil)
	_, _, err = all.Create(&api.SessionEntry{TTL: "1s"}, nil)
	fmt.Println("too short:", err != nil)
	_, _, err = client.KV().Acquire(&api.KVPair{Key: "with/session", Session: id}, nil)
	fmt.Println("ended session:", err != nil)
}

func keys(client *api.Client, _ []string) {
	kv := client.KV()
	_, err := kv.Put(&api.KVPair{Key: "config/a", Value: []byte{0, 255, 1}, Flags: 1 << 63}, nil)
	must(err)
	pair, meta, err := kv.Get("config/a", nil)
	must(err)
	fmt.Println(pair.Value, pair.Flags == 1<<63, pair.CreateIndex == pair.ModifyIndex)
	made, _, err := kv.CAS(&api.KVPair{Key: "config/a", Value: []byte("no"), ModifyIndex: 0}, nil)
	must(err)
	swapped, _, err := kv.CAS(&api.KVPair{Key: "config/a", Value: []byte("yes"), ModifyIndex: pair.ModifyIndex}, nil)
	must(err)
	stale, _, err := kv.CAS(&api.KVPair{Key: "config/a", Value: []byte("late"), ModifyIndex: pair.ModifyIndex}, nil)
	must(err)
	fmt.Println("cas", made, swapped, stale)
	done := make(chan string)
	go func() {
		pair, _, err := kv.Get("config/b", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute})
		must(err)
		done <- string(pair.Value)
	}()
	_, err = kv.Put(&api.KVPair{Key: "config/b", Value: []byte("came")}, nil)
	must(err)
	fmt.Println("waited for", <-done)
	for _, key := range []string{"config/c/d", "config/c/e", "configured"} {
		_, err = kv.Put(&api.KVPair{Key: key, Value: []byte(key)}, nil)
		must(err)
	}
	all, _, err := kv.List("config", nil)
	must(err)
	folder, _, err := kv.List("config/", nil)
	must(err)
	names, _, err := kv.Keys("config/", "/", nil)
	must(err)
	fmt.Println(len(all), len(folder), names)
	pair, _, err = kv.Get("config/b", nil)
	must(err)
	removed, _, err := kv.DeleteCAS(&api.KVPair{Key: "config/b", ModifyIndex: pair.ModifyIndex - 1}, nil)
	must(err)
	really, _, err := kv.DeleteCAS(pair, nil)
	must(err)
	_, err = kv.DeleteTree("config/", nil)
	must(err)
	rest, _, err := kv.List("", nil)
	must(err)
	fmt.Println("deleted", removed, really, len(rest), rest[0].Key)
	_, err = kv.Put(&api.KVPair{Key: "a//b"}, nil)
	fmt.Println("no name:", err != nil)
}

// Takes and gives back the key many times. Prints each time it is inside.
func contend(client *api.Client, args []string) {
	rounds, err := strconv.Atoi(args[1])
	must(err)
	for i := 0; i < rounds; i++ {
		lock, err := client.LockOpts(&api.LockOptions{Key: args[0], SessionName: "go"})
		must(err)
		_, err = lock.Lock(nil)
		must(err)
		must(lock.Unlock())
	}
	fmt.Println("done")
}

func services(client *api.Client, _ []string) {
	agent := client.Agent()
	must(agent.ServiceRegister(&api.AgentServiceRegistration{
		ID: "web-1", Name: "web", Tags: []string{"blue"}, Address: "10.0.0.7", Port: 8080, Meta: map[string]string{"version": "2"},
		Check: &api.AgentServiceCheck{TTL: "20s", DeregisterCriticalServiceAfter: "1m"},
	}))
	must(agent.ServiceRegister(&api.AgentServiceRegistration{ID: "web-2", Name: "web", Address: "10.0.0.8", Port: 8080}))
	passing, _, err := client.Health().Service("web", "", true, nil)
	must(err)
	fmt.Println("passing", len(passing))
	all, meta, err := client.Health().Service("web", "", false, nil)
	must(err)
	fmt.Println("all", len(all), all[0].Checks.AggregatedStatus())
	done := make(chan int)
	go func() {
		found, _, err := client.Health().Service("web", "", true, &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute})
		must(err)
		done <- len(found)
	}()
	must(agent.UpdateTTL("service:web-1", "well", "pass"))
	fmt.Println("waited", <-done)
	found, _, err := client.Health().Service("web", "blue", true, nil)
	must(err)
	service := found[0].Service
	fmt.Println(service.ID, service.Address, service.Port, service.Tags, service.Meta["version"], found[0].Node.Node)
	must(agent.WarnTTL("service:web-1", "slow"))
	checks, _, err := client.Health().Checks("web", nil)
	must(err)
	for _, check := range checks {
		if check.ServiceID == "web-1" {
			fmt.Println(check.CheckID, check.Status)
		}
	}
	must(agent.FailTTL("service:web-1", "down"))
	critical, _, err := client.Health().State("critical", nil)
	must(err)
	fmt.Println("critical", len(critical))
	catalog, _, err := client.Catalog().Services(nil)
	must(err)
	fmt.Println(catalog["web"])
	instances, _, err := client.Catalog().Service("web", "", nil)
	must(err)
	fmt.Println(len(instances), instances[0].ServiceID, instances[0].ServicePort)
	mine, err := agent.Services()
	must(err)
	fmt.Println(len(mine), mine["web-2"].Service)
	must(agent.EnableServiceMaintenance("web-2", "upgrade"))
	status, info, err := agent.AgentHealthServiceByID("web-2")
	must(err)
	fmt.Println(status, info.Service.ID)
	must(agent.DisableServiceMaintenance("web-2"))
	must(agent.ServiceDeregister("web-1"))
	fmt.Println("gone:", agent.PassTTL("service:web-1", "") != nil)
	leader, err := client.Status().Leader()
	must(err)
	nodes, _, err := client.Catalog().Nodes(nil)
	must(err)
	datacenters, err := client.Catalog().Datacenters()
	must(err)
	self, err := agent.Self()
	must(err)
	fmt.Println(leader != "", len(nodes), datacenters, self["Config"]["NodeName"])
}
