"""Rules on decisions: kept at listed inputs and new ones, beside other rules, in any batch."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, Problem, load, solve
from cg4ai.colgen.pricing.trees import TreePricer
from cg4ai.data import fit_with_requirements
from cg4ai.ensemble.decision_search import DecisionSearch, RateRows, ScoreTable, Term
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import FitWarning, InvalidInput, SmallGroups
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.mixture import Part
from cg4ai.objectives import Supervised
from cg4ai.rules import Box, DecisionRate, Linear, Margin, Monotone, Range
from raising import raises


def people(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features that know the group, labels that depend on them."""
    random = np.random.default_rng(seed)
    group = random.integers(0, 2, count)
    inputs = random.normal(size=(count, 4))
    inputs[:, 0] += group
    score = inputs @ [1.0, 0.8, -0.5, 0.0] - 0.5 + random.logistic(size=count)
    return inputs, (score > 0).astype(int), group


def gap(decided: Any, group: Any) -> float:
    return abs(float(decided[group == 1].mean() - decided[group == 0].mean()))


def odds(decided: Any, labels: Any, group: Any) -> float:
    return max(gap(decided[labels == k], group[labels == k]) for k in (0, 1))


def by_hand(model: Any, inputs: Any) -> Any:
    """Decisions from the members' own outputs and what is recorded about decisions."""
    record = model.ensemble_.about["decisions"]
    parts = model.ensemble_.parts
    scores = np.concatenate(
        [part.members.outputs(torch.as_tensor(inputs)).numpy() for part in parts]
    )
    decisive = np.einsum("m,mnr->nr", record["weights"], scores) + record["offsets"]
    decided = (decisive[:, 1] > decisive[:, 0]).astype(int)
    if record["agreement"]:
        lead = scores[..., 1] - scores[..., 0]
        decided[(lead > 1e-6).all(0)] = 1
        decided[(lead < -1e-6).all(0)] = 0
    return decided


X, Y, G = people(1500)
PARITY = DecisionRate(X, G, tolerance=0.05, name="parity")


@pytest.fixture(scope="module")
def lines() -> ConstrainedClassifier:
    """Logistic regression under `PARITY`, for tests that only ask it."""
    return ConstrainedClassifier(members=LogisticRegression(), random_state=0).fit(X, Y, [PARITY])


@pytest.mark.parametrize("members", [LogisticRegression(), DecisionTreeClassifier(max_depth=4)])
def test_parity_of_decisions_holds_at_the_listed_rows(members: Any) -> None:
    model = ConstrainedClassifier(members=members, random_state=0).fit(X, Y, [PARITY])
    decided = model.predict(X)
    assert gap(decided, G) <= 0.05 + 1e-9
    assert model.audit_[0].holds
    assert gap(ConstrainedClassifier(members=members, random_state=0).fit(X, Y).predict(X), G) > 0.1
    assert np.allclose(model.predict_proba(X).sum(1), 1)
    assert (decided == by_hand(model, X)).all()


@pytest.mark.slow
@pytest.mark.guard
def test_equalised_odds_of_networks() -> None:
    rule = DecisionRate(X, G, tolerance=0.05, of="equalised odds", labels=Y)
    model = ConstrainedClassifier(random_state=0, iteration_limit=8).fit(X, Y, [rule])
    assert odds(model.predict(X), Y, G) <= 0.05 + 1e-9
    assert model.score(X, Y) > max(Y.mean(), 1 - Y.mean())


def test_decisions_are_the_same_alone_and_after_saving(
    tmp_path: Path, lines: ConstrainedClassifier
) -> None:
    model = lines
    decided = model.predict(X)
    assert [int(model.predict(x[None])[0]) for x in X[:50]] == decided[:50].tolist()
    model.ensemble_.save(tmp_path / "model")
    assert load(tmp_path / "model").decide(X).tolist() == decided.tolist()


def test_rates_are_stated_with_intervals_where_models_were_not_trained(
    lines: ConstrainedClassifier,
) -> None:
    model = lines
    first, second, difference = model.audit_[0].rates
    decided = model.predict(X)
    assert np.isclose(first.value, decided[G == 0].mean())
    assert np.isclose(difference.value, first.value - second.value)
    assert first.held_out is not None
    assert second.held_out is not None
    assert first.held_out.count + second.held_out.count == len(X)
    assert abs(difference.held_out.value) <= 0.05
    assert 0 <= first.held_out.low < first.held_out.value < first.held_out.high <= 1
    assert "held out" in str(model.audit_[0])


def test_many_classes_and_labels_that_are_not_positions() -> None:
    random = np.random.default_rng(1)
    labels = np.array([3, 5, 9])[np.digitize(X[:, 0] + 0.5 * random.normal(size=len(X)), [0, 1])]
    rule = DecisionRate(X, G, tolerance=0.08, of="true positive", labels=labels, output=2)
    model = ConstrainedClassifier(members=LogisticRegression(), random_state=0)
    decided = model.fit(X, labels, [rule]).predict(X)
    assert set(np.unique(decided)) <= {3, 5, 9}
    of_class = labels == 9
    assert gap((decided == 9)[of_class], G[of_class]) <= 0.08 + 1e-9


def test_bounds_on_selection_rates() -> None:
    rule = DecisionRate(X, G, at_most=0.3)
    model = ConstrainedClassifier(members=LogisticRegression(), random_state=0).fit(X, Y, [rule])
    decided = model.predict(X)
    assert max(decided[G == 0].mean(), decided[G == 1].mean()) <= 0.3 + 1e-9
    assert min(decided[G == 0].mean(), decided[G == 1].mean()) > 0.1


def test_votes_are_refused_of_regressors_and_of_objectives_without_labels() -> None:
    rule = DecisionRate(X, G, tolerance=0.1)
    with raises(InvalidInput, "unsupported", "Rate"):
        ConstrainedRegressor().fit(X, X[:, :2], [rule])
    problem = Problem(
        objective=Supervised(X, X[:, :2]),
        requirements=[rule],
        pricers=[TreePricer(DecisionTreeClassifier())],
        layout=Layout.single(2),
    )
    with raises(InvalidInput, "unsupported"):
        solve(problem)


def test_of_many_classes_one_must_be_named() -> None:
    rule = DecisionRate(X, G, tolerance=0.1)
    with raises(InvalidInput, "missing-argument"):
        ConstrainedClassifier().fit(X, np.digitize(X[:, 0], [0, 1]), [rule])


LOW, HIGH = X.min(0), X.max(0)
EVERYWHERE = np.concatenate(
    [
        np.random.default_rng(7).uniform(LOW, HIGH, (5000, 4)),
        np.array(np.meshgrid(*zip(LOW, HIGH, strict=True))).reshape(4, -1).T,
    ]
)
HEAVY = (pytest.mark.slow, pytest.mark.guard)  # one cheaper case of each stays without
HEAVY_NETWORK = pytest.param("network", marks=HEAVY)  # trained for every fold
QUICK: dict[str, Any] = {"random_state": 0, "iteration_limit": 4, "steps": 60}


@pytest.mark.parametrize(
    "members", [LogisticRegression(), pytest.param("tree", marks=HEAVY), HEAVY_NETWORK]
)
def test_beside_rules_over_regions_scores_keep_these_and_decisions_the_rate(members: Any) -> None:
    cap = Linear(Box(LOW, HIGH), [0.0, 1.0], 0.7, "<=", name="cap")
    clear = Margin(Box([1.0, 0.5, -1.0, -1.0], [2.5, 2.0, 0.0, 1.0]), 1, 0.2, name="clear")
    model = ConstrainedClassifier(members=members, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of limits
        model.fit(X, Y, [PARITY, cap, clear])
    assert [str(one.strength) for one in model.audit_] == ["audited", "shielded", "shielded"]
    assert all(one.holds for one in model.audit_)
    decided = model.predict(X)
    assert gap(decided, G) <= 0.05 + 1e-9
    assert (decided == by_hand(model, X)).all(), "votes are those of shielded outputs"
    assert model.predict_proba(EVERYWHERE)[:, 1].max() <= 0.7 + 1e-9
    inside = np.random.default_rng(8).uniform([1.0, 0.5, -1.0, -1.0], [2.5, 2.0, 0, 1], (500, 4))
    assert np.diff(model.predict_proba(inside)).min() >= 0.2 - 1e-9
    assert model.predict(inside).all(), "every member votes for it there"
    assert "decisions have thresholds" in model.result_.note


@pytest.mark.parametrize("members", ["tree", HEAVY_NETWORK])
def test_beside_monotone_scores_and_decisions_never_fall(members: Any) -> None:
    rises = Monotone({1: +1}, name="rises")
    model = ConstrainedClassifier(members=members, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        model.fit(X, Y, [PARITY, rises])
    assert [str(one.strength) for one in model.audit_] == ["audited", "constructed"]
    decided = model.predict(X)
    assert gap(decided, G) <= 0.05 + 1e-9
    assert (decided == by_hand(model, X)).all()
    higher = EVERYWHERE + np.array([0, 1.0, 0, 0]) * np.random.default_rng(9).exponential(
        size=(len(EVERYWHERE), 1)
    )
    before, after = (model.predict_proba(one)[:, 1] for one in (EVERYWHERE, higher))
    assert (after >= before - 1e-12).all()
    assert (model.predict(higher) >= model.predict(EVERYWHERE)).all()


def test_beside_a_range_of_logits_and_listed_rules() -> None:
    limits = Range(-2.0, 2.0, name="limits")
    cases = Linear(X[:4], [-1.0, 1.0], 2 * Y[:4] - 1.5, ">=", name="cases")
    model = ConstrainedClassifier(scores="logit", **(QUICK | {"iteration_limit": 2, "steps": 10}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        model.fit(X, Y, [PARITY, limits, cases])
    assert all(one.holds for one in model.audit_)
    scores = np.asarray(model.ensemble_.predict(EVERYWHERE * 10))
    assert np.abs(scores).max() <= 2
    assert (model.decision_function(X[:4]) >= 2 * Y[:4] - 1.5 - 1e-6).all()
    assert gap(model.predict(X), G) <= 0.05 + 1e-9


@pytest.mark.parametrize(
    ("of", "known"),
    [
        ("selection", True),
        pytest.param("selection", False, marks=HEAVY),
        pytest.param("equalised odds", True, marks=HEAVY),
        pytest.param("equalised odds", False, marks=HEAVY),
    ],
)
def test_rates_carry_over_to_new_rows(of: str, known: bool) -> None:
    tolerance, gaps, right, plain = 0.04, [], [], []
    for seed in range(2):
        inputs, labels, group = people(3000, seed=20 + seed)
        fresh, fresh_labels, fresh_group = people(20_000, seed=40 + seed)
        place = None
        if known:
            inputs, fresh = np.column_stack([inputs, group]), np.column_stack([fresh, fresh_group])
            place = 4
        given = None if known else group
        rule = DecisionRate(
            inputs, given, tolerance=tolerance, of=of, labels=labels, group_feature=place
        )
        model = ConstrainedClassifier(members=LogisticRegression(), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroups)
            decided = model.fit(inputs, labels, [rule]).predict(fresh)
        assert model.audit_[0].holds
        of_rule = gap(decided, fresh_group)
        if of != "selection":
            of_rule = odds(decided, fresh_labels, fresh_group)
        gaps.append(of_rule)
        right.append((decided == fresh_labels).mean())
        plain.append(max(fresh_labels.mean(), 1 - fresh_labels.mean()))
    error = 0.5 * np.sqrt(4 / 3000 if of == "selection" else 8 / 3000)
    assert np.mean(gaps) <= tolerance + error
    assert np.mean(right) > np.mean(plain) + 0.05, "they know the labels"


def test_groups_too_small_are_refused_or_warned_of() -> None:
    inputs, labels, group = people(600, seed=5)
    rule = DecisionRate(inputs, group, tolerance=0.01)
    model = ConstrainedClassifier(members=LogisticRegression(), random_state=0)
    with pytest.warns(SmallGroups):
        model.fit(inputs, labels, [rule])
    assert SmallGroups.code == "small-groups"
    assert "too small" in model.cautions_[0]
    assert (model.predict(inputs) == labels).mean() > 0.5
    few = np.where(np.arange(600) < 3, 2, group)
    with raises(InvalidInput, "small-groups"):
        model.fit(inputs, labels, [DecisionRate(inputs, few, tolerance=0.1)])


def test_a_feature_that_does_not_tell_the_groups_is_refused() -> None:
    known = people(800)
    rule = DecisionRate(known[0], known[2], tolerance=0.1, group_feature=0)
    ConstrainedClassifier(members=LogisticRegression(), random_state=0).fit(*known[:2], [rule])
    mixed = np.column_stack([X, np.arange(len(X)) % 2])
    with raises(InvalidInput, "conflict"):
        ConstrainedClassifier().fit(
            mixed, Y, [DecisionRate(mixed, G, tolerance=0.1, group_feature=4)]
        )


def test_one_model_cannot_decide_for_groups() -> None:
    with raises(InvalidInput, "conflict"):
        ConstrainedClassifier(members="tree", single_model=True).fit(X, Y, [PARITY])


def test_the_frontier_is_of_rows_that_chose_nothing(lines: ConstrainedClassifier) -> None:
    model = lines
    found = model.frontier([0.02, 0.1, 0.3])
    assert [one.tolerance for one in found.points] == [0.02, 0.1, 0.3]
    assert np.all(np.diff([one.gap for one in found.points]) > 0)
    assert found.points[0].accuracy < found.unbound.accuracy
    assert found.table()[-1]["gap"] == found.unbound.gap > 0.2
    again = pickle.loads(pickle.dumps(model)).frontier([0.1])
    assert str(again.points) == str(found.points[1:2])
    with raises(InvalidInput, "range"):
        model.frontier([-0.1])
    with raises(InvalidInput, "unsupported"):
        ConstrainedClassifier(members=LogisticRegression()).fit(X, Y).frontier()


def test_the_search_finds_what_brute_force_does() -> None:
    """Two scores and a threshold, against all thresholds of a fine grid of weights."""
    x, y, group = people(300, seed=4)
    score, told = (x @ [1.0, 0.8, -0.5, 0.0]) / 4, (x[:, 0] - 0.5) / 4
    base, term = (np.stack([-one / 2, one / 2], axis=1) for one in (score, told))
    costs = (1.0 - np.eye(2)[y]) / len(y)
    table = ScoreTable(base, (Term("group", term, -term),), costs, np.full(len(y), -1))
    rule = DecisionRate(x, group, tolerance=0.03)
    rule.check(4, 2)
    rows = RateRows.of([rule], {id(rule.points): np.arange(len(x))}, len(x))
    search = DecisionSearch((table, rows), listed=(table, rows))
    found = search.settle(search.run()[0])
    least = 1.0
    for weight in np.linspace(-1.5, 1.5, 201):
        mixed = score + weight * told
        thresholds = np.append(np.sort(mixed) - 1e-9, np.inf)
        decided = mixed > thresholds[:, None]
        gaps = np.abs(decided[:, group == 1].mean(1) - decided[:, group == 0].mean(1))
        least = min(least, float((decided != y).mean(1)[gaps <= 0.03].min()))
    assert found.error <= least + 0.01
    chosen = table.decide(found.values, found.offsets)
    assert gap(chosen, group) <= 0.03 + 1e-9
    assert found.error == pytest.approx((chosen != y).mean())


def groups_behind_components(count: int = 1500) -> tuple[Any, Any, Any, Any]:
    """Fifteen features for PCA, labels, groups, and fresh rows."""
    random = np.random.default_rng(11)
    group = random.integers(0, 2, 2 * count)
    inputs = random.normal(size=(2 * count, 15)) @ random.normal(size=(15, 15))
    inputs[:, 0] += 1.5 * group
    score = inputs[:, :3] @ [0.6, 0.4, -0.5] + 0.8 * random.logistic(size=2 * count)
    labels = (score > 0.3).astype(int)
    return inputs[:count], labels[:count], group[:count], inputs[count:]


@pytest.mark.parametrize("members", [LogisticRegression(), DecisionTreeClassifier(max_depth=5)])
def test_decisions_do_not_hang_on_the_last_bits_of_their_inputs(members: Any) -> None:
    inputs, labels, group, fresh = groups_behind_components()
    rule = DecisionRate(inputs, group, tolerance=0.05)
    model = make_pipeline(
        StandardScaler(), PCA(8), ConstrainedClassifier(members=members, random_state=0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        model = fit_with_requirements(model, inputs, labels, [rule])
    for rows in (inputs, fresh):
        together = model.predict(rows)
        scores = model[-1].ensemble_.decision_scores(torch.as_tensor(model[:-1].transform(rows)))
        margins = (scores[:, 1] - scores[:, 0]).abs().numpy()
        # last bits decide where they can: those nearest to the threshold, and some of the others
        near = np.argsort(margins, kind="stable")
        some = np.concatenate([near[:60], near[60::40]])
        alone = np.concatenate([model.predict(rows[k, None]) for k in some])
        assert alone.tolist() == together[some].tolist()
        assert model.predict(rows + 1e-12).tolist() == together.tolist()
        assert model.predict(rows[::-1])[::-1].tolist() == together.tolist()
    single = model.predict(inputs.astype(np.float32))
    assert single.tolist() == model.predict(inputs).tolist()
    assert gap(single, group) <= 0.05 + 1e-9
    ensemble = model[-1].ensemble_
    within = model[:-1].transform(inputs)
    assert not ensemble.find_unsure(within).any()
    scores = ensemble.decision_scores(torch.as_tensor(within)).numpy()
    assert np.abs(scores[:, 1] - scores[:, 0]).min() > 1e-7, "no listed row is at the threshold"


def test_decisions_within_rounding_of_a_threshold_are_counted_against_the_rule() -> None:
    voters = affine(np.array([[[0.0, 1.0]]]), np.zeros((1, 2)))
    x = np.array([[-1.0], [1.0], [-1.0], [1e-13], [1.0], [-1.0]])
    rule = DecisionRate(x, [0, 0, 0, 1, 1, 1], tolerance=0.1)
    model = Ensemble((Part(voters, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))
    model.about["decisions"] = {"weights": [1.0], "offsets": [0.0, 0.0], "agreement": False}
    assert model.decide(x).tolist() == [0, 1, 0, 1, 1, 0]
    assert model.find_unsure(x).any(1).tolist() == [False, False, False, True, False, False]
    assert not model.audit(rule).holds
    moved = x.copy()
    moved[3] = -0.5
    assert model.audit(DecisionRate(moved, rule.groups, tolerance=0.1)).holds


def test_ensembles_that_decided_by_a_hash_give_scores_and_no_decisions(tmp_path: Path) -> None:
    voters = affine(np.array([[[0.0, 1.0]]]), np.zeros((1, 2)))
    model = Ensemble((Part(voters, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))
    model.about["decisions"] = {"seed": 3}
    model.save(tmp_path / "old")
    again = load(tmp_path / "old")
    assert again.predict([[2.0]]).tolist() == [[0.0, 2.0]]
    with raises(InvalidInput, "version"):
        again.decide([[2.0]])
    with raises(InvalidInput, "version"):
        again.audit(DecisionRate([[2.0], [1.0]], [0, 1], tolerance=0.1))


@pytest.mark.parametrize(
    "record",
    [
        {"weights": [0.5, 0.5], "offsets": [0.0, 0.0], "agreement": False},
        {"weights": [1.0], "offsets": [0.0], "agreement": False},
        {"weights": [1.0], "offsets": [0.0, np.nan], "agreement": False},
        {"weights": [0.9], "offsets": [0.0, 0.0], "agreement": False},
        {"weights": [1.0], "offsets": [0.0, 0.0], "agreement": 1},
        {"weights": [1.0], "offsets": [0.0, 0.0]},
        [],
    ],
)
def test_records_of_decisions_that_do_not_fit_are_refused(record: Any) -> None:
    voters = affine(np.array([[[0.0, 1.0]]]), np.zeros((1, 2)))
    model = Ensemble((Part(voters, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))
    model.about["decisions"] = record
    with raises(InvalidInput, "bad-file", "decides"):
        model.decide([[2.0]])
