"""Fitted models of other libraries as `FittedModel`, from objects or files; others are refused.

Trees are read exactly: every threshold as inputs of the library's precision meet it, every leaf as
stored. What was read is then compared with the library's own predictions at thresholds.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional
from cg4ai.fitted_models.catboost import from_catboost
from cg4ai.fitted_models.model import SINGLE, FittedModel, Predict
from cg4ai.fitted_models.networks import read_mlp, read_onnx, read_torch
from cg4ai.fitted_models.scalers import find_largest_input, scale_member
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.networks import NetworkMembers, affine
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array

LIGHTGBM_VERSIONS = ("v2", "v3", "v4")
LIGHTGBM_ZERO = float(np.float32(1e-35))
PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".sav")
KINDS = (
    "LightGBM (.txt), XGBoost (.json, .ubj), CatBoost (.cbm, .json), ONNX (.onnx) and skops files"
)


def read_model(
    source: Any, *, features: Sequence[str] | None = None, outputs: Sequence[str] | None = None
) -> FittedModel:
    """The model of a file, or a fitted object; `features` and `outputs` name its columns anew."""
    if isinstance(source, FittedModel):
        return _named(source, features, outputs)
    model = open_file(Path(source)) if isinstance(source, str | Path) else source
    made = _read_object(model)
    made = _named(made, features, outputs)
    return made.verify()


def open_file(path: Path) -> Any:
    """What the library that wrote a file loads from it; no file is run as code."""
    if not path.is_file():
        raise InvalidInput(f"there is no model file {path}", code="bad-file")
    with path.open("rb") as file:
        start = file.read(4096)
    ending = path.suffix.lower()
    if ending in PICKLES or start[:1] == b"\x80":
        raise InvalidInput(
            f"{path} is a pickle, and to load one is to run its code: give the loaded object to "
            "cg4ai.audit_model in Python, or save the model in a format of its library or ONNX",
            code="unsupported",
        )
    if ending == ".onnx":
        return _loaded(path, lambda: _Onnx(path.read_bytes()))
    if ending == ".skops":
        return _loaded(path, lambda: import_optional("skops.io").load(path))
    if start[:4] == b"CBM1":
        return _loaded(path, lambda: import_optional("catboost").CatBoost().load_model(str(path)))
    if start.startswith((b"tree\n", b"tree\r\n")):
        _check_lightgbm(path)
        return _loaded(path, lambda: import_optional("lightgbm").Booster(model_file=str(path)))
    if ending == ".json":
        keys = _json_keys(path)
        if {"features_info", "model_info"} <= keys:
            load = import_optional("catboost").CatBoost().load_model
            return _loaded(path, lambda: load(str(path), format="json"))
        if "learner" in keys:
            return _loaded(path, lambda: import_optional("xgboost").Booster(model_file=str(path)))
    elif ending == ".ubj" or start[:2] == b"{L":
        return _loaded(path, lambda: import_optional("xgboost").Booster(model_file=str(path)))
    raise InvalidInput(f"{path} is no model file that is known; known are {KINDS}", code="bad-file")


def _check_lightgbm(path: Path) -> None:
    """LightGBM itself ends the process at files that are cut off, and reads any version."""
    text = path.read_bytes()
    head, _, trees = text.partition(b"\nTree=")
    known = dict(line.partition(b"=")[::2] for line in head.splitlines())
    version = known.get(b"version", b"").decode(errors="replace")
    if version not in LIGHTGBM_VERSIONS:
        raise InvalidInput(
            f"{path} is of version {version or 'none'} of LightGBM's format; supported are "
            f"{', '.join(LIGHTGBM_VERSIONS)}",
            code="bad-file",
        )
    sizes = known.get(b"tree_sizes", b"").split()
    found = len(b"Tree=") + trees.find(b"\nend of trees") + 1
    if trees and (
        b"\nend of trees" not in trees
        or (sizes and sum(int(one) for one in sizes if one.isdigit()) != found)
    ):
        raise InvalidInput(
            f"{path} is damaged: it does not hold the {len(sizes)} trees that it lists",
            code="bad-file",
        )


def _json_keys(path: Path) -> set[str]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid JSON: {error}", code="bad-file") from error
    return set(content) if isinstance(content, dict) else set()


def _loaded(path: Path, load: Callable[[], Any]) -> Any:
    from cg4ai.errors import Cg4aiError

    try:
        return load()
    except Cg4aiError:
        raise
    except Exception as error:  # libraries raise classes of their own
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(
            f"{path} cannot be loaded by its library: {first[:200]}; it is damaged or of a version "
            "that is not supported",
            code="bad-file",
        ) from error


class _Onnx:
    """The bytes of an ONNX file, which `read_onnx` reads."""

    def __init__(self, content: bytes) -> None:
        self.content = content


def _read_object(model: Any) -> FittedModel:
    if isinstance(model, _Onnx):
        return read_onnx(model.content)
    library = type(model).__module__.partition(".")[0]
    if library == "lightgbm":
        return _lightgbm(model)
    if library == "xgboost":
        return _xgboost(model)
    if library == "catboost":
        return _catboost(model)
    if library == "onnx":
        return read_onnx(model.SerializeToString())
    if isinstance(model, torch.nn.Module):
        return read_torch(model)
    if library == "sklearn" or hasattr(model, "predict"):
        return _sklearn(model)
    raise InvalidInput(
        f"{type(model).__name__} is no model that can be audited; known are models of LightGBM, "
        "XGBoost, CatBoost, scikit-learn, torch and ONNX",
        code="unsupported",
    )


def _quiet(compute: Callable[[Array], Any]) -> Predict:
    """Answers (n, r), without words about names of columns."""

    def answer(inputs: Array) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = np.asarray(compute(np.ascontiguousarray(inputs)), np.float64)
        return found[:, None] if found.ndim == 1 else found

    return answer


def _pair(compute: Predict, factor: float = 1.0) -> Predict:
    """The one score of two classes as scores (0, z)."""

    def answer(inputs: Array) -> Array:
        score = factor * compute(inputs)
        return np.column_stack([np.zeros(len(score)), score[:, -1]])

    return answer


def _shares(scores: Predict) -> Predict:
    def answer(inputs: Array) -> Array:
        raw = scores(inputs)
        shares = np.exp(raw - raw.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    return answer


def _build(
    words: str,
    members: Any,
    predict: Predict,
    raw: Predict,
    *,
    names: Sequence[str] | None,
    labels: Any = None,
    unit: float = 2.0**-53,
    factor: float = 1.0,
) -> FittedModel:
    """Two classes may come as one probability and one score."""
    size = members.output_size
    under = isinstance(members, TreeMembers) and members.link == "softmax"
    under |= isinstance(members, NetworkMembers) and members.architecture.output == "softmax"
    classes = labels is not None
    if classes and size == 2:
        single = predict
        predict = _quiet(lambda x: _both(single(x)))
        raw = _pair(raw, factor)
    if not under or isinstance(members, NetworkMembers):
        raw = predict
    given = [str(one) for one in labels] if classes else []
    outputs = given if len(given) == size else [str(number) for number in range(size)]
    features = list(names) if names is not None and len(names) == members.input_size else []
    features = features or [str(number) for number in range(members.input_size)]
    known = tuple(labels) if classes and len(given) == size else ()
    called = tuple(features), tuple(outputs)
    return FittedModel(words, members, *called, classes, predict, raw, unit, labels=known)


def _both(shares: Array) -> Array:
    return np.column_stack([1 - shares[:, 0], shares[:, 0]]) if shares.shape[1] == 1 else shares


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    for name in (package, f"{package}-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def _trees(members: Any) -> str:
    count = members.value.shape[1] if isinstance(members, TreeMembers) else 0
    return f", {count} trees" if count else ""


def _take_zeros(members: Any) -> Any:
    """LightGBM takes inputs within 1e-35 of zero for zero before it compares them."""
    threshold = members.threshold.numpy()
    below = np.nextafter(-LIGHTGBM_ZERO, -np.inf)
    moved = np.where((threshold >= -LIGHTGBM_ZERO) & (threshold < 0), below, threshold)
    moved = np.where((threshold >= 0) & (threshold <= LIGHTGBM_ZERO), LIGHTGBM_ZERO, moved)
    return members.with_tensors({**members.tensors(), "threshold": torch.as_tensor(moved)})


def _lightgbm(model: Any) -> FittedModel:
    members = _take_zeros(from_sklearn(model))
    booster = getattr(model, "booster_", model)
    options = booster.dump_model(num_iteration=1).get("objective", "").split()
    factor = next((float(o[8:]) for o in options[1:] if o.startswith("sigmoid:")), 1.0)
    labels = getattr(model, "classes_", None)
    if members.link == "softmax" and labels is None:
        labels = np.arange(members.output_size)
    ask = getattr(model, "predict_proba", model.predict)
    words = f"{type(model).__name__} of LightGBM {_version('lightgbm')}{_trees(members)}"
    return _build(
        words,
        members,
        _quiet(lambda x: ask(x, validate_features=False)),
        _quiet(lambda x: ask(x, raw_score=True, validate_features=False)),
        names=booster.feature_name(),
        labels=labels,
        factor=factor,
    )


def _xgboost(model: Any) -> FittedModel:
    xgboost = import_optional("xgboost")
    members: Any = from_sklearn(model)
    fitted = hasattr(model, "get_booster")
    booster = model.get_booster() if fitted else model

    def ask(inputs: Array, *, raw: bool) -> Any:
        if not fitted:
            data = xgboost.DMatrix(inputs, missing=np.nan)
            return booster.predict(data, output_margin=raw, validate_features=False)
        if raw or not hasattr(model, "predict_proba"):
            return model.predict(inputs, output_margin=raw, validate_features=False)
        return model.predict_proba(inputs, validate_features=False)

    labels = getattr(model, "classes_", None)
    if members.link == "softmax" and labels is None:
        labels = np.arange(members.output_size)
    scores = _quiet(lambda x: ask(x, raw=True))
    predict = _quiet(lambda x: ask(x, raw=False))
    if members.link == "softmax" and members.output_size > 2:
        predict = _shares(scores)  # "multi:softmax" predicts labels
    words = f"{type(model).__name__} of XGBoost {_version('xgboost')}{_trees(members)}"
    return _build(
        words,
        members,
        predict,
        scores,
        names=booster.feature_names,
        labels=labels,
        unit=SINGLE,
    )


def _catboost(model: Any) -> FittedModel:
    if not model.is_fitted():
        raise InvalidInput(
            f"{type(model).__name__} is not fitted; call fit(X, y) first", code="unsupported"
        )
    members = from_catboost(model)
    labels = getattr(model, "classes_", None)
    under = members.link == "softmax"
    if under and (labels is None or len(labels) != members.output_size):
        labels = np.arange(members.output_size)
    kind = "Probability" if under else "RawFormulaVal"
    words = f"{type(model).__name__} of CatBoost {_version('catboost')}{_trees(members)}"
    return _build(
        words,
        members,
        _quiet(lambda x: model.predict(x, prediction_type=kind)),
        _quiet(lambda x: model.predict(x, prediction_type="RawFormulaVal")),
        names=model.feature_names_,
        labels=labels if under else None,
    )


def _sklearn(model: Any) -> FittedModel:
    from sklearn.pipeline import Pipeline

    steps = [one for _, one in model.steps[:-1]] if isinstance(model, Pipeline) else []
    steps = [one for one in steps if one is not None and one != "passthrough"]
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    library = type(last).__module__.partition(".")[0]
    labels = getattr(last, "classes_", None)
    if type(last).__name__ in ("MLPClassifier", "MLPRegressor"):
        members: Any = read_mlp(last)
    elif library in ("lightgbm", "xgboost", "catboost"):
        inner = _read_object(last)
        members = inner.members
        labels = (inner.labels or inner.outputs) if inner.classes else None
    else:
        members = _sklearn_member(last)
    for step in reversed(steps):
        members = scale_member(members, step)
    ask = getattr(model, "predict_proba", None) if labels is not None else model.predict
    if ask is None:
        raise InvalidInput(
            f"{type(last).__name__} gives no probabilities, which audits of classifiers need",
            code="unsupported",
        )
    under = isinstance(members, TreeMembers) and members.link == "softmax"
    under |= isinstance(members, NetworkMembers) and members.architecture.output == "softmax"
    if under and hasattr(model, "decision_function"):
        raw = _quiet(model.decision_function)
    elif under:
        raw = _log_odds(_quiet(ask), pair=members.output_size == 2)
    else:
        raw = _quiet(ask)
    words = f"{type(model).__name__} of scikit-learn {_version('scikit-learn')}{_trees(members)}"
    if steps:
        words = f"{type(last).__name__} behind {len(steps)} steps: {words}"
    names = getattr(model, "feature_names_in_", None)
    unit = SINGLE if library == "xgboost" else 2.0**-53
    factor = 2.0 if getattr(last, "loss", "") == "exponential" else 1.0
    made = _build(
        words, members, _quiet(ask), raw, names=names, labels=labels, unit=unit, factor=factor
    )
    return replace(made, largest=find_largest_input(steps, members.input_size))


def _log_odds(shares: Predict, *, pair: bool) -> Predict:
    """Scores of a model that gives probabilities alone."""

    def answer(inputs: Array) -> Array:
        with np.errstate(divide="ignore"):
            logs = np.log(shares(inputs))
        return logs[:, 1:] - logs[:, :1] if pair else logs

    return answer


def _sklearn_member(model: Any) -> Any:
    """Linear models by their coefficients, all others as members are made of them."""
    linear = type(model).__module__.startswith("sklearn.linear_model")
    if linear and not hasattr(model, "classes_") and type(model).__name__ not in EXPONENTIAL:
        from sklearn.utils.validation import check_is_fitted

        if hasattr(model, "coef_") and hasattr(model, "intercept_"):
            check_is_fitted(model)
            slopes = np.atleast_2d(np.asarray(model.coef_, np.float64)).T
            start = np.atleast_1d(np.asarray(model.intercept_, np.float64))
            return affine(slopes[None], np.broadcast_to(start, slopes.shape[1:])[None].copy())
    return from_sklearn(model)


# whose predictions are exp(score)
EXPONENTIAL = ("PoissonRegressor", "GammaRegressor", "TweedieRegressor")


def _named(
    model: FittedModel, features: Sequence[str] | None, outputs: Sequence[str] | None
) -> FittedModel:
    changes: dict[str, Any] = {}
    for name, given, size in (
        ("features", features, model.input_size),
        ("outputs", outputs, model.output_size),
    ):
        if given is None:
            continue
        if len(given) != size:
            raise InvalidInput(
                f"{len(given)} names of {name} were given, the model has {size}", code="shape"
            )
        changes[name] = tuple(map(str, given))
    return replace(model, **changes)
