"""What notebooks show: scikit-learn's diagram and, once fitted, what is guaranteed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cg4ai import ConstrainedRegressor
from cg4ai.errors import FitWarning
from cg4ai.rules import Linear
from pages_read import Page

NAME = 'cap <b> & "more"'


def model() -> ConstrainedRegressor:
    return ConstrainedRegressor(members="affine", iteration_limit=5, random_state=0)


@pytest.fixture(scope="module")
def fitted() -> ConstrainedRegressor:
    x = np.linspace(0, 1, 20)[:, None]
    return model().fit(x, 2 * x[:, 0], [Linear(x, [1.0], 3.0, "<=", name=NAME)])


def test_before_fit_it_is_the_diagram_alone() -> None:
    shown = model()._repr_html_()
    assert "ConstrainedRegressor" in shown
    assert "guaranteed" not in shown
    assert model()._repr_mimebundle_()["text/html"].count("ConstrainedRegressor") > 0


def test_once_fitted_every_rule_stands_under_the_diagram(fitted: ConstrainedRegressor) -> None:
    shown = fitted._repr_html_()
    stated = fitted.result_._repr_html_()
    assert shown.endswith(stated)
    assert "Parameters" in shown or "ConstrainedRegressor(" in shown
    page = Page(stated)
    assert "audited" in page.texts["span"]
    assert str(fitted.audit_[0]).splitlines()[0] in page.words
    assert NAME in page.words
    assert "<b>" not in stated
    bundle = fitted._repr_mimebundle_()
    assert bundle["text/html"].endswith(stated)
    assert bundle["text/plain"] == repr(fitted)


def test_broken_rules_are_called_so() -> None:
    x = np.linspace(0, 1, 20)[:, None]
    low = Linear(x[-1:], [1.0], 0.0, "<=", name="low")
    high = Linear(x[-2:-1], [1.0], 5.0, ">=", name="high")
    short = ConstrainedRegressor(members="network", hidden=(2,), steps=2, iteration_limit=1)
    with pytest.warns(FitWarning):
        short.fit(x, 2 * x[:, 0], [low, high])
    assert "violated" in Page(short.result_._repr_html_()).texts["span"]


def test_where_text_is_asked_for_there_is_no_html(fitted: ConstrainedRegressor) -> None:
    with config_context(display="text"):
        assert not hasattr(fitted, "_repr_html_")
        assert list(fitted._repr_mimebundle_()) == ["text/plain"]


def test_pipelines_show_their_own_diagram(fitted: ConstrainedRegressor) -> None:
    for last in (model(), fitted):
        shown = make_pipeline(StandardScaler(), last)._repr_html_()
        assert "StandardScaler" in shown
        assert "ConstrainedRegressor" in shown
