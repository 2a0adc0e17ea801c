"""A grid of five buses in a file, as a user would give it."""

import pytest

FIVE = """function mpc = five
mpc.version = '2';
mpc.baseMVA = 100.0;
%% a comment with mpc.bus = [ in it
mpc.bus = [
 1 3   0 0  0 0 1 1 0 230 1 1.1 0.9;
 2 1 100 0  0 0 1 1 0 230 1 1.1 0.9;
 3 2  80 0 10 0 1 1 0 230 1 1.1 0.9; % a shunt
 4 1 120 0  0 0 1 1 0 230 1 1.1 0.9
 7 2 -20 0  0 0 1 1 0 230 1 1.1 0.9; % feeds in
];
mpc.gen = [
 1 0 0 0 0 1 100 1 250  20;
 3 0 0 0 0 1 100 1 200   0;
 7 0 0 0 0 1 100 1 150  10;
 7 0 0 0 0 1 100 1  15  15; % held
 3 0 0 0 0 1 100 0 900   0; % out of service
];
mpc.gencost = [
 2 0 0 3 0 10 5;
 2 0 0 3 0 30 0;
 2 0 0 3 0 20 0;
 2 0 0 3 0  1 0;
 2 0 0 3 0  0 0;
];
mpc.branch = [
 1 2 0 0.06 0 130 0 0 0    0 1 -30 30;
 1 4 0 0.05 0 130 0 0 1.05 0 1 -30 30;
 1 7 0 0.04 0 120 0 0 0    2 1 -30 30;
 2 3 0 0.03 0   0 0 0 0    0 1 -30 30;
 3 4 0 0.08 0 100 0 0 0    0 1 -30 30;
 4 7 0 0.07 0  90 0 0 0.97 0 1 -30 30;
 2 7 0 0.01 0  10 0 0 0    0 0 -30 30;
];
"""


@pytest.fixture
def five_text():
    return FIVE


@pytest.fixture
def five(tmp_path):
    path = tmp_path / "five.m"
    path.write_text(FIVE)
    return path
