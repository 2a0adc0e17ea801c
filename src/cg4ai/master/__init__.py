"""The restricted master: the linear program that weighs members and prices rows for the loop."""

from cg4ai.master.linear import LinearMaster
from cg4ai.master.table import DUMMY_MULTIPLE, NO_SLACK, OWN_SLACK

__all__ = ["DUMMY_MULTIPLE", "NO_SLACK", "OWN_SLACK", "LinearMaster"]
