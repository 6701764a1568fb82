"""DistDGL as a contender: epochs of sampled SAGE on two machines with a slow link between them.

    PYTHONPATH=bench python bench/peers/links.py GRAPH.npz LINK HIDDEN FANOUT TARGETS EPOCHS

The two machines are network namespaces of this one, each with a partition, a server, a trainer and
shared memory of its own; the link is a pair of virtual devices whose rate Linux limits (tbf). Its
latency is that of the kernel: the latency of LINK is not added. Needs root, ip, tc and unshare.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, sleep

import dgl
import numpy as np
import torch
from contender import Input, report
from dgl.nn import SAGEConv
from minibatch import forward
from torch import distributed, nn
from torch.nn import functional as F

NAME = "graph"
MACHINES = 2
SPACES = [f"gtlink{k}" for k in range(MACHINES)]
ADDRESSES = [f"10.77.0.{k + 1}" for k in range(MACHINES)]
PORT, MASTER_PORT = 30050, 30060


def partitioned(graph: str) -> Path:
    """The configuration of the graph in two random parts, written beside the graph."""
    folder = Path(graph).with_suffix(".distdgl2")
    path = folder / f"{NAME}.json"
    if not path.exists():
        z = Input.read(graph)
        g = dgl.graph(
            (torch.from_numpy(z.indices).long(), torch.from_numpy(z.destinations())), num_nodes=z.n
        )
        g.ndata["x"], g.ndata["y"], g.ndata["train"] = map(torch.from_numpy, (z.x, z.y, z.train))
        dgl.distributed.partition_graph(g, NAME, MACHINES, str(folder), part_method="random")
    return path


@contextmanager
def linked(rate: str) -> Iterator[None]:
    """Two namespaces with a link of a rate, as tc writes it."""

    def run(line: str) -> None:
        subprocess.run(line.split(), check=True)

    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
    try:
        for space in SPACES:
            run(f"ip netns add {space}")
        run(f"ip link add gtv0 netns {SPACES[0]} type veth peer name gtv1 netns {SPACES[1]}")
        for k, (space, address) in enumerate(zip(SPACES, ADDRESSES, strict=True)):
            inside = f"ip netns exec {space}"
            run(f"{inside} ip addr add {address}/24 dev gtv{k}")
            run(f"{inside} ip link set gtv{k} up")
            run(f"{inside} ip link set lo up")
            run(f"{inside} tc qdisc add dev gtv{k} root tbf rate {rate} burst 256kb latency 100ms")
        yield
    finally:
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def launch(graph: str, link: str, *words: str) -> int:
    """Run both machines to their end; returns the exit status."""
    config = partitioned(graph)
    rate = link.split(",")[1].removesuffix("/s").lower()
    with tempfile.TemporaryDirectory() as folder, linked(rate):
        addresses = Path(folder) / "addresses.txt"
        addresses.write_text(
            "".join(f"{address} {PORT}\n" for address in ADDRESSES), encoding="utf-8"
        )
        running = []
        for k, space in enumerate(SPACES):
            environment = {
                **os.environ,
                "DGL_DIST_MODE": "distributed",
                "DGL_NUM_SAMPLER": "0",
                "DGL_NUM_SERVER": "1",
                "DGL_NUM_CLIENT": str(MACHINES),
                "DGL_CONF_PATH": str(config),
                "DGL_IP_CONFIG": str(addresses),
                "DGL_GRAPH_FORMAT": "csc",
                "DGL_KEEP_ALIVE": "0",
                "DGL_SERVER_ID": str(k),
                "MASTER_ADDR": ADDRESSES[0],
                "MASTER_PORT": str(MASTER_PORT),
                "WORLD_SIZE": str(MACHINES),
                "RANK": str(k),
                "GLOO_SOCKET_IFNAME": f"gtv{k}",
            }
            # servers and trainers of a machine share memory, those of different machines must not
            machine = (
                'mount -t tmpfs tmpfs /dev/shm || exit 1; DGL_ROLE=server "$@" & server=$!;'
                ' DGL_ROLE=client "$@"; status=$?; kill $server 2>/dev/null; exit $status'
            )
            command = [sys.executable, __file__, graph, *words]
            running.append(
                subprocess.Popen(
                    [
                        "ip",
                        "netns",
                        "exec",
                        space,
                        "unshare",
                        "-m",
                        "sh",
                        "-c",
                        machine,
                        "sh",
                        *command,
                    ],
                    env=environment,
                    start_new_session=True,
                )
            )
        try:
            # a trainer whose other one has failed would wait for ever
            while any(process.poll() is None for process in running) and not any(
                process.poll() for process in running
            ):
                sleep(0.1)
            return max(abs(process.poll() or 0) for process in running)
        finally:
            for process in running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def train(graph: str, hidden: str, fanout: str, targets: str, epochs: str) -> None:
    """A server, which does not return before the end, or a trainer."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank = distributed.get_rank()
    fanouts = list(map(int, fanout.split(",")))[::-1]
    g = dgl.distributed.DistGraph(NAME, part_config=os.environ["DGL_CONF_PATH"])
    nodes = dgl.distributed.node_split(g.ndata["train"], g.get_partition_book(), force_even=True)
    z = Input.read(graph)
    widths = [z.x.shape[1], *[int(hidden)] * (len(fanouts) - 1), z.classes]
    layers = nn.ModuleList([SAGEConv(a, b, "mean") for a, b in itertools.pairwise(widths)])
    for p in layers.parameters():
        distributed.broadcast(p.data, 0)
    optimiser = torch.optim.Adam(layers.parameters(), 0.01)
    loader = dgl.dataloading.DistNodeDataLoader(
        g,
        nodes,
        dgl.dataloading.MultiLayerNeighborSampler(fanouts),
        shuffle=True,
        batch_size=int(targets),
    )
    seconds = []
    sent = []
    losses = []
    for _ in range(1 + int(epochs)):
        distributed.barrier()
        began = perf_counter()
        before = _sent(rank)
        total = 0.0
        steps = 0
        for sources, chosen, blocks in loader:
            loss = F.cross_entropy(
                forward(layers, blocks, g.ndata["x"][sources], 0.0), g.ndata["y"][chosen]
            )
            optimiser.zero_grad()
            loss.backward()
            for p in layers.parameters():
                distributed.all_reduce(p.grad)
            optimiser.step()
            total = total + loss.item()
            steps = steps + 1
        distributed.barrier()
        seconds.append(perf_counter() - began)
        sent.append(_sent(rank) - before)
        losses.append(total / steps)
    sums = torch.tensor([float(np.mean(sent[1:]))])
    distributed.all_reduce(sums)
    if rank == 0:
        # losses are those of other batches and other first weights, and cannot be compared
        report(
            {"epoch": seconds[1:]},
            {},
            f"dgl {dgl.__version__}, torch {torch.__version__}",
            ranks=[{"sent": float(sums[0])}],
            losses=losses,
        )
    distributed.barrier()


def _sent(rank: int) -> int:
    """Bytes that this machine has sent over the link."""
    return int(Path(f"/sys/class/net/gtv{rank}/statistics/tx_bytes").read_text(encoding="ascii"))


if __name__ == "__main__":
    if "DGL_ROLE" in os.environ:
        train(*sys.argv[1:])
    else:
        sys.exit(launch(*sys.argv[1:]))
