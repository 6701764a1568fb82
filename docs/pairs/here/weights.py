import torch

import graphtheta as gt


def load(model, path, names):
    """names: layers of the file by those of the model,
    such as {"first": "conv1", "last": "conv2"}.
    """
    gt.from_torch(torch.load(path), model, names)


def save(model, path, library="pyg"):
    """model: a published one, as of gt.Trainer("gcn", graph)."""
    torch.save(
        gt.to_torch(model, library).state_dict(), path
    )
