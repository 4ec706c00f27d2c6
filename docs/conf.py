"""Sphinx's settings of the workbook's web pages; docs/build.py writes their sources."""

import re
import tomllib
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from myst_nb.core.render import NbElementRenderer

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = author = html_title = PROJECT["name"]
html_baseurl = PROJECT["urls"]["Homepage"]
extensions = ["myst_nb", "sphinxext.opengraph"]
nb_execution_mode = "off"  # the stored outputs are shown
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
html_theme = "furo"
ogp_site_url = html_baseurl
ogp_image = f"{html_baseurl}_static/preview.png"
ogp_image_alt = "The optimizer lab: paths on a surface, loss, step sizes and state follow the sliders"
ogp_use_first_image = True  # a notebook's own first figure, which docs/build.py lays on a card
ogp_custom_meta_tags = ['<meta name="twitter:card" content="summary_large_image" />']  # else a thumbnail beside the title
ogp_description_length = 200
ogp_enable_meta_description = True
ogp_social_cards = {"enable": False}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"type": "module"})]
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_math_renderer = "mathml"

render_image = NbElementRenderer.render_image


def render_image_with_text(self, data):
    """myst-nb's images, with the text that the notebook stores for those who do not see them."""
    drawn = render_image(self, data)
    if alt := data.output_metadata.get(data.mime_type, {}).get("alt"):
        for node in drawn:
            node["alt"] = alt
    return drawn


NbElementRenderer.render_image = render_image_with_text


BRACE = re.compile(r"<munder>(<mrow>(?:(?!<munder>).)*</mrow>)<mo>&#x23DF;</mo></munder>")
BORDER = r'<mrow style="border: 1px solid; border-top: 0; border-radius: 0 0 0.4em 0.4em; padding-bottom: 0.2em">\1</mrow>'


def mathml(formula, display="inline"):
    """A formula as MathML that a browser draws well without a font for mathematics.

    The lines of a norm stay as high as a letter, as in LaTeX: a browser would move them down. A brace below is a border: only
    such a font stretches it, with others it is a speck.
    """
    drawn = convert(formula, display=display).replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')
    return BRACE.sub(BORDER, drawn)


def inline_math(self, node):
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def display_math(self, node):
    self.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app):
    """MathML is drawn by the browser itself: no script, no fonts, nothing from another host."""
    app.add_html_math_renderer("mathml", (inline_math, None), (display_math, None))
