"""scikit-learn's own checks of what it means to be an estimator; none is excused."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_class_weight_classifiers, parametrize_with_checks

from cg4ai import ConstrainedClassifier, ConstrainedRegressor

QUICK: dict[str, Any] = {
    "hidden": (8,),
    "steps": 60,
    "iteration_limit": 3,
    "weight_decay": 0.3,
    "random_state": 0,
}


@parametrize_with_checks([ConstrainedClassifier(**QUICK), ConstrainedRegressor(**QUICK)])
@pytest.mark.filterwarnings("default")
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
@pytest.mark.parametrize("members", ["tree", "forest", "boosting"])
def test_class_weights_reach_trees(members: str) -> None:
    check_class_weight_classifiers("trees", ConstrainedClassifier(members=members))
