"""Arrow's structures from strangers: whatever is wrong with them is an error, and they are released once."""

import ctypes
import gc
import threading
import unittest

import slackwater
from engine import needs, needs_engine

P = ctypes.c_void_p


class Schema(ctypes.Structure):
    """struct ArrowSchema"""


class Array(ctypes.Structure):
    """struct ArrowArray"""


RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
RELEASE_ARRAY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))

Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64), ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))), ("dictionary", ctypes.POINTER(Schema)),
    ("release", RELEASE_SCHEMA), ("private_data", P),
]  # fmt: skip
Array._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(P)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))), ("dictionary", ctypes.POINTER(Array)),
    ("release", RELEASE_ARRAY), ("private_data", P),
]  # fmt: skip

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [P, ctypes.c_char_p, P]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = P, [ctypes.py_object, ctypes.c_char_p]


class Stranger:
    """An object with Arrow's methods whose structures are made by hand, and that counts their releases."""

    def __init__(self, format, buffers=(), children=(), **facts):
        self.released = []
        self.kept = []
        self.schema, self.array = self.made(format, buffers, children, **facts)

    def made(self, format, buffers=(), children=(), name=b"n", **facts):
        release_schema = RELEASE_SCHEMA(lambda at: self.release(at, "schema", RELEASE_SCHEMA))
        release_array = RELEASE_ARRAY(lambda at: self.release(at, "array", RELEASE_ARRAY))
        pointers = (P * max(len(buffers), 1))()
        for number, buffer in enumerate(buffers):
            # A pointer, or bytes; None is a null pointer.
            held = ctypes.create_string_buffer(buffer, len(buffer)) if isinstance(buffer, bytes) else buffer
            self.kept.append(held)
            pointers[number] = ctypes.addressof(held) if isinstance(buffer, bytes) else held
        own = [self.made(*child) for child in children]
        schemas = (ctypes.POINTER(Schema) * max(len(own), 1))(*[ctypes.pointer(one) for one, _ in own])
        arrays = (ctypes.POINTER(Array) * max(len(own), 1))(*[ctypes.pointer(one) for _, one in own])
        schema = Schema(format=format, name=name, flags=2, n_children=len(own), children=schemas)
        schema.release = release_schema
        array = Array(
            length=facts.pop("length", 2), null_count=facts.pop("null_count", 0),
            offset=facts.pop("offset", 0), n_buffers=len(buffers), n_children=len(own),
            buffers=pointers, children=arrays,
        )  # fmt: skip
        array.release = release_array
        for fact, value in facts.items():
            of, _, field = fact.partition("_of_") if "_of_" in fact else ("array", "", fact)
            setattr(schema if of == "schema" else array, field, value)
        self.kept += [release_schema, release_array, pointers, own, schemas, arrays, schema, array]
        return schema, array

    def release(self, at, kind, callback):
        at.contents.release = callback(0)
        self.released.append(kind)

    def __arrow_c_array__(self, requested_schema=None):
        schema = new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None)
        array = new_capsule(ctypes.addressof(self.array), b"arrow_array", None)
        return schema, array


TWO = (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
NUMBERS = (b"l", (None, TWO))


def rows(stranger):
    return slackwater.Rows.of(stranger).to_pylist()


def row_of(*children, **facts):
    return Stranger(b"+s", (None,), children, **facts)


def null(of):
    return ctypes.POINTER(of)()


@needs_engine
class Strangers(unittest.TestCase):
    def test_a_valid_one_is_read_and_released_once(self):
        stranger = row_of(NUMBERS)
        self.assertEqual(rows(stranger), [{"n": 1}, {"n": 2}])
        gc.collect()
        # A parent releases its children; these do not count theirs.
        self.assertEqual(sorted(stranger.released), ["array", "schema"])
        with self.assertRaisesRegex(slackwater.SqlError, "was released"):
            rows(stranger)
        self.assertEqual(sorted(stranger.released), ["array", "schema"])

    def test_rows_keep_it_until_they_are_dropped_on_any_thread(self):
        stranger = row_of(NUMBERS)
        kept = [slackwater.Rows.of(stranger)]
        self.assertEqual(stranger.released, ["schema"])
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        self.assertEqual(stranger.released, ["schema", "array"])

    def test_arrays_that_are_wrong(self):
        views = (b"vu", (None, bytes(32), (8).to_bytes(8, "little")))
        views_negative = (b"vu", (None, bytes(32), b"data", (-1).to_bytes(8, "little", signed=True)))
        large, nine = (1 << 62).to_bytes(8, "little"), (9).to_bytes(4, "little")
        for said, stranger in {
            "a negative length": row_of(NUMBERS, length=-1),
            "a negative offset": row_of(NUMBERS, offset=-1),
            "more rows than memory": Stranger(*NUMBERS, length=(1 << 63) - 1),
            "an offset that overflows": Stranger(*NUMBERS, length=(1 << 63) - 1, offset=(1 << 63) - 1),
            "an offset past the child": row_of(NUMBERS, offset=7),
            "more rows than the child": row_of(NUMBERS, length=3),
            "too few buffers": row_of((b"l", (TWO,))),
            "too many buffers": row_of((b"l", (None, TWO, TWO))),
            "a negative number of buffers": Stranger(b"+s", (None,), (NUMBERS,), n_buffers=-1),
            "numbers without values": row_of((b"l", (None, None))),
            "no pointer to buffers": row_of(NUMBERS, array_of_buffers=null(P)),
            "no pointer to children": row_of(NUMBERS, array_of_children=null(ctypes.POINTER(Array))),
            "too few children": row_of(NUMBERS, n_children=0),
            "strings without values": row_of((b"u", (None, bytes(4) + (5).to_bytes(4, "little") * 2, None))),
            "large strings without values": row_of((b"U", (None, bytes(8) + large + large, None))),
            "views without their buffers": row_of((views[0], views[1][:2])),
            "views whose lengths are missing": row_of((b"vu", (None, bytes(32), b"data", None))),
            "views with a negative length": row_of(views_negative),
            "a list past its items": row_of((b"+l", (None, bytes(4) + nine * 2), (NUMBERS,))),
        }.items():
            with self.subTest(said):
                with self.assertRaises(slackwater.SqlError) as raised:
                    rows(stranger)
                self.assertIn("Arrow", str(raised.exception))
                self.assertNotIn("panic", str(raised.exception).lower())
                gc.collect()
                self.assertEqual(sorted(stranger.released), ["array", "schema"], said)

    def test_schemas_that_are_wrong(self):
        for said, stranger in {
            "no format": row_of(NUMBERS, schema_of_format=None),
            "an unknown type": Stranger(b"?", (None, TWO)),
            "a negative size": row_of((b"w:-1", (None, TWO))),
            "a list of a negative size": row_of((b"+w:-1", (None,), (NUMBERS,))),
            "a list without items": row_of((b"+l", (None, bytes(12)))),
            "too precise": row_of((b"d:200,0", (None, bytes(32)))),
            "a negative precision": row_of((b"d:-1,0", (None, bytes(32)))),
            "no pointer to children": row_of(NUMBERS, schema_of_children=null(ctypes.POINTER(Schema))),
        }.items():
            with self.subTest(said):
                with self.assertRaises(slackwater.SqlError) as raised:
                    rows(stranger)
                self.assertNotIn("panic", str(raised.exception).lower())
                gc.collect()
                self.assertEqual(sorted(stranger.released), ["array", "schema"], said)

    def test_capsules_that_are_wrong(self):
        class Swapped(Stranger):
            def __arrow_c_array__(self, requested_schema=None):
                return tuple(reversed(super().__arrow_c_array__()))

        class Nothing(Stranger):
            def __arrow_c_array__(self, requested_schema=None):
                return None, 7

        for kind in (Swapped, Nothing):
            stranger = kind(*NUMBERS)
            with self.assertRaises((TypeError, ValueError)):
                rows(stranger)
            self.assertEqual(stranger.released, [])

    @needs("pyarrow")
    def test_what_is_exported_may_be_released_twice(self):
        session = slackwater.Session()
        session.register("t", [(1, "a"), (2, "b")], schema="n BIGINT, s STRING")
        batch = session.sql("SELECT n, s FROM t").rows().batches[0]
        capsules = batch.__arrow_c_array__()
        schema = Schema.from_address(capsule_pointer(capsules[0], b"arrow_schema"))
        array = Array.from_address(capsule_pointer(capsules[1], b"arrow_array"))
        for structure in (schema, array):
            release = type(structure.release)(ctypes.cast(structure.release, P).value)
            release(ctypes.byref(structure))
            self.assertFalse(structure.release)
            release(ctypes.byref(structure))
        del capsules
        gc.collect()
        self.assertEqual(batch.to_pylist(), [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}])
