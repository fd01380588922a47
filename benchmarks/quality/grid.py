"""What the benchmark runs: base models, data sets, coverages, seeds. Fixed before the results, not changed after.

Nothing is tuned: the base models have the same settings on all data sets, and all methods get the same fitted model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple

from icqr import datasets

REAL = ("bike", "protein", "california", "kc_house", "diamonds", "blog", "concrete", "star", "communities", "boston")
#: Rows of these are drawn anew for each seed; their law is known.
SYNTHETIC = {
    "linear_spread": datasets.make_linear_spread,
    "sine_spread": datasets.make_sine_spread,
    "radial_spread": datasets.make_radial_spread,
    "sum_spread": datasets.make_sum_spread,
}
DATA = (*REAL, *SYNTHETIC)
#: The control in which CQR's base model has more trees (or epochs), and the one in which it is a mean of models.
MORE = "CQR, more trees"
AVERAGED = "CQR, five averaged"


@dataclass(frozen=True)
class Base:
    """A base model: an estimator of some library.

    Parameters
    ----------
    module, kind : str
        Where its class is, and the class.
    settings : dict
        Its parameters.
    effort : str, optional
        The parameter that computing time is proportional to: trees or epochs.
    times : int, optional
        The control's model has this many times the effort. The tables show the seconds of both.

    Examples
    --------
    >>> base = Base("sklearn.ensemble", "HistGradientBoostingRegressor", {"max_iter": 9}, effort="max_iter", times=2)
    >>> base.make(seed=0), base.with_more_effort().make(seed=0)
    (HistGradientBoostingRegressor(max_iter=9, random_state=0),
     HistGradientBoostingRegressor(max_iter=18, random_state=0))
    """

    module: str
    kind: str
    settings: Mapping[str, Any]
    effort: str | None = None
    times: int = 1

    def make(self, seed: int) -> Any:
        """Return the estimator, not fitted."""
        model = getattr(import_module(self.module), self.kind)(**self.settings)
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model

    def with_more_effort(self) -> Base:
        """Return the control's model."""
        assert self.effort is not None
        return replace(self, settings={**self.settings, self.effort: self.times * self.settings[self.effort]})


#: 300 trees. All else are the defaults of the two libraries, which agree (31 leaves, learning rate 0.1, 20 rows in a
#: leaf), but for early stopping: all data sets get the same number of trees. The network has the paper's settings.
BASES = {
    "histgb": Base(
        "sklearn.ensemble",
        "HistGradientBoostingRegressor",
        {"max_iter": 300, "early_stopping": False},
        effort="max_iter",
        times=6,
    ),
    "lightgbm": Base(
        "lightgbm",
        "LGBMRegressor",
        {"n_estimators": 300, "n_jobs": 1, "verbosity": -1},
        effort="n_estimators",
        times=8,
    ),
    "network": Base("icqr.neural", "QuantileNetwork", {"epochs": 1000}, effort="epochs", times=10),
    # Without a penalty: a quantile model that is wrong wherever the truth is not linear.
    "linear": Base("sklearn.linear_model", "QuantileRegressor", {"alpha": 0.0}),
}


@dataclass(frozen=True)
class Settings:
    """What the results of a cell depend on, besides the cell.

    Parameters
    ----------
    bases : dict
        The base models.
    synthetic_rows : int
        Rows of a synthetic set, all parts together.
    conditional_rows : int
        Test rows, at most, on which coverage given the features is measured.
    first_seeds : dict
        Methods that run for so many seeds only, and at coverage 0.9, because they take long; compared with CQR on the
        same seeds.
    most_rows : dict
        Methods that run with so many calibration rows at most, because their time grows with the square.
    methods : tuple of str, optional
        Run only these. By default all of ours and of other packages, but those that run on request alone.
    """

    bases: Mapping[str, Base] = field(default_factory=lambda: BASES)
    synthetic_rows: int = 4000
    conditional_rows: int = 20_000
    first_seeds: Mapping[str, int] = field(
        default_factory=lambda: (
            dict.fromkeys(
                ["ICQR printed", "ICQR notebook", MORE, AVERAGED, "MAPIE conditional", "AutoGluon", "AutoGluon, CQR"], 5
            )
            | dict.fromkeys(["MAPIE CV+", "MAPIE cross CQR"], 1)
        )
    )
    most_rows: Mapping[str, int] = field(default_factory=lambda: {"MAPIE conditional": 6000})
    methods: tuple[str, ...] | None = None


# -- The grid --------------------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """One fitted base model, on which all methods run."""

    data: str
    base: str
    level: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its file.

        Examples
        --------
        >>> Cell("bike", "lightgbm", 0.9, 3).name
        'bike-lightgbm-0.9-03'
        """
        return f"{self.data}-{self.base}-{self.level:g}-{self.seed:02d}"


class Plan(NamedTuple):
    """A part of the grid."""

    data: tuple[str, ...]
    bases: tuple[str, ...]
    levels: tuple[float, ...]
    seeds: int


#: Bounds are fitted at the levels of each coverage.
PLANS = (
    Plan(DATA, ("histgb", "lightgbm"), (0.9,), 20),
    Plan(DATA, ("histgb", "lightgbm"), (0.8, 0.95), 5),
    Plan(("boston", "bike", "concrete"), ("network",), (0.9,), 5),
    Plan(tuple(SYNTHETIC), ("linear",), (0.9,), 20),
)


def cells(
    data: Collection[str] = DATA,
    levels: Collection[float] | None = None,
    seeds: int | None = None,
    bases: Collection[str] = tuple(BASES),
) -> list[Cell]:
    """Return the cells of the grid, all or some; a run that is stopped has the first seeds of all of them.

    Examples
    --------
    >>> [cell.name for cell in cells(["boston"], levels=[0.8], seeds=1)]
    ['boston-histgb-0.8-00', 'boston-lightgbm-0.8-00']
    """
    chosen = [
        Cell(name, base, level, seed)
        for plan in PLANS
        for name in plan.data
        for base in plan.bases
        for level in plan.levels
        for seed in range(plan.seeds if seeds is None else min(seeds, plan.seeds))
        if name in data and base in bases and (levels is None or level in levels)
    ]
    return sorted(chosen, key=lambda cell: cell.seed)
