"""Bets against a null hypothesis: evidence that you may look at after every batch, as often as you like.

Each test counts hits among rows: for coverage, a hit is a miss of the interval. The null hypothesis gives the chance of
every batch's hits, and each bet multiplies its money by how much likelier the batch is under its alternative. On
average over the null no bet wins, so the money of all of them, an e-process, ever reaches 1 / α with a chance of at
most α (Ville's inequality).

An alternative is a rate of hits and the batch from which on it holds. Money is set aside for each start, more for early
ones, so that a change is found whenever it comes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from icqr._tables import FloatArray, IntArray

#: Alternatives: the odds of a hit are so many times those that were promised. The first half says more hits.
_STEPS = 1.25 * 1.5 ** np.arange(6)
ODDS = np.concatenate([_STEPS, 1 / _STEPS])
_HALF = len(_STEPS)
#: In each batch an alternative's log-odds vary by about this, so that one between two alternatives is found as well.
_SPREAD = 0.2
#: Half of the money is on starts among the first 170 rows.
_EARLY = 100
#: The logarithm of no money; a finite number, so that it can be written as JSON.
_NOTHING = -1e9


def log_urn(hits: Any, rows: Any, a: Any, b: Any) -> Any:
    """Return the log-chance of `rows` draws with `hits` in a given order from Pólya's urn, which starts with a and b.

    Each draw adds a ball of its colour: the chance of a hit is first a / (a + b), after a hit (a + 1) / (a + b + 1).

    Examples
    --------
    >>> float(np.exp(log_urn(hits=1, rows=2, a=1.0, b=4.0)).round(6)) == round(1 / 5 * 4 / 6, 6)
    True
    """
    misses = rows - hits
    return gammaln(a + hits) - gammaln(a) + gammaln(b + misses) - gammaln(b) - gammaln(a + b + rows) + gammaln(a + b)


def survival(rows: Any) -> Any:
    """Return the money that is still set aside after so many rows: it falls ever more slowly, and never to nothing."""
    return 1 / (1 + np.log1p(np.asarray(rows) / _EARLY))


class Bets:
    """Several tests of the same kind, and one of all of them together, which is the last.

    Parameters
    ----------
    rate : (tests,) array
        The chance of a hit that is promised in each test.
    size : (tests,) array
        How sure that is: the size of the urn, the number of calibration rows plus 1. Infinite: the rate is fixed.
    tested : (tests + 1, 2) array of bool
        Which tests look for more hits than promised, and which for fewer.
    """

    arrays = ("rows", "hits", "wealth", "best", "since")

    def __init__(self, rate: FloatArray, size: FloatArray, tested: NDArray[np.bool_]) -> None:
        self.rate, self.size, self.tested = rate, size, tested
        self.rows: IntArray = np.zeros(len(tested), dtype=np.intp)
        self.hits: IntArray = np.zeros(len(tested), dtype=np.intp)
        # The money on each alternative, summed over its starts; that of the best start alone; and where that was.
        self.wealth: FloatArray = np.full((len(tested), len(ODDS)), _NOTHING)
        self.best: FloatArray = self.wealth.copy()
        self.since: IntArray = np.zeros((len(tested), len(ODDS), 3), dtype=np.intp)

        # Alternatives: p = a / (a + b), with a + b so that the log-odds vary by `_SPREAD`.
        odds = (rate / (1 - rate))[:, None] * ODDS
        p = odds / (1 + odds)
        self._a, self._b = 1 / (1 - p) / _SPREAD**2, 1 / p / _SPREAD**2

    def settle(self, hits: IntArray, rows: IntArray, marks: IntArray) -> None:
        """Settle all bets on a batch, of which each test had so many hits among so many rows.

        `marks` (tests + 1, 3) say where the stream is, and are kept for the best start of each alternative.
        """
        which = np.flatnonzero((rows[:-1] > 0) & self.tested[:-1].any(axis=1))
        ratios, expected = self._ratios(which, hits[which], rows[which])
        if len(which) and self.tested[-1].any():
            which = np.append(which, len(rows) - 1)
            ratios, expected = np.vstack([ratios, ratios.sum(axis=0)]), np.append(expected, expected.sum())

        # A batch with no more hits than expected is no evidence for more of them, whatever else is odd about it.
        surplus = (hits[which] - expected)[:, None]
        halves = (surplus <= 0, surplus >= 0)
        for half, is_against in zip((slice(_HALF), slice(_HALF, None)), halves, strict=True):
            ratios[:, half] = np.where(is_against, np.minimum(ratios[:, half], 0), ratios[:, half])

        # New bets start with this batch; then all of them are settled.
        before = self.rows[which]
        stake = np.log((survival(before) - survival(before + rows[which])) / _HALF)[:, None]
        is_better = stake > self.best[which]
        self.since[which] = np.where(is_better[:, :, None], marks[which][:, None], self.since[which])
        self.best[which] = np.maximum(self.best[which], stake) + ratios
        self.wealth[which] = np.logaddexp(self.wealth[which], stake) + ratios
        self.rows += rows
        self.hits += hits

    def _ratios(self, which: IntArray, hits: IntArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-likelihood ratio of each alternative to the null, and the hits that the null expects."""
        rate, is_fixed = self.rate[which], np.isinf(self.size[which])
        size = np.where(is_fixed, 1.0, self.size[which])
        a, b = rate * size + self.hits[which], (1 - rate) * size + self.rows[which] - self.hits[which]
        null = np.where(is_fixed, hits * np.log(rate) + (rows - hits) * np.log1p(-rate), log_urn(hits, rows, a, b))
        expected = rows * np.where(is_fixed, rate, a / (a + b))
        alternatives = log_urn(hits[:, None], rows[:, None], self._a[which], self._b[which])
        return np.asarray(alternatives - null[:, None]), np.asarray(expected)

    def add(self, others: Bets, marks: IntArray) -> None:
        """Put the money of bets on other rows to these, as if those rows had come after these.

        Each test's money is the mean of both, weighted by their rows, and on average over the null not more than one.
        """
        total = np.maximum(self.rows + others.rows, 1)
        own, new = (np.log(np.maximum(bets.rows / total, 1e-300))[:, None] for bets in (self, others))
        is_better = others.best + new > self.best + own
        self.since = np.where(is_better[:, :, None], others.since + marks[:, None], self.since)
        self.best = np.maximum(self.best + own, others.best + new)
        self.wealth = np.logaddexp(self.wealth + own, others.wealth + new)
        self.rows, self.hits = self.rows + others.rows, self.hits + others.hits

    def log_evidence(self) -> FloatArray:
        """Return (tests + 1, 2): the logarithm of the money, for more hits than promised and for fewer; 0: untested."""
        aside = np.log(survival(self.rows))[:, None, None]
        halves = self.wealth.reshape(-1, 2, _HALF)
        evidence = np.logaddexp.reduce(np.concatenate([np.repeat(aside, 2, axis=1), halves], axis=2), axis=2)
        return np.where(self.tested, evidence, 0.0)

    def start(self, test: int, fewer: int) -> tuple[float, list[int]]:
        """Return the best single bet of a test and a direction: the logarithm of its money, and its start's marks."""
        half = slice(_HALF * fewer, _HALF * (fewer + 1))
        place = int(self.best[test, half].argmax())
        return float(self.best[test, half][place]), self.since[test, half][place].tolist()


def log_loss_of_sharing(hits: IntArray, rows: IntArray) -> FloatArray:
    """Return how much less likely (a logarithm) the urn of Krichevsky and Trofimov makes hits than their own share.

    Multiplied by this, bets against the urn that starts from calibration rows are an e-process whatever the true share
    is (universal inference, Wasserman et al. 2020). `hits` and `rows` count calibration rows as well.

    Examples
    --------
    >>> float(np.exp(log_loss_of_sharing(np.array([1]), np.array([2])))[0].round(3))  # 1/8 and 1/4
    0.5
    """
    share = hits / rows
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(hits > 0, hits * np.log(share), 0) + np.where(hits < rows, (rows - hits) * np.log1p(-share), 0)
    return np.asarray(log_urn(hits, rows, 0.5, 0.5) - own)


def coverage_band(missed: IntArray, rows: IntArray, error_rate: float) -> FloatArray:
    """Return (n, 2) bands that hold the true coverage at all times together, with a chance of 1 - `error_rate`.

    They are the rates that an urn which knows nothing does not find 1 / `error_rate` times less likely than itself.

    Examples
    --------
    >>> coverage_band(np.array([0, 100]), np.array([0, 1000]), 0.05).round(3)
    array([[0.   , 1.   ],
           [0.862, 0.931]])
    """
    covered = rows - missed
    most = log_urn(missed, rows, 0.5, 0.5) + np.log(error_rate)
    centre = np.where(rows > 0, covered / np.maximum(rows, 1), 0.5)
    band = np.empty((len(rows), 2))
    for side, end in enumerate((0.0, 1.0)):
        inside, outside = centre.copy(), np.full(len(rows), end)
        for _ in range(50):
            middle = (inside + outside) / 2
            with np.errstate(divide="ignore", invalid="ignore"):
                likelihood = np.where(covered > 0, covered * np.log(middle), 0)
                likelihood += np.where(missed > 0, missed * np.log1p(-middle), 0)
            holds = likelihood >= most
            inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
        band[:, side] = outside
    return band
