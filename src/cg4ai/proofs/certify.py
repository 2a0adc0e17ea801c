"""`certify`: is a requirement kept at every input of its region? Proven, refuted or unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cg4ai import clock
from cg4ai.clock import Deadline, Review
from cg4ai.ensemble.audit import size_over_region
from cg4ai.ensemble.claims import subject_digest
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.fanout import checked_jobs
from cg4ai.proofs.answers import answer_of
from cg4ai.proofs.certificate import verified_rules
from cg4ai.proofs.certifier import Allowed, Certifier, Limited
from cg4ai.proofs.equalities import certify_equality
from cg4ai.proofs.leaves import close_by_leaves
from cg4ai.proofs.outputs import certify_outputs
from cg4ai.proofs.records import Certification, Progress
from cg4ai.proofs.rounds import search_rounds
from cg4ai.proofs.rules import proof_rules_of
from cg4ai.proofs.shapes import certify_shape
from cg4ai.proofs.shields import shield_of
from cg4ai.rules import Requirement
from cg4ai.rules.arranged import OutputRule
from cg4ai.rules.equality import Equality
from cg4ai.rules.regions import Region
from cg4ai.rules.shapes import Shape

MEMORY_LIMIT = 4 * 2**30  # bytes: half for a batch, half for trees and open cells


def certify(
    ensemble: Ensemble,
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
    the check is left for later, to `verified`, and nothing is recorded as certified before.

    Refuted is what breaks a rule by more than `tolerance` x its size, as in `ensemble.audit`. Where
    less than that is found the answer is unknown, since the rule as stated cannot be proven either,
    and the note says by how much its limit is exceeded.

    `n_jobs` parts of search and check go on at a time, by joblib (None: 1, or what
    `joblib.parallel_config` says), each within the memory of a batch; the answer is the same for
    any number unless time ends it.
    """
    started = clock.now()
    if not 0 <= tolerance < 1:
        raise InvalidInput(f"tolerance must be at least 0 and below 1, got {tolerance}")
    _check_limits(time_limit_s, cell_limit, batch=batch, memory_limit=memory_limit)
    checked_jobs(n_jobs)
    if isinstance(requirement, Equality):
        return certify_equality(ensemble, requirement)
    if isinstance(requirement, OutputRule):
        return certify_outputs(ensemble, requirement)
    if isinstance(requirement, Shape):
        return certify_shape(ensemble, requirement)
    rules = proof_rules_of(requirement, output_size=ensemble.output_size)
    place = _place(ensemble, region if region is not None else requirement.region)
    shielded = shield_of(ensemble)
    if shielded is not None:
        shielded.need(rules, place)
    work = Certifier(
        ensemble if shielded is None else shielded.anchor,
        rules,
        region=place,
        device=device,
        batch=batch,
        memory_limit=memory_limit,
        subject=subject_digest(ensemble, rules, place),
        # a shield moves predictions all the way to its anchor, which has to keep the rule as stated
        allowed=Allowed(
            tolerance if shielded is None else 0.0, size_over_region(requirement, ensemble)
        ),
    )
    before = 0.0
    if resume is not None:
        work.resume(resume)
        before = resume.seconds
    with Review(Deadline(started + time_limit_s), clock.review().say, what="proving").entered():
        work.look_first()
        if not work.found:
            close_by_leaves(work)
    limited = Limited(cell_limit, started + time_limit_s, all_rules)
    search_rounds(work, limited, progress=progress, n_jobs=n_jobs)
    if progress is not None:
        progress(work.progress())
    limit = f"the limit of {cell_limit:,} cells"
    if clock.now() >= limited.until:
        limit = f"the time limit of {time_limit_s:g} s"
    answer = answer_of(work, before + clock.now() - started, limit=limit)
    if shielded is not None:
        answer = shielded.answer(answer)
    if not verify:
        return answer
    left = started + time_limit_s - clock.now()
    answer = verified_rules(answer, ensemble, rules, region=place, time_limit_s=left, n_jobs=n_jobs)
    return replace(answer, seconds=before + clock.now() - started)


def _place(ensemble: Ensemble, region: object) -> Region:
    if not isinstance(region, Region) or region.size != ensemble.input_size:
        raise InvalidInput(
            f"certify needs a Box, Ball or Polytope with {ensemble.input_size} features, got "
            f"{region}"
        )
    return region


def _check_limits(time_limit_s: float, cell_limit: int, *, batch: int, memory_limit: int) -> None:
    if not time_limit_s > 0 or min(cell_limit, batch, memory_limit) < 1:
        raise InvalidInput(
            "certify needs time_limit_s > 0, cell_limit >= 1, batch >= 1 and memory_limit >= 1, "
            f"got {time_limit_s}, {cell_limit}, {batch} and {memory_limit}"
        )
