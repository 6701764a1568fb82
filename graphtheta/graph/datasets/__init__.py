"""Sources of graphs: files, generators, and named datasets."""
