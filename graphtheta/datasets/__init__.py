"""Where graphs come from: files, generators, and the names of datasets."""
