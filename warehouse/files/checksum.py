"""Checksums of stored files: at the end of each JSON object, and in each sealed Parquet file.

CRC-32 detects every change of one bit and of up to 32 neighbouring bits. In JSON it is the last key of an object
(``,"crc":"0a1b2c3d"}``) and covers all bytes before it. In Parquet it is between the last page and the footer.
Readers follow the footer's offsets and do not look there. Parquet's own page checksums would leave out the footer,
which is most of a small segment, and DuckDB does not verify them. Packs need none, because DuckDB's blocks have their
own. Files of earlier versions lack a checksum and are read as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

_KEY = b',"crc":"'
_LENGTH = len(_KEY) + 8 + len(b'"}')

_PARQUET_TAG = b"userrl-crc32"


def stamped(members: bytes) -> bytes:
    """Return a JSON object with its checksum as the last key. members: the object without its closing brace; at least
    one member.
    """
    return b'%b,"crc":"%08x"}' % (members, crc32(members))


def intact(json_object: bytes) -> bool | None:
    """Return True if an object is unchanged; None without a checksum."""
    end = json_object[-_LENGTH:]
    if not end.startswith(_KEY):
        # One byte away from the key: the checksum's own name was hit. No row of an earlier version ends like that.
        near = len(end) == _LENGTH and sum(a != b for a, b in zip(end, _KEY, strict=False)) == 1
        return False if near and end.endswith(b'"}') else None
    return end[len(_KEY) :] == b'%08x"}' % crc32(memoryview(json_object)[:-_LENGTH])


@dataclass(frozen=True, slots=True)
class Lines:
    """The content of a live file. trusted: the trusted lines. damaged: number of lines left out because they fail their
    checksum. torn_bytes: length of an incomplete last line. checked: True if the file has checksums.
    """

    trusted: bytes
    damaged: int
    torn_bytes: int
    checked: bool


def verified_lines(content: bytes) -> Lines:
    """Sort the lines of a live file. One process writes a file, so either all of its lines have checksums or none."""
    end = content.rfind(b"\n") + 1
    lines, tail = content[:end], content[end:]
    outcomes = [intact(line) for line in lines.split(b"\n")[:-1]]
    if intact(tail):
        # Its writer died, or is read, between the row and its newline: a row, as queries take it.
        lines, tail = lines + tail + b"\n", b""
        outcomes.append(True)
    # A last line that only its end tells from a whole one is no torn one.
    changed_end = intact(tail[:-1]) is True
    checked = changed_end or any(outcome is not None for outcome in outcomes)
    damaged = sum(outcome is not True for outcome in outcomes) if checked else 0
    if damaged:
        good = (line for line, outcome in zip(lines.split(b"\n"), outcomes, strict=False) if outcome)
        lines = b"".join(line + b"\n" for line in good)
    if changed_end:
        return Lines(lines, damaged + 1, 0, checked)
    return Lines(lines, damaged, len(tail), checked)


def stamped_parquet(content: bytes) -> bytes:
    """Return a Parquet file with its checksum."""
    at = _footer(content)
    return b"".join((content[:at], _PARQUET_TAG, crc32(content).to_bytes(4), content[at:]))


def intact_parquet(content: bytes) -> bool | None:
    """Return True if a Parquet file is unchanged; None without a checksum, or without a footer to find it by."""
    at = _footer(content)
    start = at - len(_PARQUET_TAG) - 4
    if start < 0 or content[start : at - 4] != _PARQUET_TAG:
        return None
    view = memoryview(content)
    return crc32(view[at:], crc32(view[:start])) == int.from_bytes(content[at - 4 : at])


def _footer(content: bytes) -> int:
    """Return the offset of the footer. The file ends with the footer's length in four bytes, and four letters."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")
