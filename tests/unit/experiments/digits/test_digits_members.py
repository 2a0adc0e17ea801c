"""Affine copies against scipy; blurred members against plain ones; when pricing has enough."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals
from cg4ai.rules import Margin
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import generator
from experiments.digits.app import alone
from experiments.digits.data import digits
from experiments.digits.members import DigitPricer, SmoothNetwork, base_member, network
from experiments.digits.problem import Affine, DigitLoss
from raising import raises


def test_copies_are_what_scipy_interpolates() -> None:
    images = torch.as_tensor(digits().images[::700])
    wanted = Affine(degrees=30, scale=0.2, shift=3)
    copies = wanted.copies(images, generator(5)).numpy()
    draws = torch.rand(4, len(images), generator=generator(5)).double().numpy() * 2 - 1
    for copy, image, (turn, size, right, down) in zip(copies, images, draws.T, strict=True):
        angle, factor = np.radians(30 * turn), 1 / (1 + 0.2 * size)
        matrix = factor * np.array(
            [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        )
        centre = np.full(2, 13.5)
        expected = ndimage.affine_transform(
            image.numpy().reshape(28, 28),
            matrix,
            offset=centre - matrix @ centre + 3 * np.array([down, right]),
            order=1,
            mode="grid-constant",
        )
        np.testing.assert_allclose(copy.reshape(28, 28), expected, atol=1e-5)


def test_no_change_is_the_image_itself() -> None:
    images = torch.as_tensor(digits().images[:3])
    same = Affine(0, 0, 0).copies(images, generator(0))
    torch.testing.assert_close(same, images, atol=1e-6, rtol=0)
    with raises(InvalidInput, "invalid-input", "scale"):
        Affine(scale=1.0)


@pytest.mark.parametrize("rule", ["margin", "probability"])
def test_blurred_members_see_blurred_images(rule: str) -> None:
    smooth = SmoothNetwork(rule, 3, blur=1.5, gain=2.0)  # type: ignore[arg-type]
    free = {name: value.double() for name, value in smooth.initialise(4, generator(1)).items()}
    images = digits().images[::1000]
    place = np.arange(28)
    kernel = np.exp(-((place[:, None] - place) ** 2) / 4.5) / (1.5 * np.sqrt(2 * np.pi))
    blurred = 2.0 * np.einsum("ij,njk,kl->nil", kernel, images.reshape(-1, 28, 28), kernel)
    expected = network(rule, 3).forward(free, torch.as_tensor(blurred.reshape(-1, 784)))  # type: ignore[arg-type]
    x = torch.as_tensor(images)
    torch.testing.assert_close(smooth.forward(free, x), expected)
    members = smooth.members(free)
    assert members.architecture == network(rule, 3)  # type: ignore[arg-type]
    torch.testing.assert_close(members.outputs(x), expected)
    assert smooth.parameters(members) is None
    assert SmoothNetwork(rule, 3).parameters(members) is not None  # type: ignore[arg-type]
    with raises(InvalidInput, "invalid-input", "blur"):
        SmoothNetwork("margin", blur=-1)


def test_base_member_learns_and_its_probabilities_are_softmax() -> None:
    split = digits().split(50, 0)
    x, y = split.train_images, split.train_labels
    logits, probabilities = (
        alone(base_member(x, y, rule=rule, hidden=8, seed=0)).predict(x)
        for rule in ("margin", "probability")
    )
    assert np.mean(logits.argmax(1) == y) > 0.9
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(probabilities, exponents / exponents.sum(1, keepdims=True))


def test_no_group_is_trained_when_little_is_left_to_gain() -> None:
    split = digits().split(20, 1)
    x, y = split.train_images, split.train_labels
    base = alone(base_member(x, y, rule="margin", hidden=16, seed=0))
    reached = base.predict(x)
    lead = reached[np.arange(20), y] - np.sort(reached, axis=1)[:, -2]
    assert lead.min() > 0  # all right: 20 images are easy for 16 neurons
    training = GradientPricer(
        SmoothNetwork("margin"), restarts=1, group=3, training=Training(2), finish=0.0
    )

    def asked(threshold: float, enough: float) -> bool:
        requirement = Margin(x, y, threshold, classes=10, form="member")
        rows = RowSet(Layout.single(10), [requirement.rows(0)])
        request = PricingRequest(
            iteration=1,
            seed=0,
            duals=Duals(np.zeros(20), np.zeros(1)),
            guide=np.zeros(20),
            rows=rows,
            objective=DigitLoss(x, y, "cross_entropy", "mixture"),
            loss_weight=1.0,
            ensemble=base,
            device="cpu",
        )
        return DigitPricer(training, enough).price(request).members is not None

    assert not asked(lead.min() - 1e-6, enough=10.0)
    assert asked(lead.min() + 1e-6, enough=10.0)  # a row is missed
    assert asked(lead.min() - 1e-6, enough=0.0)  # the loss could still fall


def test_batches_come_from_the_copies() -> None:
    soft = (np.full((5, 784), 0.25, np.float32), np.arange(5))
    loss = DigitLoss(np.zeros((2, 784)), np.array([0, 1]), "cross_entropy", "mixture", soft=soft)
    drawn = loss.batch(64, generator(0), device="cpu", dtype=torch.float32)
    assert drawn.inputs.shape == (64, 784)
    assert torch.all(drawn.inputs == 0.25)
    assert drawn.targets is not None
    assert set(drawn.targets.tolist()) == set(range(5))
    assert len(loss.batch(None, generator(0), device="cpu", dtype=torch.float32).inputs) == 2
