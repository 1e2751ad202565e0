"""Pages of the site made from other files: README, notebook, figures, docstrings.

A hook of mkdocs (`make docs`). Nothing is written into the checkout.
"""

import ast
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[1]
NUMBER = r"\d[a-z]?"
CITATION = re.compile(
    rf"mathematics, sections? ({NUMBER}(?:, {NUMBER})*(?: and {NUMBER})?)"
)
FIGURES = ROOT / "experiments" / "figures"
# Files of the checkout, and the page that shows each.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "experiments/tutorial.ipynb": "tutorial.md",
    "experiments/colab.ipynb": "colab.ipynb",
}
PARTS = {
    "problem": "Any attention as a problem",
    "stages": "A problem, solved",
    "picture": "A solved problem, drawn",
    "trial": "One run of the theory",
    "convergence": "How fast a run converges",
    "ties": "Tokens at finite odds",
    "data": "Bags, losses, synthetic data",
    "model": "Parameters, attention, the step on E",
    "flow": "The flow of p",
    "margin": "Max-margin, its limit, the certificate",
    "sweep": "Many trials",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""

    def add(path: str, content: str | bytes) -> None:
        files.append(File.generated(config, path, content=content))

    for source, page in PAGES.items():
        path = ROOT / source
        if page == "tutorial.md":
            text, pictures = rendered(path)
            add(page, text)
            for name, content in pictures.items():
                add(name, content)
        else:
            add(
                page,
                linked(path.read_text()) if page.endswith(".md") else path.read_bytes(),
            )
    for picture in sorted(FIGURES.glob("*.png")):
        add(f"figures/{picture.name}", picture.read_bytes())
    add("gallery.md", gallery())
    add("library.md", library())
    add("citations.md", citations())
    for part, title in PARTS.items():
        add(f"api/{part}.md", reference(part, title))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Formulas as MathML, which browsers draw without a script.

    A long one scrolls in its place; Markdown would end a paragraph at a bare `<math>`.
    """
    markdown = markdown.replace("](../experiments/figures/", "](figures/")
    for pattern, display, around in (
        (r"\$\$(.+?)\$\$", "block", '<div class="formula" tabindex="0">{}</div>'),
        (r"(?<![\w$])\$([^$\n]+?)\$(?!\w)", "inline", "<span>{}</span>"),
    ):
        markdown = re.sub(
            pattern,
            lambda found, display=display, around=around: around.format(
                convert(found[1].strip(), display=display)
            ),
            markdown,
            flags=re.DOTALL,
        )
    # The converter sets a function's name as a letter, with no space behind it.
    space = '<mspace width="0.2em"/>'
    named = r"(<mi>(?:log|sin|cos|argmin)</mi>)(?=<m[is])"
    return re.sub(named, rf"\1{space}", markdown)


def on_post_page(output: str, **_: object) -> str:
    """Make one landmark of a table of contents, and name the dialog of the search.

    The theme makes a landmark of each branch, and labels that differ in case alone (the
    module corpus and its class Corpus) are the same to who jumps between landmarks.
    """
    branch = r'<nav class="md-nav" aria-label="[^"]*">'
    output = re.sub(branch, '<nav class="md-nav" role="none">', output)
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


# A letter, perhaps with an accent or after d, and its index: p_mm, dp_0, but no name.
INDEX = re.compile(
    r"(?<![A-Za-z0-9_])(mean|d?(?:[^\W_]|[∇∂])[\u0302-\u0304′]*[⁰¹²]?)"
    r"_([A-Za-zα-ω0-9Φ⊥±+−]{1,3})(?![A-Za-z0-9_])"
)


def on_page_content(html: str, **_: object) -> str:
    """Indices and exponents of plain formulas, below and above the line."""
    parts = re.split(r"(<code\b.*?</code>|<[^>]+>)", html, flags=re.DOTALL)
    return "".join(
        part if place % 2 else raised(part) for place, part in enumerate(parts)
    )


def raised(text: str) -> str:
    """A text with HTML's indices and exponents.

    Example:
        >>> raised("e^{τ − D_kᵀp}, p_mm, cls_flow, R^d")
        'e<sup>τ − D<sub>k</sub>ᵀp</sup>, p<sub>mm</sub>, cls_flow, R<sup>d</sup>'
    """
    text = INDEX.sub(r"\1<sub>\2</sub>", text)
    before = ""
    while text != before:
        before = text
        text = re.sub(r"_\{([^{}]*)\}", r"<sub>\1</sub>", text)
        text = re.sub(r"\^\{([^{}]*)\}", r"<sup>\1</sup>", text)
    return re.sub(r"\^([^\W_]+)", r"<sup>\1</sup>", text)


def linked(text: str) -> str:
    """A page of the checkout's top, its links those of the site."""
    for source, page in PAGES.items():
        text = text.replace(f"]({source})", f"]({page})")
    text = text.replace("](docs/", "](").replace("](experiments/figures/", "](figures/")
    return text


def rendered(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook with its committed outputs as a page, and its pictures."""
    text, resources = MarkdownExporter().from_filename(path)
    return text, resources["outputs"]


def gallery() -> str:
    """Every figure of the checkout with the command that draws it."""
    shown = [
        (
            "Figure 2 of the paper, on synthetic data",
            "figures/paper-figure_2.png",
            "python -m experiments.paper.figure_2",
        ),
        ("How runs end over d and step size", "figures/phases.png", "make sweep"),
        (
            "What remains off the important token, by what is trained",
            "figures/joint.png",
            "python -m experiments.beyond.joint",
        ),
        (
            "Four kinds of attention, beside SciPy and three papers",
            "figures/models.png",
            "python -m experiments.beyond.models",
        ),
    ]
    parts = [
        f"## {title}\n\n[![{title}]({picture})]({picture})\n\nDrawn by `{command}`."
        for title, picture, command in shown
    ]
    paper = "Every item of the paper with its figure: [the paper](paper.md)."
    return "\n\n".join(["# Gallery", paper, *parts])


def citations() -> str:
    """Each section of the mathematics with what cites it in its docstring."""
    cited: dict[str, dict[str, list[str]]] = {}
    for top in ("jaxselect", "experiments", "tests"):
        for path in sorted((ROOT / top).rglob("*.py")):
            place = path.relative_to(ROOT)
            module = ".".join(place.with_suffix("").parts)
            tree = ast.parse(path.read_text())
            for node in ast.walk(tree):
                if not isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
                    continue
                name = getattr(node, "name", "")
                if name.startswith("_") or (top == "tests" and name):
                    continue
                text = " ".join((ast.get_docstring(node) or "").split())
                shown = str(place) if top == "tests" else f"{module}.{name}".rstrip(".")
                for numbers in CITATION.findall(text):
                    for number in re.findall(NUMBER, numbers):
                        names = cited.setdefault(number, {}).setdefault(top, [])
                        if f"`{shown}`" not in names:
                            names.append(f"`{shown}`")
    rows = []
    for page in ("mathematics", "supplement"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for number, title in re.findall(rf"^#+ ({NUMBER})\. (.*)", text, re.MULTILINE):
            users = cited.get(number, {})
            code = [*users.get("jaxselect", []), *users.get("experiments", [])]
            rows.append(f"## {number}. {title}")
            if code:
                rows.append(f"*Code:* {', '.join(code)}")
                rows.append(f"*Tested in:* {', '.join(users.get('tests', []))}")
    return "\n\n".join(["# The mathematics in code", *rows])


def library() -> str:
    """The names of the package, and a page for each folder."""
    tree = ast.parse((ROOT / "jaxselect" / "__init__.py").read_text())
    names = {
        node.module: "`, `".join(one.name for one in node.names)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
    }
    rows = [f"| `{shown}` | `jaxselect.{home}` |" for home, shown in names.items()]
    parts = [
        f"* [`jaxselect.{part}`](api/{part}.md): {title}"
        for part, title in PARTS.items()
    ]
    return "\n".join(
        [
            "# Library",
            "",
            *parts,
            "",
            "## Names of the package",
            "",
            "| `jaxselect.` | defined in |",
            "|---|---|",
            *rows,
        ]
    )


def reference(part: str, title: str) -> str:
    """The public names of a folder, module by module."""
    place = ROOT / "jaxselect" / part
    modules = (
        [f"jaxselect.{part}.{path.stem}" for path in sorted(place.glob("[!_]*.py"))]
        if place.is_dir()
        else [f"jaxselect.{part}"]
    )
    return "\n\n".join([f"# {title}", *(f"::: {name}" for name in modules)])
