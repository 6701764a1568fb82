"""DistDGL as a contender: mini-batch steps of a GCN on several trainers of this machine.

    PYTHONPATH=bench python bench/peers/distributed.py TRAINERS GRAPH.npz WEIGHTS.npz FANOUT \\
        TARGETS BATCHES

The program writes the graph as one partition, once, and starts itself as a server and as trainers.
Fan-outs of -1 keep all neighbours.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from itertools import chain, count
from pathlib import Path
from time import perf_counter

import dgl
import numpy as np
import torch
from contender import WARM, Input, first_nodes, peak_bytes, report
from minibatch import forward, layers_of, small_loss
from torch import distributed
from torch.nn import functional as F

NAME = "graph"


def partitioned(graph: str) -> Path:
    """The configuration of the graph as one partition, written beside the graph."""
    folder = Path(graph).with_suffix(".distdgl")
    path = folder / f"{NAME}.json"
    if not path.exists():
        z = Input.read(graph)
        g = dgl.graph(
            (torch.from_numpy(z.indices).long(), torch.from_numpy(z.destinations())), num_nodes=z.n
        )
        g.ndata["x"], g.ndata["y"], g.ndata["train"] = map(torch.from_numpy, (z.x, z.y, z.train))
        dgl.distributed.partition_graph(g, NAME, 1, str(folder), part_method="random")
    return path


def launch(trainers: int, words: list[str]) -> int:
    """Run a server and trainers to their end; returns the exit status."""
    config = partitioned(words[0])
    with tempfile.TemporaryDirectory() as folder:
        ports = []
        for _ in range(2):
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                ports.append(str(s.getsockname()[1]))
        addresses = Path(folder) / "addresses.txt"
        addresses.write_text(f"127.0.0.1 {ports[0]}\n", encoding="utf-8")
        environment = {
            **os.environ,
            "DGL_DIST_MODE": "distributed",
            "DGL_NUM_SAMPLER": "0",
            "DGL_NUM_SERVER": "1",
            "DGL_NUM_CLIENT": str(trainers),
            "DGL_CONF_PATH": str(config),
            "DGL_IP_CONFIG": str(addresses),
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_KEEP_ALIVE": "0",
            "DGL_SERVER_ID": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": ports[1],
            "WORLD_SIZE": str(trainers),
        }
        roles = [
            {"DGL_ROLE": "server"},
            *({"DGL_ROLE": "client", "RANK": str(rank)} for rank in range(trainers)),
        ]
        running = [
            subprocess.Popen([sys.executable, __file__, *words], env={**environment, **role})
            for role in roles
        ]
        try:
            return max(abs(process.wait()) for process in running[1:])
        finally:
            for process in running:
                process.kill()


def train(graph: str, weights: str, fanout: str, targets: str, batches: str) -> None:
    """A server, which does not return before the end, or a trainer."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    size = distributed.get_world_size()
    fanouts = list(map(int, fanout.split(",")))[::-1]
    g = dgl.distributed.DistGraph(NAME, part_config=os.environ["DGL_CONF_PATH"])
    nodes = dgl.distributed.node_split(g.ndata["train"], g.get_partition_book(), force_even=True)
    layers = layers_of("gcn", weights)
    losses = [small_loss(layers, first_nodes(Input.read(graph)))]
    optimiser = torch.optim.Adam(layers.parameters(), 0.003)
    loader = dgl.dataloading.DistNodeDataLoader(
        g,
        nodes,
        dgl.dataloading.MultiLayerNeighborSampler(fanouts),
        shuffle=True,
        batch_size=int(targets) // size,
        drop_last=True,
    )
    seconds, inputs = [], []
    # epoch after epoch
    batch = chain.from_iterable(iter(loader) for _ in count())
    for _ in range(int(batches) + WARM):
        distributed.barrier()
        began = perf_counter()
        sources, chosen, blocks = next(batch)
        loss = F.cross_entropy(
            forward(layers, blocks, g.ndata["x"][sources], 0.5), g.ndata["y"][chosen]
        )
        optimiser.zero_grad()
        loss.backward()
        for p in layers.parameters():
            distributed.all_reduce(p.grad)
        optimiser.step()
        distributed.barrier()
        seconds.append(perf_counter() - began)
        inputs.append(len(sources))
    sums = torch.tensor([float(np.mean(inputs[WARM:])), peak_bytes() / 2**30])
    distributed.all_reduce(sums)
    if rank == 0:
        report(
            {"step": seconds[WARM:]},
            {"loss": losses},
            f"dgl {dgl.__version__}, torch {torch.__version__}",
            nodes=float(sums[0]),
            GiB=float(sums[1]),
        )
    distributed.barrier()


if __name__ == "__main__":
    if "DGL_ROLE" in os.environ:
        train(*sys.argv[1:])
    else:
        sys.exit(launch(int(sys.argv[1]), sys.argv[2:]))
