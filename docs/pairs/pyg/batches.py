import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader


def train(
    model,
    data,
    epochs,
    fanout=(10, 5),
    batch_size=32,
    shuffle=True,
):
    loader = NeighborLoader(
        data,
        num_neighbors=list(fanout),
        input_nodes=data.train_mask,
        batch_size=batch_size,
        shuffle=shuffle,
    )
    optimiser = torch.optim.Adam(
        model.parameters(), lr=0.01, weight_decay=5e-4
    )
    losses = []
    for _ in range(epochs):
        total = 0.0
        for batch in loader:
            optimiser.zero_grad()
            n = batch.batch_size
            loss = F.cross_entropy(
                model(batch)[:n], batch.y[:n]
            )
            loss.backward()
            optimiser.step()
            total += loss.item()
        losses.append(total / len(loader))
    return losses
