"""The kernels of the lower levels: their source, their compilation, and their calls."""
