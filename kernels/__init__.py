"""C sources of the kernels, read as data."""
