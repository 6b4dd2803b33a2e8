"""Linear layers whose weights lie as oneDNN's product wants them: the decode loop's cost on a CPU.

A decode step multiplies a few rows by every weight of the model. A plain product brings each weight into the
kernel's own order anew in every step; done once, it takes half the time at 8 to 32 rows (AVX2, float32).
"""

from typing import Any

import torch
from torch import Tensor, nn

_ROWS = 32
"""The number of rows that the order is chosen for; it serves any other about as well."""
_MOST_BYTES = 2 << 30
"""Weights beyond this are left alone: the packed copy is a second one."""


class PackedLinear(nn.Module):
    """`nn.Linear` on the same parameters, with a packed copy that follows them.

    The copy is made again as soon as the weight's version counter has moved, so that an in-place update
    can never meet a stale one. Where gradients are wanted the plain product is used.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self._packed: Tensor | None = None
        self._packed_version = -1

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b."""
        if torch.is_grad_enabled():
            return nn.functional.linear(x, self.weight, self.bias)
        if self._packed is None or self._packed_version != self.weight._version:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), _ROWS)
            self._packed_version = self.weight._version
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return product


def pack_linears(model: Any) -> int:
    """Replace the linear layers of a float32 model on the CPU; return how many.

    Parameters keep their names and their storage. Does nothing where torch lacks oneDNN, or for a model too
    large to hold twice.
    """
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    weights = [child.weight for _, _, child in layers]
    if (
        not torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's own
        or not hasattr(torch.ops.mkldnn, "_linear_pointwise")
        or any(weight.device.type != "cpu" or weight.dtype != torch.float32 for weight in weights)
        or sum(weight.nbytes for weight in weights) > _MOST_BYTES
    ):
        return 0
    for parent, name, child in layers:
        setattr(parent, name, PackedLinear(child))
    return len(layers)
