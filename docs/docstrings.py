"""What the site's API reference shows of public names beside their docstrings.

An extension of griffe, which reads the sources for mkdocstrings (`make docs`).
"""

import ast
import re

import griffe

LONGEST = 80
"""Characters of a value that is shown; a longer one is read in the source."""


class Docstrings(griffe.Extension):
    """What the API reference shows of a public name beside its docstring."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        """Describe a constant by the comment above it, a status by its sentence."""
        status = re.fullmatch(r"\(?(\d+), (.*?)\)?", str(attr.value), re.DOTALL)
        if attr.parent.is_class and status:
            text, attr.value = ast.literal_eval(status[2]), status[1]
        else:
            text = comment(attr)
        if attr.docstring is None and text:
            attr.docstring = griffe.Docstring(text, lineno=attr.lineno, parent=attr)
        if len(str(attr.value)) > LONGEST:
            attr.value = None

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Keep the stars of s* and b_{s*}, which Markdown takes for emphasis."""
        if obj.docstring is not None:
            lines = obj.docstring.value.split("\n")
            obj.docstring.value = "\n".join(map(starred, lines))


def comment(attr: griffe.Attribute) -> str:
    """The comment above a constant of a module; empty where there is none."""
    if attr.parent.is_class:
        return ""
    above = attr.filepath.read_text().splitlines()[: attr.lineno - 1]
    lines: list[str] = []
    while above and above[-1].startswith("# "):
        lines.insert(0, above.pop().removeprefix("# "))
    return "\n".join(lines)


def starred(line: str) -> str:
    r"""A line of a docstring, the stars that are indices escaped.

    Example:
        >>> starred("a token s* with b_{s*} < 1, `2 x*`")
        'a token s\\* with b_{s\\*} < 1, `2 x*`'
    """
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = line.split("`")
    parts[::2] = [re.sub(r"(?<=[\w}])\*(?!\*)", r"\*", part) for part in parts[::2]]
    return "`".join(parts)
