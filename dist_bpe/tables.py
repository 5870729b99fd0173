"""Results that are tables: for notebooks, and for other libraries through Arrow."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dist_bpe.errors import printable

if TYPE_CHECKING:
    import pyarrow as pa

# Rows that a notebook shows.
MOST_ROWS = 20


class Tabular:
    """A result that is a table: polars, duckdb, pandas and whatever else knows Arrow's PyCapsule interface take it."""

    def _described(self) -> str:
        """The result in a line; names in it are data, and need not be printable."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return printable(self._described())

    def to_arrow(self) -> "pa.Table":
        """The rows as a table of pyarrow."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The rows as a DataFrame of pandas, which is imported only now."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows, for other libraries."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        table = self.to_arrow()
        return html_table(repr(self), table.slice(0, MOST_ROWS).to_pylist(), table.num_rows)


def arrow_table(columns: Mapping[str, Sequence[Any]]) -> "pa.Table":
    """Columns of texts, of whole numbers or of other numbers, each with or without None, as a table; without pandas.

    Raises:
        OverflowError: a whole number below 0 or past 2^64 - 1.
    """
    import pyarrow as pa

    return pa.table({name: _column(values) for name, values in columns.items()})


def _column(values: Sequence[Any]) -> Any:
    import numpy as np
    import pyarrow as pa

    from dist_bpe.arrays import of_texts

    there = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in there):
        return of_texts(values)
    kind = np.uint64 if there and all(isinstance(value, int) for value in there) else np.float64
    data = np.fromiter((0 if value is None else value for value in values), kind, len(values))
    valid = None
    if len(there) < len(values):
        flags = np.fromiter((value is not None for value in values), bool, len(values))
        valid = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(data.dtype), len(values), [valid, pa.py_buffer(data)])


def html_table(caption: str, rows: Iterable[Mapping[str, Any]], number: int | None = None) -> str:
    """Rows as a small table for a notebook.

    Names are data: all text is escaped, and what would turn round or break a line is written out.

    Args:
        caption: stands above.
        rows: those to show.
        number: how many there are in all, where that is more.
    """
    rows = list(rows)
    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{_escaped(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in rows)
    more = f"<p>… and {number - len(rows):,} more rows</p>" if number and number > len(rows) else ""
    return (
        f"<div><p>{_escaped(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        return f'<td style="text-align:right">{shown}</td>'
    return f"<td>{'' if value is None else _escaped(value)}</td>"


def _escaped(value: Any) -> str:
    return html.escape(printable(str(value)))
