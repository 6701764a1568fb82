import torch
import torch.nn.functional as F

import graphtheta as gt


def train(
    model,
    graph,
    epochs,
    fanout=(5, 5),
    batch_size=32,
    order="random",
):
    loader = gt.Loader(
        graph,
        fanout=fanout,
        batch_size=batch_size,
        order=order,
        share_sample=True,  # as in a single edge_index
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
