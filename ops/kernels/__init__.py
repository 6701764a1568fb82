"""Compiled loops. Plain arrays in, plain arrays out."""
from pathlib import Path

from ..compile.jit import KERNEL_FOLDERS

KERNEL_FOLDERS.append(Path(__file__).parent)
