"""The report's dict against model and audit, escaping, what is left out, and writing that leaves no half file."""

from __future__ import annotations

import copy
import json
import re
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from xgboost import XGBRegressor

from icqr import CQR, ICQR, AutoICQR, GroupPartition, KMeansPartition
from icqr.auditing import Audit, Comparison, audit, compare
from icqr.datasets import make_heteroscedastic
from icqr.reporting import report, summarize
from icqr.reporting.report_tables import tables_of

INF = float("inf")
HOSTILE = "<script>alert(1)</script>"
CATEGORIES = ['"><img src=x onerror=alert(2)>', "it's </script><script>alert(3)</script>"]
SMALL = HistGradientBoostingRegressor(max_iter=8, random_state=0)
IN_EACH_GROUP = "In each group at least the promised share of new rows is covered"
OVER_ALL_ROWS = "Over all rows together at least the promised share of new rows is covered"


@pytest.fixture(scope="module")
def audited(models: dict[str, Any], rows: tuple[Any, Any]) -> Audit:
    return audit(rows[1], models["ICQR"], rows[0], with_excess_risk=False)


@pytest.fixture(scope="module")
def auto() -> Any:
    X, y = make_heteroscedastic(1200, n_features=3, random_state=1, return_X_y=True)
    light = LGBMRegressor(n_estimators=15, n_jobs=1, random_state=0)
    return AutoICQR(light, coverage=0.8, random_state=2).fit(X, y)


@pytest.fixture(scope="module")
def methods(models: dict[str, Any], auto: Any) -> dict[str, Any]:
    return {**models, "Best <b>": auto}


@pytest.fixture(scope="module")
def comparison(methods: dict[str, Any], rows: tuple[Any, Any]) -> Comparison:
    return compare(rows[1], methods, rows[0], with_excess_risk=False)


@pytest.fixture(scope="module")
def written_comparison(
    comparison: Comparison, methods: dict[str, Any], rows: tuple[Any, Any], tmp_path_factory: Any
) -> tuple[dict[str, Any], str]:
    """The summary of five models and their rows, and its page."""
    folder = tmp_path_factory.mktemp("page")
    about, seconds = {"file": "a <b>.csv", "rows": 1500}, dict.fromkeys(methods, 1.0) | {"Best <b>": 12.25}
    options: dict[str, Any] = {"about": about, "seconds": seconds, "json_path": folder / "summary.json"}
    page = written(folder, comparison, *rows[::-1], methods=methods, **options)
    return json.loads((folder / "summary.json").read_text(encoding="utf-8")), page


@pytest.fixture(scope="module")
def compared(written_comparison: tuple[dict[str, Any], str]) -> dict[str, Any]:
    return written_comparison[0]


@pytest.fixture(scope="module")
def page(written_comparison: tuple[dict[str, Any], str]) -> str:
    return written_comparison[1]


class Page(HTMLParser):
    """Collects tags, attributes and identifiers of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def written(folder: Path, subject: Any, *rows: Any, **options: Any) -> str:
    return report(subject, folder / "report.html", *rows, **options).read_text(encoding="utf-8")


# -- The dict --------------------------------------------------------------------------------------------


def test_the_summary_is_what_model_and_audit_say(models: dict[str, Any], rows: tuple[Any, Any], audited: Audit) -> None:
    model, (X, y) = models["ICQR"], rows
    summary = summarize(audited, y, X, methods=model)
    assert summary["title"] == "Prediction intervals for y"
    assert summary["promised"] == model.coverage
    assert summary["audits"] == {"ICQR": audited.to_dict()}
    (method,) = summary["methods"]
    assert method["coverage"] == audited.numbers["coverage"]
    assert method["undercovers"] == (audited.regions["verdict"] == "undercovers").sum()
    assert [entry["offset_lower"] for entry in summary["groups"]] == model.groups_["offset_lower"].tolist()
    assert [entry["rule"] for entry in summary["groups"]] == model.groups_["rule"].tolist()
    assert [entry["share"] for entry in summary["importance"]] == model.importances_["share"].tolist()
    assert summary["choice_of_k"]["k"] == 3
    assert "the number that was asked for" in summary["choice_of_k"]["sentence"]
    assert summary["computed"]["data"] == {"target": "y", "columns": 3, "rows checked": 600}
    (origin,) = summary["computed"]["models"]
    assert origin["training rows"] + origin["calibration rows"] == 900
    assert origin["guarantee"].startswith(IN_EACH_GROUP)
    assert origin["seed"] == "0"
    assert {"icqr", "python", "scikit-learn"} <= summary["computed"]["versions"].keys()


def test_coverage_by_group_is_that_of_the_models_groups(
    methods: dict[str, Any], rows: tuple[Any, Any], compared: dict[str, Any]
) -> None:
    (X, y), groups, main = rows, compared["coverage_by_group"], methods[compared["in_detail"]]
    assert [entry["group"] for entry in groups] == list(range(main.n_groups_))
    label = main.assign(X)
    for entry in groups:
        inside = label == entry["group"]
        assert entry["n"] == inside.sum()
        assert list(entry["methods"]) == list(methods)
        for name, measured in entry["methods"].items():
            low, high = methods[name].predict_interval(X)[inside].T
            assert measured["coverage"] == pytest.approx(np.mean((low <= y[inside]) & (y[inside] <= high)))
            assert measured["mean_width"] == pytest.approx(np.mean(high - low))


def test_the_intervals_of_all_methods_in_a_group_are_as_sure_as_each_other(compared: dict[str, Any]) -> None:
    main = compared["in_detail"]
    regions = compared["audits"][main]["regions"]
    (sure,) = {region["confidence"] for region in regions if region["kind"] == "model group"}
    assert sure > 0.95  # of each by itself, so that all together are 95 % sure
    for entry in compared["coverage_by_group"]:
        for measured in entry["methods"].values():
            hits, n = round(measured["coverage"] * entry["n"]), entry["n"]
            low = stats.beta.ppf((1 - sure) / 2, hits, n - hits + 1) if hits else 0.0
            assert measured["coverage_lower"] == pytest.approx(low, abs=0.001)  # judged ones are rounded outwards


def test_a_comparison_says_who_falls_short(methods: dict[str, Any], compared: dict[str, Any]) -> None:
    summary = compared
    sentence = summary["verdict"]["sentence"]
    (looked,) = {entry["regions"] for entry in summary["methods"]}  # all are judged in the same
    assert f"of the {looked} regions looked at, these fall short: " in sentence
    for entry in summary["methods"]:
        assert f"{entry['undercovers'] or 'none'} with {entry['method']}" in sentence
    # One number per method, the promise, and the number of regions.
    assert len(re.findall(r"\d+|none", sentence)) == len(methods) + 2
    for entry in summary["methods"]:
        by_group = [group["methods"][entry["method"]]["coverage"] for group in summary["coverage_by_group"]]
        assert (entry["lowest_group"], entry["highest_group"]) == (min(by_group), max(by_group))
    assert {entry["method"] for entry in summary["differences"]} == {"QR", "CQR", "ICQR", "Best <b>"}
    # The status is that of the method that is shown in detail, which the answer is about.
    (main,) = (entry for entry in summary["methods"] if entry["method"] == summary["in_detail"])
    statuses = {"undercovers": "broken", "overcovers": "cautious", "holds": "holds"}
    statuses |= {"within calibration luck": "luck", "too few rows to tell": "unknown"}
    falls_short = main["verdict"] != "undercovers" and main["undercovers"]
    assert summary["verdict"]["status"] == ("partly" if falls_short else statuses[main["verdict"]])
    assert len(summary["findings"]["comparison"]) == 4


def test_a_comparison_of_few_rows_looks_at_no_regions(models: dict[str, Any], rows: tuple[Any, Any]) -> None:
    X, y = rows
    sentence = summarize({name: models[name] for name in ("QR", "CQR")}, y[:12], X[:12])["verdict"]["sentence"]
    assert sentence.endswith("; no regions were looked at.")


def test_only_models_are_said_not_to_have_seen_the_rows(models: dict[str, Any], rows: tuple[Any, Any]) -> None:
    X, y = rows
    ending = " rows that no model has seen"
    assert tables_of(summarize(models["CQR"], y, X))["methods"].caption.endswith(ending)
    assert not tables_of(summarize(audit(y, np.c_[y - 1, y + 1], coverage=0.9)))["methods"].caption.endswith(ending)


def test_groups_are_in_the_order_of_their_numbers_whatever_the_digits(tmp_path: Path) -> None:
    y = np.zeros(400)
    audited = audit(y, np.c_[y - 1, y + 1], groups=np.array(["10²", "5²"] * 200), coverage=0.9)
    assert "group = 10²" in written(tmp_path, audited)
    assert [entry["name"] for entry in summarize(audited)["coverage_by_group"]] == ["group = 5²", "group = 10²"]


def test_parameters_of_xgboost_that_are_not_set_are_not_listed() -> None:
    X, y = make_heteroscedastic(90, n_features=2, random_state=0, return_X_y=True)
    model = CQR(XGBRegressor(n_estimators=3, max_depth=2, random_state=0), random_state=0).fit(X, y)
    (shown,) = summarize(model)["computed"]["models"]
    assert "=None" not in shown["model"]
    assert "max_depth=2" in shown["model"]


def test_given_groups_follow_the_models_own() -> None:
    X, y = make_heteroscedastic(900, n_features=2, random_state=0, return_X_y=True)
    model = ICQR(SMALL, coverage=0.8, partition=KMeansPartition(choose=2), random_state=0).fit(X, y)
    labels = np.arange(900) % 12
    groups = summarize(audit(y, model, X, groups=labels, with_excess_risk=False))["coverage_by_group"]
    assert [entry["name"] for entry in groups[:4]] == ["group 0", "group 1", "group = 0", "group = 1"]
    assert [entry["group"] for entry in groups] == list(range(14))
    assert groups[-1]["name"] == "group = 11"  # as numbers are read, not as text


def test_groups_that_were_compared_have_every_method(rows: tuple[Any, Any]) -> None:
    y = rows[1]
    methods = {"a": np.full((600, 2), [-1, 1]), "b": np.full((600, 2), [-9, 9])}
    compared = compare(y, methods, rows[0], coverage=0.8, groups=np.arange(600) % 2, with_excess_risk=False)
    groups = summarize(compared)["coverage_by_group"]
    assert [list(entry["methods"]) for entry in groups] == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize(
    ("covered", "promised", "status"),
    [(450, 0.9, "holds"), (350, 0.9, "broken"), (500, 0.9, "cautious"), (46, 0.9, "unknown")],
)
def test_the_verdict(covered: int, promised: float, status: str) -> None:
    n = 50 if covered < 50 else 500
    y = np.random.default_rng(0).permutation(np.repeat([0.0, 5.0], [covered, n - covered]))
    verdict = summarize(audit(y, np.full((n, 2), [-1, 1]), coverage=promised))["verdict"]
    assert verdict["status"] == status
    assert f"{100 * covered / n:.1f} % of {n} rows are covered, 90 % promised" in verdict["sentence"]


def test_a_region_that_falls_short_is_named() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"hr": rng.integers(0, 24, 6000)})
    y = rng.normal(size=6000) * np.where(X["hr"] <= 2, 1.6, 0.9)
    summary = summarize(audit(y, np.full((6000, 2), [-1.645, 1.645]), X, coverage=0.9, with_excess_risk=False))
    assert summary["verdict"]["status"] == "partly"
    assert re.search(r"fall short, rows with hr ≤ 2 most \(\d\d\.\d %\)\.$", summary["verdict"]["sentence"])


def test_what_a_model_of_small_groups_does_not_promise_is_said() -> None:
    X = pd.DataFrame({"a": np.linspace(0, 1, 300), "site": ["x"] * 295 + ["y"] * 5})
    with pytest.warns(UserWarning, match="pooled"):
        model = ICQR(SMALL, partition=GroupPartition("site"), random_state=0).fit(X, X["a"])
    (origin,) = summarize(model)["computed"]["models"]
    assert "in groups too small for a promise" in origin["exception"]
    assert [row[4].text for row in tables_of(summarize(model))["groups"].rows] == ["–", "none (pooled offset)"]
    with pytest.warns(UserWarning, match="pooled"):
        groups = summarize(model, X["a"], X)["coverage_by_group"]
    assert [(entry["group"], entry["name"]) for entry in groups] == [(0, "site = x"), (1, "site = y")]


# -- AutoICQR: its bounds and groups --------------------------------------------------------------------


@pytest.fixture(scope="module")
def checked(auto: Any, rows: tuple[Any, Any], tmp_path_factory: Any) -> tuple[dict[str, Any], str]:
    """Its summary, and its page."""
    folder = tmp_path_factory.mktemp("auto")
    audited = audit(rows[1], auto, rows[0], with_excess_risk=False)
    page = written(folder, audited, *rows[::-1], methods=auto, json_path=folder / "summary.json")
    return json.loads((folder / "summary.json").read_text(encoding="utf-8")), page


def sections(page: str) -> dict[str, str]:
    """Return the parts of a page by name: those at the top, and those that are folded."""
    _, *parts = re.split(r'<(?:section|details class="part") id="', page.partition("<footer")[0])
    return {name: text for name, _, text in (part.partition('"') for part in parts)}


def heads(page: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]*)</h2>", page)


def test_what_was_tried_and_chosen_is_shown(auto: Any, checked: tuple[dict[str, Any], str]) -> None:
    summary, page = checked
    (choice,) = summary["selection"]
    assert choice["candidates"] == auto.selection_.to_dict("records")
    tried, n_groups = len(auto.selection_), auto.n_groups_
    assert n_groups > 1  # of one group the page would have less to say
    assert choice["sentence"] == (
        f"Of {tried} partitions that were tried on the training rows, {n_groups} groups by predicted difficulty were "
        "chosen."
    )
    table = tables_of(summary)["selection-0"]
    assert [row[0].text for row in table.rows] == auto.selection_["partition"].tolist()
    assert [row[2].text == "chosen" for row in table.rows] == auto.selection_["chosen"].tolist()
    part = sections(page)["selection"]
    assert choice["sentence"] in part
    assert part.count("<tr") == tried + 1
    assert "the one with the most groups is taken" in part


def test_a_model_in_two_stages_claims_no_more_than_is_true(auto: Any, checked: tuple[dict[str, Any], str]) -> None:
    summary, page = checked
    assert summary["importance_sentence"] == (
        "The columns that move the centre most; groups do not follow them. What a column does to the spread alone is "
        "not counted."
    )
    (origin,) = summary["computed"]["models"]
    shares = re.fullmatch(
        r"in two stages: a centre \((.*)\), then the quantiles of the residuals of training rows that its models were "
        "fitted without, a fold at a time",
        origin["bounds"],
    )
    centre = auto.model_.models_[0].centre_
    names = np.array([type(member.model_.estimator).__name__ for member in centre.members_])
    expected = [f"{name} {100 * centre.weights_[names == name].sum():.0f} %" for name in dict.fromkeys(names)]
    assert shares is not None
    assert shares[1] == ", ".join(expected)
    assert origin["guarantee"].startswith(IN_EACH_GROUP)
    assert "choice_of_k" not in summary
    assert summary["importance_sentence"] in sections(page)["importance"]
    assert "groups follow them" not in page


@pytest.mark.filterwarnings("ignore:(The quantile model predicts the same|One group only):UserWarning")
def test_importances_that_are_all_zero_are_said_not_drawn(tmp_path: Path, rows: tuple[Any, Any]) -> None:
    X, y = make_heteroscedastic(400, n_features=3, random_state=0, return_X_y=True)
    constant = HistGradientBoostingRegressor(max_iter=1, min_samples_leaf=300)
    model = ICQR(constant, coverage=0.8, random_state=0).fit(X, y)
    summary = summarize(model, *rows[::-1])
    assert summary["importance_sentence"] == (
        "All importances are zero: permuting a column changes no prediction's error. So groups don't follow them."
    )
    assert {entry["share"] for entry in summary["importance"]} == {0.0}
    assert "importance" not in tables_of(summary)
    assert summary["computed"]["models"][0]["constant quantiles"] == model.collapse_
    page = written(tmp_path, model, *rows[::-1])
    part = sections(page)["importance"]
    assert summary["importance_sentence"] in part.replace("&#39;", "'")
    assert "<svg" not in part
    assert "<table" not in part


def test_one_group_promises_over_all_rows_together(tmp_path: Path) -> None:
    X, y = make_heteroscedastic(300, n_features=2, random_state=0, return_X_y=True)
    model = ICQR(SMALL, partition="auto", random_state=0).fit(X, y)
    summary = summarize(model)
    assert summary["selection"][0]["sentence"].startswith("All rows are one group: no other partition")
    assert summary["computed"]["models"][0]["guarantee"].startswith(OVER_ALL_ROWS)
    assert "<table" not in sections(written(tmp_path, model))["selection"]


def test_clusters_that_were_chosen_are_explained_as_clusters(auto: Any, models: dict[str, Any]) -> None:
    """As if K-means had been chosen: the groups then follow the importances, and were merged up to 100 rows each."""
    chosen = copy.copy(auto)
    chosen.selection_ = auto.selection_.assign(chosen=auto.selection_["partition"] == "K-means")
    chosen.partition_ = copy.copy(models["ICQR"].partition_)
    chosen.partition_.k_ = 4
    chosen.partition_.path_ = pd.DataFrame({"k": [3, 4], "explained_variance": [0.8, 0.95]})
    summary = summarize(chosen)
    sentence = f" {chosen.n_groups_} K-means clusters were chosen."
    assert summary["selection"][0]["sentence"].endswith(sentence)
    assert summary["importance_sentence"].startswith("The columns that move the centre most; groups follow them. What")
    sentence = summary["choice_of_k"]["sentence"]
    assert sentence.endswith("Clusters with fewer than about 100 calibration rows were merged, which leaves 3 groups.")


def test_a_row_of_its_own_in_a_comparison(
    methods: dict[str, Any], comparison: Comparison, compared: dict[str, Any], page: str
) -> None:
    summary = compared
    assert summary["in_detail"] == comparison.best == "Best <b>"
    assert summary["answer"] == comparison.answer
    assert summary["seconds"]["Best <b>"] == 12.25
    (remark,) = summary["remarks"]
    assert remark.startswith(
        "Best <b> fits bounds of its own in two stages (a centre, then the quantiles of the residuals)"
    )
    assert remark.endswith("groups by predicted difficulty: coverage is promised in each group.")
    shown = sections(page)
    assert "Best &lt;b&gt; fits bounds of its own" in shown["methods"]
    assert ">12.25<" in shown["methods"]
    assert "<p>Best &lt;b&gt;: Of " in shown["selection"]
    assert "the groups are those of Best &lt;b&gt;" in shown["coverage"]
    assert "Methods with other groups, or with none, promise nothing for these." in shown["coverage"]
    assert "<b>" not in page.partition("<script")[0]
    table = tables_of(summary)["coverage_by_group"]
    rest = ["95 % interval", "Verdict on Best <b>", "Mean width", "Rule"]
    assert [column.label for column in table.columns] == ["Group", "Rows", *methods, *rest]
    others = tables_of(summary)["coverage_of_others"]
    assert [column.label for column in others.columns] == ["Group", "QR", "CQR", "ICQR"]
    # On the page each method's coverage in a group is told once: at the top, or in the appendix.
    top = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", shown["coverage"])
    assert top == ["Group", "Rows", "Naive", "Best &lt;b&gt;", "95 % interval", "Verdict on Best &lt;b&gt;", "Rule"]
    assert ">The other methods in the same groups<" in shown["methods"]
    with pytest.raises(ValueError, match=r"a number for each method, \['Naive', .*\], got \['ICQR'\]"):
        summarize(comparison, seconds={"ICQR": 1.0})


# -- What is read first: examples, and coverage by group ---------------------------------------------------


def test_five_rows_from_small_to_large_predictions(
    models: dict[str, Any], rows: tuple[Any, Any], tmp_path: Path
) -> None:
    model, (X, y) = models["ICQR"], rows
    shown = summarize(audit(y, model, X, with_excess_risk=False), y, X, methods=model)["examples"]
    order = np.argsort(model.predict(X), kind="stable")
    chosen = order[[60, 180, 300, 420, 540]]  # of 600: the ranks of 10, 30, 50, 70 and 90 %
    assert shown["columns"] == model.importances_.sort_values("share", ascending=False)["feature"].tolist()
    for entry, row in zip(shown["rows"], chosen, strict=True):
        low, high = model.predict_interval(X.iloc[[row]])[0]
        assert (entry["lower"], entry["upper"], entry["y"]) == (low, high, y.iloc[row])
        assert entry["prediction"] == model.predict(X.iloc[[row]])[0]
        assert entry["covered"] == (low <= y.iloc[row] <= high)
        assert entry["group"] == model.assign(X.iloc[[row]])[0]
        assert entry["values"] == X.iloc[row][shown["columns"]].tolist()


def test_the_examples_are_in_units_of_the_target_and_as_in_the_data() -> None:
    y = pd.Series([250_000, 90_000, 1_250_500], name="price")
    X = pd.DataFrame({"zip": [98103, 98004, 98199], "sold": pd.to_datetime(["2014-05-02", "2014-06-01", None])})
    X["kind"], X["size"] = ["<b>flat</b>", None, "house"], [120.5, 80.25, 300.0]
    bounds = np.array([[200_000.25, 300_000], [100_000, 180_000], [-INF, 1_000_000]])
    table = tables_of(summarize(audit(y, bounds, coverage=0.9), y, X, methods=bounds))["examples"]
    assert table.caption == "90 % intervals, in units of price"
    assert [column.label for column in table.columns] == ["Interval", "What happened", "Inside", *X.columns]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["100,000 to 180,000", "90,000", "no, below", "98004", "2014-06-01", "–", "80.2"],
        ["200,000 to 300,000", "250,000", "yes", "98103", "2014-05-02", "<b>flat</b>", "120.5"],
        ["at most 1,000,000", "1,250,500", "no, above", "98199", "–", "house", "300.0"],
    ]


def test_the_top_of_the_page_is_answer_examples_and_groups(page: str, compared: dict[str, Any]) -> None:
    top = page.partition('id="appendix"')[0]
    assert heads(top) == ["Five example rows", "Coverage by group"]
    assert escape(compared["answer"]).replace(" %", "\u00a0%") in top
    assert top.count("<table") == 2
    assert re.findall(r'<figure id="picture-(\w+)"', top) == ["coverage_by_group"]
    assert "<details open" not in page


def test_regions_are_at_the_top_where_there_are_no_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"hr": rng.integers(0, 24, 3000)})
    y = rng.normal(size=3000) * np.where(X["hr"] <= 2, 3, 1)
    bounds = np.full((3000, 2), [-1.8, 1.8])
    audited = audit(y, bounds, X, coverage=0.9, with_excess_risk=False)
    page = written(tmp_path, audited, y, X, methods=bounds)
    top = page.partition('id="appendix"')[0]
    assert heads(top) == ["Five example rows", "Coverage by region"]
    regions = [cells[0].text for cells in tables_of(summarize(audited))["regions-0"].rows]
    assert regions[0] == "1. hr ≤ 2"
    figure = re.search(r'<figure id="picture-coverage_by_region".*?</figure>', top, flags=re.DOTALL)
    assert figure is not None
    assert ">Coverage by region</text>" in figure[0]
    assert "region 1\u2002n = " in figure[0]
    assert "Coverage by region" not in heads(page)[2:]


def test_an_answer_takes_the_place_of_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from icqr.reporting import render

    made = render.summary_of
    monkeypatch.setattr(render, "summary_of", lambda *given: {**made(*given), "answer": "Use A & B."})
    page = written(tmp_path, audit(np.zeros(50), np.tile([-1.0, 1.0], (50, 1)), coverage=0.9))
    assert '<p class="sentence">Use A &amp; B.</p>' in page


def test_nothing_is_said_twice(page: str) -> None:
    """No sentence of a section is in another: each has its own content."""
    text = re.sub(r"<(svg|dl|style|script).*?</\1>", " ", page, flags=re.DOTALL)
    sentences = re.findall(r"<(?:p|caption|h2|h3|li|figcaption)[^>]*>(.*?)</", text, flags=re.DOTALL)
    long = [sentence.strip() for sentence in sentences if len(sentence.split()) > 3]
    assert len(long) > 10
    assert sorted(set(long)) == sorted(long)


@pytest.mark.parametrize("n", [300, 3000])
def test_neither_page_nor_picture_grows_with_the_rows(n: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame({"a": rng.random(n)}), rng.normal(size=n)
    bounds = np.tile([-1.6, 1.6], (n, 1))
    page = written(tmp_path, audit(y, bounds, X, coverage=0.9, with_excess_risk=False), y, X, methods=bounds)
    assert len(page) < 300_000
    assert tables_of(summarize(audit(y, bounds, coverage=0.9), y, X, methods=bounds))["examples"].rows[5:] == []


# -- Coverage at other levels ------------------------------------------------------------------------------


def test_reliability_is_what_is_covered_at_each_level(models: dict[str, Any], rows: tuple[Any, Any]) -> None:
    model, (X, y) = models["CQR"], rows
    table = summarize(model, y, X)["reliability"]
    levels = [entry["asked"] for entry in table]
    assert levels[0] == 0.5
    assert {0.8, 0.9, 0.95} <= set(levels)
    for entry in table:
        low, high = model.predict_interval(X, entry["asked"]).T
        hits = int(((low <= y) & (y <= high)).sum())
        assert entry["observed"] == hits / 600
        assert entry["n"] == 600
        assert entry["lower"] == pytest.approx(stats.beta.ppf(0.025, hits, 601 - hits))
        assert entry["upper"] == pytest.approx(stats.beta.ppf(0.975, hits + 1, 600 - hits))
        # What CQR promises holds at each level, but for the luck of 300 calibration rows and 600 of the audit.
        assert abs(entry["observed"] - entry["asked"]) < 4 * np.sqrt(0.25 * (1 / 300 + 1 / 600))


@pytest.mark.filterwarnings("ignore:.*pooled:UserWarning")
def test_reliability_of_cross_calibration_of_small_groups_and_of_one_level(
    models: dict[str, Any], rows: tuple[Any, Any], tmp_path: Path
) -> None:
    X, y = rows
    crossed = CQR(SMALL, calibration="cross", random_state=0).fit(X[:200], y[:200])
    asked = [entry["asked"] for entry in summarize(crossed, y[200:], X[200:])["reliability"]]
    assert {0.5, 0.9, 0.95} <= set(asked)
    site = pd.DataFrame({"a": np.linspace(0, 1, 300), "site": ["x"] * 295 + ["y"] * 5})
    grouped = ICQR(SMALL, partition=GroupPartition("site"), random_state=0).fit(site, site["a"])
    assert summarize(grouped, site["a"], site)["reliability"][0]["asked"] == 0.5
    assert "reliability" not in summarize(models["QR"], y, X)  # it has one level
    assert "reliability" not in sections(written(tmp_path, models["QR"], y, X))


# -- What can't be made is left out ----------------------------------------------------------------------


def test_bare_intervals_have_no_parts_of_a_model(tmp_path: Path) -> None:
    y = np.random.default_rng(0).normal(size=200)
    page = written(tmp_path, audit(y, np.full((200, 2), [-2, 2]), coverage=0.9))
    assert heads(page) == ["Appendix", "Main measures", "Widths and errors", "How it was computed"]
    assert "Not known here: the intervals came as numbers." in page
    assert "<svg" not in page


def test_bare_intervals_with_their_rows_have_pictures(tmp_path: Path) -> None:
    y = pd.Series(np.random.default_rng(0).normal(size=200), name="sales")
    bounds = np.full((200, 2), [-2.0, 2.0])
    page = written(tmp_path, audit(y, bounds, coverage=0.9), y, methods=bounds)
    assert re.findall(r'<figure id="picture-(\w+)"', page) == ["intervals", "widths", "residuals"]
    assert "Prediction intervals for sales" in page
    bounds[0] = -INF, INF
    page = written(tmp_path, audit(y, bounds, coverage=0.9), y, methods=bounds)
    assert re.findall(r'<figure id="picture-(\w+)"', page) == ["widths"]
    assert "∞" in page


def test_a_model_alone_says_what_it_promises(models: dict[str, Any], tmp_path: Path) -> None:
    page = written(tmp_path, models["ICQR"])
    appendix = [
        "Appendix",
        "The groups in detail",
        "How the groups were chosen",
        "Importance of the columns",
        "How it was computed",
    ]
    assert heads(page) == ["Groups", *appendix]
    assert "Rule" in sections(page)["groups"]
    assert "Not checked yet" in page
    assert heads(written(tmp_path, models["QR"])) == ["Appendix", "How it was computed"]


@pytest.mark.parametrize("side", ["lower", pytest.param("upper", marks=pytest.mark.slow)])
def test_a_bound_on_one_side(side: str, tmp_path: Path) -> None:
    X, y = make_heteroscedastic(600, n_features=2, random_state=0, return_X_y=True)
    model = ICQR(SMALL, side=side, partition=KMeansPartition(choose=2), random_state=0).fit(X[:400], y[:400])
    audited = audit(y[400:], model, X[400:], with_excess_risk=False)
    page = written(tmp_path, audited, y[400:], X[400:], methods=model, json_path=tmp_path / "summary.json")
    assert "∞" in page
    stored = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert stored["methods"][0]["mean_width"] == "Infinity"
    assert stored["groups"][0][f"offset_{'upper' if side == 'lower' else 'lower'}"] is None


@pytest.mark.parametrize("trained_on_arrays", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_rows_may_have_another_form_than_the_training_rows(trained_on_arrays: bool, tmp_path: Path) -> None:
    X, y = make_heteroscedastic(600, n_features=2, random_state=0, return_X_y=True)
    forms = (X.to_numpy(), X) if trained_on_arrays else (X, X.to_numpy())
    target = y[400:].to_numpy()
    model = ICQR(SMALL, partition=KMeansPartition(choose=2), random_state=0).fit(forms[0][:400], y[:400])
    page = written(
        tmp_path, audit(target, model, X[400:], with_excess_risk=False), target, forms[1][400:], methods=model
    )
    assert len(re.findall("<figure ", page)) == 8
    assert "<h1>Prediction intervals</h1>" in page


# -- The page --------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_by_itself(page: str) -> None:
    assert page.startswith("<!DOCTYPE html>")
    parsed = Page(page)
    identifiers = parsed.values("id")
    assert len(identifiers) == len(set(identifiers))
    for link in [value for value in parsed.values("href") if value != "data:,"]:
        assert link.startswith("#")
        assert link[1:] in identifiers
    for labelled in parsed.values("aria-labelledby"):
        assert labelled in identifiers
    assert {"link", "script", "style"} <= set(parsed.tags)
    assert not {"iframe", "img", "object", "embed"} & set(parsed.tags)
    addresses = set(re.findall(r"https?://[^\"' <]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not parsed.values("src")
    assert len(page.encode()) < 2_000_000


def test_tables_and_pictures_can_be_read_aloud(page: str) -> None:
    parsed = Page(page)
    assert parsed.tags.count("table") == parsed.tags.count("caption") > 5
    scopes = [(tag, name, value) for tag, name, value in parsed.attributes if tag == "th" and name == "scope"]
    assert len(scopes) == parsed.tags.count("th")
    figures = re.findall(r"<figure.*?</figure>", page, flags=re.DOTALL)
    assert len(figures) == 7
    for figure in figures:
        assert 'role="img"' in figure
        assert re.search(r"<svg[^>]*><title>[^<]{20,}</title>", figure)
    assert [parsed.tags.count(tag) for tag in ("header", "main", "footer")] == [1, 1, 1]
    assert re.findall(r"<h(\d)", page)[:2] == ["1", "2"]


def test_all_groups_can_be_highlighted(page: str, auto: Any) -> None:
    for group in range(auto.n_groups_):
        assert page.count(f'data-group="{group}"') == 4  # coverage by group, of other methods, offsets, details
        for name in ("coverage_by_group", "map", "intervals", "residuals"):
            figure = re.search(rf'<figure id="picture-{name}".*?</figure>', page, flags=re.DOTALL)
            assert figure is not None
            assert f'class="group-{group}"' in figure[0]


def test_the_embedded_numbers_are_those_of_the_file(checked: tuple[dict[str, Any], str]) -> None:
    summary, page = checked
    embedded = re.search(r'<script type="application/json" id="summary">(.*?)</script>', page, flags=re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1]) == summary


def test_everything_from_data_is_escaped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({HOSTILE: rng.random(600), "kind": rng.choice(CATEGORIES, 600), "$x_1$ & <b>": rng.random(600)})
    y = pd.Series(X[HOSTILE] + (X["kind"] == CATEGORIES[0]) * 3 + rng.normal(size=600), name=f"y {HOSTILE}")
    model = ICQR(SMALL, partition=KMeansPartition(choose=3), random_state=0).fit(X[:400], y[:400])
    compared = compare(y[400:], {HOSTILE: model}, X[400:], groups=X["kind"][400:], with_excess_risk=False)
    options: dict[str, Any] = {"methods": {HOSTILE: model}, "about": {"file <i>": CATEGORIES[0]}}
    page = written(tmp_path, compared, y[400:], X[400:], **options)
    tags = Page(page).tags
    assert tags.count("script") == 2
    assert not {"img", "b", "i"} & set(tags)
    assert not [name for _, name, _ in Page(page).attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(1)" in page
    embedded = re.search(r'id="summary">(.*?)</script>', page, flags=re.DOTALL)
    assert embedded is not None
    assert "<" not in embedded[1]
    assert json.loads(embedded[1])["in_detail"] == HOSTILE


def test_a_model_predicts_once_and_for_other_levels_once_more(rows: tuple[Any, Any], tmp_path: Path) -> None:
    calls: list[int] = []

    class Counted:
        def predict_quantiles(self, X: Any, levels: Any) -> Any:
            calls.append(len(X))
            return np.column_stack([X["x1"] + level for level in levels])

    X, y = rows
    first, second = (CQR(Counted(), random_state=0).fit(X[:300], y[:300]) for _ in range(2))
    calls.clear()
    written(tmp_path, {"first": first, "second": second}, y[500:], X[500:])
    assert calls == [100, 100, 100]  # the one that is shown in detail once more, for all other levels together


def test_rounding_is_no_spread() -> None:
    widths = tables_of(summarize(audit(np.zeros(50), np.full((50, 2), [-0.1, 0.2]), coverage=0.9)))["widths"]
    assert widths.rows[0][-1].text == "0"


def test_the_worst_verdict_is_sorted_first(models: dict[str, Any], rows: tuple[Any, Any], audited: Audit) -> None:
    table = tables_of(summarize(audited))["regions-0"]
    (place,) = (j for j, column in enumerate(table.columns) if column.label == "Verdict")
    cells = sorted({row[place] for row in table.rows}, key=lambda entry: entry.value or 0)
    order = ["undercovers", "overcovers", "holds", "too few rows"]
    assert [entry.text for entry in cells] == [text for text in order if text in {entry.text for entry in cells}]
    assert all(entry.tone for entry in cells)


# -- Writing ---------------------------------------------------------------------------------------------


def test_a_failure_leaves_the_old_file(audited: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)

    def no_room(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", no_room)
        with pytest.raises(OSError, match="no space left"):
            report(audited, path)
    with monkeypatch.context() as patched:
        patched.setattr("icqr.reporting.pictures.pictures_of", no_room)
        with pytest.raises(OSError, match="no space left"):
            report(audited, path, json_path=tmp_path / "numbers.json")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
    report(audited, path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_still_leads_to_the_report(audited: Audit, tmp_path: Path) -> None:
    (tmp_path / "latest.html").symlink_to(tmp_path / "report.html")
    report(audited, tmp_path / "latest.html")
    assert (tmp_path / "latest.html").is_symlink()
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_text_that_is_no_text_does_not_stop_the_report(audited: Audit, tmp_path: Path) -> None:
    assert "a?b" in written(tmp_path, audited, title="a\ud800b")


def test_errors_say_what_to_do(models: dict[str, Any], rows: tuple[Any, Any], audited: Audit, tmp_path: Path) -> None:
    X, y = rows
    path = tmp_path / "report.html"
    with pytest.raises(TypeError, match="got ndarray; for intervals of other libraries pass audit"):
        report(np.zeros((3, 2)), path)
    with pytest.raises(TypeError, match="got dict of ICQR, ndarray"):
        report({"a": models["ICQR"], "b": np.zeros((3, 2))}, path)
    with pytest.raises(NotFittedError):
        report(ICQR(), path)
    with pytest.raises(ValueError, match="got no X; give both, or neither"):
        report(models["CQR"], path, y)
    with pytest.raises(ValueError, match="y and X must be given with several models"):
        report(models, path)
    with pytest.raises(ValueError, match="methods goes with an audit"):
        report(models["CQR"], path, y, X, methods=models["CQR"])
    with pytest.raises(ValueError, match="methods must be given with y"):
        report(audited, path, y, X)
    with pytest.raises(ValueError, match="y must be given with intervals"):
        report(audited, path, methods=np.zeros((600, 2)))
    with pytest.raises(ValueError, match=r"must be what was audited: 600 rows of which ICQR covers .*, got 599"):
        report(audited, path, y[1:], X[1:], methods=models["ICQR"])
    with pytest.raises(IsADirectoryError, match=r"add a name: .*report\.html"):
        report(audited, tmp_path)
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        report(audited, tmp_path / "no" / "report.html")
    compared = compare(y, {"a": np.full((600, 2), [-1, 1])}, X, coverage=0.8, with_excess_risk=False)
    with pytest.raises(ValueError, match=r"names that were compared, \['a'\], got \['b'\]"):
        report(compared, path, y, X, methods={"b": np.full((600, 2), [-1, 1])})
    assert not path.exists()


def test_without_jinja2_the_error_names_the_extra(
    audited: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r'pip install "icqr\[report\]"'):
        report(audited, tmp_path / "report.html")
