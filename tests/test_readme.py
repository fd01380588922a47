"""The README's Python runs as it stands, block after block."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_python_runs() -> None:
    pytest.importorskip("lightgbm", reason="one of the README's examples uses LightGBM")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert names["intervals"].shape == (4000, 2)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_readmes_commands_are_targets_of_the_makefile(target: str) -> None:
    assert f"make {target}" in README.read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
