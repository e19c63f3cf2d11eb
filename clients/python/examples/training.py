"""A training script that takes a GPU from a pool. Without GPUs it takes one from a list of invented devices.

    leasehold serve --store memory:                   # a server
    python training.py --offer fake-0,fake-1 &        # on the machine with the devices
    python training.py                                # as often as you like: each run gets a device, or waits for one

The device is taken before anything that uses CUDA is imported, since CUDA reads CUDA_VISIBLE_DEVICES once. Checkpoints are written only
while the device is held, with the token in their name: an older run that was stopped and goes on cannot be taken for the newer one.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time

import leasehold_client


def offer(leases: leasehold_client.Leases, devices: list[str]) -> None:
    """Offers devices until this process is told to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    pool = leases.pool("gpu")
    offers = [pool.offer(device, labels={"model": "fake"}, ttl=10) for device in devices]
    print(f"offered {', '.join(devices)}", flush=True)
    stop.wait()
    for each in offers:
        each.release()


def train(leases: leasehold_client.Leases, steps: int) -> None:
    with leases.pool("gpu", match={"model": "fake"}).take(1, wait="10m", expect="1m") as gpu:
        print(f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']}")
        for step in range(steps):
            gpu.assert_held()
            time.sleep(0.05)
            print(f"step {step}: checkpoint-{gpu.token}-{step}.pt")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--offer", help="names of devices, with commas between")
    arguments.add_argument("--steps", type=int, default=3)
    given = arguments.parse_args()
    with leasehold_client.connect() as leases:
        if given.offer:
            offer(leases, given.offer.split(","))
        else:
            train(leases, given.steps)


main()
