"""Public requests to other libraries, each as a script: what fails there, and how it is done here.

Every module has a `WISH`, what was asked, and `run()`, which tries both and returns an `Outcome`.
"""

from __future__ import annotations

# names of the modules, in the order of the table
WISHES = (
    "xgboost_11589",
    "catboost_2938",
    "lightgbm_5727",
    "lightgbm_5358",
    "lightgbm_6155",
    "lightgbm_3912",
    "skpro_131",
    "sklearn_25703",
    "interpret_184",
    "statsmodels_7746",
    "pygam_330",
    "hierarchicalforecast_404",
    "hierarchicalforecast_239",
    "darts_2014",
    "prophet_1668",
    "mapie_449",
    "fairlearn_444",
    "fairlearn_460",
    "cvxpylayers_205",
    "cooper_105",
)
