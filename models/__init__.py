"""Published layers, decoders, and networks built from them by name."""

if __name__ != "graphtheta.models":
    raise ImportError("import graphtheta.models, not models")

from .appnp import APPNP
from .build import build_model
from .decoder import DotDecoder, EdgeDecoder, HadamardDecoder, NodeHead
from .design import Design, NetworkOptions
from .gat import GAT
from .gat_e import GATE
from .gatv2 import GATv2
from .gcn import GCN
from .gcnii import GCNII
from .gin import GIN
from .gine import GINE
from .gipa import GIPA
from .hgt import HGT
from .mlp import MLP, Linear
from .network import Network
from .norm import BatchNorm, LayerNorm
from .pna import PNA
from .registry import MODELS, register_model
from .rgat import RGAT
from .rgcn import RGCN
from .sage import SAGE
from .sequential import Sequential
from .simple_hgn import SimpleHGN
from .transformer import Transformer
from .user import load_user

__all__ = [
    "APPNP",
    "GAT",
    "GATE",
    "GATv2",
    "GCN",
    "GCNII",
    "GIN",
    "GINE",
    "GIPA",
    "HGT",
    "MLP",
    "MODELS",
    "PNA",
    "RGAT",
    "RGCN",
    "SAGE",
    "BatchNorm",
    "Design",
    "DotDecoder",
    "EdgeDecoder",
    "HadamardDecoder",
    "LayerNorm",
    "Linear",
    "Network",
    "NetworkOptions",
    "NodeHead",
    "Sequential",
    "SimpleHGN",
    "Transformer",
    "build_model",
    "load_user",
    "register_model",
]
