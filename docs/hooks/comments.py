"""An extension of griffe: a comment next to a field, or above it, is the field's description in the reference."""

import ast
from typing import Any

from griffe import Attribute, Docstring, Extension, ObjectNode


class FieldComments(Extension):
    """Describe fields of classes by their comments."""

    def on_attribute_instance(self, *, node: ast.AST | ObjectNode, attr: Attribute, **_: Any) -> None:
        """Read `name: type = value  # description`, or the comment in the lines before."""
        parent = attr.parent
        if attr.docstring or parent is None or not parent.is_class or not isinstance(node, ast.AnnAssign):
            return
        lines = attr.lines_collection[attr.filepath]
        _, found, text = lines[node.end_lineno - 1].partition("  # ")
        if not found:
            above = []
            for line in reversed(lines[: node.lineno - 1]):
                if not line.strip().startswith("# "):
                    break
                above.insert(0, line.strip()[2:])
            text = " ".join(above)
        if text and not text.startswith(("type:", "noqa")):
            sentence = text[0].upper() + text[1:] + "."
            attr.docstring = Docstring(sentence, lineno=node.lineno, endlineno=node.end_lineno, parent=attr)
