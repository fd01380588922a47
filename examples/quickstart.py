"""Compare Naive, QR, CQR, ICQR and AutoICQR on built-in data whose spread grows along one feature."""

import pandas as pd
from sklearn.model_selection import train_test_split

from icqr import CQR, ICQR, QR, AutoICQR, Naive
from icqr.datasets import make_heteroscedastic
from icqr.metrics import coverage_score, interval_score, mean_width

COVERAGE = 0.9


def main() -> None:
    X, y = make_heteroscedastic(8000, random_state=0, return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    easy, hard = (X_test["x1"] < 0.2).to_numpy(), (X_test["x1"] > 0.8).to_numpy()

    rows = []
    for method in (Naive, QR, CQR, ICQR, AutoICQR):
        model = method(coverage=COVERAGE, random_state=0).fit(X_train, y_train)
        intervals = model.predict_interval(X_test)
        rows.append(
            {
                "method": method.__name__,
                "coverage": coverage_score(y_test, intervals),
                "easy rows": coverage_score(y_test[easy], intervals[easy]),
                "hard rows": coverage_score(y_test[hard], intervals[hard]),
                "mean width": mean_width(y_test, intervals),
                "interval score": interval_score(y_test, intervals, coverage=COVERAGE),
            }
        )
    print(f"{len(X_train)} rows to fit, {len(X_test)} to test; wanted coverage {COVERAGE}.")
    print("Easy rows have x1 < 0.2 (little noise), hard rows x1 > 0.8 (much noise).\n")
    print(pd.DataFrame(rows).round(3).to_string(index=False))
    print("\nThe groups that AutoICQR chose:\n")
    columns = ["group", "n", "offset_lower", "promised", "guarantee", "rule"]
    print(model.groups_[columns].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
