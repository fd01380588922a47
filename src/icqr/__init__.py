"""Prediction intervals for tabular regression that hold where you look, not only on average."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from icqr.auditing import audit, compare, plan
    from icqr.distribution import PredictiveDistribution
    from icqr.importance import PermutationImportance
    from icqr.online import Monitor
    from icqr.partition import GroupPartition, KMeansPartition, ScorePartition, WholePartition
    from icqr.persistence import load, save
    from icqr.quantiles import QuantileModel, prefit
    from icqr.regressors import CQR, ICQR, QR, AutoICQR, Naive
    from icqr.reporting import report
    from icqr.residual_quantiles import ResidualQuantiles

__version__ = "0.1.0"

__all__ = [
    "CQR",
    "ICQR",
    "QR",
    "AutoICQR",
    "GroupPartition",
    "KMeansPartition",
    "Monitor",
    "Naive",
    "PermutationImportance",
    "PredictiveDistribution",
    "QuantileModel",
    "ResidualQuantiles",
    "ScorePartition",
    "WholePartition",
    "audit",
    "compare",
    "load",
    "plan",
    "prefit",
    "report",
    "save",
]

# Names are imported when they are first used (PEP 562). NumPy, pandas and scikit-learn take a second or more to import,
# and `icqr --help` and shell completion should not have to wait for them.
_HOMES = {
    "auditing": ("audit", "compare", "plan"),
    "distribution": ("PredictiveDistribution",),
    "importance": ("PermutationImportance",),
    "online": ("Monitor",),
    "partition": ("GroupPartition", "KMeansPartition", "ScorePartition", "WholePartition"),
    "persistence": ("load", "save"),
    "quantiles": ("QuantileModel", "prefit"),
    "regressors": ("AutoICQR", "CQR", "ICQR", "QR", "Naive"),
    "reporting": ("report",),
    "residual_quantiles": ("ResidualQuantiles",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("calibration", "dask", "datasets", "metrics", "neural", "persistence", "plots", "streaming")

if not typing.TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> typing.Any:
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
