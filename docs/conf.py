"""How the documentation is built: `make docs`."""

import importlib.metadata
import logging

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.inspect import TypeAliasForwardRef

import bagwise.utils.typing

logging.getLogger("bagwise").setLevel(logging.WARNING)  # what examples fit is no news of the build

project = "bagwise"
copyright = "2026, the bagwise developers"
release = importlib.metadata.version("bagwise")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
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
autodoc_typehints = "signature"
autodoc_type_aliases = {  # shown by name; what they stand for fills lines
    name: name for name in ("ArrayLike", "RandomState", *bagwise.utils.typing.__all__)
}
TypeAliasForwardRef.__repr__ = lambda alias: alias.name  # Sphinx 9.0 shows its own class in `alias | None`
autodoc_default_options = {
    "exclude-members": ", ".join(
        f"set_{method}_request" for method in ("fit", "partial_fit", "predict", "predict_proba", "score", "split")
    )
}
python_maximum_signature_line_length = 110
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]  # shown like parameters, in a list below their class
napoleon_use_param = False  # `low, high : float` stays one line
napoleon_use_rtype = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_title = f"bagwise {release}"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    # The others need what is not installed here.
    "filename_pattern": r"/(plot_|grid_search|neural_plain_torch|neural_pretrained)",
    "ignore_pattern": r"(dask_sweep|neural_lightning|neural_datasets)\.py",
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
}
suppress_warnings = ["config.cache"]


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
