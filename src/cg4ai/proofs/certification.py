"""`certify`: is a requirement kept at every input of its region? Proven, refuted or unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import nn

from cg4ai import clock
from cg4ai.clock import Deadline, Review
from cg4ai.ensemble.audit import estimate_region_size
from cg4ai.ensemble.claims import compute_subject_digest
from cg4ai.ensemble.constructed import Built, keeps_capped
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.parallel import check_jobs
from cg4ai.proofs.certificate import resolve_subject, verify_rules
from cg4ai.proofs.certifier import Certifier, SearchLimits, Tolerance
from cg4ai.proofs.leaves import close_by_leaves
from cg4ai.proofs.records import Certification, OpenCells, Progress, RuleProof, Status
from cg4ai.proofs.rule_forms import find_proof_rules
from cg4ai.proofs.search_rounds import run_search_rounds
from cg4ai.proofs.shields import find_shield
from cg4ai.proofs.structure_certificates import certify_construction
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Region

MEMORY_LIMIT = 4 * 2**30  # bytes: half for a batch, half for trees and open cells


def certify(
    ensemble: Ensemble | nn.Module,
    requirement: Requirement,
    *,
    region: Region | None = None,
    time_limit_s: float = 600.0,
    cell_limit: int = 5_000_000,
    batch: int = 4096,
    memory_limit: int = MEMORY_LIMIT,
    device: str = "cpu",
    progress: Callable[[Progress], None] | None = None,
    resume: Certification | None = None,
    all_rules: bool = False,
    verify: bool = True,
    n_jobs: int | None = None,
    tolerance: float = 1e-6,
) -> Certification:
    """Prove `requirement` at every input of its region (or of `region`), or find where it fails.

    Rules are linear (`Linear`, `Probability`, `Margin`) or `Quadratic`; an `Equality` is proven
    where members keep it by how they are built, at every input there is. At most `batch` cells are
    bounded at a time, `cell_limit` cells in all; `memory_limit`, in bytes, is shared by a batch and
    the cells kept. `resume` goes on from an earlier `unknown` answer for the same ensemble,
    requirement and region. The search ends at the first violation, or, with `all_rules`, goes on
    with the rules not refuted. Of a shielded ensemble it is proven that the anchor keeps the rules,
    on which all its predictions rest; of the mixture behind a shield certify `unshielded`.

    Proven is what the separate checker proves, too: what it rejects is unknown, and so is what
    `time_limit_s`, which includes the check, ends before the checker is done. With `verify` False
    the check is left for later, to `verify_certification`, and nothing is recorded as certified
    before.

    Refuted is what breaks a rule by more than `tolerance` x its size, as in `ensemble.audit`. Where
    less than that is found the answer is unknown, since the rule as stated cannot be proven either,
    and the note says by how much its limit is exceeded.

    `n_jobs` parts of search and check go on at a time, by joblib (None: 1, or what
    `joblib.parallel_config` says), each within the memory of a batch; the answer is the same for
    any number unless time ends it.

    A network that ends in layers of `cg4ai.nn` is certified as `ensemble.from_module` states it.
    """
    started = clock.now()
    if not 0 <= tolerance < 1:
        raise InvalidInput(
            f"tolerance must be at least 0 and below 1, got {tolerance}", code="range"
        )
    _check_limits(time_limit_s, cell_limit, batch=batch, memory_limit=memory_limit)
    check_jobs(n_jobs)
    ensemble, requirement = resolve_subject(ensemble, requirement, region)
    if isinstance(requirement, Built) or keeps_capped(ensemble, requirement):
        return certify_construction(ensemble, requirement)
    rules = find_proof_rules(requirement, output_size=ensemble.output_size)
    place = _place(ensemble, region if region is not None else requirement.region)
    shielded = find_shield(ensemble)
    if shielded is not None:
        shielded.describe_shield(rules, place)
    work = Certifier(
        ensemble if shielded is None else shielded.anchor,
        rules,
        region=place,
        device=device,
        batch=batch,
        memory_limit=memory_limit,
        subject=compute_subject_digest(ensemble, rules, place),
        # a shield moves predictions all the way to its anchor, which has to keep the rule as stated
        allowed=Tolerance(
            tolerance if shielded is None else 0.0, estimate_region_size(requirement, ensemble)
        ),
    )
    before = 0.0
    if resume is not None:
        work.resume(resume)
        before = resume.seconds
    with Review(Deadline(started + time_limit_s), clock.review().say, what="proving").activate():
        work.look_first()
        if not work.found:
            close_by_leaves(work)
    limited = SearchLimits(cell_limit, started + time_limit_s, all_rules)
    run_search_rounds(work, limited, progress=progress, n_jobs=n_jobs)
    if progress is not None:
        progress(work.progress())
    limit = f"the limit of {cell_limit:,} cells"
    if clock.now() >= limited.until:
        limit = f"the time limit of {time_limit_s:g} s"
    answer = build_answer(work, before + clock.now() - started, limit=limit)
    if shielded is not None:
        answer = shielded.build_answer(answer)
    if not verify:
        return answer
    left = started + time_limit_s - clock.now()
    answer = verify_rules(answer, ensemble, rules, region=place, time_limit_s=left, n_jobs=n_jobs)
    return replace(answer, seconds=before + clock.now() - started)


def _place(ensemble: Ensemble, region: object) -> Region:
    if not isinstance(region, Region) or region.size != ensemble.input_size:
        raise InvalidInput(
            f"certify needs a Box, Ball or Polytope with {ensemble.input_size} features, got "
            f"{region}",
            code="type",
        )
    return region


def _check_limits(time_limit_s: float, cell_limit: int, *, batch: int, memory_limit: int) -> None:
    if not time_limit_s > 0 or min(cell_limit, batch, memory_limit) < 1:
        raise InvalidInput(
            "certify needs time_limit_s > 0, cell_limit >= 1, batch >= 1 and memory_limit >= 1, "
            f"got {time_limit_s}, {cell_limit}, {batch} and {memory_limit}",
            code="range",
        )


def build_answer(work: Certifier, seconds: float, *, limit: str = "a limit") -> Certification:
    """The answer so far; `seconds` are those of earlier calls, too. `limit`: which ended it."""
    proofs = []
    worst = max(
        work.found, key=lambda rule: work.found[rule].value - work.targets[rule], default=None
    )
    found = None if worst is None else work.found[worst]
    for rule, search in enumerate(work.searches):
        status: Status = "unknown" if search.open else "proven"
        if rule in work.found:
            status = "refuted"
        dimensions, leaf_bounds, uses = search.preorder()
        tree = (dimensions, leaf_bounds, search.cells, uses)
        proofs.append(RuleProof(rule, status, search.limit, search.bound, *tree))
    status = "unknown" if any(proof.status == "unknown" for proof in proofs) else "proven"
    if found is not None:
        status = "refuted"
    return Certification(
        status,
        tuple(proofs),
        None if found is None else found.point,
        worst,
        None if found is None else found.value,
        _open_cells(work),
        sum(search.cells for search in work.searches),
        seconds,
        _note(work, status, limit),
        {rule: own.point for rule, own in work.found.items()},
        work.subject,
        all(
            not search.waiting or work.is_hopeless(rule)
            for rule, search in enumerate(work.searches)
        ),
    )


def _note(work: Certifier, status: Status, limit: str) -> str:
    if status == "proven":
        return f"bounds include a margin of up to {work.margins.max():.2g} for rounding"
    if status == "refuted":
        return f"refuted: rules {_listed(sorted(work.found))}; open cells of all rules are kept"
    left = [rule for rule, search in enumerate(work.searches) if search.open]
    if within := [rule for rule in left if rule in work.tight and work.tight[rule].broken]:
        return _within_note(work, within)
    if hopeless := [rule for rule in left if work.is_hopeless(rule)]:
        return _tight_note(work, hopeless)
    if any(work.searches[rule].waiting for rule in left):
        reached = "the memory limit" if work.full else limit
        note = f"{reached} was reached with rules {_listed(left)} open"
    else:
        note = f"the cells left of rules {_listed(left)} are too small to halve"
    held = {rule: work.searches[rule].count_held_by_margin() for rule in left}
    held = {rule: count for rule, count in held.items() if count}
    if held:
        margin = max(work.margins[rule] for rule in held)
        note += (
            f"; {sum(held.values())} cells of rules {_listed(list(held))} are open only because "
            f"bounds include a margin of up to {margin:.2g} for rounding: a value so close to its "
            "limit cannot be proven, ask for a limit wider by more than that"
        )
    return note


def _within_note(work: Certifier, rules: list[int]) -> str:
    """Which rules are broken, by no more than an audit allows, and where the first is."""
    first = work.tight[rules[0]]
    place = ", ".join(f"{value:.6g}" for value in first.point[:6])
    more = ", ..." if len(first.point) > 6 else ""
    return (
        f"rules {_listed(rules)} hold only up to the tolerance: rule {rules[0]} exceeds its limit "
        f"by {first.value - work.targets[rules[0]]:.3g} at x = [{place}{more}]. The tolerance is "
        f"{first.allowed:.3g}, so the rule is not refuted, and it cannot be proven: train with a "
        "larger row_margin, or prove a wider limit"
    )


def _tight_note(work: Certifier, rules: list[int]) -> str:
    """Which rules leave no room at some input, and where the first does."""
    first = work.tight[rules[0]]
    place = ", ".join(f"{value:.6g}" for value in first.point[:6])
    more = ", ..." if len(first.point) > 6 else ""
    return (
        f"rules {_listed(rules)} are too close to their limits to be proven: rule {rules[0]} has "
        f"the value {first.value:.12g} at x = [{place}{more}], its limit is "
        f"{work.targets[rules[0]]:.12g}, and bounds include a margin of up to "
        f"{max(work.margins[rule] for rule in rules):.2g} for rounding: prove a limit "
        "wider by more than that"
    )


def _listed(rules: list[int]) -> str:
    shown = ", ".join(str(rule) for rule in rules[:8])
    return f"{shown}, ..." if len(rules) > 8 else shown


def _open_cells(work: Certifier) -> OpenCells:
    size = len(work.lower)
    parts = [(rule, *search.open_cells()) for rule, search in enumerate(work.searches)]
    return OpenCells(
        np.concatenate([np.full(len(bounds), rule) for rule, _, _, bounds in parts]),
        np.concatenate([lower for _, lower, _, _ in parts]).reshape(-1, size),
        np.concatenate([upper for _, _, upper, _ in parts]).reshape(-1, size),
        np.concatenate([bounds for _, _, _, bounds in parts]),
    )
