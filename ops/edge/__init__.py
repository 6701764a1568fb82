"""The edge compiler: traced gathers become programs of phases, which two back ends run."""
