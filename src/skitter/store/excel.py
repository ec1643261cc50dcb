"""Excel files: a row for each item, a column for each field. Needs xlsxwriter.

The lines are read twice: first to find the columns, then to write. Rows are written to disk immediately, so memory does
not grow with their number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, BinaryIO

import msgspec
import xlsxwriter

from skitter.errors import counted

log = logging.getLogger("skitter.store")

MAX_ROWS = 1_048_576
"""Maximum number of rows in a sheet, including its header. Further items go to further sheets."""
MAX_COLUMNS = 16_384
"""Maximum number of columns in a sheet. Further fields are left out, and a warning reports their number."""
MAX_TEXT = 32_767
"""Maximum number of characters in a cell of Excel. Longer texts are cut, and a warning reports their number."""
_MAX_EXACT = 10**15
"""Excel stores numbers as floating point with 15 digits. Larger integers are written as text."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def write_excel(
    file: BinaryIO,
    lines: Callable[[], Iterable[bytes]],
    fields: Sequence[str],
    *,
    max_rows: int = MAX_ROWS,
) -> None:
    """Write JSON lines to an open file; ``lines`` is called twice.

    Strings are always text, never formulas or links. Lists and objects are written as JSON text.
    """
    columns = dict.fromkeys(fields)
    if not columns:
        for line in lines():
            columns.update(dict.fromkeys(_decode(line)))
    if (surplus := len(columns) - MAX_COLUMNS) > 0:
        columns = dict.fromkeys(islice(columns, MAX_COLUMNS))
        log.warning(
            "left out %s, because a sheet of Excel has at most %d columns",
            counted(surplus, "field"),
            MAX_COLUMNS,
        )
    cut = row = 0
    sheet: Any = None
    with xlsxwriter.Workbook(file, {"constant_memory": True}) as book:
        for line in lines():
            if sheet is None or row == max_rows:
                sheet, row = _new_sheet(book, columns), 1
            item = _decode(line)
            for column, name in enumerate(columns):
                cut += _write(sheet, row, column, item.get(name))
            row += 1
        if sheet is None:
            _new_sheet(book, columns)
    if cut:
        log.warning("cut %s to %d characters, the limit of an Excel cell", counted(cut, "text"), MAX_TEXT)


def _new_sheet(book: Any, columns: Iterable[str]) -> Any:
    number = len(book.worksheets()) + 1
    sheet = book.add_worksheet("items" if number == 1 else f"items {number}")
    sheet.freeze_panes(1, 0)
    for column, name in enumerate(columns):
        sheet.write_string(0, column, name[:MAX_TEXT])
    return sheet


def _write(sheet: Any, row: int, column: int, value: Any) -> bool:
    """Write one cell. Return whether its text was cut."""
    if value is None:
        return False
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
        return False
    if isinstance(value, int | float) and abs(value) < _MAX_EXACT:
        sheet.write_number(row, column, value)
        return False
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    sheet.write_string(row, column, text[:MAX_TEXT])
    return len(text) > MAX_TEXT
