"""The graph language, and the architectures written in it."""
