"""Named tuples of arrays that compiled code takes as one pointer.

A tuple of arrays is passed to compiled code as seven words an array: about 200 of a
state, at each call that is not inlined. Here it is the address of ``words``: data and
shape of each array, in the order of the fields; strides follow, since all are
C-contiguous. The words never change while compiled code runs, so LLVM loads them once.
Behind them stand those of ``by_rank``, where the tuple has ranks.
"""

from functools import cached_property
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    models,
    register_model,
    typeof_impl,
    unbox,
)

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])
_WORD = ir.IntType(64)
_BY_RANK = "by_rank"


class _ByPointer:
    """What :func:`by_pointer` adds to a named tuple of arrays."""

    # of each array: its type, its dimensions, whether compiled code writes to it
    _kinds: tuple[tuple[np.dtype, int, bool], ...]

    @cached_property
    def words(self) -> np.ndarray:
        """Data and shape of each array, then those of ``by_rank``; int64."""
        found = _words(self, self._kinds)
        if hasattr(self, "ranks"):
            found += _words(getattr(self, _BY_RANK), self._kinds)
        return np.array(found, np.int64)

    def __getstate__(self) -> None:
        """Keep no addresses in a copy."""


def _kinds(arrays: Any) -> tuple[tuple[np.dtype, int, bool], ...]:
    return tuple((each.dtype, each.ndim, each.flags.writeable) for each in arrays)


def _words(arrays: Any, kinds: tuple[tuple[np.dtype, int, bool], ...]) -> list[int]:
    found: list[int] = []
    for each, (dtype, ndim, written) in zip(arrays, kinds, strict=True):
        array = np.ndarray.view(each, np.ndarray)  # quick, also where it is a recarray
        flags = array.flags
        if array.dtype != dtype or array.ndim != ndim or not flags.c_contiguous:
            raise TypeError(
                f"{array.ndim} dimensions of {array.dtype}; expected contiguous {ndim} "
                f"of {dtype}"
            )
        if written and not flags.writeable:
            raise TypeError(f"a read-only array of {dtype}; expected a writable one")
        found += [array.ctypes.data, *array.shape]
    return found


def by_pointer(fields: type[Arrays]) -> type[Arrays]:
    """Return a named tuple of arrays that can be passed by pointer."""
    names = {"__doc__": fields.__doc__, "__module__": fields.__module__}
    return type(fields.__name__, (_ByPointer, fields), names)


def pointer_to(example: Any) -> "Pointer":
    """Return the type of what is like ``example``, of a class of :func:`by_pointer`."""
    cls = type(example)
    pointer = Pointer(
        cls.__name__, {k: numba.typeof(v) for k, v in example._asdict().items()}
    )
    cls._kinds = _kinds(example)
    typeof_impl.register(cls)(lambda value, context: pointer)
    return pointer


class Pointer(types.Type):
    """Numba's type of a named tuple passed by pointer."""

    def __init__(self, name: str, fields: dict[str, types.Array]) -> None:
        self.fields = fields
        self.at: dict[str, int] = {}  # index of a field's first word
        self.word_count = 0
        for field, array in fields.items():
            self.at[field] = self.word_count
            self.word_count += 1 + array.ndim
        super().__init__(name)


@register_model(Pointer)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, pointer: Pointer) -> None:
        super().__init__(manager, pointer, _WORD.as_pointer())


@infer_getattr
class _Attributes(AttributeTemplate):
    key = Pointer

    def generic_resolve(self, pointer: Any, name: str) -> Any:  # type: ignore[override]
        """Return the type of a field."""
        has_ranks = name == _BY_RANK and "ranks" in pointer.fields
        return pointer if has_ranks else pointer.fields.get(name)


@lower_getattr_generic(Pointer)
def _lower(context: Any, builder: Any, pointer: Pointer, value: Any, name: str) -> Any:
    if name == _BY_RANK:
        return builder.gep(value, [ir.Constant(_WORD, pointer.word_count)])
    array_type = pointer.fields[name]
    array = context.make_array(array_type)(context, builder)

    def word(index: int) -> Any:
        """Load a word that never changes: one by one, so that LLVM keeps the mark."""
        at = [ir.Constant(_WORD, pointer.at[name] + index)]
        loaded = builder.load(builder.gep(value, at, inbounds=True))
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    itemsize = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
    shape = [word(1 + axis) for axis in range(array_type.ndim)]
    strides = [ir.Constant(_WORD, itemsize)]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    items = shape[0]
    for length in shape[1:]:
        items = builder.mul(items, length)
    array.data = builder.inttoptr(word(0), array.data.type)
    array.shape = cgutils.pack_array(builder, shape)
    array.strides = cgutils.pack_array(builder, strides)
    array.itemsize = ir.Constant(_WORD, itemsize)
    array.nitems = items
    return array._getvalue()


@unbox(Pointer)
def _unbox(pointer: Pointer, value: Any, c: Any) -> NativeValue:
    builder, kind = c.builder, types.Array(types.int64, 1, "C")
    found = cgutils.alloca_once_value(builder, ir.Constant(_WORD.as_pointer(), None))
    failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
    words = c.pyapi.object_getattr_string(value, "words")
    with builder.if_then(cgutils.is_not_null(builder, words)):
        native = c.unbox(kind, words)
        array = c.context.make_array(kind)(c.context, builder, native.value)
        builder.store(array.data, found)
        builder.store(native.is_error, failed)
        c.pyapi.decref(words)  # the tuple keeps them
    return NativeValue(builder.load(found), is_error=builder.load(failed))
