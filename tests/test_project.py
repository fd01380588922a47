"""What the project says about itself in several files is the same in all of them."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import yaml

import icqr

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_one() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == icqr.__version__ == citation["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["preferred-citation"]["doi"] in (ROOT / "README.md").read_text()


def test_the_workflow_tests_the_pythons_that_are_promised() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert jobs["test"]["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    # What the workflow runs is there.
    targets = re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    known = {target for line in targets for target in line.split()}
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    used = {name for command in commands for name in re.findall(r"make ([a-z-]+)", command)}
    assert used == {"test", "test-all", "docs"}
    assert used <= known


def test_hooks_run_what_make_lint_runs() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in local["hooks"]}
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    assert tools == set(re.findall(r"\$\(BIN\)/(\w+)", recipe))


def test_dependencies_are_pinned_and_have_their_reasons() -> None:
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = [*PROJECT["dependencies"], *chain.from_iterable(PROJECT["optional-dependencies"].values())]
    named = {re.split(r"[\[><=;]", part)[0] for part in wanted} - {"icqr"}
    assert {name.lower() for name in named} <= pinned
    reasons = (ROOT / "CONTRIBUTING.md").read_text().split("## Dependencies")[1]
    assert not [name for name in named if not re.search(rf"\b{re.escape(name)}\b", reasons)]
