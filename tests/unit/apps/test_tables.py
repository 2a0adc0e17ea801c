"""Text for people: sentences fit the terminal, tables keep their columns."""

from cg4ai.apps.tables import wrapped


def test_sentences_are_broken_between_words_and_tables_are_left_alone() -> None:
    table = "name        " + "1.0   " * 10
    text = "no demand vector of the box overloads a link\n" + table + "\nshort"
    assert wrapped(text, 20).split("\n") == [
        "no demand vector of",
        "the box overloads a",
        "link",
        table,
        "short",
    ]
