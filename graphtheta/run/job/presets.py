"""Published settings, by name: the keys of a job that differ from the defaults.

Sources: GCN on Planetoid, https://arxiv.org/abs/1609.02907 (tkipf/gcn train.py); GAT,
https://arxiv.org/abs/1710.10903; APPNP, https://arxiv.org/abs/1810.05997 (klicpera/ppnp), on other
splits; Amazon and Coauthor, Shchur et al.,
https://arxiv.org/abs/1811.05868 (shchur/gnn-benchmark, config/optimized).
"""

from __future__ import annotations

from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError

_PLANETOID = {"split": "public", "normalise_features": "row"}
_PITFALLS = {
    "split": "random",
    "train_per_class": 20,
    "val_per_class": 30,
    "largest_component": "yes",
    "symmetric": "yes",
    "normalise_features": "none",
    "epochs": 1000,
    "patience": 50,
}
_GAT = {"model": "gat", "hidden": 8, "heads": 8, "out_heads": 1}
_BY_MODEL: dict[str, dict[str, dict[str, Any]]] = {
    "planetoid": {
        "gcn": {
            **_PLANETOID,
            "model": "gcn",
            "hidden": 16,
            "dropout": 0.5,
            "lr": 0.01,
            "weight_decay": 5e-4,
            "decay_first_layer_only": True,
            "epochs": 200,
        },
        "gat": {
            **_PLANETOID,
            **_GAT,
            "dropout": 0.6,
            "attention_dropout": 0.6,
            "lr": 0.005,
            "weight_decay": 5e-4,
            "epochs": 1000,
            "patience": 100,
        },
        "appnp": {
            **_PLANETOID,
            "model": "appnp",
            "hidden": 64,
            "propagations": 10,
            "alpha": 0.1,
            "dropout": 0.5,
            "edge_drop": 0.5,
            "lr": 0.01,
            "weight_decay": 5e-3,
            "decay_first_layer_only": True,
            "epochs": 10_000,
            "patience": 100,
        },
    },
    "pitfalls": {
        "gcn": {
            **_PITFALLS,
            "model": "gcn",
            "hidden": 64,
            "dropout": 0.8,
            "lr": 0.01,
            "weight_decay": 1e-3,
        },
        "gat": {
            **_PITFALLS,
            **_GAT,
            "dropout": 0.6,
            "attention_dropout": 0.3,
            "lr": 0.01,
            "weight_decay": 0.01,
        },
        "sage": {
            **_PITFALLS,
            "model": "sage",
            "hidden": 32,
            "aggregator": "mean",
            "dropout": 0.4,
            "lr": 1e-3,
            "weight_decay": 0.1,
        },
    },
}
_FAMILY = {
    "cora": "planetoid",
    "citeseer": "planetoid",
    "amazon_photo": "pitfalls",
    "amazon_computers": "pitfalls",
    "coauthor_cs": "pitfalls",
}

PRESETS: dict[str, dict[str, Any]] = {
    f"{dataset}-{model}": {"dataset": dataset, **keys}
    for dataset, family in _FAMILY.items()
    for model, keys in _BY_MODEL[family].items()
}


@checked
def preset(name: str) -> dict[str, Any]:
    """The keys of a published setting; ``Job(**preset("cora-gcn"), seed=3)``.

    Args:
        name: Dataset and model, such as cora-gcn.

    Returns:
        Keys and values.

    Raises:
        ConfigError: There is no preset of that name.
    """
    if name not in PRESETS:
        raise ConfigError(
            f"unknown preset '{name}'{did_you_mean(name, PRESETS)}; presets: {', '.join(PRESETS)}"
        )
    return dict(PRESETS[name])
