"""How Sphinx builds the site: `make docs` writes it to docs/_build/html, without network."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import example_files  # noqa: E402  (it is in this folder, as is the next)
import pages  # noqa: E402

import icqr  # noqa: E402

project = "icqr"
author = "The icqr developers"
copyright = "the icqr developers"
version = release = icqr.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "sg_execution_times.rst", "gallery/sg_execution_times.rst"]
templates_path = ["_templates"]

# -- Strictness: a link that leads nowhere is a warning, and `make docs` ends at warnings ------------------------------

nitpicky = True
nitpick_ignore_regex = [
    # In docstrings, single backticks mark parameters and attributes too; only what says "icqr." must be a page.
    ("py:.*", r"(?!icqr\.).*"),
    # Private bases and the types behind them have no page.
    ("py:.*", r"icqr\.(_|.*\._).*"),
]
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings hold functions, which can't be cached

# -- Markdown ----------------------------------------------------------------------------------------------------------

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https", "mailto"]

# -- API pages ---------------------------------------------------------------------------------------------------------

default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
add_function_parentheses = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# -- The gallery -------------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "api/generated/examples",
    "doc_module": ("icqr",),
    "reference_url": {"icqr": None},
    "plot_gallery": True,
    "parallel": False,
}

# -- The look ----------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "icqr"
html_static_path = ["_static"]
html_css_files = ["icqr.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "glossary": []}
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_align": "left",
    "pygments_light_style": "default",
    "pygments_dark_style": "monokai",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def run_code(_: Sphinx, name: str, source: list[str]) -> None:
    """Run a page's code, and put what it prints below it."""
    if name.startswith("benchmark/tables/"):  # written by the benchmark: linked by its page, in no table of contents
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"
    if not name.startswith(("gallery/", "api/")):
        source[0] = pages.run(source[0], f"docs/{name}.md")


def setup(app: Sphinx) -> dict[str, bool]:
    example_files.write(DOCS / "_build" / "files")  # to download
    app.connect("source-read", run_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
