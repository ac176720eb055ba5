"""An extension of griffe: comments next to fields and parameters, and base classes, describe them in the reference."""

import ast
from collections.abc import Iterator
from typing import Any

from griffe import Attribute, Class, Docstring, Extension, Function, Module, Object, ObjectNode


class Comments(Extension):
    """Read `name: type = value  # description`, or the comment in the lines before."""

    def on_attribute_instance(self, *, node: ast.AST | ObjectNode, attr: Attribute, **_: Any) -> None:
        """Describe a field of a class."""
        in_class = attr.parent is not None and attr.parent.is_class
        if not in_class or attr.docstring or not isinstance(node, ast.AnnAssign):
            return
        if text := _comment(node, attr):
            attr.docstring = Docstring(f"{text[0].upper()}{text[1:]}.", lineno=node.lineno, parent=attr)

    def on_function_instance(self, *, node: ast.AST | ObjectNode, func: Function, **_: Any) -> None:
        """Describe the parameters of a function; those of `__init__` in the docstring of its class."""
        if not isinstance(node, ast.FunctionDef):
            return
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        found = [f"    {each.arg}: {text}." for each in given if (text := _comment(each, func))]
        owner = func.parent if func.name == "__init__" and isinstance(func.parent, Class) else func
        if found and owner.docstring:
            owner.docstring.value += "\n\nArgs:\n" + "\n".join(found)

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Describe a method without a docstring as its base class does, like `help`."""
        for kind in _classes(pkg):
            for name, member in kind.members.items():
                if isinstance(member, Function | Attribute) and not member.docstring:
                    above = (base.members.get(name) for base in kind.mro())
                    texts = [
                        found.docstring.value for found in above if found is not None and found.docstring
                    ]
                    if texts:
                        member.docstring = Docstring(texts[0], lineno=member.lineno, parent=member)


def _classes(place: Module | Class) -> Iterator[Class]:
    """All classes of a package."""
    for member in place.members.values():
        if isinstance(member, Class):
            yield member
        if isinstance(member, Module | Class):
            yield from _classes(member)


def _comment(node: ast.AnnAssign | ast.arg, owner: Object) -> str:
    """The comment at the end of a node's line, or above it; "" for none."""
    lines = owner.lines_collection[owner.filepath]
    _, found, text = lines[node.end_lineno - 1].partition("  # ")
    if found:
        return "" if text.startswith(("type:", "noqa")) else text
    above: list[str] = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("# "):
            break
        above.insert(0, line.strip()[2:])
    return " ".join(above)
