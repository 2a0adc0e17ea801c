"""Rules from a JSON file: each object of the list becomes one requirement (docs/rules.md).

The commands read data first and hand it here as a `Subject`; every error names the file, the
rule's number and the key.
"""

from cg4ai.apps.protocol import Rule
from cg4ai.apps.tabular.rulefile.entry import Subject, normalise_label
from cg4ai.apps.tabular.rulefile.read import read_rules, rule_files

__all__ = ["Rule", "Subject", "normalise_label", "read_rules", "rule_files"]
