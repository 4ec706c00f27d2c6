"""Arrays as JSON, for requests and answers over HTTP: base64 takes 4/3 of the bytes, and any server can read it."""

import base64
import binascii
import json
from typing import Any

import numpy as np

from hpml_lab.core.system.errors import LabError

DTYPE = np.dtype("<f4")  # little-endian float32


def pack(array: np.ndarray) -> dict[str, Any]:
    """The array as a dictionary that JSON can write: its shape, and its float32 values in base64."""
    values = np.ascontiguousarray(array, dtype=DTYPE)
    return {"shape": list(values.shape), "data": base64.b64encode(values.tobytes()).decode("ascii")}


def unpack(message: dict[str, Any]) -> np.ndarray:
    """The array in a dictionary of `pack`; LabError for one that is damaged."""
    try:
        values = np.frombuffer(base64.b64decode(message["data"], validate=True), DTYPE)
        return values.reshape([int(length) for length in message["shape"]])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise LabError(
            f"a message holds no array ({type(error).__name__}: {error}).",
            "Send the dictionary that array_message.pack makes: shape, and float32 values in base64.",
        ) from error


def encode(array: np.ndarray) -> bytes:
    """The body of a request."""
    return json.dumps(pack(array)).encode()


def decode(body: bytes) -> tuple[np.ndarray, int]:
    """The array in an answer, and how many requests the batch had in which it was computed."""
    try:
        message = json.loads(body)
        return unpack(message), int(message["batch"])
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"an answer cannot be read ({type(error).__name__}: {error}).", "Check that the address belongs to this server."
        ) from error
