"""What the library says, in the words of the command: its options instead of Python's parameters and classes."""

from __future__ import annotations

import re

#: What a warning or an error of the library may say, as a regular expression, and what the command says instead.
_REWORDED = [
    # Calibration rows: too few, in a group or in all, or the training rows.
    (r"small_groups='infinite' keeps", "icqr fit --small-groups infinite keeps"),
    (r"pass small_groups='pooled' or 'infinite'", "fit with --small-groups pooled or --small-groups infinite"),
    (r"got n_samples=(\d+)", r"got \1"),
    (r"calibration_size=\S+ of n_samples=(\d+) rows must .*", r"\1 rows are too few to train and to calibrate with"),
    (
        r"give X_calibration rows that the model has not seen, or leave them out: fit then sets some aside",
        "give --calibration a file of other rows, or leave it out: some are then set aside",
    ),
    (r"^order (must leave .*); give values .*", r"--order-by \1; take a column that tells the rows apart"),
    (r"^order must", "--order-by must"),
    # The target.
    (r"^y must lie between y_min=(\S+) and y_max=(\S+);", r"the target must lie between \1 and \2 (--y-min, --y-max);"),
    (r"^y must be finite; (.*) are NaN or infinity", r"the target must be finite; \1 are not"),
    (r"Drop these rows: a missing target can neither train nor calibrate", "Take them out of the file"),
    # A model that predicts the same for all rows, columns that leak the target, text that says little.
    (r"though y varies", "though the target varies"),
    (r"\by is (above|below|\S+ in)", r"the target is \1"),
    (r"\babout y\b", "about the target"),
    (r"y's mean absolute deviation", "the target's mean absolute deviation"),
    (r"Try AutoICQR, (.*), or another quantile model\.", r"Try --method auto, \1, or another --model."),
    (r"or another estimator\.", "or another --model."),
    (r" \(predict_quantiles shows it\); then try another", "; then try another --model"),
    (r"Drop what is not known", "Leave out with --ignore what is not known"),
    (r"Drop it, or turn it into", "Leave it out with --ignore, or turn it into"),
    (r"\d+% of its values read as numbers: pd\.to_numeric.*", "Most of its values are numbers, as a note says."),
    (r"pd\.to_datetime makes it dates", "--date-format says how they are written"),
    (r"partition='auto' allows", "AutoICQR allows"),
    (r"importance=PermutationImportance\(.*\) measures", "--method icqr measures"),
    (r"; width_summary describes the finite ones", ""),
    # Models that give one coverage, or have no calibration, or are not whole.
    (r"; use CQR or ICQR, which take the same estimator", "; fit --method cqr or --method icqr with the same --model"),
    (
        r"the levels it was fitted for, coverage=(\S+); got coverage=(\S+)\. Fit QR.*",
        r"the coverage it was fitted for, \1, and not \2. Fit it with --coverage \2, or fit --method cqr or --method "
        "icqr, which give any coverage",
    ),
    (r"; calibrate again, with coverages=.*", "; after icqr recalibrate it gives any coverage"),
    (r": give it as load\(path, estimator=.*", "; load it in Python, and save it with the model"),
    (r": give the key that it was saved with, as load\(path, key=…\)", "; it can be loaded in Python, with its key"),
    (r"with Dask collections: (.*), or give fit a table", r"with --engine dask: \1, or --engine local"),
    # What is left of parameters.
    (r"\bcoverage=([\d.]+)", r"a coverage of \1"),
    (r"\bcalibration='(\w+)'", r"--calibration \1"),
]


def in_options(text: str) -> str:
    """Return a message of the library as the command says it.

    Examples
    --------
    >>> in_options("coverage=0.9 needs at least 9 calibration rows for a finite interval, got n_samples=3.")
    'a coverage of 0.9 needs at least 9 calibration rows for a finite interval, got 3.'
    """
    for said, reworded in _REWORDED:
        text = re.sub(said, reworded, text)
    return text
