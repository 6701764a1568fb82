import torch

import graphtheta as gt


def load(model, path, names):
    """names: the layer in the file by the layer of the model, such as
    {"first": "conv1", "last": "conv2"}.
    """
    gt.from_torch(torch.load(path), model, names)


def save(model, path, library="pyg"):
    """Of a published model, such as gt.Trainer("gcn", graph).model."""
    torch.save(gt.to_torch(model, library).state_dict(), path)
