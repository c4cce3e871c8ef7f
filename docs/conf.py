"""How the documentation is built: `make docs`."""

import importlib.metadata
import re
from itertools import pairwise

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

project = "bagwise"
copyright = "2026, the bagwise developers"
release = importlib.metadata.version("bagwise")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
default_role = "code"
exclude_patterns = ["_build", "results", "sg_execution_times.rst"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what is meant in words

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_title = f"bagwise {release}"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/(plot_|grid_search|neural_plain_torch)",  # the others need what is not installed here
    "ignore_pattern": r"(dask_sweep|neural_lightning)\.py",
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
}
suppress_warnings = ["config.cache"]


# Docstrings list arguments as "name: what it is.  other: what that is.", lines that go on are indented. For the site
# each becomes an item of a list.
_ITEM = re.compile(r"(?:^|(?<=\s\s))((?:[A-Za-z_]\w*)(?:, [A-Za-z_]\w*)*): ")


def _list_items(app, what, name, obj, options, lines):
    paragraphs, made = "\n".join(lines).split("\n\n"), []
    for paragraph in paragraphs:
        rows = paragraph.split("\n")
        if not _ITEM.match(rows[0]) or paragraph.lstrip().startswith((">>>", "..", "-")):
            made.append(paragraph)
            continue
        block, items = [], []
        for row in rows:
            if row.startswith(" ") and items:
                items[-1] += " " + row.strip()
            elif _ITEM.match(row):
                items.append(row.strip())
            else:  # a sentence after the list
                block.append("\n".join(_bullets(items)))
                items = []
                block.append(row)
        if items:
            block.append("\n".join(_bullets(items)))
        made.append("\n\n".join(filter(None, block)))
    lines[:] = "\n\n".join(made).split("\n")


def _bullets(items):
    for item in items:
        places = [*(found.start() for found in _ITEM.finditer(item)), len(item)]
        for start, end in pairwise(places):
            names, text = item[start:end].strip().split(": ", 1)
            quoted = ", ".join(f"``{one}``" for one in names.split(", "))
            yield f"- {quoted}: {text}"


# Formulas become MathML, which browsers draw themselves: no script, no network.
def _inline(page, node):
    page.body.append(tex2mathml(node.astext()))
    raise SkipNode


def _displayed(page, node):
    page.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def setup(app):
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_displayed, None))
    app.connect("autodoc-process-docstring", _list_items)
