"""Figures as text that can be put into a web page."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_REFERENCE = re.compile(r"(?:(?<=url\()|^)#([^)]+)")
_OWN_ID = re.compile(r"_\d+$")  # matplotlib's own names: patch_3, axes_1
_FONTS = re.compile(r"font-family: [^;]*;? ?")
_FAMILY = "'DejaVu Sans', Verdana, Arial, sans-serif"  # the second is as wide as the first, in which text is laid out


def figure_to_svg(figure: Figure | SubFigure, title: str | None = None) -> str:
    """Return a figure as one ``<svg>`` element that can be put into a web page.

    - The same figure gives the same text, and nothing in it refers to another file.
    - Text stays text: it can be searched, copied and read aloud, and keeps the file small. It is laid out for DejaVu
      Sans; Verdana, which is as wide, is the next choice.
    - Identifiers are only kept where something refers to them, and begin with a hash of the picture, so that several
      pictures fit into one page. An artist's ``gid`` becomes a class instead: all that belongs to group 3, in whatever
      picture, is ``.group-3``.
    - The background is transparent, and black becomes ``currentColor``: the picture follows a page from light to dark.

    Parameters
    ----------
    figure : matplotlib Figure
        Is not changed.
    title : str, optional
        What a screen reader says; by default the titles in the figure.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> figure_to_svg(blank_axes(2, 1).figure, title="Nothing <yet>")[:53]
    '<svg viewBox="0 0 144 72" width="144pt" height="72pt"'
    """
    import matplotlib as mpl

    # These two settings of matplotlib have no other way in; they are put back at once.
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "icqr"}), warnings.catch_warnings():
        # The browser, not matplotlib, needs a font with these letters.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.canvas.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _make_plain(root)
    _name_parts(root, hashlib.sha256(ElementTree.tostring(root)).hexdigest()[:8])

    if title is None:
        titles = [axes.get_title(loc) for axes in figure.axes for loc in ("left", "center", "right")]
        title = "; ".join(text.replace(r"\$", "$") for text in titles if text)
    words = ElementTree.Element("title")
    words.text = title
    root.insert(0, words)
    return ElementTree.tostring(root, encoding="unicode")


def _make_plain(root: ElementTree.Element) -> None:
    """Drop name spaces, metadata and style sheet; leave black and the font to the page."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (element.text if element.tag in ("text", "tspan") else None), None
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        for key in element.attrib.keys() & {"style", "fill", "stroke"}:
            element.set(key, _FONTS.sub("", element.attrib[key].replace("#000000", "currentColor")))
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in ("metadata", "style")]:
            parent.remove(child)
    size = {key: root.attrib[key] for key in ("viewBox", "width", "height")}
    look = {"fill": "currentColor", "stroke-linejoin": "round", "font-family": _FAMILY}
    root.attrib = {**size, "xmlns": "http://www.w3.org/2000/svg", "role": "img", **look}


def _name_parts(root: ElementTree.Element, prefix: str) -> None:
    """Rename what is referred to; turn artists' names into classes; drop all other identifiers."""
    used: dict[str, str] = {}
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "href" or "url(#" in value:
                named = _REFERENCE.sub(lambda m: "#" + used.setdefault(m[1], f"p{prefix}-{len(used)}"), value)
                element.set(key, named)
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name in used:
            element.set("id", used[name])
        elif name and not _OWN_ID.search(name):
            element.set("class", name)
