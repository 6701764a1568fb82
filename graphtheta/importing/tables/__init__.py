"""Tables: text files, Parquet, Feather, queries and graph objects, read in pieces by several
workers.
"""

from __future__ import annotations

from graphtheta.errors import ConfigError

try:
    import pyarrow as pyarrow
except ImportError:
    raise ConfigError(
        "importing tables needs pyarrow; install it with: pip install 'graphtheta[tables]'"
    ) from None
