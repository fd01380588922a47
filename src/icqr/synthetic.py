"""Synthetic data whose true conditional quantiles are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from sklearn.utils import check_random_state

Floats: TypeAlias = NDArray[np.float64]
Seed: TypeAlias = int | np.random.RandomState | None


@dataclass(frozen=True, eq=False)  # frames have no single answer to ==
class Synthetic:
    """Rows drawn from Y | X ~ N(mean(X), scale(X)²), together with the truth about them.

    `scale` is a standard deviation. Where it is below 1e-9, as it may be outside the unit cube, 1e-9 is used, so that
    every row has a proper law.

    Attributes
    ----------
    X : DataFrame of shape (n, d)
        Independent uniform features x1, …, xd on [0, 1].
    y : Series
    mean, scale : functions from an (n, d) array to n numbers

    Examples
    --------
    >>> data = make_linear_spread(3, random_state=0)
    >>> oracle = data.quantile(data.X, [0.05, 0.95])
    >>> data.coverage(data.X, oracle).round(6)
    array([0.9, 0.9, 0.9])
    """

    X: pd.DataFrame
    y: pd.Series
    mean: Callable[[Floats], Floats]
    scale: Callable[[Floats], Floats]

    def quantile(self, X: ArrayLike | pd.DataFrame, level: float | ArrayLike) -> Floats:
        """Return the true conditional quantiles: (n,) for one level, (n, levels) for a list.

        Examples
        --------
        >>> make_sine_spread(random_state=0).quantile([[0.25, 0.5]], 0.5).round(6)
        array([0.6])
        """
        levels = np.asarray(level, dtype=np.float64)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"level must be between 0 and 1, got {level!r}; a median is 0.5, not 50")
        mean, scale = self._law(X)
        shape = (-1,) + (1,) * levels.ndim
        return np.asarray(mean.reshape(shape) + scale.reshape(shape) * ndtri(levels), dtype=np.float64)

    def coverage(self, X: ArrayLike | pd.DataFrame, intervals: ArrayLike) -> Floats:
        """Return, for each row, the true probability that Y falls in its interval; bounds may be infinite.

        Examples
        --------
        >>> make_sine_spread(random_state=0).coverage([[0.25, 0.5]], [[0.6, float("inf")]]).round(6)
        array([0.5])
        """
        mean, scale = self._law(X)
        bounds = np.asarray(intervals, dtype=np.float64)
        if bounds.shape != (len(mean), 2):
            raise ValueError(f"intervals must have shape ({len(mean)}, 2), one row per row of X, got {bounds.shape}")
        below = ndtr((bounds - mean[:, None]) / scale[:, None])
        return np.asarray(np.maximum(below[:, 1] - below[:, 0], 0.0), dtype=np.float64)

    def _law(self, X: ArrayLike | pd.DataFrame) -> tuple[Floats, Floats]:
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.X.shape[1]:
            raise ValueError(f"X must have shape (n, {self.X.shape[1]}), as the rows that were drawn; got {rows.shape}")
        return self.mean(rows), np.maximum(self.scale(rows), 1e-9)


def _draw(
    mean: Callable[[Floats], Floats], scale: Callable[[Floats], Floats], shape: tuple[int, int], random_state: Seed
) -> Synthetic:
    if shape[0] < 1:
        raise ValueError(f"n_samples must be at least 1, got {shape[0]}")
    rng = check_random_state(random_state)
    X = pd.DataFrame(rng.uniform(size=shape), columns=[f"x{j + 1}" for j in range(shape[1])])
    law = Synthetic(X, pd.Series(dtype=float), mean, scale)
    centre, spread = law._law(X)
    return replace(law, y=pd.Series(centre + spread * rng.standard_normal(shape[0]), name="y"))


@overload
def make_heteroscedastic(
    n_samples: int = ..., *, n_features: int = ..., random_state: Seed = ..., return_X_y: Literal[False] = ...
) -> Synthetic: ...
@overload
def make_heteroscedastic(
    n_samples: int = ..., *, n_features: int = ..., random_state: Seed = ..., return_X_y: Literal[True]
) -> tuple[pd.DataFrame, pd.Series]: ...
def make_heteroscedastic(
    n_samples: int = 1000, *, n_features: int = 5, random_state: Seed = None, return_X_y: bool = False
) -> Synthetic | tuple[pd.DataFrame, pd.Series]:
    """Y = 2x₁ + sin(2πx₂) + N(0, s), s = 0.1 + x₁ a standard deviation; the other features are noise.

    The spread grows elevenfold along x1, so one width for all rows is wrong almost everywhere. X is uniform on [0, 1].
    Returns a `Synthetic`, or (X, y) with `return_X_y=True`.

    Examples
    --------
    >>> X, y = make_heteroscedastic(200, random_state=0, return_X_y=True)
    >>> X.shape, y.name
    ((200, 5), 'y')
    """
    if n_features < 2:
        raise ValueError(f"n_features must be at least 2, as y depends on x1 and x2; got {n_features}")
    data = _draw(
        lambda Z: 2 * Z[:, 0] + np.sin(2 * np.pi * Z[:, 1]),
        lambda Z: 0.1 + Z[:, 0],
        (n_samples, n_features),
        random_state,
    )
    return (data.X, data.y) if return_X_y else data


def make_linear_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = 0.8x₁ + 0.1x₂ + N(0, s), s = 0.5 + (x₁ + x₂)/2 a standard deviation; X uniform on [0, 1]².

    Examples
    --------
    >>> make_linear_spread(random_state=0).quantile([[1, 1]], 0.5).round(6)
    array([0.9])
    """
    return _draw(
        lambda Z: 0.8 * Z[:, 0] + 0.1 * Z[:, 1], lambda Z: 0.5 + (Z[:, 0] + Z[:, 1]) / 2, (n_samples, 2), random_state
    )


def make_sine_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = 0.5 sin(2πx₁) + 0.2x₂ + N(0, s), s = 0.1 + 0.4x₁ a standard deviation; X uniform on [0, 1]².

    Examples
    --------
    >>> make_sine_spread(random_state=0).quantile([[0.25, 1]], 0.5).round(6)
    array([0.7])
    """
    return _draw(
        lambda Z: 0.5 * np.sin(2 * np.pi * Z[:, 0]) + 0.2 * Z[:, 1],
        lambda Z: 0.1 + 0.4 * Z[:, 0],
        (n_samples, 2),
        random_state,
    )


def make_radial_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = √(x₁² + x₂²) + x₁ + N(0, s), s = 0.6 + 0.5x₂² a standard deviation; X uniform on [0, 1]².

    Examples
    --------
    >>> make_radial_spread(random_state=0).quantile([[0.6, 0.8]], 0.5).round(6)
    array([1.6])
    """
    return _draw(
        lambda Z: np.hypot(Z[:, 0], Z[:, 1]) + Z[:, 0], lambda Z: 0.6 + 0.5 * Z[:, 1] ** 2, (n_samples, 2), random_state
    )


def make_sum_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = 3x₁ + 0.5x₂ + x₃ + N(0, s), s = |x₁| + |x₂| + |x₃| a standard deviation; X uniform on [0, 1]³.

    Examples
    --------
    >>> make_sum_spread(random_state=0).quantile([[1, 1, 1]], 0.5).round(6)
    array([4.5])
    """
    return _draw(lambda Z: Z @ np.array([3.0, 0.5, 1.0]), lambda Z: np.abs(Z).sum(axis=1), (n_samples, 3), random_state)
