"""Signatures and annotations of the reader's functions, also where an annotation names what is not there.

Since Python 3.14 an annotation is evaluated when somebody asks for it, and not at the `def` (PEP 649). A function whose
annotations name something that is not imported can be defined and called there; only `inspect.signature` and
`__annotations__` raise NameError.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    import annotationlib

    def signature_of(function: Callable[..., Any]) -> inspect.Signature:
        """As inspect.signature; what an annotation names and is not there, stands in it as a forward reference."""
        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)

    def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
        """As `function.__annotations__`; an annotation that names what is not there is its text, as if it were quoted."""
        found = annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
        return {
            name: value.__forward_arg__ if isinstance(value, annotationlib.ForwardRef) else value
            for name, value in found.items()
        }

else:

    def signature_of(function: Callable[..., Any]) -> inspect.Signature:
        """As inspect.signature."""
        return inspect.signature(function)

    def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
        """As `function.__annotations__`."""
        return function.__annotations__
