"""Watch a fitted model in use: whether coverage still holds in each group, and whether groups still come as often."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from icqr._bets import Bets, coverage_band, log_loss_of_sharing
from icqr._files import replacing
from icqr._messages import warn
from icqr._predicting import IntervalRegressor
from icqr._rows import check_target
from icqr._tables import FloatArray, IntArray
from icqr.auditing.findings import percent, promise
from icqr.calibration import Calibration
from icqr.cross import CrossCalibration

__all__ = ["Monitor"]

#: What is tested, in the order of the rows of `Monitor._log_evidence`, and what an alarm says.
TOO_LOW, TOO_HIGH, SHARE = "coverage too low", "coverage too high", "share changed"
_KINDS = (TOO_LOW, TOO_HIGH, SHARE)
#: What a group's coverage is compared with.
LUCK = "promise, with calibration luck"
FIXED = "promise, as a fixed level"
NOTHING = "nothing is promised"
#: Points of the picture that are kept.
_MOST_POINTS = 200
_VERSION = 1


class Monitor:
    """Watch a fitted model while labels come in, and say in which groups coverage no longer holds.

    Look as often as you like. The chance of any false alarm, ever, is at most `error_rate`, however many batches you
    look at, and the luck of the calibration rows is included: a group whose calibration happened to give 0.88 for a
    promise of 0.9 is no alarm.

    1. Count, in each group, the rows of a batch and the misses: rows whose interval does not contain y.
    2. If new rows come from where the calibration rows came from, the chance of the next miss after m of t rows were
       missed is exactly ``(n + 1 - k + m) / (n + 1 + t)``, where n is the group's number of calibration rows and k its
       rank. So the chance of every batch's misses is known.
    3. Bet against it: on more misses, on fewer, and from every batch on. If nothing has changed, money is not made.
       The money that is made is the evidence; an alarm is raised where it reaches the number of tests divided by
       `error_rate`.

    There are tests for each group and for all groups together, and for each group's share of the rows, which is an
    alarm of its own: then the input has shifted, and coverage in the group may hold all the same.

    Parameters
    ----------
    model : fitted estimator
        `Naive`, `CQR`, `ICQR` or `AutoICQR`. With ``ties="random"`` it is refused, because the same row is then covered
        or not, depending on its place in the table. If you calibrate the model again, make a new monitor.
    coverage : float, optional
        The coverage of the intervals to watch. By default the model's own.
    error_rate : float, default=0.05
        The chance that there is ever an alarm if nothing has changed. Smaller: alarms come later.

    Attributes
    ----------
    n_rows : int
        Rows counted so far. After a crash, go on from here.

    Notes
    -----
    - A group that is too small for a promise is counted, but not tested.
    - Cross-calibration (CV+) promises less than it usually gives, and on average over models only. There, coverage is
      compared with that promise as a fixed level, and only for being too low: an alarm says that this model covers less
      than the theorem's bound.
    - Where calibration scores tie with the offset, coverage is above the promise by right, and only tested for being
      too low.

    Examples
    --------
    >>> from icqr import CQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(1500, random_state=0, return_X_y=True)
    >>> model = CQR(random_state=0).fit(X[:1000], y[:1000])
    >>> monitor = Monitor(model).update(X[1000:], y[1000:])
    >>> monitor.alarms
    []
    >>> for sentence in monitor.update(X[1000:], y[1000:] + 2).alarms:
    ...     print(sentence)
    All rows: coverage too low since about row 501: 14.0 % of the 500 rows since then are covered, 90.1 % promised
    (evidence 10^169 to 1, alarm at row 1,000).
    """

    def __init__(self, model: IntervalRegressor, coverage: float | None = None, error_rate: float = 0.05) -> None:
        if not isinstance(error_rate, float | np.floating) or not 0 < error_rate < 1:
            raise ValueError(f"error_rate must be a number strictly between 0 and 1, got {error_rate!r}; 0.05 is usual")
        promises = model.certificate(coverage)
        if model.conformity_.ties == "random":
            raise ValueError(
                "a model with ties='random' can't be watched: whether it covers a row that ties depends on the row's "
                "place in the table; fit it with ties='covered'"
            )
        self.model = model
        self.coverage = promises.coverage
        self.error_rate = float(error_rate)
        self._groups = promises.groups.iloc[:-1].reset_index(drop=True)
        self._n_groups = len(self._groups)
        self._calibration = model.calibration_
        self._start_tests(self._calibration)
        self._fingerprint = _fingerprint(model.calibration_, self._groups)
        self.n_rows = 0
        self._ids: set[int] = set()
        self._peak: FloatArray = np.zeros((len(_KINDS), self._n_groups + 2))
        self._raised: list[dict[str, Any]] = []
        self._history: list[list[list[int]]] = []  # after some batches: rows and misses of each group
        self._n_batches, self._every = 0, 1

    def _start_tests(self, calibration: Calibration) -> None:
        """Set up the tests: one per group, one that stays empty for rows of no known group, and one of all rows."""
        n, rank, promised = (self._groups[name].to_numpy() for name in ("n", "rank", "promised"))
        has_promise = (promised > 0) & (rank <= n) & (n > 0)
        if isinstance(calibration, CrossCalibration):
            rate, size, low, high = 1 - promised, np.full(len(n), np.inf), has_promise, np.zeros(len(n), dtype=np.bool_)
        else:
            rate, size, low = (n + 1 - rank) / (n + 1), n + 1.0, has_promise
            high = has_promise & _without_ties(calibration, rank)
        has_sides = not calibration.conformity.symmetric and not isinstance(calibration, CrossCalibration)
        tested = np.zeros((len(n) + 2, 2), dtype=np.bool_)
        tested[:-2] = np.column_stack([low, high])
        if low.sum() > 1:
            tested[-1] = True, bool(high[low].all())
        rate, size = np.append(np.where(low, rate, np.nan), np.nan), np.append(size, np.nan)
        self._sides = [Bets(rate, size, tested) for _ in range(1 + has_sides)]

        # A group's share among the calibration rows, by an urn that starts from them and one half of a row.
        total = self._n_calibration = int(calibration.sizes.sum())  # with those of no known group
        has_share = np.repeat(((n > 0) & (len(n) > 1))[:, None], 2, axis=1)
        share = np.append(np.where(has_share[:, 0], (n + 0.5) / (total + 1), np.nan), np.nan)
        self._shares = Bets(share, np.full(len(share), total + 1.0), np.vstack([has_share, np.zeros((2, 2), np.bool_)]))
        self._compared = np.where(low, FIXED if isinstance(calibration, CrossCalibration) else LUCK, NOTHING)

    # -- Rows come in ------------------------------------------------------------------------------------------------

    def update(self, X: ArrayLike, y: ArrayLike, ids: ArrayLike | None = None) -> Self:
        """Predict labelled rows and count which intervals contain y.

        Parameters
        ----------
        X, y : table and array
            Rows and what happened, matched by position. A batch may have any size, and none is too small. Changes are
            found between batches: the order of rows within a batch plays no part.
        ids : array, optional
            A name for each row. Rows whose id was counted before are left out, with a warning. A file of the monitor
            has 11 characters per id.

        Returns
        -------
        self
        """
        if np.shape(y)[:1] == (0,) and np.shape(X)[:1] == (0,):
            return self
        if self.model.calibration_ is not self._calibration:
            raise ValueError(
                "the model was calibrated again, and its intervals are not those watched so far; begin a new monitor"
            )
        return self._observe(self.model.explain(X, self.coverage), y, ids)

    def observe(self, predictions: pd.DataFrame, y: ArrayLike, ids: ArrayLike | None = None) -> Self:
        """Count which intervals, predicted earlier, contain the labels that have come.

        Parameters
        ----------
        predictions : DataFrame
            What `explain` or the command `icqr predict` gave: columns lower, upper and group.
        y : array or Series
            A Series: its index names rows of `predictions`, those whose labels have come. The others wait: give them
            with the same `predictions` later. Labels that were counted before are left out, with a warning. An array:
            one label for each row, by position.
        ids : array, optional
            A name for each label, instead of the index.

        Returns
        -------
        self
        """
        missing = [name for name in ("lower", "upper", "group") if name not in predictions]
        if missing:
            raise ValueError(
                f"predictions must have columns lower, upper and group, as explain gives them, but lacks {missing[0]!r}"
            )
        if isinstance(y, pd.Series):
            names = y.index
            for what, index in (("predictions", predictions.index), ("y", names)):
                if not index.is_unique:
                    twice = index[index.duplicated()][0]
                    raise ValueError(f"the index of {what} must name each row once, but {twice!r} is there twice")
            places = predictions.index.get_indexer(names)
            if (places < 0).any():
                raise ValueError(
                    f"y has labels without predictions: {int((places < 0).sum())} of {len(y)}, the first with index "
                    f"{names[places < 0][0]!r}; predict these rows first, or leave them out"
                )
            predictions, ids = predictions.iloc[places], names if ids is None else ids
        return self._observe(predictions, y, ids)

    def _observe(self, predictions: pd.DataFrame, y: ArrayLike, ids: ArrayLike | None) -> Self:
        """Check a batch, leave out what was counted before, and count the rest."""
        target = check_target(y, len(predictions))
        lower, upper = (predictions[name].to_numpy(dtype=np.float64) for name in ("lower", "upper"))
        if np.isnan(lower).any() or np.isnan(upper).any():
            row = int(np.flatnonzero(np.isnan(lower) | np.isnan(upper))[0])
            raise ValueError(f"predictions must have numbers in lower and upper, row {row} has none; leave it out")
        groups = predictions["group"].to_numpy()
        if groups.dtype.kind not in "iu" or (len(groups) and not -1 <= groups.min() <= groups.max() < self._n_groups):
            raise ValueError(
                f"predictions must have whole numbers from -1 to {self._n_groups - 1} as group, got "
                f"{np.unique(groups)[[0, -1]].tolist() if len(groups) else groups.dtype}; were they made by another "
                "model?"
            )
        if "promised" in predictions and self._is_of_another(groups, predictions["promised"].to_numpy()):
            raise ValueError(
                f"predictions promise another coverage than the model watched does at coverage={self.coverage:g}; they "
                "were made by another model, before it was calibrated again, or at another coverage"
            )
        is_new = self._remember(ids, len(target))
        if is_new.any():
            misses = np.vstack([target < lower, target > upper])
            self._count(np.asarray(groups[is_new], dtype=np.intp), misses[:, is_new])
        return self

    def _is_of_another(self, groups: NDArray[Any], promised: FloatArray) -> bool:
        known = groups >= 0
        return not np.allclose(promised[known], self._groups["promised"].to_numpy()[groups[known]], atol=1e-6)

    def _remember(self, ids: ArrayLike | None, n_rows: int) -> NDArray[np.bool_]:
        """Return which rows were not counted before, and remember their ids."""
        if ids is None:
            return np.ones(n_rows, dtype=np.bool_)
        names = pd.Series(np.asarray(ids)).astype(str)  # 7 in one file may be "7" in another
        if names.shape != (n_rows,):
            raise ValueError(f"ids must have one value for each of the {n_rows} labels, got {len(names)}")
        if names.duplicated().any():
            raise ValueError(f"ids must name each row once, but {names[names.duplicated()].iloc[0]!r} is there twice")
        hashes = pd.util.hash_array(names.to_numpy(dtype=object), categorize=False).tolist()
        is_new = np.array([value not in self._ids for value in hashes], dtype=np.bool_)
        if not is_new.all():
            warn(f"{int((~is_new).sum()):,} of {n_rows:,} labels were counted before, and are left out")
        self._ids.update(hashes)
        return is_new

    def _count(self, groups: IntArray, misses: NDArray[np.bool_]) -> None:
        """Settle all bets on a batch; misses are (2, n), below and above the interval."""
        n_tests, n_groups = self._n_groups + 2, self._n_groups
        places = np.where(groups < 0, n_groups, groups)
        rows = np.bincount(places, minlength=n_tests)
        below, above = (np.bincount(places[side], minlength=n_tests) for side in misses)
        hits = [below + above] if len(self._sides) == 1 else [below, above]
        is_tested = self._sides[0].tested[:-2, 0]
        for counts in (rows, *hits):  # of all groups that are tested
            counts[-1] = counts[:-2][is_tested].sum()

        marks, share_marks = self._marks()
        for side, side_hits in zip(self._sides, hits, strict=True):
            side.settle(side_hits, rows, marks)
        everywhere = np.where(np.arange(n_tests) < n_groups, len(groups), 0)
        self._shares.settle(np.where(everywhere > 0, rows, 0), everywhere, share_marks)
        self.n_rows += len(groups)
        self._raise_alarms()
        self._n_batches += 1
        if self._n_batches % self._every == 0:
            self._history.append([self._sides[0].rows.tolist(), self._missed().tolist()])
            self._thin_history()

    def _marks(self) -> tuple[IntArray, IntArray]:
        """Return where the stream is, for coverage and for shares, so that an alarm can say since when."""
        rows = np.full(self._n_groups + 2, self.n_rows)
        coverage = np.column_stack([rows, self._sides[0].rows, self._missed()])
        return coverage, np.column_stack([rows, self._shares.rows, self._shares.hits])

    def _thin_history(self) -> None:
        while len(self._history) > _MOST_POINTS:
            self._history, self._every = self._history[1::2], 2 * self._every

    def _missed(self) -> IntArray:
        return np.asarray(sum(side.hits for side in self._sides))

    def merge(self, other: Monitor) -> Self:
        """Add what another monitor of the same model has counted, on other rows: those of another machine, say.

        Counts are added, as if the other's rows had come after these. The evidence is the mean of both, weighted by
        their rows. That keeps the error rate if you merge at times that you have planned, such as every night, and not
        because of what the monitors say. Alarms of both stay raised; each monitor has its own error rate until then.

        Parameters
        ----------
        other : Monitor
            Of the same model, coverage and error rate. It is not changed.

        Returns
        -------
        self
        """
        if (self._fingerprint, self.error_rate) != (other._fingerprint, other.error_rate):
            raise ValueError("only monitors of the same model, coverage and error_rate can be merged")
        if other is self or not self._ids.isdisjoint(other._ids):
            raise ValueError(
                f"both monitors have counted the same rows, {len(self._ids & other._ids):,} ids; merge monitors of "
                "different rows"
            )
        marks, share_marks = self._marks()
        for side, other_side in zip(self._sides, other._sides, strict=True):
            side.add(other_side, marks)
        self._shares.add(other._shares, share_marks)
        known = {(alarm["kind"], alarm["place"]) for alarm in self._raised}
        for alarm in other._raised:
            if (alarm["kind"], alarm["place"]) not in known:
                shift = (share_marks if _KINDS[alarm["kind"]] == SHARE else marks)[alarm["place"]]
                since = (shift + alarm["since"]).tolist()
                self._raised.append({**alarm, "row": alarm["row"] + self.n_rows, "since": since})
        counts = marks[:, 1:].T
        self._history += [(counts + point).tolist() for point in other._history]
        self._thin_history()
        self._n_batches += other._n_batches
        self._peak = np.maximum(self._peak, other._peak)
        self._ids |= other._ids
        self.n_rows += other.n_rows
        return self

    # -- What is said ------------------------------------------------------------------------------------------------

    def _log_evidence(self) -> FloatArray:
        """Return (kinds, tests) logarithms of the evidence, 0 where nothing is tested."""
        # The mean of several e-processes is one: of two sides, and of shares that are larger and smaller.
        low, high = np.logaddexp.reduce([side.log_evidence() for side in self._sides]).T - np.log(len(self._sides))
        shares = self._shares
        totals = self._groups["n"].to_numpy()
        share = np.logaddexp.reduce(shares.log_evidence(), axis=1) - np.log(2)
        if shares.tested.any():
            loss = log_loss_of_sharing(totals + shares.hits[:-2], self._n_calibration + shares.rows[:-2])
            share[:-2] += np.where(shares.tested[:-2, 0], loss, 0)
        return np.vstack([low, high, share])

    def _tested(self) -> NDArray[np.bool_]:
        """Return (kinds, tests): what is tested."""
        return np.vstack([self._sides[0].tested.T, self._shares.tested[:, 0]])

    @property
    def _threshold(self) -> float:
        """The logarithm of the evidence that raises an alarm: the tests share the error rate equally."""
        return math.log(max(int(self._tested().sum()), 1) / self.error_rate)

    def _raise_alarms(self) -> None:
        """Raise an alarm wherever the evidence reaches the threshold for the first time; it stays raised."""
        evidence = self._log_evidence()
        for kind, place in np.argwhere((evidence >= self._threshold) & (self._peak < self._threshold)).tolist():
            bets = [self._shares] if _KINDS[kind] == SHARE else self._sides
            directions = (0, 1) if _KINDS[kind] == SHARE else (kind,)
            _, since = max(side.start(place, direction) for side in bets for direction in directions)
            self._raised.append({"kind": kind, "place": place, "row": self.n_rows, "since": since})
        self._peak = np.maximum(self._peak, evidence)

    @property
    def alarms(self) -> list[str]:
        """The alarms so far, a sentence each: which group, since when, how bad, and how strong the evidence is."""
        return [self._alarm_sentence(**alarm) for alarm in self._raised]

    def _alarm_sentence(self, kind: int, place: int, row: int, since: list[int]) -> str:
        is_share = _KINDS[kind] == SHARE
        bets_rows, hits = (self._shares.rows, self._shares.hits) if is_share else (self._sides[0].rows, self._missed())
        start, rows_before, hits_before = since
        n = int(bets_rows[place]) - rows_before
        rate = (int(hits[place]) - hits_before) / max(n, 1)
        title = self._title(place)
        when = f"since about row {start + 1:,}"
        evidence = f"evidence {_odds(self._peak[kind, place])} to 1, alarm at row {row:,}"
        if is_share:
            usual = float(self._groups["n"].iloc[place] / self._n_calibration)
            return (
                f"{title}: {_KINDS[kind]} {when}: {percent(rate)} of the {n:,} rows since then, {percent(usual)} of "
                f"the calibration rows ({evidence}). The input has shifted; that alone does not break coverage."
            )
        promised = self._promised(place)
        return (
            f"{title}: {_KINDS[kind]} {when}: {percent(1 - rate)} of the {n:,} rows since then are covered, "
            f"{promise(round(promised, 3))} promised ({evidence})."
        )

    def _promised(self, place: int) -> float:
        if place < self._n_groups:
            return float(self._groups["promised"].iloc[place])
        # Of all groups that are tested, weighted by the rows that came.
        tested, rows = self._sides[0].tested[:-2, 0], self._sides[0].rows[:-2]
        weights = np.where(tested, np.maximum(rows, 1e-9), 0)
        return float(weights @ self._groups["promised"] / weights.sum()) if tested.any() else 0.0

    def _title(self, place: int) -> str:
        if self._n_groups == 1:
            return "All rows"
        if place == self._n_groups + 1:
            return "All groups together"
        return f"Group {place} ({self.model.descriptions_['rule'].iloc[place]})"

    def status(self) -> pd.DataFrame:
        """Return a row for each group, and if there are several, the last for all of them together.

        Returns
        -------
        DataFrame
            `group` (-1: no known group); its `rule`; rows that came (`n`), how many were `covered`, and the `coverage`;
            what is `promised`, and what coverage is `compared_with`; `band_lower` and `band_upper`, which hold the true
            coverage at all times together with a chance of 1 - `error_rate` in each group, as long as it stays the
            same; `evidence_too_low` and `evidence_too_high` against coverage (e-values, 1 is none, NaN not tested); the
            group's `share` of the rows, `usual_share` among the calibration rows, and `evidence_share`; the `alarm`.
        """
        bets, missed, n_groups = self._sides[0], self._missed(), self._n_groups
        band = coverage_band(missed, bets.rows, self.error_rate)
        with np.errstate(over="ignore"):
            low, high, share = np.where(self._tested(), np.exp(self._log_evidence()), np.nan)
        total, known = max(self._n_calibration, 1), int(self._groups["n"].sum())
        kinds = {*self._compared[bets.tested[:-2, 0]]}  # all groups that are tested are compared with the same
        raised = [[_KINDS[alarm["kind"]] for alarm in self._raised if alarm["place"] == k] for k in range(n_groups + 2)]
        table = pd.DataFrame(
            {
                "group": [*map(str, range(n_groups)), "-1", "all"],
                "rule": [*self.model.descriptions_["rule"], "no known group", "all groups that are tested"],
                "n": bets.rows,
                "covered": bets.rows - missed,
                "coverage": np.where(bets.rows > 0, 1 - missed / np.maximum(bets.rows, 1), np.nan),
                "promised": [*self._groups["promised"], 0.0, self._promised(n_groups + 1)],
                "compared_with": [*self._compared, NOTHING, kinds.pop() if len(kinds) == 1 else NOTHING],
                "band_lower": band[:, 0],
                "band_upper": band[:, 1],
                "evidence_too_low": low,
                "evidence_too_high": high,
                "share": [*(bets.rows[:-1] / max(self.n_rows, 1)), np.nan],
                "usual_share": [*(self._groups["n"] / total), (self._n_calibration - known) / total, np.nan],
                "evidence_share": share,
                "alarm": ["; ".join(kinds) for kinds in raised],
            }
        )
        is_shown = [*[True] * n_groups, bool(bets.rows[n_groups]), n_groups > 1]
        return table[is_shown].reset_index(drop=True)

    def history(self) -> pd.DataFrame:
        """Return how coverage went, in each group that had rows: after up to 200 batches, with its band.

        Returns
        -------
        DataFrame
            `row` of the stream, `group` ("all": all groups that are tested), its rows so far `n`, their `coverage`, and
            `band_lower` and `band_upper` as in `status`.
        """
        counts = np.array(self._history, dtype=np.intp).reshape(-1, 2, self._n_groups + 2)
        point, place = np.nonzero(counts[:, 0])
        rows, missed = counts[point, 0, place], counts[point, 1, place]
        band = coverage_band(missed, rows, self.error_rate)
        names = np.array([*map(str, range(self._n_groups)), "-1", "all"], dtype=object)
        table = pd.DataFrame({"row": counts[:, 0, :-1].sum(axis=1)[point], "group": names[place], "n": rows})
        return table.assign(coverage=1 - missed / rows, band_lower=band[:, 0], band_upper=band[:, 1])

    def __repr__(self) -> str:
        n = len(self._raised)
        return f"<Monitor: {self.n_rows:,} rows, {n} alarm{'' if n == 1 else 's'}>"

    # -- Files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was counted to a JSON file, whole or not at all; the model is not in it.

        A monitor of 50 groups has less than 1 MB. Ids, if you give them, are 11 characters each.
        """
        state = {
            "icqr_monitor": _VERSION,
            "model": self._fingerprint,
            "coverage": self.coverage,
            "error_rate": self.error_rate,
            "n_rows": self.n_rows,
            "bets": [{name: getattr(bets, name).tolist() for name in Bets.arrays} for bets in self._all_bets()],
            "peak": self._peak.tolist(),
            "alarms": self._raised,
            "history": [self._n_batches, self._every, self._history],
            "ids": base64.b64encode(np.sort(np.array([*self._ids], dtype="<u8")).tobytes()).decode(),
        }
        with replacing(path) as part:
            part.write_text(json.dumps(state, allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: IntervalRegressor) -> Self:
        """Return the monitor that a file holds, to go on with; the model must be the one that it watched."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            if state["icqr_monitor"] != _VERSION:
                raise ValueError(f"it has version {state['icqr_monitor']}, and this icqr reads version {_VERSION}")
            monitor = cls(model, float(state["coverage"]), float(state["error_rate"]))
            if state["model"] != monitor._fingerprint:
                raise _AnotherModelError
            monitor._restore(state)
        except _AnotherModelError:
            raise ValueError(
                f"{path} watches another model, or this one before it was calibrated again; give that model, or begin "
                "a new monitor in another file"
            ) from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"{path} is not a file of a monitor, or is damaged: {error}") from error
        return monitor

    def _restore(self, state: dict[str, Any]) -> None:
        for bets, saved in zip(self._all_bets(), state["bets"], strict=True):
            for name in Bets.arrays:
                own = getattr(bets, name)
                values = np.array(saved[name], dtype=own.dtype)
                if values.shape != own.shape:
                    raise ValueError(f"{name} has shape {values.shape}, and {own.shape} is needed")
                if np.isnan(values).any():
                    raise ValueError(f"{name} is not a number everywhere")
                setattr(bets, name, values)
        self.n_rows = int(state["n_rows"])
        self._peak = np.array(state["peak"], dtype=np.float64).reshape(self._peak.shape)
        self._raised = [{**alarm} for alarm in state["alarms"]]
        self._n_batches, self._every, self._history = state["history"]
        self._ids = {*np.frombuffer(base64.b64decode(state["ids"], validate=True), dtype="<u8").tolist()}

    def _all_bets(self) -> list[Bets]:
        return [*self._sides, self._shares]


class _AnotherModelError(Exception):
    """The file is of another model."""


def _fingerprint(calibration: Calibration, groups: pd.DataFrame) -> str:
    """Return a hash of the calibration scores, and of what they promise at the coverage watched."""
    digest = hashlib.sha256(repr(calibration.conformity).encode())
    for scores in calibration.scores:
        digest.update(np.ascontiguousarray(scores, dtype="<f8").tobytes())
    digest.update(groups[["n", "rank"]].to_numpy(dtype="<i8").tobytes())
    digest.update(groups["promised"].to_numpy(dtype="<f8").tobytes())
    return digest.hexdigest()[:32]


def _without_ties(calibration: Calibration, rank: IntArray) -> NDArray[np.bool_]:
    """Return in which groups one score alone is the offset. Where only some scores are kept, that is not known."""
    if type(calibration) is not Calibration:
        return np.zeros(len(rank), dtype=np.bool_)
    is_alone = []
    for scores, place in zip(calibration.scores[:-1], rank.tolist(), strict=True):
        is_small = not 1 <= place <= len(scores)
        is_alone.append(not is_small and bool(((scores == scores[place - 1]).sum(axis=0) == 1).all()))
    return np.array(is_alone, dtype=np.bool_)


def _odds(log_evidence: float) -> str:
    """Return evidence as a number that can be read: 640, 3.1e12."""
    return f"{math.exp(log_evidence):,.0f}" if log_evidence < math.log(1e6) else f"10^{log_evidence / math.log(10):.0f}"
