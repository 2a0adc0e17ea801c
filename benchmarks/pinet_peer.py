"""Pi-net on one random program: the common network behind its projection, trained in JAX.

The layer is the package's own (PyPI `pinet-hcnn`): as many rounds of operator splitting as are
asked for, gradients by the implicit function theorem. Trained in float32, asked in float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench_size import BATCH, Drawn

from cg4ai.colgen import Training
from cg4ai.colgen.pricing.gradient.training import compute_onecycle_rate
from cg4ai.data import Array

HIDDEN = (200, 200)  # as Pi-net, DC3 and HardNet are published
ROUNDS, BACKWARD = 100, 25  # of splitting while training, and of the linear solver of gradients
LATER = 1000  # rounds of a prediction
SIGMA, OMEGA = 0.03, 1.7  # of 0.03, 0.1, 0.3 and 1 that of least violation at 100 outputs
UNITS = 25  # rounds of equilibration
AT_ONCE = 25  # steps compiled as one


@dataclass(frozen=True)
class Pinet:
    """A trained predictor (n, d) -> (n, r), its seconds, and the steps that were taken."""

    predict: Callable[[Array], Array]
    seconds: float
    steps: int


def train_pinet(problem: Drawn, *, seed: int, training: Training, limit_s: float) -> Pinet:
    """Adam with one cycle, on fresh inputs, as ours; it ends early after `limit_s` seconds."""
    import jax
    import jax.numpy as jnp

    started = time.perf_counter()
    jax.config.update("jax_enable_x64", True)
    half, outputs = problem.equality.shape
    project = _build_layer(problem, jnp, jnp.float32)
    q, p = (jnp.asarray(one, jnp.float32) for one in (problem.curvature, problem.slope))

    def network(weights: Any, x: Any) -> Any:
        y = x
        for number in range(len(HIDDEN) + 1):
            y = y @ weights[f"weight_{number}"] + weights[f"bias_{number}"]
            y = jnp.maximum(y, 0) if number < len(HIDDEN) else y
        return y + x @ weights["skip"]

    def loss(weights: Any, x: Any) -> Any:
        y = project(network(weights, x), x, ROUNDS)
        bent = y if problem.convex else jnp.sin(y)
        return (0.5 * jnp.square(y) @ q + bent @ p).mean()

    def step(carry: Any, told: Any) -> Any:
        weights, first, second, key = carry
        rate, count = told
        key, own = jax.random.split(key)
        slopes = jax.grad(loss)(weights, _draw(jax, problem, own, half))
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)

        def moved(w: Any, m: Any, v: Any) -> Any:
            size = jnp.sqrt(v / (1 - 0.999**count)) + 1e-8
            return w - rate * m / (1 - 0.9**count) / size

        return (jax.tree.map(moved, weights, first, second), first, second, key), None

    run = jax.jit(lambda carry, told: jax.lax.scan(step, carry, told)[0])
    weights = _initialise(np.random.default_rng([seed, 9]), half, outputs)
    nothing = jax.tree.map(jnp.zeros_like, weights)
    carry = (weights, nothing, nothing, jax.random.PRNGKey(seed))
    taken, ready = 0, 0.0
    while taken < training.steps and (not ready or time.perf_counter() - ready < limit_s):
        numbers = range(taken, min(taken + AT_ONCE, training.steps))
        rates = np.array([compute_onecycle_rate(n, training) for n in numbers], np.float32)
        counts = np.array(numbers, np.float32) + 1
        carry = jax.block_until_ready(run(carry, (rates, counts)))
        taken += len(numbers)
        ready = ready or time.perf_counter()  # what compiling takes is not held against it
    trained = carry[0]
    exact = _build_layer(problem, jnp, jnp.float64)
    doubled = jax.tree.map(lambda one: jnp.asarray(one, jnp.float64), trained)
    answer = jax.jit(lambda x: exact(network(doubled, x), x, LATER))

    def predict(inputs: Array) -> Array:
        return np.array(answer(jnp.asarray(inputs, jnp.float64)))

    return Pinet(predict, time.perf_counter() - started, taken)


def _build_layer(problem: Drawn, jnp: Any, dtype: Any) -> Callable[[Any, Any, int], Any]:
    """(outputs (n, r), inputs (n, d), rounds) -> the package's projection of the outputs."""
    import pinet

    half = len(problem.equality)
    matrix, rules, limit = (
        jnp.asarray(one, dtype) for one in (problem.equality, problem.inequality, problem.limit)
    )
    tied = pinet.EqualityConstraint(
        a_mat=matrix[None], b=jnp.zeros((1, half, 1), dtype), method=None, var_b=True
    )
    bounded = pinet.AffineInequalityConstraint(
        c_mat=rules[None], lb=jnp.full((1, len(limit), 1), -jnp.inf, dtype), ub=limit[None, :, None]
    )
    units = pinet.EquilibrationParams(max_iter=UNITS)
    layer = pinet.Project(eq_constraint=tied, ineq_constraint=bounded, equilibration_params=units)

    def project(y: Any, x: Any, rounds: int) -> Any:
        where = pinet.EqualityConstraintsSpecification(b=x[..., None])
        asked = pinet.ProjectionInstance(x=y[..., None], eq=where)
        found = layer.call(
            y_raw=asked, sigma=SIGMA, omega=OMEGA, n_iter=rounds, n_iter_bwd=BACKWARD
        )
        return found[0].x[..., 0]

    return project


def _draw(jax: Any, problem: Drawn, key: Any, half: int) -> Any:
    if problem.ball:
        raise NotImplementedError("inputs of this peer are drawn from a box")
    return jax.random.uniform(key, (BATCH, half), "float32", -1.0, 1.0)


def _initialise(random: np.random.Generator, half: int, outputs: int) -> dict[str, Any]:
    """As torch's linear layers begin."""
    made: dict[str, Any] = {}
    widths = (half, *HIDDEN, outputs)
    for number, inner in enumerate(widths[:-1]):
        end = 1 / np.sqrt(inner)
        made[f"weight_{number}"] = random.uniform(-end, end, (inner, widths[number + 1]))
        made[f"bias_{number}"] = random.uniform(-end, end, widths[number + 1])
    made["skip"] = random.uniform(-1, 1, (half, outputs)) / np.sqrt(half)
    return {name: np.asarray(one, np.float32) for name, one in made.items()}
