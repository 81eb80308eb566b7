"""Reads YAML 1.2 with the core schema, exactly, and remembers where each value stands.

The core schema (https://yaml.org/spec/1.2.2/#103-core-schema): ``NO``, ``yes``, ``10:30``, ``1_000`` and ``2026-11-22``
are texts, ``017`` is 17, ``1e-3`` a number. ruamel.yaml's own resolver differs from it (``1_000``, ``0b1``, dates), so
its parser alone is used, and scalars are resolved here. No tag is known, so nothing in a file can make an object; a key
stands once; aliases are written out, within a bound.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

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


@dataclass(frozen=True, slots=True)
class _Node:
    """A value of the file before it is resolved: a text, the nodes of a list, or the pairs of a mapping."""

    mark: Mark
    content: str | list[_Node] | list[tuple[_Node, _Node]]
    kind: Literal["plain", "quoted", "list", "mapping"]


class _Composer:
    """Makes one tree of nodes from the events of ruamel.yaml's parser.

    Args:
        text: of the file.
    """

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)
        self._anchors: dict[str, _Node] = {}
        self._n_nodes = 0

    def root(self) -> _Node | None:
        """Return the root of the only document; None where there is none.

        Raises:
            YamlMistake: for what no experiment needs: tags, several documents, another version of YAML.
        """
        next(self._events)  # the stream's start
        start = next(self._events)
        if isinstance(start, StreamEndEvent):
            return None
        if start.version not in (None, (1, 2)):
            raise YamlMistake(_mark(start), (), "an experiment is YAML 1.2: leave the line %YAML out")
        root = self._node(next(self._events), 0)
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, StreamEndEvent):
            raise YamlMistake(_mark(after), (), "a second document begins here: one file is one experiment")
        return root

    def _node(self, event: Any, depth: int) -> _Node:
        mark = _mark(event)
        self._n_nodes += 1
        if self._n_nodes > _MOST_VALUES:
            raise YamlMistake(mark, (), _TOO_MANY)
        if depth > _MOST_DEPTH:
            raise YamlMistake(mark, (), _TOO_DEEP)
        if isinstance(event, AliasEvent):
            if event.anchor not in self._anchors:
                raise YamlMistake(mark, (), f"no &{event.anchor} stands before *{event.anchor}")
            return self._anchors[event.anchor]
        if event.ctag:
            tag = shown(f"{event.ctag.handle or ''}{event.ctag.suffix}")
            raise YamlMistake(mark, (), f"a tag such as {tag} makes nothing here: leave it out")
        if isinstance(event, ScalarEvent):
            if found := re.search("[\0\ud800-\udfff]", event.value):
                raise YamlMistake(mark, (), f"this holds U+{ord(found[0]):04X}, which no text can: take it out")
            node = _Node(mark, event.value, "plain" if event.style in (None, "") else "quoted")
        elif isinstance(event, SequenceStartEvent):
            node = _Node(mark, list(self._children(SequenceEndEvent, depth)), "list")
        else:
            children = list(self._children(MappingEndEvent, depth))
            node = _Node(mark, list(zip(children[::2], children[1::2], strict=True)), "mapping")
        if event.anchor is not None:  # known from here on: none can hold itself
            self._anchors[event.anchor] = node
        return node

    def _children(self, end: type[Any], depth: int) -> Iterator[_Node]:
        while not isinstance(event := next(self._events), end):
            yield self._node(event, depth + 1)


def _mark(thing: Any) -> Mark:
    """Return the place of an event."""
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
            root = _Composer(text).root()
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

    def _resolved(self, node: _Node, location: Location) -> Any:
        """Return the value of a node, and note its place."""
        if len(self.marks) + len(self.key_marks) >= _MOST_VALUES:
            raise YamlMistake(node.mark, location, _TOO_MANY)
        if len(location) > _MOST_DEPTH:  # an alias lies as deep as what it stands for, below its own place
            raise YamlMistake(node.mark, location, _TOO_DEEP)
        self.marks[location] = node.mark
        if isinstance(node.content, str):
            if node.kind == "quoted":
                return node.content
            self.written[location] = node.content
            return _plain_value(node, node.content, location)
        if node.kind == "list":
            return [self._resolved(child, (*location, n)) for n, child in enumerate(node.content)]  # type: ignore[arg-type]
        found: dict[str, Any] = {}
        for key_node, value_node in node.content:  # type: ignore[misc]
            key = self._key(key_node, location)
            own = (*location, key)
            if key in found:
                first = self.key_marks[own].line
                raise YamlMistake(key_node.mark, own, f"stands twice, first in line {first}: leave one out")
            self.key_marks[own] = key_node.mark
            found[key] = self._resolved(value_node, own)
        return found

    def _key(self, node: _Node, location: Location) -> str:
        if not isinstance(node.content, str):
            raise YamlMistake(node.mark, location, "a list or mapping cannot be a key")
        if node.kind == "plain" and _plain_value(node, node.content, location) != node.content:
            what = f"{shortened(node.content)} is none: put it in quotes" if node.content else "here is none"
            raise YamlMistake(node.mark, location, f"a key is a text, and {what}")
        return node.content

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


def _plain_value(node: _Node, text: str, location: Location) -> Any:
    """Return what a plain scalar is; a number that cannot be meant is a mistake."""
    try:
        return core_schema_value(text)
    except UsageError as error:
        raise YamlMistake(node.mark, location, str(error)) from error


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
