"""The product: members with weights, one deterministic predictor, and the same as a torch module.

Where its rules are meant to hold is plain data in `about["regions"]`, so it is saved and loaded
with it; an ensemble that was not trained here has the regions of its shield and of what is
certified about it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cg4ai.data.arrays import as_matrix, check_same_columns, is_traced
from cg4ai.errors import FitWarning, InvalidInput, OutsideRegion, did_you_mean
from cg4ai.layout import Layout
from cg4ai.members.mixture import Mixture, Part, SingleMixture
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.records import Array, IntArray, Strength
from cg4ai.rules.regions import Region, region_of

if TYPE_CHECKING:
    from cg4ai.ensemble.audit import Audit
    from cg4ai.ensemble.claims import Explanation, Ranks
    from cg4ai.ensemble.decision_rule import Decider, Decisions
    from cg4ai.ensemble.reweighting import PatchResult
    from cg4ai.ensemble.shield import ShieldedEnsemble
    from cg4ai.ensemble.slack import Slack
    from cg4ai.rules import Requirement
    from cg4ai.rules.caps import Caps
    from cg4ai.rules.guards import Guard
    from cg4ai.rules.output_sets import OutputSet

NO_GUARANTEE = (
    "float32: nothing is guaranteed, since numbers and outputs are rounded; the claims of the "
    "ensemble are about float64"
)
REGIONS = "regions"
GUARANTEES = "guarantees"
FEATURE_NAMES, OUTPUT_NAMES = "feature_names", "output_names"  # of columns in and out, if known
DECISIONS = "decisions"  # how it decides, where a rule on decisions was asked for
PREDICTED = 16_384  # inputs at once: members hold more numbers inside than they put out
FEW = 3  # inputs that are answered one by one: more are sooner answered together
OUTSIDE = ("warn", "refuse", "ignore")
MOST = 0.5  # a region with a smaller share of the training inputs is a neighbourhood


class Evaluation(NamedTuple):
    """Outputs (n, r), and how far a shield moved each, theta (n,)."""

    outputs: Array
    theta: Array


class Ensemble(Mixture):
    """A mixture as a product: predictions for any kind of input, claims, files."""

    def __init__(
        self,
        parts: tuple[Part, ...],
        layout: Layout,
        *,
        about: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(parts, layout, device=device)
        self.about = dict(about or {})
        self._settled: tuple[OutputSet | None] | None = None  # where outputs lie, once known
        self._deciding: tuple[Any, Decider, Mixture] | None = None  # as read from `about`
        self._regions: dict[str, list[Region]] = {}
        self._read: tuple[Any, Any] | None = None  # what `_regions` were read from
        self._warned = False
        self._alone: tuple[SingleMixture | None] | None = None  # once known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_alone": None}  # functions within others cannot be stored

    def predict(
        self,
        inputs: Any,
        *,
        explain: bool = False,
        outside: Literal["warn", "refuse", "ignore"] = "warn",
    ) -> Any:
        """NumPy array or DataFrame (n, d) -> array (n, r); torch tensor -> torch tensor.

        With `explain` an `Explanation`: these outputs, and how strongly each is covered. Inputs
        `outside` the region in which the rules shall hold are marked there; without `explain` they
        are warned of, once (`cg4ai.errors.OutsideRegion`), or ignored; "refuse" refuses them.
        """
        x = self._checked(inputs)
        # an explanation marks what lies outside: who reads it needs no warning
        self._look(x, "ignore" if explain and outside == "warn" else outside)
        if explain:
            explained = self.explain(x)
            if isinstance(inputs, Tensor):
                outputs = torch.as_tensor(explained.outputs, device=inputs.device)
                return replace(explained, outputs=outputs)
            named = hasattr(inputs, "columns") and hasattr(inputs, "index")
            return replace(explained, index=inputs.index) if named else explained
        result = self.evaluate(x, theta=False).outputs
        return torch.from_numpy(result).to(inputs.device) if isinstance(inputs, Tensor) else result

    def evaluate(self, x: Array, *, theta: bool = True) -> Evaluation:
        """Outputs (n, r) and theta (n,) at inputs (n, d) that were checked; without `theta` zeros.

        A few inputs are answered one by one where `answers_singly`.
        """
        single = self._find_single() if len(x) <= FEW else None
        if single is not None:
            with np.errstate(all="ignore"):
                found = [single(row) for row in x]
                finite = all(math.isfinite(one.dot(one)) for one, _ in found)
            if finite:  # else as a batch has it
                few = [one for one, _ in found]
                outputs = few[0][None] if len(few) == 1 else np.stack(few)
                return Evaluation(outputs, np.array([moved for _, moved in found]))
        return self._evaluate_batch(x, theta=theta)

    def _evaluate_batch(self, x: Array, *, theta: bool) -> Evaluation:
        with torch.no_grad():
            parts = torch.split(torch.as_tensor(x), PREDICTED)
            outputs = torch.cat([self.outputs(part) for part in parts]).cpu().numpy()
            moved = self.theta(torch.as_tensor(x)).numpy() if theta else np.zeros(len(x))
        return Evaluation(outputs, moved)

    @property
    def answers_singly(self) -> bool:
        """Whether up to three inputs are answered by NumPy, without what torch spends on a call.

        So are networks with or without feedback, flows, constants, plain trees and mixtures of
        them on the CPU, also behind shields of rules that are linear in the outputs. All else, and
        what is not finite, is answered as a batch is. Both differ by rounding alone.
        """
        return self._find_single() is not None

    def _find_single(self) -> SingleMixture | None:
        if self._borrowed:  # it may have been made of one that knew its own
            return None
        if self._alone is None:
            self._alone = (self.single(),)
        return self._alone[0]

    def single(self) -> SingleMixture | None:
        from cg4ai.ensemble.output_sets import plan_correction

        mixed = super().single()
        source = self._known_set()
        if mixed is None or source is None:
            return mixed
        correct = plan_correction(source)

        def compute_outputs(x: Array) -> tuple[Array, float]:
            outputs, theta = mixed(x)
            return correct(outputs), theta

        return compute_outputs

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) float64 -> (n, r) float64, with gradients where the members have them.

        In the set in which all members' outputs lie, exactly: sums of weighted outputs would leave
        it by rounding.
        """
        return self._put_back(super().outputs(inputs))

    def _put_back(self, outputs: Tensor) -> Tensor:
        """Outputs (n, r) in the set that all members keep by their structure, if there is one."""
        from cg4ai.ensemble.output_sets import correct_rounding

        source = self._known_set()
        return outputs if source is None else correct_rounding(source, outputs)

    def _known_set(self) -> OutputSet | None:
        """Looked for once, among the members that the ensemble was made of."""
        from cg4ai.ensemble.output_sets import find_common_set

        if self._settled is None:
            self._settled = (find_common_set(self),)
        return self._settled[0]

    @property
    def takes_missing(self) -> bool:
        """Whether inputs may be NaN: all members are trees that know where these go."""
        return all(part.members.takes_missing for part in self.used)

    @property
    def votes(self) -> bool:
        """Whether a rule on decisions was asked for: `decide` has thresholds of its own."""
        return DECISIONS in self.about

    def _decider(self) -> tuple[Decider, Mixture]:
        """How it decides, and its members weighed for that."""
        from cg4ai.ensemble.decision_rule import Decider

        record = self.about[DECISIONS]
        if self._deciding is None or self._deciding[0] is not record:
            members = sum(len(part.weights) for part in self.parts)
            decider = Decider.of(record, members, self.output_size)
            self._deciding = record, decider, decider.mixture(self.parts, self.layout)
        return self._deciding[1:]

    def decision_scores(self, inputs: Tensor) -> Tensor:
        """(n, d) float64 -> (n, r): `decide` gives the class of the largest."""
        from cg4ai.ensemble.decision_rule import compute_decision_scores

        if not self.votes:
            return self.traceable(inputs)
        return compute_decision_scores(*self._decider(), inputs)

    def decide(
        self,
        inputs: Any,
        *,
        outside: Literal["warn", "refuse", "ignore"] = "warn",
        classes: int | None = None,
    ) -> IntArray:
        """(n, d) -> (n,): one class for each input, that of the largest score.

        Under a rule on decisions (`votes`) by scores of their own (`decision_scores`), whose
        thresholds keep clear of all inputs that the rule lists. `outside` as for `predict`;
        `classes`: the first so many outputs are scores, if not all.
        """
        x = self._checked(inputs)
        self._look(x, outside)
        if self.votes:
            return self._decisions(x).classes
        # never singly: sums in another order would break exact ties otherwise
        scores = self._evaluate_batch(x, theta=False).outputs[:, :classes]
        return np.asarray(scores.argmax(1), np.int64)

    def _decisions(self, x: Array) -> Decisions:
        from cg4ai.ensemble.decision_rule import decide

        return decide(*self._decider(), x)

    def find_unsure(self, inputs: Any) -> NDArray[np.bool_]:
        """(n, d) -> (n, r): for which classes rounding may change whether they are decided for.

        Of decisions under rules on them (`votes`); nothing is claimed of others.
        """
        x = self._checked(inputs)
        if not self.votes:
            return np.zeros((len(x), self.output_size), bool)
        return self._decisions(x).unsure

    def answers(self, inputs: Any) -> Array:
        """(n, d) -> (n, r): outputs; under a rule on decisions 1 for the class decided for."""
        if not self.votes:
            return np.asarray(self.predict(inputs, outside="ignore"))
        return np.eye(self.output_size)[self.decide(inputs, outside="ignore")]

    def _checked(self, inputs: Any) -> Array:
        """The inputs (n, d) as numbers, or an error."""
        columns = getattr(inputs, "columns", ())
        if all(isinstance(name, str) for name in columns):
            known = self.about.get(FEATURE_NAMES, ())
            check_same_columns(
                tuple(columns), known, "the input", "what this ensemble was trained on"
            )
        x = as_matrix(inputs, "inputs", missing=self.takes_missing)
        if x.shape[1] != self.input_size:
            raise InvalidInput(
                f"inputs have {x.shape[1]} features, this ensemble takes {self.input_size}",
                code="shape",
            )
        return x

    def explain(self, x: Array) -> Explanation:
        """Predictions for checked inputs (n, d), each with what is recorded about it."""
        from cg4ai.ensemble.claims import build_explanation, compute_rank, strengthen

        outputs, theta = self.evaluate(x)
        ranks = self._recorded(x, theta)
        for one in self.guards:
            own = compute_rank(one.is_kept(x, torch.from_numpy(outputs)), Strength.SHIELDED)
            strengthen(ranks, (one.name, one.rules.digest), own)
        return build_explanation(self, x, outputs, ranks=ranks, theta=theta)

    def _recorded(self, x: Array, theta: Array) -> Ranks:
        """What claims say of predictions that a shield moves by theta (n,)."""
        from cg4ai.ensemble.claims import find_recorded_ranks

        return find_recorded_ranks(self, x)

    @property
    def anchor(self) -> Ensemble | None:
        """What a shield of the whole mixture moves outputs towards; None without one."""
        return None

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The rules that a shield keeps at every input of their regions: here, of every member."""
        stacks = [part.members for part in self.used]
        shields = [one.shield for one in stacks if isinstance(one, ShieldedMembers)]
        if len(shields) < len(stacks):
            return ()
        common = set.intersection(*({one.key for one in shield.guards} for shield in shields))
        return tuple(one for one in shields[0].guards if one.key in common)

    @property
    def caps(self) -> tuple[Caps, ...]:
        """The limits, functions of the input, that members keep, each once; none if some do not."""
        found = [part.members.caps for part in self.used]
        known = {one.digest: one for one in found if one is not None}
        whole = None not in found and len(self.layout) == 1 and self.shield_digest is None
        return tuple(known.values()) if whole else ()

    def find_outside(self, x: Array) -> NDArray[np.bool_]:
        """(n, d) -> (n,): inputs that some rule says nothing of: outside its regions."""
        missed = [np.zeros(len(x), bool), *self.find_outside_by_rule(x).values()]
        return np.asarray(np.any(missed, axis=0))

    def find_outside_by_rule(self, x: Array) -> dict[str, NDArray[np.bool_]]:
        """(n, d) -> for each requirement over regions (n,): which inputs lie outside all of these.

        Rules that hold at every input are none of them, nor those about listed inputs.
        """
        inputs = torch.as_tensor(x)
        return {
            name: ~reduce(or_, (region.near(inputs) for region in regions)).numpy()
            for name, regions in self.regions().items()
        }

    def regions(self) -> dict[str, list[Region]]:
        """For each requirement the regions in which it is known to be meant."""
        current = (self.about.get(REGIONS), self.about.get(GUARANTEES))
        # recording makes new lists, so lists that are the same say the same
        if self._read is None or any(a is not b for a, b in zip(self._read, current, strict=True)):
            self._regions, self._read = self._known_regions(), current
        return self._regions

    def _known_regions(self) -> dict[str, list[Region]]:
        regions: dict[str, list[Region]] = {}
        try:
            records = self.about.get(REGIONS)
            if records is None:
                records = [claim for claim in self.about.get(GUARANTEES, []) if "region" in claim]
            for record in records:
                region = region_of(record["region"])
                if region.size != self.input_size:
                    raise InvalidInput(
                        f"{region}, the ensemble takes {self.input_size} inputs", code="shape"
                    )
                regions.setdefault(record["requirement"], []).append(region)
        except (KeyError, TypeError, AttributeError, InvalidInput) as error:
            raise InvalidInput(
                f"a region in about[{REGIONS!r}] or about[{GUARANTEES!r}] cannot be read "
                f"({error}); train or certify again",
                code="bad-file",
            ) from error
        return regions

    def _look(self, inputs: Array, outside: str) -> None:
        """Warn of inputs outside, once, or refuse them; called by `predict` alone."""
        if outside not in OUTSIDE:
            hint = did_you_mean(str(outside), OUTSIDE)
            raise InvalidInput(
                f"outside must be one of {', '.join(OUTSIDE)}, got {outside!r}{hint}",
                code="unknown-name",
            )
        if outside == "ignore" or (outside == "warn" and self._warned):
            return
        known = list(chain(*self.regions().values()))
        if len(inputs) == 1 and all(region.is_near(inputs[0]) for region in known):
            return
        missed = {name: one for name, one in self.find_outside_by_rule(inputs).items() if one.any()}
        if not missed:
            return
        beyond, names = np.logical_or.reduce(list(missed.values())), " and ".join(missed)
        text = (
            f"{beyond.sum()} of {len(inputs)} inputs, the first at position {beyond.argmax()}, "
            f"lie outside the region in which {names} shall hold: {names} "
            f"{'is' if len(missed) == 1 else 'are'} not guaranteed there"
        )
        if outside == "refuse":
            raise InvalidInput(
                f'{text}; leave them out, or predict with outside="ignore"', code="outside"
            )
        self._warned = True
        warnings.warn(
            f'{text}; said once, predict(..., explain=True) marks them, outside="refuse" refuses',
            OutsideRegion,
            stacklevel=3,
        )

    def apply_shield(
        self, anchor: Any, requirement: Requirement | Sequence[Requirement]
    ) -> ShieldedEnsemble:
        """The same mixture, moved just far enough towards the anchor where it breaks a rule.

        `anchor`: outputs (r,) for all inputs, a single member, or an ensemble, known to keep the
        rules on the whole region of each requirement. An anchor seen to break one is refused.
        """
        from cg4ai.ensemble.shield import build_shield

        return build_shield(self, anchor, requirement)

    def patch(
        self, requirement: Requirement | Sequence[Requirement], *, inputs: Any = None
    ) -> PatchResult:
        """The same members under further requirements at listed inputs, with weights moved least.

        Give earlier requirements, too: only what is given is kept. `inputs` (n, d): where to
        report changes. InvalidInput where no weights do, with what contradicts each other.
        """
        from cg4ai.ensemble.reweighting import patch_ensemble

        given = requirement if isinstance(requirement, Sequence) else [requirement]
        return patch_ensemble(self, given, inputs=inputs)

    @property
    def mixture(self) -> Ensemble:
        """What claims are about: this ensemble, but for a shield of the whole of it."""
        return self

    @property
    def shield_digest(self) -> str | None:
        """What tells shields of the whole mixture apart; None without one."""
        return None

    @property
    def unshielded(self) -> Ensemble:
        """The same without its outermost shields, of the whole or of members, if it has any."""
        if not any(isinstance(part.members, ShieldedMembers) for part in self.parts):
            return self
        parts = tuple(
            replace(part, members=part.members.inner)
            if isinstance(part.members, ShieldedMembers)
            else part
            for part in self.parts
        )
        about = {name: value for name, value in self.about.items() if name != GUARANTEES}
        return Ensemble(parts, self.layout, about=about, device=self.device)

    def to(self, device: torch.device | str) -> Ensemble:
        """The same ensemble with its members on another device."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        return Ensemble(self.parts, self.layout, about=self.about, device=device)

    def audit(self, requirement: Requirement, *, tolerance: float = 1e-6) -> Audit:
        """Recompute a requirement from predictions, on any data; see `Audit`."""
        from cg4ai.ensemble.audit import audit

        return audit(requirement, self, tolerance=tolerance)

    def slack(self, requirement: Requirement, inputs: Any = None) -> Slack:
        """How much room a requirement has, row by row or at `inputs` (n, d); see `Slack`."""
        from cg4ai.ensemble.slack import compute_slack

        return compute_slack(self, requirement, inputs)

    def as_module(self) -> EnsembleModule:
        """An `nn.Module` with the same predictions, (n, d) -> (n, r) float64, for use elsewhere.

        It moves, is trained, saves its state, is traced and exported like any other. After
        `.float()` nothing is guaranteed any more, see `EnsembleModule`.
        """
        return EnsembleModule(self)

    def export_onnx(
        self,
        path: str | Path,
        *,
        precision: Literal["float64", "float32"] = "float64",
        input_name: str = "inputs",
        output_name: str = "outputs",
    ) -> Path:
        """Write mixture, completion and shield as one ONNX model for any number of inputs.

        In float64 it gives the same as `predict`; what is claimed of this ensemble does not hold
        for a float32 model (see `cg4ai.ensemble.export.compute_difference`).
        """
        from cg4ai.ensemble.export import export_onnx

        names = (input_name, output_name)
        return export_onnx(self, Path(path), precision=precision, names=names)

    def traceable(self, inputs: Tensor) -> Tensor:
        """`outputs` without branches that depend on the data."""
        return self.outputs(inputs)

    def fuse(self) -> nn.Module:
        """One network equal to the mixture: see `cg4ai.members.fusion`."""
        from cg4ai.members.equalities import CompletedMembers
        from cg4ai.members.fusion import fuse
        from cg4ai.members.networks import NetworkMembers

        if len(self.parts) != 1 or len(self.layout) != 1:
            raise InvalidInput(
                "only a mixture of networks of one architecture in one block can be fused, got "
                f"{len(self.parts)} kinds of members and {len(self.layout)} blocks; "
                "use as_module() instead",
                code="unsupported",
            )
        part = self.parts[0]
        given = part.members
        members = given.fold() if isinstance(given, CompletedMembers) else given
        if not isinstance(members, NetworkMembers):
            raise InvalidInput(
                f"only networks can be fused, got {type(given).__name__}; use as_module() instead",
                code="unsupported",
            )
        return fuse(members, part.weights)

    def save(self, folder: str | Path) -> Path:
        """Write `ensemble.json` and `members.safetensors`; load with `cg4ai.load(folder)`."""
        from cg4ai.ensemble.saved import save

        return save(self, folder)


def record_regions(
    ensemble: Ensemble, requirements: Sequence[Requirement], *, inputs: Array
) -> None:
    """Note the regions of all rules that are meant to hold wherever the ensemble is used.

    These are the regions that hold most of the training `inputs` (n, d). Of a rule about a
    neighbourhood, such as a ball around one input, nobody expects anything elsewhere.
    """
    places = [(one.name, one.region) for one in requirements]
    ensemble.about[REGIONS] = [
        {"requirement": name, "region": region.record()}
        for name, region in places
        if isinstance(region, Region) and region.contains(inputs).mean() > MOST
    ]


class EnsembleModule(nn.Module):
    """(n, d) -> (n, r), by the code that `predict` uses, on tensors of its own.

    What training moves are parameters, which do not ask for gradients until they are told to.
    Weights of members, statistics, and all that rules and shields need are buffers. It is in
    evaluation mode, and `train()` changes nothing: no part of it behaves differently.

    Outputs have the dtype of the parameters, float64 or float32. It computes in float64 in any
    case, and buffers stay in it; what `guarantee` says holds for the numbers that it was made with.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        ensemble._known_set()
        trained = ensemble.trained_names()
        for name, tensor in ensemble.tensors().items():
            self._store(name, tensor.detach().clone(), trained=name in trained)
        self._ensemble = ensemble
        self._seen: dict[str, tuple[Tensor, int]] = {}
        self._refresh()
        self.register_load_state_dict_post_hook(_loaded)  # type: ignore[no-untyped-call]
        self.eval()

    def _store(self, name: str, tensor: Tensor, *, trained: bool) -> None:
        *path, last = name.split(".")
        place: nn.Module = self
        for step in path:
            if step not in place._modules:
                place.add_module(step, nn.Module())
            place = place.get_submodule(step)
        if trained:
            place.register_parameter(last, nn.Parameter(tensor, requires_grad=False))
        else:
            place.register_buffer(last, tensor)

    def tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers by the names that `Ensemble.tensors` gives them."""
        return dict(chain(self.named_parameters(), self.named_buffers()))

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters and of what comes out."""
        return next((one.dtype for one in self.parameters()), torch.float64)

    @property
    def guarantee(self) -> str:
        """What the claims of the ensemble are worth for this module."""
        if self.dtype == torch.float64:
            return "float64: the claims of the ensemble hold while its numbers are as they were"
        return NO_GUARANTEE

    def extra_repr(self) -> str:
        """What `print` says beside the parts."""
        return self.guarantee

    def _refresh(self) -> None:
        """Take over numbers that were moved."""
        tensors = self.tensors()
        self._ensemble = self._ensemble.with_tensors(_in_double(tensors))
        self._seen = {name: (tensor, _version(tensor)) for name, tensor in tensors.items()}

    def examine(self) -> None:
        """Take over a state that was loaded."""
        self._refresh()
        self._ensemble.examine()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EnsembleModule:
        before, fixed = self.dtype, {id(buffer) for buffer in self.buffers()}
        asked = fn(torch.empty(0, dtype=torch.float64, device=self._ensemble.device)).dtype
        if asked not in (torch.float64, torch.float32):
            raise InvalidInput(
                f"{asked} has only two or three digits, too few for any rule; use float32, "
                "or lower the precision of ensemble.fuse()",
                code="unsupported",
            )

        def move_tensor(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            keeps = id(tensor) in fixed and made.dtype != tensor.dtype
            return tensor.to(made.device) if keeps else made

        super()._apply(move_tensor, recurse)  # type: ignore[no-untyped-call]
        self._refresh()
        if before == torch.float64 != self.dtype:
            warnings.warn(NO_GUARANTEE, FitWarning, stacklevel=3)
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs of any floating dtype on the device of the module."""
        return self._current().traceable(inputs.to(torch.float64)).to(self.dtype)

    def theta(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n,): how far a shield moves each output; 0 where there is none."""
        return self._current().theta(inputs.to(torch.float64)).to(self.dtype)

    def _current(self) -> Ensemble:
        """The ensemble of the numbers as they are now.

        While the module is traced or called functionally, others stand for its tensors; while it
        is trained, they change in place.
        """
        for name, tensor in self.tensors().items():
            own, version = self._seen[name]
            if tensor is not own or tensor.requires_grad or _version(tensor) != version:
                return self._ensemble.with_tensors(_in_double(self.tensors()))
        return self._ensemble


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place, where torch counts that."""
    return 0 if is_traced() or tensor.is_inference() else tensor._version


def _in_double(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in tensors.items()
    }


def _loaded(module: EnsembleModule, _: object) -> None:
    module.examine()
