"""Reads YAML 1.2 with the core schema, exactly, and remembers where each value stands.

The core schema (https://yaml.org/spec/1.2.2/#103-core-schema): ``NO``, ``yes``, ``10:30``, ``1_000`` and ``2026-11-22``
are texts, ``017`` is 17, ``1e-3`` a number. ruamel.yaml's own resolver differs from it (``1_000``, ``0b1``, dates), so
its nodes alone are used, and scalars are resolved here. No tag is known, so nothing in a file can make an object; a
key stands once; aliases are written out, within a bound.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent, DocumentStartEvent, ScalarEvent
from ruamel.yaml.nodes import Node, ScalarNode, SequenceNode

from greenlove_tracker.errors import UsageError

_MOST_VALUES = 10_000  # keys too, with every alias written out
_MOST_DEPTH = 12
_MOST_DIGITS = 100
_MOST_SHOWN = 60  # characters of a value in a message
_TOO_MANY = f"with all its aliases written out the file has over {_MOST_VALUES:,} values: that cannot be meant"
_TOO_DEEP = f"this lies more than {_MOST_DEPTH} levels deep"

Location = tuple[str | int, ...]  # of a value: ("arms", "optimised", 2)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the file, both from 1."""

    line: int
    column: int


class YamlMistake(Exception):  # noqa: N818  # the user's, which whoever knows the file's name makes an error of
    """A mistake after which nothing more can be read.

    Attributes:
        mark: where.
        location: of the value; empty where that is not known.
        message: what is wrong, and what to do.
    """

    def __init__(self, mark: Mark, location: Location, message: str) -> None:
        super().__init__(message)
        self.mark, self.location, self.message = mark, location, message


def _root(text: str) -> Node | None:
    """Return the node of the only document; None where there is none.

    Raises:
        YamlMistake: for what no experiment needs: tags, several documents, another version of YAML, or too much.
    """
    depth = n_documents = 0
    for n_values, event in enumerate(YAML(typ="safe", pure=True).parse(text)):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        n_documents += isinstance(event, DocumentStartEvent)
        if n_documents > 1:
            raise YamlMistake(_mark(event), (), "a second document begins here: one file is one experiment")
        if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
            raise YamlMistake(_mark(event), (), "an experiment is YAML 1.2: leave the line %YAML out")
        if getattr(event, "ctag", None):
            tag = shown(f"{event.ctag.handle or ''}{event.ctag.suffix}")
            raise YamlMistake(_mark(event), (), f"a tag such as {tag} makes nothing here: leave it out")
        if isinstance(event, ScalarEvent) and (found := re.search("[\0\ud800-\udfff]", event.value)):
            raise YamlMistake(_mark(event), (), f"this holds U+{ord(found[0]):04X}, which no text can: take it out")
        if depth > _MOST_DEPTH + 1 or n_values > 2 * _MOST_VALUES:  # before the nodes are made, one within the other
            raise YamlMistake(_mark(event), (), _TOO_DEEP if depth > _MOST_DEPTH + 1 else _TOO_MANY)
    root: Node | None = YAML(typ="safe", pure=True).compose(text)
    return root


def _mark(thing: Any) -> Mark:
    """Return the place of an event or a node."""
    return Mark(thing.start_mark.line + 1, thing.start_mark.column + 1)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The values of a file, and their lines.

    Attributes:
        value: of the whole: mappings, lists, texts, numbers, truth values and None.
        marks: of each value.
        key_marks: of the key of each value in a mapping.
        written: each plain scalar as it is written: an argument ``1e-3`` is handed on so.
    """

    value: Any
    marks: dict[Location, Mark]
    key_marks: dict[Location, Mark]
    written: dict[Location, str]

    @classmethod
    def of(cls, text: str) -> YamlDocument:
        """Return the document of a text.

        Raises:
            YamlMistake: where it is no YAML, or more than an experiment needs.
        """
        if found := re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
            message = f"here is the character U+{ord(found[0]):04X}, which no YAML file may hold: take it out"
            raise YamlMistake(_mark_at(text, found.start()), (), message)
        try:
            root = _root(text)
        except YAMLError as error:
            raise _syntax_mistake(error, text) from error
        except (ValueError, OverflowError) as error:  # of \U and a number that is no character
            raise YamlMistake(
                Mark(1, 1), (), f"not YAML: an escape such as \\uD800 stands for no character ({error})"
            ) from error
        if root is None:
            raise YamlMistake(Mark(1, 1), (), "the file is empty: it needs at least name: and task:")
        document = cls(None, {}, {}, {})
        return cls(document._resolved(root, ()), document.marks, document.key_marks, document.written)

    def _resolved(self, node: Node, location: Location) -> Any:
        """Return the value of a node, and note its place."""
        if len(self.marks) + len(self.key_marks) >= _MOST_VALUES:
            raise YamlMistake(_mark(node), location, _TOO_MANY)
        if len(location) > _MOST_DEPTH:  # an alias lies as deep as what it stands for, below its own place
            raise YamlMistake(_mark(node), location, _TOO_DEEP)
        self.marks[location] = _mark(node)
        if isinstance(node, ScalarNode):
            if node.style:
                return node.value
            self.written[location] = node.value
            return _plain_value(node, node.value, location)
        if isinstance(node, SequenceNode):
            return [self._resolved(child, (*location, n)) for n, child in enumerate(node.value)]
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, location)
            own = (*location, key)
            if key in found:
                first = self.key_marks[own].line
                raise YamlMistake(_mark(key_node), own, f"stands twice, first in line {first}: leave one out")
            self.key_marks[own] = _mark(key_node)
            found[key] = self._resolved(value_node, own)
        return found

    def _key(self, node: Node, location: Location) -> str:
        if not isinstance(node, ScalarNode):
            raise YamlMistake(_mark(node), location, "a list or mapping cannot be a key")
        if not node.style and _plain_value(node, node.value, location) != node.value:
            what = f"{shortened(node.value)} is none: put it in quotes" if node.value else "here is none"
            raise YamlMistake(_mark(node), location, f"a key is a text, and {what}")
        return str(node.value)

    def mark(self, location: Location, *, of_key: bool = False) -> Mark:
        """Return the place of a value, or of the nearest that it would lie in."""
        marks = [self.key_marks, self.marks] if of_key else [self.marks]
        for length in range(len(location), -1, -1):
            for known in marks:
                if location[:length] in known:
                    return known[location[:length]]
        return Mark(1, 1)

    def mistake(self, location: Location, message: str, *, of_key: bool = False) -> YamlMistake:
        """Return a mistake of a value, or of its key."""
        return YamlMistake(self.mark(location, of_key=of_key), location, message)


def _plain_value(node: Node, text: str, location: Location) -> Any:
    """Return what a plain scalar is; a number that cannot be meant is a mistake."""
    try:
        return core_schema_value(text)
    except UsageError as error:
        raise YamlMistake(_mark(node), location, str(error)) from error


def core_schema_value(text: str) -> Any:
    """Return what a plain scalar is in YAML 1.2's core schema (section 10.3.2): None, a truth value, number or text.

    Raises:
        UsageError: for a number of more digits than can be meant.
    """
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text in ("true", "True", "TRUE")
    if re.fullmatch(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN", text):
        return float(text.replace(".", "", 1))
    whole = re.fullmatch(r"[-+]?[0-9]+|0o(?P<octal>[0-7]+)|0x(?P<hexadecimal>[0-9a-fA-F]+)", text)
    if not whole and not re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text):
        return text
    if len(text) > _MOST_DIGITS:
        raise UsageError(f"a number of {len(text)} digits cannot be meant: put a text in quotes")
    if not whole:
        return float(text)
    if whole["octal"]:
        return int(whole["octal"], 8)
    return int(whole["hexadecimal"], 16) if whole["hexadecimal"] else int(text)


def _mark_at(text: str, offset: int) -> Mark:
    """Return the place of a character."""
    lines = re.split("\r\n|\r|\n", text[:offset])
    return Mark(len(lines), len(lines[-1]) + 1)


_UNFINISHED = r"end of stream|stream end"
_SYNTAX_HINTS = (
    (r"'\\t'", "indent by spaces, not by a tab"),
    (r"mapping values are not allowed", 'a text that holds ": " stands in quotes; else look at the indents above'),
    (_UNFINISHED, "a quotation mark, bracket or brace is not closed"),
    (r"cannot start any token", "put a text that begins with @, `, % or | in quotes"),
    (
        r"expected <block end>|could not find expected ':'",
        "look at the indents and brackets of this and the line above",
    ),
    (r"escape", "in double quotes a backslash is written twice; or use single quotes"),
)


def _syntax_mistake(error: YAMLError, text: str) -> YamlMistake:
    """Return what ruamel.yaml could not read, with its place and what is usually meant."""
    problem = " ".join(str(getattr(error, "problem", "") or "cannot be read").split())
    begun, here = getattr(error, "context_mark", None), getattr(error, "problem_mark", None)
    found = (begun if re.search(_UNFINISHED, problem) else here) or here or begun
    mark = Mark(found.line + 1, found.column + 1) if found else Mark(1, 1)
    lines = re.split("\r\n|\r|\n", text)
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    hint = next((hint for pattern, hint in _SYNTAX_HINTS if re.search(pattern, problem)), "")
    if "${" in line and re.search(r"[\[{].*\$\{", line):
        hint = 'within [ ] and { } write it in quotes: "${NAME}"'
    return YamlMistake(mark, (), f"not YAML: {problem}{f'; {hint}' if hint else ''}")


def shown(value: Any) -> str:
    """Return a value for a message: short, in one line, and with nothing that a terminal would obey."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return shortened(repr(value) if isinstance(value, str) else str(value))


def shortened(text: str) -> str:
    """Return a text for a message, its end left out where it is long."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def location_text(location: Location) -> str:
    """Return where a value stands in the words of the file: ``arms.optimised[2].early-stopping.patience``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"{'.' if text else ''}{part if part.isprintable() and part else repr(part)}"
    return text


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at what was meant by a name."""
    names = tuple(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
