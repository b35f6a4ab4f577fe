"""The accessibility tree as text: one line an element, numbered from the top, inner ones indented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WRITABLE = ("textbox", "searchbox", "spinbutton", "combobox")
LEFT_OUT = ("InlineTextBox", "none", "generic", "ListMarker", "LineBreak")
"""Roles without content. Their children are shown."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element. node: the browser's number of it. value: the content of a field. depth: levels of indentation."""

    number: int
    node: int
    role: str
    name: str
    value: str
    depth: int

    @property
    def writable(self) -> bool:
        """Return whether text can be typed into it."""
        return self.role in WRITABLE


def read(nodes: Sequence[Mapping[str, Any]]) -> list[Element]:
    """Return the elements of Chromium's tree in the order of the page."""
    by_id = {node["nodeId"]: node for node in nodes}
    elements: list[Element] = []
    for node, depth in _walk(nodes[0], by_id, 0, ""):
        value = str(node.get("value", {}).get("value", ""))
        elements.append(
            Element(len(elements) + 1, node["backendDOMNodeId"], node["role"]["value"], _name(node), value, depth)
        )
    return elements


def shown(elements: Sequence[Element]) -> str:
    """Return the lines for the agent."""
    return "\n".join(
        f"{'  ' * element.depth}[{element.number}] {element.role} '{element.name}'"
        + (f" value '{element.value}'" if element.writable else "")
        for element in elements
    )


def _walk(
    node: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]], depth: int, within: str
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the nodes to show, with their depth. within: the surrounding element's name, which its own text only repeats."""
    silent = node.get("ignored") or node["role"]["value"] in LEFT_OUT or "backendDOMNodeId" not in node
    repeats = node["role"]["value"] == "StaticText" and _name(node) in ("", within)
    if not silent and not repeats:
        yield node, depth
    inner, name = (depth, within) if silent or repeats else (depth + 1, _name(node))
    for child in node.get("childIds", ()):
        if child in by_id:
            yield from _walk(by_id[child], by_id, inner, name)


def _name(node: Mapping[str, Any]) -> str:
    return " ".join(str(node.get("name", {}).get("value", "")).split())
