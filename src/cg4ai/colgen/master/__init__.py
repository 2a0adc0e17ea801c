"""The restricted master: the linear program that weighs members and prices rows for the loop."""

from cg4ai.colgen.master.linear import LinearMaster
from cg4ai.colgen.master.table import DUMMY_MULTIPLE, NO_SLACK, OWN_SLACK

__all__ = ["DUMMY_MULTIPLE", "NO_SLACK", "OWN_SLACK", "LinearMaster"]
