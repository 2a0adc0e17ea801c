"""Study `classes`: classifiers of three or more classes that rise with features, ours and peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

import cg4ai
from cg4ai.data import Array
from experiments.peers import boosters, tables
from experiments.peers.boosters import Asked
from experiments.peers.cells import Cell
from experiments.peers.monotone import PAIRS, ROUNDING, peer
from experiments.peers.outcomes import OURS, Clock, Outcome
from experiments.peers.tables import Task

Predict = Callable[[Array], Array]
MEMBERS = {
    OURS: "auto",
    f"{OURS}, networks": "network",
    f"{OURS}, boosting": "boosting",
    f"{OURS}, forest": "forest",
}


@dataclass(frozen=True)
class Question:
    """A table of so many classes, of which one is bound, or all as they are in order."""

    table: Callable[[int], Task]
    classes: int
    output: int | None = None

    def rule(self, signs: Mapping[int, int]) -> cg4ai.rules.Monotone:
        return cg4ai.rules.Monotone(dict(signs), output=self.output, ordered=self.output is None)

    def falling(self, predict: Predict, pairs: tuple[Array, Array]) -> float:
        """In how many pairs a chance that the rule is about falls."""
        low, high = (predict(x) for x in pairs)
        # float32 of a library is rounded by more than the sums here
        room = max(ROUNDING, 4 * float(np.finfo(low.dtype).eps))
        if self.output is not None:
            return float((high[:, self.output] < low[:, self.output] - room).sum())
        low, high = (np.cumsum(chances[:, ::-1], axis=1) for chances in (low, high))
        return float((high < low - room).any(1).sum())


QUESTIONS = {
    "three classes, one bound": Question(tables.three_classes, 3, output=2),
    "five classes in order": Question(tables.five_grades, 5),
}


def cells(seeds: Sequence[int]) -> list[Cell]:
    return [
        Cell(task, method, seed, partial(measure, task, method, seed))
        for seed in seeds
        for task in QUESTIONS
        for method in (*MEMBERS, *boosters.names())
    ]


def measure(name: str, method: str, seed: int) -> Outcome:
    """Accuracy, log loss and falling pairs, with the rule and without it."""
    question = QUESTIONS[name]
    task = question.table(seed)
    (split,) = task.splits
    if method in MEMBERS:
        figures = _ours(method, question, task, seed)
        return Outcome(name, method, seed, figures)
    asked = Asked(classes=question.classes, signs=task.signs)
    try:
        fitted = peer(method, split, asked, boosters.log_loss, seed)
    except ValueError as refused:
        plain = peer(method, split, Asked(classes=question.classes), boosters.log_loss, seed)
        note = f"refuses the rule: {str(refused).splitlines()[0]:.80}"
        return Outcome(
            name, method, seed, _figures(plain.free, question, task, seed, "_free"), note
        )
    return Outcome(
        name,
        method,
        seed,
        _figures(fitted.bound, question, task, seed)
        | {"fit_s": fitted.fit_s, "train_s": fitted.fit_s + fitted.choice_s}
        | _figures(fitted.free, question, task, seed, "_free"),
    )


def _ours(method: str, question: Question, task: Task, seed: int) -> dict[str, float]:
    """Without the rule only as it comes: the other rows say what each kind of member adds."""
    (split,) = task.splits
    model = cg4ai.ConstrainedClassifier(members=MEMBERS[method], random_state=seed)
    rules = [question.rule(task.signs)]
    with Clock() as clock:
        model.fit(split.inputs, split.targets, requirements=rules)
    found = _figures(model.predict_proba, question, task, seed)
    found |= {"fit_s": clock.seconds, "train_s": clock.seconds}
    if method == OURS:
        model.fit(split.inputs, split.targets)
        found |= _figures(model.predict_proba, question, task, seed, "_free")
    return found


def _figures(
    predict: Predict, question: Question, task: Task, seed: int, which: str = ""
) -> dict[str, float]:
    (split,) = task.splits
    chances = predict(split.test_inputs)
    return {
        f"accuracy{which}": float((chances.argmax(1) == split.test_targets).mean()),
        f"log_loss{which}": boosters.log_loss(split.test_targets, chances),
        f"falling{which}": question.falling(predict, tables.pairs(split, task.signs, PAIRS, seed)),
    }
