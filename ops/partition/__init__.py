"""Compiled loops of partitioners, which read the edges of a graph chunk by chunk."""
from pathlib import Path

from ..compile.jit import KERNEL_FOLDERS

KERNEL_FOLDERS.append(Path(__file__).parent)
