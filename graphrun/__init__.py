"""graphrun: write an LLM architecture once, as data; run it checked and fast on any device."""

from importlib.metadata import version

from graphrun.core.errors import GraphError
from graphrun.model import Model

load = Model.open
__version__ = version("graphrun")

__all__ = ["GraphError", "Model", "__version__", "load"]
