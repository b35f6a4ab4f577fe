"""Bounded readers of JSON: line by line, element by element, and members of a zip archive.

A file of any size is read with a buffer of one element. A line or an element of more than `MAX_BYTES` is refused,
and so is an archive that inflates to more than `MAX_INFLATION` times its size.
"""

from __future__ import annotations

import codecs
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from userrl_core.chats.values import BrokenFile, broken
from userrl_core.errors import ConfigError
from userrl_core.user_path import open_file

MAX_BYTES = 64 * 2**20
"""The largest line or element of a list, in bytes (characters in a JSON document)."""
MAX_INFLATION = 200
FREE_INFLATION = 256 * 2**20
"""Bytes that every archive may inflate to, whatever its size."""
FREE_VALUES, LEAST_LENGTH = 100_000, 16
"""The elements and keys that every file may have, and the average length in characters that further ones need. Millions of empty
elements take hours to read and little room in an archive.
"""
CHUNK = 2**20
ZSTANDARD = 93
"""The compression method of zstandard in a zip archive."""
_SPACE = re.compile(r"[ \t\n\r]*")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of half of a character. Two halves that follow each other are a character."""


class RepeatedKeyError(ValueError):
    """An object of a JSON text has a key twice. Other parsers keep the last value and say nothing."""


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKeyError(f"an object has the key '{next(key for key in keys if keys.count(key) > 1)}' twice")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
"""The standard library's decoder, because orjson reads integers beyond 64 bits as floats and cannot notice a repeated key."""


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line's place (``FILE, line 3``) and its JSON object. Empty lines are skipped."""
    with open_file(path) as file:
        number = 0
        while line := file.readline(MAX_BYTES + 1):
            number += 1
            if len(line) > MAX_BYTES:
                too_large(f"{path}, line {number}", "the line")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            value = value_of(line, where)
            if not isinstance(value, dict):
                broken(where, "the line is not a JSON object")
            yield where, value


def items(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the value of each object of a JSON list, or of a file with one object per line.

    Objects may also be on several lines each. Such a file is read where its first line is not an object by itself.
    """
    with open_file(path) as file:
        start = file.read(CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
        file.seek(0)
        listed = start.startswith(b"[")
        if listed or _spread(start):
            stream = JsonStream(file, str(path))
            for number, (where, value) in enumerate(stream.elements() if listed else stream.values(), 1):
                if not isinstance(value, dict):
                    broken(f"{where}, entry {number}", "it is not a JSON object")
                yield f"{where}, entry {number}", value
            stream.finish()
            return
    yield from rows(path)


def value_of(line: bytes, where: str) -> Any:
    """Return the value of a line or a file, which may begin with a byte order mark and hold NaN and Infinity, as Python
    writes them. Raises BrokenFile.
    """
    try:
        text = line.decode("utf-8-sig")
        value = _DECODER.decode(text)
    except UnicodeDecodeError:
        broken(where, "it is not UTF-8 text")
    except RecursionError:
        broken(where, "it is nested too deeply")
    except ValueError as error:
        broken(where, _problem(error))
    if _HALF.search(text):
        check_characters(value, where)
    return value


def check_characters(value: Any, where: str) -> None:
    """Raise ConfigError if a text within a value holds half of a character, which cannot be stored."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        broken(where, "a text holds half of a character (a lone surrogate), which cannot be stored")


def _spread(start: bytes) -> bool:
    """Return True if a file starts with an object that does not end on its first line."""
    line, newline, _ = start.partition(b"\n")
    try:
        _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return bool(newline) and line.startswith(b"{")
    return False


def too_large(where: str, element: str) -> NoReturn:
    """Raise the error of an element that is beyond the limit."""
    raise BrokenFile("import.too_large", f"{where}: {element} is larger than {MAX_BYTES // 2**20} MB.")


class Tally:
    """The number of elements and keys that were read from one file, and the characters read for them."""

    def __init__(self) -> None:
        self.characters = 0
        self._values = 0

    def count(self, where: str) -> None:
        """Count one element or key. Raises ConfigError for a file of too many tiny ones."""
        self._values += 1
        if self._values > FREE_VALUES and self._values * LEAST_LENGTH > self.characters:
            raise ConfigError(
                "import.too_large",
                f"{where}: there are more than {FREE_VALUES:,} values, which have fewer than {LEAST_LENGTH} characters on "
                "average. Nothing was imported.",
            )


class JsonStream:
    """One JSON document, read value by value.

    name: the file's name, for error messages. errors: ``replace`` accepts text that is not UTF-8. tally: shared by the
    documents of one archive.
    """

    def __init__(self, file: IO[bytes], name: str, errors: str = "strict", tally: Tally | None = None) -> None:
        self._file, self._name = file, name
        self._tally = tally or Tally()
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors)
        self._scan = _DECODER.raw_decode
        self._text, self._at, self._ended = "", 0, False
        self._line, self._line_at = 1, 0

    @property
    def where(self) -> str:
        """The place of the next value: file and line."""
        return f"{self._name}, line {self._line_now()}"

    def peek(self) -> str:
        """Return the next character that is not white space, or "" at the end."""
        skipped = 0
        while True:
            end = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            skipped, self._at = skipped + end - self._at, end
            if skipped > MAX_BYTES:
                too_large(self.where, "the white space before a value")
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def value(self) -> Any:
        """Return the next value as Python objects."""
        self.peek()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos > len(self._text) - 16
                if not cut or not self._more():
                    line = self._line_now() + self._text.count("\n", self._at, error.pos)
                    problem = (
                        "it ends in the middle of a value" if self._ended and cut else f"it is not JSON ({error.msg})"
                    )
                    broken(f"{self._name}, line {line}", problem)
            except RecursionError:
                broken(self.where, "it is nested too deeply")
            except ValueError as error:
                broken(self.where, _problem(error))
            else:
                # A number at the end of the buffer may continue after it.
                if end < len(self._text) or not self._more():
                    if _HALF.search(self._text, self._at, end):
                        check_characters(value, self.where)
                    self._at = end
                    return value

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield the place and the value of each document of a file that holds one after the other."""
        while self.peek():
            location = self.where
            yield location, self.value()

    def elements(self) -> Iterator[tuple[str, Any]]:
        """Yield the place and the value of each element of the list that comes next; of null, none."""
        if self.peek() == "n" and self.value() is None:
            return
        self._take("[")
        while self.peek() != "]":
            location = self.where
            self._tally.count(location)
            yield location, self.value()
            if self.peek() != "]":
                self._take(",")
        self._take("]")

    def names(self) -> Iterator[str]:
        """Yield each key of the object that comes next. The caller reads or skips the value before it continues."""
        seen: set[str] = set()
        self._take("{")
        while self.peek() != "}":
            key = self.value()
            self._tally.count(self._name)
            if not isinstance(key, str):
                broken(self.where, "a key of an object is not text")
            if key in seen:
                broken(self.where, f"an object has the key '{key}' twice")
            seen.add(key)
            self._take(":")
            yield key
            if self.peek() != "}":
                self._take(",")
        self._take("}")

    def counted(self) -> Any:
        """Return the next value. A list is read element by element, as in `skip`."""
        return [value for _, value in self.elements()] if self.peek() == "[" else self.value()

    def skip(self) -> None:
        """Skip the next value. A list is read element by element."""
        if self.peek() == "[":
            for _ in self.elements():
                pass
        else:
            self.value()

    def finish(self) -> None:
        """Raise ConfigError if anything follows the document."""
        if self.peek():
            broken(self.where, "text follows the end of the JSON document")

    def _take(self, character: str) -> None:
        if (character_read := self.peek()) != character:
            broken(
                self.where, f"expected '{character}'" if character_read else "the file ends in the middle of a value"
            )
        self._at += 1

    def _more(self) -> bool:
        """Read on; False at the end of the file. The text before the current position is dropped."""
        if self._ended:
            return False
        left = len(self._text) - self._at
        if left > MAX_BYTES:
            too_large(self.where, "a value")
        self._line_now()
        block = self._file.read(max(CHUNK, left))
        try:
            text = self._decode.decode(block, final=not block)
        except UnicodeDecodeError:
            broken(f"{self._name}, after line {self._line}", "it is not UTF-8 text")
        self._tally.characters += len(text)
        self._text, self._at = self._text[self._at :] + text, 0
        self._line_at = 0
        self._ended = not block
        return not self._ended

    def _line_now(self) -> int:
        """Return the line of the current position. Only the text since the last call is counted."""
        self._line += self._text.count("\n", self._line_at, self._at)
        self._line_at = self._at
        return self._line


class Archive:
    """A zip archive of JSON members, with a limit on what it inflates to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left = max(FREE_INFLATION, MAX_INFLATION * path.stat().st_size)
        self._tally = Tally()
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            broken(str(path), f"it is not a complete zip archive ({error})")
        self.names = tuple(self._zip.NameToInfo)
        """The members; of several with one name the last counts, as in Inspect."""

    def stream(self, name: str) -> JsonStream:
        """Return a member as a JSON document."""
        file: Any = _BoundedMember(self, self._opened(name), name)
        return JsonStream(file, f"{self._path}, member {name}", tally=self._tally)

    def spend(self, size: int, name: str) -> None:
        """Count inflated bytes, and raise ConfigError beyond the limit."""
        self._left -= size
        if self._left < 0:
            raise ConfigError(
                "import.too_large",
                f"{self._path}, member {name}: the archive inflates to more than {MAX_INFLATION} times its size. "
                "Nothing was imported.",
            )

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def _opened(self, name: str) -> IO[bytes]:
        info = self._zip.NameToInfo[name]
        try:
            if info.compress_type != ZSTANDARD:
                return self._zip.open(info)
            return self._zstandard(info)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error) as error:
            broken(f"{self._path}, member {name}", f"it cannot be read ({error})")

    def _zstandard(self, info: zipfile.ZipInfo) -> IO[bytes]:
        import pyarrow as pa

        file = self._path.open("rb")
        file.seek(info.header_offset)
        header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            file.close()
            raise zipfile.BadZipFile("its local header is damaged")
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        file.seek(name_length + extra_length, 1)
        stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(_Part(file, info.compress_size), mode="r"), "zstd")
        return stream


class _Part:
    """A file-like view of the next bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(block)
        return block

    def close(self) -> None:
        self.closed = True
        self._file.close()


class _BoundedMember:
    """A member of an archive: its inflated bytes are counted, and its checksum is compared at its end."""

    def __init__(self, archive: Archive, file: IO[bytes], name: str) -> None:
        self._archive, self._file, self._name = archive, file, name
        self._crc = 0

    def read(self, size: int) -> bytes:
        info = self._archive._zip.NameToInfo[self._name]
        try:
            block = self._file.read(size)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            broken(f"{self._archive._path}, member {self._name}", f"it is damaged ({error})")
        self._archive.spend(len(block), self._name)
        self._crc = zlib.crc32(block, self._crc)
        if not block and self._crc != info.CRC:
            broken(f"{self._archive._path}, member {self._name}", "it fails its checksum")
        return block


def _problem(error: ValueError) -> str:
    if isinstance(error, RepeatedKeyError):
        return str(error)
    detail = error.msg if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]
    return f"it is not JSON ({detail.removesuffix(' starting at')})"
