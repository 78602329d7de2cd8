"""Calls a traced function for no more than TensorFlow's runtime itself takes.

TensorFlow checks and packs a concrete function's arguments in Python, one by one, which takes
longer than a chunk of a few steps. A chunk's arguments always have the types of the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context


def flat_call(function: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """How to call a concrete function with a flat list of tensors, for a flat list.

    Parameters
    ----------
    function : tensorflow ConcreteFunction
        It must live as long as the result is used.
    """
    try:
        call, name = context.context().call_function, function._inference_function.name
    except AttributeError:  # these aren't public: another release may have others
        (signature, _) = function.structured_input_signature
        pack, flatten = tf.nest.pack_sequence_as, tf.nest.flatten
        return lambda tensors: flatten(function(*pack(signature, list(tensors))))
    captured, outputs = list(function.captured_inputs), len(function.outputs)
    return lambda tensors: call(name, [*tensors, *captured], outputs)
