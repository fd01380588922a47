"""The paper's feed-forward quantile network; many independent networks are trained as one compiled program."""

from icqr.neural.estimator import QuantileNetwork

__all__ = ["QuantileNetwork"]
