"""NN-TGAR layers: what a user writes, and the superstep that runs it over one level of a view."""
