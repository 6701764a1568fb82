"""Which programs run on the reference back end, whatever a job chooses: their compiled kernels say
nothing new.
"""

from __future__ import annotations

# set for these programs
VARIABLE = "TESTS_ON_REFERENCE"
