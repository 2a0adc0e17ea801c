"""The figures that the paper reports for its 41 routing configurations, as facts to compare with.

Where the paper prints NaN, the figure is NaN here. Its `opt_mlu` behaves like a master objective
and not like a utilisation (one value is negative, one is 400), so it is listed and not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from cg4ai.routing.network.instance import CONFIGURATIONS


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One row of the paper's table; times in seconds."""

    instance: str
    demands: int
    paths: int
    iterations: int
    columns: int
    rows: int
    column_time: float
    row_time: float
    total_time: float
    optimal_mlu: float
    models: int
    validation_loss: float
    max_difference: float


# iterations, columns, rows, column time, row time, total time, opt_mlu, models, loss, max_diff;
# in the order of CONFIGURATIONS
FIGURES = """
4 4 0 284.83 875.47 1160.41 7.63e-02 2 0.021 0.38
57 36 9 2207.11 7831.87 10040.36 1.57e-01 34 0.013 0.46
28 21 0 1336.92 1215.77 2553.48 4.26e-02 3 0.015 0.42
11 8 4 463.05 1190.41 1653.69 9.14e-02 10 0.027 0.42
45 26 10 2229.10 13427.90 15658.01 6.07e-01 43 0.010 0.33
63 42 16 2832.30 19045.30 21879.00 9.91e-02 53 0.017 0.37
127 59 5 6319.78 10198.40 16520.90 2.95e-02 26 0.027 0.57
5 5 0 388.27 1279.12 1667.53 5.16e-01 3 0.004 0.34
28 24 0 3582.93 774.63 4358.14 1.01e-01 1 0.101 0.65
353 156 42 25530.80 95600.80 121141.19 2.90e-01 104 0.037 0.49
406 138 8 30845.70 22207.00 53064.82 2.73e-01 39 0.036 0.45
155 147 8 12730.70 12305.70 25039.90 3.59e-03 33 0.003 0.16
999 986 59 71904.80 52162.70 124094.28 9.15e-03 143 0.009 0.23
999 845 0 68495.30 0.00 68516.25 6.09e+00 58 0.058 0.50
350 344 9 21822.80 14763.50 36594.96 4.45e-03 44 0.004 0.17
3 3 0 273.24 241.05 514.36 2.28e-02 1 0.024 0.49
9 7 0 1300.78 1288.17 2589.15 2.88e-02 1 0.029 0.52
2 2 0 384.32 940.69 1325.07 5.97e-02 1 NaN NaN
2 2 0 393.92 1058.57 1452.53 9.98e-02 1 0.099 0.66
16 14 0 1682.60 4160.63 5843.64 1.68e-01 7 0.040 0.48
999 298 13 55938.10 13270.10 69230.61 4.00e+02 87 0.042 0.45
23 17 4 1683.58 2526.60 4210.79 1.08e-01 16 0.102 0.66
12 11 0 1969.16 993.96 2963.48 2.39e-02 1 0.025 0.49
60 29 22 4803.46 49169.50 53974.74 1.12e-01 71 0.017 0.34
20 14 2 2502.16 5126.39 7629.03 5.20e-02 9 0.049 0.56
1 1 0 288.41 1080.68 1369.11 5.90e-02 1 0.056 0.61
886 868 24 56205.70 14245.10 70476.87 -5.37e-02 66 0.001 0.13
63 45 17 5047.61 31214.60 36263.94 1.98e-04 57 2.3e-4 0.10
209 180 29 15888.80 45788.20 61682.89 3.64e-04 77 6.0e-4 0.13
180 131 94 7834.62 45883.70 53722.76 3.40e-04 189 3.2e-4 0.09
38 32 4 2753.76 5227.27 7982.08 2.47e-04 17 4.1e-4 0.11
142 96 79 5303.81 37377.30 42684.53 1.87e-04 164 1.3e-4 0.07
46 34 8 2605.42 7542.89 10149.66 5.81e-05 30 7.1e-5 0.05
258 167 75 8832.34 85008.30 93847.17 4.18e-04 234 6.0e-4 0.14
189 167 47 8804.43 33584.50 42393.73 1.01e-03 100 0.001 0.15
19 15 3 974.58 2233.84 3208.82 1.03e-04 13 1.1e-4 0.06
211 115 128 5319.47 55888.30 61212.43 4.91e-03 282 0.002 0.22
1 1 0 386.52 1291.10 1677.64 2.01e-02 1 0.020 0.49
142 65 58 9850.20 151503.00 161356.94 7.31e-02 175 0.018 0.42
72 27 0 9054.51 4745.62 13802.14 7.07e-02 6 0.021 0.42
4 4 0 730.99 1773.09 2504.20 4.75e-02 2 0.047 0.66
"""


def _read() -> dict[tuple[str, int, int], PaperRow]:
    table = {}
    lines = FIGURES.strip().splitlines()
    for configuration, line in zip(CONFIGURATIONS, lines, strict=True):
        iterations, columns, rows, *seconds, optimal, models, loss, difference = line.split()
        column_time, row_time, total_time = (float(text) for text in seconds)
        table[configuration] = PaperRow(
            *configuration,
            iterations=int(iterations),
            columns=int(columns),
            rows=int(rows),
            column_time=column_time,
            row_time=row_time,
            total_time=total_time,
            optimal_mlu=float(optimal),
            models=int(models),
            validation_loss=float(loss),
            max_difference=float(difference),
        )
    return table


PAPER: dict[tuple[str, int, int], PaperRow] = _read()
