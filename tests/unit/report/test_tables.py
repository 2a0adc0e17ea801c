"""Tables for people: columns and cells of text, Markdown and HTML."""

from cg4ai.report import tables
from pages_read import Page


def test_html_tables_hold_texts_as_they_are_and_numbers_to_the_right() -> None:
    rows: list[dict[str, object]] = [
        {"<name>": "a & <b>", "value": 0.123456},
        {"<name>": 'c "d"', "value": None},
    ]
    page = Page(tables.format_html(rows, digits=3))
    assert page.texts["th"] == ["<name>", "value"]
    assert page.texts["td"] == ["a & <b>", "0.123", 'c "d"']
    assert page.values("class") == ["number"] * 3
    assert tables.format_html([]) == ""


def test_no_line_of_a_page_ends_in_an_arrow_and_long_columns_stay_wide() -> None:
    """On a telephone names broke into two and a column of sentences became a tall ribbon."""
    rows = [{"link": "a->d", "demands": "a->d 100%, " * 9, "load": 0.5}]
    page = tables.format_html(rows)
    assert page.count('<span class="arrow">-&gt;</span>') == 10
    assert page.count("-&gt;") == 10
    assert '<td class="long">a<span' in page
    assert "<td>a<span" in page
    assert '<td class="number">0.5</td>' in page
