"""Results as text: the verdict first, sentences fit the terminal, details only where asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cg4ai.ensemble.verdict import Verdict, describe_coverage, format_headline
from cg4ai.records import Strength
from cg4ai.report.story import Finding, KeyFigure, ReportTable, Section, Story
from cg4ai.report.terminal import render_text

KEPT = Finding("monotone", Strength.CONSTRUCTED, True, "monotone holds.", coverage="everywhere")
BROKEN = Finding("cases", Strength.VIOLATED, False, "cases is violated.", ("missed by 1: row 3",))
WIDE = {"a": "one cell of many words " * 5, "b": 1.0}
STORY = Story(
    title="A model",
    asked=("Predict it.",),
    findings=(KEPT, BROKEN),
    first=("All demands are halved.",),
    figures=(KeyFigure("65.7 %", "Accuracy", (("without rules", "67.4 %"), ("mean", "50 %"))),),
    closing=("Trained in 19 s.",),
    sections=(Section("Rules", (ReportTable([WIDE]),)),),
    trained=("The duals were large.",),
)


def test_what_was_scaled_and_whether_rules_hold_come_before_scores_and_time() -> None:
    lines = render_text(STORY).splitlines()
    assert lines[0] == STORY.first[0]
    assert lines[1] == format_headline(STORY.verdicts)
    assert "cases" in lines[1]
    assert [line.split()[0] for line in lines[2:5]] == ["monotone", "cases", "missed"]
    assert lines[5:] == ["Accuracy: 65.7 % (without rules 67.4 %, mean 50 %)", *STORY.closing]


def test_details_are_printed_only_where_they_are_asked_for() -> None:
    short, long = render_text(STORY), render_text(STORY, verbose=True)
    assert long.startswith(short)
    for text in (STORY.trained[0], KEPT.statement, STORY.asked[0], "Rules"):
        assert text not in short
        assert text in long


def test_sentences_are_broken_between_words_and_tables_are_left_alone() -> None:
    story = replace(STORY, closing=("No demand vector of the box overloads a link.",))
    lines = render_text(story, verbose=True, width=24).splitlines()
    wide = [line for line in lines if len(line) > 24]
    assert len(wide) == 2  # the names of the columns and the one row
    assert all("1" in line or line.endswith("b") for line in wide)
    assert "No demand vector of the\nbox overloads a link." in "\n".join(lines)


@pytest.mark.parametrize(
    ("strengths", "broken", "parts"),
    [
        ([], 0, ["nothing is guaranteed"]),
        ([Strength.AUDITED], 0, ["The rule holds."]),
        ([Strength.AUDITED, Strength.SHIELDED], 0, ["Both rules hold."]),
        ([Strength.CERTIFIED] * 3, 0, ["All 3 rules hold."]),
        ([Strength.AUDITED], 1, ["NOT kept"]),
        ([Strength.AUDITED] * 3, 2, ["2 of 3", "NOT kept", "r0, r1"]),
        ([Strength.ATTACKED], 0, ["NOT PROVEN"]),
        ([Strength.AUDITED, Strength.BOUNDED], 0, ["1 of 2", "NOT PROVEN", "r1"]),
    ],
)
def test_the_headline_never_says_more_than_was_established(
    strengths: list[Strength], broken: int, parts: list[str]
) -> None:
    verdicts = [
        Verdict(f"r{number}", number >= broken, one, "") for number, one in enumerate(strengths)
    ]
    words = format_headline(verdicts)
    assert all(part in words for part in parts)
    assert ("hold" in words) == (bool(strengths) and "NOT" not in words)


def test_rules_that_held_out_rows_contradict_are_not_said_to_hold() -> None:
    words = format_headline([Verdict("rate", True, Strength.AUDITED, "", doubtful=True)])
    assert "on the listed rows" in words
    assert "LIKELY VIOLATED" in words


def test_every_strength_says_where_a_rule_holds_or_is_violated() -> None:
    for strength in set(Strength) - {Strength.VIOLATED}:
        assert describe_coverage(strength, "a box in 3 dimensions", holds=True)
        broken = describe_coverage(strength, "a box", holds=False, rows=2, worst_violation=0.5)
        assert broken.startswith("VIOLATED")
        assert "0.5" in broken
