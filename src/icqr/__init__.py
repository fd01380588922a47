"""Prediction intervals for tabular regression that hold where you look, not only on average."""

from icqr.auditing import audit, compare, plan
from icqr.importance import PermutationImportance
from icqr.partition import GroupPartition, KMeansPartition, WholePartition
from icqr.quantiles import QuantileModel, prefit
from icqr.regressors import CQR, ICQR, QR, Naive
from icqr.reporting import report

__version__ = "0.1.0"

__all__ = [
    "CQR",
    "ICQR",
    "QR",
    "GroupPartition",
    "KMeansPartition",
    "Naive",
    "PermutationImportance",
    "QuantileModel",
    "WholePartition",
    "audit",
    "compare",
    "plan",
    "prefit",
    "report",
]
