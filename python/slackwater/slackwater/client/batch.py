"""Rows that a server has sent: as Arrow where pyarrow is installed, otherwise as values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..base import Batch

if TYPE_CHECKING:
    import pyarrow


class ArrowColumn:
    """A column of Arrow."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    @property
    def type(self) -> str:
        """Its type, as pyarrow writes it."""
        return str(self._array.type)

    @property
    def null_count(self) -> int:
        """How many values are NULL."""
        return int(self._array.null_count)

    def to_pylist(self) -> list[Any]:
        """Its values."""
        return _values(self._array)

    def to_numpy(self) -> Any:
        """An array of NumPy; a copy if there are NULLs or strings."""
        return self._array.to_numpy(zero_copy_only=False)

    def __getitem__(self, row: int, /) -> Any:
        return _values(self._array.slice(_place(row, len(self)), 1))[0]

    def __arrow_c_schema__(self) -> object:
        return self._array.type.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._array.__arrow_c_array__(requested_schema)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.to_numpy().astype(dtype or None, copy=bool(copy))


class ArrowBatch:
    """A batch of Arrow."""

    def __init__(self, batch: pyarrow.RecordBatch) -> None:
        self._batch = batch

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self._batch.num_rows)

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return int(self._batch.num_columns)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._batch.schema.names)

    def __len__(self) -> int:
        return self.num_rows

    def column(self, which: int | str, /) -> ArrowColumn:
        """A column, by its number or name."""
        return ArrowColumn(self._batch.column(_which(which, self.column_names)))

    __getitem__ = column

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        names = self.column_names
        columns = [_values(column) for column in self._batch.columns]
        return [dict(zip(names, row)) for row in zip(*columns)]

    def to_arrow(self) -> Any:
        """A `pyarrow.RecordBatch`."""
        return self._batch

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        return self._batch.to_pandas()

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        import polars

        return polars.DataFrame(self._batch)

    def __arrow_c_schema__(self) -> object:
        return self._batch.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)

    def __repr__(self) -> str:
        return f"<slackwater batch of {self.num_rows} rows ({', '.join(self.column_names)})>"


class ValueColumn:
    """A column of values."""

    def __init__(self, sql_type: str, values: list[Any]) -> None:
        self._type, self._values = sql_type, values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def type(self) -> str:
        """Its type, as SQL writes it."""
        return self._type

    @property
    def null_count(self) -> int:
        """How many values are NULL."""
        return sum(value is None for value in self._values)

    def to_pylist(self) -> list[Any]:
        """Its values."""
        return list(self._values)

    def to_numpy(self) -> Any:
        """An array of NumPy."""
        import numpy

        return numpy.array(self._values)

    def __getitem__(self, row: int, /) -> Any:
        return self._values[_place(row, len(self))]


class ValueBatch:
    """A batch of values, where pyarrow is not installed."""

    def __init__(self, columns: Sequence[tuple[str, str]], rows: list[list[Any]]) -> None:
        self._columns, self._rows = columns, rows

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self._rows)

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return len(self._columns)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self._columns]

    def __len__(self) -> int:
        return self.num_rows

    def column(self, which: int | str, /) -> ValueColumn:
        """A column, by its number or name."""
        number = _which(which, self.column_names)
        return ValueColumn(self._columns[number][1], [row[number] for row in self._rows])

    __getitem__ = column

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        names = self.column_names
        return [dict(zip(names, row)) for row in self._rows]

    def to_arrow(self) -> Any:
        """A `pyarrow.RecordBatch`."""
        import pyarrow

        return pyarrow.RecordBatch.from_pylist(self.to_pylist())

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        import pandas

        return pandas.DataFrame(self._rows, columns=self.column_names)

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        import polars

        columns = {name: [row[at] for row in self._rows] for at, name in enumerate(self.column_names)}
        return polars.DataFrame(columns, strict=False)

    def __repr__(self) -> str:
        return f"<slackwater batch of {self.num_rows} rows ({', '.join(self.column_names)})>"


class Rows:
    """All rows of a result. `schema` is that of Arrow, if the batches are Arrow's."""

    def __init__(self, names: list[str], batches: Sequence[Batch], schema: Any = None) -> None:
        self.column_names, self.batches, self._schema = names, batches, schema

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return sum(len(batch) for batch in self.batches)

    def __len__(self) -> int:
        return self.num_rows

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        return [row for batch in self.batches for row in batch.to_pylist()]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow

        batches = [batch.to_arrow() for batch in self.batches]
        table = pyarrow.Table.from_batches(batches, self._schema)
        return table.__arrow_c_stream__(requested_schema)


def _which(which: int | str, names: list[str]) -> int:
    if isinstance(which, int):
        return _place(which, len(names))
    if which not in names:
        raise KeyError(which)
    return names.index(which)


def _place(row: int, length: int) -> int:
    if not -length <= row < length:
        raise IndexError(row)
    return row % length


def _values(array: Any) -> list[Any]:
    """The values of an array of pyarrow, as those of this process's engine are."""
    import pyarrow

    kind = array.type
    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        # Python's times have microseconds.
        array = array.cast(pyarrow.timestamp("us", kind.tz), safe=False)
    values: list[Any] = array.to_pylist()
    return values


def of_json(value: Any, sql_type: str) -> Any:
    """A value of JSON as one of a type. Numbers with a point come as `Number`."""
    if value is None:
        return None
    base = sql_type.partition("(")[0].partition("<")[0]
    if base == "DOUBLE":
        return float(value)
    if base == "FLOAT":
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if base == "DECIMAL":
        return Decimal(str(value))
    if base == "DATE":
        return date.fromisoformat(value)
    if base in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        whole, _, digits = value.partition(".")
        time = datetime.fromisoformat(whole)
        return time.replace(microsecond=int(digits[:6].ljust(6, "0"))) if digits else time
    if base == "ARRAY":
        item = sql_type[len("ARRAY<") : -1]
        return [of_json(one, item) for one in value]
    if base == "ROW":
        return {name: of_json(value[name], kind) for name, kind in _fields(sql_type)}
    return value


def _fields(sql_type: str) -> list[tuple[str, str]]:
    """The fields of `ROW<`a` INT, `b` ARRAY<STRING>>`."""
    text, fields, at = sql_type[len("ROW<") : -1], [], 0
    while at < len(text):
        name = ""
        at += 1
        while text[at] != "`" or text[at : at + 2] == "``":
            at += 2 if text[at] == "`" else 1
            name += text[at - 1]
        begin = at = at + 2
        depth, quoted = 0, False
        while at < len(text) and (depth or quoted or text[at] != ","):
            quoted ^= text[at] == "`"
            depth += 0 if quoted else {"<": 1, "(": 1, ">": -1, ")": -1}.get(text[at], 0)
            at += 1
        fields.append((name, text[begin:at]))
        at += 2
    return fields
