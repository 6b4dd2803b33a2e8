"""Which new tensor belongs to which parameter of an engine's model, checked before anything is copied."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from whale.errors import WhaleError


def named_parameters(model: torch.nn.Module) -> list[tuple[torch.nn.Parameter, tuple[str, ...]]]:
    """Each parameter with all its names: tied ones have several."""
    names: dict[int, list[str]] = {}
    parameters: dict[int, torch.nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        parameters[id(parameter)] = parameter
    return [(parameters[key], tuple(names[key])) for key in names]


def fit_weights(
    parameters: Sequence[tuple[torch.nn.Parameter, tuple[str, ...]]], state_dict: Mapping[str, Any]
) -> list[tuple[torch.nn.Parameter, Tensor]]:
    """Pair every parameter with its new tensor, or raise WhaleError: a missing or unknown name, a wrong shape,
    tied names with different tensors.
    """
    known = {name for _, names in parameters for name in names}
    unknown = sorted(set(state_dict) - known)
    missing = sorted(names[0] for _, names in parameters if not any(name in state_dict for name in names))
    if unknown or missing:
        parts = [("unknown", unknown), ("missing", missing)]
        told = "; ".join(f"{kind} {', '.join(names[:3])} ({len(names)})" for kind, names in parts if names)
        raise WhaleError(f"the new weights do not fit the engine's model: {told}")
    chosen = []
    for parameter, names in parameters:
        given = [(name, state_dict[name]) for name in names if name in state_dict]
        name, tensor = given[0]
        if tensor.shape != parameter.shape:
            raise WhaleError(
                f"the new weights do not fit the engine's model: {name} is {tuple(tensor.shape)}, "
                f"not {tuple(parameter.shape)}"
            )
        for other, twin in given[1:]:
            if twin.data_ptr() != tensor.data_ptr() and not torch.equal(twin, tensor):
                raise WhaleError(f"the new weights do not fit the engine's model: {name} and {other} are tied")
        chosen.append((parameter, tensor))
    return chosen
