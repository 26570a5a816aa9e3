"""Settings of the documentation site: `make docs` builds it into `.docs-site`.

The source folder is the root of the repository, so that a link such as `../traces/README.md` leads to the
same file on the code host and in the site.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

project = "twin"
extensions = ["myst_parser", "sphinx_copybutton"]

include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "traces/README.md"]
exclude_patterns = [".*", "tests", "benchmarks", "shared"]
root_doc = "docs/index"
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]  # languages that Pygments does not know, such as csv

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

html_theme = "furo"
html_title = "twin"
html_theme_options = {"navigation_with_keys": True}
html_additional_pages = {"index": "redirect.html"}
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
templates_path = ["site"]
html_static_path = ["site"]
html_css_files = ["site.css"]
copybutton_prompt_text = "$ "


def unlink_folders(app: Sphinx, document: nodes.document) -> None:
    """Replaces links to folders of the repository by their text: the site has no page for a folder."""
    for link in list(document.findall(pending_xref)):
        page = app.env.doc2path(link.get("refdoc", root_doc))
        if link.get("reftype") == "myst" and Path(page).parent.joinpath(link["reftarget"]).is_dir():
            link.replace_self(link.children)


def add_toctrees(app: Sphinx, name: str, text: list[str]) -> None:
    """Adds to an index what Sphinx needs: the links of each section as a hidden table of contents."""
    if name.endswith("/index"):
        head, *sections = text[0].split("\n## ")
        for section in sections or [head]:
            pages = "\n".join(re.findall(r"\]\(([\w./-]+)\.md\)", section))
            caption = f":caption: {section.splitlines()[0]}\n" if sections else ""
            text[0] += f"\n```{{toctree}}\n:hidden:\n{caption}\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    """Registers both hooks."""
    app.connect("source-read", add_toctrees)
    app.connect("doctree-read", unlink_folders)
