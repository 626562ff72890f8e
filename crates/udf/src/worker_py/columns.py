"""Columns as arrays of pyarrow. This file follows `values.py`: both are one program, with
`aggregates.py` and `main.py`."""


class Columns:
    """Reads arguments and writes results as arrays of pyarrow, in the memories themselves."""

    def __init__(self):
        try:
            import pyarrow
        except ImportError:
            raise ImportError(
                "'mode' = 'columns' needs pyarrow, which this Python does not have: "
                f"{sys.executable} -m pip install pyarrow"
            ) from None
        self.pa = pyarrow

    def type_of(self, kind):
        pa, name = self.pa, kind["kind"]
        if name == "decimal":
            return pa.decimal128(kind["precision"], kind["scale"])
        if name == "timestamp":
            return pa.timestamp(kind["unit"])
        if name == "list":
            return pa.list_(self.type_of(kind["item"]))
        if name == "row":
            return pa.struct([(field, self.type_of(of_field)) for field, of_field in kind["fields"]])
        if name == "time":
            return pa.time64("us")
        return {"bool": pa.bool_, "bytes": pa.binary, "date": pa.date32}.get(
            name, getattr(pa, name, None)
        )()

    def read(self, buffer, kinds):
        self.place = HEADER_BYTES
        return [self.array(buffer, kind) for kind in kinds]

    def array(self, buffer, kind):
        length, null_count, valid_at, valid_bytes, *places = NODE.unpack_from(buffer, self.place)
        self.place += NODE.size
        first_at, first_bytes, second_at, second_bytes = places
        buffers = [buffer.slice(valid_at, valid_bytes) if null_count else None]
        children, name = [], kind["kind"]
        if name != "row":
            buffers.append(buffer.slice(first_at, first_bytes))
        if name in ("string", "bytes"):
            buffers.append(buffer.slice(second_at, second_bytes))
        elif name == "list":
            children = [self.array(buffer, kind["item"])]
        elif name == "row":
            children = [self.array(buffer, of_field) for _, of_field in kind["fields"]]
        make = self.pa.Array.from_buffers
        return make(self.type_of(kind), length, buffers, null_count, 0, children)

    def of(self, result, wanted):
        """A result as an array of the wanted type."""
        pa = self.pa
        if not isinstance(result, (pa.Array, pa.ChunkedArray)):
            if hasattr(result, "to_arrow"):
                result = result.to_arrow()
            elif isinstance(result, (str, bytes)) or not hasattr(result, "__len__"):
                raise TypeError(f"it has returned {type(result).__name__} instead of a column")
            elif hasattr(result, "dtype") or hasattr(result, "__arrow_c_array__"):
                result = pa.array(result)
            else:
                result = pa.array(result, type=wanted)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
            if isinstance(result, pa.ChunkedArray):
                result = pa.concat_arrays(result.chunks)
        if result.type != wanted:
            try:
                result = result.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                given = result.type
                raise TypeError(f"it has returned {given} instead of {wanted}: {error}") from None
        return result

    def write(self, writer, kind, column):
        pa = self.pa
        if column.offset:
            # Concatenating copies what the array shows, from its first value on.
            column = pa.concat_arrays([column, column.slice(0, 0)])
        length, name = len(column), kind["kind"]
        buffers = column.buffers()
        valid = None
        if column.null_count:
            valid = writer.buffer(buffers[0].slice(0, (length + 7) // 8))
        if name == "row":
            writer.node(length, column.null_count, valid)
            for number, (_, of_field) in enumerate(kind["fields"]):
                self.write(writer, of_field, column.field(number).slice(0, length))
            return
        width = {"string": 4, "bytes": 4, "list": 4, "decimal": 16}.get(name) or column.type.bit_width / 8
        entries = length + 1 if name in ("string", "bytes", "list") else length
        size = (entries + 7) // 8 if name == "bool" else int(entries * width)
        data = buffers[1]
        if entries > length and (data is None or data.size < size):
            data = pa.py_buffer(bytes(size))  # An empty array may have no offsets.
        first = writer.buffer(data.slice(0, size) if size else b"")
        second = None
        if name in ("string", "bytes"):
            end = struct.unpack_from("<i", data, 4 * length)[0]
            second = writer.buffer(buffers[2].slice(0, end) if end else b"")
        writer.node(length, column.null_count, valid, first, second)
        if name == "list":
            end = struct.unpack_from("<i", data, 4 * length)[0]
            self.write(writer, kind["item"], column.values.slice(0, end))
