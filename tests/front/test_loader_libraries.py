"""Batches of loaders in PyTorch Geometric and DGL: their form, and models that are trained on them.

Libraries that are not installed skip their tests.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import graphs
import libraries
import numpy as np
import pytest
from ranks import MPIEXEC, needs_mpi, run

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.train.loader.forms import form_of

pytestmark = pytest.mark.second

torch = libraries.Later("torch")
GRAPH = graphs.random_graph(60, 400)
FLOAT = np.dtype("float32")
PROGRAM = Path(__file__).with_name("loader_program.py")
EPOCHS = 20


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric")


@pytest.fixture
def dgl():
    return libraries.dgl()


def batch_of(graph, **keys):
    return next(iter(gt.Loader(graph, to="arrays", batch_size=8, **keys)))


def shared(x, array):
    """Whether a tensor has the values of an array, in the same memory."""
    np.testing.assert_array_equal(x.numpy(), array)
    return np.shares_memory(x.numpy(), array)


def test_data_of_pyg_have_the_memory_of_arrays(pyg):
    batch = batch_of(GRAPH, fanout=[3, 2])
    data = form_of("pyg", GRAPH, FLOAT)(batch)
    assert isinstance(data, pyg.data.Data) and data.validate()
    assert data.batch_size == 8 and data.num_nodes == len(batch.nodes)
    assert shared(data.n_id, batch.nodes) and shared(data.x, batch.columns["x"])
    assert shared(data.y, batch.columns["y"])
    assert shared(data.train_mask, batch.columns["train"])
    assert data.num_sampled_nodes == np.diff([0, *batch.sizes]).tolist()
    ends = data.n_id[data.edge_index].numpy()
    np.testing.assert_array_equal(ends, GRAPH.edge_index[:, data.e_id.numpy()])
    np.testing.assert_array_equal(data.edge_attr.numpy(), GRAPH.edge_attr[data.e_id.numpy()])
    assert data.importance.dtype == torch.float32
    for adjacency, block in zip(data.adjs, batch.blocks, strict=True):
        assert shared(adjacency.edge_index, block.ends) and shared(adjacency.e_id, block.edge)
        assert adjacency.size == (len(block.nodes), block.n_out)
    # each node has one sample: that of the hop which reaches it first
    last, first = batch.blocks[1], batch.blocks[0]
    further = first.edge[first.dst >= last.n_out]
    np.testing.assert_array_equal(data.e_id.numpy(), np.append(last.edge, further))
    assert data.num_sampled_edges == [len(last.edge), len(further)]


def test_trimmed_to_a_layer_data_have_the_edges_of_that_layer(pyg):
    """If all hops have one sample."""
    from torch_geometric.utils import trim_to_layer

    batch = batch_of(GRAPH, fanout=[3, 3, 3], share_sample=True)
    data = form_of("pyg", GRAPH, FLOAT)(batch)
    x, edge_index = data.x, data.edge_index
    for layer, block in enumerate(batch.blocks):
        x, edge_index, _ = trim_to_layer(
            layer, data.num_sampled_nodes, data.num_sampled_edges, x, edge_index
        )
        assert len(x) == len(block.nodes)
        assert sorted(map(tuple, edge_index.numpy().T)) == sorted(
            zip(block.src.tolist(), block.dst.tolist(), strict=True)
        )


def test_blocks_of_dgl_have_the_memory_of_arrays(dgl):
    batch = batch_of(GRAPH, fanout=[3, 2])
    nodes, targets, blocks = form_of("dgl", GRAPH, FLOAT)(batch)
    assert shared(nodes, batch.nodes) and targets.tolist() == batch.nodes[:8].tolist()
    assert shared(blocks[0].srcdata["x"], batch.columns["x"])
    for made, block in zip(blocks, batch.blocks, strict=True):
        for end, own in zip(made.edges(), (block.src, block.dst), strict=True):
            np.testing.assert_array_equal(end.numpy(), own)
        assert shared(made.edata[dgl.EID], block.edge)
        assert made.num_dst_nodes() == block.n_out
        np.testing.assert_array_equal(made.dstdata["y"], GRAPH.y[block.nodes[: block.n_out]])
        np.testing.assert_array_equal(made.edata["edge_weight"], GRAPH.edge_weight[block.edge])


def test_types_are_those_of_pyg_and_dgl(pyg, dgl):
    graph = graphs.papers()
    batch = batch_of(graph, fanout=[4, 3])
    data = form_of("pyg", graph, FLOAT)(batch)
    assert data.validate() and data["paper"].batch_size == 8
    assert set(data.edge_types) == set(graph.relations)
    nodes, targets, blocks = form_of("dgl", graph, FLOAT)(batch)
    for kind in graph.node_types:
        all_of_them = graph.nodes_of(kind)
        for numbers in (data[kind].n_id, nodes[kind]):
            assert set(all_of_them[numbers.numpy()]) == set(batch.nodes) & set(all_of_them)
        assert sum(data[kind].num_sampled_nodes) == len(nodes[kind]) == data[kind].num_nodes
    assert len(targets["paper"]) == 8 and len(targets["author"]) == 0
    for relation in graph.relations:
        source, _, destination = relation
        part = data[relation]
        ends = (
            graph.nodes_of(source)[data[source].n_id[part.edge_index[0]].numpy()],
            graph.nodes_of(destination)[data[destination].n_id[part.edge_index[1]].numpy()],
        )
        np.testing.assert_array_equal(ends, graph.edge_index[:, part.e_id.numpy()])
    made = sum(blocks[-1].num_edges(relation) for relation in graph.relations)
    assert made == len(batch.blocks[-1].edge)


def net_of_pyg():
    from torch_geometric.nn import SAGEConv

    class Net(torch.nn.Module):
        def __init__(self, d_in, d_out):
            super().__init__()
            self.first = SAGEConv(d_in, 32)
            self.last = SAGEConv(32, d_out)

        def forward(self, batch):
            first, last = batch.adjs
            h = torch.relu(self.first((batch.x, batch.x[: first.size[1]]), first.edge_index))
            n = batch.batch_size
            return self.last((h, h[:n]), last.edge_index), batch.y[:n]

    return Net


def net_of_dgl():
    from dgl.nn import SAGEConv

    class Net(torch.nn.Module):
        def __init__(self, d_in, d_out):
            super().__init__()
            self.first = SAGEConv(d_in, 32, "mean")
            self.last = SAGEConv(32, d_out, "mean")

        def forward(self, batch):
            _, _, (first, last) = batch
            h = torch.relu(self.first(first, first.srcdata["x"]))
            return self.last(last, h), last.dstdata["y"]

    return Net


def trained(comm, to, mode, epochs):
    """Losses of all steps, and the accuracy of the test set."""
    graph = gt.load("sbm:n_nodes=1000,n_edges=6000")
    keys = {"to": to, "comm": comm, "mode": mode}
    train = gt.Loader(
        graph, fanout=[10, 5], batch_size=64 // (comm.size if mode[0] == "i" else 1), **keys
    )
    test = gt.Loader(graph, targets="test", fanout="all,all", order="ids", batch_size=128, **keys)
    torch.manual_seed(0)
    model = {"pyg": net_of_pyg, "dgl": net_of_dgl}[to]()(graph.n_features, graph.n_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for batch in train:
            optimiser.zero_grad()
            out, y = model(batch)
            loss = torch.nn.functional.cross_entropy(out, y, reduction="sum")
            sums = comm.all_sum(np.array([float(loss.detach()), len(y)]))
            losses.append(sums[0] / sums[1])
            (loss / max(len(y), 1)).backward()
            gt.average_gradients(model, weight=len(y), comm=comm)
            optimiser.step()
    right = np.zeros(2)
    for batch in test:
        with torch.no_grad():
            out, y = model(batch)
        right += int((out.argmax(dim=1) == y).sum()), len(y)
    right = comm.all_sum(right)
    return losses, right[0] / right[1]


@pytest.mark.parametrize("to", ["pyg", "dgl"])
def test_models_of_other_libraries_train_alike_on_any_number_of_workers(to, request):
    request.getfixturevalue(to)
    ((losses, accuracy),) = run_simulated(1, trained, to, "cooperative", EPOCHS)
    # the same numbers but for rounding, which Adam makes larger
    for together, _ in run_simulated(2, trained, to, "cooperative", 1):
        np.testing.assert_allclose(together, losses[: len(together)], rtol=1e-3)
    assert losses[-1] < 0.7 * losses[0]
    # as many targets a step; other batches
    ((_, dealt), _) = run_simulated(2, trained, to, "independent", EPOCHS)
    graph = gt.load("sbm:n_nodes=1000,n_edges=6000")
    keys = {"fanout": "10,5", "batch_size": 64, "hidden": 32, "dropout": 0.0, "weight_decay": 0.0}
    own = gt.Trainer("sage", graph, strategy="mini", epochs=EPOCHS, **keys)
    expected = own.fit().metrics["test_accuracy"]
    for found in (accuracy, dealt):
        assert abs(found - expected) < 0.06


@needs_mpi
def test_the_program_of_the_documentation_runs_on_workers(pyg):
    done = run(
        [MPIEXEC, "-n", "2", sys.executable, "-W", "ignore", str(PROGRAM)], OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # one worker is this process, which has imported the libraries
    alone, together = runpy.run_path(str(PROGRAM))["main"](), float(done.stdout.split()[-1])
    assert min(alone, together) > 0.6 and abs(alone - together) < 0.03


def test_a_gradient_that_no_worker_has_stays_none_and_one_without_targets_adds_nothing():
    def program(comm):
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.fill_(1.0)
        model.weight.grad = torch.full_like(model.weight, float("nan") if comm.rank else 3.0)
        gt.average_gradients(model, weight=0 if comm.rank else 5, comm=comm)
        one = model.weight.grad.clone(), model.bias.grad
        model.weight.grad.fill_(float(comm.rank))
        gt.average_gradients(model, weight=1 + 2 * comm.rank, comm=comm)
        return *one, model.weight.grad

    for first, none, second in run_simulated(2, program):
        assert none is None
        assert torch.all(first == 3.0) and torch.all(second == 0.75)
