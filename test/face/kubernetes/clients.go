// The Go clients of the tests of the Kubernetes face, in one program: client-go's leader election, its typed client and informers, the manager of
// controller-runtime, and kubectl. It prints one line for each thing that happens.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 200 * time.Millisecond
	namespace     = "team"
	patience      = 60 * time.Second
)

func main() {
	if os.Args[1] == "kubectl" {
		os.Args = os.Args[1:]
		os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
	}
	ctrl.SetLogger(logr.Discard())
	config := &rest.Config{Host: os.Args[2], QPS: 1000, Burst: 1000}
	if len(os.Args) > 3 && os.Args[1] == "typed" {
		config.BearerToken = os.Args[3]
	}
	switch os.Args[1] {
	case "elect":
		elect(config, os.Args[3], os.Args[4], os.Args[5])
	case "manager":
		runManager(config, os.Args[3])
	case "typed":
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		typed(config)
	case "informer":
		inform(config)
	default:
		panic("unknown scenario " + os.Args[1])
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	return value
}

// elect runs one elector until a line arrives on stdin: "stop" releases, "stay" ends without releasing.
func elect(config *rest.Config, name, identity, content string) {
	if content == "protobuf" {
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	client := must(kubernetes.NewForConfig(config))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		if line != "stop\n" {
			fmt.Println("left", identity)
			os.Exit(0)
		}
		cancel()
	}()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		ReleaseOnCancel: true,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { fmt.Println("leads", identity) },
			OnStoppedLeading: func() { fmt.Println("stopped", identity) },
			OnNewLeader:      func(leader string) { fmt.Println("sees", leader) },
		},
	})
}

// runManager runs a manager of controller-runtime until a line arrives on stdin.
func runManager(config *rest.Config, id string) {
	lease, renew, retry := leaseDuration, renewDeadline, retryPeriod
	mgr := must(manager.New(config, manager.Options{
		LeaderElection:                true,
		LeaderElectionID:              id,
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
	}))
	ctx, cancel := context.WithCancel(context.Background())
	must(0, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		fmt.Println("leads")
		<-ctx.Done()
		return nil
	})))
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	if err := mgr.Start(ctx); err != nil {
		fmt.Println("ended:", err)
	}
	fmt.Println("stopped")
}

func reason(err error) string {
	if err == nil {
		return "ok"
	}
	return string(apierrors.ReasonForError(err))
}

func text(value string) *string { return &value }
func number(value int32) *int32 { return &value }

// typed uses the typed client with protobuf bodies, and prints what each call returned.
func typed(config *rest.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	leases := must(kubernetes.NewForConfig(config)).CoordinationV1().Leases(namespace)
	now := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))
	made := must(leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "typed", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"note": "ünï"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: types.UID("u-1")}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: text("one"), LeaseDurationSeconds: number(40), RenewTime: &now, AcquireTime: &now},
	}, metav1.CreateOptions{}))
	fmt.Println("created", made.Name, made.UID != "", *made.Spec.HolderIdentity, made.Spec.RenewTime.UTC().Format(time.RFC3339Nano), made.OwnerReferences[0].UID)
	_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "typed"}}, metav1.CreateOptions{})
	fmt.Println("created again", reason(err))
	watch := must(leases.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion, AllowWatchBookmarks: true}))
	first := made.DeepCopy()
	made.Spec.LeaseTransitions = number(1)
	updated := must(leases.Update(ctx, made, metav1.UpdateOptions{}))
	fmt.Println("updated", *updated.Spec.LeaseTransitions, updated.ResourceVersion != first.ResourceVersion)
	_, err = leases.Update(ctx, first, metav1.UpdateOptions{})
	fmt.Println("updated from an old version", reason(err))
	other := updated.DeepCopy()
	other.Spec.HolderIdentity = text("two")
	_, err = leases.Update(ctx, other, metav1.UpdateOptions{})
	fmt.Println("taken while it is held", reason(err))
	patched := must(leases.Patch(ctx, "typed", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"tier":"a"}}}`), metav1.PatchOptions{}))
	fmt.Println("patched", patched.Labels["app"], patched.Labels["tier"])
	_, err = leases.Patch(ctx, "typed", types.ApplyPatchType, []byte(`{}`), metav1.PatchOptions{FieldManager: "m"})
	fmt.Println("applied", reason(err))
	made.Name = "absent"
	_, err = leases.Get(ctx, "absent", metav1.GetOptions{})
	fmt.Println("got what is not there", reason(err))
	list := must(leases.List(ctx, metav1.ListOptions{LabelSelector: "tier in (a, b)"}))
	fmt.Println("listed", len(list.Items), list.ResourceVersion >= patched.ResourceVersion)
	uid := types.UID("another")
	fmt.Println("deleted another", reason(leases.Delete(ctx, "typed", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})))
	fmt.Println("deleted", reason(leases.Delete(ctx, "typed", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(updated.UID))})))
	for i := 0; i < 3; i++ {
		event := <-watch.ResultChan()
		lease := event.Object.(*coordinationv1.Lease)
		fmt.Println("watched", event.Type, lease.Name, *lease.Spec.HolderIdentity, len(lease.Labels))
	}
	watch.Stop()
	old := must(leases.Watch(ctx, metav1.ListOptions{ResourceVersion: "1"}))
	event := <-old.ResultChan()
	fmt.Println("watched from long ago", event.Type, reason(apierrors.FromObject(event.Object)))
}

// inform runs a shared informer, and prints what it is told, until a line arrives on stdin.
func inform(config *rest.Config) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory := informers.NewSharedInformerFactory(must(kubernetes.NewForConfig(config)), 0)
	informer := factory.Coordination().V1().Leases().Informer()
	tell := func(what string) func(object any) {
		return func(object any) {
			if lease, ok := object.(*coordinationv1.Lease); ok {
				fmt.Println(what, lease.Namespace+"/"+lease.Name, *lease.Spec.HolderIdentity)
			}
		}
	}
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell("added"),
		UpdateFunc: func(_, object any) { tell("changed")(object) },
		DeleteFunc: tell("deleted"),
	})
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	fmt.Println("synced", len(informer.GetStore().List()))
	bufio.NewReader(os.Stdin).ReadString('\n')
}
