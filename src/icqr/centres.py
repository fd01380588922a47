"""Centres: models of the mean, each fitted without one fold of the rows in turn, and mixed by their errors there."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg import block_diag
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_method_params, _check_sample_weight, check_is_fitted, validate_data

from icqr._libraries import Encoder, TargetScale, ask, find_library, one_thread
from icqr._messages import counted
from icqr._tables import FloatArray, IntArray, Table, as_table, blocks, draw_rows, take_rows
from icqr.quantiles import MEDIAN, PointModel, QuantileModel, bare, cut_folds, fit_clone

#: Weights of a mixture are learned from at most this many rows.
MOST_WEIGHED = 20_000
#: A model with a smaller weight than this, relative to the largest, is left out of a mixture.
LEAST_WEIGHT = 0.05
#: The ridge's penalties to choose from.
PENALTIES = np.logspace(-7, 4, 34)
#: Rounds in which the columns' weights in a distance are learned.
ROUNDS = 3
#: Rows are predicted in blocks of this size, which stay in the processor's cache; a few rows in a smaller one.
BLOCK, FEW = 2048, 64


# -- Cross-fitting ---------------------------------------------------------------------------------------------------


class CrossFitted(BaseEstimator):
    """A model of the mean or the median, fitted without each fold of the rows in turn, and once on all rows.

    The folds' models predict the training rows, each those that it has not seen. New rows are predicted by the one that
    knows all rows: it is about as good as the mean of the folds' models, and takes a fraction of their time.

    Parameters
    ----------
    model : PointModel or QuantileModel
        A `QuantileModel` predicts the median.
    n_folds : int, default=3
        Number of folds. With more, training rows are predicted more like new rows, and the fit takes longer.

    Attributes
    ----------
    model_ : PointModel or QuantileModel
        Knows how rows and y are encoded.
    fitted_ : estimator
        The model that was fitted on all rows.
    out_of_fold_ : array of shape (n,)
        Each training row's prediction by the model that was fitted without it.

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> centre = CrossFitted(PointModel()).fit(X, X.ravel(), seed=0)
    >>> centre.predict(X[:2]).shape, centre.out_of_fold_.shape
    ((2,), (200,))
    """

    def __init__(self, model: PointModel | QuantileModel, n_folds: int = 3) -> None:
        self.model = model
        self.n_folds = n_folds

    def fit(
        self,
        X: Table,
        y: FloatArray,
        seed: int,
        fit_params: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Fit a model on all rows, and one without each fold; fit parameters with a value per row are split too."""
        folds = cut_folds(len(y), self.n_folds, seed, (fit_params or {}).get("sample_weight"))
        everything = np.arange(len(y))
        kept = [np.setdiff1d(everything, fold, assume_unique=True) for fold in folds]
        encoders, (self.fitted_, *models) = self._fit_on([everything, *kept], X, y, fit_params or {}, n_jobs)
        self.out_of_fold_ = np.empty(len(y))
        for encoder, model, fold in zip(encoders[1:], models, folds, strict=True):
            self.out_of_fold_[fold] = self._predict_with(model, encoder.encode_new(take_rows(X, fold)))
        return self

    def _fit_on(
        self, parts: Sequence[IntArray], X: Table, y: FloatArray, fit_params: Mapping[str, Any], n_jobs: int | None
    ) -> tuple[list[Encoder], list[Any]]:
        """Return for each part of the rows how they are encoded, and a model fitted to them; the first has all rows."""
        self.model_: PointModel | QuantileModel = clone(self.model)
        if isinstance(self.model_, QuantileModel):
            (settings,) = self.model_.prepare(X, y, (MEDIAN,), fit_params)
        else:
            settings = self.model_.prepare(X, y, fit_params)
        estimator = bare(self.model_.estimator)

        # Where an encoding depends on the target, each part learns its own. Otherwise all parts share it.
        encoder, target = self.model_.encoder_, self.model_.scale_.scaled(y)
        encoders = [copy.copy(encoder) if encoder.means else encoder for _ in parts]
        shared = None if encoder.means else encoder.encode(X)
        self.model_.encoder_ = encoders[0]

        def task(part: IntArray, own: Encoder) -> Any:
            params = _check_method_params(X, dict(fit_params), indices=part)
            if shared is None:
                rows = own.encode_training(take_rows(X, part), y[part], params.get("sample_weight"))
            else:
                rows = take_rows(shared, part)
            return delayed(fit_clone)(estimator, settings, rows, target[part], own.fit_params(estimator, params))

        models = Parallel(n_jobs=n_jobs)(task(part, own) for part, own in zip(parts, encoders, strict=True))
        return encoders, list(models)

    def predict(self, X: Table) -> FloatArray:
        """Predict new rows."""
        X = as_table(X)
        return np.concatenate(
            [self.predict_encoded(self.model_.encoder_.encode_new(take_rows(X, block))) for block in blocks(len(X))]
        )

    def predict_encoded(self, rows: Any) -> FloatArray:
        """Predict encoded rows."""
        return self._predict_with(self.fitted_, rows)

    def _predict_with(self, model: Any, rows: Any) -> FloatArray:
        if isinstance(self.model_, QuantileModel):
            predicted = ask(model, rows, (MEDIAN,), self.model_.level_parameter)
        else:
            predicted = find_library(model).predict(model, rows, ())
        values = np.asarray(predicted, dtype=np.float64).reshape(len(rows), -1)
        if values.shape[1] != 1 or not np.isfinite(values).all():
            raise ValueError(
                f"the model of the centre must predict one finite number per row, got shape {values.shape} from "
                f"{bare(self.model_.estimator)!r}"
            )
        return self.model_.scale_.unscaled(values[:, 0])


class FittedOnce(CrossFitted):
    """A model that needs no folds: it can report what it would have predicted for each training row without seeing it.

    Parameters
    ----------
    model : PointModel
        Its estimator has these predictions as `oob_prediction_` after fit, as scikit-learn's forests do.

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> FittedOnce(PointModel(SmoothRidge())).fit(X, X.ravel(), seed=0).out_of_fold_.shape
    (200,)
    """

    def __init__(self, model: PointModel) -> None:
        self.model = model

    def fit(
        self,
        X: Table,
        y: FloatArray,
        seed: int,
        fit_params: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Fit the model once, on all rows; it has a seed of its own."""
        scale = TargetScale.of(y)  # none of these models has a parameter in y's unit
        with warnings.catch_warnings():
            # The warning is about rows that every tree of a forest drew. They are filled in below.
            warnings.filterwarnings("ignore", "Some inputs do not have OOB scores", UserWarning)
            _, (self.fitted_,) = self._fit_on([np.arange(len(y))], X, scale.scaled(y), fit_params or {}, n_jobs=None)
        self.model_.scale_ = scale
        out_of_bag = vars(self.fitted_).pop("oob_prediction_")  # taken out, so that a file has them once
        if hasattr(self.fitted_, "estimators_samples_"):
            # A row that every tree drew has no prediction by trees without it. It gets the mean of the other rows'.
            known = np.ones(len(y), dtype=np.bool_)
            for drawn in self.fitted_.estimators_samples_:
                known &= np.bincount(drawn, minlength=len(y)) > 0
            if known.any():
                others = scale.scaled(y) if known.all() else out_of_bag[~known]
                out_of_bag[known] = others.mean()
        self.out_of_fold_ = scale.unscaled(out_of_bag)
        return self


class Mixture(BaseEstimator):
    """A mixture of cross-fitted models, with weights from rows that the models have not seen.

    Parameters
    ----------
    members : list of CrossFitted
        The models to mix.

    Attributes
    ----------
    members_ : list of CrossFitted
        The fitted models with a weight.
    weights_ : array
        Their weights, which sum to 1.
    out_of_fold_ : pair of arrays of shape (n,)
        What `predict` returns, for each training row by models that were fitted without it.

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> members = [CrossFitted(PointModel()), FittedOnce(PointModel(SmoothRidge(n_landmarks=0)))]
    >>> Mixture(members).fit(X, 2 * X.ravel(), seed=0).weights_  # the straight line is enough
    array([1.])
    """

    def __init__(self, members: Sequence[CrossFitted]) -> None:
        self.members = members

    def fit(
        self,
        X: Table,
        y: FloatArray,
        seed: int,
        fit_params: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Fit every member, and weigh them."""
        members = [clone(each).fit(X, y, seed, fit_params, n_jobs) for each in counted(self.members, "model")]
        predictions = np.column_stack([member.out_of_fold_ for member in members])
        weights = mixing_weights(predictions, y, (fit_params or {}).get("sample_weight"))
        weights[weights < LEAST_WEIGHT * weights.max()] = 0.0
        used = np.flatnonzero(weights)
        self.members_ = [members[j] for j in used]
        self.weights_ = weights[used] / weights.sum()
        self.out_of_fold_ = self._mix([predictions[:, j] for j in used])
        return self

    def predict(self, X: Table) -> tuple[FloatArray, FloatArray]:
        """Return the mixed prediction of new rows, and the models' mean distance from it."""
        return self._mix([member.predict(X) for member in self.members_])

    def _mix(self, predictions: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        # Sums in a fixed order, not matrix products, whose last bits depend on how many rows there are.
        parts = list(zip(predictions, self.weights_, strict=True))
        centre = np.sum([weight * predicted for predicted, weight in parts], axis=0)
        distance = np.sum([weight * np.abs(predicted - centre) for predicted, weight in parts], axis=0)
        return np.asarray(centre), np.asarray(distance)


def mixing_weights(predictions: FloatArray, y: FloatArray, sample_weight: FloatArray | None = None) -> FloatArray:
    """Return weights of the columns, none negative and 1 in sum, with a small mean absolute error.

    Absolute errors, because with a heavy tail of y squared ones would be those of a few rows. They are minimised by
    squares weighted anew a few times. A row counts as much as its `sample_weight`.

    Examples
    --------
    >>> y = np.arange(5.0)
    >>> mixing_weights(np.column_stack([y + 1, y - 1]), y).round(3)
    array([0.5, 0.5])
    """
    n, n_members = predictions.shape
    if n_members == 1:
        return np.ones(1)
    rng = np.random.default_rng(0)
    if sample_weight is None:
        rows, shares = draw_rows(n, MOST_WEIGHED, rng), None
    else:
        counted = np.flatnonzero(sample_weight)
        rows = counted[draw_rows(len(counted), MOST_WEIGHED, rng)]
        shares = sample_weight[rows, None] / sample_weight[rows].mean()
    errors = predictions[rows] - y[rows, None]
    distances = np.abs(errors) if shares is None else np.abs(errors) * shares
    unit = distances.mean() or 1.0
    errors, weights = errors / unit, np.full(n_members, 1 / n_members)
    for _ in range(10):
        # Weights that sum to 1 give the error `errors @ weights`. A large last row makes them do so.
        row_weights = 1 / np.maximum(np.abs(errors @ weights), 0.01)
        weighted = errors * row_weights[:, None] if shares is None else errors * row_weights[:, None] * shares
        gram = weighted.T @ errors / len(rows)
        largest = np.trace(gram) or 1.0
        root = np.linalg.cholesky(gram + 1e-9 * largest * np.eye(n_members)).T
        penalty = 1e3 * np.sqrt(largest)
        weights, _ = nnls(np.vstack([root, np.full(n_members, penalty)]), np.append(np.zeros(n_members), penalty))
        weights = weights / weights.sum()
    return np.asarray(weights)


# -- A smooth model --------------------------------------------------------------------------------------------------


class SmoothRidge(RegressorMixin, BaseEstimator):
    """Ridge regression on the columns and on the nearness to some training rows: a smooth function of all columns.

    Trees cut straight lines and smooth functions into steps; here they are easy. Columns are standardised, missing
    values get the median. With d the distance from a row to a landmark row, its nearness is ``exp(-d)`` for one half of
    the landmarks and ``exp(-d²)`` for the other (the Nyström approximation of a Laplace and a Gaussian kernel): the
    first follows rough functions, the second smooth ones. The penalty is chosen by generalised cross-validation.

    A column counts in d in proportion to how much the function changes along it. This is learned in rounds: fit the
    function, measure its slopes, use them to scale the columns for the next fit (Radhakrishnan et al., Science 2024,
    "recursive feature machines").

    Parameters
    ----------
    n_landmarks : int, default=200
        Number of training rows to be near to; at most half of the rows. 0: a linear model.
    max_rows : int, default=3000
        Learn from at most this many rows, drawn at random; the columns' weights from a third of them.
    random_state : int, RandomState or None
        Seed for the rows and landmarks.

    Attributes
    ----------
    oob_prediction_ : array of shape (n,)
        Each training row's prediction by a fit without it, in closed form. (The penalty and the columns' weights are
        chosen with it.)

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = SmoothRidge(random_state=0).fit(X, np.sin(6 * X.ravel()))
    >>> bool(np.abs(model.predict(X) - np.sin(6 * X.ravel())).max() < 0.01)
    True
    """

    def __init__(
        self,
        n_landmarks: int = 200,
        max_rows: int = 3000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model."""
        with one_thread():
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", y_numeric=True)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        rows = rng.permutation(np.flatnonzero(weights))[: self.max_rows]
        known = ~np.isnan(X[rows]).all(axis=0)
        self.fill_ = np.zeros(X.shape[1])
        self.fill_[known] = np.nanmedian(X[rows][:, known], axis=0)
        filled = np.where(np.isnan(X[rows]), self.fill_, X[rows])
        self.mean_, spread = filled.mean(axis=0), filled.std(axis=0)
        self.spread_ = np.where(spread > 0, spread, 1.0)

        Z, target, weights = self._standardised(filled), np.asarray(y[rows], dtype=np.float64), weights[rows]
        n_columns = Z.shape[1]
        n_landmarks = min(self.n_landmarks, len(Z) // 2)
        self.landmarks_ = np.empty((0, n_columns))
        features, roots = Z, np.empty((0, 0))
        if n_landmarks:
            few = slice(max(self.max_rows // 3, 2))
            self.scales_ = _column_scales(Z[few], target[few], weights[few], min(n_landmarks, len(Z[few])) // 2)
            near = Z * self.scales_
            self.landmarks_ = near[:n_landmarks]
            n_sharp = n_landmarks // 2
            roots = block_diag(
                _inverse_root(_nearness(self.landmarks_[:n_sharp], self.landmarks_[:n_sharp], n_sharp)),
                _inverse_root(_nearness(self.landmarks_[n_sharp:], self.landmarks_[n_sharp:], 0)),
            )
            features = np.column_stack([Z, _nearness(near, self.landmarks_, n_sharp) @ roots])
        coefficients, self.intercept_, without = _ridge(features, target, weights)
        self.slopes_ = coefficients[:n_columns]
        # Multiplied into the coefficients once, not into the features of every new row.
        self.near_ = roots @ coefficients[n_columns:]

        self.oob_prediction_ = np.empty(len(y))
        self.oob_prediction_[rows] = without
        others = np.setdiff1d(np.arange(len(y)), rows)
        self.oob_prediction_[others] = self._predict(X[others])
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict new rows."""
        check_is_fitted(self)
        return self._predict(validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False))

    def _predict(self, X: FloatArray) -> FloatArray:
        predicted = np.empty(len(X))
        for start in range(0, len(X), BLOCK):
            Z = self._standardised(X[start : start + BLOCK])
            values = (Z * self.slopes_).sum(axis=1) + self.intercept_
            if len(self.landmarks_):
                # The last bits of a matrix product depend on its shape. With as many rows in all of them, a row's
                # prediction does not depend on the rows that it comes with.
                padded = np.zeros((BLOCK if len(Z) > FEW else FEW, Z.shape[1]))
                np.multiply(Z, self.scales_, out=padded[: len(Z)])
                nearness = _nearness(padded, self.landmarks_, len(self.landmarks_) // 2)[: len(Z)]
                nearness *= self.near_
                values += nearness.sum(axis=1)
            predicted[start : start + BLOCK] = values
        return predicted

    def _standardised(self, X: FloatArray) -> FloatArray:
        Z = (np.where(np.isnan(X), self.fill_, X) - self.mean_) / self.spread_
        # A row far out has no landmark near. It is moved to 4 standard deviations from the mean.
        # In one order in memory: sums of a row would depend on it.
        return np.ascontiguousarray(np.clip(Z, -4.0, 4.0) if self.n_landmarks else Z)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _nearness(rows: FloatArray, landmarks: FloatArray, n_sharp: int) -> FloatArray:
    """Return (rows, landmarks) exp(-distance) to the first `n_sharp` landmarks, exp(-distance²) to the others."""
    # Distances multiplied out, in one array: this is where the time goes.
    nearness = rows @ (landmarks.T * -2)
    nearness += (rows**2).sum(axis=1)[:, None]
    nearness += (landmarks**2).sum(axis=1)
    np.maximum(nearness, 0.0, out=nearness)
    sharp = nearness[:, :n_sharp]
    np.sqrt(sharp, out=sharp)
    return np.asarray(np.exp(np.negative(nearness, out=nearness), out=nearness))


def _inverse_root(kernel: FloatArray) -> FloatArray:
    """Return the root of the inverse kernel; with it, the ridge's penalty is on the smooth function itself."""
    values, vectors = np.linalg.eigh(kernel)
    kept = values > 1e-10 * values[-1:]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def _column_scales(Z: FloatArray, y: FloatArray, weights: FloatArray, n_landmarks: int) -> FloatArray:
    """Return what to multiply each column by, so that a distance of 1 is that of two rows drawn at random.

    Begin with all columns alike. Fit a smooth function; a column's next weight is the function's root mean square slope
    along it. Keep the weights of the round with the smallest leave-one-out error.
    """
    column_weights, best = np.ones(Z.shape[1]), (np.inf, np.ones(Z.shape[1]))
    for _ in range(ROUNDS):
        scaled = Z * column_weights
        scales = column_weights / (np.sqrt(2 * scaled.var(axis=0).sum()) or 1.0)
        rows = Z * scales
        landmarks = rows[:n_landmarks]
        roots, nearness = _inverse_root(_nearness(landmarks, landmarks, 0)), _nearness(rows, landmarks, 0)
        coefficients, _, without = _ridge(np.column_stack([Z, nearness @ roots]), y, weights)
        error = float(weights @ (y - without) ** 2)
        best = min(best, (error, scales), key=lambda pair: pair[0])
        # The derivative of exp(-|s z - l|²) along a column is -2 s (s z - l) times it.
        pulls = nearness * (roots @ coefficients[Z.shape[1] :])
        slopes = coefficients[: Z.shape[1]] - 2 * scales * (pulls.sum(axis=1)[:, None] * rows - pulls @ landmarks)
        column_weights = np.sqrt((slopes**2).mean(axis=0))
        column_weights = column_weights / (column_weights.max() or 1.0)
    return best[1]


def _ridge(features: FloatArray, y: FloatArray, weights: FloatArray) -> tuple[FloatArray, float, FloatArray]:
    """Return coefficients, intercept, and each row's prediction by a fit without it.

    The penalty has the smallest generalised cross-validation error.
    """
    total = weights.sum()
    mean, y_mean = weights @ features / total, float(weights @ y / total)
    # Rows times the roots of their weights: then all that follows is without weights.
    roots = np.sqrt(weights)
    rows, rest = features - mean, (y - y_mean) * roots
    rows *= roots[:, None]
    values, vectors = np.linalg.eigh(rows.T @ rows)
    values = np.maximum(values, 0.0)
    along = vectors.T @ (rows.T @ rest)

    n, best = int((weights > 0).sum()), (np.inf, PENALTIES[-1])
    for penalty in PENALTIES:
        shrunk = along / (values + penalty)
        error = max(rest @ rest - 2 * along @ shrunk + values @ shrunk**2, 0.0)
        left = n - 1 - (values / (values + penalty)).sum()
        # With fewer degrees of freedom left, the error says little, and is often 0 by chance.
        if left > 0.1 * n:
            best = min(best, (n * error / left**2, penalty))

    # A row's pull on its own prediction tells what the fit without it predicts.
    left_over, projected = values + best[1], rows @ vectors
    shrunk = along / left_over
    pull = weights / total + np.einsum("ij,ij,j->i", projected, projected, 1 / left_over)
    coefficients = vectors @ shrunk
    intercept = y_mean - float(mean @ coefficients)
    errors = y - (features @ coefficients + intercept)
    return np.asarray(coefficients), intercept, y - errors / np.maximum(1 - pull, 1e-9)
